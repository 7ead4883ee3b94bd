//! The words that pass between the control plane and a node's agent, and how they are framed.
//!
//! The agent dials the server's one port over TLS with the ALPN name [`ALPN`]. After that both sides send
//! frames: a big-endian `u32` length, one byte that says what follows ([`FrameKind`]), and the body.
//! Messages are JSON, so that a newer side may add a field an older one ignores; log bytes are raw.
//!
//! This crate never does I/O: it turns bytes into messages and back.

mod checkpoint;
mod frame;
mod messages;
pub mod tag;

pub use checkpoint::*;
pub use frame::{Decoder, Frame, FrameError, FrameKind, LogChunk, LogSource, encode_log, encode_message};
pub use messages::*;

/// The version both sides state in their first message. An unknown major version is refused in words.
///
/// 2: the URLs of an attempt need the pass that comes with each lease renewal.
pub const PROTOCOL_VERSION: u32 = 2;

/// The ALPN name by which the server tells an agent's connection from HTTP on the same port.
pub const ALPN: &[u8] = b"neap-agent/1";

/// The ALPN name of a connection that carries one stream to a service of an attempt, and no frames.
pub const STREAM_ALPN: &[u8] = b"neap-stream/1";

/// What such a connection begins with: the stream's name, as long as a GUID. Everything after it is the stream.
pub const STREAM_NAME_BYTES: usize = 36;

/// No frame is larger than this; a peer that announces more is cut off.
pub const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The same for a peer that has shown no certificate: there is room for a join token and a certificate request.
pub const JOIN_FRAME_BYTES_MAX: usize = 8 * 1024;

/// The same for a node with a certificate that has not been welcomed: its facts, and the attempts it knows.
pub const HELLO_FRAME_BYTES_MAX: usize = 256 * 1024;

/// Log bytes are shipped in chunks no larger than this.
pub const LOG_CHUNK_BYTES_MAX: usize = 256 * 1024;
