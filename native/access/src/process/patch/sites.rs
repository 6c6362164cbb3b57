//! Where a program makes certain system calls: directly behind the instructions that make them.
//!
//! Compilers and assemblers put the number into eax by a constant (`mov $9, %eax; syscall`). Only what the object's table
//! of functions confirms is taken: the code is decoded from the start of its function, so that no constant, and no part
//! of another instruction, is taken for one.

use crate::memory::space::Space;
use crate::process::unwind::{Module, Unwinder};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// How many instructions may lie between the number and the call.
const MAX_BETWEEN: usize = 10;
const MAX_FUNCTION: u64 = 1 << 20;
const LARGEST_TEXT: u64 = 1 << 30;
const WINDOW: u64 = 1 << 20;
/// `mov imm32, %eax`.
const TO_EAX: u8 = 0xb8;
const NUMBER_SIZE: usize = 5;

/// The executable bytes of an object, [start, end).
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub start: u64,
    pub end: u64,
}

/// The instruction behind one that makes the system call `number`, the one that says which, and the function that they are
/// in, [start, end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub address: u64,
    pub before: u64,
    pub number: u32,
    pub start: u64,
    pub end: u64,
}

/// The places where the code in `texts` makes one of the system calls `numbers`, ascending. Objects without a table of
/// functions have none, nor those whose tables do not fit into `room` bytes.
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

/// Where a number may be put into eax.
fn candidates(space: &Space, text: &Text, numbers: &[u32]) -> Vec<u64> {
    let end = text.end.min(text.start.saturating_add(LARGEST_TEXT));
    let mut found = Vec::new();
    let mut bytes = vec![0u8; WINDOW as usize + NUMBER_SIZE - 1];
    for window in (text.start..end).step_by(WINDOW as usize) {
        let size = (end - window).min(bytes.len() as u64) as usize;
        let there = space.fill(window, &mut bytes[..size]);
        let is_one = |code: &[u8]| {
            code[0] == TO_EAX && numbers.contains(&u32::from_le_bytes([code[1], code[2], code[3], code[4]]))
        };
        let places = bytes[..there].windows(NUMBER_SIZE).enumerate().filter(|(_, code)| is_one(code));
        found.extend(places.map(|(place, _)| window + place as u64));
    }
    found
}

/// A system call: the address behind it, that of the instruction which puts the number into eax, and the number.
struct Call {
    address: u64,
    before: u64,
    number: u32,
}

/// The system calls of a function whose number is a constant.
fn calls(code: &[u8], start: u64) -> Vec<Call> {
    let mut found = Vec::new();
    let mut loaded: Option<(u32, u64, usize)> = None;
    for instruction in Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter() {
        if instruction.is_invalid() {
            break;
        }
        if instruction.code() == Code::Syscall {
            let call = |(number, before, _)| Call { address: instruction.next_ip(), before, number };
            found.extend(loaded.map(call));
        }
        loaded = match (put_into_eax(&instruction), loaded) {
            (Some(number), _) => Some((number, instruction.ip(), 0)),
            (None, Some((number, at, since))) if keeps_eax(&instruction) && since < MAX_BETWEEN => {
                Some((number, at, since + 1))
            }
            _ => None,
        };
    }
    found
}

fn put_into_eax(instruction: &Instruction) -> Option<u32> {
    let is_constant = instruction.op_count() == 2
        && matches!(instruction.code(), Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 | Code::Mov_rm64_imm32)
        && instruction.op_kind(0) == OpKind::Register
        && matches!(instruction.op_register(0), Register::EAX | Register::RAX);
    is_constant.then(|| instruction.immediate(1) as u32)
}

/// Whether it goes on to the next instruction, and its first operand is not eax in any width.
fn keeps_eax(instruction: &Instruction) -> bool {
    let is_next = matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch);
    let is_eax = instruction.op_count() > 0
        && instruction.op_kind(0) == OpKind::Register
        && instruction.op_register(0).full_register() == Register::RAX;
    is_next && !is_eax
}
