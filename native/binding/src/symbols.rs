//! Symbols of ELF files.

use crate::memory::Address;
use gdbheap_core::symbols::{Symbol, Symbols, Wanted};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// An address as linked, a size, and a name.
type SymbolRow = (u64, u64, String);

/// The symbols of tables of one ELF file, each (entries, names), by name and by address as linked. They are data and
/// code that the file has, or functions alone. Where a name occurs more than once the first table's counts, there a
/// global one, then the first.
#[pyclass(frozen)]
pub struct SymbolTable(Symbols<PyBackedBytes>);

#[pymethods]
impl SymbolTable {
    #[new]
    fn new(tables: Vec<(PyBackedBytes, PyBackedBytes)>, functions: bool) -> SymbolTable {
        SymbolTable(Symbols::new(tables, if functions { Wanted::Functions } else { Wanted::Addresses }))
    }

    /// The address and the size of the symbol with that name.
    fn find(&self, name: &str) -> Option<(u64, u64)> {
        self.0.find(name.as_bytes())
    }

    /// The symbols that begin at an address, at most 256.
    fn at(&self, address: Address) -> Vec<SymbolRow> {
        rows(self.0.at(address.0))
    }

    /// The symbols whose bytes are at an address, of the 256 that begin there and before.
    fn around(&self, address: Address) -> Vec<SymbolRow> {
        rows(self.0.around(address.0))
    }

    /// The first `most` symbols of at least `least` bytes that begin in [low, high), ascending by address, small ones
    /// first.
    fn starting_in(&self, low: Address, high: Address, least: u64, most: usize) -> Vec<SymbolRow> {
        rows(self.0.starting_in(low.0, high.0, least, most))
    }

    /// The names of the function at an address.
    fn function(&self, address: Address) -> Vec<String> {
        self.0.function(address.0).into_iter().map(text).collect()
    }

    /// Where the last symbol ends that ends at `low` or before, and where the next one begins after `high`.
    fn gap(&self, low: Address, high: Address) -> (Option<u64>, Option<u64>) {
        self.0.gap(low.0, high.0)
    }

    /// The variables that each thread has, at most 16,384, by where they are in the file's part of a thread's data.
    fn thread_local(&self) -> Vec<SymbolRow> {
        rows(self.0.thread_local())
    }
}

fn rows(found: Vec<Symbol<'_>>) -> Vec<SymbolRow> {
    found.into_iter().map(|(value, size, name)| (value, size, text(name))).collect()
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
