//! What a job reaches over the network, and what it does not. Everything happens in namespaces made for each test: the
//! "host" is one of them, so that the machine's own routes and rules are never touched.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use neap_sandbox::net::{
    Attacher, CLOSED, CONNECTIONS_PER_JOB_MAX, ListenSpec, Place, adopt, connect_inside, ensure, guard, heal,
    join, loopback_only, namespace_of, open_listeners, remove,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

const OUTSIDE: &str = "203.0.113.1:80";
const CORPORATE: &str = "10.9.9.9:80";
const HOST: &str = "192.0.2.2";
const PORT: u16 = 7000;
/// A blocked packet is answered by nobody: this long to be sure.
const SILENCE: Duration = Duration::from_millis(250);

/// The host that a test has for itself: its thread is in it.
struct Host {
    _folder: tempfile::TempDir,
    place: Place,
    world: OwnedFd,
}

impl Host {
    /// None where the test cannot run.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !std::path::Path::new("/usr/sbin/nft").exists() {
            eprintln!("skipped: needs root and nft");
            return None;
        }
        unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS);
        // A new namespace may take this over from a machine that forwards.
        shell("mount --make-rprivate / && ip link set lo up && echo 0 > /proc/sys/net/ipv4/ip_forward");
        let folder = tempfile::tempdir().unwrap();
        let world = namespace();
        shell(
            "ip link add ext0 mtu 1400 type veth peer name host0 mtu 1400; ip address add 192.0.2.2/24 dev ext0; \
             ip address add fd00:2::2/64 dev ext0 nodad; ip link set ext0 up; \
             ip link add br0 type bridge; ip address add 172.17.0.1/16 dev br0; ip link set br0 up",
        );
        give("host0", &world);
        within(&world, || {
            shell(
                "ip link set lo up; ip address add 192.0.2.1/24 dev host0; ip link set host0 up; \
                 for a in 203.0.113.1 10.9.9.9 169.254.169.254 168.63.129.16 100.100.100.200 192.0.0.192; \
                 do ip address add $a/32 dev lo; done",
            );
            serve("0.0.0.0:80");
        });
        shell("ip route add default via 192.0.2.1");
        serve(&format!("[::]:{PORT}"));
        let place = Place::below(folder.path(), "test-a");
        Some(Self { _folder: folder, place, world })
    }

    fn ready() -> Option<(Self, Attacher)> {
        let host = Self::new()?;
        ensure(&host.place).unwrap();
        let attacher = Attacher::open(&host.place).unwrap();
        Some((host, attacher))
    }
}

impl Drop for Host {
    /// The pins are mounts, which the folder cannot be removed with.
    fn drop(&mut self) {
        let second = Place::below(self._folder.path(), "test-b");
        for place in [&self.place, &second] {
            if let Err(e) = remove(place) {
                eprintln!("{}: {e}", place.table());
            }
        }
    }
}

fn unshare(flags: UnshareFlags) {
    // SAFETY: file descriptors stay shared; only this thread's namespaces change.
    unsafe { rustix::thread::unshare_unsafe(flags) }.unwrap();
}

fn shell(script: &str) -> String {
    let out = Command::new("sh").args(["-ec", script]).stderr(Stdio::inherit()).output().unwrap();
    assert!(out.status.success(), "{script}");
    String::from_utf8(out.stdout).unwrap()
}

fn present() -> OwnedFd {
    File::open("/proc/thread-self/ns/net").unwrap().into()
}

fn namespace() -> OwnedFd {
    std::thread::spawn(|| {
        unshare(UnshareFlags::NEWNET);
        present()
    })
    .join()
    .unwrap()
}

/// Moves an interface into a namespace.
fn give(interface: &str, to: &OwnedFd) {
    let pid = std::process::id();
    let fd = std::os::fd::AsRawFd::as_raw_fd(to);
    shell(&format!("ip link set {interface} netns /proc/{pid}/fd/{fd}"));
}

fn within<T: Send>(namespace: &OwnedFd, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        inside.join().unwrap()
    })
}

/// Tells each caller which address it seems to have.
fn serve(address: &str) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let peer = stream.peer_addr().map_or(String::new(), |peer| peer.ip().to_canonical().to_string());
            let _ = (&stream).write_all(peer.as_bytes());
        }
    });
}

fn ask(to: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&to, SILENCE)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn reach(from: &OwnedFd, to: &str) -> io::Result<String> {
    let to: SocketAddr = to.parse().unwrap();
    within(from, || ask(to))
}

/// A job's namespace, attached.
fn job(attacher: &mut Attacher) -> (OwnedFd, Ipv4Addr) {
    let namespace = namespace();
    let address = attacher.attach(namespace.as_fd()).unwrap();
    (namespace, address)
}

/// Tries until it is so, for ten seconds.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

#[test]
fn the_outside_is_open() {
    let Some((_host, mut attacher)) = Host::ready() else { return };
    let (job, _) = job(&mut attacher);
    assert_eq!(reach(&job, OUTSIDE).unwrap(), HOST, "seen as the host");
    assert_eq!(reach(&job, CORPORATE).unwrap(), HOST, "private networks beyond the host stay open");
}

#[test]
fn the_host_is_closed() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let (job, own) = job(&mut attacher);
    let link_local =
        shell("ip -6 -o address show dev ext0 scope link").split_whitespace().nth(3).map(str::to_owned);
    let link_local = link_local.unwrap().split('/').next().unwrap().to_owned();
    let octets = own.octets();
    let router = Ipv4Addr::new(octets[0], octets[1], octets[2] & 0xe0, 1);
    let closed = [
        format!("127.0.0.1:{PORT}"),
        format!("[::1]:{PORT}"),
        format!("{HOST}:{PORT}"),
        format!("172.17.0.1:{PORT}"),
        format!("[fd00:2::2]:{PORT}"),
        format!("[{link_local}]:{PORT}"),
        format!("169.254.1.1:{PORT}"),
        format!("{router}:{PORT}"),
    ];
    for to in &closed {
        assert!(reach(&job, to).is_err(), "{to}");
    }
    // A second layer: the router knows the host's addresses, too.
    shell("nft flush ruleset");
    for to in &closed {
        assert!(reach(&job, to).is_err(), "{to} without the host's rules");
    }
    assert_eq!(
        within(&present(), || ask(format!("{HOST}:{PORT}").parse().unwrap())).unwrap(),
        HOST,
        "control"
    );
    drop(host);
}

#[test]
fn metadata_services_are_closed() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let (job, _) = job(&mut attacher);
    for address in ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192"] {
        let to: SocketAddr = format!("{address}:80").parse().unwrap();
        assert_eq!(ask(to).unwrap(), HOST, "control: the host reaches {address}");
        assert!(reach(&job, &to.to_string()).is_err(), "{address}");
    }
    // A second layer: the host's own rules, with the router's switched off.
    let router = File::open(host._folder.path().join("test-a/router")).unwrap().into();
    within(&router, || {
        shell("nft flush chain inet neap forward; nft 'chain inet neap forward {policy accept;}'")
    });
    assert_eq!(reach(&job, OUTSIDE).unwrap(), HOST, "control");
    for address in ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192"] {
        assert!(reach(&job, &format!("{address}:80")).is_err(), "{address} without the router's rules");
    }
    assert!(reach(&job, &format!("{HOST}:{PORT}")).is_err());
    assert_eq!(CLOSED.len(), 8);
}

#[test]
fn jobs_do_not_reach_each_other() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let (one, one_at) = job(&mut attacher);
    let (other, other_at) = job(&mut attacher);
    assert_ne!(one_at, other_at);
    within(&other, || serve("0.0.0.0:80"));
    assert!(reach(&one, &format!("{other_at}:80")).is_err());
    assert_eq!(reach(&other, &format!("{other_at}:80")).unwrap(), other_at.to_string(), "control");

    let second = Place::below(host._folder.path(), "test-b");
    ensure(&second).unwrap();
    let (third, third_at) = job(&mut Attacher::open(&second).unwrap());
    within(&third, || serve("0.0.0.0:80"));
    assert!(reach(&one, &format!("{third_at}:80")).is_err(), "a job of another installation");
    assert_eq!(reach(&third, OUTSIDE).unwrap(), HOST);
    heal(&host.place).unwrap();
    assert_eq!(reach(&one, OUTSIDE).unwrap(), HOST, "the first installation goes on");
    remove(&host.place).unwrap();
    heal(&second).unwrap();
    assert_eq!(reach(&third, OUTSIDE).unwrap(), HOST, "the second goes on without the first");
}

#[test]
fn nobody_reaches_a_job() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let (job, at) = job(&mut attacher);
    within(&job, || serve("0.0.0.0:80"));
    let to: SocketAddr = SocketAddr::from((at, 80));
    assert!(ask(to).is_err(), "from the host");
    within(&host.world, || shell(&format!("ip route add {at}/32 via {HOST}")));
    assert!(reach(&host.world, &to.to_string()).is_err(), "from a neighbour of the host");
    // The host did not forward before; for others it still does not.
    let container = namespace();
    shell("ip link add c0 type veth peer name c1; ip link set c0 master br0 up");
    give("c1", &container);
    within(&container, || {
        shell("ip link set c1 up; ip address add 172.17.0.2/16 dev c1; ip route add default via 172.17.0.1");
        serve("0.0.0.0:80");
    });
    assert_eq!(ask("172.17.0.2:80".parse().unwrap()).unwrap(), "172.17.0.1", "control");
    within(&host.world, || shell(&format!("ip route add 172.17.0.0/16 via {HOST}")));
    assert!(reach(&host.world, "172.17.0.2:80").is_err(), "the host became a router");
    assert!(reach(&job, "172.17.0.2:80").is_err(), "a container of the host");
}

#[test]
fn published_ports_of_containers_are_closed() {
    let Some((_host, mut attacher)) = Host::ready() else { return };
    let (job, _) = job(&mut attacher);
    // As Docker publishes a port: translated before the host's input chains see it.
    shell(
        "nft 'table ip d { chain pre { type nat hook prerouting priority -100; \
         tcp dport 8080 dnat to 203.0.113.1:80; }; }'",
    );
    assert!(reach(&job, "203.0.113.7:8080").is_err());
    assert_eq!(reach(&job, OUTSIDE).unwrap(), HOST);
}

#[test]
fn a_false_source_goes_nowhere() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let (liar, _) = job(&mut attacher);
    let (_victim, victim_at) = job(&mut attacher);
    let heard = within(&host.world, || {
        let socket = UdpSocket::bind("203.0.113.1:53").unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        socket
    });
    let hear = || heard.recv_from(&mut [0; 16]).is_ok();
    // Even root's rights inside would not help.
    for source in [victim_at.to_string(), HOST.to_owned(), "198.51.100.7".to_owned()] {
        within(&liar, || {
            shell(&format!("ip address add {source}/32 dev lo"));
            UdpSocket::bind((source.as_str(), 0)).unwrap().send_to(b"x", "203.0.113.1:53").unwrap();
        });
        assert!(!hear(), "{source}");
    }
    within(&liar, || UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"x", "203.0.113.1:53").unwrap());
    assert!(hear(), "control");
}

#[test]
fn flushed_rules_come_back() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let (job, _) = job(&mut attacher);
    let healed = Arc::new(AtomicUsize::new(0));
    let (place, count) = (host.place.clone(), Arc::clone(&healed));
    std::thread::spawn(move || {
        guard(&place, |health| {
            assert!(health.unwrap().healed);
            count.fetch_add(1, Ordering::SeqCst);
        })
    });
    let table = host.place.table();
    shell("nft flush ruleset");
    assert!(reach(&job, &format!("{HOST}:{PORT}")).is_err());
    eventually("the table is back", || {
        Command::new("nft").args(["list", "table", "inet", &table]).output().unwrap().status.success()
    });
    eventually("the outside is back", || reach(&job, OUTSIDE).is_ok());
    let before = healed.load(Ordering::SeqCst);
    shell(&format!("nft flush chain inet {table} input"));
    eventually("a single chain is mended", || {
        shell(&format!("nft list chain inet {table} input")).contains("drop")
    });
    eventually("it is told", || healed.load(Ordering::SeqCst) > before);
    // A new address of the host is closed by the router, too.
    shell("ip address add 192.0.2.77/24 dev ext0");
    let router: OwnedFd = File::open(host._folder.path().join("test-a/router")).unwrap().into();
    eventually("the router knows the new address", || {
        within(&router, || shell("nft list set inet neap host")).contains("192.0.2.77")
    });
}

#[test]
fn other_firewalls_let_jobs_pass() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    if !std::path::Path::new("/usr/sbin/iptables-nft").exists() {
        eprintln!("skipped: needs iptables");
        return;
    }
    let (job, _) = job(&mut attacher);
    shell("iptables -P FORWARD DROP");
    assert!(reach(&job, OUTSIDE).is_err());
    let missing = heal(&host.place).unwrap().missing;
    assert!(missing[0].contains("iptables -I FORWARD -i neap-"), "{missing:?}");
    assert!(reach(&job, OUTSIDE).is_err(), "where nobody asks us to, we add nothing");

    shell("iptables -N DOCKER-USER; iptables -A DOCKER-USER -j RETURN; iptables -I FORWARD -j DOCKER-USER");
    assert_eq!(heal(&host.place).unwrap().missing, Vec::<String>::new());
    assert_eq!(reach(&job, OUTSIDE).unwrap(), HOST);
    assert!(reach(&job, &format!("{HOST}:{PORT}")).is_err());
    heal(&host.place).unwrap();
    let rules = shell("iptables -S DOCKER-USER");
    assert_eq!(rules.matches(&host.place.interface()).count(), 2, "{rules}");
    // Docker starts anew: its chains are empty, ours is back at the next look.
    shell("iptables -F DOCKER-USER");
    heal(&host.place).unwrap();
    assert_eq!(reach(&job, OUTSIDE).unwrap(), HOST);
    remove(&host.place).unwrap();
    assert!(!shell("iptables -S").contains("neap-"));
}

#[test]
fn connections_are_counted() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let (greedy, _) = job(&mut attacher);
    let (modest, _) = job(&mut attacher);
    within(&greedy, || {
        for number in 0..CONNECTIONS_PER_JOB_MAX + 500 {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(("203.0.113.1", 1000 + (number % 60_000) as u16)).unwrap();
            let _ = socket.send(b"x");
        }
    });
    let tracked = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").unwrap();
    let tracked: u32 = tracked.trim().parse().unwrap();
    assert!(tracked.abs_diff(CONNECTIONS_PER_JOB_MAX) < 100, "{tracked}");
    assert!(reach(&greedy, OUTSIDE).is_err());
    assert_eq!(reach(&modest, OUTSIDE).unwrap(), HOST);
    drop(host);
}

#[test]
fn ranks_share_a_loopback() {
    let Some((host, _attacher)) = Host::ready() else { return };
    let first = join(&host.place, "7-1").unwrap();
    let second = join(&host.place, "7-1").unwrap();
    let stranger = join(&host.place, "8-1").unwrap();
    assert!(first.address.is_some() && second.address.is_none() && stranger.address.is_some());
    let fd = |shared: &neap_sandbox::net::SharedNetwork| shared.as_fd().try_clone_to_owned().unwrap();
    within(&fd(&first), || serve("127.64.0.1:80"));
    assert_eq!(reach(&fd(&second), "127.64.0.1:80").unwrap(), "127.0.0.1");
    assert!(reach(&fd(&stranger), "127.64.0.1:80").is_err());
    drop(first);
    let third = join(&host.place, "7-1").unwrap();
    assert_eq!(reach(&fd(&third), OUTSIDE).unwrap(), HOST, "it lives as long as a rank does");
    drop((second, third));
    let _next = join(&host.place, "9-1").unwrap();
    let left: Vec<_> = std::fs::read_dir(host._folder.path().join("test-a/ranks"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('7'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(join(&host.place, "../x").is_err());
}

#[test]
fn what_the_agent_serves_inside() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let (job, _) = job(&mut attacher);
    let spec = ListenSpec {
        tcp: vec!["127.0.0.1:8443".parse().unwrap(), format!("{HOST}:8443").parse().unwrap()],
        udp: vec!["127.0.0.53:53".parse().unwrap()],
    };
    let sockets = within(&job, || open_listeners(&spec)).unwrap();
    let again = within(&job, || open_listeners(&spec)).unwrap();
    assert_eq!((sockets.len(), again.len()), (3, 3), "ranks that share a namespace each have theirs");
    drop(again);
    let listener = TcpListener::from(sockets[1].try_clone().unwrap());
    listener.set_nonblocking(false).unwrap();
    let caller = std::thread::scope(|scope| {
        scope.spawn(|| listener.accept().unwrap().0.write_all(b"relayed").unwrap());
        reach(&job, &format!("{HOST}:8443"))
    });
    assert_eq!(caller.unwrap(), "relayed", "the host's address leads to the relay");

    let service = within(&job, || TcpListener::bind("127.0.0.1:0").unwrap());
    let port = service.local_addr().unwrap().port();
    let stream = TcpStream::from(
        within(&job, || connect_inside(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))).unwrap(),
    );
    let (_, peer) = service.accept().unwrap();
    assert_eq!(peer, stream.local_addr().unwrap());
    assert!(connect_inside(OUTSIDE.parse().unwrap()).is_err(), "only what the job itself serves");
    let many = ListenSpec { tcp: vec!["127.0.0.1:0".parse().unwrap(); 17], udp: Vec::new() };
    assert!(open_listeners(&many).unwrap_err().to_string().contains("limit is 16"));
    drop(host);
}

#[test]
fn a_container_is_connected_before_its_command() {
    let Some((host, _attacher)) = Host::ready() else { return };
    // As an engine does with `--network none`.
    let mut first = Command::new("unshare").args(["-n", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let of_first = || std::fs::read_link(format!("/proc/{}/ns/net", first.id())).unwrap();
    eventually("it has its namespace", || of_first() != own);
    let container = namespace_of(first.id()).unwrap();
    let spec = ListenSpec { tcp: vec!["127.0.0.1:8443".parse().unwrap()], udp: Vec::new() };
    let (_, sockets) = adopt(&host.place, container.as_fd(), &spec).unwrap();
    assert_eq!(sockets.len(), 1);
    assert_eq!(reach(&container, OUTSIDE).unwrap(), HOST);
    assert!(reach(&container, &format!("{HOST}:{PORT}")).is_err());
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), own, "the caller stays where it is");
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn nothing_leaks_and_it_is_quick() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let router: OwnedFd = File::open(host._folder.path().join("test-a/router")).unwrap().into();
    let links = || within(&router, || shell("ip -o link")).lines().count();
    let routes = || within(&router, || shell("ip route")).lines().count();
    assert_eq!((links(), routes()), (2, 1));
    let mut costs: Vec<Duration> = (0..200)
        .map(|_| {
            let namespace = namespace();
            #[allow(clippy::disallowed_methods)]
            let start = std::time::Instant::now();
            attacher.attach(namespace.as_fd()).unwrap();
            start.elapsed()
        })
        .collect();
    costs.sort_unstable();
    println!("attach: median {:?}, p99 {:?}", costs[100], costs[198]);
    eventually("all links are gone", || links() == 2 && routes() == 1);
    // Two spawners that do not know of each other.
    let mut other = Attacher::open(&host.place).unwrap();
    let jobs: Vec<_> = (0..20).flat_map(|_| [job(&mut attacher), job(&mut other)]).collect();
    let mut addresses: Vec<Ipv4Addr> = jobs.iter().map(|(_, address)| *address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 40);
    assert_eq!(reach(&jobs[39].0, OUTSIDE).unwrap(), HOST);
}

#[test]
fn removal_leaves_nothing() {
    let Some((host, mut attacher)) = Host::ready() else { return };
    let forwards = || std::fs::read_to_string("/proc/sys/net/ipv4/conf/ext0/forwarding").unwrap();
    assert_eq!(forwards().trim(), "1");
    assert!(!ensure(&host.place).unwrap().healed, "a second time there is nothing to do");
    remove(&host.place).unwrap();
    assert_eq!(forwards().trim(), "0");
    assert_eq!(shell("nft list ruleset"), "");
    assert!(heal(&host.place).is_err());
    assert!(attacher.attach(namespace().as_fd()).is_err(), "to a router that is not there");
    eventually("the link is gone", || !shell("ip -o link").contains("neap-"));
    remove(&host.place).unwrap();
    ensure(&host.place).unwrap();
    let (first, _) = job(&mut attacher);
    assert_eq!(reach(&first, OUTSIDE).unwrap(), HOST, "the new router is found");
    // Somebody deletes the interface by hand.
    shell(&format!("ip link delete {}", host.place.interface()));
    heal(&host.place).unwrap();
    let (second, _) = job(&mut attacher);
    assert_eq!(reach(&second, OUTSIDE).unwrap(), HOST);
}

#[test]
fn without_root_there_is_loopback() {
    let alone = std::thread::spawn(|| {
        let flags = if rustix::process::geteuid().is_root() {
            UnshareFlags::NEWNET
        } else {
            return None;
        };
        unshare(flags);
        loopback_only().unwrap();
        serve("127.0.0.1:80");
        Some((ask("127.0.0.1:80".parse().unwrap()).unwrap(), ask(OUTSIDE.parse().unwrap()).is_err()))
    });
    if let Some((seen, refused)) = alone.join().unwrap() {
        assert_eq!((seen.parse::<IpAddr>().unwrap(), refused), (IpAddr::V4(Ipv4Addr::LOCALHOST), true));
    }
}
