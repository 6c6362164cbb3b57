//! glibc's malloc: its chunks, its free lists, and the memory that malloc_trim() would return.

pub(crate) mod bins;
pub(crate) mod chunks;
pub(crate) mod fit;
pub(crate) mod free_links;
pub(crate) mod listing;
pub(crate) mod lists;
pub(crate) mod locate;
pub(crate) mod mapped_chunks;
pub(crate) mod numbers;
pub(crate) mod running;
pub(crate) mod trim;
pub(crate) mod walk;

pub use bins::{follow_bins, least_sizes, Bins};
pub use chunks::{ChunkState, Chunks, Hole, RegionTotals, Stretch, CHUNK_HEADER, STATES};
pub use fit::{find_fits, Fit};
pub use listing::{count_sizes, held_chunks, list_chunks, ChunkFilter, Counts, ListedChunk};
pub use lists::sum_lists;
pub use locate::{find_extents, find_fenced, find_mmapped, MmappedStyle};
pub use mapped_chunks::MappedChunks;
pub use running::{look_at_arena, FreeLists, RunningArena, StateLayout};
pub use trim::{released, trim_chunks, PageSum, RegionTrim};
pub use walk::{walk_chunks, CacheList};
