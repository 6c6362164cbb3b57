//! Unwinds the stacks of stopped threads, by the `.eh_frame` tables of their code.
//!
//! All registers are restored, and frames of signal handlers are followed. If a stack cannot be followed to its end,
//! the result has the reason, and the outer frames are unknown.
#![forbid(unsafe_code)]

use crate::bytes::{u64_at, word_at};
use crate::error::{Cancellation, Error, MissingByte, Result as Answer};
use crate::machine::{FrameRegisters, MAX_REGISTERS};
use crate::memory::space::Space;
use crate::work::Watcher;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult, FrameDescriptionEntry, LittleEndian,
    Location, ParsedEhFrameHdr, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value, Vendor,
};
use std::cell::RefCell;
use std::collections::HashMap;

const MAX_FRAMES: usize = 20_000;
/// The largest number of bytes of table entries that all frames of one thread may use in total. Compilers write a few
/// dozen bytes for a function, and 20,000 frames of 2 KB each fit.
const MAX_ENTRIES: u64 = 64 << 20;
/// The number of bytes of table entries between two checks for cancellation.
const UNHEARD: u64 = 1 << 20;
/// The bytes that each frame counts for in the work limit of a thread, in addition to its table entry.
const FRAME: u64 = 1 << 10;
const PIECE: usize = 1 << 16;
/// The largest number of registers that functions preserve on any machine.
const MAX_KEPT: usize = 11;
/// The largest size, in bytes, of one expression of an unwind table. The longest in the libraries of Debian 12 has 11
/// bytes (linkers write it for a PLT); hand-written assembler has a few dozen. gimli may need a few dozen bytes of
/// memory for each byte.
const MAX_EXPRESSION: usize = 1 << 10;
/// The largest number of words of memory that one expression of an unwind table reads. Compilers write one or two.
const MAX_READS: u32 = 16;
/// The largest number of cached pages.
const MAX_PAGES: usize = 4 << 10;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
/// The registers of a frame by their numbers. Registers that the machine does not have are zero.
type Values = [u64; MAX_REGISTERS];
/// For each register that a frame saved for its callers: its number, and the address where it was saved.
type SavedRegisters = [Option<(u64, u64)>; MAX_KEPT];

/// A loaded object: the range of its addresses, and the range from its `.eh_frame_hdr` to the end of the segment that
/// contains `.eh_frame_hdr`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Module {
    pub start: u64,
    pub end: u64,
    pub table_start: u64,
    pub table_end: u64,
}

struct LoadedModule {
    module: Module,
    /// The bytes from `.eh_frame_hdr` to the end of its segment, including `.eh_frame`. They are read when first
    /// needed.
    bytes: Option<Vec<u8>>,
}

struct StackFrame {
    values: Values,
    /// Whether the program counter is exact, not a return address: in the innermost frame, and in a frame that a signal
    /// interrupted.
    exact: bool,
    /// Whether a signal interrupted this frame. The signal handler may run on its own stack.
    after_signal: bool,
}

/// The reason why the walk of a stack ends early.
enum WalkEnd {
    Cancelled,
    Cut(String),
}

impl From<Cancellation> for WalkEnd {
    fn from(_: Cancellation) -> WalkEnd {
        WalkEnd::Cancelled
    }
}

impl From<String> for WalkEnd {
    fn from(reason: String) -> WalkEnd {
        WalkEnd::Cut(reason)
    }
}

/// The work done for one thread so far, and its limit. Work is measured in bytes of the table entries that were
/// evaluated.
struct Effort<'a> {
    watcher: &'a dyn Watcher,
    taken: u64,
    most: u64,
}

impl Effort<'_> {
    /// Add a frame, with `bytes` of unwind-table entries, to the work done for the thread. Call this before the entries
    /// are evaluated. Fails if the limit is exceeded or the user cancels.
    fn take(&mut self, bytes: u64) -> Result<(), WalkEnd> {
        let before = self.taken;
        self.taken = before.saturating_add(bytes).saturating_add(FRAME);
        if self.taken > self.most {
            return Err(WalkEnd::Cut("its frames need too many instructions of unwind tables".to_string()));
        }
        if before / UNHEARD != self.taken / UNHEARD {
            self.watcher.check()?;
        }
        Ok(())
    }
}

/// The stack of one thread. All lists have the innermost frame first.
///
/// - `counters`, `pointers`: the program counter and the stack pointer of each frame.
/// - `starts`: the address at which each frame's function begins; 0 if unknown.
/// - `cut`: why the walk ended early, or "".
/// - `unknown`: the program counter outside all objects, if this is why the walk ended.
/// - `saved`: the registers that functions saved for their callers, as (index of the frame, number of the register,
///   address), if requested.
/// - `taken`: the work that was done, in bytes of table entries.
#[derive(Clone, Debug, Default)]
pub struct Unwound {
    pub counters: Vec<u64>,
    pub pointers: Vec<u64>,
    pub starts: Vec<u64>,
    pub cut: String,
    pub unknown: Option<u64>,
    pub saved: Vec<(u64, u64, u64)>,
    pub taken: u64,
}

/// Unwind the stacks of several threads.
///
/// - `room`: how many bytes of memory the tables of all objects may take together.
/// - `effort`: the limit of the work for all threads together, in bytes of the table entries of their frames.
/// - `threads`: the registers of each thread, by DWARF number.
pub fn unwind_stacks(
    watcher: &dyn Watcher,
    space: &Space,
    modules: Vec<Module>,
    room: u64,
    effort: u64,
    threads: Vec<Vec<u64>>,
) -> Answer<Vec<Unwound>> {
    let mut unwinder = Unwinder::new(modules, room);
    unwinder.keeps_saved = true;
    let mut left = effort;
    let mut one = |values| {
        let found = unwinder.within(left.min(MAX_ENTRIES), watcher, space, Stack::Live(space), values)?;
        left = left.saturating_sub(found.taken);
        Ok(found)
    };
    threads.into_iter().map(&mut one).collect()
}

/// The memory from which the stack of a thread is read.
pub enum Stack<'a> {
    /// The stack in the process, whose thread is stopped.
    Live(&'a Space),
    /// A copy of the stack's bytes, which begin at `start`. All other memory of the process may have changed since.
    Copied { start: u64, bytes: &'a [u8] },
}

/// An unwinder that caches the tables that it has read.
pub struct Unwinder {
    modules: Vec<LoadedModule>,
    /// How many bytes of memory the tables of all objects may take together.
    room: u64,
    /// Whether the results should say where registers are saved.
    keeps_saved: bool,
}

impl Unwinder {
    /// Create an unwinder for code in these objects. The tables of all objects may take `room` bytes together.
    pub fn new(modules: Vec<Module>, room: u64) -> Unwinder {
        let modules = modules.into_iter().map(|module| LoadedModule { module, bytes: None }).collect();
        Unwinder { modules, room, keeps_saved: false }
    }

    /// Replace the loaded objects. The tables of objects that stay loaded are kept. All tables may take `room` bytes
    /// together.
    pub fn renew(&mut self, modules: Vec<Module>, room: u64) {
        self.room = room;
        let mut old = std::mem::take(&mut self.modules);
        let mut kept = |module| old.iter_mut().find(|loaded| loaded.module == module).and_then(|one| one.bytes.take());
        self.modules = modules.into_iter().map(|module| LoadedModule { bytes: kept(module), module }).collect();
    }

    /// Unwind the stack of a thread that has these registers, by DWARF number. `tables`: the memory from which the
    /// unwinder reads tables that it does not have yet.
    pub fn unwind(
        &mut self,
        watcher: &dyn Watcher,
        tables: &Space,
        stack: Stack,
        registers: Vec<u64>,
    ) -> Answer<Unwound> {
        self.within(MAX_ENTRIES, watcher, tables, stack, registers)
    }

    /// Unwind a stack as `unwind` does, with frames whose table entries have at most `most` bytes together.
    fn within(
        &mut self,
        most: u64,
        watcher: &dyn Watcher,
        tables: &Space,
        stack: Stack,
        registers: Vec<u64>,
    ) -> Answer<Unwound> {
        let known = tables.machine.frames;
        if registers.len() != known.count {
            return Err(Error::Invalid(format!("a frame has {} registers", known.count)));
        }
        let mut values = [0; MAX_REGISTERS];
        values[..known.count].copy_from_slice(&registers);
        watcher.check()?;
        let mut effort = Effort { watcher, taken: 0, most };
        let memory = PageCache::of(stack);
        let mut found = Unwound::default();
        let mut context = UnwindContext::new();
        let mut frame = StackFrame { values, exact: true, after_signal: false };
        while found.counters.len() < MAX_FRAMES {
            found.counters.push(frame.values[known.counter]);
            found.pointers.push(frame.values[known.stack_pointer]);
            found.starts.push(0);
            let step = self.step(tables, &memory, &frame, &mut context, &mut effort, &mut found);
            found.taken = effort.taken;
            match step {
                Ok(None) => return Ok(found),
                Ok(Some(next)) => frame = next,
                Err(WalkEnd::Cancelled) => return Err(Cancellation.into()),
                Err(WalkEnd::Cut(reason)) => {
                    found.cut = reason;
                    return Ok(found);
                }
            }
        }
        found.cut = "it has too many frames".to_string();
        Ok(found)
    }

    /// Return the frame that called `frame`; None if `frame` is the outermost.
    fn step(
        &mut self,
        tables: &Space,
        memory: &PageCache,
        frame: &StackFrame,
        context: &mut UnwindContext<usize>,
        effort: &mut Effort,
        found: &mut Unwound,
    ) -> Result<Option<StackFrame>, WalkEnd> {
        let known = &tables.machine.frames;
        let counter = frame.values[known.counter];
        let place = if frame.exact { counter } else { counter.wrapping_sub(1) };
        let Some(index) = self.module_at(place) else {
            found.unknown = Some(counter);
            return Err(format!("no object holds the code at {counter:#x}").into());
        };
        let keeps_saved = self.keeps_saved;
        let (header_at, bytes) = self.table(index, tables)?;
        let at_counter = |error: gimli::Error| WalkEnd::Cut(format!("{error} at {counter:#x}"));
        let found_entry = Entry::of(bytes, header_at, place, known.vendor).map_err(at_counter)?;
        if let Some(start) = found.starts.last_mut() {
            *start = found_entry.entry.initial_address();
        }
        effort.take(found_entry.bytes())?;
        let (step, saved) = by_entry(memory, &found_entry, tables, frame, place, context).map_err(at_counter)?;
        if keeps_saved {
            let of_frame = found.counters.len() as u64 - 1;
            found.saved.extend(saved.into_iter().flatten().map(|(register, at)| (of_frame, register, at)));
        }
        Ok(step)
    }
}

/// A cache of memory pages. Each page is read once, because the words of a stack lie close together.
struct PageCache<'a> {
    stack: Stack<'a>,
    pages: RefCell<HashMap<u64, Vec<u8>>>,
}

impl PageCache<'_> {
    fn of(stack: Stack<'_>) -> PageCache<'_> {
        PageCache { stack, pages: RefCell::default() }
    }

    fn word(&self, address: u64) -> Result<u64, MissingByte> {
        match self.stack {
            Stack::Live(space) => self.live_word(space, address),
            Stack::Copied { start, bytes } => {
                address.checked_sub(start).and_then(|at| word_at(bytes, at as usize)).ok_or(MissingByte(address))
            }
        }
    }

    fn live_word(&self, space: &Space, address: u64) -> Result<u64, MissingByte> {
        let size = space.machine.page;
        let start = size.down(address);
        let at = (address - start) as usize;
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= MAX_PAGES {
            pages.clear();
        }
        let page = pages.entry(start).or_insert_with(|| {
            let mut bytes = vec![0u8; size.bytes() as usize];
            let there = space.fill(start, &mut bytes);
            bytes.truncate(there);
            bytes
        });
        match page.get(at..at + 8) {
            Some(_) => Ok(u64_at(page, at)),
            None => space.word(address),
        }
    }
}

/// Return whether a word in [start, end) of the target has a value in [low, high]; true if part of the range cannot be
/// read.
pub fn mentions(space: &Space, start: u64, end: u64, low: u64, high: u64) -> bool {
    let mut at = start & !7;
    let mut bytes = vec![0u8; PIECE];
    while at < end {
        let size = (end - at).min(PIECE as u64) as usize;
        if space.exact(at, &mut bytes[..size]).is_err() {
            return true;
        }
        if (0..size / 8).any(|index| (low..=high).contains(&u64_at(&bytes, 8 * index))) {
            return true;
        }
        at += size as u64;
    }
    false
}

impl Unwinder {
    fn module_at(&self, address: u64) -> Option<usize> {
        self.modules.iter().position(|loaded| loaded.module.start <= address && address < loaded.module.end)
    }

    /// Return the address of an object's table, and the bytes of the table. Fails if the object has no table, or if all
    /// tables together would take more than `room` bytes.
    fn table(&mut self, index: usize, space: &Space) -> Result<(u64, &[u8]), String> {
        let Module { table_start: start, table_end: end, .. } = self.modules[index].module;
        if self.modules[index].bytes.is_none() {
            if start == 0 || end <= start {
                return Err("an object has no unwind table".to_string());
            }
            let taken: u64 = self.modules.iter().flat_map(|loaded| &loaded.bytes).map(|bytes| bytes.len() as u64).sum();
            let too_large = || "there is too little memory for an object's unwind table".to_string();
            if end - start > self.room.saturating_sub(taken) {
                return Err(too_large());
            }
            let mut bytes = Vec::new();
            bytes.try_reserve_exact((end - start) as usize).map_err(|_| too_large())?;
            bytes.resize((end - start) as usize, 0);
            let there = space.fill(start, &mut bytes);
            bytes.truncate(there);
            self.modules[index].bytes = Some(bytes);
        }
        Ok((start, self.modules[index].bytes.as_deref().unwrap_or_default()))
    }

    /// Return [start, end) of the function at `address`, according to the table of its object; None if the table does
    /// not contain the function.
    pub(crate) fn function_at(&mut self, tables: &Space, address: u64) -> Option<(u64, u64)> {
        let (header_at, bytes) = self.table(self.module_at(address)?, tables).ok()?;
        let entry = Entry::of(bytes, header_at, address, tables.machine.frames.vendor).ok()?.entry;
        Some((entry.initial_address(), entry.initial_address().checked_add(entry.len())?))
    }
}

/// The table entry for a piece of code, with the base addresses to which the pointers in the entry are relative.
struct Entry<'a> {
    entry: FrameDescriptionEntry<Slice<'a>>,
    section: EhFrame<Slice<'a>>,
    bases: BaseAddresses,
}

impl<'a> Entry<'a> {
    /// Find the entry for the code at `place`. `bytes`: the bytes that begin with `.eh_frame_hdr`, whose address is
    /// `header_at`.
    fn of(bytes: &'a [u8], header_at: u64, place: u64, vendor: Vendor) -> Result<Entry<'a>, gimli::Error> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(header_at);
        let header: ParsedEhFrameHdr<Slice> = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8)?;
        let gimli::Pointer::Direct(table_at) = header.eh_frame_ptr() else {
            return Err(gimli::Error::UnsupportedPointerEncoding);
        };
        let offset = table_at.checked_sub(header_at).filter(|offset| *offset < bytes.len() as u64);
        let offset = offset.ok_or(gimli::Error::NoUnwindInfoForAddress)?;
        let mut section = EhFrame::new(&bytes[offset as usize..], LittleEndian);
        section.set_vendor(vendor);
        let bases = bases.set_eh_frame(table_at);
        let table = header.table().ok_or(gimli::Error::NoUnwindInfoForAddress)?;
        let entry = table.fde_for_address(&section, &bases, place, EhFrame::cie_from_offset)?;
        Ok(Entry { entry, section, bases })
    }

    /// Return the size in bytes of the entry and of its CIE, which other entries may share.
    fn bytes(&self) -> u64 {
        self.entry.entry_len() as u64 + self.entry.cie().entry_len() as u64
    }
}

/// Return the frame that called `frame`, and where the function of `frame` saved registers. The calling frame is None
/// if `frame` is the outermost.
fn by_entry(
    memory: &PageCache,
    found: &Entry,
    tables: &Space,
    frame: &StackFrame,
    place: u64,
    context: &mut UnwindContext<usize>,
) -> Result<(Option<StackFrame>, SavedRegisters), gimli::Error> {
    let Entry { entry, section, bases } = found;
    let FrameRegisters { count, stack_pointer, return_address, counter, kept, .. } = tables.machine.frames;
    let encoding = entry.cie().encoding();
    let signal = entry.cie().is_signal_trampoline();
    let row = entry.unwind_info_for_address(section, bases, context, place)?;
    let machine = Machine { memory, section, encoding, values: &frame.values };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => machine.register(*register)?.wrapping_add_signed(*offset),
        CfaRule::Expression(expression) => machine.evaluate(expression, None)?,
    };
    let mut values = frame.values;
    values[stack_pointer] = cfa;
    let saved_at = |number: u16| match row.register(Register(number)) {
        RegisterRule::Offset(offset) => Some((number.into(), cfa.wrapping_add_signed(offset))),
        _ => None,
    };
    let saved = std::array::from_fn(|place| kept.get(place).copied().and_then(saved_at));
    // A function that calls no other function may still have its return address in the register. In any other frame,
    // the register contains the address to which the frame's callee returns. There, a rule "undefined" for the return
    // address means that the frame has no caller.
    let keeps_address = return_address != counter && frame.exact;
    if !keeps_address && row.register(Register(return_address as u16)) == RegisterRule::Undefined {
        return Ok((None, saved));
    }
    // A stack grows downwards. Only a signal handler's frame may lead to another stack.
    let least = frame.values[stack_pointer].saturating_add(u64::from(!keeps_address));
    if cfa < least && !signal && !frame.after_signal {
        return Err(gimli::Error::CfiInstructionInInvalidContext);
    }
    for number in (0..count as u16).filter(|number| usize::from(*number) != counter || counter == return_address) {
        if let Some(value) = machine.restored(&row.register(Register(number)), number, cfa)? {
            values[number as usize] = value;
        }
    }
    // A return address may be signed, in bits that are no part of an address.
    values[counter] = values[return_address] & tables.machine.pointer_mask;
    if values[counter] == 0 {
        return Ok((None, saved));
    }
    Ok((Some(StackFrame { values, exact: signal, after_signal: signal }), saved))
}

/// The inputs for evaluating unwind rules and their expressions: the registers of one frame, and the memory.
struct Machine<'a> {
    memory: &'a PageCache<'a>,
    section: &'a EhFrame<Slice<'a>>,
    encoding: gimli::Encoding,
    values: &'a Values,
}

impl Machine<'_> {
    fn register(&self, register: Register) -> Result<u64, gimli::Error> {
        self.values.get(register.0 as usize).copied().ok_or(gimli::Error::CfiInstructionInInvalidContext)
    }

    fn word(&self, address: u64) -> Result<u64, gimli::Error> {
        self.memory.word(address).map_err(|_| gimli::Error::OffsetOutOfBounds)
    }

    /// Return the value of a register in the calling frame, computed by the unwind rule `rule`; None if the rule is
    /// `Undefined`, so that the value is lost.
    fn restored(&self, rule: &RegisterRule<usize>, number: u16, cfa: u64) -> Result<Option<u64>, gimli::Error> {
        Ok(Some(match rule {
            RegisterRule::Undefined => return Ok(None),
            RegisterRule::SameValue => self.register(Register(number))?,
            RegisterRule::Offset(offset) => self.word(cfa.wrapping_add_signed(*offset))?,
            RegisterRule::ValOffset(offset) => cfa.wrapping_add_signed(*offset),
            RegisterRule::Register(other) => self.register(*other)?,
            RegisterRule::Expression(expression) => self.word(self.evaluate(expression, Some(cfa))?)?,
            RegisterRule::ValExpression(expression) => self.evaluate(expression, Some(cfa))?,
            RegisterRule::Constant(value) => *value,
            _ => return Err(gimli::Error::CfiInstructionInInvalidContext),
        }))
    }

    fn evaluate(&self, expression: &UnwindExpression<usize>, initial: Option<u64>) -> Result<u64, gimli::Error> {
        // Compilers write no loops. Without them an expression has at most as many steps as bytes, and these bytes
        // count as work. A read of memory takes longer than a step.
        if expression.length > MAX_EXPRESSION {
            return Err(gimli::Error::TooManyIterations);
        }
        let mut evaluation = expression.get(self.section)?.evaluation(self.encoding);
        evaluation.set_max_iterations(expression.length as u32);
        if let Some(value) = initial {
            evaluation.set_initial_value(value);
        }
        let (mut result, mut reads) = (evaluation.evaluate()?, 0);
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, .. } => {
                    reads += 1;
                    if reads > MAX_READS {
                        return Err(gimli::Error::TooManyIterations);
                    }
                    evaluation.resume_with_memory(Value::Generic(self.word(address)?))?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register)?))?
                }
                _ => return Err(gimli::Error::CfiInstructionInInvalidContext),
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Ok(address),
                _ => Err(gimli::Error::CfiInstructionInInvalidContext),
            },
            _ => Err(gimli::Error::CfiInstructionInInvalidContext),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Effort, Module, PageCache, Stack, Unwinder, WalkEnd, FRAME, MAX_ENTRIES, MAX_EXPRESSION, UNHEARD};
    use crate::machine::{Machine, EM_X86_64};
    use crate::memory::space::{Backing, Segment, Space};
    use crate::testing::{CancellingWatcher, NoWatcher};
    use crate::work::Watcher;
    use gimli::{EhFrame, LittleEndian, UnwindExpression};

    /// Return the reason why a walk ends early, and the number of bytes after which it ends, for frames whose entries
    /// have `size` bytes each.
    fn end_of(watcher: &dyn Watcher, size: u64) -> (WalkEnd, u64) {
        let mut effort = Effort { watcher, taken: 0, most: MAX_ENTRIES };
        loop {
            if let Err(stop) = effort.take(size) {
                return (stop, effort.taken);
            }
        }
    }

    #[test]
    fn long_walks_are_ended() {
        for size in [0, 24, 20 << 20, u64::MAX] {
            let (stop, taken) = end_of(&CancellingWatcher, size);
            assert!(matches!(stop, WalkEnd::Cancelled) && taken <= UNHEARD + size + FRAME || size > MAX_ENTRIES);
            let (stop, taken) = end_of(&NoWatcher, size);
            assert!(matches!(stop, WalkEnd::Cut(_)) && taken > MAX_ENTRIES);
        }
    }

    #[test]
    fn long_expressions_are_refused() {
        const ONE: u8 = 0x31;
        const NOTHING: u8 = 0x96;
        let bytes = [vec![ONE], vec![NOTHING; MAX_EXPRESSION]].concat();
        let (section, memory) =
            (EhFrame::new(&bytes, LittleEndian), PageCache::of(Stack::Copied { start: 0, bytes: &[] }));
        let encoding = gimli::Encoding { format: gimli::Format::Dwarf32, version: 1, address_size: 8 };
        let values = [0; crate::machine::MAX_REGISTERS];
        let inputs = super::Machine { memory: &memory, section: &section, encoding, values: &values };
        let evaluated = |length| inputs.evaluate(&UnwindExpression { offset: 0, length }, None);
        assert_eq!(evaluated(MAX_EXPRESSION), Ok(1));
        assert!(evaluated(MAX_EXPRESSION + 1).is_err());
    }

    #[test]
    fn tables_share_one_room() {
        const SIZE: u64 = 1 << 20;
        let path = std::env::temp_dir().join(format!("gdbheap-tables-{}", std::process::id()));
        std::fs::File::create(&path).and_then(|file| file.set_len(SIZE)).unwrap();
        let file = Backing::File { index: 0, offset: 0 };
        let segments = [SIZE, 2 * SIZE, 3 * SIZE].map(|start| Segment { start, end: start + SIZE, backing: file });
        let machine = Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).unwrap();
        let space = Space::for_core(machine, segments.to_vec(), &[path.to_string_lossy().into_owned()]).unwrap();
        std::fs::remove_file(&path).unwrap();
        let module = |start| Module { start, end: start + SIZE, table_start: start, table_end: start + SIZE };
        let modules = [SIZE, 2 * SIZE, 3 * SIZE].map(module).to_vec();
        let mut unwinder = Unwinder::new(modules.clone(), 2 * SIZE);
        let read = |unwinder: &mut Unwinder| [0, 1, 2].map(|index| unwinder.table(index, &space).is_ok());
        assert_eq!(read(&mut unwinder), [true, true, false]);
        // Unloaded objects give back their room. A table that is too large for the memory is an error, and does not end
        // the process.
        let huge = Module { table_end: 1 << 62, ..modules[0] };
        unwinder.renew(vec![huge, modules[1], modules[2]], u64::MAX);
        assert_eq!(read(&mut unwinder), [false, true, true]);
    }
}
