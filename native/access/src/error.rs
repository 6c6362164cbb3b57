//! The errors of this crate. The caller decides how to report them.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The address of the first byte that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingByte(pub u64);

/// The error of work that the watcher cancelled. Only the watcher knows why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancellation;

/// The reason why a function has no result.
#[derive(Debug)]
pub enum Error {
    Missing(MissingByte),
    Cancelled,
    /// A system call failed.
    Io(io::Error),
    /// An argument is not valid.
    Invalid(String),
    /// There is not enough memory to store the result.
    Memory(&'static str),
    /// There are more items than can be counted.
    Overflow(&'static str),
    Timeout(String),
    Failed(&'static str),
}

impl Error {
    pub fn invalid(text: impl Into<String>) -> Error {
        Error::Invalid(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing(MissingByte(address)) => write!(to, "nothing can be read at {address:#x}"),
            Error::Cancelled => to.write_str("cancelled"),
            Error::Io(error) => error.fmt(to),
            Error::Invalid(text) | Error::Timeout(text) => to.write_str(text),
            Error::Memory(text) | Error::Overflow(text) | Error::Failed(text) => to.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<MissingByte> for Error {
    fn from(missing: MissingByte) -> Error {
        Error::Missing(missing)
    }
}

impl From<Cancellation> for Error {
    fn from(_: Cancellation) -> Error {
        Error::Cancelled
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
