//! Finds the system calls in the code of a function.
#![forbid(unsafe_code)]

use crate::process::patch::types::Call;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// The largest number of instructions between the instruction that loads the number and the system call.
const MAX_BETWEEN: usize = 10;
/// The opcode of `mov imm32, %eax`.
const TO_EAX: u8 = 0xb8;
/// The size in bytes of an instruction that loads a number into the register of the system call number.
pub(crate) const LOAD_SIZE: usize = 5;

/// Return the number that the first instruction loads into the register of the system call number; None if it does not
/// load one.
#[inline]
pub(crate) fn loaded_number(code: &[u8]) -> Option<u32> {
    (code[0] == TO_EAX).then(|| u32::from_le_bytes([code[1], code[2], code[3], code[4]]))
}

/// Return the system calls in the code of a function. Calls whose number is not a constant are left out.
pub(crate) fn calls(code: &[u8], start: u64) -> Vec<Call> {
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

/// Return whether eax still contains the system call number after this instruction: execution may continue at the next
/// instruction, and the first operand is not eax in any width.
fn keeps_eax(instruction: &Instruction) -> bool {
    let is_next = matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch);
    let is_eax = instruction.op_count() > 0
        && instruction.op_kind(0) == OpKind::Register
        && instruction.op_register(0).full_register() == Register::RAX;
    is_next && !is_eax
}
