//! Brings in place what a job's command runs in, before it starts: builds what is not there yet, or waits for whoever
//! builds it. What runs somebody else's code runs under the attempt's supervisor.
//!
//! Here is what every way has in common; `host` makes virtual environments, `image` has images made by the engine.

mod host;
mod image;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use neap_protocol::{Environment, Exit, FailureClass};
use neap_sandbox::{Bind, ExitRecord, Launch, Outcome};
use tokio::sync::mpsc::UnboundedReceiver;

use super::cache::{Build, Turn};
use super::choose::{Choice, choose, on_host};
use super::engine::Engine;
use super::limits::BUILD_MS_MAX;
use super::venv::Made;
use crate::attempt::{Order, Running};
use crate::distributed;
use crate::prepare::{self, Layout};
use crate::python::Interpreter;
use crate::session::prepare_failed;
use image::NoImage;

/// What an attempt stands on.
#[derive(Debug, Default)]
pub(crate) struct Provided {
    pub ground: Ground,
    /// For the job's properties.
    pub facts: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
pub(crate) enum Ground {
    /// The light environment in the attempt's folder, and the host's packages.
    #[default]
    Host,
    Cached(Cached),
    Container {
        engine: Box<Engine>,
        image: String,
    },
}

/// A cached environment as an attempt sees it.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub made: Made,
    /// Where it lies, and where it is seen.
    pub lies: PathBuf,
    pub seen: PathBuf,
}

impl Cached {
    /// For attempts that do not see it where it lies.
    pub(crate) fn bind(&self) -> Option<Bind> {
        (self.lies != self.seen).then(|| Bind {
            from: self.lies.clone(),
            to: self.seen.clone(),
            read_only: true,
        })
    }
}

fn environment_failed(message: impl Into<String>) -> Exit {
    prepare_failed(FailureClass::Environment, message)
}

fn system_failed(doing: &str) -> impl Fn(io::Error) -> Exit + '_ {
    move |e| prepare_failed(FailureClass::System, format!("{doing}: {e}"))
}

type Orders = UnboundedReceiver<Order>;

impl Running<'_> {
    /// Makes everything ready. The first lines of the log say what differs from what was asked for.
    pub(crate) async fn provide(
        &mut self,
        layout: &mut Layout,
        python: Option<&Interpreter>,
        orders: &mut Orders,
    ) -> Result<Provided, Exit> {
        let (environment, terms) = (&self.spec.environment, &self.spec.container);
        let with_image = matches!(environment, Environment::Image { .. } | Environment::Build { .. });
        let engine = if !with_image && !terms.required {
            Err(String::new())
        } else if distributed::needs_launcher(self.spec) {
            // What stands before the processes is this program, which an image does not have.
            Err("jobs of several processes on a node do not run in containers yet".into())
        } else {
            self.node.engine().await
        };
        let mut choice = choose(environment, terms, engine.as_ref().map(|_| ()).map_err(String::as_str));
        if let (Choice::Container, Ok(engine)) = (&choice, engine) {
            match self.bring_image(&engine, layout, orders).await {
                Ok(provided) => return Ok(provided),
                Err(NoImage::Absent(why)) if !terms.required => choice = on_host(environment, terms, &why),
                Err(NoImage::Absent(why)) => {
                    return Err(environment_failed(format!(
                        "The job asks for isolation: container, which is never weakened, and {why}."
                    )));
                }
                Err(NoImage::Exit(exit)) => return Err(exit),
            }
        }
        match choice {
            Choice::Host { packages, differences } => {
                self.stand_on_host(layout, python, packages.as_deref(), differences, orders).await
            }
            Choice::Refused(why) => Err(environment_failed(why)),
            Choice::Container => Err(environment_failed("the container engine went away")),
        }
    }

    /// The first lines of the log: what this job runs in, and what whoever submitted it is told.
    fn say_first(&self, layout: &Layout, first: &str) -> Result<(), Exit> {
        let mut text = first.to_owned();
        for line in &self.spec.preamble {
            text.push_str(line);
            text.push('\n');
        }
        if text.is_empty() {
            return Ok(());
        }
        layout.say(&text).map_err(system_failed("writing the log"))
    }

    /// Waits for the right to build, and passes on what another's build says meanwhile.
    async fn turn(
        &mut self,
        key: &str,
        layout: &Layout,
        aloud: bool,
        orders: &mut Orders,
    ) -> Result<Build, Exit> {
        let cache = self.node.cache.clone();
        let hear = |bytes: &[u8]| {
            if aloud && layout.say_bytes(bytes).is_ok() {
                self.log_grew(layout);
            }
        };
        let turn = tokio::select! {
            biased;
            turn = cache.turn(key, hear) => turn,
            order = orders.recv() => {
                self.discarded = order == Some(Order::Discard);
                return Err(Exit::Stopped);
            }
        };
        match turn.map_err(system_failed("waiting for the environment"))? {
            Turn::Ours(build) => Ok(build),
            Turn::Failed(message) => Err(environment_failed(message)),
        }
    }

    /// What all launches of an attempt have in common.
    fn launch(&self, layout: &Layout) -> Launch {
        Launch {
            attempt_dir: layout.dir.clone(),
            head_bytes: layout.said().head_bytes,
            command: String::new(),
            env: Vec::new(),
            cwd: layout.dir.clone(),
            timeout_ms: Some(BUILD_MS_MAX),
            log_bytes_max: self.spec.log_bytes_max,
            view: None,
            slot: self.slot,
            limits: prepare::limits(self.node, self.spec),
            beside: None,
            masked: Vec::new(),
            own_program: None,
        }
    }
}

/// Whether a build came to a good end.
fn built(record: &ExitRecord) -> Result<(), Exit> {
    let failed = |how: String| {
        Err(environment_failed(format!(
            "The environment could not be built: {how}. What the build said is in the job's log."
        )))
    };
    match &record.outcome {
        Outcome::Exited { code: 0 } => Ok(()),
        Outcome::Exited { code } => failed(format!("the installer ended with exit code {code}")),
        Outcome::Signaled { signal } => failed(format!("the installer was ended by signal {signal}")),
        Outcome::OutOfMemory { limit_mb } => failed(format!("it needed more than {limit_mb} MB of memory")),
        Outcome::TimedOut => failed(format!("it took more than {} minutes", BUILD_MS_MAX / 60_000)),
        Outcome::Stopped => Err(Exit::Stopped),
        Outcome::LeaseLost | Outcome::AgentLost => Err(Exit::LeaseLost),
        Outcome::NotStarted { step, message } => Err(prepare_failed(
            FailureClass::System,
            format!("the sandbox for the build could not be made: {step}: {message}"),
        )),
    }
}
