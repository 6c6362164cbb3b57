//! Events with more than a few numbers: stacks, Python code objects, loaded objects. The length of such an event
//! follows its first byte, so that a reader can skip the event.

use crate::event::{operation, SHIFT};
use crate::writer::{unzigzag, zigzag};

/// The number of bytes that the content's length takes. It is constant, because the content is written first, and the
/// length is only known afterwards.
const LENGTH: usize = 3;
/// The number of bytes before the content: the first byte of the event, and the length of the content.
pub const HEAD: usize = 1 + LENGTH;
/// The largest size of the content, in bytes.
pub const MAX_CONTENT: usize = 64 << 10;

/// The bits of the number with which the content of a stack begins.
pub mod flag {
    /// Outer C frames are missing: the stack was too deep, or could not be followed to its end.
    pub const CUT: u64 = 1;
    /// Outer Python frames are missing: there were too many, or they could not be followed to the end.
    pub const TORN: u64 = 2;
    /// The thread runs Python.
    pub const PYTHON: u64 = 4;
}

/// Writes an event with content into a buffer. Bytes that do not fit are dropped, and `is_whole` becomes false.
pub struct EventWriter<'a> {
    room: &'a mut [u8],
    used: usize,
    is_whole: bool,
}

impl<'a> EventWriter<'a> {
    pub fn new(room: &'a mut [u8]) -> EventWriter<'a> {
        EventWriter { is_whole: room.len() >= HEAD, room, used: HEAD }
    }

    pub fn byte(&mut self, byte: u8) {
        match self.room.get_mut(self.used) {
            Some(place) => *place = byte,
            None => self.is_whole = false,
        }
        self.used += 1;
    }

    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    pub fn signed(&mut self, number: i64) {
        self.number(zigzag(number));
    }

    /// Write the number of bytes, followed by the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        bytes.iter().for_each(|byte| self.byte(*byte));
    }

    /// Finish the event. Return its first byte, which must be written last, and the length of the whole event. None if
    /// the event did not fit; the buffer is then filled with zeros.
    pub fn finish(self, kind: u8) -> Option<(u8, usize)> {
        let size = self.used - HEAD;
        if !self.is_whole || size > MAX_CONTENT {
            self.room.fill(0);
            return None;
        }
        for (place, byte) in self.room[1..HEAD].iter_mut().enumerate() {
            let more = if place + 1 < LENGTH { 0x80 } else { 0 };
            *byte = (size >> (7 * place)) as u8 & 0x7f | more;
        }
        Some((operation::OTHER << SHIFT | kind, self.used))
    }
}

/// The error for a stage with bytes that are not events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageError;

/// Reads the content of a stack, a code object or a loaded object.
pub struct Content<'a>(pub &'a [u8]);

impl<'a> Content<'a> {
    pub fn number(&mut self) -> Result<u64, StageError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(StageError)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(StageError)
    }

    pub fn signed(&mut self) -> Result<i64, StageError> {
        Ok(unzigzag(self.number()?))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], StageError> {
        let size = usize::try_from(self.number()?).map_err(|_| StageError)?;
        let bytes = self.0.get(..size).ok_or(StageError)?;
        self.0 = &self.0[size..];
        Ok(bytes)
    }
}
