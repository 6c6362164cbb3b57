//! Unwind the stack of the calling thread by the `.eh_frame` tables. The result for each instruction is cached as a
//! rule.

use super::memory::Windows;
use super::modules::Modules;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, Evaluation, EvaluationResult, EvaluationStorage,
    LittleEndian, Location, Piece, Reader, Register, RegisterRule, UnwindContext, UnwindContextStorage,
    UnwindExpression, UnwindSection, UnwindTableRow, Value,
};

/// The number of registers in tables, which are numbered as in DWARF: rax to r15, and rip.
pub(super) const REGISTERS: usize = 17;
const RBP: usize = 6;
const RSP: usize = 7;
const RIP: usize = 16;
const KEPT: usize = 4096;
const MAX_STEPS: u32 = 100;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The sizes of gimli's storage, large enough for x86-64. Some of the storage is on the program's own stack, which may
/// be small.
struct SmallStorage;

impl<T: gimli::ReaderOffset> UnwindContextStorage<T> for SmallStorage {
    type Rules = [(Register, RegisterRule<T>); REGISTERS + 1];
    type Stack = [UnwindTableRow<T, Self>; 3];
}

impl<R: Reader> EvaluationStorage<R> for SmallStorage {
    type Stack = [Value; 16];
    type ExpressionStack = [(R, R); 1];
    type Result = [Piece<R>; 1];
}

/// The registers of a frame. `known` has a bit for each register whose value is known.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    pub(super) values: [u64; REGISTERS],
    known: u32,
}

impl Registers {
    /// Return the current values of the callee-saved registers, the stack pointer and the instruction pointer.
    #[inline(always)]
    pub(super) fn here() -> Registers {
        let mut values = [0u64; REGISTERS];
        // SAFETY: the code only writes into the array.
        unsafe {
            core::arch::asm!(
                "lea {word}, [rip]",
                "mov [{values} + 128], {word}",
                "mov [{values} + 24], rbx",
                "mov [{values} + 48], rbp",
                "mov [{values} + 56], rsp",
                "mov [{values} + 96], r12",
                "mov [{values} + 104], r13",
                "mov [{values} + 112], r14",
                "mov [{values} + 120], r15",
                word = out(reg) _,
                values = in(reg) values.as_mut_ptr(),
                options(nostack, preserves_flags),
            );
        }
        let known = [3, RBP, RSP, 12, 13, 14, 15, RIP].iter().fold(0, |known, number| known | 1 << number);
        Registers { values, known }
    }

    pub(super) fn stack_pointer(&self) -> u64 {
        self.values[RSP]
    }

    fn get(&self, number: usize) -> Option<u64> {
        self.values.get(number).copied().filter(|_| self.known >> number & 1 != 0)
    }

    fn set(&mut self, number: usize, value: Option<u64>) {
        if let Some(place) = self.values.get_mut(number) {
            *place = value.unwrap_or(0);
            self.known = self.known & !(1 << number) | u32::from(value.is_some()) << number;
        }
    }
}

/// A compact form of the unwind table's row for one instruction, for the usual kinds of frames.
///
/// - `place`, `age`: the instruction's address, and the age of the list of loaded objects.
/// - `frame`: the distance in bytes from rsp (or from rbp if `by_rbp`) to the frame's end. The return address is just
///   below that end.
/// - `rbp`: the distance in bytes from the frame's end to the saved rbp; 0 if rbp is unchanged.
///
/// A value whose bytes are all 0 is not a rule.
#[derive(Clone, Copy, Default)]
struct Rule {
    place: u64,
    age: u64,
    frame: i32,
    rbp: i32,
    by_rbp: bool,
}

/// A cache of rules by instruction, and gimli's context for reading tables. The context is too large for the program's
/// own stack. A value whose bytes are all 0 is valid.
pub(super) struct Rules {
    kept: [Rule; KEPT],
    context: UnwindContext<usize, SmallStorage>,
}

/// The outcome of a step to the calling frame.
pub(super) enum Step {
    On,
    Outermost,
    Unknown,
}

/// One frame of the thread. `is_exact`: whether the frame is the innermost one, or was interrupted by a signal.
pub(super) struct Frame {
    pub(super) registers: Registers,
    pub(super) is_exact: bool,
    after_signal: bool,
}

impl Frame {
    pub(super) fn new(registers: Registers) -> Frame {
        Frame { registers, is_exact: true, after_signal: false }
    }

    /// Return an address inside the frame's function. If a call is a function's last instruction, its return address is
    /// already outside the function.
    pub(super) fn place(&self) -> u64 {
        self.registers.values[RIP].wrapping_sub(u64::from(!self.is_exact))
    }

    /// Go to the frame that called this one, by a cached rule or else by the unwind table of the loaded object.
    pub(super) fn step(&mut self, windows: &mut Windows, modules: &mut Modules, rules: &mut Rules) -> Step {
        let (place, age) = (self.place(), modules.age);
        let slot = (place ^ place >> 12) as usize % KEPT;
        let kept = rules.kept.get(slot).copied().unwrap_or_default();
        if (kept.place, kept.age) == (place, age) && place != 0 {
            return self
                .by_rule(windows, kept)
                .map_or(Step::Unknown, |is_on| if is_on { Step::On } else { Step::Outermost });
        }
        let Some(module) = modules.find(place) else { return Step::Unknown };
        let Some((header_at, bytes)) = module.table(windows.pid()) else { return Step::Unknown };
        match self.by_table(windows, &mut rules.context, bytes, header_at, place) {
            Ok((step, rule)) => {
                if let (Some(rule), Some(into)) = (rule, rules.kept.get_mut(slot)) {
                    *into = Rule { place, age, ..rule };
                }
                step
            }
            Err(_) => Step::Unknown,
        }
    }

    /// Go to the calling frame by a rule. Return false if this frame is the outermost one, and None if memory or a
    /// register is missing.
    fn by_rule(&mut self, windows: &mut Windows, rule: Rule) -> Option<bool> {
        let base = self.registers.get(if rule.by_rbp { RBP } else { RSP })?;
        let cfa = base.wrapping_add_signed(rule.frame.into());
        self.check(cfa, false)?;
        let caller = windows.word(cfa.wrapping_sub(8))?;
        let rbp = match rule.rbp {
            0 => self.registers.get(RBP),
            distance => Some(windows.word(cfa.wrapping_add_signed(distance.into()))?),
        };
        // The rule does not cover the other registers, so they are unknown from now on.
        self.registers.known = 0;
        self.registers.set(RBP, rbp);
        self.registers.set(RSP, Some(cfa));
        self.registers.set(RIP, Some(caller));
        (self.is_exact, self.after_signal) = (false, false);
        Some(caller != 0)
    }

    /// Return None if a frame cannot end at `cfa`. Each frame must end above the previous one, because a stack grows
    /// downwards. Only the frame of a signal handler may lead to another stack.
    fn check(&self, cfa: u64, signal: bool) -> Option<()> {
        (cfa > self.registers.values[RSP] || signal || self.after_signal).then_some(())
    }

    #[inline(never)]
    fn by_table(
        &mut self,
        windows: &mut Windows,
        context: &mut UnwindContext<usize, SmallStorage>,
        bytes: &[u8],
        header_at: u64,
        place: u64,
    ) -> Result<(Step, Option<Rule>), gimli::Error> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(header_at);
        let header = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8)?;
        let gimli::Pointer::Direct(table_at) = header.eh_frame_ptr() else {
            return Err(gimli::Error::UnsupportedPointerEncoding);
        };
        let missing = gimli::Error::NoUnwindInfoForAddress;
        let frames = table_at.checked_sub(header_at).and_then(|offset| bytes.get(offset as usize..)).ok_or(missing)?;
        let section = EhFrame::new(frames, LittleEndian);
        let bases = bases.set_eh_frame(table_at);
        let table = header.table().ok_or(missing)?;
        let entry = table.fde_for_address(&section, &bases, place, EhFrame::cie_from_offset)?;
        let (encoding, signal) = (entry.cie().encoding(), entry.cie().is_signal_trampoline());
        let row = entry.unwind_info_for_address(&section, &bases, context, place)?;
        let bad = gimli::Error::CfiInstructionInInvalidContext;
        let mut look = RuleInput { windows, section: &section, encoding, registers: &self.registers };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                look.registers.get(register.0.into()).ok_or(bad)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => look.evaluate(expression, None)?,
        };
        self.check(cfa, signal).ok_or(bad)?;
        let mut found = self.registers;
        found.set(RSP, Some(cfa));
        for number in (0..REGISTERS).filter(|number| *number != RSP || signal) {
            match row.register(Register(number as u16)) {
                // Without a rule, the stack pointer is the end of the frame.
                RegisterRule::Undefined | RegisterRule::SameValue if number == RSP => {}
                RegisterRule::Undefined if number == RIP => return Ok((Step::Outermost, None)),
                RegisterRule::Undefined => {}
                rule => found.set(number, look.restored(&rule, number, cfa)?),
            }
        }
        let rule = if signal { None } else { usual(row) };
        self.registers = found;
        (self.is_exact, self.after_signal) = (signal, signal);
        match found.get(RIP) {
            None | Some(0) => Ok((Step::Outermost, None)),
            Some(_) => Ok((Step::On, rule)),
        }
    }
}

/// Return a row of the unwind table as a rule. Return None unless all of these are true:
///
/// - The frame begins at a fixed distance from rsp or rbp.
/// - The return address is at the frame's end.
/// - rbp is unchanged, or is stored in the frame.
fn usual(row: &UnwindTableRow<usize, SmallStorage>) -> Option<Rule> {
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let by_rbp = match usize::from(register.0) {
        RBP => true,
        RSP => false,
        _ => return None,
    };
    if !matches!(row.register(Register(RIP as u16)), RegisterRule::Offset(-8)) {
        return None;
    }
    let rbp = match row.register(Register(RBP as u16)) {
        RegisterRule::Undefined | RegisterRule::SameValue => 0,
        RegisterRule::Offset(distance) if distance != 0 => distance.try_into().ok()?,
        _ => return None,
    };
    Some(Rule { frame: (*offset).try_into().ok()?, rbp, by_rbp, ..Rule::default() })
}

/// The inputs of rules and of DWARF expressions: memory, the `.eh_frame` section, and the registers of one frame.
struct RuleInput<'a, 'b> {
    windows: &'a mut Windows,
    section: &'a EhFrame<Slice<'b>>,
    encoding: gimli::Encoding,
    registers: &'a Registers,
}

impl RuleInput<'_, '_> {
    fn word(&mut self, address: u64) -> Result<u64, gimli::Error> {
        self.windows.word(address).ok_or(gimli::Error::OffsetOutOfBounds)
    }

    /// Return the value of a register in the calling frame; None if it is unknown.
    fn restored(&mut self, rule: &RegisterRule<usize>, number: usize, cfa: u64) -> Result<Option<u64>, gimli::Error> {
        Ok(match rule {
            RegisterRule::SameValue => self.registers.get(number),
            RegisterRule::Offset(offset) => Some(self.word(cfa.wrapping_add_signed(*offset))?),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
            RegisterRule::Register(other) => self.registers.get(other.0.into()),
            RegisterRule::Expression(expression) => {
                let address = self.evaluate(expression, Some(cfa))?;
                Some(self.word(address)?)
            }
            RegisterRule::ValExpression(expression) => Some(self.evaluate(expression, Some(cfa))?),
            RegisterRule::Constant(value) => Some(*value),
            _ => return Err(gimli::Error::CfiInstructionInInvalidContext),
        })
    }

    fn evaluate(&mut self, expression: &UnwindExpression<usize>, initial: Option<u64>) -> Result<u64, gimli::Error> {
        let code = expression.get(self.section)?.0;
        let mut evaluation = Evaluation::<Slice, SmallStorage>::new_in(code, self.encoding);
        evaluation.set_max_iterations(MAX_STEPS);
        if let Some(value) = initial {
            evaluation.set_initial_value(value);
        }
        let bad = gimli::Error::CfiInstructionInInvalidContext;
        let mut result = evaluation.evaluate()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, .. } => {
                    let word = self.word(address)?;
                    evaluation.resume_with_memory(Value::Generic(word))?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.registers.get(register.0.into()).ok_or(bad)?;
                    evaluation.resume_with_register(Value::Generic(value))?
                }
                _ => return Err(bad),
            };
        }
        match evaluation.as_result() {
            [Piece { location: Location::Address { address }, .. }] => Ok(*address),
            _ => Err(bad),
        }
    }
}
