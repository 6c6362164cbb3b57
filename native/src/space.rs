//! The readable bytes of a target: where each stretch of addresses is read from.
//!
//! A space knows nothing of wrap-around: an address range that would pass 2^64 is absent. Bytes that are in no
//! segment are absent (a fault with the address); bytes in a `Null` segment are zeros by definition and are never
//! touched in the target.

use crate::capture::{Capture, Room};
use crate::pages::{Pages, PAGE, PRESENT, SWAPPED};
use crate::stop::{Gate, Stop};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pyo3::create_exception!(
    gdbheap._native,
    Fault,
    pyo3::exceptions::PyException,
    "Bytes that are not there; args[0] is the first address."
);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    Process,
    File { index: u32, offset: u64 },
    Null,
}

#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub start: u64,
    pub end: u64,
    pub source: Source,
}

enum Origin {
    Nothing,
    /// `shared`: other processes have some of its private pages too, as after fork(). process_vm_readv pins what it
    /// reads, for which the kernel (5.19 and later) makes the process a copy of its own; /proc/PID/mem does not.
    Process {
        pid: i32,
        mem: Option<File>,
        shared: bool,
        /// Closed when the process was let go: what was read then is not believed.
        gate: Option<Arc<Gate>>,
    },
    Remote(Py<PyAny>),
}

#[pyclass(frozen)]
pub struct Space {
    segments: Vec<Segment>,
    files: Vec<File>,
    origin: Origin,
    read: AtomicU64,
    copy: OnceLock<Capture>,
}

/// The address of the first byte that could not be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Missing(pub u64);

impl From<Missing> for PyErr {
    fn from(missing: Missing) -> PyErr {
        Fault::new_err(missing.0)
    }
}

impl Space {
    fn segment_at(&self, address: u64) -> Option<usize> {
        let index = self.segments.partition_point(|segment| segment.end <= address);
        (index < self.segments.len() && self.segments[index].start <= address).then_some(index)
    }

    /// Reads the prefix of [address, address + buffer) that is there; returns its length.
    pub fn fill(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        let Some(mut index) = self.segment_at(address) else { return 0 };
        while done < buffer.len() {
            let at = address + done as u64;
            let Some(segment) = self.segments.get(index).filter(|segment| segment.start <= at) else { break };
            let size = ((segment.end - at).min((buffer.len() - done) as u64)) as usize;
            let part = &mut buffer[done..done + size];
            let got = match segment.source {
                Source::Null => {
                    part.fill(0);
                    size
                }
                Source::File { index, offset } => self.file_bytes(index, offset.wrapping_add(at - segment.start), part),
                Source::Process => self.origin_bytes(at, part),
            };
            done += got;
            if got < size {
                break;
            }
            index += 1;
        }
        self.read.fetch_add(done as u64, Ordering::Relaxed);
        done
    }

    fn file_bytes(&self, index: u32, offset: u64, buffer: &mut [u8]) -> usize {
        let Some(file) = self.files.get(index as usize) else { return 0 };
        let got = read_file(file, offset, buffer);
        // The kernel fills the last page of a mapped file with zeros. (A cut core's segments end where the file does.)
        let tail = (offset.wrapping_add(got as u64).wrapping_neg() % PAGE) as usize;
        let end = buffer.len().min(got + tail);
        buffer[got..end].fill(0);
        end
    }

    fn origin_bytes(&self, address: u64, buffer: &mut [u8]) -> usize {
        match &self.origin {
            Origin::Nothing => 0,
            Origin::Process { .. } => match self.copy.get().and_then(|copy| copy.fill(address, buffer)) {
                Some(got) => got,
                None => self.live_bytes(address, buffer),
            },
            Origin::Remote(callable) => Python::attach(|py| {
                let answer = callable.call1(py, (address, buffer.len()));
                let answer = answer.and_then(|answer| answer.extract::<Vec<u8>>(py));
                let bytes = answer.unwrap_or_else(|error| {
                    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                        // Whoever looks for signals next ends the walk.
                        // SAFETY: needs no more than the interpreter, to which this thread is attached.
                        unsafe { pyo3::ffi::PyErr_SetInterrupt() };
                    }
                    Vec::new()
                });
                let size = bytes.len().min(buffer.len());
                buffer[..size].copy_from_slice(&bytes[..size]);
                size
            }),
        }
    }

    /// The prefix of `buffer` that was read while the process stood.
    pub fn live_bytes(&self, address: u64, buffer: &mut [u8]) -> usize {
        let got = self.process_bytes(address, buffer);
        if self.was_in_time() {
            got
        } else {
            0
        }
    }

    fn process_bytes(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Origin::Process { pid, mem, shared, .. } = &self.origin else { return 0 };
        if let (Some(file), true) = (mem, shared) {
            return read_file(file, address, buffer);
        }
        let got = read_process(*pid, address, buffer);
        match mem {
            // Mappings without PROT_READ are refused to process_vm_readv, not to /proc/PID/mem.
            Some(file) if got < buffer.len() => got + read_file(file, address + got as u64, &mut buffer[got..]),
            _ => got,
        }
    }

    /// Whether what was just read of a process was read while it stood; counts it if not.
    fn was_in_time(&self) -> bool {
        let Origin::Process { gate: Some(gate), .. } = &self.origin else { return true };
        let open = gate.is_open();
        if !open {
            gate.miss();
        }
        open
    }

    /// Reads all of it, or says where the first byte is missing.
    pub fn exact(&self, address: u64, buffer: &mut [u8]) -> Result<(), Missing> {
        let got = self.fill(address, buffer);
        if got < buffer.len() {
            return Err(Missing(address.wrapping_add(got as u64)));
        }
        Ok(())
    }

    pub fn word(&self, address: u64) -> Result<u64, Missing> {
        let mut bytes = [0; 8];
        self.exact(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads records of `size` bytes at many addresses into `out`; the answer tells which could be read.
    pub fn many(&self, addresses: &[u64], size: usize, out: &mut [u8]) -> Vec<bool> {
        let mut good = vec![false; addresses.len()];
        for (batch, addresses) in addresses.chunks(512).enumerate() {
            let base = batch * 512;
            let part = &mut out[base * size..(base + addresses.len()) * size];
            let direct = matches!(self.origin, Origin::Process { shared: false, .. })
                && self.copy.get().is_none()
                && addresses.iter().all(|address| self.all_from_process(*address, size));
            if direct && self.many_from_process(addresses, size, part) {
                good[base..base + addresses.len()].fill(true);
                continue;
            }
            for (index, address) in addresses.iter().enumerate() {
                let record = &mut part[index * size..(index + 1) * size];
                good[base + index] = self.exact(*address, record).is_ok();
            }
        }
        good
    }

    fn all_from_process(&self, address: u64, size: usize) -> bool {
        self.segment_at(address).is_some_and(|index| {
            let segment = &self.segments[index];
            segment.source == Source::Process && size as u64 <= segment.end - address
        })
    }

    fn many_from_process(&self, addresses: &[u64], size: usize, out: &mut [u8]) -> bool {
        let Origin::Process { pid, .. } = self.origin else { return false };
        let remote: Vec<libc::iovec> =
            addresses.iter().map(|address| libc::iovec { iov_base: *address as *mut _, iov_len: size }).collect();
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        // SAFETY: the kernel writes at most `out.len()` bytes into `out`; remote addresses are only read, elsewhere.
        let got = unsafe { libc::process_vm_readv(pid, &local, 1, remote.as_ptr(), remote.len() as u64, 0) };
        self.read.fetch_add(got.max(0) as u64, Ordering::Relaxed);
        got == out.len() as isize && self.was_in_time()
    }

    /// Whether every byte of [address, address + size) is in a segment.
    pub fn covers(&self, address: u64, size: u64) -> bool {
        let Some(end) = address.checked_add(size) else { return false };
        let mut at = address;
        let mut index = self.segments.partition_point(|segment| segment.end <= address);
        while at < end {
            match self.segments.get(index) {
                Some(segment) if segment.start <= at => at = segment.end,
                _ => return false,
            }
            index += 1;
        }
        true
    }

    /// The next address at or after `address` that can be read and is not zero by definition.
    pub fn next_backed(&self, address: u64) -> Option<u64> {
        let index = self.segments.partition_point(|segment| segment.end <= address);
        self.segments[index..].iter().find(|segment| segment.source != Source::Null).map(|s| s.start.max(address))
    }

    /// Shows what is there of [start, end), in windows of `bytes`' size from multiples of eight on. Addresses that nothing
    /// backs cost nothing, however many a mapping claims to have.
    pub fn show(&self, start: u64, end: u64, bytes: &mut [u8], mut look: impl FnMut(u64, &[u8])) {
        let mut at = start;
        while let Some(next) = self.next_backed(at).and_then(|next| next.checked_next_multiple_of(8)) {
            if next >= end {
                break;
            }
            let size = (end - next).min(bytes.len() as u64) as usize;
            let got = self.fill(next, &mut bytes[..size]);
            look(next, &bytes[..got]);
            // What cannot be read is passed over: a page after what could be, else as much as was asked for.
            let step = if got == size || got == 0 { size as u64 } else { (got as u64 / PAGE + 1) * PAGE };
            at = next.saturating_add(step);
        }
    }

    /// Whether reading needs Python, so that a walk has to stay on the calling thread.
    pub fn is_remote(&self) -> bool {
        matches!(self.origin, Origin::Remote(_))
    }

    fn build(mut segments: Vec<Segment>, files: Vec<String>, origin: Origin) -> PyResult<Space> {
        segments.retain(|segment| segment.start < segment.end);
        segments.sort_by_key(|segment| segment.start);
        if segments.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return Err(PyValueError::new_err("segments overlap"));
        }
        let opened: std::io::Result<Vec<File>> = files.iter().map(File::open).collect();
        Ok(Space { segments, files: opened?, origin, read: AtomicU64::new(0), copy: OnceLock::new() })
    }
}

fn read_file(file: &File, offset: u64, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset.wrapping_add(done as u64)) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    done
}

fn read_process(pid: i32, address: u64, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote = libc::iovec { iov_base: (address + done as u64) as *mut _, iov_len: rest.len() };
        // SAFETY: the kernel writes at most `rest.len()` bytes into `rest`; the remote address is only read, elsewhere.
        let got = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        if got <= 0 {
            break;
        }
        done += got as usize;
    }
    done
}

/// Cuts a private mapping by what its pages say: in memory, or still what the file (or nothing) holds.
fn by_pages(start: u64, end: u64, pages: &Pages, absent: impl Fn(u64) -> Source, out: &mut Vec<Segment>) {
    let mut at = start;
    for run in pages.runs[pages.first_after(start)..].iter().take_while(|run| run.start < end) {
        let (from, to) = (run.start.max(start), run.end.min(end));
        let source = if run.state == PRESENT || run.state == SWAPPED { Source::Process } else { Source::Null };
        if at < from {
            out.push(Segment { start: at, end: from, source: absent(at) });
        }
        match out.last_mut() {
            Some(last) if last.end == from && last.source == source && last.start >= start => last.end = to,
            _ => out.push(Segment { start: from, end: to, source }),
        }
        at = to;
    }
    if at < end {
        out.push(Segment { start: at, end, source: absent(at) });
    }
}

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

#[pymethods]
impl Space {
    /// The space of a live process. `mappings`: `(start, end, kind, file_index, file_offset)`, kind 0 private
    /// anonymous, 1 private file-backed, 2 always read from the process, 3 always from its file. `shared`: other processes have some of its
    /// private pages too. `stop`: who holds it; once it was let go nothing more is read.
    #[staticmethod]
    #[pyo3(signature = (pid, mappings, pages, files, shared, stop=None))]
    fn for_process(
        pid: i32,
        mappings: Vec<(u64, u64, u8, i64, u64)>,
        pages: Option<&Pages>,
        files: Vec<String>,
        shared: bool,
        stop: Option<PyRef<'_, Stop>>,
    ) -> PyResult<Space> {
        let mut segments = Vec::new();
        for (start, end, kind, file, offset) in mappings {
            match (kind, pages) {
                (0, Some(pages)) => by_pages(start, end, pages, |_| Source::Null, &mut segments),
                (1, Some(pages)) if file >= 0 => {
                    let absent = |at| Source::File { index: file as u32, offset: offset.wrapping_add(at - start) };
                    by_pages(start, end, pages, absent, &mut segments);
                }
                (3, _) if file >= 0 => {
                    segments.push(Segment { start, end, source: Source::File { index: file as u32, offset } });
                }
                _ => segments.push(Segment { start, end, source: Source::Process }),
            }
        }
        let mem = File::open(format!("/proc/{pid}/mem")).ok();
        let gate = stop.map(|stop| stop.gate());
        Space::build(segments, files, Origin::Process { pid, mem, shared, gate })
    }

    /// The space of a core. `segments`: `(start, end, file_index, file_offset)`; index -1: zeros by definition.
    #[staticmethod]
    fn for_core(segments: Vec<(u64, u64, i64, u64)>, files: Vec<String>) -> PyResult<Space> {
        let source = |index: i64, offset| match index {
            ..0 => Source::Null,
            _ => Source::File { index: index as u32, offset },
        };
        let segments = segments
            .into_iter()
            .map(|(start, end, index, offset)| Segment { start, end, source: source(index, offset) })
            .collect();
        Space::build(segments, files, Origin::Nothing)
    }

    /// A space whose bytes come from `read(address, size) -> bytes`, on the calling thread.
    #[staticmethod]
    fn for_remote(segments: Vec<(u64, u64)>, read: Py<PyAny>) -> PyResult<Space> {
        let segments =
            segments.into_iter().map(|(start, end)| Segment { start, end, source: Source::Process }).collect();
        Space::build(segments, Vec::new(), Origin::Remote(read))
    }

    /// `size` bytes at `address`. Raises Fault with the first address that is absent.
    #[pyo3(name = "read")]
    fn py_read<'py>(&self, py: Python<'py>, address: Address, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let address = address.0;
        if !self.covers(address, size as u64) {
            let prefix = self.prefix(address, size as u64);
            return Err(Missing(address.wrapping_add(prefix)).into());
        }
        PyBytes::new_with(py, size, |buffer| self.exact(address, buffer).map_err(PyErr::from))
    }

    /// As many of `size` bytes at `address` as are there before the first absent one.
    fn read_available<'py>(&self, py: Python<'py>, address: Address, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut buffer = vec![0; self.prefix(address.0, size as u64) as usize];
        let got = self.fill(address.0, &mut buffer);
        Ok(PyBytes::new(py, &buffer[..got]))
    }

    fn u64(&self, address: Address) -> PyResult<u64> {
        Ok(self.word(address.0)?)
    }

    fn u32(&self, address: Address) -> PyResult<u32> {
        let mut bytes = [0; 4];
        self.exact(address.0, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The bytes before the first NUL at `address`, at most `limit`. Raises Fault where the string runs off.
    #[pyo3(signature = (address, limit=4096))]
    fn cstring<'py>(&self, py: Python<'py>, address: Address, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.string(address.0, limit)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Whether every byte of [address, address + size) can be read.
    fn contains(&self, address: Address, size: u64) -> bool {
        self.covers(address.0, size)
    }

    /// Copies the bytes of `ranges` (ascending, disjoint) that would have to come from the process into `room`, from where
    /// they are read afterwards: the process may be let go. False, with nothing changed, where the room is too small or
    /// the process was let go meanwhile.
    fn capture(&self, py: Python<'_>, ranges: Vec<(u64, u64)>, room: Py<Room>) -> PyResult<bool> {
        let Some(copy) = Capture::take(py, self, &self.live_parts(&ranges), room)? else { return Ok(false) };
        Ok(self.was_in_time() && self.copy.set(copy).is_ok())
    }

    /// How many bytes were read so far.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl Space {
    /// The parts of `ranges` that are read from the process.
    fn live_parts(&self, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let live = self.segments.iter().filter(|segment| segment.source == Source::Process);
        let mut found = Vec::new();
        for segment in live {
            let first = ranges.partition_point(|(_, end)| *end <= segment.start);
            for (start, end) in ranges[first..].iter().take_while(|(start, _)| *start < segment.end) {
                found.push((segment.start.max(*start), segment.end.min(*end)));
            }
        }
        found
    }

    /// How many of `size` bytes at `address` are in segments without a gap.
    fn prefix(&self, address: u64, size: u64) -> u64 {
        let end = address.saturating_add(size);
        let mut at = address;
        let mut index = self.segments.partition_point(|segment| segment.end <= address);
        while at < end {
            match self.segments.get(index) {
                Some(segment) if segment.start <= at => at = segment.end.min(end),
                _ => break,
            }
            index += 1;
        }
        at - address
    }

    /// The bytes before the first NUL at `address`, at most `limit`.
    pub fn string(&self, address: u64, limit: usize) -> Result<Vec<u8>, Missing> {
        let mut bytes = Vec::new();
        while bytes.len() < limit {
            let mut part = [0; 64];
            let at = address.wrapping_add(bytes.len() as u64);
            let got = self.fill(at, &mut part);
            if let Some(end) = part[..got].iter().position(|byte| *byte == 0) {
                bytes.extend_from_slice(&part[..end]);
                break;
            }
            bytes.extend_from_slice(&part[..got]);
            if got < part.len() {
                return Err(Missing(at.wrapping_add(got as u64)));
            }
        }
        bytes.truncate(limit);
        Ok(bytes)
    }
}

/// The error of the last system call, as Python's OSError with its number.
pub fn os_error(error: std::io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}
