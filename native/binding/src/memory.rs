//! The bytes of a target.

use crate::process::Stop;
use crate::records::{field, records, Given, Read};
use crate::rows::{answers, Range, Released};
use crate::watch::{fault, raised, watched};
use gdbheap_access::memory::{self, Backing, Mapping, MappingKind, OwnedRange, Run, Segment, Source, WordTest};
use gdbheap_access::process::{self, ProcessFolder};
use gdbheap_core::{Machine, Missing};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// Up to where a text is read unless somebody asks for more or less.
const LONGEST_STRING: usize = 4 << 10;

/// A `Machine` of Python's.
pub type GivenMachine = Py<PyAny>;

impl Read for Machine {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Machine> {
        let number = |name: &str| field::<u64>(object, "Machine", name);
        let word: u32 = field(object, "Machine", "word")?;
        Machine::new(word, number("page")?, number("user_end")?, number("pointer_mask")?).map_err(raised)
    }
}

/// How the bytes [start, end) of a process are read: kind 0 private anonymous, 1 private file-backed, 2 always from the
/// process, 3 always from the file with this number, -1 without one, 4 from the process if it has the page.
pub struct MappingRow {
    start: u64,
    end: u64,
    kind: u8,
    file: i64,
    offset: u64,
}

/// Bytes [start, end) of a core, from an offset of the file with this number; number -1: zeros by definition.
pub struct SegmentRow {
    start: u64,
    end: u64,
    file: i64,
    offset: u64,
}

records! {
    MappingRow { start, end, kind, file, offset }
    SegmentRow { start, end, file, offset }
    OwnedRange { number, start, end }
    WordTest { offset, mask, low, high }
}

answers! {
    /// Pages [start, end) in one state: PRESENT, SWAPPED and ZERO are its bits.
    struct PageRun of Run { start: u64, end: u64, state: u8 }

    /// How much of some memory is there, in bytes.
    struct Residency { resident: u64, swapped: u64 }

    /// How many words of an owner point into a range, by the number of the owner and the place of the range.
    struct PointerCount { number: u32, place: usize, words: u64 }
}

/// Pages [start, end), and their state.
type StateRun = (u64, u64, u8);

/// Called as `read(address, size)`; returns bytes.
pub type ReadMemory = Py<PyAny>;

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
        ranges: Vec<Range>,
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

    /// Page states from runs, ascending and disjoint. Raises ValueError.
    #[staticmethod]
    fn from_runs(machine: Given<Machine>, runs: Vec<StateRun>) -> PyResult<Pages> {
        let run = |(start, end, state)| Run { start, end, state };
        Pages::of(memory::Pages::from_runs(runs.into_iter().map(run).collect(), machine.0.page))
    }

    /// Of [start, end).
    fn count(&self, start: u64, end: u64) -> Residency {
        let (resident, swapped) = self.0.count(start, end);
        Residency { resident, swapped }
    }

    /// What malloc_trim() would release of a free chunk [start, end), header included.
    fn released(&self, start: u64, end: u64) -> Released {
        gdbheap_core::allocators::glibc::released(&self.0, start, end).into()
    }

    /// Whether the kernel says which pages are huge.
    #[getter]
    fn knows_huge(&self) -> bool {
        self.0.huge.is_some()
    }

    /// The runs inside [start, end), cut to it.
    fn runs(&self, start: u64, end: u64) -> Vec<PageRun> {
        self.0.runs_in(start, end).map(PageRun::from).collect()
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
pub(crate) struct Address(pub(crate) u64);

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
struct Remote(ReadMemory);

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

fn mapping(row: &MappingRow) -> Mapping {
    let (index, offset) = (row.file as u32, row.offset);
    let kind = match row.kind {
        0 => MappingKind::PrivateAnonymous,
        1 if row.file >= 0 => MappingKind::PrivateFile { index, offset },
        3 if row.file >= 0 => MappingKind::File { index, offset },
        4 => MappingKind::Present,
        _ => MappingKind::Process,
    };
    Mapping { start: row.start, end: row.end, kind }
}

fn segment(row: &SegmentRow) -> Segment {
    let backing = match row.file {
        ..0 => Backing::Zeros,
        file => Backing::File { index: file as u32, offset: row.offset },
    };
    Segment { start: row.start, end: row.end, backing }
}

impl Space {
    fn of(
        machine: GivenMachine,
        space: impl FnOnce(Machine) -> gdbheap_core::Result<memory::Space>,
    ) -> PyResult<Space> {
        let space = space(Python::attach(|py| Machine::read(machine.bind(py)))?).map_err(raised)?;
        Ok(Space(Arc::new(space), machine))
    }
}

#[allow(clippy::too_many_arguments)]
#[pymethods]
impl Space {
    /// The space of a live process. `shared`: other processes have some of its private pages too. `stop`: who holds it; once it was
    /// let go nothing more is read. `memory`: a descriptor of its memory, where somebody has it open; it stays the caller's.
    #[staticmethod]
    #[pyo3(signature = (machine, process, mappings, pages, files, shared, stop=None, memory=None))]
    fn for_process(
        machine: GivenMachine,
        process: Given<ProcessFolder>,
        mappings: Given<Vec<MappingRow>>,
        pages: Option<&Pages>,
        files: Vec<String>,
        shared: bool,
        stop: Option<PyRef<'_, Stop>>,
        memory: Option<i32>,
    ) -> PyResult<Space> {
        let memory =
            memory.map(|number| process::duplicate(number).map_err(|error| raised(error.into()))).transpose()?;
        let mappings: Vec<Mapping> = mappings.0.iter().map(mapping).collect();
        let (pages, gate) = (pages.map(|pages| &*pages.0), stop.map(|stop| stop.0.gate()));
        let space =
            |machine| memory::Space::for_process(machine, (process.0, memory), &mappings, pages, &files, shared, gate);
        Space::of(machine, space)
    }

    /// The space of a core.
    #[staticmethod]
    fn for_core(machine: GivenMachine, segments: Given<Vec<SegmentRow>>, files: Vec<String>) -> PyResult<Space> {
        let segments = segments.0.iter().map(segment).collect();
        Space::of(machine, |machine| memory::Space::for_core(machine, segments, &files))
    }

    /// A space whose bytes come from `read(address, size) -> bytes`, on the calling thread.
    #[staticmethod]
    fn for_remote(machine: GivenMachine, segments: Vec<Range>, read: ReadMemory) -> PyResult<Space> {
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

    /// The first address at or after this one whose bytes are not zeros by definition.
    fn next_backed(&self, address: Address) -> Option<u64> {
        self.0.next_backed(address.0)
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

    /// Copies those bytes into `room`, from where they are read afterwards: the process may be let go. Memory in `shared`
    /// is read through the file `mem` (the process's /proc/PID/mem) from then on. Memory without pointers is left out where
    /// the room is too small for all. False, with nothing changed, where it is too small for that, too. Where the process
    /// is let go meanwhile, what was copied by then is all there is.
    fn capture(
        &self,
        py: Python<'_>,
        ranges: Vec<Range>,
        room: &Room,
        shared: Vec<Range>,
        mem: &str,
    ) -> PyResult<bool> {
        watched(py, None, |watcher| self.0.capture(watcher, &ranges, room.0.clone(), &shared, mem))
    }

    /// The bytes that were left out of the copy, because there are no pointers among them.
    #[getter]
    fn left_out(&self) -> u64 {
        self.0.left_out()
    }

    /// The memory of the process as it is now, for what does not change while a program runs. None unless it was let go
    /// before all was copied.
    fn as_it_runs(&self, py: Python<'_>) -> Option<Space> {
        Some(Space(Arc::new(self.0.as_it_runs()?), self.1.clone_ref(py)))
    }

    /// Whether the process ended after it was copied, before its shared memory was read as far as it was asked for.
    #[getter]
    fn is_shared_lost(&self) -> bool {
        self.0.is_shared_lost()
    }

    /// The machine that it was made with.
    #[getter]
    fn machine(&self, py: Python<'_>) -> GivenMachine {
        self.1.clone_ref(py)
    }

    /// How many bytes were read so far.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.0.bytes_read()
    }
}

/// The parts of a file that are no holes, ascending; the first `most`. None where the file system does not tell. Raises OSError,
/// TimeoutError where the kernel waits in vain for the lock of the file.
#[pyfunction]
pub fn data_extents(py: Python<'_>, path: &str, most: usize) -> PyResult<Vec<Range>> {
    let found = || memory::data_of(&std::fs::File::open(path)?, most);
    py.detach(found).map_err(|error| raised(error.into()))
}

/// The addresses of the words from `start` on that are still what they were in the beginning, `initial`, and whose value
/// lies in one of `ranges` (ascending).
#[pyfunction]
pub fn find_initial(space: &Space, start: u64, initial: &[u8], ranges: Vec<Range>) -> Vec<u64> {
    memory::find_initial(&space.0, start, initial, &ranges)
}

/// The places in `raw`, each a multiple of a word, at which all `tests` hold.
#[pyfunction]
pub fn find_places(raw: &[u8], tests: Given<Vec<WordTest>>) -> Vec<u64> {
    memory::find_places(raw, &tests.0)
}

/// The word at each of the addresses; None for those that cannot be read.
#[pyfunction]
pub fn words_at(space: &Space, addresses: Vec<Address>) -> Vec<Option<u64>> {
    let addresses: Vec<u64> = addresses.into_iter().map(|address| address.0).collect();
    memory::words_at(&space.0, &addresses)
}

/// The address of the first word in [start, end) that is at least `low` and less than `high`; None where no word that can be
/// read is.
#[pyfunction]
pub fn find_pointer(py: Python<'_>, space: &Space, start: u64, end: u64, low: u64, high: u64) -> PyResult<Option<u64>> {
    watched(py, None, |watcher| memory::find_pointer(watcher, &space.0, (start, end), (low, high)))
}

/// The stretches of words in `ranges` each of which is at least `low` and less than `high`; the first `most`.
#[pyfunction]
pub fn find_pointer_runs(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<Range>,
    low: u64,
    high: u64,
    most: usize,
) -> PyResult<Vec<Range>> {
    watched(py, None, |watcher| memory::find_pointer_runs(watcher, &space.0, &ranges, (low, high), most))
}

/// How many words of each owner in `sources` point into each of the `targets`, which ascend and are disjoint; without
/// zeros.
#[pyfunction]
pub fn count_pointers(
    py: Python<'_>,
    space: &Space,
    sources: Given<Vec<OwnedRange>>,
    targets: Vec<Range>,
) -> PyResult<Vec<PointerCount>> {
    let found = watched(py, None, |watcher| memory::count_pointers(watcher, &space.0, &sources.0, &targets))?;
    let row = |((number, place), words)| PointerCount { number, place, words };
    Ok(found.into_iter().map(row).collect())
}
