//! The launcher: the first process of an attempt on a node where more is to be done than to run the command once. It
//! starts the node's processes, puts their outputs into the node's one log, and ends when they have, or the first of
//! them fails: its supervisor then ends whatever is left.
//!
//! It runs where the job runs and with no more rights than it, as `neap launch`. Other words make it something smaller:
//! `process` is what `mpirun` starts in place of each process, `rsh` is how it reaches other nodes.

mod link;
mod mpi;
pub(crate) mod note;
mod output;
pub(crate) mod plan;
mod processes;
mod ray;
mod run;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use note::Note;
use output::Output;
use plan::Plan;
use tokio::signal::unix::{SignalKind, signal};

/// The word that makes the program a launcher.
pub const WORD: &str = "launch";
/// The plan, and the user's command: in variables, since arguments can be seen by everybody on the machine.
pub(crate) const PLAN: &str = "NEAP_LAUNCH";
pub(crate) const COMMAND: &str = "NEAP_LAUNCH_COMMAND";
/// How those whom the launcher starts find the program again: it may lie where they cannot see it.
const PROGRAM: &str = "NEAP_PROGRAM";

/// Why a launcher ends without success.
#[derive(Debug)]
enum Failed {
    /// A process did; its output says why, and there is a note.
    Process(u8),
    /// Something is not there that the environment must have.
    Missing(String),
    Other(String),
}

impl From<io::Error> for Failed {
    fn from(e: io::Error) -> Self {
        Self::Other(e.to_string())
    }
}

/// Runs the launcher, or what its words make of it.
pub fn main(words: &[OsString]) -> ExitCode {
    // Taken before there is any other thread, and kept from everybody else.
    let read = std::env::var(PLAN).map_err(|e| format!("{PLAN}: {e}"));
    let plan = read.and_then(|text| serde_json::from_str::<Plan>(&text).map_err(|e| format!("{PLAN}: {e}")));
    let plan = match plan {
        Ok(plan) => plan,
        Err(e) => return say_failed(&format!("{e}; this command is for the agent, not for people")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => return say_failed(&format!("starting the runtime: {e}")),
    };
    let tasks = tokio::task::LocalSet::new();
    let code = tasks.block_on(&runtime, async {
        match words {
            [] => launch(&plan).await,
            [word, rest @ ..] if word == "rsh" => mpi::reach(&plan, rest).await,
            [word] if word == "process" => mpi::process(&plan).await,
            _ => {
                eprint_line("neap launch: unknown words");
                2
            }
        }
    });
    // A client that waits for something is not waited for.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn launch(plan: &Plan) -> u8 {
    // The supervisor tells the whole process group; what is started here ends of it, and then so does this.
    let Ok(_ignored) = signal(SignalKind::terminate()) else { return 1 };
    let output = match Output::here() {
        Ok(output) => output,
        Err(_) => return 1,
    };
    let rank = plan.first_rank();
    let done = match &plan.distribution {
        Some(neap_protocol::Distribution::Mpi { processes_per_node }) => {
            mpi::run(plan, *processes_per_node, &output).await
        }
        Some(neap_protocol::Distribution::Ray { .. }) => ray::run(plan, &output).await,
        Some(
            neap_protocol::Distribution::Pytorch { .. } | neap_protocol::Distribution::Tensorflow { .. },
        )
        | None => processes::run(plan, &output).await,
    };
    match done {
        Ok(()) => 0,
        Err(Failed::Process(code)) => code,
        Err(Failed::Missing(message)) => {
            // Also in the report.
            output.say(rank, &message);
            let _ = Note::Missing { message }.replace(&plan.run_dir);
            127
        }
        Err(Failed::Other(message)) => {
            output.say(rank, &message);
            1
        }
    }
}

/// The path by which this very program can be executed by those it starts.
fn own_program() -> io::Result<String> {
    // By number, as this `/proc` counts: it may be that of another pid namespace.
    let me = std::fs::read_link("/proc/self")?;
    Ok(format!("/proc/{}/exe", me.display()))
}

fn say_failed(message: &str) -> ExitCode {
    eprint_line(&format!("neap launch: {message}"));
    ExitCode::FAILURE
}

fn eprint_line(text: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr().lock(), "{text}");
}
