//! What the figures were measured on: a figure without its machine says little.

use super::clock;
use super::samples::{Samples, rounded};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

const SYNCS: usize = 64;
const BLOCK_BYTES: usize = 4096;

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
