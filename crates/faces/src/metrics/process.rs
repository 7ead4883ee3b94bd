//! The process itself, by the names every Prometheus client uses. What the kernel does not say is left out.

use std::fs;

use super::exposition::{Exposition, Kind};

/// Linux counts process times in these, on every machine.
const TICKS_PER_SECOND: u64 = 100;

pub(crate) fn write(out: &mut Exposition, started_unix_ms: u64) {
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::read(&text)) {
        out.family("process_cpu_seconds_total", Kind::Counter, "User and system time spent.").parts(
            &[],
            stat.cpu_ticks,
            TICKS_PER_SECOND,
        );
        out.single("process_threads", Kind::Gauge, "Threads of the process.", stat.threads);
        out.single(
            "process_virtual_memory_bytes",
            Kind::Gauge,
            "Size of the address space.",
            stat.virtual_bytes,
        );
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(bytes) = resident_bytes(&status) {
        out.single("process_resident_memory_bytes", Kind::Gauge, "Memory that is there.", bytes);
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        out.single("process_open_fds", Kind::Gauge, "Open descriptors.", entries.count() as u64);
    }
    if let Some(max) = fs::read_to_string("/proc/self/limits").ok().and_then(|text| descriptors_max(&text)) {
        out.single("process_max_fds", Kind::Gauge, "Descriptors that may be open.", max);
    }
    out.family("process_start_time_seconds", Kind::Gauge, "When the server began, since 1970.").parts(
        &[],
        started_unix_ms,
        1_000,
    );
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    virtual_bytes: u64,
}

impl Stat {
    /// Fields are counted after the name, which may hold anything.
    fn read(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: number(11)? + number(12)?, threads: number(17)?, virtual_bytes: number(20)? })
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

fn descriptors_max(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read() {
        let text = "42 (ne) ap) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 7 0 99 1048576 300 0";
        assert_eq!(Stat::read(text), Some(Stat { cpu_ticks: 200, threads: 7, virtual_bytes: 1_048_576 }));
        assert_eq!(Stat::read("nonsense"), None);
        assert_eq!(resident_bytes("VmRSS:\t 10 kB\n"), Some(10_240));
        assert_eq!(descriptors_max("Max open files            1024      4096  files\n"), Some(1024));
        assert_eq!(descriptors_max("Max open files            unlimited unlimited files\n"), None);
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut out = Exposition::default();
        write(&mut out, 1_500);
        let text = out.into_text();
        for name in ["process_cpu_seconds_total ", "process_threads ", "process_resident_memory_bytes "] {
            assert!(text.contains(&format!("\n{name}")), "{name} in\n{text}");
        }
        assert!(text.ends_with("process_start_time_seconds 1.5\n"), "{text}");
    }
}
