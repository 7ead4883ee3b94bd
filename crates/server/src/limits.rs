//! Every limit on connections and requests that the configuration does not set, by name.

use std::time::Duration;

/// How long a client may take for its TLS handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a closed or evicted connection has to finish what it is in the middle of.
pub const GOODBYE: Duration = Duration::from_secs(5);
/// The same for one that has shown no credential.
pub const STRANGERS_GOODBYE: Duration = Duration::from_millis(100);
/// How long a client may take nothing of an answer: somebody may have stopped a log with their pager.
pub const WRITE_STALL: Duration = Duration::from_secs(3600);
/// When the kernel asks a silent peer whether it still exists, how often, and after how many questions it gives up.
pub const KEEPALIVE: Duration = Duration::from_secs(60);
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
pub const KEEPALIVE_PROBES: u32 = 4;

/// A connection is fresh for this long: it does not make room for others in the middle of its handshake.
pub const FRESH_MS: u64 = 500;
/// Loopback addresses may hold this many times as many connections without a credential as others: many programs of one
/// machine share them.
pub const LOOPBACK_FACTOR: usize = 8;
/// Requests without a credential on one connection.
pub const STRANGER_REQUESTS_MAX: u32 = 100;
/// Of the body of a request without a credential, this much is read and dropped, so that the client gets to read its refusal.
pub const STRANGER_BODY_BYTES_MAX: usize = 64 * 1024;
pub const STRANGER_BODY: Duration = Duration::from_secs(5);
/// Connections of one node: its agent's, and one for each stream to a service.
pub const NODE_CONNECTIONS_MAX: usize = 1_100;
/// Connections that showed the same credential of a job, and requests with it that are worked on at the same time.
pub const ATTEMPT_CONNECTIONS_MAX: usize = 256;
pub const ATTEMPT_REQUESTS_MAX: u32 = 64;
/// Files that a server has open besides its connections.
pub const FILES_BESIDE: u64 = 128;

/// `status`, `shutdown` and `metrics` have a lane of their own with these limits.
pub const CONTROL_REQUESTS_PER_SECOND: u32 = 100;
pub const CONTROL_REQUESTS_IN_FLIGHT: u32 = 32;

/// How long a body may stand still; and how many bytes a second it must bring on average, after that time.
pub const BODY_STALL: Duration = Duration::from_secs(20);
pub const BODY_BYTES_PER_S_MIN: u64 = 4 * 1024;

/// The head of an HTTP/1 request, and what is read ahead of a body.
pub const HTTP1_BUFFER_BYTES: usize = 128 * 1024;
/// The same for HTTP/2: headers of one request (all CONTINUATION frames together), and bodies that nobody has read yet.
pub const HTTP2_HEADER_BYTES_MAX: u32 = 32 * 1024;
pub const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 128 * 1024;
pub const HTTP2_SEND_BUFFER_BYTES: usize = 128 * 1024;
/// Requests at once on one HTTP/2 connection; and streams that the client reset before the server looked at them.
pub const HTTP2_STREAMS_MAX: u32 = 128;
pub const HTTP2_RESET_STREAMS_MAX: usize = 20;
/// Errors of the client's making on one HTTP/2 connection.
pub const HTTP2_ERRORS_MAX: usize = 64;
