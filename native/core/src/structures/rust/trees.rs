//! Prove BTreeMap and BTreeSet by their nodes. Each node has space for eleven keys and eleven values. Nodes that are
//! not leaves have twelve pointers to children after them.
//!
//! The offsets of three fields depend on the sizes of keys and values: the link to the parent, the node's index among
//! the children of its parent, and its number of keys. The right offsets are those with which all children of the root
//! agree.

use super::candidates::Root;
use crate::structures::kinds::UNKNOWN;
use crate::structures::search_input::SearchInput;
use gdbheap_access::memory::reader::Reader;

const CAPACITY: u64 = 11;
const EDGES: u64 = 12;
const EDGE_BYTES: u64 = EDGES * 8;
/// The size in bytes of the largest leaf that is tried. Larger keys and values are unlikely in nodes.
const LARGEST_LEAF: u64 = 64 << 10;

/// The search for node layouts (`Form`) that two children of a node both fit ends after this many. Two nodes of a real
/// tree fit one or two.
const MAX_FORMS: usize = 64;

/// The layout of the nodes of one tree: offsets in bytes. `parent`: of the pointer to the parent. `place`: of the index
/// in the parent. `length`: of the number of keys.
#[derive(Clone, Copy)]
struct Form {
    /// The size of a leaf in bytes. In other nodes, pointers to the children (`edges`) follow after this many bytes.
    leaf: u64,
    parent: u64,
    place: u64,
    length: u64,
}

/// Return the nodes of the tree with this root. None unless the links of the nodes are consistent in both directions,
/// and the nodes have as many keys in total as the root says.
pub(crate) fn prove(
    look: &SearchInput<'_>,
    reader: &mut Reader<'_>,
    root: &Root,
    mut spend: impl FnMut(u64) -> Option<()>,
) -> Option<Vec<u32>> {
    let (id, block) = look.block_from(root.node)?;
    let usable = block.end - block.address;
    if look.kind(id) != UNKNOWN || usable > LARGEST_LEAF + EDGE_BYTES {
        return None;
    }
    let (low, high) = look.requests(&block, false);
    let first = low.checked_sub(EDGE_BYTES)?.next_multiple_of(8).max(24);
    // The block may contain a remainder that was too small for a block of its own.
    let sizes = (first.saturating_sub(16)..=high.checked_sub(EDGE_BYTES)?).step_by(8);
    for leaf in sizes {
        spend(EDGES)?;
        let Some(children) = edges(look, reader, root.node, leaf) else { continue };
        if let Some(nodes) = form_of(reader, root.node, leaf, &children, &mut spend)
            .into_iter()
            .find_map(|form| follow(look, reader, root, form, &mut spend))
        {
            return Some(nodes);
        }
    }
    None
}

/// Return the children of a node, assuming that leaves have `leaf` bytes. There must be at least two children, and all
/// of them must be used blocks; otherwise None.
fn edges(look: &SearchInput<'_>, reader: &mut Reader<'_>, node: u64, leaf: u64) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    for at in (node + leaf..node + leaf + EDGE_BYTES).step_by(8) {
        // The words after the last edge are stale.
        match reader.word(at).filter(|child| look.block_from(*child).is_some()) {
            Some(child) => found.push(child),
            None => break,
        }
    }
    (found.len() >= 2).then_some(found)
}

/// Return the node layouts that the first two children of a node both fit. If there are more than MAX_FORMS, the search
/// stops at one more.
fn form_of(
    reader: &mut Reader<'_>,
    node: u64,
    leaf: u64,
    children: &[u64],
    mut spend: impl FnMut(u64) -> Option<()>,
) -> Vec<Form> {
    let two = &children[..2];
    let mut found = Vec::new();
    for parent in (0..leaf).step_by(8) {
        if spend(1).is_none() || found.len() >= MAX_FORMS {
            break;
        }
        if !two.iter().all(|child| reader.word(child + parent) == Some(node)) || spend(leaf / 2).is_none() {
            continue;
        }
        for place in (0..leaf - 1).step_by(2) {
            let is_place = |reader: &mut Reader<'_>| {
                (0u16..).zip(two).all(|(index, child)| reader.short(child + place) == Some(index))
            };
            if !(parent..parent + 8).contains(&place) && is_place(reader) {
                let lengths = [place.checked_add(2), place.checked_sub(2)].into_iter().flatten();
                found.extend(lengths.filter(|at| at + 2 <= leaf).map(|length| Form { leaf, parent, place, length }));
            }
            if found.len() >= MAX_FORMS {
                break;
            }
        }
    }
    found
}

/// Return all nodes of the tree; None unless the fields of each node, read in the layout `form`, agree with its parent.
fn follow(
    look: &SearchInput<'_>,
    reader: &mut Reader<'_>,
    root: &Root,
    form: Form,
    mut spend: impl FnMut(u64) -> Option<()>,
) -> Option<Vec<u32>> {
    let (mut nodes, mut keys) = (Vec::new(), 0u64);
    let mut waiting = vec![(root.node, root.height)];
    if reader.word(root.node + form.parent)? != 0 {
        return None;
    }
    while let Some((node, height)) = waiting.pop() {
        spend(EDGES)?;
        let (id, block) = look.block_from(node)?;
        let size = form.leaf + if height > 0 { EDGE_BYTES } else { 0 };
        let length = u64::from(reader.short(node + form.length)?);
        keys = keys.checked_add(length)?;
        if look.kind(id) != UNKNOWN
            || !look.fits(&block, size)
            || length == 0
            || length > CAPACITY
            || keys > root.length
        {
            return None;
        }
        nodes.push(id);
        for index in 0..=length {
            if height == 0 {
                break;
            }
            let child = reader.word(node + form.leaf + index * 8)?;
            let is_its = look.block_from(child).is_some()
                && reader.word(child + form.parent) == Some(node)
                && reader.short(child + form.place).map(u64::from) == Some(index);
            if !is_its {
                return None;
            }
            waiting.push((child, height - 1));
        }
    }
    (keys == root.length).then_some(nodes)
}
