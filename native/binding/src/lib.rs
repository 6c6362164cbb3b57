//! The core as a module of Python's: thin, one file for each group of classes and functions.
//!
//! What takes long runs without the GIL (watch.rs). Arguments that are records are read from Python's objects by the names
//! of their fields (records.rs); answers are tuples.

mod claimed;
mod glibc;
mod graph;
mod heaps;
mod memory;
mod memory_use;
mod mimalloc;
mod objects;
mod process;
mod pymalloc;
mod records;
mod rows;
mod stacks;
mod watch;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Fault", module.py().get_type::<watch::Fault>())?;
    module.add("PRESENT", gdbheap_core::memory::PRESENT)?;
    module.add("SWAPPED", gdbheap_core::memory::SWAPPED)?;
    module.add("ZERO", gdbheap_core::memory::ZERO)?;
    module.add_class::<memory::Pages>()?;
    module.add_class::<memory::Space>()?;
    module.add_class::<process::Stop>()?;
    module.add_class::<memory::Room>()?;
    module.add_class::<process::Frozen>()?;
    module.add_class::<glibc::Chunks>()?;
    module.add_class::<glibc::Bins>()?;
    module.add_class::<glibc::Mapped>()?;
    module.add_class::<pymalloc::Pools>()?;
    module.add_class::<mimalloc::Mimalloc>()?;
    module.add_class::<claimed::Claimed>()?;
    module.add_class::<heaps::Heaps>()?;
    module.add_function(wrap_pyfunction!(objects::find_claimed, module)?)?;
    module.add_class::<memory_use::Sweep>()?;
    module.add_class::<memory_use::OwnerSum>()?;
    module.add_class::<objects::Census>()?;
    module.add_class::<objects::StoreRow>()?;
    module.add_class::<graph::Graph>()?;
    module.add("STATES", gdbheap_core::allocators::glibc::STATES)?;
    module.add_function(wrap_pyfunction!(glibc::count_sizes, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::list_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(objects::list_objects, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::find_fits, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::sum_lists, module)?)?;
    module.add_function(wrap_pyfunction!(graph::draw_graph, module)?)?;
    module.add_function(wrap_pyfunction!(graph::static_types, module)?)?;
    module.add_function(wrap_pyfunction!(objects::list_instances, module)?)?;
    module.add_function(wrap_pyfunction!(objects::asked_sizes, module)?)?;
    module.add_function(wrap_pyfunction!(process::look_at_thread, module)?)?;
    module.add_function(wrap_pyfunction!(process::call_in_thread, module)?)?;
    module.add_function(wrap_pyfunction!(stacks::unwind_stacks, module)?)?;
    module.add_function(wrap_pyfunction!(stacks::mentions, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::trim_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(memory_use::pins, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::held_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(memory_use::look_at, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::walk_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::follow_bins, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::least_sizes, module)?)?;
    module.add_function(wrap_pyfunction!(pymalloc::occupancy, module)?)?;
    module.add_function(wrap_pyfunction!(pymalloc::used_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(pymalloc::read_pools, module)?)?;
    module.add_function(wrap_pyfunction!(mimalloc::find_segments, module)?)?;
    module.add_function(wrap_pyfunction!(mimalloc::read_mimalloc, module)?)?;
    module.add_function(wrap_pyfunction!(memory::find_initial, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::find_list_heads, module)?)?;
    module.add_function(wrap_pyfunction!(pymalloc::find_arena_tables, module)?)?;
    module.add_function(wrap_pyfunction!(pymalloc::find_list_ends, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::find_mmapped, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::find_extents, module)?)?;
    module.add_function(wrap_pyfunction!(memory::count_pointers, module)?)?;
    module.add_function(wrap_pyfunction!(glibc::find_fenced, module)?)?;
    module.add_function(wrap_pyfunction!(objects::take_census, module)?)?;
    module.add_function(wrap_pyfunction!(objects::objects_in, module)?)?;
    module.add_function(wrap_pyfunction!(memory_use::find_copies, module)?)?;
    module.add_function(wrap_pyfunction!(memory_use::zero_pages, module)?)?;
    module.add_function(wrap_pyfunction!(objects::list_slack, module)?)?;
    module.add_function(wrap_pyfunction!(objects::estimate_types, module)?)?;
    module.add_function(wrap_pyfunction!(objects::vote_distances, module)?)?;
    module.add_function(wrap_pyfunction!(objects::sample_types, module)?)?;
    module.add_function(wrap_pyfunction!(memory_use::read_once, module)?)?;
    Ok(())
}
