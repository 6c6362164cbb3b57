//! The properties of machines that matter here. The caller passes them in; `Space` and `Pages` carry them. Words have 8
//! bytes on all supported machines.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

const WORD: u32 = 8;
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

/// A machine, with the page size of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub page: PageSize,
    /// The end of the addresses that a program gets unless it asks for higher ones.
    pub user_end: u64,
    /// The bits of a pointer that are its address.
    pub pointer_mask: u64,
}

impl Machine {
    /// Make a machine. `word` and `page` are the sizes of words and pages in bytes. Fails for words or pages that are
    /// not supported.
    pub fn new(word: u32, page: u64, user_end: u64, pointer_mask: u64) -> Result<Machine> {
        match word == WORD {
            true => Ok(Machine { page: PageSize::new(page)?, user_end, pointer_mask }),
            false => Err(Error::Invalid(format!("words of {word} bytes are not supported"))),
        }
    }
}
