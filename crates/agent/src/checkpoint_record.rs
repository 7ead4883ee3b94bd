//! Whether a checkpoint record can be restored. It comes from a store that the job can write to, so that anything may be
//! in it. Pure.

use std::collections::BTreeSet;

use neap_protocol::CheckpointRecord;

use crate::checkpoint::FOLDER;
use crate::data;
use crate::limits::CHECKPOINT_ENTRIES_MAX;
use crate::prepare::WORKING;
use crate::tree::relative;

const DIGEST_DIGITS: usize = 64;
/// The kernel makes none that is longer.
const LINK_BYTES_MAX: usize = 4_095;

/// Refuses a record that no agent has written: with names outside of what is kept, two entries of one name, or entries
/// below a file or a link.
pub(crate) fn check(record: &CheckpointRecord) -> Result<(), String> {
    let forged = |why: String| {
        Err(format!(
            "its record was not written by Neap: {why}; delete the job's checkpoint, or submit it anew"
        ))
    };
    let entries = record.files.len() + record.folders.len() + record.links.len();
    if entries > CHECKPOINT_ENTRIES_MAX {
        return forged(format!("it has {entries} entries, and the limit is {CHECKPOINT_ENTRIES_MAX}"));
    }
    let mut leaves = BTreeSet::new();
    let names = record.files.iter().map(|file| &file.name).chain(record.links.iter().map(|link| &link.name));
    for name in names {
        if !leaves.insert(name.as_str()) {
            return forged(format!("it names {name:?} twice"));
        }
    }
    let places = places();
    for name in leaves.iter().copied().chain(record.folders.iter().map(String::as_str)) {
        match relative(name) {
            Ok(same) if same == *name => {}
            Ok(_) => return forged(format!("{name:?} is not a plain path")),
            Err(e) => return forged(e.to_string()),
        }
        if !places.iter().any(|place| name.starts_with(place.as_str())) {
            return forged(format!("{name:?} is neither in the checkpoint folder nor in an output"));
        }
        let mut above = name;
        while let Some((folder, _)) = above.rsplit_once('/') {
            if leaves.contains(folder) {
                return forged(format!("{name:?} lies below {folder:?}, which is no folder"));
            }
            above = folder;
        }
    }
    if let Some(both) = record.folders.iter().find(|folder| leaves.contains(folder.as_str())) {
        return forged(format!("{both:?} is both a folder and not"));
    }
    let mut bytes: u64 = 0;
    for file in &record.files {
        if file.content.len() != DIGEST_DIGITS || !file.content.bytes().all(|c| c.is_ascii_hexdigit()) {
            return forged(format!("the content of {:?} has no SHA-256", file.name));
        }
        match bytes.checked_add(file.bytes) {
            Some(sum) => bytes = sum,
            None => return forged("it has more bytes than can be counted".into()),
        }
    }
    for link in &record.links {
        if link.target.is_empty() || link.target.len() > LINK_BYTES_MAX || link.target.contains('\0') {
            return forged(format!("the link {:?} leads to no path", link.name));
        }
    }
    Ok(())
}

/// What the names of everything that is kept begin with.
fn places() -> [String; 3] {
    [format!("{FOLDER}/"), format!("{WORKING}/outputs"), data::output_place("")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_protocol::{KeptFile, KeptLink};

    fn file(name: &str) -> KeptFile {
        KeptFile { name: name.into(), content: "a1".repeat(32), bytes: 1, mode: 0o644, modified_unix_ms: 0 }
    }

    fn link(name: &str, target: &str) -> KeptLink {
        KeptLink { name: name.into(), target: target.into() }
    }

    fn record(files: &[&str], folders: &[&str], links: &[(&str, &str)]) -> CheckpointRecord {
        CheckpointRecord {
            files: files.iter().map(|name| file(name)).collect(),
            folders: folders.iter().map(|name| (*name).to_owned()).collect(),
            links: links.iter().map(|(name, target)| link(name, target)).collect(),
            ..CheckpointRecord::default()
        }
    }

    #[test]
    fn what_an_agent_writes_is_restored() {
        let output = "cap/data-capability/wd/OUTPUT_model/m";
        let files = ["checkpoint/1", "checkpoint/a/2", "exe/wd/outputs/o", output];
        let folders = ["checkpoint/empty", "exe/wd/outputs", "cap/data-capability/wd/OUTPUT_other"];
        let links = [("checkpoint/latest", "1"), ("checkpoint/out", "/anywhere")];
        check(&record(&files, &folders, &links)).unwrap();
        check(&CheckpointRecord::default()).unwrap();
    }

    #[test]
    fn a_forged_record_is_refused_with_its_reason() {
        let long = format!("checkpoint/{}", "d/".repeat(200)) + "f";
        let refused = |record: &CheckpointRecord, expect: &str| {
            let why = check(record).unwrap_err();
            assert!(why.contains(expect), "{why:?} says nothing of {expect:?}");
        };
        for (files, folders, links, expect) in [
            (
                &["checkpoint/a/x"][..],
                &[][..],
                &[("checkpoint/a", "/etc")][..],
                "lies below \"checkpoint/a\"",
            ),
            (&[], &["checkpoint/a/b/c"], &[("checkpoint/a/b", "/etc")], "lies below"),
            (&[], &[], &[("checkpoint/a", "/"), ("checkpoint/a/x", "/etc")], "lies below"),
            (&["checkpoint/f", "checkpoint/f/x"], &[], &[], "lies below"),
            (&["checkpoint/a"], &[], &[("checkpoint/a", "x")], "twice"),
            (&["checkpoint/a"], &["checkpoint/a"], &[], "both a folder"),
            (&["checkpoint/../../x"], &[], &[], "leads out"),
            (&["/etc/passwd"], &[], &[], "plain path"),
            (&["checkpoint/./x"], &[], &[], "plain path"),
            (&["checkpoint/x\0"], &[], &[], "leads out"),
            (&["exe/wd/train.py"], &[], &[], "neither in the checkpoint"),
            (&[], &["venv"], &[], "neither in the checkpoint"),
            (&[], &[], &[("preemption.json", "x")], "neither in the checkpoint"),
            (&[long.as_str()], &[], &[], "folders deep"),
            (&[], &[], &[("checkpoint/a", "")], "leads to no path"),
        ] {
            refused(&record(files, folders, links), expect);
        }
        let many: Vec<KeptFile> =
            (0..=CHECKPOINT_ENTRIES_MAX).map(|n| file(&format!("checkpoint/{n}"))).collect();
        refused(&CheckpointRecord { files: many, ..CheckpointRecord::default() }, "the limit is 20000");
        let mut huge = record(&["checkpoint/1", "checkpoint/2"], &[], &[]);
        huge.files.iter_mut().for_each(|file| file.bytes = u64::MAX);
        refused(&huge, "more bytes");
        huge.files[0].content = "../../x".into();
        refused(&huge, "no SHA-256");
    }
}
