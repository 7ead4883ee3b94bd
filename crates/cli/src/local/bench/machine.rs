//! What the figures were measured on: a figure without its machine says little.

use super::clock;
use super::samples::{Samples, rounded};
use crate::terminal::Terminal;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const SYNCS: usize = 64;
const BLOCK_BYTES: usize = 4096;
/// The kernel counts processor time for programs in hundredths of a second.
pub const TICKS_PER_SECOND: f64 = 100.0;
/// How long the machine is watched for other work, and how much of it spoils figures.
const WATCH: Duration = Duration::from_millis(500);
const BUSY_SHARE_MAX: f64 = 0.1;

/// File systems by the number that the kernel has for each.
const FILE_SYSTEMS: &[(u64, &str)] = &[
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x2FC1_2FC1, "zfs"),
    (0xF2F5_2010, "f2fs"),
    (0x6969, "nfs"),
    (0x794C_7630, "overlay"),
    (0x0102_1994, "tmpfs"),
];

#[derive(Debug, Clone)]
pub struct Machine {
    pub cores: usize,
    pub cpu: String,
    pub memory_mb: u64,
    pub kernel: String,
    pub file_system: String,
    /// One 4 KiB append made durable, at the median: no durable write can be quicker.
    pub sync_ms: f64,
    /// How much of all cores was in use before the work began, by whatever else runs: 0 to 1.
    pub busy_before: f64,
}

impl Machine {
    /// `folder` lies on the disk that is measured.
    pub fn look(folder: &Path) -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu_model().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            memory_mb: neap_sandbox::machine().memory_mb,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: file_system(folder),
            sync_ms: sync_ms(folder).unwrap_or(0.0),
            busy_before: 0.0,
        }
    }

    /// Looks for a moment at how much other work there is, and warns of it.
    pub fn watch(&mut self, terminal: &Terminal) {
        let before = busy_ms();
        clock::pause(WATCH);
        let share = (busy_ms() - before) / (WATCH.as_secs_f64() * 1e3 * self.cores.max(1) as f64);
        self.busy_before = share;
        if share > BUSY_SHARE_MAX {
            let percent = share * 100.0;
            terminal.warning(&format!(
                "other programs use {percent:.0}% of this machine; the figures will be theirs, too"
            ));
        }
    }

    /// What is written there is gone with the power, so making it durable costs nothing.
    pub fn writes_to_memory(&self) -> bool {
        self.file_system == "tmpfs"
    }

    pub fn json(&self) -> Value {
        json!({
            "cores": self.cores,
            "cpu": self.cpu,
            "memory_mb": self.memory_mb,
            "kernel": self.kernel,
            "file_system": self.file_system,
            "sync_ms": rounded(self.sync_ms),
            "busy_before": rounded(self.busy_before),
        })
    }

    pub fn sentence(&self) -> String {
        format!(
            "{} cores ({}), {} MB, Linux {}, {} ({:.2} ms to make 4 KiB durable), {:.0}% busy before",
            self.cores,
            self.cpu,
            self.memory_mb,
            self.kernel,
            self.file_system,
            self.sync_ms,
            self.busy_before * 100.0
        )
    }
}

fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn file_system(folder: &Path) -> String {
    let Ok(found) = rustix::fs::statfs(folder) else { return "unknown".into() };
    // The kernel's field is signed on some machines; the numbers have 32 bits.
    let number = found.f_type as u64 & 0xFFFF_FFFF;
    FILE_SYSTEMS
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).to_owned())
}

fn sync_ms(folder: &Path) -> std::io::Result<f64> {
    let path = folder.join("neap-bench.sync");
    let file = OpenOptions::new().create_new(true).append(true).open(&path)?;
    let measured = sync_often(&file);
    std::fs::remove_file(&path)?;
    measured
}

fn sync_often(mut file: &File) -> std::io::Result<f64> {
    let mut samples = Samples::default();
    for _ in 0..SYNCS {
        let begun = clock::now();
        file.write_all(&[7; BLOCK_BYTES])?;
        file.sync_data()?;
        samples.push(clock::ms_since(begun));
    }
    Ok(samples.median())
}

/// Time that all processors of the machine were busy, in milliseconds.
pub fn busy_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("cpu ")) else { return 0.0 };
    let fields: Vec<f64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq
    let busy: f64 = [0, 1, 2, 5, 6].iter().filter_map(|at| fields.get(*at)).sum();
    busy * 1e3 / TICKS_PER_SECOND
}
