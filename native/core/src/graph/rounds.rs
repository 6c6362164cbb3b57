//! Find round numbers that look like references, in a heap below 4 GiB. Sizes, limits and floats such as 1.0 are
//! multiples of a large power of two; addresses of blocks hardly ever are.
//!
//! Objects of one type, and blocks of C code of one size, have the same kind of value at the same offset. If few of the
//! other blocks in such a group have a reference there, the word is a number.

use super::edges::{Round, BUFFER, IDLE};
use super::ids::{Blocks, Node};
use super::padding::{self, Padding};
use gdbheap_access::bytes::word_at;
use gdbheap_access::error::Cancellation;
use gdbheap_access::work::Control;
use std::collections::{HashMap, HashSet};

/// The largest number of blocks of one group that are examined.
const MOST: u32 = 1 << 10;
const HEAD: usize = 16;
/// The largest number of bytes that precede an object in its block.
const LONGEST_HEAD: u64 = 32;
const OFTEN: u32 = 1 << 20;

/// Return the number of a block's group. The members of a group have the same kind of value at each offset: they are
/// objects of one type, or blocks of C code of one size that begin alike.
fn group(blocks: &Blocks<'_>, kind: u32, (address, size): (u64, u64)) -> u32 {
    if kind != 0 {
        return padding::group(kind, 0, 0);
    }
    let mut head = [0; HEAD];
    let got = blocks.heaps.space.fill(address, &mut head);
    let (low, high) = blocks.heaps.bounds();
    padding::group(0, size, padding::look(&head[..got], |word| (low..high).contains(&word)))
}

/// Return whether a block, or the object in a block, may begin where a word points.
fn begins(blocks: &Blocks<'_>, word: u64) -> bool {
    word % 8 == 0 && blocks.find(word).is_some_and(|found| word.wrapping_sub(found.address) <= LONGEST_HEAD)
}

/// Return those of `rounds` that are numbers and not references, as `(source, target)`. `kinds`: the kind of each node.
pub(crate) fn numbers(
    blocks: &Blocks<'_>,
    kinds: &[u32],
    rounds: &[Round],
    control: &Control<'_>,
) -> Result<HashSet<(u32, u32)>, Cancellation> {
    let place = |id: u32| match blocks.node(id) {
        Node::Block { address, size, .. } => Some((address, size)),
        _ => None,
    };
    let mut fields: HashMap<u32, Vec<(u64, u32)>> = HashMap::new();
    let mut sizes: HashSet<(bool, u64)> = HashSet::new();
    let mut numbers = Vec::new();
    for (round, number) in rounds.iter().zip(0u32..) {
        let Some(found) = place(round.source) else { continue };
        let kind = kinds[round.source as usize];
        sizes.insert((kind != 0, if kind != 0 { kind.into() } else { found.1 }));
        let of_group = fields.entry(group(blocks, kind, found)).or_default();
        let known = of_group.iter().find(|(offset, _)| *offset == round.offset).map(|(_, number)| *number);
        if known.is_none() {
            of_group.push((round.offset, number));
        }
        numbers.push((round, known.unwrap_or(number)));
    }
    let (mut asked, mut seen): (Padding, HashMap<u32, u32>) = Default::default();
    let (space, (low, high)) = (blocks.heaps.space, blocks.heaps.bounds());
    for (id, kind) in (0u32..).zip(kinds) {
        if id % OFTEN == 0 {
            control.advance(0)?;
        }
        if kind & (BUFFER | IDLE) != 0 || *kind != 0 && !sizes.contains(&(true, u64::from(*kind))) {
            continue;
        }
        let Some(found) = place(id).filter(|(_, size)| *kind != 0 || sizes.contains(&(false, *size))) else { continue };
        let group = group(blocks, *kind, found);
        let Some(offsets) = fields.get(&group) else { continue };
        let count = seen.entry(group).or_default();
        *count += 1;
        if *count > MOST {
            continue;
        }
        for (offset, number) in offsets.iter().filter(|(offset, _)| offset + 8 <= found.1) {
            let mut bytes = [0; 8];
            let got = space.fill(found.0 + offset, &mut bytes);
            let Some(word) = word_at(&bytes[..got], 0) else { continue };
            let is_plain = || word == 0 || !(low..high).contains(&word) && space.covers(word, 1);
            asked.add(*number, begins(blocks, word), is_plain);
        }
    }
    let known = asked.fields();
    let is_number = |found: &&(&Round, u32)| !known.contains(&found.1);
    Ok(numbers.iter().filter(is_number).map(|(round, _)| (round.source, round.target)).collect())
}
