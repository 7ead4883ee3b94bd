//! Every limit of the ledger, by name.

/// Events between two snapshots, unless the options say otherwise: what a start may have to replay.
pub const SNAPSHOT_EVERY_EVENTS: u64 = 20_000;
/// Snapshots kept: the newest, and one to fall back on.
pub const SNAPSHOTS_KEPT: usize = 2;
/// Bytes the write-ahead log is cut back to once it has been carried over.
pub const WAL_BYTES_KEPT: u64 = 64 * 1024 * 1024;
/// Pages in the write-ahead log at which they are carried over into the main file.
pub const WAL_CHECKPOINT_PAGES: u32 = 4_000;
/// How long a connection waits for another one's lock.
pub const BUSY_TIMEOUT_MS: u64 = 5_000;
/// Memory for pages: of the writer, and of each reading connection.
pub const WRITER_CACHE_KB: u32 = 8 * 1024;
pub const READER_CACHE_KB: u32 = 1024;
/// Reading connections kept open between calls.
pub const READERS_KEPT: usize = 4;
/// Prepared statements kept by a connection: more than there are kinds of event.
pub const STATEMENTS_KEPT: usize = 96;
/// Documents written lately and kept in memory; one larger than a sixteenth of it is not.
pub const RECENT_DOCUMENTS_BYTES: usize = 4 * 1024 * 1024;
/// Records read at a time by the check of the older chain and by verify, so that neither holds the write-ahead log.
pub const CHECK_CHUNK_RECORDS: u64 = 2_000;
/// Of a state's size: so many events of a replay lie between two looks at all of it.
pub const SCAN_SHARE: usize = 16;
/// Findings that a verify lists; the rest are counted.
pub const FINDINGS_MAX: usize = 100;
/// Below this much free space, an input/output error is taken for a full disk.
pub const FULL_DISK_BYTES: u64 = 1024 * 1024;
/// Rows of one listing.
pub const LIST_ROWS_MAX: u32 = 10_000;
/// What the log sets aside of its disk, unless the configuration says otherwise.
pub const RESERVE_BYTES: u64 = 64 * 1024 * 1024;
/// Of a small disk at most one part in this many.
pub const RESERVE_DISK_SHARE: u64 = 16;
/// Looks at the free space between two checks that the write-ahead log still has its blocks.
pub const RESERVE_LOOKS_PER_CHECK: u32 = 256;
/// Pages in the write-ahead log at which they are carried over while the reserve is in use: it must not grow then.
pub const RESERVE_CHECKPOINT_PAGES: u32 = 64;
/// How many of the newest documents are looked through, at the start, for one that shows whether the key fits.
pub const SEAL_CHECK_ROWS: i64 = 1_000;
