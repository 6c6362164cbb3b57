//! The symbols and source lines of ELF files.

use crate::detaching::detached;
use crate::memory::Address;
use crate::rows::{answers, exports};
use gdbheap_access::patient::held;
use gdbheap_core::source_lines;
use gdbheap_core::symbols::{Symbol, SymbolFilter, Symbols};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::collections::HashMap;
use std::sync::Mutex;

answers! {}

exports! {
    classes: LineBudget, SourceLines, SymbolTable;
}

/// A symbol: the linked address, the size, and the name.
type SymbolRow = (u64, u64, String);

/// The symbols of one ELF file, by name and by linked address. If several symbols have one name, the first table that
/// has it decides; within a table, a global symbol comes before others.
///
/// - `tables`: (entries, names) of each symbol table.
/// - `functions`: whether to keep only functions. Otherwise data and code that the file defines are kept.
#[pyclass(frozen)]
pub struct SymbolTable(Symbols<PyBackedBytes>);

#[pymethods]
impl SymbolTable {
    #[new]
    fn new(tables: Vec<(PyBackedBytes, PyBackedBytes)>, functions: bool) -> SymbolTable {
        SymbolTable(Symbols::new(tables, if functions { SymbolFilter::Functions } else { SymbolFilter::Addresses }))
    }

    /// Return the address and the size of the symbol with this name; None if there is no such symbol.
    fn find(&self, name: &str) -> Option<(u64, u64)> {
        self.0.find(name.as_bytes())
    }

    /// Return at most 256 symbols that begin at an address.
    fn at(&self, address: Address) -> Vec<SymbolRow> {
        rows(self.0.at(address.0))
    }

    /// Return the symbols that contain an address. Only the last 256 symbols that begin at or before the address are
    /// searched.
    fn around(&self, address: Address) -> Vec<SymbolRow> {
        rows(self.0.around(address.0))
    }

    /// Return the first `most` symbols of at least `least` bytes that begin in [low, high), by ascending address; of
    /// symbols with the same address, the smallest comes first.
    fn starting_in(&self, low: Address, high: Address, least: u64, most: usize) -> Vec<SymbolRow> {
        rows(self.0.starting_in(low.0, high.0, least, most))
    }

    /// Return the address at which the function at an address begins; None if no function is known there.
    fn function(&self, address: Address) -> Option<u64> {
        self.0.function(address.0)
    }

    /// Return the plainest name of the symbols that begin at an address (`read`, not `__libc_read`); None if no symbol
    /// begins there.
    fn plainest(&self, start: Address) -> Option<String> {
        self.0.plainest(start.0).map(text)
    }

    /// Return two addresses: the end of the last symbol that ends at or before `low`, and the start of the next symbol
    /// after `high`. Each is None if there is no such symbol.
    fn gap(&self, low: Address, high: Address) -> (Option<u64>, Option<u64>) {
        self.0.gap(low.0, high.0)
    }

    /// Return at most 16,384 thread-local variables, by their offset in the file's thread-local storage.
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

/// A line of source code: the inlined function (None for the function that owns the machine code), the file, the line.
type SourceLine = (Option<Vec<u8>>, Vec<u8>, u64);

/// The budget for decoding debug information of all files of one target together: a few seconds, and about 150 MB.
#[pyclass(frozen)]
pub struct LineBudget(Mutex<source_lines::Budget>);

#[pymethods]
impl LineBudget {
    #[new]
    fn new() -> LineBudget {
        LineBudget(Mutex::default())
    }
}

/// The source lines of one ELF file, by linked address. `sections`: its debug information, by the names of the
/// sections, such as `.debug_info`. `budget`: the budget that all files of the target share.
#[pyclass(frozen)]
pub struct SourceLines(Mutex<source_lines::SourceLines<PyBackedBytes>>, Py<LineBudget>);

#[pymethods]
impl SourceLines {
    #[new]
    fn new(py: Python<'_>, sections: HashMap<String, PyBackedBytes>, budget: Py<LineBudget>) -> SourceLines {
        let left = budget.get();
        let lines = detached(py, || source_lines::SourceLines::new(sections, &mut held(&left.0)));
        SourceLines(Mutex::new(lines), budget)
    }

    /// Return the lines to which the code at an address belongs, innermost first; empty if they are unknown, or if the
    /// budget is used up.
    fn find(&self, py: Python<'_>, address: Address) -> Vec<SourceLine> {
        let budget = self.1.get();
        let found = detached(py, || held(&self.0).find(address.0, &mut held(&budget.0)));
        found.into_iter().map(|one| (one.function, one.file, one.line)).collect()
    }
}
