//! Snapshots: the state at one record, each in a file of its own, so that a start replays only what came after.
//!
//! A snapshot is never needed: one that is torn, damaged or of another version is passed over and the log replayed.
//! It is written beside its name, synced, renamed into place, and the folder synced: it is there whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use neap_core::State;
use neap_core::state::STATE_VERSION;
use sha2::{Digest, Sha256};

use crate::chain::{Hash, Head};
use crate::error::Error;
use crate::limits;

const MAGIC: [u8; 8] = *b"NEAPSNAP";
/// magic 8, state version 4, record 8, its hash 32, its time 8, payload length 8, checksum of all that and the payload 32.
const HEADER_BYTES: usize = 8 + 4 + 8 + 32 + 8 + 8 + 32;
const CHECKSUM_AT: usize = HEADER_BYTES - 32;

#[derive(Clone, Copy)]
struct Header {
    version: u32,
    head: Head,
    payload_bytes: u64,
    checksum: Hash,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let parts: [&[u8]; 7] = [
            &MAGIC,
            &self.version.to_le_bytes(),
            &self.head.seq.to_le_bytes(),
            &self.head.hash,
            &self.head.at.0.to_le_bytes(),
            &self.payload_bytes.to_le_bytes(),
            &self.checksum,
        ];
        let mut rest = &mut out[..];
        for part in parts {
            let (slot, after) = rest.split_at_mut(part.len());
            slot.copy_from_slice(part);
            rest = after;
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (head, rest) = bytes.split_first_chunk::<N>()?;
            *bytes = rest;
            Some(*head)
        }
        let mut rest = bytes;
        (take::<8>(&mut rest)? == MAGIC).then_some(())?;
        let version = u32::from_le_bytes(take(&mut rest)?);
        let seq = u64::from_le_bytes(take(&mut rest)?);
        let hash = take(&mut rest)?;
        let at = neap_core::Millis(u64::from_le_bytes(take(&mut rest)?));
        let payload_bytes = u64::from_le_bytes(take(&mut rest)?);
        Some(Self { version, head: Head { seq, hash, at }, payload_bytes, checksum: take(&mut rest)? })
    }

    fn checksum(&self, payload: Sha256) -> Hash {
        let mut hasher = payload;
        hasher.update(&self.encode()[..CHECKSUM_AT]);
        hasher.finalize().into()
    }
}

pub(crate) fn folder(dir: &Path) -> PathBuf {
    dir.join("snapshots")
}

fn name(folder: &Path, seq: u64) -> PathBuf {
    folder.join(format!("{seq}.snap"))
}

/// The records that have a snapshot, newest first.
pub(crate) fn list(folder: &Path) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<u64> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".snap")?.parse().ok())
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found
}

/// Reads a snapshot; what is wrong with it comes back in words.
pub(crate) fn read(folder: &Path, seq: u64) -> Result<(Head, State), String> {
    let bytes = fs::read(name(folder, seq)).map_err(|e| e.to_string())?;
    let header = Header::decode(&bytes).ok_or("it is no snapshot, or cut short")?;
    if header.version != STATE_VERSION {
        return Err(format!("it has state version {}, and this release has {STATE_VERSION}", header.version));
    }
    if header.head.seq != seq {
        return Err(format!("it is of record {}", header.head.seq));
    }
    let payload = &bytes[HEADER_BYTES..];
    if payload.len() as u64 != header.payload_bytes {
        return Err("it is cut short".into());
    }
    if header.checksum(Sha256::new_with_prefix(payload)) != header.checksum {
        return Err("its contents do not match its checksum".into());
    }
    let state = postcard::from_bytes(payload).map_err(|e| format!("its state cannot be read: {e}"))?;
    Ok((header.head, state))
}

pub(crate) fn write(folder: &Path, state: &State, head: Head) -> Result<(), Error> {
    let path = name(folder, head.seq);
    let part = folder.join(format!("{}.part", head.seq));
    write_part(&part, state, head)
        .and_then(|()| {
            neap_crash::point("snapshot-written-before-rename");
            fs::rename(&part, &path)
        })
        .and_then(|()| File::open(folder)?.sync_all())
        .map_err(|source| {
            // The part is of no use to anyone; what matters is the error that is already told.
            let _ = fs::remove_file(&part);
            Error::folder("writing the snapshot", &path)(source)
        })?;
    neap_crash::point("snapshot-renamed-before-sweep");
    for old in list(folder).into_iter().skip(limits::SNAPSHOTS_KEPT) {
        let old = name(folder, old);
        fs::remove_file(&old).map_err(Error::folder("removing the old snapshot", &old))?;
    }
    Ok(())
}

/// Removes what a crash in the middle of writing left behind.
pub(crate) fn sweep_parts(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_some_and(|extension| extension == "part")
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(%error, path = %path.display(), "a half-written snapshot stays behind");
        }
    }
}

/// The payload streams through the checksum into the file; the header, known last, goes into the room left for it.
fn write_part(part: &Path, state: &State, head: Head) -> io::Result<()> {
    let mut file = File::create(part)?;
    file.write_all(&[0; HEADER_BYTES])?;
    let buffered = BufWriter::with_capacity(1 << 18, file);
    let sink = Checksummed { inner: buffered, hasher: Sha256::new(), bytes: 0 };
    let Checksummed { inner, hasher, bytes } = postcard::to_io(state, sink).map_err(io::Error::other)?;
    let mut file = inner.into_inner().map_err(io::IntoInnerError::into_error)?;
    let mut header = Header { version: STATE_VERSION, head, payload_bytes: bytes, checksum: [0; 32] };
    header.checksum = header.checksum(hasher);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header.encode())?;
    file.sync_all()
}

struct Checksummed<W> {
    inner: W,
    hasher: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Checksummed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write_all(bytes)?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes snapshots on a thread of its own, one at a time; the writer never waits for it.
#[derive(Debug)]
pub(crate) struct Snapshotter {
    folder: PathBuf,
    every: u64,
    /// The record of the last snapshot that was begun, good or not: a failed one is tried again after as many events.
    last: u64,
    worker: Option<JoinHandle<Result<(), Error>>>,
}

impl Snapshotter {
    pub(crate) fn new(folder: PathBuf, every: u64, last: u64) -> Self {
        Self { folder, every: every.max(1), last, worker: None }
    }

    pub(crate) fn due(&self, head: Head) -> bool {
        let busy = self.worker.as_ref().is_some_and(|worker| !worker.is_finished());
        !busy && head.seq.saturating_sub(self.last) >= self.every
    }

    pub(crate) fn begin(&mut self, state: State, head: Head) -> Result<(), Error> {
        // An empty log starts as quickly without one.
        if head.seq == 0 {
            return Ok(());
        }
        // What became of the one before, its thread has told.
        let _ = self.wait();
        self.last = head.seq;
        let folder = self.folder.clone();
        let worker = thread::Builder::new()
            .name("snapshot".into())
            .spawn(move || {
                let written = write(&folder, &state, head);
                if let Err(error) = &written {
                    tracing::warn!(%error, "no snapshot was written; the next start replays more of the log");
                }
                written
            })
            .map_err(Error::folder("starting the snapshot thread for", &self.folder))?;
        self.worker = Some(worker);
        Ok(())
    }

    /// Returns when the one that is being written is done, with its outcome.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        match self.worker.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(written)) => written,
            Some(Err(_)) => Err(Error::folder("writing a snapshot into", &self.folder)(io::Error::other(
                "its thread panicked",
            ))),
        }
    }
}

impl Drop for Snapshotter {
    fn drop(&mut self) {
        // Told by the thread itself.
        let _ = self.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use neap_core::event::{JobSubmitted, ServerStarted};
    use neap_core::job::Need;
    use neap_core::settings::Settings;
    use neap_core::{ClusterId, DocHash, Event, JobId, Millis, WorkspaceId, apply};

    use super::*;

    fn sample() -> State {
        let mut state = State::default();
        let started = ServerStarted { release: "1".into(), settings: Settings::default() };
        apply::apply(&mut state, Millis(1), &Event::from(started));
        for id in 1..=50 {
            let job = JobSubmitted {
                tags: vec![],
                id: JobId(id),
                workspace: WorkspaceId(1),
                cluster: ClusterId(1),
                name: Arc::from(format!("job-{id}")),
                owner: "me".into(),
                priority: 1,
                need: Need::Whole,
                nodes: 1,
                family: None,
                after: Vec::new(),
                work: None,
                timeout_ms: Some(5),
                retry: None,
                like: None,
                tier: Default::default(),
                document: DocHash([1; 32]),
                meta: DocHash([2; 32]),
            };
            apply::apply(&mut state, Millis(id), &Event::from(job));
        }
        state
    }

    fn head(seq: u64) -> Head {
        Head { seq, hash: [7; 32], at: Millis(50) }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &sample(), head(51)).unwrap();
        assert_eq!(read(dir.path(), 51).unwrap(), (head(51), sample()));
    }

    #[test]
    fn two_are_kept_and_parts_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("9.part"), "half").unwrap();
        for seq in [1, 5, 12] {
            write(dir.path(), &State::default(), head(seq)).unwrap();
        }
        sweep_parts(dir.path());
        assert_eq!(list(dir.path()), [12, 5]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &sample(), head(51)).unwrap();
        let path = name(dir.path(), 51);
        let good = fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(7) {
            fs::write(&path, &good[..at]).unwrap();
            assert!(read(dir.path(), 51).is_err(), "cut at {at}");
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, &bad).unwrap();
            assert!(read(dir.path(), 51).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn another_state_version_is_named() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &State::default(), head(1)).unwrap();
        let path = name(dir.path(), 1);
        let mut bytes = fs::read(&path).unwrap();
        bytes[8..12].copy_from_slice(&(STATE_VERSION + 1).to_le_bytes());
        fs::write(&path, bytes).unwrap();
        assert!(read(dir.path(), 1).unwrap_err().contains("state version"));
    }
}
