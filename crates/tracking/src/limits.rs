//! Every limit of what runs may tell, by name. Where MLflow has a limit, it is MLflow's.

/// Points of all metrics of one run.
pub const POINTS_PER_RUN_MAX: u64 = 2_000_000;
/// Names of metrics of one run.
pub const METRICS_PER_RUN_MAX: u32 = 10_000;
/// Parameters of one run.
pub const PARAMS_PER_RUN_MAX: u32 = 10_000;
/// Tags of one run, experiment or model.
pub const TAGS_MAX: u32 = 1_000;
/// Dataset inputs of one run.
pub const DATASETS_PER_RUN_MAX: u32 = 1_000;
/// Models that one run names as its inputs and outputs.
pub const MODELS_PER_RUN_MAX: u32 = 1_000;
/// Metrics in one batch.
pub const METRICS_PER_BATCH_MAX: usize = 1_000;
/// Parameters in one batch.
pub const PARAMS_PER_BATCH_MAX: usize = 100;
/// Tags in one batch.
pub const TAGS_PER_BATCH_MAX: usize = 100;
/// Everything in one batch.
pub const ENTRIES_PER_BATCH_MAX: usize = 1_000;
/// Name of a metric, parameter or tag.
pub const KEY_BYTES_MAX: usize = 250;
/// Value of a parameter.
pub const PARAM_BYTES_MAX: usize = 6_000;
/// Value of a tag.
pub const TAG_BYTES_MAX: usize = 8_000;
/// The record of the models of a run that older clients keep in a tag; the oldest go first.
pub const MODEL_HISTORY_BYTES_MAX: usize = 256 * 1_024;
/// Name of an experiment.
pub const EXPERIMENT_NAME_BYTES_MAX: usize = 500;
/// Name of a run.
pub const RUN_NAME_BYTES_MAX: usize = 250;
/// Schema or profile of a dataset.
pub const DATASET_TEXT_BYTES_MAX: usize = 1_048_576;
/// Experiments of one workspace.
pub const EXPERIMENTS_MAX: u32 = 20_000;
/// Runs of one workspace that are no jobs.
pub const PLAIN_RUNS_MAX: u32 = 1_000_000;
/// Logged models of one workspace.
pub const MODELS_MAX: u32 = 100_000;
/// Runs, experiments or models of one page. Whoever asks for more gets a token for the rest.
pub const PAGE_ROWS_MAX: u32 = 1_000;
/// Points of one page of a metric's history.
pub const PAGE_POINTS_MAX: u32 = 25_000;
/// Conditions of one filter.
pub const CONDITIONS_MAX: usize = 50;
/// Columns to order by.
pub const ORDERS_MAX: usize = 20;
/// Longest filter.
pub const FILTER_BYTES_MAX: usize = 16 * 1_024;
/// Longest pattern of a `LIKE`: the time to match it grows with its length times that of what it is matched with.
pub const LIKE_BYTES_MAX: usize = 500;
/// Values of one `IN (…)`.
pub const LIST_VALUES_MAX: usize = 1_000;
/// Experiments in which one search looks.
pub const SEARCHED_EXPERIMENTS_MAX: usize = 1_000;
/// Memory for pages of the writer and of each reader.
pub const WRITER_CACHE_KB: u32 = 8 * 1_024;
pub const READER_CACHE_KB: u32 = 2 * 1_024;
/// Connections that wait for the next question.
pub const READERS_KEPT: usize = 8;
/// How long a reader waits for a lock of the file.
pub const BUSY_TIMEOUT_MS: u64 = 5_000;
/// Pages in the write-ahead log at which they are carried over into the main file, and what is kept of it then.
pub const CHECKPOINT_PAGES: u32 = 2_000;
pub const WAL_BYTES_KEPT: u64 = 16 * 1_024 * 1_024;
/// Prepared statements kept by each connection.
pub const STATEMENTS_KEPT: usize = 64;
