//! The network of this node's attempts: how they get out, and what the agent serves inside.
//!
//! Set it up before the spawner is forked: the spawner connects each supervisor as it makes it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use neap_sandbox::net::{self, Place, SharedNetwork};
use neap_sandbox::{Attempt, Detached, is_alive};
use tokio::sync::{mpsc, oneshot};

use crate::boot_log;
use crate::config::NodeConfig;
use crate::relay::{Relay, Serving};

/// What attempts of this node have of a network.
#[derive(Debug)]
pub(crate) struct Network {
    pub relay: Relay,
    /// The way out; none where there is none, and attempts have their own loopback alone.
    pub place: Option<Place>,
    /// Sentences for people about what is not there.
    pub missing: Vec<String>,
}

/// Variables by which operators name package indexes and proxies, which may be on this machine.
const OPERATORS_PLACES: [&str; 8] = [
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
];

/// Connects this machine's network to that of attempts, if that can be done.
pub(crate) fn set_up(config: &NodeConfig) -> Network {
    let places: Vec<String> = OPERATORS_PLACES.iter().filter_map(|name| std::env::var(name).ok()).collect();
    let relay = Relay::new(&config.server, &config.url())
        .or_else(|_| Relay::new(&config.server, &format!("https://{}", config.server)))
        .map(|relay| relay.also_to(places.iter().map(String::as_str)));
    let relay = relay.unwrap_or_else(|e| {
        boot_log::line(&format!("attempts cannot reach the server: {e}"));
        Relay::none()
    });
    if config.isolation_off {
        return Network { relay, place: None, missing: Vec::new() };
    }
    let place = Place::new(&config.installation);
    match net::ensure(&place) {
        Ok(health) => Network { relay, place: Some(place), missing: health.missing },
        Err(absent) => Network { relay, place: None, missing: vec![absent.to_string()] },
    }
}

/// Keeps the machine's rules in place for as long as the agent lives.
pub(crate) fn keep(place: &Place) {
    let place = place.clone();
    let guarding = std::thread::Builder::new().name("neap-network".into()).spawn(move || {
        let told = net::guard(&place, |healed| match healed {
            Ok(health) => health.missing.iter().for_each(|sentence| boot_log::line(sentence)),
            Err(e) => boot_log::line(&format!("the network of jobs: {e}")),
        });
        if let Err(e) = told {
            boot_log::line(&format!("the rules of the jobs' network are not looked after: {e}"));
        }
    });
    if let Err(e) = guarding {
        boot_log::line(&format!("the rules of the jobs' network are not looked after: {e}"));
    }
}

/// The namespace that an attempt on several nodes of this machine shares.
pub(crate) fn join(place: &Place, attempt: &str) -> io::Result<SharedNetwork> {
    net::join(place, attempt)
}

/// A request for a connection inside an attempt's network.
pub(crate) type Wish = (SocketAddrV4, oneshot::Sender<io::Result<OwnedFd>>);

/// How others ask for connections inside.
#[derive(Clone, Debug)]
pub(crate) struct Door(mpsc::UnboundedSender<Wish>);

impl Door {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Wish>) {
        let (send, receive) = mpsc::unbounded_channel();
        (Self(send), receive)
    }

    /// Begins a connection; whether it stands is found out by who uses it.
    pub(crate) async fn connect(&self, address: SocketAddrV4) -> io::Result<OwnedFd> {
        let (answer, wait) = oneshot::channel();
        let over = || io::Error::new(io::ErrorKind::NotConnected, "the attempt is over");
        self.0.send((address, answer)).map_err(|_| over())?;
        wait.await.map_err(|_| over())?
    }
}

/// Answers a wish in the network of a container, whose first process is written down in `process`.
pub(crate) fn enter(process: &Path, (address, answer): Wish) {
    let connect = || {
        let first: Detached = serde_json::from_slice(&std::fs::read(process)?)?;
        let namespace = net::namespace_of(first.pid)?;
        // Its number may be another process's by now.
        if !is_alive(first) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the container has ended"));
        }
        net::connect_in(namespace.as_fd(), address.into())
    };
    let _ = answer.send(connect());
}

/// What the agent does for one running attempt: it serves inside, and passes connections on.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    serving: Option<Serving>,
    asked: VecDeque<oneshot::Sender<io::Result<OwnedFd>>>,
}

impl Inside {
    /// The sockets to serve on have come. Later ones take the place of earlier ones.
    pub(crate) fn serve(&mut self, relay: &Relay, sockets: Vec<OwnedFd>) -> io::Result<()> {
        self.serving = None;
        self.serving = Some(relay.serve(sockets)?);
        Ok(())
    }

    pub(crate) fn ask(&mut self, attempt: &Attempt, (address, answer): Wish) {
        match attempt.connect(address) {
            Ok(()) => self.asked.push_back(answer),
            Err(e) => drop(answer.send(Err(e))),
        }
    }

    pub(crate) fn answer(&mut self, error: Option<String>, socket: Option<OwnedFd>) {
        let Some(answer) = self.asked.pop_front() else { return };
        let found = match (error, socket) {
            (None, Some(socket)) => Ok(socket),
            (error, _) => Err(io::Error::other(error.unwrap_or_else(|| "no socket came along".into()))),
        };
        let _ = answer.send(found);
    }
}
