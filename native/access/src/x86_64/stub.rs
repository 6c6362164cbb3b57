//! The code that is written into the target: the jump, and the instructions of the stub.
#![forbid(unsafe_code)]

use crate::arch::registers::{EFLAGS, R10, R11, R8, R9, RAX, RCX, RDI, RDX, RIP, RSI, RSP};
use crate::bytes::u64_at;
use crate::error::{Error, Result};
use crate::process::patch::header::{write_header, HEADER};
use crate::process::patch::types::{Condition, Function, Operand, Patch, PatchRequest, Test};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionBlock,
};

/// The size in bytes of the instruction `jmp rel32`.
const JUMP_SIZE: usize = 5;
/// The reach in bytes of the instruction `jmp rel32`, less some margin.
pub(crate) const REACH: u64 = 0x7fff_0000;
const NOP: u8 = 0x90;
const TOO_FAR: &str = "the space for their new code is too far away";
/// The landing pad for indirect calls. A patch does not replace it.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// The number of bytes below the stack pointer that a function may use without moving the stack pointer (System V ABI).
const RED_ZONE: u8 = 128;
/// The number of signal masks on the stack of a thread that stops in a stub: the mask during the report, and the
/// thread's own mask.
const MASKS: usize = 2;
/// The registers that follow the signal masks on the stack of a thread that stops in a stub, in this order.
const SAVED: [usize; 10] = [R11, R10, R9, R8, RDI, RSI, RDX, RCX, RAX, EFLAGS];

/// Plan a patch. The error says why the patch is impossible.
pub(crate) fn plan(function: Function, wish: &PatchRequest) -> Result<Patch> {
    let (from, address) = (wish.from, wish.address);
    let code = from.checked_sub(function.start).and_then(|offset| function.code.get(offset as usize..));
    let code = code.unwrap_or_default();
    let displaced = displaced(code, from, address)?;
    let size = displaced.iter().map(Instruction::len).sum::<usize>();
    let back = from + size as u64;
    if targets(function).any(|target| from < target && target < back) {
        return Err(refused(from, "a jump leads into them"));
    }
    let mut stub = vec![0; HEADER];
    let carry_out = |stub: &mut Vec<u8>, to| {
        let moved = moved(&displaced, wish.stub_at + stub.len() as u64, to);
        moved.map(|moved| stub.extend(moved)).ok_or_else(|| refused(from, "they cannot be moved"))
    };
    if from < address {
        carry_out(&mut stub, None)?;
    }
    let flags = if is_beginning(function, address) { Flags::Free } else { Flags::Kept };
    let trap = wish.stub_at + look_and_tell(&mut stub, wish, flags) as u64;
    if from < address {
        let end = wish.stub_at + stub.len() as u64;
        stub.extend(replacement(end, back, JUMP_SIZE).ok_or_else(|| refused(from, TOO_FAR))?);
    } else {
        carry_out(&mut stub, Some(back))?;
    }
    let replacement = replacement(from, wish.stub_at + HEADER as u64, size);
    let replacement = replacement.ok_or_else(|| refused(from, TOO_FAR))?;
    let original = code[..size].to_vec();
    write_header(&mut stub, from, &original);
    Ok(Patch { address: from, original, replacement, stub_at: wish.stub_at, stub, trap, seen_at: address })
}

/// Write the comparisons, and the code that sends the signal if all conditions hold. Return the offset in the stub at
/// which a thread then stops.
fn look_and_tell(stub: &mut Vec<u8>, wish: &PatchRequest, flags: Flags) -> usize {
    enter(stub, flags);
    let leaves = wish.conditions.iter().map(|condition| compare(stub, *condition)).collect::<Vec<_>>();
    save_rest(stub, flags);
    let trap = tell(stub, wish.signal);
    restore_rest(stub);
    let out = stub.len();
    for at in leaves.into_iter().flatten() {
        stub[at..at + 4].copy_from_slice(&((out - (at + 4)) as u32).to_le_bytes());
    }
    leave(stub, flags);
    trap
}

/// Return whether threads reach `address` only by calls of the function. The address must then be the function's start
/// or follow its landing pad.
fn is_beginning(function: Function, address: u64) -> bool {
    let pad = if function.code.starts_with(&ENDBR64) { ENDBR64.len() as u64 } else { 0 };
    let is_first = address == function.start || address == function.start + pad;
    is_first && !targets(function).any(|target| target == address)
}

fn refused(address: u64, reason: &str) -> Error {
    Error::Invalid(format!("the instructions at {address:#x} cannot be replaced: {reason}"))
}

/// Return the whole instructions that the jump replaces: all up to `end`, and at least as many as the jump needs.
fn displaced(code: &[u8], address: u64, end: u64) -> Result<Vec<Instruction>> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut found: Vec<Instruction> = Vec::new();
    let mut size = 0;
    while size < JUMP_SIZE || address + (size as u64) < end {
        if found.last().is_some_and(|last| ends(last) && !is_padding(&code[size..JUMP_SIZE.min(code.len())])) {
            return Err(refused(address, "they end too soon"));
        }
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(refused(address, "gdbheap does not know them"));
        }
        size += instruction.len();
        found.push(instruction);
    }
    let is_call = |found: &Instruction| {
        found.code() != Code::Syscall && matches!(found.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
    };
    // If a call were moved, its return address would be in the stub.
    if found.iter().any(is_call) {
        return Err(refused(address, "they call a function"));
    }
    Ok(found)
}

fn ends(instruction: &Instruction) -> bool {
    use FlowControl::{IndirectBranch, Return, UnconditionalBranch};
    matches!(instruction.flow_control(), Return | UnconditionalBranch | IndirectBranch)
}

/// Return whether the code is padding that compilers put between functions: nop of various lengths, int3.
fn is_padding(code: &[u8]) -> bool {
    matches!(code, [] | [0xcc, ..] | [NOP, ..] | [0x66 | 0x0f | 0x2e, ..])
}

/// Return the addresses to which the function's jumps and calls lead. The instructions at such an address cannot be
/// replaced.
fn targets(function: Function<'_>) -> impl Iterator<Item = u64> + '_ {
    let decoder = Decoder::with_ip(64, function.code, function.start, DecoderOptions::NONE);
    decoder.into_iter().map(|instruction| instruction.near_branch_target()).filter(|target| *target != 0)
}

/// Return the machine code of the instructions, moved to the address `at`. If `back` is given, a jump to `back`
/// follows.
fn moved(displaced: &[Instruction], at: u64, back: Option<u64>) -> Option<Vec<u8>> {
    let mut instructions = displaced.to_vec();
    if let Some(back) = back {
        instructions.push(Instruction::with_branch(Code::Jmp_rel32_64, back).ok()?);
    }
    let block = InstructionBlock::new(&instructions, at);
    BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok().map(|encoded| encoded.code_buffer)
}

/// Return a jump from one address to another, padded to the size of the instructions that it replaces; None if the
/// distance is too large for a jump.
pub(crate) fn replacement(from: u64, to: u64, size: usize) -> Option<Vec<u8>> {
    let distance = to.wrapping_sub(from + JUMP_SIZE as u64) as i64;
    let distance = i32::try_from(distance).ok()?;
    let mut bytes = [&[0xe9][..], &distance.to_le_bytes()].concat();
    bytes.resize(size, NOP);
    Some(bytes)
}

/// Whether a stub saves and restores the processor flags. Saving them takes longer than everything else the stub does
/// to compare a call's arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flags {
    Kept,
    /// At the beginning of a function the flags are not in use (System V ABI; the direction flag is not changed).
    Free,
}

/// Write code that skips the red zone and saves the registers that the comparisons use.
fn enter(code: &mut Vec<u8>, flags: Flags) {
    move_stack(code, -i32::from(RED_ZONE));
    match flags {
        Flags::Kept => code.push(0x9c), // pushfq
        Flags::Free => move_stack(code, -8),
    }
    code.extend([0x50, 0x51, 0x52]); // push rax, rcx, rdx
}

/// Write code that saves the other registers that are used when a thread reports itself.
fn save_rest(code: &mut Vec<u8>, flags: Flags) {
    if flags == Flags::Free {
        code.extend([0x9c, 0x8f, 0x44, 0x24, 0x18]); // pushfq; pop [rsp+24]
    }
    code.extend([0x56, 0x57]); // push rsi, rdi
    code.extend([0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53]); // push r8, r9, r10, r11
}

fn restore_rest(code: &mut Vec<u8>) {
    code.extend([0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58]); // pop r11, r10, r9, r8
    code.extend([0x5f, 0x5e]); // pop rdi, rsi
}

fn leave(code: &mut Vec<u8>, flags: Flags) {
    code.extend([0x5a, 0x59, 0x58]); // pop rdx, rcx, rax
    match flags {
        Flags::Kept => code.push(0x9d), // popfq
        Flags::Free => move_stack(code, 8),
    }
    move_stack(code, i32::from(RED_ZONE));
}

/// Write `lea rsp, [rsp+distance]`, which changes no flag.
fn move_stack(code: &mut Vec<u8>, distance: i32) {
    code.extend([0x48, 0x8d, 0xa4, 0x24]);
    code.extend(distance.to_le_bytes());
}

/// Write the code of a comparison. Return the offsets of the jumps that are taken if the condition does not hold; their
/// distances must be filled in.
fn compare(code: &mut Vec<u8>, condition: Condition) -> Vec<usize> {
    let mut jumps = Vec::new();
    match condition.operand {
        Operand::First => code.extend([0x48, 0x89, 0xf8]),  // mov rax, rdi
        Operand::Second => code.extend([0x48, 0x89, 0xf0]), // mov rax, rsi
        Operand::Product => {
            code.extend([0x48, 0x89, 0xf8, 0x48, 0xf7, 0xe6]); // mov rax, rdi; mul rsi
            jumps.push(jump_if(code, 0x80)); // jo: no such block
        }
        Operand::ChunkSize => {
            code.extend([0x48, 0x85, 0xff]); // test rdi, rdi
            jumps.push(jump_if(code, 0x84)); // je
            code.extend([0x48, 0x8b, 0x47, 0xf8, 0x48, 0x83, 0xe0, 0xf8]); // mov rax, [rdi-8]; and rax, -8
        }
    }
    code.extend([0x48, 0xb9]); // mov rcx, value
    code.extend(condition.value.to_le_bytes());
    code.extend([0x48, 0x39, 0xc8]); // cmp rax, rcx
    jumps.push(match condition.test {
        Test::Equal => jump_if(code, 0x85),   // jne
        Test::AtLeast => jump_if(code, 0x82), // jb
        Test::AtMost => jump_if(code, 0x87),  // ja
    });
    jumps
}

/// Write `jcc rel32`. Return the offset of its distance.
fn jump_if(code: &mut Vec<u8>, condition: u8) -> usize {
    code.extend([0x0f, condition, 0, 0, 0, 0]);
    code.len() - 4
}

/// Write the code that sends the signal to the thread itself; the signal is not blocked meanwhile. Return the offset at
/// which the thread then stops.
fn tell(code: &mut Vec<u8>, signal: u32) -> usize {
    let others = !(1u64 << (signal - 1));
    code.extend([0x6a, 0x00]); // push 0: for its own mask
    code.extend([0x48, 0xb8]); // mov rax, all other signals
    code.extend(others.to_le_bytes());
    code.push(0x50); // push rax
    code.extend([0xb8, 14, 0, 0, 0, 0xbf, 2, 0, 0, 0]); // mov eax, rt_sigprocmask; mov edi, SIG_SETMASK
    code.extend([0x48, 0x89, 0xe6, 0x48, 0x8d, 0x54, 0x24, 0x08]); // mov rsi, rsp; lea rdx, [rsp+8]
    code.extend([0x41, 0xba, 8, 0, 0, 0, 0x0f, 0x05]); // mov r10d, 8; syscall
    code.extend([0xb8, 186, 0, 0, 0, 0x0f, 0x05]); // mov eax, gettid; syscall
    code.extend([0x89, 0xc7, 0xbe]); // mov edi, eax; mov esi, signal
    code.extend(signal.to_le_bytes());
    code.extend([0xb8, 200, 0, 0, 0, 0x0f, 0x05]); // mov eax, tkill; syscall
    let trap = code.len();
    code.extend([0xb8, 14, 0, 0, 0, 0xbf, 2, 0, 0, 0]); // mov eax, rt_sigprocmask; mov edi, SIG_SETMASK
    code.extend([0x48, 0x8d, 0x74, 0x24, 0x08, 0x31, 0xd2]); // lea rsi, [rsp+8]; xor edx, edx
    code.extend([0x41, 0xba, 8, 0, 0, 0, 0x0f, 0x05]); // mov r10d, 8; syscall
    code.extend([0x48, 0x83, 0xc4, 0x10]); // add rsp, 16
    trap
}

/// Return how many bytes `original_registers` needs from the stack pointer of a thread that is at a trap.
pub const fn frame_size() -> usize {
    8 * (MASKS + SAVED.len())
}

/// Return the registers that a thread had when it came to `address`, and the signals that it blocked there. Both are
/// computed from the thread's registers at the trap and from the bytes at its stack pointer.
pub fn original_registers(at_trap: &[u64], frame: &[u8], address: u64) -> (Vec<u64>, u64) {
    let mut registers = at_trap.to_vec();
    for (place, index) in SAVED.into_iter().enumerate() {
        registers[index] = u64_at(frame, 8 * (MASKS + place));
    }
    registers[RSP] = at_trap[RSP] + frame_size() as u64 + u64::from(RED_ZONE);
    registers[RIP] = address;
    (registers, u64_at(frame, 8))
}
