//! Finds the places where a program makes certain system calls: directly after the instructions that make them.
//!
//! Compilers and assemblers load the number of a system call into its register as a constant. A place is used only if
//! the object's table of functions confirms it: the code is decoded from the start of its function. So no data, and no
//! part of another instruction, is mistaken for such an instruction.
#![forbid(unsafe_code)]

use crate::arch::decoding::{calls, loaded_number, LOAD_SIZE};
use crate::memory::space::Space;
use crate::process::patch::types::Call;
use crate::process::unwind::{Module, Unwinder};

const MAX_FUNCTION: u64 = 1 << 20;
const LARGEST_TEXT: u64 = 1 << 30;
const WINDOW: u64 = 1 << 20;

/// The range [start, end) of an object's executable bytes.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub start: u64,
    pub end: u64,
}

/// A place in code that makes the system call `number`.
///
/// `address`: the instruction after the system call. `before`: the instruction that loads the number. `start`, `end`:
/// the function that contains both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub address: u64,
    pub before: u64,
    pub number: u32,
    pub start: u64,
    pub end: u64,
}

/// Return the places where the code in `texts` makes one of the system calls `numbers`, ascending. No places are found
/// in objects without a table of functions, and in objects whose tables do not fit into `room` bytes.
pub fn find_sites(space: &Space, texts: &[Text], modules: &[Module], room: u64, numbers: &[u32]) -> Vec<Site> {
    let mut objects = Unwinder::new(modules.to_vec(), room);
    let mut found: Vec<Site> = Vec::new();
    for at in texts.iter().flat_map(|text| candidates(space, text, numbers)) {
        let Some((start, end)) = objects.function_at(space, at) else { continue };
        if end <= start || end - start > MAX_FUNCTION {
            continue;
        }
        let mut code = vec![0u8; (end - start) as usize];
        if space.exact(start, &mut code).is_ok() {
            let calls = calls(&code, start).into_iter().filter(|call| numbers.contains(&call.number));
            found.extend(calls.map(|Call { address, before, number }| Site { address, before, number, start, end }));
        }
    }
    found.sort_by_key(|site| site.address);
    found.dedup();
    found
}

/// Return the addresses in the code where one of `numbers` may be loaded into the register of the system call number.
fn candidates(space: &Space, text: &Text, numbers: &[u32]) -> Vec<u64> {
    let end = text.end.min(text.start.saturating_add(LARGEST_TEXT));
    let mut found = Vec::new();
    let mut bytes = vec![0u8; WINDOW as usize + LOAD_SIZE - 1];
    for window in (text.start..end).step_by(WINDOW as usize) {
        let size = (end - window).min(bytes.len() as u64) as usize;
        let there = space.fill(window, &mut bytes[..size]);
        let is_one = |code: &[u8]| loaded_number(code).is_some_and(|number| numbers.contains(&number));
        let places = bytes[..there].windows(LOAD_SIZE).enumerate().filter(|(_, code)| is_one(code));
        found.extend(places.map(|(place, _)| window + place as u64));
    }
    found
}
