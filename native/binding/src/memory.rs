//! The bytes and pages of a target.

use crate::detaching::detached;
use crate::process::Stop;
use crate::records::{field, records, Argument, FromObject};
use crate::rows::{answers, exports, PageSum, Range};
use crate::watch::{fault, raised, watched};
use gdbheap_access::memory::{self, Backing, Mapping, MappingKind, OwnedRange, Run, Segment, Source, WordTest};
use gdbheap_access::process::{self, ProcessFolder};
use gdbheap_core::{Machine, MissingByte, Watcher};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// The largest number of bytes of a string that are read, unless the caller gives a limit.
const LONGEST_STRING: usize = 4 << 10;

/// A Python object with the attributes of a `Machine`.
pub type MachineArgument = Py<PyAny>;

impl FromObject for Machine {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Machine> {
        let number = |name: &str| field::<u64>(object, "Machine", name);
        let (elf_machine, word) = (field(object, "Machine", "elf_machine")?, field(object, "Machine", "word")?);
        Machine::new(elf_machine, word, number("page")?, number("user_end")?, number("pointer_mask")?).map_err(raised)
    }
}

/// The rule for reading the bytes [start, end) of a process. `kind`:
///
/// - 0: private anonymous memory.
/// - 1: a private mapping of a file. Pages that the process has not written to are read from the file.
/// - 2: always read from the process.
/// - 3: always read from the file with the number `file` (-1: no file).
/// - 4: read from the process if the page is present.
pub struct MappingRow {
    start: u64,
    end: u64,
    kind: u8,
    file: i64,
    offset: u64,
}

/// The bytes [start, end) of a core. They are at `offset` in the file with the number `file`; -1 means that they are
/// zeros by definition.
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
    /// Pages [start, end) that are all in the same state: PRESENT, SWAPPED or ZERO.
    struct PageRun of Run { start: u64, end: u64, state: u8 }

    /// The resident bytes and the swapped bytes of some memory.
    struct Residency { resident: u64, swapped: u64 }

    /// The number of words of an owner that point into a range. `number`: the number of the owner. `place`: the index
    /// of the range.
    struct PointerCount { number: u32, place: usize, words: u64 }
}

exports! {
    classes: Pages, Room, Space;
    functions: data_extents, find_initial, find_places, words_at, find_led_back, find_pointer, find_pointer_runs, count_pointers;
}

/// Pages [start, end), and the state of these pages.
type StateRun = (u64, u64, u8);

/// A Python function that is called as `read(address, size)` and returns bytes.
pub type ReadMemory = Py<PyAny>;

/// The runs of pages that are not absent, sorted and disjoint.
#[pyclass(frozen)]
pub struct Pages(pub Arc<memory::Pages>);

impl Pages {
    fn of(pages: gdbheap_core::Result<memory::Pages>) -> PyResult<Pages> {
        Ok(Pages(Arc::new(pages.map_err(raised)?)))
    }
}

#[pymethods]
impl Pages {
    /// Read the page states of the ranges `[(start, end)]`, ascending, from a `pagemap` file. If `scan` is true, the
    /// kernel returns runs of pages (PAGEMAP_SCAN, Linux 6.7); otherwise the entry of every page is read. Raises
    /// OSError.
    #[staticmethod]
    #[pyo3(signature = (machine, path, ranges, scan=true))]
    fn from_pagemap(
        py: Python<'_>,
        machine: Argument<Machine>,
        path: &str,
        ranges: Vec<Range>,
        scan: bool,
    ) -> PyResult<Pages> {
        let page = machine.0.page;
        let pages = watched(py, None, |watcher| memory::Pages::from_pagemap(watcher, path, &ranges, page, scan))?;
        Ok(Pages(Arc::new(pages)))
    }

    /// Build page states from raw pagemap entries (u64, little endian). `parts`: (address of the first page, entries)
    /// for each part.
    #[staticmethod]
    fn from_entries(machine: Argument<Machine>, parts: Vec<(u64, Vec<u8>)>) -> PyResult<Pages> {
        Pages::of(memory::Pages::from_entries(&parts, machine.0.page))
    }

    /// Build page states from runs. Raises ValueError if the runs are not ascending and disjoint.
    #[staticmethod]
    fn from_runs(machine: Argument<Machine>, runs: Vec<StateRun>) -> PyResult<Pages> {
        let run = |(start, end, state)| Run { start, end, state };
        Pages::of(memory::Pages::from_runs(runs.into_iter().map(run).collect(), machine.0.page))
    }

    /// Return the resident and swapped bytes of [start, end).
    fn count(&self, start: u64, end: u64) -> Residency {
        let (resident, swapped) = self.0.count(start, end);
        Residency { resident, swapped }
    }

    /// Return the part of the free chunk [start, end), header included, that malloc_trim() would release.
    fn released(&self, start: u64, end: u64) -> PageSum {
        gdbheap_core::allocators::glibc::released(&self.0, start, end).into()
    }

    /// Whether the kernel reports which pages are huge.
    #[getter]
    fn knows_huge(&self) -> bool {
        self.0.huge.is_some()
    }

    /// Return the runs inside [start, end), clipped to this range.
    fn runs(&self, start: u64, end: u64) -> Vec<PageRun> {
        self.0.runs_in(start, end).map(PageRun::from).collect()
    }
}

/// A buffer in this process whose pages are already resident, because the first access to a page takes longer than
/// filling the page.
#[pyclass(frozen)]
pub struct Room(Arc<memory::Room>);

#[pymethods]
impl Room {
    /// Allocate a buffer of `size` bytes. Raises OSError if there is not enough memory.
    #[new]
    fn new(py: Python<'_>, size: usize) -> PyResult<Room> {
        let room = detached(py, || memory::Room::new(size)).map_err(raised)?;
        Ok(Room(Arc::new(room)))
    }
}

/// The readable bytes of a target.
#[pyclass(frozen)]
pub struct Space(pub Arc<memory::Space>, Py<PyAny>);

/// An address that Python computed. An address beyond 64 bits becomes the last address, where nothing is mapped.
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

/// A source of bytes that calls a Python function.
struct Remote(ReadMemory);

impl Source for Remote {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        Python::attach(|py| {
            let answer = self.0.call1(py, (address, buffer.len()));
            let answer = answer.and_then(|answer| answer.extract::<Vec<u8>>(py));
            let bytes = answer.unwrap_or_else(|error| {
                if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    // The next check for signals cancels the work.
                    // SAFETY: the call needs only the interpreter, to which this thread is attached.
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
        machine: MachineArgument,
        space: impl FnOnce(Machine) -> gdbheap_core::Result<memory::Space>,
    ) -> PyResult<Space> {
        let space = space(Python::attach(|py| Machine::read(machine.bind(py)))?).map_err(raised)?;
        Ok(Space(Arc::new(space), machine))
    }

    /// Do `work`, which may make many small reads, without the GIL. Raises TimeoutError if the kernel blocks the reads
    /// of a running process.
    pub(crate) fn do_reads<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&dyn Watcher, &memory::Space) -> gdbheap_core::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        watched(py, None, |watcher| self.0.do_reads(watcher, work))
    }
}

#[pymethods]
impl Space {
    /// Return the space of a live process. `shared`: whether other processes share some private pages of the process.
    /// `stop`: the stop of the process; after its release nothing more is read. `memory`: an open descriptor of the
    /// process's memory, which the caller must still close.
    #[staticmethod]
    #[pyo3(signature = (machine, process, mappings, pages, files, shared, stop=None, memory=None))]
    fn for_process(
        machine: MachineArgument,
        process: Argument<ProcessFolder>,
        mappings: Argument<Vec<MappingRow>>,
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

    /// Return the space of a core, whose bytes are read from `files` as `segments` say.
    #[staticmethod]
    fn for_core(machine: MachineArgument, segments: Argument<Vec<SegmentRow>>, files: Vec<String>) -> PyResult<Space> {
        let segments = segments.0.iter().map(segment).collect();
        Space::of(machine, |machine| memory::Space::for_core(machine, segments, &files))
    }

    /// Return a space whose bytes are read by calling `read(address, size) -> bytes` on the calling thread.
    #[staticmethod]
    fn for_remote(machine: MachineArgument, segments: Vec<Range>, read: ReadMemory) -> PyResult<Space> {
        Space::of(machine, |machine| memory::Space::for_remote(machine, &segments, Box::new(Remote(read))))
    }

    /// Return `size` bytes at `address`. Raises Fault with the first address that is absent.
    fn read<'py>(&self, py: Python<'py>, address: Address, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let address = address.0;
        if !self.0.covers(address, size as u64) {
            let prefix = self.0.prefix(address, size as u64);
            return Err(fault(MissingByte(address.wrapping_add(prefix))));
        }
        PyBytes::new_with(py, size, |buffer| self.0.exact(address, buffer).map_err(fault))
    }

    /// Return the bytes from `address` to the first absent byte, at most `size` bytes.
    fn read_available<'py>(&self, py: Python<'py>, address: Address, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut buffer = vec![0; self.0.prefix(address.0, size as u64) as usize];
        let got = self.0.fill(address.0, &mut buffer);
        Ok(PyBytes::new(py, &buffer[..got]))
    }

    /// Return the first address at or after `address` that has bytes and is not zero by definition; None if there is no
    /// such address.
    fn next_backed(&self, address: Address) -> Option<u64> {
        self.0.next_backed(address.0)
    }

    /// Return the word at `address`. Raises Fault if it is absent.
    fn word(&self, address: Address) -> PyResult<u64> {
        self.0.word(address.0).map_err(fault)
    }

    fn u32(&self, address: Address) -> PyResult<u32> {
        let mut bytes = [0; 4];
        self.0.exact(address.0, &mut bytes).map_err(fault)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Return the bytes from `address` to the first NUL, at most `limit` bytes. Raises Fault if there is absent memory
    /// before the NUL.
    #[pyo3(signature = (address, limit=LONGEST_STRING))]
    fn cstring<'py>(&self, py: Python<'py>, address: Address, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.0.string(address.0, limit).map_err(fault)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Return whether every byte of [address, address + size) is in the space. Such bytes may still be unreadable.
    fn contains(&self, address: Address, size: u64) -> bool {
        self.0.covers(address.0, size)
    }

    /// Copy the bytes of `ranges` into the buffer `room`. Later reads of these bytes use the copy, so that the process
    /// can be released. Memory in `shared` is not copied; later reads of it use the file `mem` (/proc/PID/mem of the
    /// process). If the buffer is too small for everything, memory without pointers is left out. If it is still too
    /// small, return False and change nothing. If the process is released meanwhile, the copy ends there.
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

    /// The number of bytes that the copy left out, because they contain no pointers.
    #[getter]
    fn left_out(&self) -> u64 {
        self.0.left_out()
    }

    /// Return a space that reads the memory of the process as it is now, while the process runs. The space is for data
    /// that does not change while a program runs. None if no copy was cut short by the release of the process.
    fn as_it_runs(&self, py: Python<'_>) -> Option<Space> {
        Some(Space(Arc::new(self.0.as_it_runs()?), self.1.clone_ref(py)))
    }

    /// Whether the process ended after it was copied and before all requested shared memory was read.
    #[getter]
    fn is_shared_lost(&self) -> bool {
        self.0.is_shared_lost()
    }

    /// The machine that the space was made with.
    #[getter]
    fn machine(&self, py: Python<'_>) -> MachineArgument {
        self.1.clone_ref(py)
    }

    /// The number of bytes that all reads of this space have returned so far, including those from a copy.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.0.bytes_read()
    }
}

/// Return at most `most` parts of a file that are not holes, ascending. The list is empty if the file system does not
/// report holes. Raises OSError, and TimeoutError if the kernel cannot get the lock of the file.
#[pyfunction]
pub fn data_extents(py: Python<'_>, path: &str, most: usize) -> PyResult<Vec<Range>> {
    let found = || memory::data_of(&std::fs::File::open(path)?, most);
    detached(py, found).map_err(|error| raised(error.into()))
}

/// Return the addresses of the words that still have their initial value and point into one of `ranges` (ascending).
/// `initial`: the initial bytes of the memory that begins at `start`.
#[pyfunction]
pub fn find_initial(space: &Space, start: u64, initial: &[u8], ranges: Vec<Range>) -> Vec<u64> {
    memory::find_initial(&space.0, start, initial, &ranges)
}

/// Return the offsets in `raw` at which all `tests` hold. Only multiples of the word size are tried.
#[pyfunction]
pub fn find_places(raw: &[u8], tests: Argument<Vec<WordTest>>) -> Vec<u64> {
    memory::find_places(raw, &tests.0)
}

/// Return the word at each of the addresses; None if it cannot be read.
#[pyfunction]
pub fn words_at(space: &Space, addresses: Vec<Address>) -> Vec<Option<u64>> {
    let addresses: Vec<u64> = addresses.into_iter().map(|address| address.0).collect();
    memory::words_at(&space.0, &addresses)
}

/// Return the words of `raw` that may be the address of a certain structure, ascending. Such a structure and a second
/// one point to each other.
///
/// - `below`: structures begin above this address.
/// - `apart`: the range [start, end) in which no structure begins.
/// - `first`: the offset in the structure of its pointer to the second one.
/// - `back`: the offset in the second structure of its pointer to the first one.
/// - `place`: if given, a structure is also found if its word at `first` is 0 and its word at `place` is an address.
#[pyfunction]
pub fn find_led_back(
    space: &Space,
    raw: &[u8],
    below: u64,
    apart: Range,
    first: u64,
    back: u64,
    place: Option<u64>,
) -> Vec<u64> {
    memory::find_led_back(&space.0, raw, &memory::LedBack { below, apart, first, back, place })
}

/// Return the address of the first readable word in [start, end) whose value is in [low, high); None if there is no
/// such word.
#[pyfunction]
pub fn find_pointer(py: Python<'_>, space: &Space, start: u64, end: u64, low: u64, high: u64) -> PyResult<Option<u64>> {
    watched(py, None, |watcher| memory::find_pointer(watcher, &space.0, (start, end), (low, high)))
}

/// Return at most `most` runs of words in `ranges` whose values all lie in [low, high).
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

/// Count the words of each owner in `sources` that point into each of the `targets` (ascending, disjoint). Counts of
/// zero are left out.
#[pyfunction]
pub fn count_pointers(
    py: Python<'_>,
    space: &Space,
    sources: Argument<Vec<OwnedRange>>,
    targets: Vec<Range>,
) -> PyResult<Vec<PointerCount>> {
    let found = watched(py, None, |watcher| memory::count_pointers(watcher, &space.0, &sources.0, &targets))?;
    let row = |((number, place), words)| PointerCount { number, place, words };
    Ok(found.into_iter().map(row).collect())
}
