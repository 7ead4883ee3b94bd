//! Every limit of sweeps, by name. What is over one is refused in words when the sweep is read.

/// Azure's own ceiling, and the default.
pub const TRIALS_TOTAL_MAX: u32 = 1_000;
pub const TRIALS_CONCURRENT_MAX: u32 = 1_000;
/// Sixty days, Azure's default for a whole sweep.
pub const TIMEOUT_S_DEFAULT: u64 = 5_184_000;
pub const TIMEOUT_S_MAX: u64 = 366 * 24 * 3600;

pub const PARAMETERS_MAX: usize = 100;
pub const PARAMETER_NAME_CHARS_MAX: usize = 255;
pub const CHOICE_VALUES_MAX: usize = 10_000;
/// Choices within values of choices.
pub const NESTING_MAX: usize = 8;
/// Distributions in a space, those within choices among them.
pub const DIMENSIONS_MAX: usize = 10_000;

/// The first trials, by number, that must all fail before a sweep that never showed a metric is given up.
pub const FIRST_TRIALS_FAILED: u32 = 3;

/// Observations that the bayesian model is made from; cost grows with their cube.
pub const MODEL_OBSERVATIONS_MAX: usize = 150;
/// Observations with a metric before the model is asked at all.
pub const MODEL_OBSERVATIONS_MIN: usize = 3;
/// Trials under way that the model takes into account, the newest.
pub const MODEL_PENDING_MAX: usize = 50;
/// Combinations of a finite space that are all weighed; of larger spaces some are drawn.
pub const MODEL_CANDIDATES_ALL: u64 = 1_000;
/// Parameters up to which each has a length scale of its own.
pub const MODEL_SCALES_MAX: usize = 12;

/// A trial's command once its values are filled in. The system takes no longer argument.
pub const COMMAND_BYTES_MAX: usize = 128 * 1024;
