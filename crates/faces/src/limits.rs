//! Every limit of the faces, by name.

/// Bytes of one request body on the control plane (blob uploads have their own).
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The same for what workers of a parallel job say: lists of files, rows of results.
pub const PARALLEL_BODY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// All of these bodies at a time, in MiB, and how long one may take to come.
pub(crate) const PARALLEL_BODIES_MIB_MAX: u32 = 600;
pub(crate) const PARALLEL_BODY_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(300);
/// How soon a worker that has nothing to do asks again.
pub const PARALLEL_ASK_AGAIN_MS: u64 = 300;
/// Verified bearer tokens remembered until they expire.
pub const VERIFIED_TOKENS_MAX: usize = 4_096;
/// (caller, run) pairs remembered for the first look at an ended run.
pub const LOG_READERS_MAX: usize = 8_192;
/// A run that ended longer ago than this answers its final status at once.
pub const ENDED_MOMENTS_AGO_MS: u64 = 5 * 60 * 1_000;
/// Signed URLs and short-lived secrets hold this long.
pub const SIGNED_URL_TTL_S: i64 = 3_600;
/// Rows of one page of a list.
pub const PAGE_ROWS: usize = 100;
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Rows looked at for one page when a filter (tag, property) drops most of them.
pub const PAGE_SCAN_ROWS_MAX: usize = 10_000;
/// Nodes answered by one call.
pub const NODES_MAX: usize = 10_000;
/// How soon a client may ask again for an operation that goes on.
pub const POLL_AGAIN_MS: &str = "200";
/// An `MLTable` file is read so far when a job is submitted.
pub const MLTABLE_BYTES_MAX: usize = 256 * 1024;
/// Bytes sent in one piece of a followed log.
pub const LOG_CHUNK_BYTES: u64 = 64 * 1024;
/// Jobs that one search writes down as runs, and how many of them at once; others are runs when they are asked for.
pub const JOBS_CAUGHT_UP_MAX: usize = 10_000;
pub const JOBS_CAUGHT_UP_AT_ONCE: u32 = 500;
/// Entries of one folder of a run's files that are listed.
pub const ARTIFACTS_LISTED_MAX: usize = 50_000;
/// Nesting of template expressions.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Function calls and values that one template may take to evaluate, and the bytes that they read and make on the way, each
/// intermediate text counted.
pub const EXPRESSION_STEPS_MAX: usize = 100_000;
pub const EXPRESSION_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A value in memory takes up to this many times its JSON text.
pub(crate) const EXPRESSION_JSON_FACTOR: usize = 16;
/// The sections of a template, and the characters of a resource's type and name, as Azure has them.
pub(crate) const TEMPLATE_RESOURCES_MAX: usize = 800;
pub(crate) const TEMPLATE_PARAMETERS_MAX: usize = 256;
pub(crate) const TEMPLATE_VARIABLES_MAX: usize = 256;
pub(crate) const TEMPLATE_OUTPUTS_MAX: usize = 64;
pub(crate) const TEMPLATE_NAME_BYTES_MAX: usize = 1_024;
/// What the steps of one pipeline may take once its components are filled in, and how much is told of what is wrong with it.
pub(crate) const PIPELINE_BYTES_MAX: usize = 64 * 1024 * 1024;
pub(crate) const PIPELINE_PROBLEMS_MAX: usize = 1_000;
/// What `usages` answers where no quota is set: clients want a number.
pub const NO_LIMIT: i64 = i32::MAX as i64;
/// Ranks whose logs are listed; all of them are among the job's artifacts.
pub const LOG_FILES_MAX: u32 = 1_024;
/// Services of one job, and characters of the name of one.
pub const SERVICES_MAX: usize = 16;
pub const SERVICE_NAME_CHARS_MAX: usize = 63;
/// A link to a service may be followed for this long, once; then a cookie holds for so long, and longer while it is used.
pub const SERVICE_LINK_S: i64 = 60;
pub const SERVICE_COOKIE_S: i64 = 3_600;
/// Links that nobody has followed yet.
pub const SERVICE_LINKS_MAX: usize = 1_024;
/// Clusters whose rule for containers is remembered.
pub(crate) const CLUSTER_RULES_MAX: usize = 4_096;
/// Batch endpoints of one workspace, deployments of one endpoint, and the characters of their names, as Azure has them.
pub(crate) const BATCH_ENDPOINTS_MAX: usize = 1_000;
pub(crate) const BATCH_DEPLOYMENTS_MAX: usize = 100;
pub(crate) const BATCH_ENDPOINT_NAME_CHARS_MIN: usize = 3;
pub(crate) const BATCH_NAME_CHARS_MAX: usize = 32;
/// Characters of the id by which a client repeats a call.
pub(crate) const REPEATABILITY_ID_CHARS_MAX: usize = 64;
/// Why a change was made: a ticket, or a few sentences.
pub(crate) const CHANGE_REFERENCE_CHARS_MAX: usize = 1_000;

/// Jobs of a queue that are shown: unless said otherwise, and at most. Of the first ones it is said what they lack.
pub(crate) const QUEUE_SHOWN: usize = 100;
pub(crate) const QUEUE_SHOWN_MAX: usize = 10_000;
pub(crate) const EXPLAINED_JOBS: usize = 3;

/// How long processes have when a node is taken back on somebody's word, unless they say otherwise; and the most they may say.
pub(crate) const EVICTION_GRACE_S: f64 = 30.0;
pub(crate) const EVICTION_GRACE_S_MAX: f64 = 3_600.0;
/// Estimates for those who wait: how long they are kept, how soon they are made anew for a job that came since, and how much
/// work they may be. Places in a queue are counted no further than this.
pub(crate) const ESTIMATES_KEPT_MS: u64 = 3_000;
pub(crate) const ESTIMATES_APART_MS: u64 = 300;
pub(crate) const ESTIMATES_STEPS_MAX: usize = 20_000;
pub(crate) const ESTIMATES_US_MAX: u64 = 150_000;
pub(crate) const PLACES_COUNTED_MAX: usize = 10_000;
pub(crate) const UNKNOWN_JOBS_TOLD: usize = 3;
/// The same of one plan, which is forecast twice; jobs whose ends are waited for, and jobs that are told to start later.
pub(crate) const PLAN_STEPS_MAX: usize = 1_000_000;
pub(crate) const PLAN_US_MAX: u64 = 4_000_000;
pub(crate) const PLAN_JOBS_MAX: usize = 10_000;
pub(crate) const PLAN_MOVED_TOLD: usize = 50;
/// How long what lies elsewhere may take to answer when a job is submitted, and how many entries of a folder are looked at.
pub(crate) const PREFLIGHT_MS: u64 = 3_000;
pub(crate) const PREFLIGHT_ENTRIES_MAX: usize = 1_000;
/// Changes that a comparison of two times lists; the rest are counted.
pub const DIFF_ROWS_MAX: usize = 1_000;

/// Of a family that was just submitted, so many members are looked at for data that lies elsewhere.
pub(crate) const MEMBERS_WARNED_OF_MAX: usize = 200;

/// Clusters whose past is run again for one question, and jobs of each.
pub(crate) const WASTE_CLUSTERS_MAX: usize = 50;
pub(crate) const WASTE_JOBS_MAX: usize = 20_000;
/// Deployments of one endpoint that are looked at for what hangs on a cluster.
pub(crate) const DEPENDENTS_LOOKED_AT_MAX: u32 = 1_000;
/// Jobs of a cluster whose times are looked at for advice on its idle time, and the fewest that say something.
pub(crate) const ADVICE_JOBS_LOOKED_AT: u32 = 200;
pub(crate) const ADVICE_JOBS_MIN: usize = 10;
