//! Decodes the events of a stage. The bytes come from a file, so every value is checked before it is used.

use crate::event::{operation, other, Event, LOW, SHIFT, SIZE_UNIT};
use crate::part::{Content, StageError};
use crate::writer::{unzigzag, LastValues};

/// A reader that decodes the events of one stage one by one.
pub struct EventReader<'a> {
    bytes: &'a [u8],
    last: LastValues,
    content: &'a [u8],
}

impl<'a> EventReader<'a> {
    /// Make a reader. `bytes`: the bytes of a stage, or of its beginning.
    pub fn new(bytes: &'a [u8]) -> EventReader<'a> {
        EventReader { bytes, last: LastValues::default(), content: &[] }
    }

    /// Return the content of the most recent event that had one (see `part`).
    pub fn content(&self) -> &'a [u8] {
        self.content
    }

    /// Continue where another reader of the stage stopped. `bytes`: the bytes that the other reader did not read.
    /// `last`: its last values (see `last`), which the next addresses and times are relative to.
    pub fn resumed(bytes: &'a [u8], last: LastValues) -> EventReader<'a> {
        EventReader { bytes, last, content: &[] }
    }

    /// Return the values of the last event. The next event is stored as differences from these values.
    pub fn last(&self) -> LastValues {
        self.last
    }

    /// Return the number of unread bytes.
    pub fn rest(&self) -> usize {
        self.bytes.len()
    }

    /// Return the next event; None at the end of the stage.
    #[inline(always)]
    pub fn next_event(&mut self) -> Result<Option<Event>, StageError> {
        let Some((first, rest)) = self.bytes.split_first() else { return Ok(None) };
        if *first == 0 {
            return Ok(None);
        }
        self.bytes = rest;
        let low = first & LOW;
        let event = match first >> SHIFT {
            operation::MALLOC => Event::Malloc { size: self.sized(low)?, result: self.address()? },
            operation::FREE => Event::Free { address: self.address()? },
            operation::REALLOC => {
                Event::Realloc { size: self.sized(low)?, old: self.address()?, result: self.address()? }
            }
            operation::CALLOC => Event::Calloc { size: self.sized(low)?, result: self.address()? },
            operation::MEMALIGN => {
                Event::Memalign { size: self.sized(low)?, alignment: self.number()?, result: self.address()? }
            }
            operation::SWITCH if low != 0 => Event::Switch { thread: low.into() },
            operation::SWITCH => Event::Switch { thread: self.half()? },
            operation::OTHER => self.rare(low)?,
            _ => return Err(StageError),
        };
        Ok(Some(event))
    }

    #[cold]
    fn rare(&mut self, low: u8) -> Result<Event, StageError> {
        Ok(match low {
            other::USABLE => Event::Usable { size: self.number()? },
            other::THREAD => Event::Thread { thread: self.half()?, tid: self.half()? },
            other::END => Event::End,
            other::TIME => {
                self.last.nanoseconds = self.last.nanoseconds.wrapping_add(self.number()?);
                Event::Time { nanoseconds: self.last.nanoseconds }
            }
            other::TICK => {
                self.last.ticks = self.last.ticks.wrapping_add(unzigzag(self.number()?) as u64);
                Event::Tick { ticks: self.last.ticks }
            }
            other::MMAP => Event::Mmap {
                size: self.number()?,
                protection: self.half()?,
                flags: self.half()?,
                result: self.number()?,
            },
            other::MUNMAP => Event::Munmap { address: self.number()?, size: self.number()? },
            other::MREMAP => Event::Mremap {
                old: self.number()?,
                old_size: self.number()?,
                size: self.number()?,
                result: self.number()?,
            },
            other::MALLOPT => Event::Mallopt { parameter: self.signed()?, value: self.signed()? },
            other::TRIM => Event::Trim { pad: self.number()? },
            other::FORK => Event::Fork { number: self.number()? },
            other::PYTHON_MALLOC..=other::PYTHON_FREE => return self.of_python(low),
            other::STACK => self.part(Event::Stack)?,
            other::CODE => self.part(Event::Code)?,
            other::LOADED => self.part(Event::Loaded)?,
            _ => return Err(StageError),
        })
    }

    /// Read a call of Python's allocator. Its addresses are distances from the last address of such a call, not from
    /// the last address of other calls.
    fn of_python(&mut self, low: u8) -> Result<Event, StageError> {
        let others = core::mem::replace(&mut self.last.address, self.last.python);
        let event = match low {
            other::PYTHON_MALLOC => Event::PythonMalloc { size: self.number()?, result: self.address()? },
            other::PYTHON_CALLOC => Event::PythonCalloc { size: self.number()?, result: self.address()? },
            other::PYTHON_REALLOC => {
                Event::PythonRealloc { size: self.number()?, old: self.address()?, result: self.address()? }
            }
            _ => Event::PythonFree { address: self.address()? },
        };
        self.last.python = core::mem::replace(&mut self.last.address, others);
        Ok(event)
    }

    fn part(&mut self, event: Event) -> Result<Event, StageError> {
        let mut content = Content(self.bytes);
        self.content = content.bytes()?;
        self.bytes = content.0;
        Ok(event)
    }

    #[inline(always)]
    fn number(&mut self) -> Result<u64, StageError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first().ok_or(StageError)?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(StageError)
    }

    fn half(&mut self) -> Result<u32, StageError> {
        u32::try_from(self.number()?).map_err(|_| StageError)
    }

    fn signed(&mut self) -> Result<i32, StageError> {
        i32::try_from(unzigzag(self.number()?)).map_err(|_| StageError)
    }

    #[inline(always)]
    fn sized(&mut self, low: u8) -> Result<u64, StageError> {
        match low {
            0 => self.number(),
            units => Ok(u64::from(units) * SIZE_UNIT),
        }
    }

    #[inline(always)]
    fn address(&mut self) -> Result<u64, StageError> {
        let number = self.number()?;
        match number {
            0 => return Ok(0),
            1 => self.last.address = self.number()?,
            _ if number & 1 == 1 => return Err(StageError),
            _ => {
                let distance = unzigzag((number >> 1).wrapping_sub(1));
                self.last.address = self.last.address.wrapping_add((distance as u64).wrapping_mul(8));
            }
        }
        Ok(self.last.address)
    }
}
