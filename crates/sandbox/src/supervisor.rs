//! The supervisor: the process above an attempt. It starts the user's command, keeps its output, and sees to
//! it that the whole tree of processes ends, whoever else has died or hangs.
//!
//! It is a forked copy of the spawner, single-threaded, and never returns. An isolated attempt has one to itself: it
//! was forked into new namespaces and made its root file system before anybody knew for which job, and it ends with
//! the attempt, so that nothing a job has touched is there for another. Attempts without isolation hide nothing from
//! each other anyway; for them it stays for the next one of its slot.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use rustix::pipe::PipeFlags;

use crate::cgroup::{NodeCgroup, SlotCgroup};
use crate::confine::{Confinement, confine};
use crate::launch::{Event, ExitRecord, JOBS_PLACE, Launch, Outcome, TIMEOUT_GRACE_MS, Used};
use crate::layers::Layer;
use crate::lease::{LeaseReading, boot_ms};
use crate::mask::Masker;
use crate::net::{self, LISTENERS_MAX, ListenSpec};
use crate::root::{self, HostView, Root, StepError};
use crate::spawner::{ALONE, ATTACHED};
use crate::spool::{SpoolEnd, SpoolWriter};
use crate::sys::{self, ChildStack, Program, ProgramSpec, Reaped};

/// What the agent sends begins with one of these and a little-endian number: the length of the launch that
/// follows, or the grace in milliseconds.
pub(crate) const LAUNCH: u8 = b'L';
/// The same, and a network namespace to enter comes along.
pub(crate) const LAUNCH_JOINED: u8 = b'J';
pub(crate) const STOP: u8 = b'S';
/// A stop in which every process has the grace, and not only the first.
pub(crate) const STOP_ALL: u8 = b'A';
/// A connection to a port of the attempt's own network is wanted.
pub(crate) const CONNECT: u8 = b'C';
/// The shell whose ways are known well enough to do without it.
pub(crate) const BASH: &std::ffi::CStr = c"/bin/bash";
pub(crate) const HEAD_BYTES: usize = 9;

/// An attempt that ends sooner than this tells its start and its end in one word: that wakes the agent once, and the
/// server once.
const START_NOTICE_MS: u64 = 2;
/// What an attempt used is told if it ran for this long: before that it means little.
const USED_TOLD_MS_MIN: u64 = 10_000;
/// While output comes without pause, the agent is told about it this often.
const LOG_NOTICE_MS: u64 = 25;
const PUMP_BYTES: usize = 64 * 1024;
/// How many pump buffers are taken before anything else is looked at.
const PUMP_ROUNDS_MAX: usize = 16;
const KILL_ROUND_MS: i64 = 20;

/// What a supervisor has from the spawner it was forked from.
pub(crate) struct Inherited<'a> {
    pub lease: &'a LeaseReading,
    pub shell: &'a std::ffi::CStr,
    pub dev_null: BorrowedFd<'a>,
    /// The node's cgroups, for attempts that are limited.
    pub cgroup: Option<&'a NodeCgroup>,
    /// For an isolated attempt, of which it supervises one. None: attempts without isolation, one after the other.
    pub isolated: Option<Isolated<'a>>,
}

/// What a supervisor of an isolated attempt has besides.
pub(crate) struct Isolated<'a> {
    pub confinement: &'a Confinement,
    pub host: &'a HostView,
    /// User and group to be mapped to themselves in the user namespace it was forked into.
    pub map_self: Option<(u32, u32)>,
    pub network: Option<Network<'a>>,
}

/// What a supervisor knows of the network namespace that it was forked into.
pub(crate) struct Network<'a> {
    /// Where it is told whether the network leads outside.
    pub told: &'a OwnedFd,
    /// What is opened in it for the agent.
    pub listen: &'a ListenSpec,
}

/// Runs attempts until there is no more to run, or the agent closes the socket.
pub(crate) fn supervise(inherited: &Inherited<'_>, agent: &UnixStream) {
    sys::new_session();
    sys::set_name(c"neap-supervisor");
    let mut supervisor = Supervisor::new(inherited, agent);
    while let Some((launch, joined)) = receive(agent) {
        let mut words = Vec::new();
        let record = match &mut supervisor {
            Ok(supervisor) => supervisor.run(inherited, &launch, joined, &mut words),
            Err((step, e)) => not_started(step, e),
        };
        words.push(Event::Ended(record));
        if tell(agent, &words, SendFlags::empty()).is_err() || inherited.isolated.is_some() {
            return;
        }
    }
}

pub(crate) fn not_started(step: &str, e: &io::Error) -> ExitRecord {
    let outcome = Outcome::NotStarted { step: step.to_owned(), message: e.to_string() };
    ExitRecord { outcome, spool: SpoolEnd::default(), used: None }
}

/// Waits for the next launch. A stop that came too late for the attempt before is passed over.
fn receive(mut agent: &UnixStream) -> Option<(Launch, Option<OwnedFd>)> {
    let mut head = [0; HEAD_BYTES];
    let joined = loop {
        let joined = receive_byte(agent, &mut head[0])?;
        agent.read_exact(&mut head[1..]).ok()?;
        if head[0] == LAUNCH || head[0] == LAUNCH_JOINED {
            break joined.filter(|_| head[0] == LAUNCH_JOINED);
        }
    };
    let mut body = vec![0; number(&head) as usize];
    agent.read_exact(&mut body).ok()?;
    Some((serde_json::from_slice(&body).ok()?, joined))
}

/// One byte, and the descriptor that comes with it if one does.
fn receive_byte(agent: &UnixStream, byte: &mut u8) -> Option<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffer = [0];
    loop {
        let mut into = [IoSliceMut::new(&mut buffer)];
        match rustix::net::recvmsg(agent, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) if received.bytes == 1 => break,
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return None,
        }
    }
    *byte = buffer[0];
    Some(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

fn number(head: &[u8; HEAD_BYTES]) -> u64 {
    head[1..].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// Says something to the agent.
fn tell(agent: &UnixStream, events: &[Event], flags: SendFlags) -> io::Result<()> {
    let mut lines = Vec::new();
    for event in events {
        serde_json::to_writer(&mut lines, event)?;
        lines.push(b'\n');
    }
    rustix::net::send(agent, &lines, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The same with sockets that come along.
fn tell_with(agent: &UnixStream, event: &Event, sockets: &[OwnedFd]) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    rustix::net::sendmsg(agent, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Opens what the agent serves inside, and passes it on.
fn listen(agent: &UnixStream, spec: &ListenSpec) -> io::Result<()> {
    let sockets = net::open_listeners(spec)?;
    tell_with(agent, &Event::Listening { sockets: sockets.len() }, &sockets)
}

/// Waits until the network is there, and opens what the agent serves inside.
fn prepare_network(agent: &UnixStream, network: &Network<'_>) -> io::Result<()> {
    let mut word = [ALONE];
    rustix::io::read(network.told, &mut word)?;
    if word[0] != ATTACHED {
        net::loopback_only()?;
    }
    listen(agent, network.listen)
}

/// What is there before the first attempt.
struct Supervisor<'a> {
    agent: &'a UnixStream,
    lease: &'a LeaseReading,
    root: Option<Root>,
    cgroup: Option<SlotCgroup>,
    /// Kept open, so that an attempt which closes its output is not taken for one that has ended.
    pipe: Option<OwnedFd>,
    output: File,
    children: OwnedFd,
    timer: OwnedFd,
    timer_at_ms: u64,
    whole_namespace: bool,
    stack: ChildStack,
    buffer: Vec<u8>,
}

/// The attempt that runs now.
struct Current<'s, 'a> {
    supervisor: &'s mut Supervisor<'a>,
    spool: SpoolWriter,
    masker: Masker,
    main: i32,
    /// How many processes of the slot had been ended for want of memory before.
    oom_before: u64,
    cpu_before_us: Option<u64>,
    began_ms: u64,
    told_bytes: u64,
    told_at_ms: u64,
    /// When the agent is told that it has started; none when it was.
    tell_start_ms: Option<u64>,
}

/// Why the tree is being ended, and when it is killed.
struct Ending {
    outcome: Outcome,
    kill_at_ms: u64,
    /// The other processes have until then too, when the main one has ended.
    patient: bool,
}

impl Ending {
    fn now(outcome: Outcome) -> Self {
        Self { outcome, kill_at_ms: 0, patient: false }
    }
}

impl<'a> Supervisor<'a> {
    fn new(inherited: &Inherited<'a>, agent: &'a UnixStream) -> Result<Self, StepError> {
        let step = |step: &'static str| move |e: rustix::io::Errno| (step, io::Error::from(e));
        let mut root = None;
        if let Some(isolated) = &inherited.isolated {
            if let Some((uid, gid)) = isolated.map_self {
                root::map_self(uid, gid)?;
            }
            // A job of the same user must not look into it.
            sys::set_dumpable(false);
            if isolated.confinement.layers.has(Layer::Root) {
                root = Some(Root::build(isolated.host)?);
            } else {
                sys::mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE, c"")
                    .and_then(|()| sys::mount(c"proc", c"/proc", c"proc", 0, c""))
                    .map_err(|e| ("mounting /proc", e))?;
            }
            if let Some(network) = &isolated.network {
                prepare_network(agent, network).map_err(|e| ("preparing the network", e))?;
            }
        } else {
            sys::become_subreaper();
        }
        let children = sys::child_signals().map_err(|e| ("watching for children", e))?;
        let timer = rustix::time::timerfd_create(
            rustix::time::TimerfdClockId::Boottime,
            rustix::time::TimerfdFlags::CLOEXEC | rustix::time::TimerfdFlags::NONBLOCK,
        )
        .map_err(step("making a timer"))?;
        Ok(Self {
            agent,
            lease: inherited.lease,
            root,
            cgroup: None,
            pipe: None,
            output: File::from(
                rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(step("opening /dev/null"))?,
            ),
            children,
            timer,
            timer_at_ms: 0,
            whole_namespace: inherited.isolated.is_some(),
            stack: ChildStack::new(),
            buffer: vec![0; PUMP_BYTES],
        })
    }

    /// Runs an attempt. What is still to be said before its end is added to `words`.
    fn run(
        &mut self,
        inherited: &Inherited<'_>,
        launch: &Launch,
        joined: Option<OwnedFd>,
        words: &mut Vec<Event>,
    ) -> ExitRecord {
        let network = inherited.isolated.as_ref().and_then(|isolated| isolated.network.as_ref());
        if let (Some(network), Some(joined)) = (network, joined)
            && let Err(e) = rustix::thread::move_into_link_name_space(
                joined.as_fd(),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )
            .map_err(io::Error::from)
            .and_then(|()| listen(self.agent, network.listen))
        {
            return not_started("entering the network of the job's ranks", &e);
        }
        match self.start(inherited, launch) {
            Ok(current) => current.run(launch, words),
            Err((step, e)) => not_started(step, &e),
        }
    }

    fn start(&mut self, inherited: &Inherited<'_>, launch: &Launch) -> Result<Current<'_, 'a>, StepError> {
        let step = |step: &'static str| move |e: rustix::io::Errno| (step, io::Error::from(e));
        let spool = SpoolWriter::new(launch.attempt_dir.clone(), launch.head_bytes, launch.log_bytes_max);
        let (mut oom_before, mut cpu_before_us) = (0, None);
        if let Some(node) = inherited.cgroup {
            let mut cgroup = node.slot(launch.slot).map_err(|e| ("making the cgroup", e))?;
            cgroup.limit(launch.limits).map_err(|e| ("setting the limits", e))?;
            cgroup.close_devices(launch.view.as_ref().map_or(&[], |view| &view.closed_devices));
            oom_before = cgroup.oom_kills();
            cpu_before_us = cgroup.cpu_us();
            self.cgroup = Some(cgroup);
        }
        // A pipe for each attempt: whoever has kept an end of an earlier one writes to nobody.
        let making = "making a pipe for the output";
        let (read, pipe) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(step(making))?;
        rustix::io::ioctl_fionbio(&read, true).map_err(step(making))?;
        self.output = File::from(read);
        if let Some(user) = launch.view.as_ref().and_then(|view| view.user) {
            sys::give_to(&pipe, user);
        }
        let own_program = launch.own_program.as_ref().map(|arguments| {
            // Whatever became of the file that it was started from.
            File::open("/proc/self/exe").map(|file| (file, arguments.as_slice()))
        });
        let own_program = own_program.transpose().map_err(|e| ("opening the agent's program", e))?;
        let mut program = Program::new(ProgramSpec {
            shell: inherited.shell,
            command: &launch.command,
            own_program: own_program.as_ref().map(|(file, arguments)| (file.as_raw_fd(), *arguments)),
            direct: (inherited.shell == BASH)
                .then(|| crate::direct::direct(&launch.command, &launch.env))
                .flatten(),
            env: &launch.env,
            cwd: cwd(launch, self.root.is_some()).as_os_str().as_bytes(),
            stdin: inherited.dev_null.as_raw_fd(),
            output: pipe.as_raw_fd(),
            cgroup_procs: self.cgroup.as_ref().map(SlotCgroup::procs).unwrap_or_default(),
            dies_with_parent: inherited.isolated.is_none(),
        })
        .map_err(|e| ("reading the command", e))?;
        let main = match (&inherited.isolated, &launch.view) {
            (Some(isolated), Some(view)) => program.start_confined(|| {
                let own_program = own_program.as_ref().map(|(file, _)| file.as_fd());
                let file_bytes_max = launch.limits.file_bytes_max;
                confine(isolated.confinement, self.root.as_ref(), view, own_program, file_bytes_max)
            })?,
            _ => program.start(&mut self.stack)?,
        };
        neap_crash::point("command-started-before-word");
        self.pipe = Some(pipe);
        let told_bytes = spool.end().head_bytes;
        let began_ms = boot_ms();
        Ok(Current {
            supervisor: self,
            told_bytes,
            spool,
            masker: Masker::new(&launch.masked),
            main,
            oom_before,
            cpu_before_us,
            began_ms,
            told_at_ms: 0,
            tell_start_ms: Some(began_ms + START_NOTICE_MS),
        })
    }
}

impl Current<'_, '_> {
    fn run(mut self, launch: &Launch, words: &mut Vec<Event>) -> ExitRecord {
        let lease = self.supervisor.lease;
        let timeout_at_ms = launch.timeout_ms.map_or(u64::MAX, |ms| boot_ms().saturating_add(ms));
        let mut ending: Option<Ending> = None;
        let mut main_status = None;
        let (status, tree_gone) = loop {
            let kill_at_ms = ending.as_ref().map_or(timeout_at_ms, |ending| ending.kill_at_ms);
            let ready = self.wait(kill_at_ms.min(lease.deadline_boot_ms()));
            if ready.output {
                self.pump();
            }
            if ready.children {
                let (ended, none_left) = self.reap_children();
                main_status = main_status.or(ended);
                let patient = ending.as_ref().is_some_and(|ending| ending.patient);
                if let Some(status) = main_status.filter(|_| none_left || !patient) {
                    break (status, none_left);
                }
            }
            if ready.agent {
                match self.heard() {
                    Heard::Nothing => {}
                    Heard::Stop { grace_ms, patient } => {
                        let kill_at_ms = boot_ms().saturating_add(grace_ms);
                        let outcome = match ending.take() {
                            Some(Ending { outcome, .. }) => outcome,
                            None => Outcome::Stopped,
                        };
                        ending = Some(Ending { outcome, kill_at_ms, patient });
                        self.ask_to_end(patient);
                    }
                    Heard::Connect(address) => self.connect(address),
                    Heard::AgentGone => ending = Some(Ending::now(Outcome::AgentLost)),
                }
            }
            let now_ms = boot_ms();
            if now_ms >= lease.deadline_boot_ms() {
                ending = Some(Ending::now(Outcome::LeaseLost));
            } else if ending.is_none() && now_ms >= timeout_at_ms {
                let kill_at_ms = now_ms + TIMEOUT_GRACE_MS;
                ending = Some(Ending { outcome: Outcome::TimedOut, kill_at_ms, patient: false });
                let _ = sys::kill(-self.main, libc::SIGTERM);
            }
            if ending.as_ref().is_some_and(|ending| now_ms >= ending.kill_at_ms) {
                break (self.end_tree(), true);
            }
        };
        if !tree_gone {
            self.end_tree();
        }
        if let Some(file) = &launch.beside {
            crate::node::end_process(file);
        }
        self.pump();
        let _ = self.spool.write(self.masker.finish());
        let outcome = ending.map_or_else(|| self.outcome(status, launch), |ending| ending.outcome);
        let record = ExitRecord { outcome, spool: self.spool.end(), used: self.used() };
        neap_crash::point("tree-ended-before-word");
        words.extend(self.tell_start_ms.map(|_| Event::Started));
        record
    }

    /// Waits for something to happen, at most until `until_ms`.
    fn wait(&mut self, mut until_ms: u64) -> Ready {
        if let Some(tell_start_ms) = self.tell_start_ms {
            until_ms = until_ms.min(tell_start_ms);
        } else if self.spool.end().head_bytes > self.told_bytes {
            until_ms = until_ms.min(self.told_at_ms + LOG_NOTICE_MS);
        }
        if until_ms != self.supervisor.timer_at_ms {
            // Zero would switch the timer off; the past fires at once. The kernel takes no date beyond
            // its own range, and no attempt lasts that long.
            let at_ms = until_ms.clamp(1, i64::MAX as u64 / 2_000_000);
            let at = rustix::time::Timespec {
                tv_sec: (at_ms / 1000) as i64,
                tv_nsec: (at_ms % 1000 * 1_000_000) as i64,
            };
            let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = rustix::time::timerfd_settime(
                &self.supervisor.timer,
                rustix::time::TimerfdTimerFlags::ABSTIME,
                &rustix::time::Itimerspec { it_interval: zero, it_value: at },
            );
            self.supervisor.timer_at_ms = until_ms;
        }
        let mut fds = [
            PollFd::new(&self.supervisor.children, PollFlags::IN),
            PollFd::new(self.supervisor.agent, PollFlags::IN),
            PollFd::new(&self.supervisor.timer, PollFlags::IN),
            PollFd::new(&self.supervisor.output, PollFlags::IN),
        ];
        let _ = poll(&mut fds, None);
        let ready = |n: usize| !fds[n].revents().is_empty();
        let ready = Ready { children: ready(0), agent: ready(1), timer: ready(2), output: ready(3) };
        if ready.timer {
            self.supervisor.timer_at_ms = 0;
            self.notice();
        }
        ready
    }

    /// Takes what the process has written, as far as it has; a full pipe would make it wait.
    fn pump(&mut self) {
        for _ in 0..PUMP_ROUNDS_MAX {
            match (&self.supervisor.output).read(&mut self.supervisor.buffer) {
                Ok(n) => {
                    // A full disk loses output; it does not stop the process.
                    let _ = self.spool.write(self.masker.feed(&self.supervisor.buffer[..n]));
                    if n < PUMP_BYTES / 16 {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        self.notice();
    }

    fn notice(&mut self) {
        let head_bytes = self.spool.end().head_bytes;
        let now_ms = boot_ms();
        if let Some(tell_start_ms) = self.tell_start_ms {
            if now_ms < tell_start_ms {
                return;
            }
            let told = tell(self.supervisor.agent, &[Event::Started], SendFlags::DONTWAIT);
            self.tell_start_ms = told.is_err().then_some(now_ms + LOG_NOTICE_MS);
            if told.is_err() {
                return;
            }
        }
        if head_bytes > self.told_bytes && now_ms >= self.told_at_ms + LOG_NOTICE_MS {
            if tell(self.supervisor.agent, &[Event::Log { head_bytes }], SendFlags::DONTWAIT).is_ok() {
                self.told_bytes = head_bytes;
            }
            self.told_at_ms = now_ms;
        }
    }

    /// Begins a connection inside the attempt's network, for the agent, who is not in it.
    fn connect(&self, address: SocketAddrV4) {
        let (event, sockets) = match net::connect_inside(address.into()) {
            Ok(socket) => (Event::Connected { error: None }, vec![socket]),
            Err(e) => (Event::Connected { error: Some(e.to_string()) }, Vec::new()),
        };
        let _ = tell_with(self.supervisor.agent, &event, &sockets);
    }

    /// The polite signal: to the process group, or to everybody.
    fn ask_to_end(&self, everybody: bool) {
        let whole = everybody && self.supervisor.whole_namespace;
        let _ = sys::kill(if whole { -1 } else { -self.main }, libc::SIGTERM);
    }

    /// Takes the children that have ended: the main process's status when it is among them, and whether nobody is left.
    fn reap_children(&mut self) -> (Option<i32>, bool) {
        let mut info = [0u8; 128];
        let _ = rustix::io::read(&self.supervisor.children, &mut info);
        let mut main = None;
        loop {
            match sys::reap() {
                Reaped::Child { pid, status } if pid == self.main => main = Some(status),
                Reaped::Child { .. } => {}
                Reaped::NoneYet => return (main, false),
                Reaped::NoChildren => return (main, true),
            }
        }
    }

    fn heard(&mut self) -> Heard {
        let mut head = [0; HEAD_BYTES];
        match rustix::net::recv(self.supervisor.agent, &mut head, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Heard::AgentGone,
            Ok(_) if head[0] == STOP => Heard::Stop { grace_ms: number(&head), patient: false },
            Ok(_) if head[0] == CONNECT => {
                let (address, port) = (number(&head) >> 16, number(&head) & 0xffff);
                Heard::Connect(SocketAddrV4::new(Ipv4Addr::from_bits(address as u32), port as u16))
            }
            Ok(_) if head[0] == STOP_ALL => Heard::Stop { grace_ms: number(&head), patient: true },
            // The agent launches nothing here while an attempt runs.
            Ok(_) => Heard::AgentGone,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Heard::Nothing,
            Err(_) => Heard::AgentGone,
        }
    }

    /// Kills and reaps every process of the attempt, and gives the main one's status (zero if it had ended).
    fn end_tree(&mut self) -> i32 {
        let mut main_status = 0;
        loop {
            if self.supervisor.whole_namespace {
                // From the first process of a pid namespace: all others in it.
                let _ = sys::kill(-1, libc::SIGKILL);
            } else {
                let _ = sys::kill(-self.main, libc::SIGKILL);
                for pid in children_of(std::process::id()) {
                    let _ = sys::kill(pid, libc::SIGKILL);
                }
            }
            loop {
                match sys::reap() {
                    Reaped::Child { pid, status } if pid == self.main => main_status = status,
                    Reaped::Child { .. } => {}
                    Reaped::NoneYet => break,
                    Reaped::NoChildren => return main_status,
                }
            }
            self.pump();
            let mut fds = [PollFd::new(&self.supervisor.children, PollFlags::IN)];
            let round = rustix::event::Timespec { tv_sec: 0, tv_nsec: KILL_ROUND_MS * 1_000_000 };
            let _ = poll(&mut fds, Some(&round));
            let mut info = [0u8; 128];
            let _ = rustix::io::read(&self.supervisor.children, &mut info);
        }
    }

    /// What it used; nothing is said of what was short.
    fn used(&self) -> Option<Used> {
        let ran_ms = boot_ms().saturating_sub(self.began_ms);
        let cgroup = self.supervisor.cgroup.as_ref().filter(|_| ran_ms >= USED_TOLD_MS_MIN)?;
        let cpu_us = cgroup.cpu_us()?.saturating_sub(self.cpu_before_us?);
        let memory_peak_mb = cgroup.memory_peak_bytes()?.div_ceil(1024 * 1024);
        Some(Used { ran_ms, cpu_ms: cpu_us / 1000, memory_peak_mb })
    }

    fn outcome(&self, status: i32, launch: &Launch) -> Outcome {
        let code = sys::exit_code(status);
        if code != Some(0)
            && let Some(cgroup) = &self.supervisor.cgroup
            && cgroup.oom_kills() > self.oom_before
        {
            return Outcome::OutOfMemory { limit_mb: launch.limits.memory_mb };
        }
        match (code, sys::exit_signal(status)) {
            (Some(code), _) => Outcome::Exited { code },
            (None, signal) => Outcome::Signaled { signal: signal.unwrap_or(0) },
        }
    }
}

/// The working folder, as the process sees it. Where a test has switched the root of its own off, it lies where it is.
fn cwd(launch: &Launch, in_own_root: bool) -> PathBuf {
    let view = launch.view.as_ref().filter(|_| !in_own_root);
    let below = view.and_then(|view| {
        let below = launch.cwd.strip_prefix(Path::new(JOBS_PLACE).join(&view.job_name)).ok()?;
        Some(view.work_dir.join(below))
    });
    below.unwrap_or_else(|| launch.cwd.clone())
}

struct Ready {
    children: bool,
    agent: bool,
    timer: bool,
    output: bool,
}

enum Heard {
    Nothing,
    Stop { grace_ms: u64, patient: bool },
    Connect(SocketAddrV4),
    AgentGone,
}

/// The children of a single-threaded process.
pub(crate) fn children_of(pid: u32) -> Vec<i32> {
    if let Ok(list) = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        return list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    }
    // A kernel without that file: look at everybody's parent.
    crate::node::processes()
        .into_iter()
        .filter(|found| found.parent == pid as i32)
        .map(|found| found.pid)
        .collect()
}
