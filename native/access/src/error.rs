//! What can go wrong, without a word on how the caller says so.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The address of the first byte that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing(pub u64);

/// The watcher ended the work, and knows why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Why there is no answer.
#[derive(Debug)]
pub enum Error {
    Missing(Missing),
    Cancelled,
    /// A system call failed.
    Io(io::Error),
    /// An argument is not a possible one.
    Invalid(String),
    /// There is no memory for what the answer needs.
    Memory(&'static str),
    /// There is more of something than can be counted.
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
            Error::Missing(Missing(address)) => write!(to, "nothing can be read at {address:#x}"),
            Error::Cancelled => to.write_str("cancelled"),
            Error::Io(error) => error.fmt(to),
            Error::Invalid(text) | Error::Timeout(text) => to.write_str(text),
            Error::Memory(text) | Error::Overflow(text) | Error::Failed(text) => to.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Error {
        Error::Missing(missing)
    }
}

impl From<Cancelled> for Error {
    fn from(_: Cancelled) -> Error {
        Error::Cancelled
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
