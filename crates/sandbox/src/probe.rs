//! What this machine lets us do, found out by trying, and what it has.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::{CgroupVersion, NodeCgroup};
use crate::confine::Confinement;
use crate::layers::{Layer, Layers};
use crate::root::{HostView, Root};
use crate::seccomp::Filter;
use crate::spawner::NAMESPACES;
use crate::sys::{self, Forked};
use crate::{landlock, root};

/// What separates attempts from each other and from the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Short words: `user`, `cgroup-v1`, `pid-namespace`, …
    pub have: Vec<&'static str>,
    /// Sentences, for people.
    pub missing: Vec<String>,
    pub cgroup: Option<CgroupVersion>,
    pub root: bool,
    layers: Layers,
}

const NAMESPACE_WORDS: [&str; 4] = ["pid-namespace", "mount-namespace", "ipc-namespace", "uts-namespace"];

impl Capabilities {
    /// Whether attempts get namespaces and a root file system of their own. Where not, none is started that should.
    pub fn namespaces(&self) -> bool {
        self.have.contains(&"pid-namespace")
    }

    /// Whether this layer is in force here.
    pub fn has(&self, layer: Layer) -> bool {
        self.layers.has(layer)
    }

    /// What attempts are confined by; none where there is no way to.
    pub(crate) fn confinement(&self, visible: &[PathBuf], shared: &[PathBuf]) -> Option<Confinement> {
        self.namespaces().then(|| Confinement {
            layers: self.layers,
            filter: Filter::new(),
            landlock: landlock::version(),
            cgroup_namespace: self.have.contains(&"cgroup-namespace"),
            visible: visible.to_vec(),
            shared: shared.to_vec(),
        })
    }
}

/// What an attempt's isolation needs of the kernel, each tried in a process of its own.
type Trial = fn(root: bool) -> Result<(), root::StepError>;

/// Tries everything once. Takes a few milliseconds, and leaves nothing behind.
pub fn probe() -> Capabilities {
    let root = rustix::process::geteuid().is_root();
    let mut have = Vec::new();
    let mut missing = Vec::new();
    if root {
        have.push("user");
    } else {
        missing.push(
            "Attempts run as the user of this server, because only root can give them users of their own."
                .to_owned(),
        );
    }
    let own = if root { 0 } else { libc::CLONE_NEWUSER as u64 };
    let mut layers = Layers::wanted();
    match attempt(NAMESPACES | own, root, |_| build_a_root()) {
        Ok(()) => {
            have.extend(NAMESPACE_WORDS);
            let more: [(Layer, u64, Trial, &str); 2] = [
                (
                    Layer::UserNamespace,
                    NAMESPACES | own,
                    nest,
                    "Attempts share the user namespace of this machine: the kernel refuses them another one",
                ),
                (
                    Layer::Network,
                    NAMESPACES | own | libc::CLONE_NEWNET as u64,
                    |_| Ok(()),
                    "Attempts share the network of this machine: the kernel refuses them another one",
                ),
            ];
            for (layer, flags, trial, sentence) in more {
                if let Err(why) = attempt(flags, root, trial) {
                    missing.push(format!("{sentence} ({why})."));
                    layers = layers.without(layer);
                }
            }
            if attempt(own, root, |_| sys::unshare(libc::CLONE_NEWCGROUP).map_err(root::step("cgroups")))
                .is_ok()
            {
                have.push("cgroup-namespace");
            }
            if landlock::version().is_none() {
                missing.push(
                    "No file rules of the kernel (Landlock) stand behind the root file system of an attempt: \
                     the kernel has none, or does not use them (see `lsm=` of its command line)."
                        .to_owned(),
                );
                layers = layers.without(Layer::Landlock);
            }
            have.extend(Layer::ALL.into_iter().filter(|layer| layers.has(*layer)).map(Layer::word));
        }
        Err(why) => {
            layers = Layers::NONE;
            missing.push(format!(
                "Jobs cannot be isolated here: a root file system of their own is refused ({why}). {} To run jobs all \
                 the same, without anything between them and this machine, write `isolation: off` below `local:` in \
                 config.yaml.",
                if root {
                    "Run the server outside of a container, or give it CAP_SYS_ADMIN."
                } else {
                    "Allow user namespaces (kernel.unprivileged_userns_clone, \
                     kernel.apparmor_restrict_unprivileged_userns) or run the server as root."
                }
            ));
        }
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
    Capabilities { have, missing, cgroup, root, layers }
}

/// Forks a child into the namespaces and lets it try.
fn attempt(
    flags: u64,
    root: bool,
    trial: impl Fn(bool) -> Result<(), root::StepError>,
) -> Result<(), String> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (read, write) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| e.to_string())?;
    match sys::fork(flags) {
        Err(e) => Err(e.to_string()),
        // System calls and formatting: sound in a copy of a single-threaded process, and in a threaded one as far as
        // libc's allocator, which is safe after fork, is all that is used.
        Ok(Forked::Child) => {
            let mapped = if root { Ok(()) } else { root::map_self(uid, gid) };
            if let Err((step, e)) = mapped.and_then(|()| trial(root)) {
                let _ = rustix::io::write(&write, format!("{step}: {e}").as_bytes());
            }
            sys::exit_now(0)
        }
        Ok(Forked::Parent(pid)) => {
            drop(write);
            let mut why = [0; 512];
            let length = rustix::io::read(&read, &mut why).unwrap_or(0);
            match sys::wait_for(pid) {
                Some(0) if length == 0 => Ok(()),
                Some(_) => Err(String::from_utf8_lossy(&why[..length]).into_owned()),
                None => Err("the trial ended by a signal".to_owned()),
            }
        }
    }
}

fn build_a_root() -> Result<(), root::StepError> {
    let own_user_namespace = !rustix::process::geteuid().is_root() || !have_all_users();
    let host = HostView { at: "/mnt".into(), own_user_namespace, ..HostView::default() };
    Root::build(&host).map(drop)
}

/// Whether this is the machine's own user namespace.
fn have_all_users() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.contains("4294967295"))
}

/// A user namespace in this one, and as another user where that is possible.
fn nest(root: bool) -> Result<(), root::StepError> {
    let mut id = rustix::process::getuid().as_raw();
    if root {
        id = crate::USERS_FROM;
        sys::become_user(id, true).map_err(root::step("becoming an unprivileged user"))?;
    }
    sys::unshare(libc::CLONE_NEWUSER).map_err(root::step("making a user namespace"))?;
    sys::set_dumpable(true);
    root::map_self(id, if root { id } else { rustix::process::getgid().as_raw() })
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
