//! Bytes in files that have no name any more and that a process of the attempt still has open or mapped. A job that
//! deletes a file and goes on writing to it takes as much of the disk as before.
//!
//! What a process has only handed on (in a message that nobody has read) is not found here.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const BLOCK_BYTES: u64 = 512;

/// By what an attempt's files are known.
#[derive(Clone, Debug)]
pub(crate) struct Whose {
    /// The attempt's own user, where it has one.
    pub user: Option<u32>,
    /// Where it has none: the folder that its files were in.
    pub below: PathBuf,
}

pub(super) fn bytes(folders: &[PathBuf], whose: &Whose) -> u64 {
    let devices: BTreeSet<u64> =
        folders.iter().filter_map(|folder| folder.symlink_metadata().ok()).map(|found| found.dev()).collect();
    let user = whose.user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let mut counted = BTreeSet::new();
    let mut bytes: u64 = 0;
    for process in processes_of(user) {
        for path in open_files(&process) {
            // Through the link: the file itself, name or not.
            let Ok(found) = path.metadata() else { continue };
            let is_its = match whose.user {
                Some(user) => found.uid() == user,
                None => std::fs::read_link(&path).is_ok_and(|name| name.starts_with(&whose.below)),
            };
            if found.is_file()
                && found.nlink() == 0
                && is_its
                && devices.contains(&found.dev())
                && counted.insert((found.dev(), found.ino()))
            {
                bytes = bytes.saturating_add(found.blocks().saturating_mul(BLOCK_BYTES));
            }
        }
    }
    bytes
}

/// The folders in `/proc` of a user's processes.
fn processes_of(user: u32) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_number = |path: &Path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.parse::<u32>().is_ok())
    };
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| is_number(path));
    // A process may hide behind root's name as the owner of its folder, not in its status.
    paths.filter(|path| real_user(path) == Some(user)).collect()
}

fn real_user(process: &Path) -> Option<u32> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Links to what a process has open, and to what it has mapped and closed.
fn open_files(process: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(process.join("fd"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    let maps = std::fs::read(process.join("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let deleted = maps.lines().filter(|line| line.ends_with(" (deleted)"));
    let ranges = deleted.filter_map(|line| line.split_whitespace().next());
    paths.extend(ranges.map(|range| process.join("map_files").join(range)));
    paths
}
