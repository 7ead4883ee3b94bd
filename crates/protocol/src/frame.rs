//! Frames: how messages and log bytes lie on the wire.

use serde::{Serialize, de::DeserializeOwned};

use crate::{AttemptRef, FRAME_BYTES_MAX};

/// The byte after the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    Message = 0,
    Log = 1,
    /// As `Log`, of an attempt with several logs.
    RankLog = 2,
}

/// A piece of an attempt's output, as the agent's spool holds it from `offset` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    pub attempt: AttemptRef,
    pub offset: u64,
    /// True with the last chunk: the attempt has ended and its spool is complete.
    pub last: bool,
    /// Whose output it is, where the job has more than one log.
    pub source: Option<LogSource>,
    pub bytes: Vec<u8>,
}

/// Which of a job's several logs a node's output belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSource {
    /// The first rank on the node; it names the stream, and whatever no tag says otherwise of is its.
    pub rank: u32,
    /// Lines may begin with a tag that names the rank that wrote them; see [`crate::tag`].
    pub tagged: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Frame<M> {
    Message(M),
    Log(LogChunk),
}

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the peer announced a frame of {bytes} bytes; the limit is {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("the peer sent a frame of unknown kind {0}")]
    UnknownKind(u8),
    #[error("the peer sent a message that cannot be read: {0}")]
    Message(#[from] serde_json::Error),
    #[error("the peer sent a log frame that is too short")]
    ShortLog,
}

const LOG_HEADER_BYTES: usize = 8 + 4 + 8 + 1;
const LAST: u8 = 1;
const TAGGED: u8 = 2;

/// Appends one message as a frame.
pub fn encode_message<M: Serialize>(message: &M, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(FrameKind::Message as u8);
    serde_json::to_writer(&mut *out, message)
        .unwrap_or_else(|e| unreachable!("messages always serialise: {e}"));
    close(start, out);
}

/// Appends one piece of log as a frame.
pub fn encode_log(chunk: &LogChunk, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(if chunk.source.is_some() { FrameKind::RankLog } else { FrameKind::Log } as u8);
    out.extend_from_slice(&chunk.attempt.job.to_be_bytes());
    out.extend_from_slice(&chunk.attempt.attempt.to_be_bytes());
    out.extend_from_slice(&chunk.offset.to_be_bytes());
    let tagged = chunk.source.is_some_and(|source| source.tagged);
    out.push(u8::from(chunk.last) * LAST + u8::from(tagged) * TAGGED);
    if let Some(source) = chunk.source {
        out.extend_from_slice(&source.rank.to_be_bytes());
    }
    out.extend_from_slice(&chunk.bytes);
    close(start, out);
}

fn close(start: usize, out: &mut [u8]) {
    let length = out.len() - start - 4;
    debug_assert!(length <= FRAME_BYTES_MAX, "frame over the limit");
    out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
}

/// An empty buffer larger than this is given back to the system.
const BUFFER_BYTES_KEPT: usize = 64 * 1024;

/// Collects bytes and gives back whole frames. It never allocates for bytes that are announced but have not arrived.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    read: usize,
    frame_bytes_max: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::with_limit(FRAME_BYTES_MAX)
    }
}

impl Decoder {
    /// Refuses frames of more than `frame_bytes_max` bytes.
    pub fn with_limit(frame_bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), read: 0, frame_bytes_max: frame_bytes_max.min(FRAME_BYTES_MAX) }
    }

    /// Changes the limit for the frames that follow.
    pub fn set_limit(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max.min(FRAME_BYTES_MAX);
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        if self.read > 0 && self.read == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(BUFFER_BYTES_KEPT);
            self.read = 0;
        } else if self.read > 64 * 1024 {
            self.buffer.drain(..self.read);
            self.read = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if one has arrived.
    #[allow(
        clippy::should_implement_trait,
        reason = "it says what went wrong, and more may be fed between calls"
    )]
    pub fn next<M: DeserializeOwned>(&mut self) -> Result<Option<Frame<M>>, FrameError> {
        let rest = &self.buffer[self.read..];
        let Some(head) = rest.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length == 0 || length > self.frame_bytes_max {
            return Err(FrameError::TooLarge { bytes: length, max: self.frame_bytes_max });
        }
        let Some(body) = rest.get(4..4 + length) else { return Ok(None) };
        let frame = match body[0] {
            k if k == FrameKind::Message as u8 => Frame::Message(serde_json::from_slice(&body[1..])?),
            k if k == FrameKind::Log as u8 => Frame::Log(log_chunk(&body[1..], false)?),
            k if k == FrameKind::RankLog as u8 => Frame::Log(log_chunk(&body[1..], true)?),
            other => return Err(FrameError::UnknownKind(other)),
        };
        self.read += 4 + length;
        Ok(Some(frame))
    }
}

fn log_chunk(body: &[u8], of_rank: bool) -> Result<LogChunk, FrameError> {
    if body.len() < LOG_HEADER_BYTES + if of_rank { 4 } else { 0 } {
        return Err(FrameError::ShortLog);
    }
    let (job, rest) = body.split_at(8);
    let (attempt, rest) = rest.split_at(4);
    let (offset, rest) = rest.split_at(8);
    let (flags, mut bytes) = (rest[0], &rest[1..]);
    let be64 = |b: &[u8]| b.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let mut source = None;
    if of_rank {
        let (rank, rest) = bytes.split_at(4);
        source = Some(LogSource { rank: be64(rank) as u32, tagged: flags & TAGGED != 0 });
        bytes = rest;
    }
    Ok(LogChunk {
        attempt: AttemptRef { job: be64(job), attempt: be64(attempt) as u32 },
        offset: be64(offset),
        last: flags & LAST != 0,
        source,
        bytes: bytes.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Down, Up};

    #[test]
    fn frames_survive_any_split() {
        for source in
            [None, Some(LogSource { rank: 0, tagged: false }), Some(LogSource { rank: 9, tagged: true })]
        {
            check_split(source);
        }
    }

    fn check_split(source: Option<LogSource>) {
        let chunk = LogChunk {
            attempt: AttemptRef { job: 7, attempt: 2 },
            offset: 1 << 40,
            last: true,
            source,
            bytes: b"hello\n".to_vec(),
        };
        let mut wire = Vec::new();
        encode_message(&Up::Heartbeat { sent_boot_ms: 9 }, &mut wire);
        encode_log(&chunk, &mut wire);
        for cut in 0..wire.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for part in [&wire[..cut], &wire[cut..]] {
                decoder.feed(part);
                while let Some(frame) = decoder.next::<Up>().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(
                seen,
                vec![Frame::Message(Up::Heartbeat { sent_boot_ms: 9 }), Frame::Log(chunk.clone())],
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused() {
        let mut decoder = Decoder::default();
        decoder.feed(&u32::MAX.to_be_bytes());
        assert!(matches!(decoder.next::<Down>(), Err(FrameError::TooLarge { .. })));
    }

    #[test]
    fn a_limit_holds_for_the_frames_that_follow_it() {
        let mut wire = Vec::new();
        encode_message(&Up::Renew { csr_pem: "x".repeat(1_000) }, &mut wire);
        let length = wire.len() - 4;
        for (limit, fits) in [(length, true), (length - 1, false)] {
            let mut decoder = Decoder::with_limit(limit);
            decoder.feed(&wire);
            assert_eq!(decoder.next::<Up>().is_ok(), fits, "{limit}");
        }
        let mut decoder = Decoder::with_limit(length - 1);
        decoder.set_limit(usize::MAX);
        decoder.feed(&wire);
        assert!(decoder.next::<Up>().unwrap().is_some());
        decoder.feed(&(FRAME_BYTES_MAX as u32 + 1).to_be_bytes());
        assert!(decoder.next::<Up>().is_err(), "no limit is above the protocol's own");
    }

    #[test]
    fn a_large_frame_leaves_no_large_buffer_behind() {
        let mut wire = Vec::new();
        encode_message(&Up::Renew { csr_pem: "x".repeat(1 << 20) }, &mut wire);
        let mut decoder = Decoder::default();
        decoder.feed(&wire[..4]);
        assert!(decoder.next::<Up>().unwrap().is_none());
        assert!(decoder.buffer.capacity() < 1_024, "nothing is allocated for what was only announced");
        decoder.feed(&wire[4..]);
        assert!(decoder.next::<Up>().unwrap().is_some());
        decoder.feed(b"x");
        assert!(decoder.buffer.capacity() <= BUFFER_BYTES_KEPT);
    }

    #[test]
    fn an_unknown_field_is_ignored() {
        let read: Down = serde_json::from_str(r#"{"type":"refused","reason":"no","later":1}"#).unwrap();
        assert_eq!(read, Down::Refused { reason: "no".into() });
    }
}
