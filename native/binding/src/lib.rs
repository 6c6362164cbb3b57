//! The core as a module of Python's: thin, one file for each group of classes and functions.
//!
//! What takes long runs without the GIL (watch.rs). Arguments that are records are read from Python's objects by the names
//! of their fields (records.rs); answers are classes with a name for each field (rows.rs).

mod call_stats;
mod claimed;
mod events;
mod following;
mod glibc;
mod graph;
mod heaps;
mod history;
mod memory;
mod memory_use;
mod mimalloc;
mod objects;
mod packed;
mod process;
mod pymalloc;
mod records;
mod rows;
mod stacks;
mod structures;
mod watch;

use pyo3::prelude::*;

macro_rules! classes {
    ($module:ident, $($class:path),* $(,)?) => { $($module.add_class::<$class>()?;)* };
}

macro_rules! functions {
    ($module:ident, $($function:path),* $(,)?) => { $($module.add_function(wrap_pyfunction!($function, $module)?)?;)* };
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Fault", module.py().get_type::<watch::Fault>())?;
    module.add("PRESENT", gdbheap_core::memory::PRESENT)?;
    module.add("SWAPPED", gdbheap_core::memory::SWAPPED)?;
    module.add("ZERO", gdbheap_core::memory::ZERO)?;
    module.add("STATES", gdbheap_core::allocators::glibc::STATES)?;
    classes!(
        module,
        call_stats::CallKinds,
        call_stats::CallsInUse,
        call_stats::CallMoment,
        call_stats::CallResizes,
        call_stats::LifeSpan,
        call_stats::Lives,
        call_stats::CallSize,
        call_stats::CurvePoint,
        call_stats::CallStats,
        claimed::Claimed,
        following::CallSite,
        following::LeftPatch,
        following::CodePatch,
        following::PlaceHit,
        following::Tracepoint,
        following::Follower,
        glibc::RegionTotals,
        glibc::Trimmed,
        glibc::FreePiece,
        glibc::ArenaFit,
        glibc::BinTally,
        glibc::SizeCounts,
        glibc::ListedChunk,
        glibc::ChunkList,
        glibc::TakenList,
        glibc::MappedRow,
        glibc::HeadRun,
        glibc::FreeLists,
        glibc::RunningArena,
        glibc::Chunks,
        glibc::Mapped,
        glibc::Bins,
        graph::GraphNode,
        graph::Edge,
        graph::Referrer,
        graph::NodeBytes,
        graph::LargestBlocks,
        graph::RetainedByType,
        graph::Lost,
        graph::Head,
        graph::Heads,
        graph::Grouped,
        graph::RetainedByGroup,
        graph::HeldBy,
        graph::Targets,
        graph::Graph,
        heaps::LedTo,
        heaps::Heaps,
        events::PythonCalls,
        events::ReplayPlan,
        events::LoadedCode,
        events::PythonCode,
        events::CallStack,
        events::StackShare,
        events::BlockMaker,
        events::StackCaller,
        events::StackMoment,
        events::LiveStacks,
        history::BlockChange,
        history::BlockChanges,
        history::BlockColumns,
        memory::PageRun,
        memory::Residency,
        memory::PointerCount,
        memory::Pages,
        memory::Room,
        memory::Space,
        memory_use::OwnerSum,
        memory_use::CountsOf,
        memory_use::WrittenPages,
        memory_use::Pin,
        memory_use::PinTotals,
        memory_use::Pins,
        memory_use::Copied,
        memory_use::Sweep,
        mimalloc::Segment,
        mimalloc::FoundSegment,
        mimalloc::TaggedHeap,
        mimalloc::PageBlock,
        mimalloc::Miscounted,
        mimalloc::Mimalloc,
        objects::OwnedBuffers,
        objects::TypeRow,
        objects::StoreRow,
        objects::BlockOwner,
        objects::ObjectAt,
        objects::Instance,
        objects::InstanceList,
        objects::AskedSize,
        objects::Slack,
        objects::Estimate,
        objects::DistanceVotes,
        objects::Census,
        packed::Unpacker,
        process::ProcessMemory,
        process::ProcessAccount,
        process::ThreadState,
        process::CallResult,
        process::ThreadLook,
        process::Stop,
        process::Frozen,
        pymalloc::ArenaUse,
        pymalloc::Share,
        pymalloc::Occupied,
        pymalloc::Spread,
        pymalloc::Fill,
        pymalloc::Occupancy,
        pymalloc::ArenaTable,
        pymalloc::Pools,
        rows::Damage,
        rows::Tally,
        rows::Block,
        rows::Hole,
        rows::Released,
        rows::SizeClass,
        rows::Member,
        stacks::Unwinder,
        stacks::Unwound,
        structures::KindRow,
        structures::Structures,
    );
    functions!(
        module,
        following::find_call_sites,
        following::plan_patches,
        following::find_left_patches,
        following::find_tracepoint,
        following::restore_left_patches,
        following::registers_before_trap,
        following::return_from_trap,
        glibc::walk_chunks,
        glibc::follow_bins,
        glibc::least_sizes,
        glibc::count_sizes,
        glibc::list_chunks,
        glibc::find_fits,
        glibc::sum_lists,
        glibc::trim_chunks,
        glibc::find_list_heads,
        glibc::find_mmapped,
        glibc::find_extents,
        glibc::find_fenced,
        glibc::held_chunks,
        glibc::look_at_arena,
        graph::static_types,
        graph::draw_graph,
        graph::draw_blocks,
        events::place_of_stage,
        events::pack_stage,
        events::waiting_stage,
        events::plan_calls,
        events::live_stacks,
        call_stats::call_stats,
        history::list_blocks,
        history::compare_blocks,
        memory::find_initial,
        memory::find_pointer,
        memory::find_pointer_runs,
        memory::count_pointers,
        memory_use::pins,
        memory_use::look_at,
        memory_use::find_copies,
        memory_use::read_once,
        memory_use::written_pages,
        memory_use::page_marks,
        memory_use::zero_pages,
        mimalloc::read_mimalloc,
        mimalloc::find_segments,
        objects::find_claimed,
        objects::take_census,
        objects::objects_in,
        objects::list_objects,
        objects::list_instances,
        objects::asked_sizes,
        objects::list_slack,
        objects::estimate_types,
        objects::vote_distances,
        objects::sample_types,
        process::process_accounts,
        process::look_at_thread,
        process::call_in_thread,
        pymalloc::read_pools,
        pymalloc::occupancy,
        pymalloc::used_blocks,
        pymalloc::find_list_ends,
        pymalloc::find_arena_tables,
        stacks::demangle,
        stacks::unwind_stacks,
        stacks::mentions,
        structures::find_structures,
        structures::classes_at,
        structures::blocks_with,
    );
    Ok(())
}
