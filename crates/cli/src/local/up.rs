//! `neap up`: starts the server, in the foreground or apart from the terminal.

use crate::args::Global;
use crate::connection::server_file;
use crate::failure::{Failure, Outcome};
use crate::settings::data_folder;
use crate::terminal::Terminal;
use clap::Args;
use neap_server::{ServerError, ServerOptions};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Set for the process that goes on alone.
const DETACHED: &str = "NEAP_DETACHED";
const POLL: Duration = Duration::from_millis(10);
const START_POLLS_MAX: u32 = 6_000;

#[derive(Debug, Args)]
#[command(
    after_help = "The server keeps everything in its data folder. Settings are read from config.yaml there; \
                  NEAP_LOG sets what is logged (NEAP_LOG=info shows each request), NEAP_LOG_FORMAT=json how.\n\n\
                  Examples:\n  neap up                                     in this terminal, until Ctrl-C\n  \
                  neap up --detach                            in the background\n  \
                  neap up --data /srv/neap --listen 0.0.0.0:8443"
)]
pub struct UpArgs {
    /// Address and port to listen on; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443")]
    pub listen: SocketAddr,
    /// Pretend to have N GPUs, to try things out on a machine without any; each job is told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(neap_sandbox::GPUS_MAX)))]
    pub emulate_gpus: Option<u32>,
    /// Go on in the background; return when the server answers
    #[arg(long)]
    pub detach: bool,
}

pub fn run(args: &UpArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let data = data_folder(global.data.as_deref())?;
    if args.detach { detach(args, &data, terminal) } else { serve(args, data, terminal) }
}

fn serve(args: &UpArgs, data: PathBuf, terminal: &Terminal) -> Outcome<ExitCode> {
    if std::env::var_os(DETACHED).is_some() {
        // Apart from the terminal that started it: its hang-up is not ours.
        let _ = rustix::process::setsid();
    } else {
        terminal.note(&format!("neap {} in {}", env!("CARGO_PKG_VERSION"), data.display()));
    }
    neap_server::log::install().map_err(Failure::usage)?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find out which program this is: {error}")))?;
    let options = ServerOptions {
        data,
        listen: args.listen,
        program,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        emulate_gpus: args.emulate_gpus,
        public_roots: std::env::var_os("REQUESTS_CA_BUNDLE")
            .or_else(|| std::env::var_os("SSL_CERT_FILE"))
            .map(PathBuf::from),
    };
    neap_server::run(&options).map(|()| ExitCode::SUCCESS).map_err(|error| failure(&error))
}

fn failure(error: &ServerError) -> Failure {
    let failure = Failure::failed(error.to_string());
    match error {
        ServerError::Listen { .. } => {
            failure.hint("another program may have the port; choose one with --listen ADDR:PORT")
        }
        ServerError::Folder { .. } => failure.hint("choose a folder that you may write with --data DIR"),
        _ => failure,
    }
}

/// Starts the same program again, apart, and waits until it serves or has ended.
fn detach(args: &UpArgs, data: &Path, terminal: &Terminal) -> Outcome<ExitCode> {
    let logs = data.join("logs");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&logs)
        .map_err(|error| Failure::file("create", &logs, &error))?;
    let log_path = logs.join("server.log");
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(&log_path)
        .map_err(|error| Failure::file("open", &log_path, &error))?;
    let log_start = log.seek(SeekFrom::End(0)).unwrap_or(0);
    let clone = || log.try_clone().map_err(|error| Failure::file("open", &log_path, &error));
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find out which program this is: {error}")))?;
    let mut command = Command::new(program);
    command.arg("up");
    if let Some(count) = args.emulate_gpus {
        command.arg("--emulate-gpus").arg(count.to_string());
    }
    let mut child = command
        .arg("--data")
        .arg(data)
        .arg("--listen")
        .arg(args.listen.to_string())
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(clone()?)
        .stderr(clone()?)
        .spawn()
        .map_err(|error| Failure::failed(format!("the server cannot be started: {error}")))?;
    let spinner = terminal.spinner("starting the server");
    let started = wait_until_serving(&mut child, data);
    spinner.finish_and_clear();
    match started {
        Ok(url) => {
            terminal.note(&format!("serving at {url}, data in {}", data.display()));
            if neap_ledger::reserve_is_in_use(&data.join("ledger")) {
                terminal.warning(
                    "the disk is full: jobs can be stopped and deleted, and new work is refused until there is room",
                );
            }
            terminal.note("point a shell at it:  eval \"$(neap env)\"     stop it:  neap down");
            Ok(ExitCode::SUCCESS)
        }
        Err(reason) => {
            let mut said = String::new();
            if log.seek(SeekFrom::Start(log_start)).is_ok() {
                let _ = log.read_to_string(&mut said);
            }
            Err(ended(&reason, &said, &log_path))
        }
    }
}

fn wait_until_serving(child: &mut Child, data: &Path) -> Result<String, String> {
    for _ in 0..START_POLLS_MAX {
        if let Ok(Some(server)) = server_file(data)
            && server.pid.cast_unsigned() == child.id()
        {
            return Ok(server.url);
        }
        match child.try_wait() {
            Ok(Some(status)) => return Err(format!("the server ended ({status})")),
            Ok(None) => wait(),
            Err(error) => return Err(format!("the server's process cannot be watched: {error}")),
        }
    }
    Err("the server does not answer after a minute; it was left to go on".into())
}

#[allow(
    clippy::disallowed_methods,
    reason = "another process is waited for; there is nothing to be woken by"
)]
fn wait() {
    std::thread::sleep(POLL);
}

/// The child's own error is the error; the rest of its log stays where it is.
fn ended(reason: &str, said: &str, log: &Path) -> Failure {
    let own = last_error(said);
    let mut failure = Failure::failed(own.clone().unwrap_or_else(|| reason.to_owned()));
    for hint in said.lines().filter_map(|line| line.strip_prefix("hint: ")) {
        failure = failure.hint(hint);
    }
    if own.is_none() && disk_is_full(log) {
        failure = failure
            .hint("the disk that holds the data folder is full, so it could not even say why; make room");
    }
    failure.hint(format!("the server's log is {}", log.display()))
}

/// Its first line, and those that are indented below it.
fn last_error(said: &str) -> Option<String> {
    let lines: Vec<&str> = said.lines().collect();
    let at = lines.iter().rposition(|line| line.starts_with("error: "))?;
    let more = lines[at + 1..].iter().take_while(|line| line.starts_with("  "));
    let own = lines[at].strip_prefix("error: ").into_iter().chain(more.copied());
    Some(own.collect::<Vec<_>>().join("\n"))
}

fn disk_is_full(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < 1024 * 1024)
}

#[cfg(test)]
mod tests {
    use super::last_error;

    #[test]
    fn the_whole_of_the_last_error_is_told() {
        let said = "error: old\nneap 0.1.0\nerror: config.yaml is not valid:\n  - line 1: a\n  - line 2: b\nhint: c\n";
        assert_eq!(
            last_error(said).as_deref(),
            Some("config.yaml is not valid:\n  - line 1: a\n  - line 2: b")
        );
        assert_eq!(last_error("nothing\n"), None);
    }
}
