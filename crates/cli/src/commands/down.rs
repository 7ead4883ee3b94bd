//! `neap down`: asks the server to stop, and waits until its process is gone.

use crate::args::{Global, whole};
use crate::client::Client;
use crate::connection::{Connection, server_file};
use crate::failure::{Exit, Failure, Outcome};
use crate::settings::data_folder;
use crate::terminal::Terminal;
use clap::Args;
use reqwest::Method;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    after_help = "Running jobs get the grace to end; then their nodes are stopped and the jobs are queued again \
                        for the next start. With --leave-nodes the nodes go on alone, and the next server finds them.\n\n\
                        Examples:\n  neap down\n  neap down --grace 120\n  neap down --leave-nodes"
)]
pub struct DownArgs {
    /// Leave nodes and their jobs running
    #[arg(long)]
    leave_nodes: bool,
    /// How long running jobs may take to end
    #[arg(long, value_name = "SECONDS", default_value_t = 10, allow_negative_numbers = true, value_parser = whole::<u64>)]
    grace: u64,
}

const POLL: Duration = Duration::from_millis(100);
/// Beyond the grace, what stopping the nodes and closing the ledger may take.
const CLOSING_TIME: Duration = Duration::from_secs(60);

pub async fn run(args: &DownArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let data = data_folder(global.data.as_deref())?;
    let Some(server) = server_file(&data)?.filter(|server| is_alive(server.pid)) else {
        terminal.note("no server runs here");
        return Ok(ExitCode::SUCCESS);
    };
    let connection = Connection::of_folder(&data)?.ok_or_else(|| {
        Failure::failed(format!("{} has a server but no client.json", data.display()))
            .hint(format!("end process {} yourself; the next start repairs what is left", server.pid))
    })?;
    let client = Client::new(connection, terminal.clone(), None)?;
    let body = json!({"leave_nodes": args.leave_nodes, "grace_ms": args.grace.saturating_mul(1000)});
    match client.call(Method::POST, "/neap/v1/shutdown", Some(&body)).await {
        Ok(_) => {}
        // It may be on its way out already, and answer nobody.
        Err(failure) if failure.exit == Exit::Unreachable => {
            terminal.verbose(&format!("the server does not answer; waiting for process {}", server.pid));
        }
        Err(failure) => return Err(failure),
    }
    let what = if args.leave_nodes { "stopping the server" } else { "stopping the server and its nodes" };
    terminal.note(what);
    let spinner = terminal.spinner("waiting for running jobs and nodes");
    let mut left = CLOSING_TIME + Duration::from_secs(args.grace);
    while still_serves(&data, server.pid) {
        if left.is_zero() {
            spinner.finish_and_clear();
            return Err(Failure::failed(format!("process {} has not ended", server.pid))
                .hint(format!("look into {}", data.join("logs/server.log").display())));
        }
        tokio::time::sleep(POLL).await;
        left = left.saturating_sub(POLL);
    }
    spinner.finish_and_clear();
    terminal.note("stopped");
    Ok(ExitCode::SUCCESS)
}

/// The process is there, and still says that it serves this folder (its number may have been given to another).
fn still_serves(data: &Path, pid: i32) -> bool {
    let claims = !matches!(server_file(data), Ok(Some(server)) if server.pid != pid);
    claims && is_alive(pid)
}

fn is_alive(pid: i32) -> bool {
    let Some(pid) = rustix::process::Pid::from_raw(pid) else { return false };
    match rustix::process::test_kill_process(pid) {
        Ok(()) => !is_zombie(pid),
        Err(error) => error == rustix::io::Errno::PERM,
    }
}

/// A process that ended and was not yet reaped by its parent still answers signals.
fn is_zombie(pid: rustix::process::Pid) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}
