//! What runs beside an attempt's command and can be reached through the server: started inside the attempt's own sandbox,
//! watched, and connected to when the server asks.
//!
//! `script.rs` says how each kind is started, `attend.rs` is the program that starts them before the command, `watch.rs`
//! finds out how they are, `stream.rs` carries bytes. Everything that the job can write to is read here as if a stranger had
//! written it: the agent has rights that the job has not.

pub mod attend;
mod script;
mod stream;
mod watch;

use std::cell::OnceCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use neap_protocol::{AttemptRef, AttemptSpec, ServiceKind, ServiceSpec};
use neap_sandbox::Launch;
use tokio::sync::watch as signal;

use crate::distributed;
use crate::network::Door;
use crate::prepare::Layout;
use crate::tree::Tree;
use script::Place;
pub(crate) use stream::carry;
pub(crate) use watch::mind;

/// The services' folder, below the one that the job sees as `/tmp`.
const DIR: &str = ".neap-services";
/// How often they are looked at while one of them has not begun, and afterwards.
const LOOK_MS: u64 = 200;
const LOOK_SETTLED_MS: u64 = 1_000;
/// Bytes of a note that are read, and characters of a sentence that are passed on.
const NOTE_BYTES_MAX: u64 = 8 * 1024;
const MESSAGE_CHARS_MAX: usize = 400;

/// The services of one attempt.
#[derive(Debug)]
pub(crate) struct Desk {
    attempt: AttemptRef,
    services: Vec<Service>,
    /// The folder that the job sees as `/tmp`.
    tmp: Tree,
    /// Into the attempt's own network, where it has one.
    door: OnceCell<Door>,
    /// True when the attempt is over: no stream outlives it.
    closed: signal::Sender<bool>,
}

#[derive(Clone, Debug)]
struct Service {
    spec: ServiceSpec,
    number: usize,
    target: Target,
}

/// Where a service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Port(SocketAddr),
    /// A socket in the services' folder: what has no password of its own is nobody else's to open.
    Socket,
}

impl Desk {
    /// From here on nothing is reached any more.
    pub(crate) fn close(&self) {
        let _ = self.closed.send(true);
    }

    /// From here on services are reached inside the attempt's network.
    pub(crate) fn set_door(&self, door: Door) {
        let _ = self.door.set(door);
    }

    fn find(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.spec.name == name)
    }
}

/// Makes everything ready for an attempt's services, and has them started before its command. `None` where there are none.
pub(crate) fn arrange(
    attempt: AttemptRef,
    spec: &AttemptSpec,
    layout: &Layout,
    launch: &mut Launch,
    in_container: bool,
) -> io::Result<Option<Desk>> {
    if spec.services.is_empty() {
        return Ok(None);
    }
    let services = spec
        .services
        .iter()
        .enumerate()
        .map(|(number, asked)| {
            let target = target(asked, spec)?;
            Ok(Service { spec: asked.clone(), number, target })
        })
        .collect::<io::Result<Vec<_>>>()?;
    let tmp = &layout.tmp_tree;
    let seen = if layout.is_apart() { Path::new("/tmp") } else { layout.tmp.as_path() }.join(DIR);
    let place = Place { dir: &seen, cwd: &launch.cwd };
    if let Some(files) = script::files(&services, &place) {
        tmp.make_folders(DIR, 0o700)?;
        for (name, content) in files {
            tmp.write(&format!("{DIR}/{name}"), 0o600, content.as_bytes())?;
        }
        start_before(launch, &seen.join(script::FILE), in_container);
    }
    Ok(Some(Desk {
        attempt,
        services,
        tmp: tmp.clone(),
        door: OnceCell::new(),
        closed: signal::Sender::new(false),
    }))
}

/// Has the script run before the command, and the command as it would have run without.
fn start_before(launch: &mut Launch, script: &Path, in_container: bool) {
    if in_container {
        // This program is not in there; the shell that runs the command is.
        let path = script::quoted(&script.display().to_string());
        let command = std::mem::take(&mut launch.command);
        launch.command = format!("(/bin/sh {path} </dev/null >/dev/null 2>&1 &); {command}");
        return;
    }
    let mut words = vec![attend::WORD.to_owned(), script.display().to_string()];
    match launch.own_program.take() {
        Some(program) => words.extend(program),
        None => launch.env.push((attend::COMMAND.to_owned(), std::mem::take(&mut launch.command))),
    }
    launch.own_program = Some(words);
}

fn target(asked: &ServiceSpec, spec: &AttemptSpec) -> io::Result<Target> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Ok(match &asked.what {
        ServiceKind::JupyterLab | ServiceKind::VsCode => Target::Socket,
        ServiceKind::Ssh { .. } | ServiceKind::TensorBoard { .. } | ServiceKind::Custom => {
            let port = match asked.port {
                Some(port) => port,
                None => free_port()?,
            };
            Target::Port(SocketAddr::new(here, port))
        }
        ServiceKind::RayDashboard => {
            let (address, port) = distributed::ray_dashboard(spec, asked.port).unwrap_or((here, 0));
            Target::Port(SocketAddr::new(address, port))
        }
    })
}

/// Free a moment ago; a service that finds it taken fails and says so.
fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
