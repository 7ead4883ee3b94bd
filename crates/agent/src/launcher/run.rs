//! Starting a process, and following its output to its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use super::note::Note;
use super::output::Output;
use super::plan::Plan;
use super::{COMMAND, PLAN, PROGRAM};
use crate::boot_log;

const READ_BYTES: usize = 64 * 1024;

/// A process whose output comes here.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    output: Receiver,
}

/// The user's command, as one process. What only launchers know is taken from its variables.
pub(crate) fn user_command(plan: &Plan, variables: Vec<(String, String)>) -> io::Result<Running> {
    let mut command = shell(&std::env::var_os(COMMAND).unwrap_or_default());
    command.envs(variables).current_dir(&plan.cwd);
    for name in [PLAN, COMMAND, PROGRAM] {
        command.env_remove(name);
    }
    start(command)
}

/// A command line, as the job's own would be run.
pub(crate) fn shell(line: &OsString) -> Command {
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let mut command = Command::new(shell);
    command.arg("-c").arg(line);
    command
}

/// Starts it with both outputs in one pipe.
pub(crate) fn start(mut command: Command) -> io::Result<Running> {
    let (read, write) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(write.try_clone()?).stderr(write);
    let child = command.spawn()?;
    Ok(Running { child, output: Receiver::from_owned_fd(OwnedFd::from(read))? })
}

impl Running {
    /// Writes what it says as this rank's until it has ended. Children it leaves behind are not waited for.
    pub(crate) async fn follow(mut self, rank: u32, to: &Output) -> io::Result<ExitStatus> {
        let mut buffer = vec![0; READ_BYTES];
        let mut open = true;
        loop {
            tokio::select! {
                biased;
                read = self.output.read(&mut buffer), if open => match read {
                    Ok(0) | Err(_) => open = false,
                    Ok(n) => to.write(rank, &buffer[..n]),
                },
                status = self.child.wait() => {
                    while let Ok(n) = self.output.try_read(&mut buffer) {
                        if n == 0 {
                            break;
                        }
                        to.write(rank, &buffer[..n]);
                    }
                    return status;
                }
            }
        }
    }
}

/// The exit code that says the same, as shells do.
pub(crate) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(1)
}

/// How a rank ended that did not succeed.
pub(crate) fn note_of(rank: u32, status: ExitStatus) -> Note {
    let at_ms = i64::try_from(boot_log::now_ns() / 1_000_000).unwrap_or(0);
    Note::Process { rank, code: status.code(), signal: status.signal(), at_ms }
}

/// The first program of this name on the search path.
pub(crate) fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|at| rustix::fs::access(at, rustix::fs::Access::EXEC_OK).is_ok() && at.is_file())
}
