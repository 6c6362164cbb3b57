//! Finds room for stubs: unused bytes after the end of an object's code, in its last page.
//!
//! When a patch is removed, only the jump to its stub is removed, because a thread may stay in the stub for arbitrarily
//! long. So each stub has a header by which a later run recognizes it. A later run that patches the same place with the
//! same instructions reuses the stub. It changes only the numbers that the stub compares.
#![forbid(unsafe_code)]

use crate::arch::stub::{plan, replacement, REACH};
use crate::bytes::u64_at;
use crate::error::{Error, Result};
use crate::process::patch::header::{ADDRESS_AT, HEADER, MAGIC, ORIGINAL_AT, ORIGINAL_SIZE_AT, SIZE_AT};
use crate::process::patch::types::{Condition, Function, Patch, PatchRequest};

const ALIGNMENT: usize = 16;

/// Unused executable bytes of the target, and their present content. They follow the code of an object.
///
/// - `text`: the address at which that code begins.
/// - `stays`: whether the program never unloads the object.
#[derive(Clone, Debug)]
pub struct Cave {
    pub start: u64,
    pub bytes: Vec<u8>,
    pub text: u64,
    pub stays: bool,
}

/// A place in code at which threads should be caught.
///
/// - `address`: the address of the place.
/// - `before`: the address from which instructions may be replaced instead, if those at `address` cannot be.
/// - `start`, `function`: the address and the bytes of the function that contains the place.
/// - `conditions`: a thread stops only if all of these hold.
#[derive(Clone, Debug)]
pub struct CodePlace {
    pub address: u64,
    pub before: Option<u64>,
    pub start: u64,
    pub function: Vec<u8>,
    pub conditions: Vec<Condition>,
}

/// A stub that an earlier run left, as described by the stub's header.
///
/// - `address`: the patched place.
/// - `original`: the bytes that were there before.
/// - `replacement`: the jump to the stub that replaced them.
/// - `start`, `end`: the addresses [start, end) of the stub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftStub {
    pub address: u64,
    pub original: Vec<u8>,
    pub replacement: Vec<u8>,
    pub start: u64,
    pub end: u64,
}

impl LeftStub {
    /// Return the patch that the stub belonged to.
    pub(crate) fn patch(&self) -> Patch {
        let LeftStub { address, original, replacement, start, .. } = self.clone();
        Patch { address, original, replacement, stub_at: start, stub: Vec::new(), trap: 0, seen_at: address }
    }
}

/// Return the stubs that earlier runs left in unused bytes, recognized by their headers.
pub fn left_behind(cave: &Cave) -> Vec<LeftStub> {
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
            found.push(LeftStub { address, original, replacement, start, end: start + size as u64 });
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
    let mut caves: Vec<CaveUse> = caves.iter().map(CaveUse::new).collect();
    places.iter().map(|place| plan_one(place, &mut caves, signal)).collect()
}

fn plan_one(place: &CodePlace, caves: &mut [CaveUse], signal: u32) -> Result<Patch> {
    let CodePlace { address, before, start, function, conditions } = place;
    let function = Function { code: function, start: *start };
    let planned =
        |from, stub_at| plan(function, &PatchRequest { address: *address, from, stub_at, signal, conditions });
    let trial = planned(*address, *address).or_else(|error| match before {
        Some(before) => planned(*before, *address),
        None => Err(error),
    })?;
    // A jump must not outlive its stub. An object that dlclose() may unload holds only stubs for its own code.
    let lasts = |cave: &&mut CaveUse| cave.stays || (cave.text..cave.start).contains(address);
    let mut near = caves.iter_mut().filter(|cave| cave.start.abs_diff(*address) < REACH).filter(lasts);
    let found = near.find_map(|cave| cave.take(&trial, |stub_at| planned(trial.address, stub_at)));
    found.unwrap_or_else(|| Err(Error::Invalid(format!("there is no room for a jump near {address:#x}"))))
}

/// A cave and the stubs in it, including the new stubs.
struct CaveUse {
    text: u64,
    stays: bool,
    start: u64,
    end: u64,
    left: Vec<LeftStub>,
    used: u64,
}

impl CaveUse {
    fn new(cave: &Cave) -> CaveUse {
        let left = left_behind(cave);
        let first = cave.start + padding(cave.start) as u64;
        let used = left.iter().map(|left| left.end).max().unwrap_or(first);
        CaveUse {
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
        let is_same = |left: &&LeftStub| left.address == trial.address && left.original == trial.original;
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
