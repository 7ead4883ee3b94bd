//! The logs of a job with several processes: one for each rank, and the merged one that people read first.
//!
//! Every node sends one stream. What a rank wrote goes to its own log byte for byte; its whole lines go to the merged
//! log as well, in the order in which they come here. How far each stream was taken is in a small file per job, which
//! is written after the logs: bytes that come again after a crash find their place in the ranks' logs taken, and are
//! passed over there. In the merged log a few lines may then stand twice; it is never the only place of anything.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{JobLogs, address, gap};
use crate::{BlobAddress, Error, LOG_INDEXES_IN_MEMORY_MAX, LOG_RANKS_MAX, MERGED_LINE_BYTES_MAX, Result};

/// Where a job's logs lie.
#[derive(Clone, Copy, Debug)]
pub struct Shelf<'a> {
    pub account: &'a str,
    pub container: &'a str,
    pub job_name: &'a str,
}

/// A piece of one node's stream.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    pub attempt: u32,
    /// The first rank of the node, which names the stream.
    pub rank: u32,
    /// How a line, its line feed included, tells the rank that wrote it and what; none where all is of one rank.
    pub untag: Option<Untag>,
    pub offset: u64,
    pub bytes: &'a [u8],
    /// Nothing comes after it.
    pub last: bool,
}

/// The rank, if the line names one, and what was written.
pub type Untag = fn(&[u8]) -> (Option<u32>, &[u8]);

/// Where the log of one rank is in its workspace's artifact container.
pub fn rank_address(shelf: Shelf<'_>, rank: u32) -> Result<BlobAddress> {
    let name = format!("ExperimentRun/dcid.{}/user_logs/std_log_process_{rank}.txt", shelf.job_name);
    BlobAddress::new(shelf.account, shelf.container, name)
}

/// How far a job's logs have come.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Ranks {
    attempt: u32,
    /// Up to where each stream of the attempt is in the logs.
    streams: BTreeMap<u32, u64>,
    logs: BTreeMap<u32, RankLog>,
    /// The beginning of a line with a tag, by stream. Whoever sent it has not been told that it is stored.
    #[serde(skip)]
    unread: BTreeMap<u32, Vec<u8>>,
    /// It was read from its file: what lines have begun is not known.
    #[serde(skip, default = "yes")]
    is_from_file: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct RankLog {
    /// Of this attempt; none when it has not written yet.
    length: Option<u64>,
    stream: u32,
    /// A line that has begun and is not in the merged log yet.
    #[serde(skip)]
    begun: Vec<u8>,
}

impl JobLogs {
    /// Takes in a piece of one node's stream, and says up to where the stream is stored: whole lines, where lines have
    /// tags.
    ///
    /// # Guarantees
    /// The same bytes again change nothing. An attempt older than the latest is told that all is well, and nothing is
    /// written.
    /// # Errors
    /// [`Error::Gap`] with how much of the stream is stored, from which the sender goes on.
    pub fn append_piece(&self, shelf: Shelf<'_>, job: u64, piece: &Piece<'_>) -> Result<u64> {
        let _turn = self.turn(job);
        let mut ranks = self.take_ranks(job)?;
        let end = self.take_in(shelf, job, piece, &mut ranks);
        // After an error nothing is certain but what the file says.
        if matches!(end, Ok(_) | Err(Error::Gap { .. })) {
            self.keep_ranks(job, ranks);
        }
        end
    }

    fn take_in(&self, shelf: Shelf<'_>, job: u64, piece: &Piece<'_>, ranks: &mut Ranks) -> Result<u64> {
        if piece.attempt < ranks.attempt {
            return Ok(piece.offset.saturating_add(piece.bytes.len() as u64));
        }
        if piece.attempt > ranks.attempt {
            *ranks = Ranks { attempt: piece.attempt, ..Ranks::default() };
        } else if std::mem::take(&mut ranks.is_from_file) {
            for (rank, log) in &mut ranks.logs {
                log.begun = self.line_begun(&rank_address(shelf, *rank)?, log.length.unwrap_or(0))?;
            }
        }
        let stored = ranks.streams.get(&piece.rank).copied().unwrap_or(0);
        let unread = ranks.unread.entry(piece.rank).or_default();
        let Some(known) = (stored + unread.len() as u64).checked_sub(piece.offset) else {
            return Err(gap(&rank_address(shelf, piece.rank)?, stored, piece.offset));
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        unread.extend_from_slice(piece.bytes.get(known..).unwrap_or_default());
        let unread = std::mem::take(unread);
        let news = read(piece, &unread, ranks);
        if news.read_bytes == 0 && !piece.last {
            ranks.unread.insert(piece.rank, unread);
            return Ok(stored);
        }
        for (rank, bytes) in &news.by_rank {
            self.grow_rank(shelf, job, *rank, bytes, ranks)?;
        }
        self.merge(&address(shelf.account, shelf.container, shelf.job_name)?, &news.merged)?;
        let end = stored + news.read_bytes as u64;
        ranks.streams.insert(piece.rank, end);
        ranks.unread.insert(piece.rank, unread[news.read_bytes..].to_vec());
        self.save_ranks(job, ranks)?;
        neap_crash::point("log-appended-before-acknowledgement");
        Ok(end)
    }

    fn grow_rank(
        &self,
        shelf: Shelf<'_>,
        job: u64,
        rank: u32,
        bytes: &[u8],
        ranks: &mut Ranks,
    ) -> Result<()> {
        let log = rank_address(shelf, rank)?;
        let mut blob = self.store.grow(&log)?;
        let known = ranks.logs.entry(rank).or_default();
        let length = match known.length {
            // It may have lost its end in a power cut: the rank goes on where it ends now.
            Some(length) => length.min(blob.length()),
            None => {
                // The first words of this attempt. An earlier one may have left half a line.
                if blob.last_byte()?.is_some_and(|byte| byte != b'\n') {
                    blob.append_at(blob.length(), b"\n")?;
                }
                known.length = Some(blob.length());
                self.save_ranks(job, ranks)?;
                blob.length()
            }
        };
        blob.append_at(length, bytes)?;
        ranks.logs.entry(rank).or_default().length = Some(length + bytes.len() as u64);
        Ok(())
    }

    /// What stands after the last line feed in the first `length` bytes.
    fn line_begun(&self, log: &BlobAddress, length: u64) -> Result<Vec<u8>> {
        let from = length.saturating_sub(MERGED_LINE_BYTES_MAX as u64);
        let tail = match self.store.read(log, from, usize::try_from(length - from).unwrap_or(0)) {
            Err(Error::BlobNotFound(_) | Error::ContainerNotFound { .. }) => Vec::new(),
            other => other?,
        };
        let line = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        Ok(tail[line..].to_vec())
    }

    fn merge(&self, log: &BlobAddress, lines: &[u8]) -> Result<()> {
        if !lines.is_empty() {
            let mut blob = self.store.grow(log)?;
            blob.append_at(blob.length(), lines)?;
        }
        Ok(())
    }

    fn take_ranks(&self, job: u64) -> Result<Ranks> {
        if let Some(ranks) = self.ranks().remove(&job) {
            return Ok(ranks);
        }
        let path = self.ranks_path(job);
        match fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json).map_err(|e| Error::io("read", &path)(e.into())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Ranks::default()),
            Err(e) => Err(Error::io("read", &path)(e)),
        }
    }

    fn keep_ranks(&self, job: u64, ranks: Ranks) {
        let mut all = self.ranks();
        if all.len() >= LOG_INDEXES_IN_MEMORY_MAX {
            // One whose file says all there is to know: it is read again when it is needed.
            let idle =
                all.iter().find(|(_, ranks)| ranks.unread.values().all(Vec::is_empty)).map(|(job, _)| *job);
            idle.map(|job| all.remove(&job));
        }
        all.insert(job, ranks);
    }

    fn save_ranks(&self, job: u64, ranks: &Ranks) -> Result<()> {
        let path = self.ranks_path(job);
        let new = path.with_extension("json.new");
        let json = serde_json::to_vec(ranks).map_err(|e| Error::io("write", &path)(e.into()))?;
        File::create(&new)
            .and_then(|mut file| file.write_all(&json))
            .and_then(|()| fs::rename(&new, &path))
            .map_err(Error::io("write", &path))
    }

    pub(super) fn forget_ranks(&self, job: u64) -> Result<()> {
        self.ranks().remove(&job);
        let path = self.ranks_path(job);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", &path)(e)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn ranks_path(&self, job: u64) -> PathBuf {
        self.folder.join(format!("{job}.ranks.json"))
    }
}

/// What a piece brings.
#[derive(Debug, Default)]
struct News {
    by_rank: BTreeMap<u32, Vec<u8>>,
    merged: Vec<u8>,
    read_bytes: usize,
}

/// Reads what of `unread` can be read: everything, or the whole lines where lines have tags.
fn read(piece: &Piece<'_>, unread: &[u8], ranks: &mut Ranks) -> News {
    let mut news = News::default();
    let mut add = |rank: u32, bytes: &[u8], news: &mut News| {
        let log = ranks.logs.entry(rank).or_default();
        log.stream = piece.rank;
        news.add(rank, bytes, &mut log.begun);
    };
    match piece.untag {
        None => {
            news.read_bytes = unread.len();
            add(piece.rank, unread, &mut news);
        }
        Some(untag) => {
            for line in unread.split_inclusive(|byte| *byte == b'\n') {
                if !line.ends_with(b"\n") && !piece.last && line.len() <= MERGED_LINE_BYTES_MAX {
                    break;
                }
                let (rank, bytes) = untag(line);
                news.read_bytes += line.len();
                add(rank.filter(|rank| *rank < LOG_RANKS_MAX).unwrap_or(piece.rank), bytes, &mut news);
            }
        }
    }
    if piece.last {
        for (rank, log) in ranks.logs.iter_mut().filter(|(_, log)| log.stream == piece.rank) {
            news.merge(*rank, &std::mem::take(&mut log.begun));
        }
    }
    news
}

impl News {
    fn add(&mut self, rank: u32, bytes: &[u8], begun: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.by_rank.entry(rank).or_default().extend_from_slice(bytes);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            begun.extend_from_slice(part);
            if part.ends_with(b"\n") || begun.len() > MERGED_LINE_BYTES_MAX {
                self.merge(rank, begun);
                begun.clear();
            }
        }
    }

    /// Rank 0 speaks for the job; what the others say is marked.
    fn merge(&mut self, rank: u32, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        if rank > 0 {
            self.merged.extend_from_slice(format!("[{rank}] ").as_bytes());
        }
        self.merged.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            self.merged.push(b'\n');
        }
    }
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
