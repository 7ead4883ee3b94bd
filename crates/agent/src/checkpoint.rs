//! The checkpoint folder, and the outputs of an attempt that another one follows: kept, and brought back.
//!
//! What is kept lies with the server: each file under the hash of its content, and one record that names them, which is
//! stored last. An agent that dies half-way leaves the record before. What is brought back is compared with its hash.
//!
//! While the command runs only the checkpoint folder is kept, and only when nothing in it changed for a moment, so that
//! what is kept is what the job had there at one time. When its processes have ended there is nothing to wait for, and
//! `./outputs` and the named outputs are kept too.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, TryStreamExt};
use neap_protocol::{
    AttemptSpec, BlobFolder, CHECKPOINT_FILES, CHECKPOINT_RECORD, CheckpointRecord, CheckpointSpec, Exit,
    FailureClass, KeptFile, KeptLink, Output,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::blobs::Blobs;
use crate::boot_log;
use crate::checkpoint_record;
use crate::data::{self, Mark};
use crate::disk;
use crate::limits::{CHECKPOINT_ENTRIES_MAX, CHECKPOINT_RECORD_BYTES_MAX};
use crate::node::Node;
use crate::prepare::{Layout, WORKING};
use crate::session::prepare_failed;
use crate::tree::{Entry, Tree};

/// Where it lies below `work`.
pub(crate) const FOLDER: &str = "checkpoint";
/// A folder that did not change for so long is at rest.
const QUIET_MS: u64 = 250;
/// One that changed meanwhile is looked at again after this.
const BUSY_PAUSE_MS: u64 = 500;
const STORES_AT_ONCE: usize = 8;
/// As many changed files are held open while they are stored, so that a job may replace them meanwhile.
const HELD_MAX: usize = 128;
const PIECE_BYTES: usize = 256 * 1024;

/// What is on record, and by what its files are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    record: CheckpointRecord,
    marks: BTreeMap<String, Mark>,
}

/// Why nothing was kept this time.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The job was writing.
    Busy,
    Failed(String),
}

/// What was kept, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub files: usize,
    pub bytes: u64,
}

/// The variables by which a job finds it.
pub(crate) fn variables(layout: &Layout) -> [(&'static str, String); 2] {
    let seen = layout.seen.join(FOLDER).display().to_string();
    [("AZUREML_CHECKPOINT_DIR", seen.clone()), ("NEAP_CHECKPOINT_DIR", seen)]
}

/// Brings back what an earlier attempt left. What it was is told in the job's log and in its properties.
pub(crate) async fn restore(node: &Node, spec: &AttemptSpec, layout: &Layout) -> Result<(), Exit> {
    let Some(kept) = spec.checkpoint.as_ref().filter(|kept| kept.restore) else { return Ok(()) };
    let failed =
        |e: String| prepare_failed(FailureClass::System, format!("bringing back the checkpoint folder: {e}"));
    let blobs = node.blobs()?;
    let record_at =
        BlobFolder { prefix: format!("{}{CHECKPOINT_RECORD}", kept.at.prefix), ..kept.at.clone() };
    if !blobs.is_blob(&record_at).await.map_err(failed)? {
        return Ok(());
    }
    let text = blobs.fetch_bytes(&record_at, "", CHECKPOINT_RECORD_BYTES_MAX).await.map_err(failed)?;
    // It lies where the job can write, and is read as if a stranger had written it.
    let record: CheckpointRecord =
        serde_json::from_slice(&text).map_err(|e| failed(format!("its record cannot be read: {e}")))?;
    checkpoint_record::check(&record).map_err(failed)?;
    let marks = bring(&blobs, &kept.at, layout, &record).await.map_err(failed)?;
    let saved = rfc3339(record.saved_unix_ms);
    let (files, bytes) = (record.files.len(), record.bytes());
    let _ = layout.say(&format!(
        "[neap] The checkpoint folder and outputs of attempt {} are here again, as of {saved}: {} and {}.\n",
        record.attempt,
        count(files as u64, "file"),
        count(bytes, "byte"),
    ));
    let mut facts = layout.contents.borrow_mut();
    let told = format!(
        "{}, {}, saved {saved} by attempt {}",
        count(files as u64, "file"),
        count(bytes, "byte"),
        record.attempt
    );
    let what =
        if record.changed_unix_ms.is_some() { "neap.checkpoint.restored" } else { "neap.outputs.restored" };
    facts.insert(what.into(), told);
    if let Some(lost_ms) = record.lost_ms() {
        facts.insert("neap.checkpoint.lostSeconds".into(), format!("{:.3}", lost_ms as f64 / 1000.0));
        facts.insert("neap.checkpoint.lostByAttempt".into(), record.attempt.to_string());
    }
    drop(facts);
    layout.kept.replace(Known { record, marks });
    Ok(())
}

async fn bring(
    blobs: &Blobs,
    at: &BlobFolder,
    layout: &Layout,
    record: &CheckpointRecord,
) -> Result<BTreeMap<String, Mark>, String> {
    let (text, tree) = (|e: io::Error| e.to_string(), &layout.work_tree);
    let above = |name: &str| name.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    let names = record.files.iter().map(|file| &file.name).chain(record.links.iter().map(|link| &link.name));
    let folders: BTreeSet<String> =
        record.folders.iter().cloned().chain(names.map(|name| above(name))).collect();
    for folder in &folders {
        layout.make(folder).map_err(text)?;
    }
    let marks = futures_util::stream::iter(&record.files)
        .map(|file| async move {
            // What its output had before the job is there already.
            let into = tree.create_anew(&file.name, 0o600).map_err(|e| e.to_string())?;
            let (_, fetched) = blobs.fetch(at, &format!("{CHECKPOINT_FILES}{}", file.content), into).await?;
            let wanted = file.clone();
            let finished = tokio::task::spawn_blocking(move || finish(&fetched, &wanted)).await;
            let mark = finished.map_err(|e| e.to_string())?.map_err(|e| format!("{}: {e}", file.name))?;
            Ok::<_, String>((file.name.clone(), mark))
        })
        .buffer_unordered(STORES_AT_ONCE)
        .try_collect::<BTreeMap<_, _>>()
        .await?;
    // After everything else. Nothing on record lies below one, and the tree follows none.
    for link in &record.links {
        match tree.make_link(&link.target, &link.name) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(text(e)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(marks)
}

/// A fetched file becomes what it was.
fn finish(file: &File, wanted: &KeptFile) -> io::Result<Mark> {
    let (content, bytes) = content_of(file)?;
    if (content.as_str(), bytes) != (wanted.content.as_str(), wanted.bytes) {
        return Err(io::Error::other("what came back is not what was kept (its SHA-256 differs)"));
    }
    file.set_permissions(Permissions::from_mode(wanted.mode & 0o777))?;
    file.set_modified(UNIX_EPOCH + Duration::from_millis(wanted.modified_unix_ms))?;
    Mark::of_file(file)
}

/// What a look at the folders found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    files: BTreeMap<String, Mark>,
    folders: Vec<String>,
    links: Vec<KeptLink>,
}

impl Found {
    /// Whether the job has left these places as it found them.
    fn has_nothing(&self, places: &[String]) -> bool {
        self.files.is_empty()
            && self.links.is_empty()
            && self.folders.iter().all(|name| places.contains(name))
    }
}

/// Keeps what one attempt leaves.
pub(crate) struct Keeping<'a> {
    node: &'a Node,
    attempt: u32,
    spec: &'a AttemptSpec,
    layout: &'a Layout,
    began_ms: Cell<Option<u64>>,
    /// Held by whoever stores the record: one that was begun is finished before the next.
    recording: Arc<tokio::sync::Mutex<()>>,
}

impl<'a> Keeping<'a> {
    pub(crate) fn new(node: &'a Node, attempt: u32, spec: &'a AttemptSpec, layout: &'a Layout) -> Self {
        let recording = Arc::default();
        Self { node, attempt, spec, layout, began_ms: Cell::new(None), recording }
    }

    /// The command begins about now.
    pub(crate) fn begins(&self) {
        self.began_ms.set(Some(now_ms()));
    }

    /// Keeps the checkpoint folder now and then, for as long as it is polled.
    pub(crate) async fn periodically(&self) -> Infallible {
        let Some(kept) = self.spec.checkpoint.as_ref().filter(|kept| kept.interval_ms > 0) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(Duration::from_millis(kept.interval_ms)).await;
            loop {
                match self.at_rest(kept).await {
                    Ok(()) => break,
                    Err(Trouble::Busy) => tokio::time::sleep(Duration::from_millis(BUSY_PAUSE_MS)).await,
                    Err(Trouble::Failed(e)) => {
                        boot_log::line(&format!("the checkpoint folder was not saved: {e}"));
                        break;
                    }
                }
            }
        }
    }

    /// Keeps the checkpoint folder, if it changed and does not change now.
    async fn at_rest(&self, kept: &CheckpointSpec) -> Result<(), Trouble> {
        let first = self.look(&[FOLDER.to_owned()])?;
        if self.is_known(&first) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(QUIET_MS)).await;
        let held = self.hold(&first)?;
        if self.look(&[FOLDER.to_owned()])? != first {
            return Err(Trouble::Busy);
        }
        self.store(kept, first, held, None, false).await.map(drop)
    }

    /// Keeps everything that the next attempt should find. Its processes have ended.
    pub(crate) async fn at_end(&self) -> Result<Option<Kept>, String> {
        let Some(kept) = &self.spec.checkpoint else { return Ok(None) };
        let mut places = vec![FOLDER.to_owned(), format!("{WORKING}/outputs")];
        for (name, output) in &self.spec.outputs {
            match output {
                Output::File { .. } | Output::Folder { .. } => places.push(data::output_place(name)),
                Output::Direct { .. } => {}
            }
        }
        let attempt = async {
            let found = self.look(&places)?;
            if found.has_nothing(&places) && self.layout.kept.borrow().record == CheckpointRecord::default() {
                return Ok(None);
            }
            self.store(kept, found, BTreeMap::new(), Some(now_ms()), true).await.map(Some)
        };
        match attempt.await {
            Ok(kept) => Ok(kept),
            Err(Trouble::Failed(e)) => Err(e),
            Err(Trouble::Busy) => Err("files changed after the processes had ended".into()),
        }
    }

    fn look(&self, places: &[String]) -> Result<Found, Trouble> {
        let mut found = Found::default();
        for place in places {
            walk(&self.layout.work_tree, place, &mut found)?;
        }
        disk::check_lengths(self.spec.disk, found.files.values().map(Mark::bytes))
            .map_err(Trouble::Failed)?;
        Ok(found)
    }

    /// Whether the checkpoint folder is as it was kept.
    fn is_known(&self, found: &Found) -> bool {
        let known = self.layout.kept.borrow();
        let of_folder = |name: &str| name.strip_prefix(FOLDER).is_some_and(|rest| rest.starts_with('/'));
        let files = known.record.files.iter().filter(|file| of_folder(&file.name)).count();
        let links = known.record.links.iter().filter(|link| of_folder(&link.name));
        let folders = known.record.folders.iter().filter(|name| of_folder(name));
        files == found.files.len()
            && found.files.iter().all(|(name, mark)| known.marks.get(name) == Some(mark))
            && links.eq(&found.links)
            && folders.eq(&found.folders)
    }

    /// Opens what changed, as far as that is allowed at once.
    fn hold(&self, found: &Found) -> Result<BTreeMap<String, File>, Trouble> {
        let known = self.layout.kept.borrow();
        let changed = found.files.iter().filter(|(name, mark)| known.marks.get(*name) != Some(mark));
        let mut held = BTreeMap::new();
        for (name, mark) in changed.take(HELD_MAX) {
            held.insert(name.clone(), open_as(&self.layout.work_tree, name, *mark)?);
        }
        Ok(held)
    }

    /// Stores what is not there yet, then the record, then deletes what nobody names any more. Without `everything` what is
    /// on record beside the checkpoint folder stays.
    async fn store(
        &self,
        kept: &CheckpointSpec,
        found: Found,
        mut held: BTreeMap<String, File>,
        ended_ms: Option<u64>,
        everything: bool,
    ) -> Result<Kept, Trouble> {
        let blobs = self.node.blobs_or_error().map_err(Trouble::Failed)?;
        let before = self.layout.kept.borrow().clone();
        let stored: BTreeMap<&str, &KeptFile> =
            before.record.files.iter().map(|file| (file.name.as_str(), file)).collect();
        let contents: BTreeSet<&str> = before.record.files.iter().map(|file| file.content.as_str()).collect();
        let tasks: Vec<_> =
            found.files.iter().map(|(name, mark)| (name.clone(), *mark, held.remove(name))).collect();
        let (blobs_, stored, contents, marks) = (&blobs, &stored, &contents, &before.marks);
        let tree = &self.layout.work_tree;
        let mut files: Vec<KeptFile> = futures_util::stream::iter(tasks)
            .map(|(name, mark, open)| async move {
                if let Some(same) = stored.get(name.as_str()).filter(|_| marks.get(&name) == Some(&mark)) {
                    return Ok((*same).clone());
                }
                let file = match open {
                    Some(file) => file,
                    None => open_as(tree, &name, mark)?,
                };
                store_file(blobs_, kept, name, mark, file, contents).await
            })
            .buffer_unordered(STORES_AT_ONCE)
            .try_collect()
            .await?;
        let Found { files: mut marks, mut folders, mut links } = found;
        let of_folder = |name: &str| name.strip_prefix(FOLDER).is_some_and(|rest| rest.starts_with('/'));
        let changed_unix_ms =
            files.iter().filter(|file| of_folder(&file.name)).map(|file| file.modified_unix_ms).max();
        if !everything {
            let others = before.record.files.iter().filter(|file| !of_folder(&file.name));
            marks.extend(
                others.clone().filter_map(|file| Some((file.name.clone(), *before.marks.get(&file.name)?))),
            );
            files.extend(others.cloned());
            folders.extend(before.record.folders.iter().filter(|name| !of_folder(name)).cloned());
            links.extend(before.record.links.iter().filter(|link| !of_folder(&link.name)).cloned());
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let record = CheckpointRecord {
            attempt: self.attempt,
            saved_unix_ms: now_ms(),
            changed_unix_ms,
            began_unix_ms: self.began_ms.get(),
            ended_unix_ms: ended_ms,
            files,
            folders,
            links,
        };
        self.record(&blobs, kept, &record).await.map_err(Trouble::Failed)?;
        let summary = Kept { files: record.files.len(), bytes: record.bytes() };
        let named: BTreeSet<String> = record.files.iter().map(|file| file.content.clone()).collect();
        self.layout.kept.replace(Known { record, marks });
        for content in before.record.files.iter().map(|file| &file.content) {
            if !named.contains(content) {
                // What stays is deleted with the job.
                let _ = blobs.delete(&kept.at, &format!("{CHECKPOINT_FILES}{content}")).await;
            }
        }
        Ok(summary)
    }

    /// Stores the record. Once begun it is finished, whoever waits for it: a later one never comes before an earlier.
    async fn record(
        &self,
        blobs: &Blobs,
        kept: &CheckpointSpec,
        record: &CheckpointRecord,
    ) -> Result<(), String> {
        let turn = self.recording.clone().lock_owned().await;
        let bytes = serde_json::to_vec(record).map_err(|e| e.to_string())?;
        let (blobs, at) = (blobs.clone(), kept.at.clone());
        let stored = tokio::task::spawn_local(async move {
            let stored = blobs.store_bytes(&at, CHECKPOINT_RECORD, bytes).await;
            drop(turn);
            stored
        });
        stored.await.map_err(|e| e.to_string())?
    }
}

/// Opens a file of the job's own folder, if it is still the one that was seen.
fn open_as(tree: &Tree, name: &str, mark: Mark) -> Result<File, Trouble> {
    match tree.read(name) {
        Ok(Some(file)) if Mark::of_file(&file).is_ok_and(|now| now == mark) => Ok(file),
        Ok(_) => Err(Trouble::Busy),
        Err(e) if has_gone(&e) => Err(Trouble::Busy),
        Err(e) => Err(Trouble::Failed(format!("opening {name}: {e}"))),
    }
}

/// It went, or something else came into its place, while it was looked at.
fn has_gone(e: &io::Error) -> bool {
    let changed = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV];
    changed.iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

async fn store_file(
    blobs: &Blobs,
    kept: &CheckpointSpec,
    name: String,
    mark: Mark,
    file: File,
    there: &BTreeSet<&str>,
) -> Result<KeptFile, Trouble> {
    let failed = |e: &dyn std::fmt::Display| Trouble::Failed(format!("{name}: {e}"));
    let again = file.try_clone().map_err(|e| failed(&e))?;
    let hashed = tokio::task::spawn_blocking(move || {
        let (content, bytes) = content_of(&file)?;
        Ok::<_, io::Error>((content, bytes, file.metadata()?, file))
    })
    .await
    .map_err(|e| failed(&e))?;
    let (content, bytes, metadata, file) = hashed.map_err(|e| failed(&e))?;
    if !there.contains(content.as_str()) {
        blobs.store(&kept.at, &format!("{CHECKPOINT_FILES}{content}"), file).await.map_err(|e| failed(&e))?;
    }
    // What was hashed and what was stored are the same if it never changed meanwhile.
    if Mark::of_file(&again).ok() != Some(mark) {
        return Err(Trouble::Busy);
    }
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH).duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(KeptFile {
        name,
        content,
        bytes,
        mode: metadata.mode() & 0o777,
        modified_unix_ms: u64::try_from(modified.as_millis()).unwrap_or(0),
    })
}

/// Adds what lies below this place. Links are kept as they are; sockets and the like are left out.
fn walk(tree: &Tree, place: &str, found: &mut Found) -> Result<(), Trouble> {
    let there = found.files.len() + found.folders.len() + found.links.len();
    let utf8 = |path: &std::path::Path| {
        let name = path.to_str().map(str::to_owned);
        if name.is_none() {
            boot_log::line(&format!("not kept, its name is not UTF-8: {}", path.display()));
        }
        name
    };
    let mut links = Vec::new();
    let walked = tree.walk(place, CHECKPOINT_ENTRIES_MAX.saturating_sub(there), |entry| {
        match entry {
            Entry::File { path, stat } => {
                found.files.extend(utf8(path).map(|name| (name, Mark::read(stat))));
            }
            Entry::Link { path } => links.extend(utf8(path)),
            Entry::Folder { path, empty } if empty && path.components().count() > 1 => {
                found.folders.extend(utf8(path));
            }
            Entry::Folder { .. } | Entry::Other { .. } => {}
        }
        Ok(())
    });
    let failed = |e: io::Error| {
        if has_gone(&e) { Trouble::Busy } else { Trouble::Failed(format!("reading {place}: {e}")) }
    };
    walked.map_err(failed)?;
    for name in links {
        let target = tree.read_link(name.as_ref()).map_err(failed)?;
        if let Ok(target) = String::from_utf8(target) {
            found.links.push(KeptLink { name, target });
        }
    }
    // Always in the same order, so that a look can be compared with the one before.
    found.folders.sort();
    found.links.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(())
}

fn content_of(file: &File) -> io::Result<(String, u64)> {
    let (mut sum, mut at) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = file.read_at(&mut piece, at)?;
        if length == 0 {
            let digest: [u8; 32] = sum.finalize().into();
            return Ok((digest.iter().map(|byte| format!("{byte:02x}")).collect(), at));
        }
        sum.update(&piece[..length]);
        at += length as u64;
    }
}

fn now_ms() -> u64 {
    u64::try_from(boot_log::now_ns() / 1_000_000).unwrap_or(0)
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

pub(crate) fn rfc3339(unix_ms: u64) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms);
    jiff::Timestamp::try_from(at).map_or_else(|_| unix_ms.to_string(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(found: &Found) -> (Vec<&str>, Vec<&str>, Vec<&str>) {
        let links = found.links.iter().map(|link| link.name.as_str()).collect();
        let folders = found.folders.iter().map(String::as_str).collect();
        (found.files.keys().map(String::as_str).collect(), folders, links)
    }

    fn open(path: &std::path::Path) -> Tree {
        Tree::open(path, None).unwrap()
    }

    #[test]
    fn a_walk_finds_files_links_and_empty_folders_and_follows_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        for folder in ["checkpoint/a/empty", "checkpoint/b", "elsewhere"] {
            std::fs::create_dir_all(work.join(folder)).unwrap();
        }
        for file in ["checkpoint/a/x", "checkpoint/b/y", "elsewhere/z"] {
            std::fs::write(work.join(file), file).unwrap();
        }
        std::os::unix::fs::symlink("a/x", work.join("checkpoint/latest")).unwrap();
        std::os::unix::fs::symlink("../elsewhere", work.join("checkpoint/out")).unwrap();
        let mut found = Found::default();
        walk(&open(&work), FOLDER, &mut found).unwrap();
        let expected = (
            vec!["checkpoint/a/x", "checkpoint/b/y"],
            vec!["checkpoint/a/empty"],
            vec!["checkpoint/latest", "checkpoint/out"],
        );
        assert_eq!(names(&found), expected);
        let mut nothing = Found::default();
        walk(&open(&work), "checkpoint/out", &mut nothing).unwrap();
        assert_eq!(nothing, Found::default());
    }

    #[test]
    fn content_that_is_not_what_was_kept_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "weights").unwrap();
        let (content, bytes) = content_of(&File::open(&path).unwrap()).unwrap();
        let wanted =
            KeptFile { name: "f".into(), content, bytes, mode: 0o640, modified_unix_ms: 1_700_000_000_123 };
        let file = File::options().read(true).write(true).open(&path).unwrap();
        finish(&file, &wanted).unwrap();
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o640);
        let modified = metadata.modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(modified.as_millis(), 1_700_000_000_123);
        std::fs::write(&path, "weighty").unwrap();
        assert!(finish(&file, &wanted).unwrap_err().to_string().contains("SHA-256"));
    }

    #[test]
    fn a_file_that_changed_since_it_was_seen_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "1").unwrap();
        let root = open(dir.path());
        let mark = Mark::read(&root.stat("f").unwrap());
        assert!(open_as(&root, "f", mark).is_ok());
        std::fs::write(dir.path().join("f"), "22").unwrap();
        assert!(matches!(open_as(&root, "f", mark), Err(Trouble::Busy)));
        assert!(matches!(open_as(&root, "gone", mark), Err(Trouble::Busy)));
    }
}
