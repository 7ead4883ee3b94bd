//! The spawner: a small single-threaded process that forks supervisors.
//!
//! The agent forks it before it has threads or a runtime, since only a single-threaded process may go on
//! running ordinary code after a fork. Forking it is also cheap: it has touched very little memory.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::cgroup::NodeCgroup;
use crate::confine::Confinement;
use crate::launch::{Event, Launch};
use crate::layers::Layer;
use crate::lease::LeaseReading;
use crate::net::{Attacher, LISTENERS_MAX, ListenSpec, Place};
use crate::probe::Capabilities;
use crate::root::HostView;
use crate::supervisor::{
    self, BASH, CONNECT, HEAD_BYTES, Inherited, Isolated, LAUNCH, LAUNCH_JOINED, Network, STOP, STOP_ALL,
};
use crate::sys::{self, Forked};

/// The namespaces of an isolated attempt, beside those of users and networks.
pub(crate) const NAMESPACES: u64 =
    (libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;
const REQUEST_BYTES_MAX: usize = 4096;
const SWEEP_ROUNDS_MAX: u32 = 1000;

/// Whose spawner it is.
#[derive(Clone, Debug)]
pub struct SpawnerConfig {
    pub node_dir: PathBuf,
    pub installation: String,
    pub node: u64,
    /// Folders of the machine that every isolated attempt sees, read-only, beside the system's own.
    pub visible: Vec<PathBuf>,
    /// Folders of the machine that every isolated attempt may write to.
    pub shared: Vec<PathBuf>,
    /// Folders that no isolated attempt sees, wherever they lie.
    pub hide: Vec<PathBuf>,
    /// How isolated attempts get out, where that was set up. Without, each has its own loopback and nothing else.
    pub network: Option<Place>,
    /// What the agent serves inside every isolated attempt's network.
    pub listen: ListenSpec,
}

/// Name of the empty folder, below the node's, that roots of attempts are mounted at.
const ROOT_FOLDER: &str = "root";

/// The agent's handle on its spawner. When it is dropped, or the agent dies, the spawner ends.
#[derive(Debug)]
pub struct Spawner {
    socket: OwnedFd,
    pid: u32,
    capabilities: Capabilities,
    idle: Arc<Idle>,
}

/// Which network an isolated attempt has.
#[derive(Clone, Copy, Debug)]
pub enum AttemptNetwork<'a> {
    /// One of its own.
    Own,
    /// A namespace that it shares with others of its job.
    Joined(BorrowedFd<'a>),
    /// The machine's: for jobs on several nodes where nothing else lets their nodes reach each other.
    Machine,
}

/// Supervisors that wait for an attempt.
#[derive(Debug, Default)]
struct Waiting {
    /// Of attempts without isolation: the one that served the slot before.
    shared: BTreeMap<u32, (Number, UnixStream)>,
    /// For isolated attempts: made ahead, and touched by nobody. Each serves one.
    fresh: Vec<(u64, UnixStream)>,
    next: u64,
}

/// Which supervisor, from its fork to its end.
type Number = u64;

type Idle = Mutex<Waiting>;

#[derive(Serialize, Deserialize)]
enum Request {
    /// Fork a supervisor, and give it the descriptor that comes along.
    Supervise { isolated: bool, own_network: bool, number: Number },
    /// This supervisor was lost: end the processes it has left behind.
    Sweep { number: Number },
}

/// Supervisors of isolated attempts that are made ahead. Attempts that start at once beyond that wait for theirs to be made.
const FRESH_WANTED: usize = 2;

impl Spawner {
    /// Forks the spawner. Call it first of all: the process must still be single-threaded.
    pub fn start(config: &SpawnerConfig) -> Result<Self, Error> {
        let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        if threads > 1 {
            return Err(Error::TooLate { threads });
        }
        let capabilities = crate::probe::probe();
        let starting = |e: io::Error| Error::Spawner { doing: "starting", source: e };
        let lease = LeaseReading::open(&config.node_dir).map_err(starting)?;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|e| starting(e.into()))?;
        match sys::fork(0).map_err(starting)? {
            Forked::Parent(pid) => {
                Ok(Self { socket: ours, pid: pid as u32, capabilities, idle: Arc::default() })
            }
            Forked::Child => {
                drop(ours);
                // A panic must not unwind into the frames of the process this is a copy of.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    serve(config, &capabilities, &lease, &theirs)
                }));
                sys::exit_now(0)
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What separates attempts here.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Becomes readable when the spawner has died.
    pub fn watch(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Starts an attempt. What becomes of it is read from the handle.
    ///
    /// An isolated attempt has the network that is named.
    pub fn launch(&self, launch: &Launch, network: &AttemptNetwork<'_>) -> Result<Attempt, Error> {
        let failed = |e: io::Error| Error::Spawner { doing: "asking for a supervisor", source: e };
        let body = serde_json::to_vec(launch).map_err(|e| failed(e.into()))?;
        let mut message = Vec::with_capacity(body.len() + HEAD_BYTES);
        let joined = match network {
            AttemptNetwork::Joined(namespace) => Some(*namespace),
            AttemptNetwork::Own | AttemptNetwork::Machine => None,
        };
        message.push(if joined.is_some() { LAUNCH_JOINED } else { LAUNCH });
        message.extend_from_slice(&(body.len() as u64).to_le_bytes());
        message.extend_from_slice(&body);
        let isolated = launch.view.is_some();
        let waiting = {
            let mut idle = lock(&self.idle);
            match (isolated, network) {
                // None is kept for so rare a case.
                (true, AttemptNetwork::Machine) => None,
                (true, AttemptNetwork::Own | AttemptNetwork::Joined(_)) => idle.fresh.pop(),
                (false, _) => idle.shared.remove(&launch.slot),
            }
        };
        let (number, stream) = match waiting {
            // One that was killed while it waited refuses; then there is a fresh one.
            Some((number, stream)) if send_launch(&stream, &message, joined).is_ok() => (number, stream),
            Some(_) | None => {
                let own_network = !matches!(network, AttemptNetwork::Machine);
                let (number, stream) = self.supervisor(isolated, own_network).map_err(failed)?;
                send_launch(&stream, &message, joined).map_err(failed)?;
                (number, stream)
            }
        };
        let slot = (!isolated).then_some(launch.slot);
        Ok(Attempt {
            stream: Some(stream),
            unread: Vec::new(),
            sockets: Vec::new(),
            ended: false,
            number,
            slot,
            idle: Arc::clone(&self.idle),
        })
    }

    /// Has supervisors made for isolated attempts to come, as many as are missing. It waits for nobody.
    pub fn prepare(&self) -> Result<(), Error> {
        if !self.capabilities.namespaces() {
            return Ok(());
        }
        while lock(&self.idle).fresh.len() < FRESH_WANTED {
            let fresh = self
                .supervisor(true, true)
                .map_err(|e| Error::Spawner { doing: "asking for a supervisor", source: e })?;
            lock(&self.idle).fresh.insert(0, fresh);
        }
        Ok(())
    }

    fn supervisor(&self, isolated: bool, own_network: bool) -> io::Result<(Number, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let number = {
            let mut idle = lock(&self.idle);
            idle.next += 1;
            idle.next
        };
        self.ask(&Request::Supervise { isolated, own_network, number }, Some(theirs.as_fd()))?;
        Ok((number, ours))
    }

    /// After an attempt's handle was closed from the other side without an [`Event::Ended`]: ends what the
    /// lost supervisor has left behind.
    pub fn sweep(&self, lost: &Attempt) -> Result<(), Error> {
        self.ask(&Request::Sweep { number: lost.number }, None)
            .map_err(|e| Error::Spawner { doing: "asking for a sweep", source: e })
    }

    fn ask(&self, request: &Request, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let body = serde_json::to_vec(request)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = with.into_iter().collect();
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&body)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Sends a launch, and with its first byte the descriptor that belongs to it.
fn send_launch(stream: &UnixStream, message: &[u8], network: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let Some(network) = network else { return send_whole(stream, message) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [network];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(stream, &[IoSlice::new(&message[..1])], &mut control, SendFlags::NOSIGNAL)?;
    send_whole(stream, &message[1..])
}

/// Writes everything, waiting where the socket is full: the supervisor on the other side only reads.
fn send_whole(mut stream: &UnixStream, mut message: &[u8]) -> io::Result<()> {
    while !message.is_empty() {
        match stream.write(message) {
            Ok(sent) => message = &message[sent..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                rustix::event::poll(&mut [PollFd::new(stream, PollFlags::OUT)], None)?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn lock(idle: &Idle) -> std::sync::MutexGuard<'_, Waiting> {
    idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// An attempt that was started. Dropping it before its end ends it.
#[derive(Debug)]
pub struct Attempt {
    /// Taken only by `drop`.
    stream: Option<UnixStream>,
    unread: Vec<u8>,
    /// Received and not yet given to anybody.
    sockets: Vec<OwnedFd>,
    ended: bool,
    number: Number,
    /// Where another attempt of the slot may have the same supervisor.
    slot: Option<u32>,
    idle: Arc<Idle>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let (Some(stream), Some(slot), true) = (self.stream.take(), self.slot, self.ended) {
            lock(&self.idle).shared.insert(slot, (self.number, stream));
        }
    }
}

/// What [`Attempt::events`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub events: Vec<Event>,
    /// Nothing more will come.
    pub closed: bool,
}

impl Attempt {
    /// Reads without waiting whatever the supervisor has said. The descriptor ([`AsFd`]) becomes readable
    /// when there is something.
    pub fn events(&mut self) -> io::Result<Heard> {
        let mut heard = Heard::default();
        let mut buffer = [0; 4096];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut buffer)];
            let received =
                rustix::net::recvmsg(self.stream(), &mut into, &mut control, RecvFlags::CMSG_CLOEXEC);
            match received.map(|received| received.bytes) {
                Ok(0) => heard.closed = true,
                Ok(n) => {
                    for message in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(sockets) = message {
                            self.sockets.extend(sockets);
                        }
                    }
                    self.unread.extend_from_slice(&buffer[..n]);
                    // Descriptors end a piece; there may be more behind them.
                    continue;
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(rustix::io::Errno::CONNRESET) => heard.closed = true,
                Err(e) => return Err(e.into()),
            }
            break;
        }
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let event: Event = serde_json::from_slice(&self.unread[..end])?;
            self.ended |= matches!(event, Event::Ended(_));
            heard.events.push(event);
            self.unread.drain(..=end);
        }
        Ok(heard)
    }

    /// The sockets that came with an event, in their order.
    pub fn take_sockets(&mut self, count: usize) -> Vec<OwnedFd> {
        self.sockets.drain(..count.min(self.sockets.len())).collect()
    }

    /// Asks for a connection to a loopback address inside the attempt's network. An [`Event::Connected`] is the answer;
    /// answers come in the order of the questions.
    pub fn connect(&self, address: SocketAddrV4) -> io::Result<()> {
        self.say(CONNECT, u64::from(address.ip().to_bits()) << 16 | u64::from(address.port()))
    }

    /// Asks the process group to end, and ends the tree when its first process has, or after the grace.
    pub fn stop(&self, grace_ms: u64) -> io::Result<()> {
        self.say(STOP, grace_ms)
    }

    /// Asks every process to end, and gives each of them the whole grace: a shell that ends at once does not take what it
    /// waited for with it.
    pub fn stop_patiently(&self, grace_ms: u64) -> io::Result<()> {
        self.say(STOP_ALL, grace_ms)
    }

    fn say(&self, word: u8, number: u64) -> io::Result<()> {
        let mut message = [0; HEAD_BYTES];
        message[0] = word;
        message[1..].copy_from_slice(&number.to_le_bytes());
        self.stream().write_all(&message)
    }

    fn stream(&self) -> &UnixStream {
        self.stream.as_ref().unwrap_or_else(|| unreachable!("only drop takes the stream"))
    }
}

impl AsFd for Attempt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

impl AsRawFd for Attempt {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.stream().as_raw_fd()
    }
}

/// The spawner's whole life.
fn serve(config: &SpawnerConfig, capabilities: &Capabilities, lease: &LeaseReading, socket: &OwnedFd) {
    // Whatever the server's: attempts must be able to pass through the folders made for them.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    sys::new_session();
    sys::set_name(c"neap-spawner");
    sys::become_subreaper();
    sys::reap_children_unseen();
    let Ok(dev_null) = File::open("/dev/null") else { return };
    sys::close_all_but(&[socket.as_raw_fd(), dev_null.as_raw_fd()]);
    let cgroup = capabilities.cgroup.and_then(|_| NodeCgroup::create(&config.installation, config.node));
    if let Some(mut procs) = cgroup.as_ref().and_then(NodeCgroup::agent_procs) {
        let _ = procs.write_all(b"0");
    }
    let host = HostView {
        at: config.node_dir.join(ROOT_FOLDER),
        visible: config.visible.clone(),
        shared: config.shared.clone(),
        hide: config.hide.clone(),
        own_user_namespace: !capabilities.root,
    };
    let _ = std::fs::DirBuilder::new().mode(0o700).create(&host.at);
    // What hinders it was told to the agent when the network was set up.
    let attacher = config.network.as_ref().and_then(|place| Attacher::open(place).ok());
    let mut spawner = Serving {
        lease,
        shell: if Path::new("/bin/bash").exists() { BASH } else { c"/bin/sh" },
        dev_null,
        cgroup,
        supervisors: BTreeMap::new(),
        host,
        confinement: capabilities.confinement(&config.visible, &config.shared),
        attacher,
        listen: &config.listen,
        user_namespace: (!capabilities.root)
            .then(|| (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())),
    };
    while let Some((request, fd)) = next_request(socket) {
        match (request, fd) {
            (Request::Supervise { isolated, own_network, number }, Some(fd)) => {
                let kind = Kind { isolated, own_network };
                spawner.supervise(socket, kind, number, &UnixStream::from(fd));
            }
            (Request::Sweep { number }, _) => spawner.sweep(number),
            (Request::Supervise { .. }, None) => {}
        }
    }
}

struct Serving<'a> {
    lease: &'a LeaseReading,
    shell: &'static CStr,
    dev_null: File,
    cgroup: Option<NodeCgroup>,
    /// Those that may still run.
    supervisors: BTreeMap<Number, i32>,
    host: HostView,
    /// None where this machine cannot isolate.
    confinement: Option<Confinement>,
    attacher: Option<Attacher>,
    listen: &'a ListenSpec,
    user_namespace: Option<(u32, u32)>,
}

/// What a supervisor is made for.
#[derive(Clone, Copy, Debug)]
struct Kind {
    isolated: bool,
    own_network: bool,
}

/// What a supervisor hears of its network: it leads outside, or there is none but its own.
pub(crate) const ATTACHED: u8 = b'A';
pub(crate) const ALONE: u8 = b'N';
/// Above this many, those that have ended are forgotten.
const SUPERVISORS_KNOWN_MAX: usize = 64;

impl Serving<'_> {
    fn supervise(&mut self, socket: &OwnedFd, kind: Kind, number: Number, agent: &UnixStream) {
        let isolated = kind.isolated;
        let confinement = self.confinement.clone().filter(|_| isolated);
        if isolated && confinement.is_none() {
            let e = io::Error::from(io::ErrorKind::Unsupported);
            return refuse(agent, "isolating the attempt", &e);
        }
        let mut flags = 0;
        if let Some(confinement) = &confinement {
            flags = NAMESPACES;
            if kind.own_network && confinement.layers.has(Layer::Network) {
                flags |= libc::CLONE_NEWNET as u64;
            }
            if self.user_namespace.is_some() {
                flags |= libc::CLONE_NEWUSER as u64;
            }
        }
        let own_network = flags & libc::CLONE_NEWNET as u64 != 0;
        let (told, tell) = match rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) {
            Ok(ends) => ends,
            Err(e) => return refuse(agent, "making a pipe", &e.into()),
        };
        match sys::fork(flags) {
            Ok(Forked::Parent(pid)) => {
                if own_network {
                    let word = if self.attach(pid) { ATTACHED } else { ALONE };
                    let _ = rustix::io::write(&tell, &[word]);
                }
                self.supervisors.insert(number, pid);
                if self.supervisors.len() > SUPERVISORS_KNOWN_MAX {
                    self.supervisors.retain(|_, pid| sys::kill(*pid, 0).is_ok());
                }
            }
            Ok(Forked::Child) => {
                drop(tell);
                for held in self.attacher.iter().flat_map(Attacher::descriptors) {
                    sys::close_now(&held);
                }
                let inherited = Inherited {
                    lease: self.lease,
                    shell: self.shell,
                    dev_null: self.dev_null.as_fd(),
                    cgroup: self.cgroup.as_ref().filter(|_| isolated),
                    isolated: confinement.as_ref().map(|confinement| Isolated {
                        confinement,
                        host: &self.host,
                        map_self: self.user_namespace,
                        network: own_network.then_some(Network { told: &told, listen: self.listen }),
                    }),
                };
                sys::close_now(socket);
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    supervisor::supervise(&inherited, agent);
                }));
                sys::exit_now(0)
            }
            Err(e) => refuse(agent, "forking a supervisor", &e),
        }
    }

    /// Connects the network of a supervisor that waits for it.
    fn attach(&mut self, pid: i32) -> bool {
        let Some(attacher) = &mut self.attacher else { return false };
        let attached = File::open(format!("/proc/{pid}/ns/net"))
            .and_then(|namespace| attacher.attach(namespace.as_fd()));
        if let Err(e) = &attached {
            // The agent's own log is this process's stderr.
            let _ = writeln!(io::stderr(), "neap: an attempt is without a network: {e}");
        }
        attached.is_ok()
    }

    /// Orphans of a lost supervisor become this process's children: it is their subreaper. They do so when the
    /// supervisor is dead, which is a little after its socket is closed.
    fn sweep(&mut self, lost: Number) {
        self.supervisors.remove(&lost);
        let mut empty_before = false;
        for _ in 0..SWEEP_ROUNDS_MAX {
            let mut left = supervisor::children_of(std::process::id());
            left.retain(|pid| !self.supervisors.values().any(|other| other == pid));
            // The kernel's list may leave somebody out while another ends: twice empty is empty.
            if left.is_empty() && empty_before {
                return;
            }
            empty_before = left.is_empty();
            for pid in left {
                let _ = sys::kill(pid, libc::SIGKILL);
            }
            crate::pause_ms(1);
        }
    }
}

fn refuse(mut agent: &UnixStream, step: &str, e: &io::Error) {
    let record = supervisor::not_started(step, e);
    if let Ok(mut line) = serde_json::to_vec(&Event::Ended(record)) {
        line.push(b'\n');
        let _ = agent.write_all(&line);
    }
}

fn next_request(socket: &OwnedFd) -> Option<(Request, Option<OwnedFd>)> {
    let mut body = [0; REQUEST_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        let received = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut body)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        match received {
            Ok(message) if message.bytes == 0 => return None,
            Ok(message) => {
                let request = serde_json::from_slice(&body[..message.bytes]).ok()?;
                let fd = control.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                    _ => None,
                });
                return Some((request, fd));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
