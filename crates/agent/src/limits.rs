//! Every limit on what a job leaves in its folders, by name. Those of environments are in `environment/limits.rs`.

/// Folders may be nested this deep where the agent walks through them, or makes them. What is deeper fails the job.
pub(crate) const DEPTH_MAX: usize = 100;
/// The longest path below an attempt's folder that the agent works with. The kernel takes 4,095 bytes.
pub(crate) const PATH_BYTES_MAX: usize = 4_000;
/// Files, folders and links of all outputs of one attempt.
pub(crate) const OUTPUT_ENTRIES_MAX: usize = 500_000;
/// Files, folders and links of one checkpoint. One with more is not kept, and not restored.
pub(crate) const CHECKPOINT_ENTRIES_MAX: usize = 20_000;
/// The longest checkpoint record that is read.
pub(crate) const CHECKPOINT_RECORD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The longest `MLTable` file that is read.
pub(crate) const TABLE_BYTES_MAX: usize = 1024 * 1024;
