//! Every limit of the control plane's driver, by name.

/// Inputs that share one commit.
pub const BATCH_INPUTS_MAX: usize = 2_048;
/// How long a node certificate lasts; the agent renews when two thirds of it have passed.
pub const NODE_CERTIFICATE_S: i64 = 24 * 3600;
/// A join token is for a node that is being made now.
pub const JOIN_TOKEN_S: i64 = 600;
/// How long an attempt's signed URLs last: the longest job Azure allows, and a day.
pub const ATTEMPT_SAS_S: i64 = 22 * 24 * 3600;
/// The longest that a job's token for its metrics holds, as for its URLs; it is refused earlier when its attempt is over.
pub const RUN_TOKEN_S: i64 = ATTEMPT_SAS_S;
/// Frames that may wait for a slow agent before its connection is dropped.
pub const SESSION_FRAMES_MAX: usize = 65_536;
/// After a failed commit the same news is offered again after this.
pub const RETRY_COMMIT_MS: u64 = 500;
/// Margin on top of a lease before its work may run elsewhere: the agent counted from an earlier moment.
pub const LEASE_MARGIN_MS: u64 = 2_000;
/// How long a stop may take beyond its grace before the server ends anyway.
pub const SHUTDOWN_MARGIN_MS: u64 = 60_000;
/// A removal that the provider could not do is tried again after this.
pub const RETRY_REMOVE_MS: u64 = 5_000;
/// How often the provider's list is searched for nodes that nobody knows.
pub const SWEEP_MS: u64 = 60_000;
/// Label sets of one family of metrics; what is beyond is not recorded.
pub const SERIES_MAX: usize = 10_000;
/// Spans that wait for the exporter.
pub const SPANS_MAX: usize = 4_096;
/// Jobs whose submitting request is remembered for their attempts' spans.
pub const TRACED_JOBS_MAX: usize = 10_000;
/// Notices of alerts that wait for a receiver that does not answer; the oldest go first.
pub const NOTICES_MAX: usize = 1_000;
/// Of one cluster's nodes that were taken back, so many of the last are counted.
pub const EVICTIONS_COUNTED_MAX: usize = 1_000;
/// While the disk is full, it is looked at this often for room.
pub const FULL_DISK_LOOK_MS: u64 = 500;
/// A failed commit counts as the ledger's state for this long.
pub const COMMIT_FAILURE_FRESH_MS: u64 = 30_000;
/// Streams to services of jobs that are open at once.
pub const SERVICE_STREAMS_MAX: usize = 1_024;
/// How long a node has to open one.
pub const SERVICE_STREAM_S: u64 = 10;
/// Services of one attempt on one node that are remembered.
pub const SERVICES_TOLD_MAX: usize = 64;
/// Versions of an asset that are looked at for its next number.
pub const VERSIONS_LOOKED_AT_MAX: u32 = 10_000;
/// GPUs of one node that are remembered.
pub const NODE_GPUS_MAX: usize = 256;
/// Times in the past that are kept made, and records that are replayed for one.
pub const MOMENTS_KEPT: usize = 2;
pub const PAST_RECORDS_MAX: u64 = 5_000_000;
