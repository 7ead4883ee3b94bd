//! The record of what is kept of a job between its attempts: which files there are, and which blob holds each.
//!
//! A blob is named after its content and never changes. The record is stored last, in one piece; whoever reads it finds
//! everything that it names, of one moment.

use serde::{Deserialize, Serialize};

/// The record's name in the folder of its rank.
pub const CHECKPOINT_RECORD: &str = "current.json";
/// Where the files lie beside it, each under the hash of its content.
pub const CHECKPOINT_FILES: &str = "files/";
/// Where all checkpoint folders of a workspace are kept, in its container for logs and outputs of runs.
pub const CHECKPOINTS: &str = "Checkpoints/";

/// Where the checkpoint folders of a job's ranks are kept, with a slash at the end.
pub fn checkpoints_of(job: &str) -> String {
    format!("{CHECKPOINTS}dcid.{job}/")
}

/// Where one rank's is kept, with a slash at the end.
pub fn checkpoint_of(job: &str, rank: u32) -> String {
    format!("{}{rank}/", checkpoints_of(job))
}

/// What was kept, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// Of which attempt.
    pub attempt: u32,
    pub saved_unix_ms: u64,
    /// When the job last changed something in its checkpoint folder, if there is anything in it.
    #[serde(default)]
    pub changed_unix_ms: Option<u64>,
    /// When the command began.
    #[serde(default)]
    pub began_unix_ms: Option<u64>,
    /// When the attempt's processes had ended; absent where they ran on.
    #[serde(default)]
    pub ended_unix_ms: Option<u64>,
    #[serde(default)]
    pub files: Vec<KeptFile>,
    /// Folders with nothing in them.
    #[serde(default)]
    pub folders: Vec<String>,
    #[serde(default)]
    pub links: Vec<KeptLink>,
}

/// A file. Names are paths below the job's own folder on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    pub name: String,
    /// The SHA-256 of its content, in hexadecimal.
    pub content: String,
    pub bytes: u64,
    pub mode: u32,
    pub modified_unix_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLink {
    pub name: String,
    pub target: String,
}

impl CheckpointRecord {
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Work of the stopped attempt that is not in what was kept: from the last change of the checkpoint folder, or from
    /// the beginning of the command where that came later, to the end of its processes.
    pub fn lost_ms(&self) -> Option<u64> {
        let since = self.began_unix_ms.max(self.changed_unix_ms)?;
        self.ended_unix_ms.map(|ended| ended.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_what_came_after_the_last_change() {
        let record = |began, changed, ended| CheckpointRecord {
            began_unix_ms: began,
            changed_unix_ms: changed,
            ended_unix_ms: ended,
            ..CheckpointRecord::default()
        };
        assert_eq!(record(Some(10), Some(90), Some(100)).lost_ms(), Some(10));
        assert_eq!(record(Some(10), None, Some(100)).lost_ms(), Some(90), "nothing was kept");
        assert_eq!(
            record(Some(60), Some(20), Some(100)).lost_ms(),
            Some(40),
            "what it found is not its own work"
        );
        assert_eq!(record(Some(10), Some(90), None).lost_ms(), None, "it ran on");
    }

    #[test]
    fn ranks_have_places_of_their_own() {
        assert_eq!(checkpoint_of("j", 3), "Checkpoints/dcid.j/3/");
        assert!(checkpoint_of("j", 3).starts_with(&checkpoints_of("j")));
        assert!(!checkpoint_of("j2", 0).starts_with(&checkpoints_of("j")));
    }
}
