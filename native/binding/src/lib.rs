//! The core as a Python module. This crate is a thin layer, with one file for each group of classes and functions.
//!
//! Work that takes long runs without the GIL (watch.rs). Arguments that are records are read from Python objects by the
//! names of their fields (records.rs). Results are classes with named fields (rows.rs).

mod call_stats;
mod claimed;
mod events;
mod following;
mod glibc;
mod graph;
mod heaps;
mod history;
mod jemalloc;
mod mallocng;
mod memory;
mod memory_use;
mod mimalloc;
mod objects;
mod oldmalloc;
mod packed;
mod packing;
mod process;
mod pymalloc;
mod records;
mod rows;
mod stacks;
mod structures;
mod symbols;
mod tcmalloc;
mod watch;

use pyo3::prelude::*;
use std::io::Write;

macro_rules! classes {
    ($module:ident, $($class:path),* $(,)?) => { $($module.add_class::<$class>()?;)* };
}

macro_rules! functions {
    ($module:ident, $($function:path),* $(,)?) => { $($module.add_function(wrap_pyfunction!($function, $module)?)?;)* };
}

/// Say in one line where a panic occurred in gdbheap's code; Python gets it as an exception. The default hook may also
/// look for a backtrace, under a lock, which waits for ever if memory runs out meanwhile. A panic of pyo3's means that
/// there is no memory for an object of Python, which the exception says.
fn say_panics_briefly() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| (at.file(), at.line())).unwrap_or_default();
        if !place.0.contains("pyo3") {
            let _ = writeln!(std::io::stderr(), "gdbheap: panic at {}:{}", place.0, place.1);
        }
    }));
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // From now on, children that wait are counted together with those of all processes that this process forks.
    gdbheap_access::child::apart::waiting();
    say_panics_briefly();
    module.add("Fault", module.py().get_type::<watch::Fault>())?;
    module.add("PRESENT", gdbheap_access::memory::PRESENT)?;
    module.add("SWAPPED", gdbheap_access::memory::SWAPPED)?;
    module.add("ZERO", gdbheap_access::memory::ZERO)?;
    module.add("OWN_MEMORY", gdbheap_access::process::OWN_MEMORY)?;
    module.add("NO_OWN_MEMORY", gdbheap_access::process::NO_OWN_MEMORY)?;
    module.add("NOT_STARTED", gdbheap_access::process::NOT_STARTED)?;
    module.add("BY_SIGNAL", gdbheap_access::process::BY_SIGNAL)?;
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
        graph::Cause,
        graph::Unreachable,
        graph::Head,
        graph::Heads,
        graph::Grouped,
        graph::NodesRetained,
        graph::RetainedByGroup,
        graph::Labelled,
        graph::Several,
        graph::SharedBlocks,
        graph::Other,
        graph::AlsoHeld,
        graph::Branch,
        graph::Targets,
        graph::KeptPart,
        graph::KeptNode,
        graph::Kept,
        graph::Graph,
        graph::Hanging,
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
        history::PlaceShare,
        history::BlockBatch,
        history::BlockBatches,
        history::Retained,
        graph::NodeColumns,
        graph::EdgeColumns,
        mallocng::FoundContext,
        mallocng::Misfit,
        mallocng::ClassUsage,
        mallocng::AskedOfClass,
        mallocng::SlotBlock,
        mallocng::Mallocng,
        memory::PageRun,
        memory::Residency,
        memory::PointerCount,
        memory::Pages,
        memory::Room,
        memory::Space,
        memory_use::OwnerSum,
        memory_use::CountsOf,
        memory_use::ComparedPages,
        memory_use::WrittenPages,
        memory_use::Pin,
        memory_use::PinTotals,
        memory_use::Pins,
        packing::PackedSize,
        packing::Packing,
        memory_use::Copied,
        memory_use::Sweep,
        jemalloc::JemallocForm,
        jemalloc::FoundTree,
        jemalloc::JemallocFit,
        jemalloc::JemallocArea,
        jemalloc::JemallocBlock,
        jemalloc::JemallocArenaUse,
        jemalloc::JemallocClassUse,
        jemalloc::InMotion,
        jemalloc::SampledStack,
        jemalloc::Jemalloc,
        tcmalloc::FoundSpanMap,
        tcmalloc::TcmallocFit,
        tcmalloc::TcmallocArea,
        tcmalloc::TcmallocBlock,
        tcmalloc::TcmallocCache,
        tcmalloc::TcmallocUse,
        tcmalloc::TcmallocSizeUse,
        tcmalloc::TcmallocInMotion,
        tcmalloc::Tcmalloc,
        mimalloc::Segment,
        mimalloc::FoundSegment,
        mimalloc::FoundMap,
        mimalloc::MimallocForm,
        mimalloc::FormFit,
        mimalloc::HeapUse,
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
        objects::Traced,
        objects::Traces,
        objects::Equal,
        objects::EqualValues,
        objects::KindSum,
        objects::EqualObject,
        objects::Tallied,
        objects::ContainerFill,
        objects::DistanceVotes,
        objects::Census,
        oldmalloc::OldChunk,
        oldmalloc::OldSize,
        oldmalloc::Oldmalloc,
        packed::Unpacker,
        process::ProcessMemory,
        process::HeldFile,
        process::ProcessAccount,
        process::ThreadState,
        process::CallResult,
        process::ThreadLook,
        process::Stop,
        process::Descriptor,
        process::Frozen,
        process::OwnCopy,
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
        rows::BlockList,
        rows::BlockRow,
        rows::Hole,
        rows::Released,
        rows::SizeClass,
        rows::Member,
        stacks::Unwinder,
        stacks::Unwound,
        structures::Capacity,
        structures::KindRow,
        structures::Structures,
        symbols::SymbolTable,
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
        graph::find_kept,
        graph::draw_blocks,
        events::place_of_stage,
        events::pack_stage,
        events::waiting_stage,
        events::plan_calls,
        events::live_stacks,
        call_stats::call_stats,
        history::list_blocks,
        history::compare_blocks,
        mallocng::read_mallocng,
        mallocng::find_contexts,
        memory::data_extents,
        memory::find_initial,
        memory::find_places,
        memory::words_at,
        memory::find_pointer,
        memory::find_pointer_runs,
        memory::count_pointers,
        memory_use::pins,
        memory_use::look_at,
        memory_use::find_copies,
        memory_use::read_once,
        memory_use::compare_pages,
        memory_use::written_pages,
        memory_use::page_marks,
        memory_use::value_marks,
        memory_use::zero_pages,
        jemalloc::jemalloc_forms,
        jemalloc::find_trees,
        jemalloc::jemalloc_fit,
        jemalloc::read_jemalloc,
        tcmalloc::find_span_maps,
        tcmalloc::tcmalloc_fit,
        tcmalloc::read_tcmalloc,
        mimalloc::read_mimalloc,
        mimalloc::find_segments,
        mimalloc::find_page_maps,
        mimalloc::mimalloc_fit,
        mimalloc::mimalloc_forms,
        mimalloc::mimalloc_owners,
        mimalloc::page_map_tables,
        objects::find_claimed,
        objects::take_census,
        objects::objects_in,
        objects::list_objects,
        objects::list_instances,
        objects::asked_sizes,
        objects::count_traces,
        objects::equal_values,
        objects::equal_objects,
        objects::value_hashes,
        objects::tally_objects,
        objects::count_fill,
        objects::list_slack,
        objects::estimate_types,
        objects::vote_distances,
        objects::sample_types,
        oldmalloc::read_oldmalloc,
        oldmalloc::find_bins,
        process::process_accounts,
        process::read_patiently,
        process::read_at_patiently,
        process::read_link_patiently,
        process::end_where_deaf,
        process::open_patiently,
        process::watched_by_epolls,
        process::hold_file,
        process::hold_known,
        process::walk_to_file,
        process::reopen_file,
        process::filesystem_of,
        process::end_with_parent,
        process::has_sharer,
        process::have_one_memory,
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
        structures::find_mapped,
        structures::blocks_with,
    );
    Ok(())
}
