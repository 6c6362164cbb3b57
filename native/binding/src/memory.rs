//! The bytes of a target.

use crate::process::Stop;
use crate::records::{field, Given, Read};
use crate::watch::{fault, raised, watched};
use gdbheap_core::memory::{self, Backing, Mapping, MappingKind, Run, Segment, Source};
use gdbheap_core::{Machine, Missing};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashMap;
use std::sync::Arc;

/// Up to where a text is read unless somebody asks for more or less.
const LONGEST_STRING: usize = 4 << 10;

impl Read for Machine {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Machine> {
        let number = |name: &str| field::<u64>(object, "Machine", name);
        let word: u32 = field(object, "Machine", "word")?;
        Machine::new(word, number("page")?, number("user_end")?, number("pointer_mask")?).map_err(raised)
    }
}

/// The runs of pages that are there, sorted and disjoint.
#[pyclass(frozen)]
pub struct Pages(pub Arc<memory::Pages>);

impl Pages {
    fn of(pages: gdbheap_core::Result<memory::Pages>) -> PyResult<Pages> {
        Ok(Pages(Arc::new(pages.map_err(raised)?)))
    }
}

#[pymethods]
impl Pages {
    /// Page states of the ranges `[(start, end)]`, ascending, from a `pagemap` file: with `scan` the kernel is asked
    /// for runs (Linux 6.7), without it every page's entry is read. Raises OSError.
    #[staticmethod]
    #[pyo3(signature = (machine, path, ranges, scan=true))]
    fn from_pagemap(
        py: Python<'_>,
        machine: Given<Machine>,
        path: &str,
        ranges: Vec<(u64, u64)>,
        scan: bool,
    ) -> PyResult<Pages> {
        let page = machine.0.page;
        let pages = watched(py, None, |watcher| memory::Pages::from_pagemap(watcher, path, &ranges, page, scan))?;
        Ok(Pages(Arc::new(pages)))
    }

    /// Page states from raw pagemap entries (u64, little endian), each part with the address where it starts.
    #[staticmethod]
    fn from_entries(machine: Given<Machine>, parts: Vec<(u64, Vec<u8>)>) -> PyResult<Pages> {
        Pages::of(memory::Pages::from_entries(&parts, machine.0.page))
    }

    /// Page states from runs `(start, end, state)`, ascending and disjoint. Raises ValueError.
    #[staticmethod]
    fn from_runs(machine: Given<Machine>, runs: Vec<(u64, u64, u8)>) -> PyResult<Pages> {
        let run = |(start, end, state)| Run { start, end, state };
        Pages::of(memory::Pages::from_runs(runs.into_iter().map(run).collect(), machine.0.page))
    }

    /// `(resident, swapped)` bytes of [start, end).
    fn count(&self, start: u64, end: u64) -> (u64, u64) {
        self.0.count(start, end)
    }

    /// `(whole, resident, swapped)` bytes of what malloc_trim() would release of a free chunk [start, end), header
    /// included: its whole pages, and how much of them is there.
    fn released(&self, start: u64, end: u64) -> (u64, u64, u64) {
        let found = gdbheap_core::allocators::glibc::released(&self.0, start, end);
        (found.whole, found.resident, found.swapped)
    }

    /// Whether the kernel says which pages are huge.
    #[getter]
    fn knows_huge(&self) -> bool {
        self.0.huge.is_some()
    }

    /// The runs inside [start, end), cut to it, as `(start, end, state)`.
    fn runs(&self, start: u64, end: u64) -> Vec<(u64, u64, u8)> {
        self.0.runs_in(start, end).map(|run| (run.start, run.end, run.state)).collect()
    }
}

/// Memory of our own that is there already: touching it for the first time costs more than filling it.
#[pyclass(frozen)]
pub struct Room(Arc<memory::Room>);

#[pymethods]
impl Room {
    /// `size` bytes. Raises OSError when there are none.
    #[new]
    fn new(py: Python<'_>, size: usize) -> PyResult<Room> {
        let room = py.detach(|| memory::Room::new(size)).map_err(raised)?;
        Ok(Room(Arc::new(room)))
    }
}

/// The readable bytes of a target.
#[pyclass(frozen)]
pub struct Space(pub Arc<memory::Space>, Py<PyAny>);

/// An address that Python computed: beyond 64 bits nothing is there, as at the last address.
struct Address(u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Address {
    type Error = PyErr;

    fn extract(number: Borrowed<'a, 'py, PyAny>) -> PyResult<Address> {
        match number.extract::<u64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(number.py()) => Ok(Address(u64::MAX)),
            address => address.map(Address),
        }
    }
}

/// Reads by calling Python.
struct Remote(Py<PyAny>);

impl Source for Remote {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        Python::attach(|py| {
            let answer = self.0.call1(py, (address, buffer.len()));
            let answer = answer.and_then(|answer| answer.extract::<Vec<u8>>(py));
            let bytes = answer.unwrap_or_else(|error| {
                if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    // The next check for signals cancels the work.
                    // SAFETY: needs no more than the interpreter, to which this thread is attached.
                    unsafe { pyo3::ffi::PyErr_SetInterrupt() };
                }
                Vec::new()
            });
            let size = bytes.len().min(buffer.len());
            buffer[..size].copy_from_slice(&bytes[..size]);
            size
        })
    }
}

/// A row `(start, end, kind, file_index, file_offset)`; see `Space.for_process`.
fn mapping((start, end, kind, file, offset): (u64, u64, u8, i64, u64)) -> Mapping {
    let index = file as u32;
    let kind = match kind {
        0 => MappingKind::PrivateAnonymous,
        1 if file >= 0 => MappingKind::PrivateFile { index, offset },
        3 if file >= 0 => MappingKind::File { index, offset },
        _ => MappingKind::Process,
    };
    Mapping { start, end, kind }
}

impl Space {
    fn of(
        machine: Bound<'_, PyAny>,
        space: impl FnOnce(Machine) -> gdbheap_core::Result<memory::Space>,
    ) -> PyResult<Space> {
        let space = space(Machine::read(&machine)?).map_err(raised)?;
        Ok(Space(Arc::new(space), machine.unbind()))
    }
}

#[pymethods]
impl Space {
    /// The space of a live process. `mappings`: `(start, end, kind, file_index, file_offset)`, kind 0 private
    /// anonymous, 1 private file-backed, 2 always read from the process, 3 always from its file. `shared`: other processes have some of its
    /// private pages too. `stop`: who holds it; once it was let go nothing more is read.
    #[staticmethod]
    #[pyo3(signature = (machine, pid, mappings, pages, files, shared, stop=None))]
    fn for_process(
        machine: Bound<'_, PyAny>,
        pid: i32,
        mappings: Vec<(u64, u64, u8, i64, u64)>,
        pages: Option<&Pages>,
        files: Vec<String>,
        shared: bool,
        stop: Option<PyRef<'_, Stop>>,
    ) -> PyResult<Space> {
        let mappings: Vec<Mapping> = mappings.into_iter().map(mapping).collect();
        let (pages, gate) = (pages.map(|pages| &*pages.0), stop.map(|stop| stop.0.gate()));
        Space::of(machine, |machine| memory::Space::for_process(machine, pid, &mappings, pages, &files, shared, gate))
    }

    /// The space of a core. `segments`: `(start, end, file_index, file_offset)`; index -1: zeros by definition.
    #[staticmethod]
    fn for_core(machine: Bound<'_, PyAny>, segments: Vec<(u64, u64, i64, u64)>, files: Vec<String>) -> PyResult<Space> {
        let segment = |(start, end, index, offset): (u64, u64, i64, u64)| {
            let backing = match index {
                ..0 => Backing::Zeros,
                _ => Backing::File { index: index as u32, offset },
            };
            Segment { start, end, backing }
        };
        Space::of(machine, |machine| {
            memory::Space::for_core(machine, segments.into_iter().map(segment).collect(), &files)
        })
    }

    /// A space whose bytes come from `read(address, size) -> bytes`, on the calling thread.
    #[staticmethod]
    fn for_remote(machine: Bound<'_, PyAny>, segments: Vec<(u64, u64)>, read: Py<PyAny>) -> PyResult<Space> {
        Space::of(machine, |machine| memory::Space::for_remote(machine, &segments, Box::new(Remote(read))))
    }

    /// `size` bytes at `address`. Raises Fault with the first address that is absent.
    fn read<'py>(&self, py: Python<'py>, address: Address, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let address = address.0;
        if !self.0.covers(address, size as u64) {
            let prefix = self.0.prefix(address, size as u64);
            return Err(fault(Missing(address.wrapping_add(prefix))));
        }
        PyBytes::new_with(py, size, |buffer| self.0.exact(address, buffer).map_err(fault))
    }

    /// As many of `size` bytes at `address` as are there before the first absent one.
    fn read_available<'py>(&self, py: Python<'py>, address: Address, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut buffer = vec![0; self.0.prefix(address.0, size as u64) as usize];
        let got = self.0.fill(address.0, &mut buffer);
        Ok(PyBytes::new(py, &buffer[..got]))
    }

    /// The word at `address`. Raises Fault.
    fn word(&self, address: Address) -> PyResult<u64> {
        self.0.word(address.0).map_err(fault)
    }

    fn u32(&self, address: Address) -> PyResult<u32> {
        let mut bytes = [0; 4];
        self.0.exact(address.0, &mut bytes).map_err(fault)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The bytes before the first NUL at `address`, at most `limit`. Raises Fault where the string runs off.
    #[pyo3(signature = (address, limit=LONGEST_STRING))]
    fn cstring<'py>(&self, py: Python<'py>, address: Address, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.0.string(address.0, limit).map_err(fault)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Whether every byte of [address, address + size) can be read.
    fn contains(&self, address: Address, size: u64) -> bool {
        self.0.covers(address.0, size)
    }

    /// Copies those bytes into `room`, from where they are read afterwards: the process may be let go. False, with
    /// nothing changed, where the room is too small or the process was let go meanwhile.
    fn capture(&self, py: Python<'_>, ranges: Vec<(u64, u64)>, room: &Room) -> PyResult<bool> {
        watched(py, None, |watcher| self.0.capture(watcher, &ranges, room.0.clone()))
    }

    /// The machine that it was made with.
    #[getter]
    fn machine(&self, py: Python<'_>) -> Py<PyAny> {
        self.1.clone_ref(py)
    }

    /// How many bytes were read so far.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.0.bytes_read()
    }
}

/// The addresses of the words from `start` on that are still what they were in the beginning, `initial`, and whose value
/// lies in one of `ranges` (ascending).
#[pyfunction]
pub fn find_initial(space: &Space, start: u64, initial: &[u8], ranges: Vec<(u64, u64)>) -> Vec<u64> {
    memory::find_initial(&space.0, start, initial, &ranges)
}

/// How many words of the `sources`, `(start, end, number)`, point into each of the `targets`, which ascend and are
/// disjoint: `{(number, place of the target): words}`, without zeros.
#[pyfunction]
pub fn count_pointers(
    py: Python<'_>,
    space: &Space,
    sources: Vec<(u64, u64, u32)>,
    targets: Vec<(u64, u64)>,
) -> PyResult<HashMap<(u32, usize), u64>> {
    watched(py, None, |watcher| memory::count_pointers(watcher, &space.0, &sources, &targets))
}
