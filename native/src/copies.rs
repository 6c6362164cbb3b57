//! What is left of buffers in free memory: where realloc has moved one, the place that it left holds what it held then.

use crate::bits::Bits;
use crate::space::Space;
use crate::work::{self, Control};
use pyo3::prelude::*;
use std::collections::HashMap;

/// Of each buffer a key is taken so far apart; so many bytes of a hole hold one, if it is a copy.
const STEP: u64 = 16 << 10;
const KEY: usize = 32;
/// Addresses that malloc returns are multiples of it, and so is how far a copy is from what it was made of.
const ALIGNMENT: usize = 16;
/// What is read at most: keys of buffers, and windows of holes.
const MOST_KEYS: usize = 1 << 16;
const MOST_WINDOWS: u64 = 1 << 12;
const FILTER_BITS: u32 = 20;

type Key = [u64; KEY / 8];

/// The key at the beginning of `bytes`; none where its words are the same, as those of zeros and patterns are.
fn key_of(bytes: &[u8]) -> Option<Key> {
    let key: Key = std::array::from_fn(|index| crate::u64_at(bytes, index * 8));
    let differ = (1..key.len()).filter(|index| !key[..*index].contains(&key[*index])).count();
    (differ + 1 >= key.len() - 1).then_some(key)
}

fn filter_place(key: &Key) -> u64 {
    (key[0] ^ key[1].rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - FILTER_BITS)
}

/// Keys of buffers, with the number of the buffer and where in it they stand; None where they stand in several places.
struct Keys {
    filter: Bits,
    places: HashMap<Key, Option<(usize, u64)>>,
}

impl Keys {
    fn of(space: &Space, buffers: &[(u64, u64)]) -> Keys {
        let own = |(number, (start, end)): (usize, &(u64, u64))| {
            let (start, end) = (*start, *end);
            (STEP / 2..end.saturating_sub(start))
                .step_by(STEP as usize)
                .map(move |offset| (number, offset, start + offset))
        };
        let wanted: Vec<(usize, u64, u64)> = buffers.iter().enumerate().flat_map(own).take(MOST_KEYS).collect();
        let addresses: Vec<u64> = wanted.iter().map(|(.., address)| *address).collect();
        let mut bytes = vec![0; addresses.len() * KEY];
        let there = space.many(&addresses, KEY, &mut bytes);
        let mut keys = Keys { filter: Bits::new(1 << FILTER_BITS), places: HashMap::new() };
        for ((number, offset, _), (key, there)) in wanted.into_iter().zip(bytes.chunks_exact(KEY).zip(there)) {
            if let Some(key) = key_of(key).filter(|_| there) {
                keys.filter.set(filter_place(&key));
                keys.places.entry(key).and_modify(|place| *place = None).or_insert(Some((number, offset)));
            }
        }
        keys
    }

    fn find(&self, bytes: &[u8]) -> Option<(usize, u64)> {
        let key = key_of(bytes)?;
        if !self.filter.get(filter_place(&key)) {
            return None;
        }
        *self.places.get(&key)?
    }
}

/// The numbers of a hole and of a buffer, where the buffer began when this was it, and where in the hole that was seen.
type Hit = (usize, usize, u64, u64);
/// The numbers of a hole and of a buffer, where the buffer began, the first and the last place in the hole where that
/// was seen, and how often it was.
type Row = (usize, usize, u64, u64, u64, u64);

/// The copies of `buffers` (start, end) that `holes` (start, end) hold, and how far apart the holes were looked at. No
/// more is read than some keys of each buffer and a part of the holes.
#[pyfunction]
pub fn find_copies(
    py: Python<'_>,
    space: &Space,
    buffers: Vec<(u64, u64)>,
    holes: Vec<(u64, u64)>,
) -> PyResult<(Vec<Row>, u64)> {
    let keys = Keys::of(space, &buffers);
    let all: u64 = holes.iter().map(|(start, end)| end.saturating_sub(*start)).sum();
    let stride = all.div_ceil(MOST_WINDOWS).next_multiple_of(STEP).max(STEP);
    let own = |(number, (start, end)): (usize, &(u64, u64))| {
        let (start, end) = (*start, *end);
        (start..end)
            .step_by(stride as usize)
            .map(move |from| (number, from, from.saturating_add(STEP + KEY as u64).min(end)))
    };
    let jobs: Vec<(usize, u64, u64)> = holes.iter().enumerate().flat_map(own).collect();
    let work = |(bytes, hits): &mut (Vec<u8>, Vec<Hit>), job: &(usize, u64, u64), control: &Control| {
        let (hole, from, end) = *job;
        bytes.resize((end - from) as usize, 0);
        let there = space.fill(from, bytes);
        for at in (0..there.saturating_sub(KEY - 1)).step_by(ALIGNMENT) {
            let Some((buffer, offset)) = keys.find(&bytes[at..]) else { continue };
            let at = from + at as u64;
            if let Some(base) = at.checked_sub(offset) {
                hits.push((hole, buffer, base, at));
            }
        }
        control.advance(1)
    };
    let init = || (Vec::new(), Vec::new());
    let workers = work::run(py, space, None, jobs.len() as u64, &jobs, init, work)?;
    let mut hits: Vec<Hit> = workers.into_iter().flat_map(|(_, hits)| hits).collect();
    hits.sort_unstable();
    hits.dedup();
    let same = |one: &Hit, next: &Hit| (one.0, one.1, one.2) == (next.0, next.1, next.2);
    let row =
        |group: &[Hit]| (group[0].0, group[0].1, group[0].2, group[0].3, group[group.len() - 1].3, group.len() as u64);
    Ok((hits.chunk_by(same).map(row).collect(), stride))
}
