//! What the agent gives an attempt inside its own network: the way to the server, and names.
//!
//! An attempt cannot reach this machine's addresses, so neither the server nor a resolver on it. The supervisor, which
//! is inside, opens the sockets that [`Relay::listeners`] names and passes them here; the agent accepts on them and
//! connects from outside. Bytes pass unread: TLS is between the job and the server, and no credential is added.
//!
//! - The server has the address that the job's variables name. A loopback address or another one of this machine means
//!   the relay inside; a host name does so by a line in `/etc/hosts`.
//! - Questions about names go to 127.0.0.53, by the job's `/etc/resolv.conf`, and from here to the machine's resolvers.
//!
//! The attempt's `resolv.conf` and `hosts` are [`Relay::resolv_conf`] and [`Relay::hosts`].

mod limits;
mod names;
mod resolver;
mod tcp;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use neap_sandbox::net::ListenSpec;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use limits::{CONNECTIONS_MAX, IDLE, NAME_CONNECTIONS_MAX, NAME_IDLE};

/// Where the job's resolver is.
const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53)), 53);
/// The server, where its URL has a name in place of an address.
const NAMED_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 54));
const HTTPS_PORT: u16 = 443;

/// What an attempt gets, worked out before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relay {
    /// Where the agent itself connects to.
    server: String,
    /// Where the job connects to.
    inside: SocketAddr,
    /// Leads to `inside`.
    name: Option<String>,
    resolvers: Vec<SocketAddr>,
    resolv_conf: String,
    hosts: String,
}

impl Relay {
    /// `server` is `host:port` as the agent dials it, `url` the server's as the job's variables name it. Reads the
    /// machine's `resolv.conf` and `hosts`: short files, and they change while an agent lives.
    pub(crate) fn new(server: &str, url: &str) -> io::Result<Self> {
        let resolv_conf = names::read("/etc/resolv.conf");
        let hosts = names::read("/etc/hosts");
        Self::with(server, url, &resolv_conf, &hosts)
    }

    fn with(server: &str, url: &str, resolv_conf: &str, hosts: &str) -> io::Result<Self> {
        let (host, port) = authority(url).ok_or_else(|| {
            let what = format!("{url:?} is not the URL of a server");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let (ip, name) = match host.parse::<IpAddr>() {
            Ok(ip) => (ip, None),
            // Programs may take its address as known.
            Err(_) if host == "localhost" => (IpAddr::V4(Ipv4Addr::LOCALHOST), None),
            Err(_) => (NAMED_SERVER, Some(host.to_owned())),
        };
        let mut lines = name.as_ref().map(|name| format!("{ip} {name}\n")).unwrap_or_default();
        lines.push_str(hosts);
        Ok(Self {
            server: server.to_owned(),
            inside: SocketAddr::new(ip, port),
            name,
            resolvers: names::resolvers(resolv_conf),
            resolv_conf: names::resolv_conf(resolv_conf, RESOLVER.ip()),
            hosts: lines,
        })
    }

    /// What the supervisor must open. [`Relay::serve`] wants its sockets in the order in which they come.
    pub(crate) fn listeners(&self) -> ListenSpec {
        ListenSpec { tcp: vec![self.inside, RESOLVER], udp: vec![RESOLVER] }
    }

    /// The job's `/etc/resolv.conf`.
    pub(crate) fn resolv_conf(&self) -> &str {
        &self.resolv_conf
    }

    /// The job's `/etc/hosts`.
    pub(crate) fn hosts(&self) -> &str {
        &self.hosts
    }

    /// Serves until what comes back is dropped. Needs a runtime.
    pub(crate) fn serve(&self, sockets: Vec<OwnedFd>) -> io::Result<Serving> {
        let Ok([server, names, questions]) = <[OwnedFd; 3]>::try_from(sockets) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the supervisor passed other sockets"));
        };
        let listener = |fd: OwnedFd| TcpListener::from_std(fd.into());
        let mut tasks = JoinSet::new();
        let to_server = vec![self.server.clone()];
        tasks.spawn(tcp::serve(listener(server)?, to_server, CONNECTIONS_MAX, IDLE));
        let to_resolvers = self.resolvers.iter().map(ToString::to_string).collect();
        tasks.spawn(tcp::serve(listener(names)?, to_resolvers, NAME_CONNECTIONS_MAX, NAME_IDLE));
        let questions = UdpSocket::from_std(questions.into())?;
        tasks.spawn(resolver::serve(questions, self.resolvers.clone()));
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
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
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
    let port = port.map_or(Some(HTTPS_PORT), |port| port.parse().ok())?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    (!host.is_empty() && host.chars().all(is_host)).then_some((host, port))
}

#[cfg(test)]
mod tests;
