//! Limits on disk: of the log's reserve, of jobs, and of workspaces.

use std::path::Path;

use serde::Deserialize;

use super::Config;

const MB: u64 = 1024 * 1024;
/// Of a small disk jobs leave one part in this many.
const DISK_RESERVE_SHARE: u64 = 16;

/// `storage`: what the data folder may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageRules {
    /// Disk set aside for the log, in MB; of a small disk at most a sixteenth. 0: none.
    pub reserve_mb: u64,
    /// What one workspace may keep, in MB; absent: no limit.
    pub workspace_mb_max: Option<u64>,
}

impl Default for StorageRules {
    fn default() -> Self {
        Self { reserve_mb: neap_ledger::limits::RESERVE_BYTES / MB, workspace_mb_max: None }
    }
}

/// The disk of the data folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

impl DiskSpace {
    pub fn of(folder: &Path) -> Option<Self> {
        let fs = rustix::fs::statvfs(folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
        Some(Self { total_bytes: bytes(fs.f_blocks), free_bytes: bytes(fs.f_bavail) })
    }
}

/// The limits on disk in force, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRules {
    pub job_bytes_max: u64,
    pub free_bytes_min: u64,
    /// 0: no limit.
    pub workspace_bytes_max: u64,
    pub log_reserve_bytes: u64,
}

impl Config {
    /// What jobs and uploads may take of this disk.
    pub fn disk_rules(&self, disk: DiskSpace) -> DiskRules {
        let free_bytes_min =
            self.local.disk_reserve_mb.saturating_mul(MB).min(disk.total_bytes / DISK_RESERVE_SHARE);
        let job_bytes_max = match self.local.disk_mb_per_job {
            Some(mb) => mb.saturating_mul(MB),
            None => disk.free_bytes / 2,
        };
        DiskRules {
            // Not even a full disk takes the limit away: 0 means none.
            job_bytes_max: job_bytes_max.max(MB),
            free_bytes_min,
            workspace_bytes_max: self.storage.workspace_mb_max.map_or(0, |mb| mb.saturating_mul(MB)),
            log_reserve_bytes: self.storage.reserve_mb.saturating_mul(MB),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, super::super::ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path)
    }

    #[test]
    fn disk_limits_follow_the_disk_unless_they_are_given() {
        let small = DiskSpace { total_bytes: 64 * MB, free_bytes: 60 * MB };
        let rules = load("# nothing\n").unwrap().disk_rules(small);
        assert_eq!((rules.job_bytes_max, rules.free_bytes_min), (30 * MB, 4 * MB));
        assert_eq!((rules.workspace_bytes_max, rules.log_reserve_bytes), (0, 64 * MB));
        let text = "local: {disk_mb_per_job: 7, disk_reserve_mb: 1}\nstorage: {reserve_mb: 0, workspace_mb_max: 9}\n";
        let rules = load(text).unwrap().disk_rules(small);
        assert_eq!((rules.job_bytes_max, rules.free_bytes_min), (7 * MB, MB));
        assert_eq!((rules.workspace_bytes_max, rules.log_reserve_bytes), (9 * MB, 0));
        assert_eq!(load("# nothing\n").unwrap().disk_rules(DiskSpace::default()).job_bytes_max, MB);
        for wrong in ["local: {disk_mb_per_job: 0}\n", "storage: {workspace_mb_max: 0}\n"] {
            assert!(load(wrong).unwrap_err().to_string().contains("must be at least 1"), "{wrong}");
        }
    }
}
