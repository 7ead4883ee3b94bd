//! Every limit of this crate, in one place. Units are last in the names; the values are Azure's
//! where Azure has one.

/// Longest blob name, in characters.
pub const NAME_CHARS_MAX: usize = 1_024;
/// Longest path below the container that a blob name may lead to. The system's own limit is 4096.
pub const PATH_BYTES_MAX: usize = 3_500;
/// Longest part of an escaped name in one file name; longer segments go on in a folder. The
/// system's own limit is 255.
pub const FILE_NAME_BYTES_MAX: usize = 200;
/// Largest blob that one upload may make.
pub const BLOB_BYTES_MAX: u64 = 5_000 * 1024 * 1024;
/// Largest block.
pub const BLOCK_BYTES_MAX: u64 = 4_000 * 1024 * 1024;
/// Longest block id, before base64.
pub const BLOCK_ID_BYTES_MAX: usize = 64;
/// Most blocks of one blob.
pub const BLOCKS_MAX: usize = 50_000;
/// Blocks that were never committed are forgotten after this time.
pub const BLOCK_AGE_MS_MAX: i64 = 7 * 86_400 * 1_000;
/// Names and values of a blob's metadata together.
pub const METADATA_BYTES_MAX: usize = 8 * 1_024;
/// Most entries of one page of a listing.
pub const LIST_RESULTS_MAX: usize = 5_000;
/// Largest blob that is packed with others; one that grows beyond it gets a file of its own. Each append
/// writes the packed bytes anew, so this also bounds what an append costs.
pub const PACKED_BYTES_MAX: u64 = 16 * 1_024;
/// Packed blobs that are listed or removed in one go; appends wait that long and no longer.
pub const PACKED_ROWS_AT_ONCE: u16 = 500;
/// Memory for pages of the packed blobs.
pub const PACKED_CACHE_KB: u32 = 4 * 1_024;
/// Pages in the write-ahead log of the packed blobs at which they are carried over into the main file.
pub const PACKED_CHECKPOINT_PAGES: u32 = 1_000;
/// Disk that is set aside for that log: somewhat more than those pages. Of a small disk at most one part in so many.
pub const PACKED_WAL_BYTES: u64 = 5 * 1024 * 1024;
pub const PACKED_WAL_DISK_SHARE: u64 = 64;
/// Longest unfinished line for which a growing log waits; beyond it, what there is is served.
pub const LINE_BYTES_MAX: u64 = 1024 * 1024;
/// Attempts of one job whose place in the log is remembered.
pub const LOG_ATTEMPTS_MAX: usize = 10_000;
/// Ranks of one job that can have a log of their own; what others say is in the merged log.
pub const LOG_RANKS_MAX: u32 = 16_384;
/// A longer line of one rank is cut in the merged log.
pub const MERGED_LINE_BYTES_MAX: usize = 64 * 1_024;
/// Job logs whose index is kept in memory; the rest are read again from their files.
pub const LOG_INDEXES_IN_MEMORY_MAX: usize = 4_096;
/// Bytes of an upload between two looks at the free space of the disk.
pub const FREE_CHECK_BYTES: u64 = 4 * 1024 * 1024;
/// Containers that a refusal for lack of room names, the largest first.
pub const HOLDERS_TOLD_MAX: usize = 3;
/// Longest time for which a signed URL may be made.
pub const SAS_LIFETIME_S_MAX: i64 = 366 * 86_400;
/// Redirects that are followed for data on the web; each is checked like the first address.
pub const ELSEWHERE_REDIRECTS_MAX: usize = 5;
/// Longest time that one request elsewhere may take with all of its content. Silence ends it much sooner.
pub const ELSEWHERE_REQUEST_MAX: std::time::Duration = std::time::Duration::from_secs(6 * 3_600);
/// Longest time that one page of a listing elsewhere may take, over all requests for it.
pub const ELSEWHERE_LISTING_MAX: std::time::Duration = std::time::Duration::from_secs(120);
/// Largest answer elsewhere that is held in memory: a page of a listing, a token, an error.
pub const ELSEWHERE_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
