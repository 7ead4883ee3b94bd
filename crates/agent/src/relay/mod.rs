//! What the agent gives an attempt inside its own network: the way to the server, and names.
//!
//! An attempt cannot reach this machine's addresses, so neither the server nor a resolver on it. The supervisor, which
//! is inside, opens the sockets that [`Relay::listeners`] names and passes them here; the agent accepts on them and
//! connects from outside. Bytes pass unread: TLS is between the job and the server, and no credential is added.
//!
//! - The server has the address that the job's variables name. A loopback address or another one of this machine means
//!   the relay inside; a host name does so by a line in `/etc/hosts`.
//! - A build of an environment also gets the way to the package indexes and proxies that the operator has set.
//! - Questions about names go to 127.0.0.53, by the job's `/etc/resolv.conf`, and from here to the machine's resolvers.
//!
//! The attempt's `resolv.conf` and `hosts` are [`Relay::resolv_conf`] and [`Relay::hosts`].

mod limits;
mod names;
mod resolver;
mod tcp;

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use neap_sandbox::net::ListenSpec;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use limits::{CONNECTIONS_MAX, FORWARDS_MAX, IDLE, NAME_CONNECTIONS_MAX, NAME_IDLE};

/// Where the job's resolver is.
const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53)), 53);
/// Last number of the first address in 127.0.0.0/24 for hosts that have a name in place of an address.
const FIRST_NAMED: u8 = 54;

/// What an attempt gets, worked out before it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Relay {
    /// The server first.
    forwards: Vec<Forward>,
    /// Hosts that have a name, each with its address inside.
    named: Vec<(String, IpAddr)>,
    resolvers: Vec<SocketAddr>,
    resolv_conf: String,
    machine_hosts: String,
}

/// A place outside that has an address inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Forward {
    inside: SocketAddr,
    outside: String,
}

impl Relay {
    /// `server` is `host:port` as the agent dials it, `url` the server's as the job's variables name it. Reads the
    /// machine's `resolv.conf` and `hosts`: short files, and they change while an agent lives.
    pub(crate) fn new(server: &str, url: &str) -> io::Result<Self> {
        let resolv_conf = names::read("/etc/resolv.conf");
        let hosts = names::read("/etc/hosts");
        Self::with(server, url, &resolv_conf, hosts)
    }

    /// Nothing but names.
    pub(crate) fn none() -> Self {
        let resolv_conf = names::read("/etc/resolv.conf");
        Self {
            forwards: Vec::new(),
            named: Vec::new(),
            resolvers: names::resolvers(&resolv_conf),
            resolv_conf: names::resolv_conf(&resolv_conf, RESOLVER.ip()),
            machine_hosts: String::new(),
        }
    }

    fn with(server: &str, url: &str, resolv_conf: &str, machine_hosts: String) -> io::Result<Self> {
        let (host, port) = authority(url).ok_or_else(|| {
            let what = format!("{url:?} is not the URL of a server");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let mut relay = Self {
            forwards: Vec::new(),
            named: Vec::new(),
            resolvers: names::resolvers(resolv_conf),
            resolv_conf: names::resolv_conf(resolv_conf, RESOLVER.ip()),
            machine_hosts,
        };
        relay.forward(host, port, server.to_owned());
        Ok(relay)
    }

    /// Also the way to the package indexes and proxies that the operator has set for builds: they may be on this
    /// machine, and are the only way out where there is no other. `values` are those of variables such as
    /// `PIP_INDEX_URL`; what is no URL is passed over, and so is what exceeds the limit.
    pub(crate) fn also_to<'a>(mut self, values: impl Iterator<Item = &'a str>) -> Self {
        for word in values.flat_map(str::split_whitespace) {
            let url = word.find("http").map_or(word, |at| &word[at..]);
            if let Some((host, port)) = authority(url)
                && self.forwards.len() < FORWARDS_MAX
            {
                let outside =
                    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                self.forward(host, port, outside);
            }
        }
        self
    }

    fn forward(&mut self, host: &str, port: u16, outside: String) {
        let ip = match host.parse::<IpAddr>() {
            Ok(ip) => ip,
            // Programs may take its address as known.
            Err(_) if host == "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Err(_) => match self.named.iter().find(|(name, _)| name == host) {
                Some((_, ip)) => *ip,
                None => {
                    let ip = IpAddr::V4(Ipv4Addr::new(127, 0, 0, FIRST_NAMED + self.named.len() as u8));
                    self.named.push((host.to_owned(), ip));
                    ip
                }
            },
        };
        let inside = SocketAddr::new(ip, port);
        // The server's place is its own.
        if !self.forwards.iter().any(|forward| forward.inside == inside) {
            self.forwards.push(Forward { inside, outside });
        }
    }

    /// What the supervisor must open. [`Relay::serve`] wants its sockets in the order in which they come.
    pub(crate) fn listeners(&self) -> ListenSpec {
        let forwards = self.forwards.iter().map(|forward| forward.inside);
        ListenSpec { tcp: forwards.chain([RESOLVER]).collect(), udp: vec![RESOLVER] }
    }

    /// The job's `/etc/resolv.conf`.
    pub(crate) fn resolv_conf(&self) -> &str {
        &self.resolv_conf
    }

    /// The job's `/etc/hosts`.
    pub(crate) fn hosts(&self) -> String {
        let mut text = String::new();
        for (name, ip) in &self.named {
            let _ = writeln!(text, "{ip} {name}");
        }
        text + &self.machine_hosts
    }

    /// Serves until what comes back is dropped. Needs a runtime.
    pub(crate) fn serve(&self, sockets: Vec<OwnedFd>) -> io::Result<Serving> {
        if sockets.len() != self.listeners().len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the supervisor passed other sockets"));
        }
        let mut sockets = sockets.into_iter();
        let mut tasks = JoinSet::new();
        for (forward, socket) in self.forwards.iter().zip(&mut sockets) {
            let listener = TcpListener::from_std(socket.into())?;
            tasks.spawn(tcp::serve(listener, vec![forward.outside.clone()], CONNECTIONS_MAX, IDLE));
        }
        if let Some(socket) = sockets.next() {
            let listener = TcpListener::from_std(socket.into())?;
            let resolvers = self.resolvers.iter().map(ToString::to_string).collect();
            tasks.spawn(tcp::serve(listener, resolvers, NAME_CONNECTIONS_MAX, NAME_IDLE));
        }
        if let Some(socket) = sockets.next() {
            tasks.spawn(resolver::serve(UdpSocket::from_std(socket.into())?, self.resolvers.clone()));
        }
        Ok(Serving { _tasks: tasks })
    }
}

/// A relay at work. Dropping it ends its connections.
#[derive(Debug)]
pub(crate) struct Serving {
    _tasks: JoinSet<()>,
}

/// The connection that the supervisor has begun ([`connect_inside`](neap_sandbox::net::connect_inside)), once it stands.
pub(crate) async fn established(socket: OwnedFd) -> io::Result<TcpStream> {
    let stream = TcpStream::from_std(socket.into())?;
    stream.writable().await?;
    match stream.take_error()? {
        Some(e) => Err(e),
        None => {
            stream.set_nodelay(true)?;
            Ok(stream)
        }
    }
}

/// Host and port of `https://host:port/…`.
fn authority(url: &str) -> Option<(&str, u16)> {
    let (rest, usual_port) = match url.strip_prefix("https://") {
        Some(rest) => (rest, 443),
        None => (url.strip_prefix("http://")?, 80),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_credentials, place)| place);
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Some(usual_port), |port| port.parse().ok())?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    (!host.is_empty() && host.chars().all(is_host)).then_some((host, port))
}

#[cfg(test)]
mod tests;
