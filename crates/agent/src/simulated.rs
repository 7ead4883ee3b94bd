//! An agent that runs nothing, of which one process plays thousands: it dials, joins, keeps its lease and answers
//! orders as a real one does, with the real session over real TLS; an attempt has ended as soon as it has started.
//!
//! For measuring what a server bears.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use neap_protocol::{AttemptRef, Down, Exit, LogChunk, NodeFacts, encode_log, encode_message};
use neap_sandbox::boot_ms;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::connection::{self, Credentials};
use crate::driver::Happening;
use crate::session::{ExitReason, Input, Output, Session};
use crate::{Error, NodeConfig, boot_log};

/// No line of any agent of this process goes to stderr.
pub fn silence() {
    boot_log::silence();
}

/// Plays the agent of the node whose folder this is until it is told to go or its lease ends. Runs in a `LocalSet`.
pub async fn play(dir: &Path) -> Result<ExitReason, Error> {
    // Fails only if another part of the program has chosen already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = NodeConfig::read(dir)?;
    let ca_pem = std::fs::read(&config.ca_pem_path).map_err(|source| Error::File {
        doing: "reading",
        path: config.ca_pem_path.clone(),
        source,
    })?;
    let credentials = Rc::new(Credentials::new(dir, ca_pem));
    let hang_up = Rc::new(Notify::new());
    let (say, mut happenings) = unbounded_channel();
    let connection =
        tokio::task::spawn_local(connection::keep(config.clone(), credentials.clone(), hang_up.clone(), say));
    let mut player = Player {
        session: Session::new(config.node, facts(&config), boot_ms()),
        credentials,
        hang_up,
        frames: None,
    };
    let reason = loop {
        let sleep = Duration::from_millis(player.session.wake_at_ms().saturating_sub(boot_ms()));
        let happening = tokio::select! {
            biased;
            happening = happenings.recv() => happening,
            () = tokio::time::sleep(sleep) => Some(Happening::Session(Input::Timer)),
        };
        let Some(happening) = happening else { break ExitReason::Left };
        if let Some(reason) = player.handle(happening)? {
            break reason;
        }
    };
    connection.abort();
    Ok(reason)
}

fn facts(config: &NodeConfig) -> NodeFacts {
    NodeFacts {
        hostname: format!("simulated-{}", config.node),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        cpus_milli: config.cpus_milli,
        memory_mb: config.memory_mb,
        gpus: config.gpus,
        isolation: Vec::new(),
        isolation_missing: vec!["a simulated agent runs nothing".to_owned()],
    }
}

struct Player {
    session: Session,
    credentials: Rc<Credentials>,
    hang_up: Rc<Notify>,
    frames: Option<UnboundedSender<Vec<u8>>>,
}

impl Player {
    fn handle(&mut self, happening: Happening) -> Result<Option<ExitReason>, Error> {
        let input = match happening {
            Happening::Connected(frames) => {
                self.frames = Some(frames);
                Input::Connected
            }
            Happening::Session(Input::Disconnected) => {
                self.frames = None;
                Input::Disconnected
            }
            Happening::Session(input) => input,
            Happening::Down(Down::Joined { certificate_pem, .. }) => {
                self.credentials.keep(&certificate_pem)?;
                return Ok(None);
            }
            Happening::Down(down) => Input::Down(down),
            // Nothing runs here that could end.
            Happening::Ended { .. } | Happening::Gone { .. } | Happening::Say(_) => return Ok(None),
        };
        let (mut inputs, mut frames, mut over) = (vec![input], Vec::new(), None);
        while let Some(input) = inputs.pop() {
            let mut outputs = Vec::new();
            self.session.step(boot_ms(), input, &mut outputs);
            for output in outputs {
                match output {
                    Output::Send(up) => encode_message(&up, &mut frames),
                    Output::ShipLog { attempt, offset, last, .. } => {
                        encode_log(
                            &LogChunk { attempt, offset, last, source: None, bytes: Vec::new() },
                            &mut frames,
                        );
                    }
                    // Last in, first out.
                    Output::Launch { attempt, .. } => {
                        inputs.push(ended(attempt, Exit::Success));
                        inputs.push(Input::Started { attempt, properties: BTreeMap::new() });
                    }
                    Output::Stop { attempt, .. } => inputs.push(ended(attempt, Exit::Stopped)),
                    Output::Discard { .. } | Output::Lease { .. } | Output::OpenStream { .. } => {}
                    Output::Reconnect => self.hang_up.notify_waiters(),
                    Output::Exit(reason) => over = Some(reason),
                }
            }
        }
        if let (Some(connection), false) = (&self.frames, frames.is_empty()) {
            let _ = connection.send(frames);
        }
        Ok(over)
    }
}

fn ended(attempt: AttemptRef, exit: Exit) -> Input {
    Input::Ended { attempt, exit, log_bytes: 0 }
}
