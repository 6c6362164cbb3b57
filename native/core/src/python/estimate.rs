//! Estimate the number and the bytes of each type's objects from a sample of blocks.

use crate::allocators::heaps::Heaps;
use crate::allocators::sample::visit_sample;
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::collections::BTreeMap;

/// An estimate of the objects of one type.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// The address of the type.
    pub kind: u64,
    pub live: u64,
    pub bytes: u64,
    /// The number of objects on free lists.
    pub idle: u64,
    /// The bytes of the objects on free lists.
    pub idle_bytes: u64,
}

/// Estimate the number and the bytes of each type's objects in blocks of at most 512 bytes, from a sample of at most
/// `most` pools of each size.
pub fn estimate_types(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    most: usize,
) -> Result<Vec<Estimate>> {
    let mut types = Types::new(heaps, layout);
    let mut found: BTreeMap<u32, [f64; 4]> = BTreeMap::new();
    visit_sample(watcher, heaps, most, |block| {
        let Some((number, alive)) = types.object_in(block.bytes, block.size) else { return };
        let row = &mut found.entry(number).or_default()[if alive { 0 } else { 2 }..];
        row[0] += block.weight;
        row[1] += block.weight * block.size as f64;
    })?;
    let estimate = |(number, row): (u32, [f64; 4])| {
        let [live, bytes, idle, idle_bytes] = row.map(|value| value as u64);
        Estimate { kind: types.kinds[number as usize].address, live, bytes, idle, idle_bytes }
    };
    Ok(found.into_iter().map(estimate).collect())
}
