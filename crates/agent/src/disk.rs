//! The disk quota of one attempt, by accounting: the machine need not have project quotas. While the attempt runs, its
//! folders are looked at, and it is stopped when they hold more than it may have.
//!
//! Two looks take turns. The free space of the disk is a cheap one: an attempt has not written more than the disk has
//! lost. Only when that could be too much (or now and then) the folders are walked ([`walk`]), and what lies in files
//! without a name is looked for ([`hidden`]). How soon the next look comes follows from how much room is left, so that
//! a job at full speed exceeds its quota by little and an idle one costs nothing. Nothing here is written or deleted.
//!
//! When the disk itself runs short, the attempt that has grown most is stopped, whichever node of this machine it is
//! on ([`rivals`]).

mod gate;
mod hidden;
mod rivals;
mod walk;

use std::path::PathBuf;
use std::time::Duration;

use neap_protocol::{AttemptRef, AttemptSpec, DiskTerms, Exit};
use neap_sandbox::boot_ms;

use crate::node::Node;
use crate::prepare::Layout;
use gate::{Gate, Look};
use hidden::Whose;
use rivals::Rivals;

/// From the launch to the first look.
const FIRST_LOOK_MS: u64 = 5;
/// How far the free space of the disk may fall unexplained before files without a name are looked for.
const UNEXPLAINED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// An attempt that has grown by less is not stopped for a disk that runs short: it would not help.
const GROWTH_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// Why an attempt is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    Quota { used_bytes: u64, bytes_max: u64 },
    Short { grown_bytes: u64, free_bytes: u64, free_bytes_min: u64 },
}

impl Excess {
    fn message(&self) -> String {
        match self {
            Self::Quota { used_bytes, bytes_max } => format!(
                "The job's folders took {} of disk, and its limit is {} (resources.properties.neap.disk_mb, \
                 local.disk_mb_per_job). It was stopped, and its outputs are not stored.",
                mb(*used_bytes),
                mb(*bytes_max)
            ),
            Self::Short { grown_bytes, free_bytes, free_bytes_min } => format!(
                "The node's disk has {} left of the {} that jobs must leave free (local.disk_reserve_mb), and this job \
                 had taken the most, {}. It was stopped, and its outputs are not stored.",
                mb(*free_bytes),
                mb(*free_bytes_min),
                mb(*grown_bytes)
            ),
        }
    }

    /// The last line of its log.
    pub(crate) fn line(&self) -> String {
        format!("[neap] {}\n", self.message())
    }

    pub(crate) fn exit(&self) -> Exit {
        let message = self.message();
        match self {
            Self::Quota { .. } => Exit::DiskQuota { message },
            Self::Short { .. } => Exit::DiskShort { message },
        }
    }
}

/// As `12.5 MB`, where 1 MB is 1,048,576 bytes, as everywhere in the configuration.
pub(crate) fn mb(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

/// Refuses files that together are larger than an attempt may store, before the first byte of them is read. What counts
/// is their length: a file of holes is as long on the server.
pub(crate) fn check_lengths(terms: DiskTerms, lengths: impl Iterator<Item = u64>) -> Result<(), String> {
    let bytes = lengths.fold(0_u64, u64::saturating_add);
    if terms.bytes_max > 0 && bytes > terms.bytes_max {
        return Err(format!(
            "The job's outputs are {} long, and what it stores may be {} (resources.properties.neap.disk_mb, \
             local.disk_mb_per_job). None of them is stored.",
            mb(bytes),
            mb(terms.bytes_max)
        ));
    }
    Ok(())
}

/// Looks at one attempt's folders.
#[derive(Debug)]
pub(crate) struct Watch {
    terms: DiskTerms,
    folders: Vec<PathBuf>,
    whose: Whose,
    rivals: Rivals,
}

impl Watch {
    pub(crate) fn new(node: &Node, attempt: AttemptRef, spec: &AttemptSpec, layout: &Layout) -> Self {
        let folders = vec![layout.work.clone(), layout.dir.join("tmp")];
        let name = format!("{}-{}-{}", node.config.node, attempt.job, attempt.attempt);
        Self {
            terms: spec.disk,
            whose: Whose { user: layout.owner, below: layout.dir.clone() },
            rivals: Rivals::new(&node.config.shared_dir().join("disk"), &name),
            folders,
        }
    }

    /// Resolves when the attempt must be stopped; never, if all is well.
    pub(crate) async fn excess(&self) -> Excess {
        let (terms, rivals) = (self.terms, &self.rivals);
        if terms.bytes_max == 0 && terms.free_bytes_min == 0 {
            return std::future::pending().await;
        }
        // A job that is over by then costs nothing.
        tokio::time::sleep(Duration::from_millis(FIRST_LOOK_MS)).await;
        let first = self.look(None).await;
        let mut gate = Gate::new(terms, first, boot_ms());
        loop {
            if let Some(used_bytes) = gate.over_quota() {
                return Excess::Quota { used_bytes, bytes_max: terms.bytes_max };
            }
            tokio::time::sleep(Duration::from_millis(gate.pause_ms())).await;
            let Some(free_bytes) = walk::free_bytes(&self.folders) else { continue };
            if gate.wants_walk(free_bytes, boot_ms()) {
                let began_ms = boot_ms();
                let look = self.look(Some(gate.last())).await;
                gate.walked(look, began_ms, boot_ms());
                rivals.tell(gate.grown_bytes());
            }
            if gate.is_short(free_bytes) && gate.grown_bytes() >= GROWTH_BYTES_MIN && rivals.is_largest() {
                rivals.stops();
                return Excess::Short {
                    grown_bytes: gate.grown_bytes(),
                    free_bytes,
                    free_bytes_min: terms.free_bytes_min,
                };
            }
        }
    }

    /// What an attempt that has ended by itself took: a single file is cut at the quota before a look can see more.
    pub(crate) async fn at_end(&self) -> Option<Excess> {
        let bytes_max = self.terms.bytes_max;
        if bytes_max == 0 {
            return None;
        }
        let used_bytes = self.look(None).await.used_bytes();
        (used_bytes.saturating_add(1 << 20) > bytes_max).then_some(Excess::Quota { used_bytes, bytes_max })
    }

    async fn look(&self, last: Option<Look>) -> Look {
        let (folders, whose) = (self.folders.clone(), self.whose.clone());
        // A walk may take long; the node has more to do than that.
        let looked = tokio::task::spawn_blocking(move || look(&folders, &whose, last)).await;
        looked.unwrap_or_else(|_| last.unwrap_or_default())
    }
}

fn look(folders: &[PathBuf], whose: &Whose, last: Option<Look>) -> Look {
    // First: what is written meanwhile counts once more than it should, and never less.
    let free_bytes = walk::free_bytes(folders).unwrap_or(u64::MAX);
    let tally = walk::walk(folders);
    let mut look = Look { free_bytes, named_bytes: tally.bytes, ..last.unwrap_or_default() };
    let Some(last) = last else {
        return Look { hidden_bytes: 0, explained_at: (free_bytes, tally.bytes), ..look };
    };
    let lost = last.explained_at.0.saturating_sub(free_bytes);
    let unexplained = lost.saturating_sub(tally.bytes.saturating_sub(last.explained_at.1));
    if last.hidden_bytes > 0 || unexplained >= UNEXPLAINED_BYTES_MAX {
        look.hidden_bytes = hidden::bytes(folders, whose);
        look.explained_at = (free_bytes, tally.bytes);
    }
    if !tally.is_whole {
        // Too deep or too many to count: then all that the disk has lost is taken for its doing.
        look.named_bytes =
            look.named_bytes.max(last.named_bytes.saturating_add(last.free_bytes.saturating_sub(free_bytes)));
    }
    look
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excess_says_what_happened_and_what_to_change() {
        let excess = Excess::Quota { used_bytes: 40 << 20, bytes_max: 32 << 20 };
        for part in ["40.0 MB", "32.0 MB", "disk_mb", "not stored"] {
            assert!(excess.line().contains(part), "{part}: {}", excess.line());
        }
        assert!(matches!(excess.exit(), Exit::DiskQuota { .. }));
        let short = Excess::Short { grown_bytes: 20 << 20, free_bytes: 1 << 20, free_bytes_min: 4 << 20 };
        assert!(short.line().contains("local.disk_reserve_mb"), "{}", short.line());
        assert!(matches!(short.exit(), Exit::DiskShort { .. }));
    }

    #[test]
    fn outputs_are_refused_by_their_length() {
        let terms = DiskTerms { bytes_max: 100, free_bytes_min: 0 };
        assert_eq!(check_lengths(terms, [60, 40].into_iter()), Ok(()));
        assert!(check_lengths(terms, [60, 41].into_iter()).unwrap_err().contains("None of them is stored"));
        assert!(check_lengths(terms, [u64::MAX, u64::MAX].into_iter()).is_err());
        assert_eq!(check_lengths(DiskTerms::default(), [u64::MAX].into_iter()), Ok(()));
    }

    #[test]
    fn a_file_without_a_name_is_found() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone");
        let mut file = std::fs::File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let folders = vec![dir.path().to_owned()];
        let whose = Whose { user: None, below: dir.path().to_owned() };
        let mut last = look(&folders, &whose, None);
        file.write_all(&vec![7; 20 << 20]).unwrap();
        file.sync_all().unwrap();
        // As if nothing else happened on the disk meanwhile.
        last.explained_at.0 = last.free_bytes.saturating_add(64 << 20);
        let now = look(&folders, &whose, Some(last));
        assert!(now.used_bytes() >= 20 << 20, "{now:?}");
    }
}
