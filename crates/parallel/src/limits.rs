//! Every limit of parallel jobs, by name.

/// Nodes of one parallel job.
pub const INSTANCES_MAX: u64 = 1_000;
/// Processes on one node.
pub const CONCURRENCY_MAX: u64 = 1_024;
/// Azure's own: seconds for one mini-batch.
pub const TIMEOUT_S_MAX: u64 = 259_200;
pub const TIMEOUT_S_DEFAULT: u64 = 60;
pub const RETRIES_DEFAULT: u64 = 2;
pub const RETRIES_MAX: u64 = 1_000;
/// Files of the input.
pub const FILES_MAX: usize = 500_000;
/// Of a table: how large a mini-batch is unless it is said.
pub const TABLE_BYTES_DEFAULT: u64 = 1024 * 1024;
/// Bytes kept of what went wrong with one mini-batch.
pub const ERROR_BYTES_MAX: usize = 4_096;
/// Mini-batches that one worker is given at once.
pub const GIVEN_MAX: u32 = 1_024;
/// How long a writer waits for another.
pub const BUSY_TIMEOUT_MS: u64 = 10_000;
/// Bytes of the name of one file.
pub const FILE_NAME_BYTES_MAX: usize = 255;
