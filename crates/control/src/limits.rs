//! Every limit of the control plane's driver, by name.

use std::time::Duration;

/// Inputs that share one commit.
pub const BATCH_INPUTS_MAX: usize = 2_048;
/// How long a node certificate lasts; the agent renews when two thirds of it have passed.
pub const NODE_CERTIFICATE_S: i64 = 24 * 3600;
/// A join token is for a node that is being made now.
pub const JOIN_TOKEN_S: i64 = 600;
/// The longest time for which one lease renewal keeps an attempt's signed URLs valid. A shorter lease means a shorter time.
pub const URL_PASS_MS_MAX: u64 = 10 * 60_000;
/// The longest that a job's token for its metrics holds: the longest job Azure allows, and a day. The server refuses it
/// earlier, as soon as its attempt is over.
pub const RUN_TOKEN_S: i64 = 22 * 24 * 3600;
/// Frames that may wait for a slow agent before its connection is dropped.
pub const SESSION_FRAMES_MAX: usize = 65_536;
/// Reports of one agent that wait for the ledger; while there are as many, nothing more is read from it.
pub const SESSION_REPORTS_MAX: usize = 4_096;
/// Facts in one report of an agent that are kept, and the bytes of each text in it.
pub const FACTS_MAX: usize = 128;
pub const TEXT_BYTES_MAX: usize = 16 * 1024;
/// How long an agent may take to read what is sent to it.
pub const SESSION_WRITE: Duration = Duration::from_secs(60);
/// How long an agent has to show its join token or say hello.
pub const INTRODUCTION: Duration = Duration::from_secs(20);
/// A welcomed agent that says nothing for this many leases, and for at least this long, is disconnected.
pub const SILENT_LEASES: u64 = 3;
pub const SILENT_MIN: Duration = Duration::from_secs(60);
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
