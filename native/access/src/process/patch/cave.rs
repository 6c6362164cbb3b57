//! Finds room for stubs: unused bytes after the end of an object's code, in its last page.
//!
//! A stub is never removed, only the jump to it, because a thread may stay in the stub for any time. So each stub has a
//! header by which a later run recognizes it. The later run overwrites a stub for the same place that has the same
//! instructions, and changes only the numbers that the stub compares.
#![forbid(unsafe_code)]

use crate::arch::stub::{plan, replacement, REACH};
use crate::bytes::u64_at;
use crate::error::{Error, Result};
use crate::process::patch::header::{ADDRESS_AT, HEADER, MAGIC, ORIGINAL_AT, ORIGINAL_SIZE_AT, SIZE_AT};
use crate::process::patch::planned::{Condition, Function, Patch, Wish};

const ALIGNMENT: usize = 16;

/// Unused executable bytes of the target, and their present content. They follow the code of an object, which begins at
/// `text`. `stays`: whether the program never unloads that object.
#[derive(Clone, Debug)]
pub struct Cave {
    pub start: u64,
    pub bytes: Vec<u8>,
    pub text: u64,
    pub stays: bool,
}

/// The address in code (`address`) at which threads should be caught. `function`: the bytes of the function that
/// contains the place; the function begins at `start`. `conditions`: the conditions that must hold for a thread to stop
/// there. If the instructions at `address` cannot be replaced, the instructions from `before` on are replaced.
#[derive(Clone, Debug)]
pub struct CodePlace {
    pub address: u64,
    pub before: Option<u64>,
    pub start: u64,
    pub function: Vec<u8>,
    pub conditions: Vec<Condition>,
}

/// A stub that an earlier run left, as described by the stub's header: the patched place, its original bytes, the jump
/// that replaced them, and the addresses [start, end) of the stub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub address: u64,
    pub original: Vec<u8>,
    pub replacement: Vec<u8>,
    pub start: u64,
    pub end: u64,
}

impl Left {
    /// Return the patch that the stub belonged to.
    pub(crate) fn patch(&self) -> Patch {
        let Left { address, original, replacement, start, .. } = self.clone();
        Patch { address, original, replacement, stub_at: start, stub: Vec::new(), trap: 0, seen_at: address }
    }
}

/// Return the stubs that earlier runs left in unused bytes, recognized by their headers.
pub fn left_behind(cave: &Cave) -> Vec<Left> {
    let mut found = Vec::new();
    let mut at = padding(cave.start);
    while at + HEADER <= cave.bytes.len() {
        let header = &cave.bytes[at..at + HEADER];
        let size = usize::from(u16::from_le_bytes([header[SIZE_AT], header[SIZE_AT + 1]]));
        let original = usize::from(header[ORIGINAL_SIZE_AT]);
        let is_stub = u64_at(header, 0) == MAGIC && size >= HEADER && at + size <= cave.bytes.len();
        if !is_stub || original > HEADER - ORIGINAL_AT {
            at += ALIGNMENT;
            continue;
        }
        let start = cave.start + at as u64;
        let original = header[ORIGINAL_AT..ORIGINAL_AT + original].to_vec();
        let address = u64_at(header, ADDRESS_AT);
        if let Some(replacement) = replacement(address, start + HEADER as u64, original.len()) {
            found.push(Left { address, original, replacement, start, end: start + size as u64 });
        }
        at += size.next_multiple_of(ALIGNMENT);
    }
    found
}

fn padding(start: u64) -> usize {
    (start.next_multiple_of(ALIGNMENT as u64) - start) as usize
}

/// Plan a patch for each place. A thread that reaches a patched place reports itself by `signal`. The error says which
/// place has no room for a stub, or why the instructions at a place cannot be replaced.
pub fn plan_all(places: &[CodePlace], caves: &[Cave], signal: u32) -> Result<Vec<Patch>> {
    let mut caves: Vec<Taken> = caves.iter().map(Taken::new).collect();
    places.iter().map(|place| plan_one(place, &mut caves, signal)).collect()
}

fn plan_one(place: &CodePlace, caves: &mut [Taken], signal: u32) -> Result<Patch> {
    let CodePlace { address, before, start, function, conditions } = place;
    let function = Function { code: function, start: *start };
    let planned = |from, stub_at| plan(function, &Wish { address: *address, from, stub_at, signal, conditions });
    let trial = planned(*address, *address).or_else(|error| match before {
        Some(before) => planned(*before, *address),
        None => Err(error),
    })?;
    // A jump must not outlive its stub. An object that dlclose() may unload holds only stubs for its own code.
    let lasts = |cave: &&mut Taken| cave.stays || (cave.text..cave.start).contains(address);
    let mut near = caves.iter_mut().filter(|cave| cave.start.abs_diff(*address) < REACH).filter(lasts);
    let found = near.find_map(|cave| cave.take(&trial, |stub_at| planned(trial.address, stub_at)));
    found.unwrap_or_else(|| Err(Error::Invalid(format!("there is no room for a jump near {address:#x}"))))
}

/// A cave and the stubs in it, including the new stubs.
struct Taken {
    text: u64,
    stays: bool,
    start: u64,
    end: u64,
    left: Vec<Left>,
    used: u64,
}

impl Taken {
    fn new(cave: &Cave) -> Taken {
        let left = left_behind(cave);
        let first = cave.start + padding(cave.start) as u64;
        let used = left.iter().map(|left| left.end).max().unwrap_or(first);
        Taken {
            text: cave.text,
            stays: cave.stays,
            start: cave.start,
            end: cave.start + cave.bytes.len() as u64,
            left,
            used,
        }
    }

    /// Plan the patch with its stub in this cave; None if the stub does not fit. The length of a stub depends on its
    /// address.
    fn take(&mut self, trial: &Patch, planned: impl Fn(u64) -> Result<Patch>) -> Option<Result<Patch>> {
        let length = |patch: &Patch| patch.stub.len() as u64;
        let is_same = |left: &&Left| left.address == trial.address && left.original == trial.original;
        for left in self.left.iter().filter(is_same) {
            match planned(left.start) {
                Ok(patch) if length(&patch) == left.end - left.start => return Some(Ok(patch)),
                Ok(_) => (),
                Err(error) => return Some(Err(error)),
            }
        }
        let at = self.used.next_multiple_of(ALIGNMENT as u64);
        if at + length(trial) > self.end {
            return None;
        }
        let patch = match planned(at) {
            Ok(patch) => patch,
            Err(error) => return Some(Err(error)),
        };
        let end = at + length(&patch);
        if end > self.end {
            return None;
        }
        self.used = end;
        Some(Ok(patch))
    }
}
