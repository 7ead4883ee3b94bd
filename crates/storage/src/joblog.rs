//! The one log of a job. Each attempt has a spool on its node; here they stand one after another in
//! one blob, so that a reader sees the job and not its attempts. Where each attempt begins is kept in
//! a small file per job, which exists only if there was more than one attempt. A job with several processes has
//! several logs: see [`ranks`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

mod ranks;

pub use ranks::{Piece, Shelf, Untag, rank_address};

use crate::append::Growing;
use crate::store::make_folders;
use crate::{BlobAddress, Error, LINE_BYTES_MAX, LOG_ATTEMPTS_MAX, LOG_INDEXES_IN_MEMORY_MAX, Result, Store};

/// Where a job's log is in its workspace's artifact container.
pub fn address(account: &str, container: &str, job_name: &str) -> Result<BlobAddress> {
    let name = format!("ExperimentRun/dcid.{job_name}/user_logs/std_log.txt");
    BlobAddress::new(account, container, name)
}

/// Where each attempt begins, in the order of the attempts.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Index {
    attempts: Vec<Begin>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Begin {
    attempt: u32,
    base: u64,
}

impl Default for Index {
    /// Before anything else is known: the first attempt, from the start.
    fn default() -> Self {
        Self { attempts: vec![Begin { attempt: 1, base: 0 }] }
    }
}

impl Index {
    fn latest(&self) -> Begin {
        let first = Begin { attempt: 1, base: 0 };
        self.attempts.last().copied().unwrap_or(first)
    }
}

/// What is known of the indexes without looking at the disk.
#[derive(Debug)]
struct Indexes {
    /// Jobs that have an index file.
    kept: BTreeSet<u64>,
    /// Those that were used lately.
    recent: BTreeMap<u64, Index>,
}

/// The logs of all jobs.
#[derive(Debug)]
pub struct JobLogs {
    store: Arc<Store>,
    folder: PathBuf,
    indexes: Mutex<Indexes>,
    /// Jobs with several logs that were written to lately.
    ranks: Mutex<BTreeMap<u64, ranks::Ranks>>,
    turns: [Mutex<()>; 64],
}

impl JobLogs {
    /// Logs in this store, with their indexes in this folder.
    pub fn open(store: Arc<Store>, folder: &Path) -> Result<Self> {
        make_folders(folder)?;
        Ok(Self {
            store,
            folder: folder.to_owned(),
            indexes: Mutex::new(Indexes { kept: jobs_in(folder)?, recent: BTreeMap::new() }),
            ranks: Mutex::default(),
            turns: std::array::from_fn(|_| Mutex::new(())),
        })
    }

    /// Adds an attempt's bytes, which begin at `offset` of the attempt, to the job's log. Says up to
    /// where the attempt's bytes are there.
    ///
    /// # Guarantees
    /// The same bytes again change nothing, also after a restart. An attempt older than the latest is
    /// told that all is well, and nothing is written: its words came too late.
    /// # Errors
    /// [`Error::Gap`] with the attempt's length so far, from which the sender goes on.
    pub fn append(
        &self,
        log: &BlobAddress,
        job: u64,
        attempt: u32,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64> {
        let _turn = self.turn(job);
        let index = self.index(job)?;
        let latest = index.latest();
        if attempt < latest.attempt {
            return Ok(offset.saturating_add(bytes.len() as u64));
        }
        let mut blob = self.store.grow(log)?;
        let begin = if attempt > latest.attempt {
            if offset > 0 {
                return Err(gap(log, 0, offset));
            }
            self.begin_attempt(&mut blob, job, index, attempt)?
        } else if blob.length() < latest.base {
            // The blob lost its end in a power cut: the attempt starts over where it ends now.
            self.save(job, rebased(index, blob.length()))?;
            Begin { attempt, base: blob.length() }
        } else {
            latest
        };
        let end = blob.append_at(begin.base.saturating_add(offset), bytes).map_err(|error| match error {
            Error::Gap { have_bytes, .. } => gap(log, have_bytes.saturating_sub(begin.base), offset),
            other => other,
        })?;
        neap_crash::point("log-appended-before-acknowledgement");
        Ok(end.saturating_sub(begin.base))
    }

    fn begin_attempt(
        &self,
        blob: &mut Growing<'_>,
        job: u64,
        mut index: Index,
        attempt: u32,
    ) -> Result<Begin> {
        // The last words of the attempt before may be half a line; the next begins on its own.
        if blob.last_byte()?.is_some_and(|byte| byte != b'\n') {
            blob.append_at(blob.length(), b"\n")?;
        }
        let begin = Begin { attempt, base: blob.length() };
        if index.attempts.len() >= LOG_ATTEMPTS_MAX {
            index.attempts.remove(0);
        }
        index.attempts.push(begin);
        self.save(job, index)?;
        neap_crash::point("log-begun-before-append");
        Ok(begin)
    }

    /// Where each attempt begins in the job's log, oldest first.
    pub fn attempts(&self, job: u64) -> Result<Vec<(u32, u64)>> {
        let index = self.index(job)?;
        Ok(index.attempts.iter().map(|b| (b.attempt, b.base)).collect())
    }

    /// Up to where the log has whole lines: what to serve while the job runs. A line that grows beyond
    /// [`LINE_BYTES_MAX`] without ending is served as it is.
    pub fn whole_lines_len(&self, log: &BlobAddress) -> Result<u64> {
        match self.store.open_blob(log) {
            Ok(blob) => whole_lines_len(&blob.file, blob.properties.length),
            Err(Error::BlobNotFound(_) | Error::ContainerNotFound { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Forgets where the attempts of a deleted job began. The blob is the caller's to delete.
    pub fn forget(&self, job: u64) -> Result<()> {
        let _turn = self.turn(job);
        let path = self.index_path(job);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("remove", &path)(e)),
            _ => {}
        }
        {
            let mut indexes = self.indexes();
            indexes.recent.remove(&job);
            indexes.kept.remove(&job);
        }
        self.forget_ranks(job)
    }

    fn index(&self, job: u64) -> Result<Index> {
        {
            let indexes = self.indexes();
            if let Some(index) = indexes.recent.get(&job) {
                return Ok(index.clone());
            }
            if !indexes.kept.contains(&job) {
                return Ok(Index::default());
            }
        }
        let path = self.index_path(job);
        let index = match fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json).map_err(|e| Error::Io {
                action: "read",
                path: path.clone(),
                source: e.into(),
            })?,
            Err(e) if e.kind() == ErrorKind::NotFound => Index::default(),
            Err(e) => return Err(Error::io("read", &path)(e)),
        };
        self.remember(job, index.clone());
        Ok(index)
    }

    fn save(&self, job: u64, index: Index) -> Result<()> {
        let path = self.index_path(job);
        let new = path.with_extension("json.new");
        let json = serde_json::to_vec(&index).map_err(|e| Error::Io {
            action: "write",
            path: path.clone(),
            source: e.into(),
        })?;
        File::create(&new)
            .and_then(|mut file| file.write_all(&json))
            .and_then(|()| fs::rename(&new, &path))
            .map_err(Error::io("write", &path))?;
        self.indexes().kept.insert(job);
        self.remember(job, index);
        Ok(())
    }

    fn remember(&self, job: u64, index: Index) {
        let recent = &mut self.indexes().recent;
        if recent.len() >= LOG_INDEXES_IN_MEMORY_MAX {
            // The oldest job is the likeliest to be done; if not, its file is read again.
            recent.pop_first();
        }
        recent.insert(job, index);
    }

    fn indexes(&self) -> MutexGuard<'_, Indexes> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ranks(&self) -> MutexGuard<'_, BTreeMap<u64, ranks::Ranks>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, job: u64) -> MutexGuard<'_, ()> {
        let at = usize::try_from(job % 64).unwrap_or(0);
        self.turns[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_path(&self, job: u64) -> PathBuf {
        self.folder.join(format!("{job}.json"))
    }
}

/// The jobs whose index lies in this folder.
fn jobs_in(folder: &Path) -> Result<BTreeSet<u64>> {
    let reading = || Error::io("read", folder);
    let mut jobs = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(reading())? {
        let name = entry.map_err(reading())?.file_name();
        jobs.extend(name.to_str().and_then(|name| name.strip_suffix(".json")?.parse::<u64>().ok()));
    }
    Ok(jobs)
}

fn rebased(mut index: Index, base: u64) -> Index {
    for begin in &mut index.attempts {
        begin.base = begin.base.min(base);
    }
    index
}

fn gap(log: &BlobAddress, have_bytes: u64, offered_at: u64) -> Error {
    Error::Gap { name: log.to_string(), have_bytes, offered_at }
}

/// Up to where the first `length` bytes of the file are whole lines.
pub fn whole_lines_len(file: &File, length: u64) -> Result<u64> {
    const STEP: u64 = 64 * 1024;
    let mut end = length;
    let mut buffer = vec![0_u8; 64 * 1024];
    while end > 0 && length - end < LINE_BYTES_MAX {
        let start = end.saturating_sub(STEP);
        let part = usize::try_from(end - start).unwrap_or(buffer.len());
        let part = &mut buffer[..part];
        file.read_exact_at(part, start).map_err(Error::io("read", Path::new("a job's log")))?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(if end == 0 && length < LINE_BYTES_MAX { 0 } else { length })
}

#[cfg(test)]
mod tests;
