//! Every limit of the pure machine, by name. A limit that is met is refused in words; see the tests beside use.

/// Events that one planning pass may add to a batch; the rest stays dirty for the next.
pub const PLAN_EVENTS_MAX: usize = 4_096;

pub const CLUSTER_NAME_CHARS_MIN: usize = 3;
pub const CLUSTER_NAME_CHARS_MAX: usize = 24;
pub const WORKSPACE_NAME_CHARS_MIN: usize = 2;
pub const WORKSPACE_NAME_CHARS_MAX: usize = 33;
pub const RESOURCE_GROUP_NAME_CHARS_MAX: usize = 90;
pub const JOB_NAME_CHARS_MAX: usize = 255;

/// Azure's own ceiling on the nodes of one cluster.
pub const CLUSTER_NODES_MAX: u32 = 65_000;
/// A year: an idle time beyond it is surely a mistake of unit.
pub const IDLE_TIME_S_MAX: u64 = 366 * 24 * 3600;
/// Jobs that may wait on one cluster.
pub const QUEUE_LENGTH_MAX: usize = 2_000_000;
/// Members of one family at a time, and how deep families lie within families.
pub const FAMILY_MEMBERS_MAX: usize = 10_000;
pub const FAMILY_DEPTH_MAX: usize = 16;
/// Schedules of one workspace, the characters of a name (jobs are called after it), and the firings that are kept.
pub const SCHEDULES_PER_WORKSPACE_MAX: usize = 1_000;
pub const SCHEDULE_NAME_CHARS_MAX: usize = 200;
pub const SCHEDULE_FIRINGS_KEPT: usize = 10;
/// Windows on one cluster's scale, and the spans of each that are worked out ahead.
pub const WINDOWS_PER_CLUSTER_MAX: usize = 32;
pub const WINDOW_SPANS_KEPT: usize = 64;
/// Requests for more quota that wait for an answer, and answered ones that are kept.
pub const QUOTA_REQUESTS_OPEN_MAX: usize = 1_000;
pub const QUOTA_REQUESTS_KEPT: usize = 1_000;
pub const LOCKS_MAX: usize = 10_000;
pub const LOCK_NAME_CHARS_MAX: usize = 90;
/// What was used counts half as much after this long, when it is said whose turn it is.
pub const SHARE_HALF_LIFE_MS: u64 = 24 * 3600 * 1000;
/// What is charged in advance when something is placed.
pub const SHARE_ADVANCE_MS: u64 = 60_000;
/// Jobs behind the first that cannot be placed that are looked at for going before it.
pub const BACKFILL_LOOKED_AT_MAX: usize = 100;
pub const ALLOWANCES_MAX: usize = 10_000;
/// Beside the grace of the processes and as much again for storing what they leave, a node that is taken back has this
/// long for the word to come back.
pub const PREEMPT_MARGIN_MS: u64 = 5_000;
/// Moments of one run of the past with another setting; what has more is left off, and says so.
pub const RERUN_STEPS_MAX: u64 = 500_000;
/// How long the processes on a low-priority node have when dedicated work takes it back.
pub const RECLAIM_GRACE_MS: u64 = 30_000;
pub const BUDGETS_MAX: usize = 1_000;
pub const BUDGET_NAME_CHARS_MAX: usize = 90;
pub const BUDGET_THRESHOLDS_MAX: usize = 10;
/// A billion dollars: more is surely a mistake of unit.
pub const BUDGET_MICRO_USD_MAX: u64 = 1_000_000_000 * 1_000_000;
/// Periods of a budget whose figures are kept.
pub const BUDGET_PERIODS_KEPT: usize = 13;
/// How long a node may go on under a money lease before it is renewed: where there is plenty, where there is not, and at
/// the last.
pub const LEASE_TERM_LONG_MS: u64 = 600_000;
pub const LEASE_TERM_SHORT_MS: u64 = 60_000;
pub const LEASE_TERM_LEAST_MS: u64 = 10_000;
/// A node that never hears of the server ends itself within this (the agent's limit, and a margin).
pub const BOOT_BOUND_MS: u64 = 150_000;
/// Of how long things took: spans that are kept of a kind, how many are enough to go by, and kinds of jobs.
pub const HISTORY_SAMPLES_KEPT: usize = 64;
pub const HISTORY_SAMPLES_ENOUGH: usize = 5;
pub const HISTORY_CLASSES_MAX: usize = 4_096;
/// Submissions to a cluster that are kept, to go by for those that will come.
pub const HISTORY_ARRIVALS_KEPT: usize = 512;
/// Of two days at the same time, things happen up to so much sooner or later.
pub const ARRIVALS_JITTER_MS: u64 = 30 * 60 * 1000;
pub const ARRIVALS_PERIOD_MS: u64 = 24 * 3600 * 1000;
/// How far ahead a forecast looks, in time, in steps of one course, and in moments of a timeline that are told.
pub const FORECAST_HORIZON_MS: u64 = 30 * 24 * 3600 * 1000;
pub const FORECAST_STEPS_MAX: usize = 200_000;
pub const FORECAST_MOMENTS_MAX: usize = 500;
/// Courses that are drawn to say how certain a forecast is: a prime, so that each draws from every part of a sample; and
/// the fewest, where there is much to forecast.
pub const FORECAST_COURSES: u32 = 31;
pub const FORECAST_COURSES_MIN: u32 = 5;
/// Lost attempts after which a job is failed instead of tried again.
pub const ATTEMPTS_LOST_MAX: u32 = 10;
/// What a job may ask for in `resources.properties.neap.retry`: tries for each cause, and exit codes.
pub const RETRIES_MAX: u32 = 1_000;
pub const RETRY_EXIT_CODES_MAX: usize = 64;
/// Attempts that may fail to be prepared for reasons of the system before the job fails.
pub const ATTEMPTS_UNPREPARED_MAX: u32 = 3;
/// Boot failures are waited out twice as long each time, up to this.
pub const BOOT_BACKOFF_MS_MAX: u64 = 60_000;
pub const BOOT_BACKOFF_MS_MIN: u64 = 1_000;
/// Heartbeats of all nodes together: with more nodes than that allows, each sends fewer.
pub const HEARTBEATS_PER_S_MAX: u64 = 4_000;
/// However many nodes there are, a lease is this many heartbeats long.
pub const HEARTBEATS_PER_LEASE_MIN: u64 = 8;
/// Where heartbeats are slower than configured, a node counts as silent after this many.
pub const HEARTBEATS_MISSED_MAX: u64 = 4;
/// Tags or properties on one resource, and their sizes, as Azure has them.
pub const TAGS_MAX: usize = 50;
pub const TAG_KEY_CHARS_MAX: usize = 512;
pub const TAG_VALUE_CHARS_MAX: usize = 1_000;
/// Properties of one resource and their values: clients keep more in them than people write in tags.
pub const PROPERTIES_MAX: usize = 100;
pub const PROPERTY_VALUE_CHARS_MAX: usize = 8_000;
/// What people write on a resource.
pub const DISPLAY_NAME_CHARS_MAX: usize = 256;
pub const DESCRIPTION_CHARS_MAX: usize = 5_000;
pub const EXPERIMENT_NAME_CHARS_MAX: usize = 256;
/// Bytes of one document (a job's definition, a cluster's).
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// Smallest share of a node that a job may ask for.
pub const SHARE_CPUS_MILLI_MIN: u32 = 10;
/// A job whose GPUs worked less than this, on average over at least so long, is told so.
pub const GPU_HINT_BELOW_PERCENT: u64 = 50;
pub const GPU_HINT_SECONDS_MIN: u64 = 30;
/// Longest value of a secret: an environment variable of Linux holds 128 KiB with its name.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Longest name of a secret.
pub const SECRET_NAME_CHARS_MAX: usize = 127;
/// Secrets of one workspace.
pub const SECRETS_PER_WORKSPACE_MAX: usize = 1_000;
