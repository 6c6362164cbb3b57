//! Find unreachable objects: objects to which only other unreachable objects refer. The candidates are the objects that
//! no chain of exact references from a module or a frame reaches.
//!
//! A word on a stack or in a C structure may be stale, so it does not prove that an object is alive. The object's
//! reference count does: if it is larger than the number of references from candidates, something else holds the
//! object. CPython's own collector uses the same method (`subtract_refs`), but on one generation instead of all
//! objects.

use super::csr::{split, Edges};
use super::edges::{is_object, BUFFER, EXACT, IDLE};
use super::tree::{Tree, BY_OTHERS};
use gdbheap_access::error::Cancellation;
use gdbheap_access::work::Control;

const OFTEN: usize = 1 << 20;

pub(crate) struct Garbage {
    /// Objects that are in use according to the allocator but unreachable.
    pub(crate) objects: Vec<u32>,
    /// The numbers of the buffers that belong to these objects.
    pub(crate) buffers: Vec<u32>,
}

/// Find the unreachable objects and their buffers. `first_static`: the number of the first static type; all smaller
/// numbers belong to blocks. `count_of` returns the reference count of an object.
pub(crate) fn find(
    edges: &Edges,
    tree: &Tree,
    kinds: &[u32],
    first_static: u32,
    mut count_of: impl FnMut(u32) -> u64,
    control: &Control,
) -> Result<Garbage, Cancellation> {
    let questionable = |node: u32| node < first_static && tree.phases[node as usize] >= BY_OTHERS;
    let is_object = |node: u32| is_object(kinds[node as usize]);
    // For each object, the number of references to it from candidates or from their buffers.
    let mut inner = vec![0u32; first_static as usize];
    for node in (0..first_static).filter(|node| questionable(*node) && kinds[*node as usize] & !IDLE != 0) {
        for edge in edges.of(node) {
            let (target, strength) = split(*edge);
            if strength == EXACT && questionable(target) {
                inner[target as usize] += 1;
            }
        }
        if node as usize % OFTEN == 0 {
            control.advance(0)?;
        }
    }
    let mut held = vec![false; first_static as usize];
    let mut open: Vec<u32> = Vec::new();
    for node in (0..first_static).filter(|node| questionable(*node) && is_object(*node)) {
        if count_of(node) > u64::from(inner[node as usize]) {
            held[node as usize] = true;
            open.push(node);
        }
        if node as usize % OFTEN == 0 {
            control.advance(0)?;
        }
    }
    drop(inner);
    while let Some(node) = open.pop() {
        for edge in edges.of(node) {
            let (target, strength) = split(*edge);
            if strength == EXACT && questionable(target) && !held[target as usize] {
                held[target as usize] = true;
                open.push(target);
            }
        }
    }
    let is_garbage = |node: &u32| questionable(*node) && is_object(*node) && !held[*node as usize];
    let objects: Vec<u32> = (0..first_static).filter(is_garbage).collect();
    let mut owned = vec![false; first_static as usize];
    let mut buffers = Vec::new();
    for object in &objects {
        for edge in edges.of(*object) {
            let (target, strength) = split(*edge);
            let is_buffer = kinds.get(target as usize).is_some_and(|kind| kind & BUFFER != 0);
            let is_its = strength == EXACT && is_buffer && questionable(target) && !held[target as usize];
            if is_its && !std::mem::replace(&mut owned[target as usize], true) {
                buffers.push(target);
            }
        }
    }
    Ok(Garbage { objects, buffers })
}
