//! The machines (processor architectures) that targets may have, and the properties of these machines that gdbheap
//! needs. The caller passes the machine in; `Space` and `Pages` store it. Words have 8 bytes on all supported machines.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

const WORD: u32 = 8;
/// The numbers of the supported machines in the field `e_machine` of ELF headers (elf.h).
pub const EM_X86_64: u32 = 62;
const EM_AARCH64: u32 = 183;
/// The smallest page size, in bytes, that Linux has on any machine.
pub const SMALLEST_PAGE: u64 = 1 << 12;
/// The largest page size, in bytes, that Linux has on any machine.
const LARGEST_PAGE: u64 = 1 << 20;
/// The lowest address at which anything can be mapped, on any machine (vm.mmap_min_addr).
pub const LOWEST: u64 = 1 << 12;

/// The size of a target's pages, stored as its binary logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    shift: u32,
}

impl PageSize {
    /// Create a page size of `size` bytes. Fails unless `size` is a power of two within the range of page sizes that
    /// Linux has.
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

    /// Return the start of the page with this number, or the largest address if the page is beyond the address space.
    #[inline(always)]
    pub fn start(self, number: u64) -> u64 {
        number.saturating_mul(self.bytes())
    }

    /// Return the start of the page that contains `address`.
    #[inline(always)]
    pub fn down(self, address: u64) -> u64 {
        address & !(self.bytes() - 1)
    }

    /// Return the start of the first page at or after `address`; None if there is no such page.
    #[inline(always)]
    pub fn up(self, address: u64) -> Option<u64> {
        address.checked_next_multiple_of(self.bytes())
    }

    /// Return the range of the whole pages inside [start, end); None if no whole page is inside.
    #[inline]
    pub fn inside(self, start: u64, end: u64) -> Option<(u64, u64)> {
        let (first, last) = (self.up(start)?, self.down(end));
        (first < last).then_some((first, last))
    }
}

/// The largest number of registers that a stack frame has on any machine.
pub const MAX_REGISTERS: usize = 33;

/// The registers of a stack frame, by their numbers in unwind tables (DWARF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRegisters {
    /// The number of registers, at most MAX_REGISTERS. All register numbers are below it.
    pub count: usize,
    pub stack_pointer: usize,
    /// The register that contains the address to which a function returns.
    pub return_address: usize,
    /// The index at which the frame's own program counter is stored. On x86-64 it equals `return_address`. On aarch64
    /// it is a number that unwind tables do not use, because x30 (`return_address`) and the program counter may differ.
    pub counter: usize,
    /// The registers that a function must preserve.
    pub kept: &'static [u16],
    /// The vendor whose special instructions unwind tables may contain.
    pub vendor: gimli::Vendor,
}

/// The registers of x86-64: rax to r15, and the return address (System V ABI). Functions must preserve rbx, rbp and r12
/// to r15.
const X86_64: FrameRegisters = FrameRegisters {
    count: 17,
    stack_pointer: 7,
    return_address: 16,
    counter: 16,
    kept: &[3, 6, 12, 13, 14, 15],
    vendor: gimli::Vendor::Default,
};

/// The registers of aarch64: x0 to x30, the stack pointer and the program counter (DWARF for the Arm 64-bit
/// Architecture). Functions must preserve x19 to x29.
const AARCH64: FrameRegisters = FrameRegisters {
    count: 33,
    stack_pointer: 31,
    return_address: 30,
    counter: 32,
    kept: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
    vendor: gimli::Vendor::AArch64,
};

/// The machine of one target, with the target's page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub frames: FrameRegisters,
    pub page: PageSize,
    /// The end of the addresses at which a program gets memory unless it asks for higher addresses.
    pub user_end: u64,
    /// A mask of the bits of a pointer that form the address.
    pub pointer_mask: u64,
}

impl Machine {
    /// Create a machine. `number`: its number in ELF headers. `word`, `page`: the sizes of its words and pages in
    /// bytes. Fails if the machine, or one of the sizes, is not supported.
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
