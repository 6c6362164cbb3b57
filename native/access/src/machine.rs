//! The properties of machines that matter here. The caller passes them in; `Space` and `Pages` carry them. Words have 8
//! bytes on all supported machines.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

const WORD: u32 = 8;
/// The machines, by `e_machine` of ELF headers (elf.h).
pub const EM_X86_64: u32 = 62;
const EM_AARCH64: u32 = 183;
/// The range of page sizes that Linux has on any machine.
pub const SMALLEST_PAGE: u64 = 1 << 12;
const LARGEST_PAGE: u64 = 1 << 20;
/// Nothing is mapped below this address on any machine (vm.mmap_min_addr).
pub const LOWEST: u64 = 1 << 12;

/// The size of a target's pages, stored as a number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    shift: u32,
}

impl PageSize {
    /// Make the size of pages of `size` bytes: a power of two that Linux has on some machine.
    pub fn new(size: u64) -> Result<PageSize> {
        match size.is_power_of_two() && (SMALLEST_PAGE..=LARGEST_PAGE).contains(&size) {
            true => Ok(PageSize { shift: size.trailing_zeros() }),
            false => Err(Error::Invalid(format!("no machine has pages of {size} bytes"))),
        }
    }

    #[inline(always)]
    pub fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// Return the number of the page that contains `address`.
    #[inline(always)]
    pub fn number(self, address: u64) -> u64 {
        address >> self.shift
    }

    /// Return the start of the page with this number; the largest address for a page beyond the address space.
    #[inline(always)]
    pub fn start(self, number: u64) -> u64 {
        number.saturating_mul(self.bytes())
    }

    /// Return the start of the page that contains `address`.
    #[inline(always)]
    pub fn down(self, address: u64) -> u64 {
        address & !(self.bytes() - 1)
    }

    /// Return the start of the first page at or after `address`; None if there is none.
    #[inline(always)]
    pub fn up(self, address: u64) -> Option<u64> {
        address.checked_next_multiple_of(self.bytes())
    }

    /// Return the whole pages inside [start, end); None if there are none.
    #[inline]
    pub fn inside(self, start: u64, end: u64) -> Option<(u64, u64)> {
        let (first, last) = (self.up(start)?, self.down(end));
        (first < last).then_some((first, last))
    }
}

/// The most registers of a frame on any machine.
pub const MAX_REGISTERS: usize = 33;

/// The registers of a frame, by their numbers in unwind tables (DWARF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRegisters {
    /// The numbers are below `count`, which is at most MAX_REGISTERS.
    pub count: usize,
    pub stack_pointer: usize,
    /// Where a function has the address that it returns to.
    pub return_address: usize,
    /// Where the frame's own program counter stands: the same, or a number that no table uses.
    pub counter: usize,
    /// The registers that a function must preserve.
    pub kept: &'static [u16],
    /// Whose instructions unwind tables may contain.
    pub vendor: gimli::Vendor,
}

/// rax to r15, and the return address (System V ABI). The kept ones are rbx, rbp and r12 to r15.
const X86_64: FrameRegisters = FrameRegisters {
    count: 17,
    stack_pointer: 7,
    return_address: 16,
    counter: 16,
    kept: &[3, 6, 12, 13, 14, 15],
    vendor: gimli::Vendor::Default,
};

/// x0 to x30, the stack pointer and the program counter (DWARF for the Arm 64-bit Architecture). The kept ones are x19
/// to x29.
const AARCH64: FrameRegisters = FrameRegisters {
    count: 33,
    stack_pointer: 31,
    return_address: 30,
    counter: 32,
    kept: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
    vendor: gimli::Vendor::AArch64,
};

/// A machine, with the page size of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub frames: FrameRegisters,
    pub page: PageSize,
    /// The end of the addresses that a program gets unless it asks for higher ones.
    pub user_end: u64,
    /// The bits of a pointer that are its address.
    pub pointer_mask: u64,
}

impl Machine {
    /// Make a machine. `number`: the machine in ELF headers. `word` and `page` are the sizes of words and pages in
    /// bytes. Fails for a machine, words or pages that are not supported.
    pub fn new(number: u32, word: u32, page: u64, user_end: u64, pointer_mask: u64) -> Result<Machine> {
        let frames = match number {
            EM_X86_64 => X86_64,
            EM_AARCH64 => AARCH64,
            _ => return Err(Error::Invalid(format!("machine {number} is not supported"))),
        };
        match word == WORD {
            true => Ok(Machine { frames, page: PageSize::new(page)?, user_end, pointer_mask }),
            false => Err(Error::Invalid(format!("words of {word} bytes are not supported"))),
        }
    }
}
