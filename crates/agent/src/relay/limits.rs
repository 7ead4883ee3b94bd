//! Limits of what the agent serves inside an attempt's network. All are for one attempt on one node.

use std::time::Duration;

/// Connections to the server at once. More wait in the kernel's queue.
pub(crate) const CONNECTIONS_MAX: usize = 256;
/// Places outside that an attempt gets: the server, and what a build needs.
pub(crate) const FORWARDS_MAX: usize = 12;
/// Bytes of a connection that are on their way, in each direction.
pub(crate) const CHUNK_BYTES: usize = 32 * 1024;
/// A connection on which nothing moves for this long ends.
pub(crate) const IDLE: Duration = Duration::from_secs(600);
/// How long connecting to the server may take.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// Questions about names at once. More are dropped; resolvers ask again.
pub(crate) const QUESTIONS_MAX: usize = 64;
/// Connections about names at once.
pub(crate) const NAME_CONNECTIONS_MAX: usize = 8;
/// A connection about names on which nothing moves for this long ends.
pub(crate) const NAME_IDLE: Duration = Duration::from_secs(20);
/// The longest question. Real ones are a few hundred bytes.
pub(crate) const QUESTION_BYTES_MAX: usize = 4096;
/// The longest answer: what a datagram can hold.
pub(crate) const ANSWER_BYTES_MAX: usize = 65_535;
/// How long one resolver has for its answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(3);
/// Resolvers that are asked, one after the other; libc asks no more either.
pub(crate) const RESOLVERS_MAX: usize = 3;
/// Bytes of the machine's `resolv.conf` and `hosts` that are read.
pub(crate) const FILE_BYTES_MAX: u64 = 256 * 1024;
/// After accepting has failed (no descriptors left), it is tried again this much later.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
