//! Plans of patches: the replaced bytes, the place of the stub, the refusals, and the patches that a later run finds.
#![cfg(target_arch = "x86_64")]

#[path = "support/chance.rs"]
mod chance;

use chance::Chance;
use gdbheap_access::process::patch::{left_behind, plan_all, Cave, CodePlace, Condition, Operand, Patch, Test};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};

const START: u64 = 0x7f00_0000_1000;
const CAVE: u64 = 0x7f00_0010_0f3c;
const SIGNAL: u32 = 23;
/// push r15; push r14; push r13; ret
const PUSHES: &[u8] = &[0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0xc3];

fn place(code: &[u8], offset: u64, before: Option<u64>) -> CodePlace {
    let conditions = vec![Condition { operand: Operand::First, test: Test::Equal, value: 77 }];
    let before = before.map(|before| START + before);
    CodePlace { address: START + offset, before, start: START, function: code.to_vec(), conditions }
}

fn cave(size: usize) -> Cave {
    Cave { start: CAVE, bytes: vec![0; size], text: CAVE, stays: true }
}

fn plan(code: &[u8], offset: u64, before: Option<u64>) -> Result<Patch, String> {
    let planned = plan_all(&[place(code, offset, before)], &[cave(1024)], SIGNAL);
    planned.map(|mut patches| patches.remove(0)).map_err(|error| error.to_string())
}

/// Return the target of the jump at `from`.
fn target(from: u64, code: &[u8]) -> u64 {
    assert_eq!(code[0], 0xe9);
    (from + 5).wrapping_add_signed(i64::from(i32::from_le_bytes(code[1..5].try_into().unwrap())))
}

#[test]
fn a_function_is_entered_through_its_stub() {
    let patch = plan(PUSHES, 0, None).expect("a plan");
    assert_eq!((patch.address, &patch.original[..], patch.replacement.len()), (START, &PUSHES[..6], 6));
    let entry = target(START, &patch.replacement);
    assert!(patch.stub_at <= entry && entry < patch.trap && patch.trap < patch.stub_at + patch.stub.len() as u64);
    // The replaced instructions come at the end of the stub, followed by the jump back.
    let at = patch.stub.len() - 5;
    assert_eq!(patch.stub[at - 6..at], PUSHES[..6]);
    assert_eq!(target(patch.stub_at + at as u64, &patch.stub[at..]), START + 6);
}

#[test]
fn what_cannot_be_replaced_is_refused() {
    let refused = |code: &[u8], why: &str| {
        let reason = plan(code, 0, None).expect_err("no plan");
        assert!(reason.contains(why), "{reason}");
    };
    // nop; nop; nop; nop; nop; jmp to the second
    refused(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xfa], "jump leads into");
    // call; a function that ends before five bytes have passed
    refused(&[0xe8, 0, 0, 0, 0, 0xc3], "call a function");
    refused(&[0x31, 0xc0, 0xc3, 0x55, 0x53, 0x51], "end too soon");
    refused(&[0x06, 0x06, 0x06, 0x06, 0x06], "does not know");
    let far = Cave { start: START + (1 << 40), ..cave(1024) };
    assert!(plan_all(&[place(PUSHES, 0, None)], &[far], SIGNAL).is_err());
    assert!(plan_all(&[place(PUSHES, 0, None)], &[cave(64)], SIGNAL).is_err());
}

#[test]
fn a_stub_stays_as_long_as_the_jump_to_it() {
    let plan = |cave: Cave| plan_all(&[place(PUSHES, 0, None)], &[cave], SIGNAL);
    let unloaded = Cave { stays: false, ..cave(1024) };
    assert!(plan(unloaded.clone()).is_err());
    assert!(plan(Cave { text: START, ..unloaded }).is_ok());
}

/// xor eax, eax; je to the ret; mov eax, 28; syscall; neg eax; ret, and padding.
const SHORT: &[u8] =
    &[0x31, 0xc0, 0x74, 0x09, 0xb8, 28, 0, 0, 0, 0x0f, 0x05, 0xf7, 0xd8, 0xc3, 0x66, 0x0f, 0x1f, 0x44, 0, 0];

#[test]
fn a_call_is_carried_out_by_the_stub_where_what_follows_cannot_be_replaced() {
    assert!(plan(SHORT, 11, None).expect_err("no plan").contains("jump leads into"));
    let patch = plan(SHORT, 11, Some(4)).expect("a plan");
    assert_eq!((patch.address, patch.seen_at, &patch.original[..]), (START + 4, START + 11, &SHORT[4..11]));
    let entry = (target(START + 4, &patch.replacement) - patch.stub_at) as usize;
    assert_eq!(patch.stub[entry..entry + 7], SHORT[4..11]);
    let at = patch.stub.len() - 5;
    assert_eq!(target(patch.stub_at + at as u64, &patch.stub[at..]), START + 11);
}

/// Return whether the stub saves the flags before its first comparison changes them.
fn keeps_flags(patch: &Patch) -> bool {
    let entry = target(patch.address, &patch.replacement);
    let stub = &patch.stub[(entry - patch.stub_at) as usize..];
    let decoder = Decoder::with_ip(64, stub, entry, DecoderOptions::NONE);
    let before: Vec<Instruction> = decoder.into_iter().take_while(|found| found.mnemonic() != Mnemonic::Cmp).collect();
    assert!(before.len() < 20 && patch.trap > before[before.len() - 1].ip());
    before.iter().any(|found| found.code() == Code::Pushfq)
}

#[test]
fn flags_are_kept_but_where_a_function_is_called() {
    let beginning = plan(PUSHES, 0, None).expect("a plan");
    assert!(!keeps_flags(&beginning));
    let pad = [&[0xf3, 0x0f, 0x1e, 0xfa], PUSHES].concat();
    assert!(!keeps_flags(&plan(&pad, 4, None).expect("a plan")));
    // Places after a call, in the middle of a function, and at a beginning to which the function itself jumps back.
    assert!(keeps_flags(&plan(SHORT, 11, Some(4)).expect("a plan")));
    assert!(keeps_flags(&plan(&[&[0x90, 0x90], PUSHES].concat(), 2, None).expect("a plan")));
    assert!(keeps_flags(&plan(&[0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0x75, 0xf8, 0xc3], 0, None).expect("a plan")));
}

#[test]
fn a_later_run_finds_its_stub_and_uses_it_again() {
    let mut chance = Chance::new("a_later_run_finds_its_stub_and_uses_it_again");
    for _ in 0..20 {
        let mut cave = cave(1024);
        let value = chance.below(1 << 40);
        let mut wanted = place(PUSHES, 0, None);
        wanted.conditions[0].value = value;
        let patch = plan_all(&[wanted.clone()], &[cave.clone()], SIGNAL).expect("a plan").remove(0);
        let at = (patch.stub_at - CAVE) as usize;
        cave.bytes[at..at + patch.stub.len()].copy_from_slice(&patch.stub);
        let left = left_behind(&cave);
        assert_eq!(left.len(), 1);
        assert_eq!(
            (left[0].address, &left[0].original, &left[0].replacement),
            (START, &patch.original, &patch.replacement)
        );
        wanted.conditions[0].value = chance.below(1 << 40);
        let again = plan_all(&[wanted], &[cave.clone()], SIGNAL).expect("a plan").remove(0);
        assert_eq!((again.stub_at, again.stub.len()), (patch.stub_at, patch.stub.len()));
        // A patch of another place gets a stub of its own.
        let other = plan_all(&[place(SHORT, 11, Some(4))], &[cave], SIGNAL).expect("a plan").remove(0);
        assert!(other.stub_at >= left[0].end);
    }
}
