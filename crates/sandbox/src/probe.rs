//! What this machine lets us do, found out by trying, and what it has.

use std::fs;
use std::path::Path;

use crate::cgroup::{CgroupVersion, NodeCgroup};
use crate::isolate::{self, NAMESPACES};
use crate::sys::{self, Forked};

/// What separates attempts from each other and from the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Short words: `user`, `cgroup-v1`, `pid-namespace`, …
    pub have: Vec<&'static str>,
    /// Sentences, for people.
    pub missing: Vec<String>,
    pub cgroup: Option<CgroupVersion>,
    pub root: bool,
}

const NAMESPACE_WORDS: [&str; 4] = ["pid-namespace", "mount-namespace", "ipc-namespace", "uts-namespace"];

impl Capabilities {
    /// Whether attempts get namespaces of their own.
    pub fn namespaces(&self) -> bool {
        self.have.contains(&"pid-namespace")
    }
}

/// Tries everything once. Takes a millisecond or two, and leaves nothing behind.
pub fn probe() -> Capabilities {
    let root = rustix::process::geteuid().is_root();
    let mut have = Vec::new();
    let mut missing = Vec::new();
    if root {
        have.push("user");
    } else {
        missing.push(
            "Attempts run as the user of this server, since only root can give them users of their own."
                .to_owned(),
        );
    }
    let flags = NAMESPACES | if root { 0 } else { libc::CLONE_NEWUSER as u64 };
    match try_namespaces(flags, root) {
        Ok(()) => have.extend(NAMESPACE_WORDS),
        Err(why) => missing.push(format!(
            "Attempts see the processes, files and /tmp of this machine: namespaces are refused ({why}). {}",
            if root {
                "Run outside of a container, or give it CAP_SYS_ADMIN."
            } else {
                "Allow user namespaces (kernel.unprivileged_userns_clone, \
                 kernel.apparmor_restrict_unprivileged_userns) or run as root."
            }
        )),
    }
    // A node number that no cluster hands out: ids are counted from 1.
    let cgroup = NodeCgroup::create("probe", 0).and_then(|node| {
        let version = node.slot(0).is_ok().then(|| node.version());
        let _ = node.remove();
        version
    });
    match cgroup {
        Some(CgroupVersion::V1) => have.push("cgroup-v1"),
        Some(CgroupVersion::V2) => have.push("cgroup-v2"),
        None => missing.push(
            "Limits of processors, memory and processes are not enforced: no cgroup can be made below \
             /sys/fs/cgroup. Run as root, or where cgroups are writable."
                .to_owned(),
        ),
    }
    have.extend(["process-group", "supervisor"]);
    Capabilities { have, missing, cgroup, root }
}

/// Forks a child into the namespaces and lets it do what an attempt needs first.
fn try_namespaces(flags: u64, root: bool) -> Result<(), String> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    match sys::fork(flags) {
        Err(e) => Err(e.to_string()),
        // Plain system calls and a little formatting: sound in a copy of a single-threaded process, and in a
        // threaded one as far as libc's allocator, which is safe after fork, is all that is used.
        Ok(Forked::Child) => {
            let mapped = if root { Ok(()) } else { isolate::map_self(uid, gid) };
            let tried = mapped.and_then(|()| {
                sys::mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE, c"")
                    .and_then(|()| sys::mount(c"tmpfs", c"/mnt", c"tmpfs", 0, c"size=4k"))
                    .map_err(|e| ("mounting", e))
            });
            sys::exit_now(tried.err().map_or(0, |(_, e)| e.raw_os_error().unwrap_or(libc::EIO)))
        }
        Ok(Forked::Parent(pid)) => match sys::wait_for(pid) {
            Some(0) => Ok(()),
            Some(error) => Err(std::io::Error::from_raw_os_error(error).to_string()),
            None => Err("the trial ended by a signal".to_owned()),
        },
    }
}

/// What the machine has for nodes, as far as this process may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub cpus_milli: u32,
    pub memory_mb: u64,
}

/// Cores and memory after affinity and cgroup limits. Its GPUs are told by [`gpus`](crate::gpus).
pub fn machine() -> Machine {
    let cores = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1));
    let mut cpus_milli = cores.saturating_mul(1000);
    let mut memory_mb = memory_total_mb();
    for (hierarchy, path) in own_cgroups() {
        for dir in path.ancestors().take_while(|dir| dir.starts_with(&hierarchy)) {
            if let Some(milli) = quota_milli(dir) {
                cpus_milli = cpus_milli.min(milli.max(1));
            }
            for name in ["memory.limit_in_bytes", "memory.max"] {
                if let Some(bytes) = number(&dir.join(name)) {
                    memory_mb = memory_mb.min(bytes / (1024 * 1024));
                }
            }
        }
    }
    Machine { cpus_milli, memory_mb }
}

fn memory_total_mb() -> u64 {
    fs::read_to_string("/proc/meminfo")
        .unwrap_or_default()
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        })
        .map_or(0, |kb| kb / 1024)
}

/// The folders of this process's cgroups, each with the root of its hierarchy.
fn own_cgroups() -> Vec<(std::path::PathBuf, std::path::PathBuf)> {
    let list = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in list.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let below = path.trim_start_matches('/');
        let roots: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            c if c.split(',').any(|c| c == "cpu") => &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"],
            "memory" => &["/sys/fs/cgroup/memory"],
            _ => &[],
        };
        for root in roots {
            let root = Path::new(root);
            if root.is_dir() {
                // Inside a container the path may name a place that is not mounted: then the root counts.
                let at = root.join(below);
                found.push((root.to_owned(), if at.is_dir() { at } else { root.to_owned() }));
            }
        }
    }
    found
}

fn quota_milli(dir: &Path) -> Option<u32> {
    let milli = |quota: u64, period: u64| (quota * 1000).checked_div(period).map(|m| m as u32);
    if let Ok(text) = fs::read_to_string(dir.join("cpu.max")) {
        let mut words = text.split_whitespace();
        return milli(words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    }
    milli(number(&dir.join("cpu.cfs_quota_us"))?, number(&dir.join("cpu.cfs_period_us"))?)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_something() {
        let machine = machine();
        assert!(machine.cpus_milli >= 1 && machine.memory_mb > 0, "{machine:?}");
    }

    #[test]
    fn what_is_missing_is_said_in_sentences() {
        let found = probe();
        assert!(found.have.contains(&"supervisor"));
        assert!(found.missing.iter().all(|sentence| sentence.ends_with('.')), "{:?}", found.missing);
        assert_eq!(found.root, rustix::process::geteuid().is_root());
    }
}
