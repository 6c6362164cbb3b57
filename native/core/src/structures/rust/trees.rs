//! Nodes of BTreeMap and BTreeSet: eleven keys and values each, and in those that are no leaves twelve pointers behind them.
//!
//! Where the link to the node above lies, and the two short numbers (which child it is, how many keys it has), follows from
//! the keys' and values' sizes; they are found where all children of the root agree.

use super::candidates::Root;
use crate::structures::kinds::UNKNOWN;
use crate::structures::look::Look;
use gdbheap_access::memory::reader::Reader;

const CAPACITY: u64 = 11;
const EDGES: u64 = 12;
const EDGE_BYTES: u64 = EDGES * 8;
/// Keys and values of more bytes are not put into nodes by anybody.
const LARGEST_LEAF: u64 = 64 << 10;

/// Forms in which two children may agree; those of a tree agree in one or two.
const MAX_FORMS: usize = 64;

/// Where a node of one tree has what.
#[derive(Clone, Copy)]
struct Form {
    /// The size of a leaf, behind which the others have their edges.
    leaf: u64,
    parent: u64,
    place: u64,
    length: u64,
}

/// The nodes of the tree with this root, if they lead to each other both ways and have as many keys as it counts.
pub(crate) fn prove(
    look: &Look<'_>,
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
    // What was too little for a block of its own may have been left to this one.
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

/// The children that a node may have if leaves have that size: used blocks, at least two.
fn edges(look: &Look<'_>, reader: &mut Reader<'_>, node: u64, leaf: u64) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    for at in (node + leaf..node + leaf + EDGE_BYTES).step_by(8) {
        // What lies behind the last edge is left over.
        match reader.word(at).filter(|child| look.block_from(*child).is_some()) {
            Some(child) => found.push(child),
            None => break,
        }
    }
    (found.len() >= 2).then_some(found)
}

/// The forms in which the first children agree, at most MAX_FORMS or one more.
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

/// All nodes, each with its height, if what each says of itself is as its parent has it.
fn follow(
    look: &Look<'_>,
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
