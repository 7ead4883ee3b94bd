//! Cgroups, version 1, 2, or the mixture of both: limits for attempts, and a handle on every process of a node.
//!
//! Everything lies under `neap/<installation>/<node>/`: the agent and its supervisors in `agent`, attempts in
//! `slot-<n>`. A slot is kept between attempts, since making and removing cgroups costs more than a process.
//! Nothing outside `neap/` is ever changed, save that version 2 needs its controllers handed down.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use crate::launch::AttemptLimits;
use crate::sys;

/// Which kind of cgroups attempts are limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

const TOP: &str = "neap";
/// Where this is, there is a driver for GPUs.
const GPU_CONTROL: &str = "/dev/nvidiactl";
const CPU_PERIOD_US: u64 = 100_000;
const KILL_ROUNDS_MAX: u32 = 1000;
const KILL_ROUND_MS: i64 = 2;

/// The hierarchies of this machine in which cgroups can be made.
#[derive(Clone, Debug)]
struct Hierarchies {
    version: CgroupVersion,
    cpu: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    /// Version 1 alone, and only on machines that have GPUs.
    devices: Option<PathBuf>,
    /// Where every process of a node is listed, and stays listed when it is moved for its limits.
    tracking: Option<PathBuf>,
}

impl Hierarchies {
    fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let (mut cpu, mut memory, mut pids, mut devices, mut unified) = (None, None, None, None, None);
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(at), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let has = |controller: &str| options.split(',').any(|o| o == controller);
            match kind {
                "cgroup" if has("cpu") => cpu = Some(PathBuf::from(at)),
                "cgroup" if has("memory") => memory = Some(PathBuf::from(at)),
                "cgroup" if has("pids") => pids = Some(PathBuf::from(at)),
                "cgroup" if has("devices") && Path::new(GPU_CONTROL).exists() => {
                    devices = Some(PathBuf::from(at));
                }
                "cgroup2" => unified = Some(PathBuf::from(at)),
                _ => {}
            }
        }
        let usable = |at: Option<PathBuf>| at.filter(|at| make_folder(&at.join(TOP)).is_ok());
        let full = |at: &PathBuf| {
            let controllers = fs::read_to_string(at.join("cgroup.controllers")).unwrap_or_default();
            ["cpu", "memory", "pids"].iter().all(|c| controllers.split_whitespace().any(|have| have == *c))
        };
        if let Some(at) = unified.clone().filter(full) {
            let at = usable(Some(at))?;
            hand_down(&at).ok()?;
            let all = || Some(at.clone());
            return Some(Self {
                version: CgroupVersion::V2,
                cpu: all(),
                memory: all(),
                pids: all(),
                devices: None,
                tracking: all(),
            });
        }
        let (cpu, memory, pids) = (usable(cpu), usable(memory), usable(pids));
        let tracking = usable(unified).or_else(|| pids.clone());
        (memory.is_some() || pids.is_some() || cpu.is_some()).then_some(Self {
            version: CgroupVersion::V1,
            cpu,
            memory,
            pids,
            devices: usable(devices),
            tracking,
        })
    }

    /// Each hierarchy once.
    fn all(&self) -> Vec<&Path> {
        let mut all: Vec<&Path> = [&self.cpu, &self.memory, &self.pids, &self.devices, &self.tracking]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn limiting(&self) -> Vec<&Path> {
        let mut all: Vec<&Path> = [&self.cpu, &self.memory, &self.pids, &self.devices]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A node's cgroups.
#[derive(Clone, Debug)]
pub struct NodeCgroup {
    hierarchies: Hierarchies,
    below: PathBuf,
}

impl NodeCgroup {
    /// The cgroups of this node, made where they are missing. None where this machine lets us make none.
    pub fn create(installation: &str, node: u64) -> Option<Self> {
        let this = Self::locate(installation, node)?;
        for at in this.hierarchies.all() {
            let mut dir = at.join(TOP);
            for name in [installation.to_owned(), node.to_string()] {
                if this.hierarchies.version == CgroupVersion::V2 {
                    hand_down(&dir).ok()?;
                }
                dir = dir.join(name);
                make_folder(&dir).ok()?;
            }
            if this.hierarchies.version == CgroupVersion::V2 {
                hand_down(&dir).ok()?;
            }
        }
        make_folder(&this.agent_folder()?).ok()?;
        Some(this)
    }

    /// The same without making anything.
    pub(crate) fn locate(installation: &str, node: u64) -> Option<Self> {
        let below = Path::new(TOP).join(installation).join(node.to_string());
        Some(Self { hierarchies: Hierarchies::find()?, below })
    }

    pub fn version(&self) -> CgroupVersion {
        self.hierarchies.version
    }

    fn agent_folder(&self) -> Option<PathBuf> {
        Some(self.hierarchies.tracking.as_ref()?.join(&self.below).join("agent"))
    }

    /// A process that writes `0` here belongs to the node from then on, with all that it forks.
    pub(crate) fn agent_procs(&self) -> Option<File> {
        OpenOptions::new().write(true).open(self.agent_folder()?.join("cgroup.procs")).ok()
    }

    /// The cgroup of one attempt at a time.
    pub(crate) fn slot(&self, slot: u32) -> io::Result<SlotCgroup> {
        let name = format!("slot-{slot}");
        let place = |at: &Option<PathBuf>| at.as_ref().map(|at| at.join(&self.below).join(&name));
        let mut procs = Vec::new();
        for at in self.hierarchies.limiting() {
            let dir = at.join(&self.below).join(&name);
            make_folder(&dir)?;
            procs.push(OpenOptions::new().write(true).open(dir.join("cgroup.procs"))?);
        }
        Ok(SlotCgroup {
            version: self.hierarchies.version,
            procs,
            cpu: place(&self.hierarchies.cpu),
            memory: place(&self.hierarchies.memory),
            pids: place(&self.hierarchies.pids),
            devices: place(&self.hierarchies.devices),
            closed: Vec::new(),
            limits: None,
            oom_counter: self.oom_counter(place(&self.hierarchies.memory)),
            cpu_counter: self.counter(place(&self.hierarchies.cpu), "cpuacct.usage", "cpu.stat"),
            memory_counter: self.counter(
                place(&self.hierarchies.memory),
                "memory.max_usage_in_bytes",
                "memory.peak",
            ),
        })
    }

    fn counter(&self, dir: Option<PathBuf>, first: &str, second: &str) -> Option<File> {
        let name = match self.hierarchies.version {
            CgroupVersion::V1 => first,
            CgroupVersion::V2 => second,
        };
        File::open(dir?.join(name)).ok()
    }

    /// The file that counts the processes the kernel ended in a cgroup for want of memory.
    fn oom_counter(&self, memory: Option<PathBuf>) -> Option<File> {
        let name = match self.hierarchies.version {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        };
        File::open(memory?.join(name)).ok()
    }

    /// Ends every process of the node, and says whether none is left.
    pub(crate) fn kill_all(&self) -> bool {
        for _ in 0..KILL_ROUNDS_MAX {
            let mut left = 0;
            for at in self.hierarchies.all() {
                let dir = at.join(&self.below);
                let _ = fs::write(dir.join("cgroup.kill"), "1");
                for pid in processes_below(&dir) {
                    left += 1;
                    let _ = sys::kill(pid, libc::SIGKILL);
                }
            }
            if left == 0 {
                return true;
            }
            crate::pause_ms(KILL_ROUND_MS);
        }
        false
    }

    /// Removes the node's cgroups, which must be empty.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let mut result = Ok(());
        for at in self.hierarchies.all() {
            let dir = at.join(&self.below);
            for round in 0..KILL_ROUNDS_MAX {
                result = remove_tree(&dir);
                if result.is_ok() || round + 1 == KILL_ROUNDS_MAX {
                    break;
                }
                crate::pause_ms(KILL_ROUND_MS);
            }
            // The installation's folder goes with its last node; while others live this is refused.
            if let Some(parent) = dir.parent() {
                let _ = fs::remove_dir(parent);
            }
        }
        result
    }
}

/// Where an attempt's processes are limited and counted.
#[derive(Debug)]
pub(crate) struct SlotCgroup {
    version: CgroupVersion,
    procs: Vec<File>,
    cpu: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    devices: Option<PathBuf>,
    /// Devices that are denied at the moment, as `major:minor`.
    closed: Vec<String>,
    limits: Option<AttemptLimits>,
    oom_counter: Option<File>,
    cpu_counter: Option<File>,
    memory_counter: Option<File>,
}

impl SlotCgroup {
    pub(crate) fn procs(&self) -> Vec<RawFd> {
        self.procs.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Puts these limits in force, if others are.
    pub(crate) fn limit(&mut self, limits: AttemptLimits) -> io::Result<()> {
        if self.limits == Some(limits) {
            return Ok(());
        }
        self.limits = None;
        let quota_us = u64::from(limits.cpus_milli) * CPU_PERIOD_US / 1000;
        let bytes = limits.memory_mb.saturating_mul(1024 * 1024);
        let unlimited = |n: u64, otherwise: &str| if n == 0 { otherwise.to_owned() } else { n.to_string() };
        match self.version {
            CgroupVersion::V1 => {
                if let Some(cpu) = &self.cpu {
                    put(cpu, "cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
                    put(cpu, "cpu.cfs_quota_us", &unlimited(quota_us, "-1"))?;
                }
                if let Some(memory) = &self.memory {
                    // The limit with swap may never be the lower of the two: which must go first depends on
                    // the direction, so the first refusal is answered by the second try.
                    let first = put(memory, "memory.limit_in_bytes", &unlimited(bytes, "-1"));
                    let _ = put(memory, "memory.memsw.limit_in_bytes", &unlimited(bytes, "-1"));
                    first.or_else(|_| put(memory, "memory.limit_in_bytes", &unlimited(bytes, "-1")))?;
                }
            }
            CgroupVersion::V2 => {
                if let Some(cpu) = &self.cpu {
                    put(cpu, "cpu.max", &format!("{} {CPU_PERIOD_US}", unlimited(quota_us, "max")))?;
                }
                if let Some(memory) = &self.memory {
                    put(memory, "memory.max", &unlimited(bytes, "max"))?;
                    let _ = put(memory, "memory.swap.max", if bytes == 0 { "max" } else { "0" });
                }
            }
        }
        if let Some(pids) = &self.pids {
            put(pids, "pids.max", &unlimited(u64::from(limits.processes), "max"))?;
        }
        self.limits = Some(limits);
        Ok(())
    }

    /// Denies these device files and no others, where there is a controller for it. The mount namespace has closed them
    /// already where there is one, so that a kernel which refuses leaves things as they are.
    pub(crate) fn close_devices(&mut self, files: &[PathBuf]) {
        let Some(devices) = &self.devices else { return };
        let closed: Vec<String> = files.iter().filter_map(|file| device_number(file)).collect();
        if closed == self.closed {
            return;
        }
        for device in self.closed.iter().filter(|device| !closed.contains(device)) {
            let _ = put(devices, "devices.allow", &format!("c {device} rwm"));
        }
        for device in closed.iter().filter(|device| !self.closed.contains(device)) {
            let _ = put(devices, "devices.deny", &format!("c {device} rwm"));
        }
        self.closed = closed;
    }

    /// How many processes the kernel has ended here for want of memory, since there is this cgroup.
    pub(crate) fn oom_kills(&self) -> u64 {
        read(self.oom_counter.as_ref(), "oom_kill ").unwrap_or(0)
    }

    /// Processor time of everything that ever ran here.
    pub(crate) fn cpu_us(&self) -> Option<u64> {
        match self.version {
            CgroupVersion::V1 => read(self.cpu_counter.as_ref(), "").map(|ns| ns / 1000),
            CgroupVersion::V2 => read(self.cpu_counter.as_ref(), "usage_usec "),
        }
    }

    /// The most memory that there ever was at once.
    pub(crate) fn memory_peak_bytes(&self) -> Option<u64> {
        read(self.memory_counter.as_ref(), "")
    }
}

/// The number behind a word at the beginning of a line.
fn read(counter: Option<&File>, word: &str) -> Option<u64> {
    use std::os::unix::fs::FileExt;
    let mut buffer = [0u8; 512];
    let length = counter?.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(&buffer[..length]).ok()?;
    text.lines().find_map(|line| line.strip_prefix(word))?.trim().parse().ok()
}

/// `195:0`, of a device file.
fn device_number(file: &Path) -> Option<String> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let found = fs::metadata(file).ok().filter(|found| found.file_type().is_char_device())?;
    Some(format!("{}:{}", rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev())))
}

fn put(dir: &Path, name: &str, value: &str) -> io::Result<()> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", dir.join(name).display()));
    OpenOptions::new()
        .write(true)
        .open(dir.join(name))
        .map_err(named)?
        .write_all(value.as_bytes())
        .map_err(named)
}

fn make_folder(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Lets the cgroups below use the controllers (version 2).
fn hand_down(dir: &Path) -> io::Result<()> {
    let file = dir.join("cgroup.subtree_control");
    let now = fs::read_to_string(&file)?;
    if ["cpu", "memory", "pids"].iter().all(|c| now.split_whitespace().any(|have| have == *c)) {
        return Ok(());
    }
    fs::write(file, "+cpu +memory +pids")
}

fn processes_below(dir: &Path) -> Vec<i32> {
    let mut found: Vec<i32> = fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter(|pid| *pid > 0)
        .collect();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(processes_below(&entry.path()));
        }
    }
    found
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_by_their_numbers() {
        assert_eq!(device_number(Path::new("/dev/null")).as_deref(), Some("1:3"));
        assert_eq!(device_number(Path::new("/dev")), None);
        assert_eq!(device_number(Path::new("/dev/no-such")), None);
    }

    #[test]
    fn what_is_closed_is_denied_and_what_is_not_any_more_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["devices.allow", "devices.deny"].map(|name| dir.path().join(name));
        let mut slot = SlotCgroup {
            version: CgroupVersion::V1,
            procs: Vec::new(),
            cpu: None,
            memory: None,
            pids: None,
            devices: Some(dir.path().to_owned()),
            closed: Vec::new(),
            limits: None,
            oom_counter: None,
            cpu_counter: None,
            memory_counter: None,
        };
        let said = |slot: &mut SlotCgroup, closed: &[&str]| {
            files.iter().for_each(|file| fs::write(file, "").unwrap());
            slot.close_devices(&closed.iter().map(PathBuf::from).collect::<Vec<_>>());
            files.each_ref().map(|file| fs::read_to_string(file).unwrap())
        };
        assert_eq!(said(&mut slot, &["/dev/null"]), ["", "c 1:3 rwm"]);
        assert_eq!(said(&mut slot, &["/dev/null"]), ["", ""]);
        assert_eq!(said(&mut slot, &["/dev/zero"]), ["c 1:3 rwm", "c 1:5 rwm"]);
        assert_eq!(said(&mut slot, &[]), ["c 1:5 rwm", ""]);
    }
}
