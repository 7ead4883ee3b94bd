//! An attempt's output on disk, bounded: the head as it came, and a ring with the tail.
//!
//! The supervisor writes, the agent reads; neither ever waits for the other. What a reader sees is one
//! stream: the head, then (once the attempt has ended and output was left out) a line that says how much,
//! then the tail.
//!
//! The files are written over from one attempt to the next, not made anew: what counts is never a file's length, but
//! how much its writer says it has written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// The head's file in an attempt's folder. The agent writes its first lines there before the start.
pub const HEAD_FILE: &str = "log";
const TAIL_FILE: &str = "log.tail";

/// What a finished spool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolEnd {
    pub head_bytes: u64,
    /// Everything that came after the head, also what the ring no longer holds.
    pub after_head_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct SpoolWriter {
    dir: PathBuf,
    head: Option<File>,
    tail: Option<File>,
    head_max: u64,
    tail_max: u64,
    end: SpoolEnd,
}

impl SpoolWriter {
    /// Goes on after the first `head_bytes` of the head. No file is touched before there is something to write.
    pub(crate) fn new(dir: PathBuf, head_bytes: u64, log_bytes_max: u64) -> Self {
        let (head_max, tail_max) = shares(log_bytes_max);
        Self {
            dir,
            head: None,
            tail: None,
            head_max,
            tail_max,
            end: SpoolEnd { head_bytes, after_head_bytes: 0 },
        }
    }

    pub(crate) fn end(&self) -> SpoolEnd {
        self.end
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let room = self.head_max.saturating_sub(self.end.head_bytes).min(bytes.len() as u64) as usize;
        if room > 0 && self.end.after_head_bytes == 0 {
            if self.head.is_none() {
                self.head = Some(self.open(HEAD_FILE)?);
            }
            if let Some(head) = &self.head {
                head.write_all_at(&bytes[..room], self.end.head_bytes)?;
            }
            self.end.head_bytes += room as u64;
            bytes = &bytes[room..];
        }
        while !bytes.is_empty() {
            if self.tail.is_none() {
                self.tail = Some(self.open(TAIL_FILE)?);
            }
            let at = self.end.after_head_bytes % self.tail_max;
            let piece = ((self.tail_max - at) as usize).min(bytes.len());
            if let Some(tail) = &self.tail {
                tail.write_all_at(&bytes[..piece], at)?;
            }
            self.end.after_head_bytes += piece as u64;
            bytes = &bytes[piece..];
        }
        Ok(())
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(File::from(rustix::fs::open(self.dir.join(name), flags, Mode::from_raw_mode(0o600))?))
    }
}

fn shares(log_bytes_max: u64) -> (u64, u64) {
    let head = log_bytes_max / 2;
    (head, (log_bytes_max - head).max(1))
}

/// Reads the stream that is shipped.
#[derive(Clone, Debug)]
pub struct SpoolReader {
    dir: PathBuf,
    log_bytes_max: u64,
}

impl SpoolReader {
    pub fn new(attempt_dir: &Path, log_bytes_max: u64) -> Self {
        Self { dir: attempt_dir.to_owned(), log_bytes_max }
    }

    /// Length of the whole stream of an attempt that has ended.
    pub fn len_at_end(&self, end: SpoolEnd) -> u64 {
        let (gap, tail) = self.gap_and_tail(end);
        end.head_bytes + gap.len() as u64 + tail
    }

    /// Up to `max` bytes of the stream from `offset` on. While the attempt runs (`end` is none) this is the
    /// head as it grows, and `max` must not lead beyond what the supervisor has told of: after that may come what
    /// an earlier attempt wrote. Fewer bytes than asked for, or none, mean that there is no more for now.
    pub fn read(&self, offset: u64, max: usize, end: Option<SpoolEnd>) -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(max.min(64 * 1024));
        let head_bytes = end.map_or(u64::MAX, |end| end.head_bytes);
        if offset < head_bytes {
            let want = (head_bytes - offset).min(max as u64) as usize;
            read_into(&self.dir.join(HEAD_FILE), offset, want, &mut out)?;
        }
        let Some(end) = end else { return Ok(out) };
        let (gap, tail_bytes) = self.gap_and_tail(end);
        let at = offset + out.len() as u64;
        if at >= end.head_bytes && out.len() < max {
            let in_gap = (at - end.head_bytes).min(gap.len() as u64) as usize;
            let piece = &gap.as_bytes()[in_gap..];
            out.extend_from_slice(&piece[..piece.len().min(max - out.len())]);
        }
        let tail_from = end.head_bytes + gap.len() as u64;
        let ring = shares(self.log_bytes_max).1;
        let oldest = if end.after_head_bytes > ring { end.after_head_bytes % ring } else { 0 };
        while out.len() < max {
            let at = offset + out.len() as u64;
            if at < tail_from || at - tail_from >= tail_bytes {
                break;
            }
            let in_ring = (oldest + (at - tail_from)) % ring;
            let piece = (ring - in_ring).min(tail_bytes - (at - tail_from)).min((max - out.len()) as u64);
            let before = out.len();
            read_into(&self.dir.join(TAIL_FILE), in_ring, piece as usize, &mut out)?;
            if out.len() == before {
                break;
            }
        }
        Ok(out)
    }

    fn gap_and_tail(&self, end: SpoolEnd) -> (String, u64) {
        let ring = shares(self.log_bytes_max).1;
        let left_out = end.after_head_bytes.saturating_sub(ring);
        if left_out == 0 {
            return (String::new(), end.after_head_bytes);
        }
        let max = self.log_bytes_max;
        (format!("\n[neap: {left_out} bytes of output left out here; log_bytes_max is {max}]\n"), ring)
    }
}

fn read_into(path: &Path, offset: u64, want: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let start = out.len();
    out.resize(start + want, 0);
    let mut filled = 0;
    while filled < want {
        match file.read_at(&mut out[start + filled..], offset + filled as u64)? {
            0 => break,
            n => filled += n,
        }
    }
    out.truncate(start + filled);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(max: u64, pieces: &[&str], expect: &str) {
        check_in(tempfile::tempdir().unwrap().path(), max, pieces, expect);
    }

    fn check_in(dir: &Path, max: u64, pieces: &[&str], expect: &str) {
        let mut writer = SpoolWriter::new(dir.to_owned(), 0, max);
        for piece in pieces {
            writer.write(piece.as_bytes()).unwrap();
        }
        let reader = SpoolReader::new(dir, max);
        let end = writer.end();
        assert_eq!(reader.len_at_end(end), expect.len() as u64);
        for step in [1, 3, 1000] {
            let mut seen = Vec::new();
            loop {
                let part = reader.read(seen.len() as u64, step, Some(end)).unwrap();
                if part.is_empty() {
                    break;
                }
                seen.extend(part);
            }
            assert_eq!(String::from_utf8(seen).unwrap(), expect, "read {step} at a time");
        }
        let on_disk: u64 =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(on_disk <= max.max(2), "{on_disk} bytes on disk, at most {max}");
    }

    #[test]
    fn the_stream_is_head_gap_and_tail() {
        check(100, &[], "");
        check(100, &["hello\n"], "hello\n");
        check(10, &["abcde", "fghij"], "abcdefghij");
        check(10, &["abcdefghij"], "abcdefghij");
        check(
            10,
            &["abcdefghijk"],
            "abcde\n[neap: 1 bytes of output left out here; log_bytes_max is 10]\nghijk",
        );
        check(
            10,
            &["abc", "defghijklm", "nopqrs"],
            "abcde\n[neap: 9 bytes of output left out here; log_bytes_max is 10]\nopqrs",
        );
        check(
            7,
            &["abcdefghijklmnopqrstuvwxyz"],
            "abc\n[neap: 19 bytes of output left out here; log_bytes_max is 7]\nwxyz",
        );
    }

    #[test]
    fn what_an_earlier_attempt_wrote_is_never_seen() {
        let dir = tempfile::tempdir().unwrap();
        check_in(
            dir.path(),
            10,
            &["AAAAAAAAAAAAAAAAAAAA"],
            "AAAAA\n[neap: 10 bytes of output left out here; log_bytes_max is 10]\nAAAAA",
        );
        for text in ["", "b", "bcdef", "bcdefg"] {
            check_in(dir.path(), 10, &[text], text);
        }
    }
}
