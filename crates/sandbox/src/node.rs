//! A node's processes as a whole: starting its agent apart from the server, watching it, and making sure that
//! nothing of the node is left.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};

use crate::cgroup::NodeCgroup;
use crate::{Error, sys};

/// The variable that marks every process of a node, for machines without cgroups. An agent hands it on to its
/// attempts.
pub const NODE_MARK: &str = "NEAP_NODE_MARK";
/// Name of the file in a node's folder that says which process its agent is.
pub const AGENT_FILE: &str = "agent.process.json";
const FENCE_ROUNDS_MAX: u32 = 500;

/// A process, told apart from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    pub pid: u32,
    /// Clock ticks after boot, as the kernel states it.
    pub start_time: u64,
}

/// Starts a program in its own session (so that it outlives this process), marked as the node's, in the
/// node's cgroup where there is one, with stdout and stderr appended to `log_file`.
pub fn spawn_detached(
    program: &Path,
    args: &[&str],
    installation: &str,
    node: u64,
    node_dir: &Path,
    log_file: &Path,
) -> Result<Detached, Error> {
    let failed = |e: io::Error| Error::Detached { program: program.display().to_string(), source: e };
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(log_file).map_err(failed)?;
    let procs = NodeCgroup::create(installation, node).and_then(|cgroup| cgroup.agent_procs());
    let mut command = Command::new(program);
    command
        .args(args)
        .env(NODE_MARK, format!("{installation}/{node}"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .current_dir(node_dir);
    // SAFETY: between fork and exec only `setsid` and `write` are called, on a descriptor opened before.
    unsafe {
        command.pre_exec(move || {
            sys::new_session();
            if let Some(procs) = &procs {
                // Without it the node still has its mark; limits are joined by the attempts themselves.
                let _ = rustix::io::write(procs, b"0");
            }
            Ok(())
        });
    }
    let child = command.spawn().map_err(failed)?;
    let pid = child.id();
    let start_time = start_time(pid).unwrap_or(0);
    let detached = Detached { pid, start_time };
    let record = serde_json::to_vec(&detached).map_err(|e| failed(e.into()))?;
    neap_crash::point("agent-spawned-before-record");
    fs::write(node_dir.join(AGENT_FILE), record).map_err(failed)?;
    Ok(detached)
}

/// When a process started, in clock ticks after boot; none if there is no such process, or only its zombie.
pub fn start_time(pid: u32) -> Option<u64> {
    stat(pid as i32).filter(|found| !found.zombie).map(|found| found.start_time)
}

/// Whether this very process still runs.
pub fn is_alive(process: Detached) -> bool {
    start_time(process.pid) == Some(process.start_time)
}

/// Kills the process that a file names, if the file is there and this very process runs, and waits for its end: a few
/// milliseconds as a rule. Says whether it is gone.
pub fn end_process(file: &Path) -> bool {
    let Some(process) = fs::read(file).ok().and_then(|text| serde_json::from_slice::<Detached>(&text).ok())
    else {
        return true;
    };
    for _ in 0..FENCE_ROUNDS_MAX {
        if !is_alive(process) {
            return true;
        }
        let _ = sys::kill(process.pid as i32, libc::SIGKILL);
        crate::pause_ms(2);
    }
    false
}

/// Whether a process was started with this variable, `NAME=value`. One whose variables cannot be read was not.
pub fn carries(pid: u32, variable: &str) -> bool {
    marked(pid as i32, variable.as_bytes())
}

/// A descriptor that becomes readable when a process ends.
#[derive(Debug)]
pub struct ProcessWatch {
    fd: OwnedFd,
}

impl ProcessWatch {
    /// None if the process is gone already.
    pub fn open(process: Detached) -> Result<Option<Self>, Error> {
        let Some(pid) = Pid::from_raw(process.pid as i32) else { return Ok(None) };
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            // Looked at after the descriptor is held: from then on the number cannot mean another process.
            Ok(fd) => Ok(is_alive(process).then_some(Self { fd })),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(e) => Err(Error::Watch { pid: process.pid, source: e.into() }),
        }
    }

    /// Takes the dead process's last word, if it was our child. Does not wait.
    pub fn reap(&self) {
        let _ = rustix::process::waitid(
            WaitId::PidFd(self.fd.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
}

impl AsFd for ProcessWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::os::fd::AsRawFd for ProcessWatch {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.fd)
    }
}

/// Ends every process of a node (agent, spawner, supervisors, attempts), confirms that none is left, and
/// removes its cgroups. Waits for the kernel, a few milliseconds as a rule: call it where that is allowed.
/// Safe to repeat, and for a node that is long gone.
pub fn fence_node(installation: &str, node: u64, node_dir: &Path) -> Result<(), Error> {
    let cgroup = NodeCgroup::locate(installation, node);
    let emptied = cgroup.as_ref().is_none_or(NodeCgroup::kill_all);
    let mark = format!("{NODE_MARK}={installation}/{node}");
    let recorded = fs::read(node_dir.join(AGENT_FILE))
        .ok()
        .and_then(|record| serde_json::from_slice::<Detached>(&record).ok());
    let mut left = 0;
    for _ in 0..FENCE_ROUNDS_MAX {
        let mut alive: Vec<i32> =
            processes().into_iter().filter(|found| !found.zombie).map(|found| found.pid).collect();
        alive.retain(|pid| *pid != std::process::id() as i32 && marked(*pid, mark.as_bytes()));
        alive.extend(recorded.filter(|agent| is_alive(*agent)).map(|agent| agent.pid as i32));
        left = alive.len();
        if left == 0 {
            break;
        }
        for pid in alive {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        crate::pause_ms(2);
    }
    if left > 0 || !emptied {
        return Err(Error::Unfenced { node, left: left.max(1) });
    }
    match cgroup {
        Some(cgroup) => cgroup.remove().map_err(|source| Error::CgroupLeft { node, source }),
        None => Ok(()),
    }
}

/// Whether a process carries the node's mark. Unreadable ones are not ours.
fn marked(pid: i32, mark: &[u8]) -> bool {
    use std::io::Read;
    let mut environment = Vec::new();
    File::open(format!("/proc/{pid}/environ")).and_then(|mut file| file.read_to_end(&mut environment)).is_ok()
        && environment.split(|byte| *byte == 0).any(|variable| variable == mark)
}

pub(crate) struct Found {
    pub pid: i32,
    pub parent: i32,
    pub zombie: bool,
    pub start_time: u64,
}

/// Every process of the machine that can be seen.
pub(crate) fn processes() -> Vec<Found> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names.filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn stat(pid: i32) -> Option<Found> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; what follows its last parenthesis is numbers.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let start_time = fields.nth(17)?.parse().ok()?;
    Some(Found { pid, parent, zombie, start_time })
}
