//! The native core of gdbheap: reads a target's memory in bulk, walks chunks and pools, classifies blocks.
//!
//! No policy and no layouts live here: the Python side hands in offsets. Whatever is read from a target is hostile:
//! every count is bounded, every pointer is checked against the segments, and arithmetic on it cannot panic.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod bins;
pub mod bits;
pub mod call;
pub mod calling;
pub mod capture;
pub mod census;
pub mod chunks;
pub mod claimed;
pub mod contents;
pub mod copies;
pub mod frozen;
pub mod graph;
pub mod heaps;
pub mod injection;
pub mod instances;
pub mod listing;
pub mod lists;
pub mod looks;
pub mod marks;
pub mod mimalloc;
pub mod occupancy;
pub mod pages;
pub mod pins;
pub mod pools;
pub mod ptrace;
pub mod reach;
pub mod sample;
pub mod scan;
pub mod slabs;
pub mod slack;
pub mod space;
pub mod stop;
pub mod strays;
pub mod sweep;
pub mod tables;
pub mod tracer;
pub mod trim;
pub mod types;
pub mod unwind;
pub mod votes;
pub mod walk;
pub mod window;
pub mod work;

use pyo3::prelude::*;

/// The little-endian word at `offset`; zero where the bytes end before it.
#[inline]
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..offset.wrapping_add(8)).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

/// Which of `ranges` (ascending, disjoint) holds the address.
#[inline]
pub fn range_at(ranges: &[(u64, u64)], address: u64) -> Option<usize> {
    let place = ranges.partition_point(|(_, end)| *end <= address);
    ranges.get(place).filter(|(start, _)| *start <= address).map(|_| place)
}

/// The little-endian 32 bits at `offset`; zero where the bytes end before them.
#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset.wrapping_add(4)).map_or(0, |word| u32::from_le_bytes(word.try_into().unwrap_or_default()))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Fault", module.py().get_type::<space::Fault>())?;
    module.add("PRESENT", pages::PRESENT)?;
    module.add("SWAPPED", pages::SWAPPED)?;
    module.add("ZERO", pages::ZERO)?;
    module.add_class::<pages::Pages>()?;
    module.add_class::<space::Space>()?;
    module.add_class::<stop::Stop>()?;
    module.add_class::<capture::Room>()?;
    module.add_class::<frozen::Frozen>()?;
    module.add_class::<chunks::Chunks>()?;
    module.add_class::<bins::Bins>()?;
    module.add_class::<pools::Pools>()?;
    module.add_class::<mimalloc::Mimalloc>()?;
    module.add_class::<claimed::Claimed>()?;
    module.add_function(wrap_pyfunction!(claimed::find_claimed, module)?)?;
    module.add_class::<sweep::Sweep>()?;
    module.add_class::<census::Census>()?;
    module.add_class::<graph::Graph>()?;
    module.add("STATES", chunks::STATES)?;
    module.add_function(wrap_pyfunction!(listing::count_sizes, module)?)?;
    module.add_function(wrap_pyfunction!(listing::list_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(listing::list_objects, module)?)?;
    module.add_function(wrap_pyfunction!(listing::find_fits, module)?)?;
    module.add_function(wrap_pyfunction!(listing::sum_lists, module)?)?;
    module.add_function(wrap_pyfunction!(graph::draw_graph, module)?)?;
    module.add_function(wrap_pyfunction!(graph::static_types, module)?)?;
    module.add_function(wrap_pyfunction!(instances::list_instances, module)?)?;
    module.add_function(wrap_pyfunction!(instances::asked_sizes, module)?)?;
    module.add_function(wrap_pyfunction!(calling::look_at_thread, module)?)?;
    module.add_function(wrap_pyfunction!(calling::call_in_thread, module)?)?;
    module.add_function(wrap_pyfunction!(unwind::unwind_stacks, module)?)?;
    module.add_function(wrap_pyfunction!(unwind::mentions, module)?)?;
    module.add_function(wrap_pyfunction!(trim::trim_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(pins::pins_of_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(pins::pins_of_arenas, module)?)?;
    module.add_function(wrap_pyfunction!(pins::pins_of_pages, module)?)?;
    module.add_function(wrap_pyfunction!(pins::held_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(looks::look_at, module)?)?;
    module.add_function(wrap_pyfunction!(walk::walk_chunks, module)?)?;
    module.add_function(wrap_pyfunction!(bins::follow_bins, module)?)?;
    module.add_function(wrap_pyfunction!(bins::least_sizes, module)?)?;
    module.add_function(wrap_pyfunction!(occupancy::occupancy, module)?)?;
    module.add_function(wrap_pyfunction!(occupancy::used_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(pools::read_pools, module)?)?;
    module.add_function(wrap_pyfunction!(mimalloc::find_segments, module)?)?;
    module.add_function(wrap_pyfunction!(mimalloc::read_mimalloc, module)?)?;
    module.add_function(wrap_pyfunction!(scan::find_initial, module)?)?;
    module.add_function(wrap_pyfunction!(scan::find_list_heads, module)?)?;
    module.add_function(wrap_pyfunction!(scan::find_arena_tables, module)?)?;
    module.add_function(wrap_pyfunction!(scan::find_list_ends, module)?)?;
    module.add_function(wrap_pyfunction!(scan::find_mmapped, module)?)?;
    module.add_function(wrap_pyfunction!(scan::find_extents, module)?)?;
    module.add_function(wrap_pyfunction!(scan::count_pointers, module)?)?;
    module.add_function(wrap_pyfunction!(scan::find_fenced, module)?)?;
    module.add_function(wrap_pyfunction!(census::take_census, module)?)?;
    module.add_function(wrap_pyfunction!(census::objects_in, module)?)?;
    module.add_function(wrap_pyfunction!(copies::find_copies, module)?)?;
    module.add_function(wrap_pyfunction!(contents::zero_pages, module)?)?;
    module.add_function(wrap_pyfunction!(slack::list_slack, module)?)?;
    module.add_function(wrap_pyfunction!(sample::estimate_types, module)?)?;
    module.add_function(wrap_pyfunction!(votes::vote_distances, module)?)?;
    module.add_function(wrap_pyfunction!(votes::sample_types, module)?)?;
    module.add_function(wrap_pyfunction!(contents::read_once, module)?)?;
    Ok(())
}
