//! Encodes the events of a recording as bytes of a stage.

use crate::event::{operation, other, Event, LOW, SHIFT, SIZE_UNIT};

/// The largest size of an event in bytes, without content.
pub const MAX_EVENT: usize = 64;

/// The last values in a stage. The next address and the next time are written as differences from them. `python`: the
/// last address in a call of Python's allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastValues {
    pub address: u64,
    pub nanoseconds: u64,
    pub ticks: u64,
    pub python: u64,
}

struct Bytes<'a> {
    room: &'a mut [u8; MAX_EVENT],
    used: usize,
}

impl Bytes<'_> {
    /// Write a number, seven bits in each byte, the lowest bits first. The highest bit of a byte says that more bytes
    /// follow.
    #[inline(always)]
    fn number(&mut self, number: u64) {
        self.used += self.number_ahead(number);
    }

    /// Write a number without counting its bytes as used. Return the number of these bytes. No branch depends on the
    /// number's size, because mispredicted branches would take most of the time.
    #[inline(always)]
    fn number_ahead(&mut self, number: u64) -> usize {
        if number >> 56 != 0 {
            return self.large(number);
        }
        let bits = 64 - (number | 1).leading_zeros() as usize;
        let length = (bits * 37 + 222) >> 8;
        let spread = (number & 0x0fff_ffff) | ((number & 0x00ff_ffff_f000_0000) << 4);
        let spread = (spread & 0x0000_3fff_0000_3fff) | ((spread & 0x0fff_c000_0fff_c000) << 2);
        let spread = (spread & 0x007f_007f_007f_007f) | ((spread & 0x3f80_3f80_3f80_3f80) << 1);
        let more = 0x8080_8080_8080_8080 & ((1u64 << (8 * (length - 1))) - 1);
        self.room[self.used..self.used + 8].copy_from_slice(&(spread | more).to_le_bytes());
        length
    }

    #[cold]
    fn large(&mut self, mut number: u64) -> usize {
        let mut length = 0;
        while number >= 0x80 {
            self.room[self.used + length] = number as u8 | 0x80;
            (number, length) = (number >> 7, length + 1);
        }
        self.room[self.used + length] = number as u8;
        length + 1
    }

    /// Write an address as its distance from the last address. NULL is written as 0, and the next distance is not
    /// measured from NULL. A 1 means that the address itself follows, because the distance is not a multiple of 8
    /// bytes.
    #[inline(always)]
    fn address(&mut self, address: u64, last: &mut LastValues) {
        if address == 0 {
            return self.number(0);
        }
        let distance = address.wrapping_sub(last.address);
        last.address = address;
        match distance % 8 {
            0 => self.number(zigzag(distance as i64 / 8).wrapping_add(1) << 1),
            _ => {
                self.number(1);
                self.number(address);
            }
        }
    }

    #[inline(always)]
    fn sized(&mut self, size: u64) -> u8 {
        let units = size / SIZE_UNIT;
        let is_short = (size % SIZE_UNIT == 0) & (units >= 1) & (units <= u64::from(LOW));
        let length = self.number_ahead(size);
        self.used += if is_short { 0 } else { length };
        if is_short {
            units as u8
        } else {
            0
        }
    }
}

/// Map a signed number to an unsigned one, so that small negative numbers take few bytes too (0, -1, 1, -2 become 0, 1,
/// 2, 3).
#[inline(always)]
pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Write an event into `room`, except its first byte. Return the first byte, which is never 0, and the number of bytes
/// of `room` that the event takes. The caller writes the first byte last, so that the file has only whole events even
/// if its writer is killed.
#[inline(always)]
pub fn encode(event: Event, last: &mut LastValues, room: &mut [u8; MAX_EVENT]) -> (u8, usize) {
    let mut bytes = Bytes { room, used: 1 };
    let first = match event {
        Event::Malloc { size, result } => {
            let low = bytes.sized(size);
            bytes.address(result, last);
            operation::MALLOC << SHIFT | low
        }
        Event::Calloc { size, result } => {
            let low = bytes.sized(size);
            bytes.address(result, last);
            operation::CALLOC << SHIFT | low
        }
        Event::Realloc { size, old, result } => {
            let low = bytes.sized(size);
            bytes.address(old, last);
            bytes.address(result, last);
            operation::REALLOC << SHIFT | low
        }
        Event::Memalign { size, alignment, result } => {
            let low = bytes.sized(size);
            bytes.number(alignment);
            bytes.address(result, last);
            operation::MEMALIGN << SHIFT | low
        }
        Event::Free { address } => {
            bytes.address(address, last);
            operation::FREE << SHIFT
        }
        Event::Switch { thread } => match thread {
            1..=31 => operation::SWITCH << SHIFT | thread as u8,
            _ => {
                bytes.number(thread.into());
                operation::SWITCH << SHIFT
            }
        },
        Event::Tick { ticks } => {
            bytes.number(zigzag(ticks.wrapping_sub(last.ticks) as i64));
            last.ticks = ticks;
            operation::OTHER << SHIFT | other::TICK
        }
        event => operation::OTHER << SHIFT | rare(event, last, &mut bytes),
    };
    (first, bytes.used)
}

#[cold]
fn rare(event: Event, last: &mut LastValues, bytes: &mut Bytes<'_>) -> u8 {
    match event {
        Event::Usable { size } => {
            bytes.number(size);
            other::USABLE
        }
        Event::Thread { thread, tid } => {
            bytes.number(thread.into());
            bytes.number(tid.into());
            other::THREAD
        }
        Event::Time { nanoseconds } => {
            bytes.number(nanoseconds.wrapping_sub(last.nanoseconds));
            last.nanoseconds = nanoseconds;
            other::TIME
        }
        Event::Mmap { size, protection, flags, result } => {
            bytes.number(size);
            bytes.number(protection.into());
            bytes.number(flags.into());
            bytes.number(result);
            other::MMAP
        }
        Event::Munmap { address, size } => {
            bytes.number(address);
            bytes.number(size);
            other::MUNMAP
        }
        Event::Mremap { old, old_size, size, result } => {
            bytes.number(old);
            bytes.number(old_size);
            bytes.number(size);
            bytes.number(result);
            other::MREMAP
        }
        Event::Mallopt { parameter, value } => {
            bytes.number(zigzag(parameter.into()));
            bytes.number(zigzag(value.into()));
            other::MALLOPT
        }
        Event::Trim { pad } => {
            bytes.number(pad);
            other::TRIM
        }
        Event::Fork { number } => {
            bytes.number(number);
            other::FORK
        }
        Event::PythonMalloc { .. }
        | Event::PythonCalloc { .. }
        | Event::PythonRealloc { .. }
        | Event::PythonFree { .. } => of_python(event, last, bytes),
        // Events with content (see `part`) are not encoded here.
        _ => other::END,
    }
}

/// Write a call of Python's allocator. Its addresses are distances from the last address of such a call, not from the
/// last address of other calls.
fn of_python(event: Event, last: &mut LastValues, bytes: &mut Bytes<'_>) -> u8 {
    let others = core::mem::replace(&mut last.address, last.python);
    let low = match event {
        Event::PythonMalloc { size, result } => {
            bytes.number(size);
            bytes.address(result, last);
            other::PYTHON_MALLOC
        }
        Event::PythonCalloc { size, result } => {
            bytes.number(size);
            bytes.address(result, last);
            other::PYTHON_CALLOC
        }
        Event::PythonRealloc { size, old, result } => {
            bytes.number(size);
            bytes.address(old, last);
            bytes.address(result, last);
            other::PYTHON_REALLOC
        }
        Event::PythonFree { address } => {
            bytes.address(address, last);
            other::PYTHON_FREE
        }
        _ => 0,
    };
    last.python = core::mem::replace(&mut last.address, others);
    low
}
