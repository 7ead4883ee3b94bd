//! Every limit of environments, by name.

/// A build that takes longer is ended, and has failed.
pub(crate) const BUILD_MS_MAX: u64 = 3_600_000;
/// How often those who wait for another's build look.
pub(crate) const WAIT_ROUND_MS: u64 = 100;
/// Log of another's build is read in pieces of this size.
pub(crate) const LOG_PIECE_BYTES: usize = 64 * 1024;
/// How long an engine may take to answer a question.
pub(crate) const ENGINE_ANSWER_S_MAX: u64 = 20;
/// After this long an engine is looked for again, whether there was one or not.
pub(crate) const ENGINE_KNOWN_MS: u64 = 10_000;
/// An image that could not be had is not asked for again this soon.
pub(crate) const IMAGE_ABSENT_MS: u64 = 60_000;
/// How often containers are listed while they are removed.
pub(crate) const REMOVALS_MAX: usize = 5;
/// A container whose output has ended is looked at this often until it has.
pub(crate) const END_ROUND_MS: u64 = 20;
/// Files of a build context, and their bytes.
pub(crate) const CONTEXT_ENTRIES_MAX: usize = 200_000;
pub(crate) const CONTEXT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Archives are sent to the engine in pieces of this size.
pub(crate) const ARCHIVE_PIECE_BYTES: usize = 256 * 1024;
/// Removing what an engine keeps of a node that is gone holds its jobs up no longer than this.
pub(crate) const REMOVAL_S_MAX: u64 = 10;
/// How often in a row an engine's answer about a container may be in words that are not known.
pub(crate) const UNREADABLE_MAX: u32 = 500;
/// Files, folders and links of one built environment. A build that makes more has failed.
pub(crate) const ENVIRONMENT_ENTRIES_MAX: usize = 2_000_000;
/// The longest version of Python that a build may report.
pub(crate) const VERSION_BYTES_MAX: usize = 32;
