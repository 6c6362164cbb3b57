//! The readable bytes of a target, and the source of each range of addresses.
//!
//! A space does not wrap around: an address range that would pass 2^64 is absent. Bytes in no segment are absent, too:
//! a read of them fails with their address. Bytes in a segment of zeros are zeros by definition, and are never touched
//! in the target.

use crate::bytes::{append, range_at, read_file};
use crate::error::{Cancellation, Error, MissingByte, Result};
use crate::folder::ProcessFolder;
use crate::machine::{Machine, PageSize};
use crate::memory::capture::{Capture, CopyOrder, Room, SharedMemory};
use crate::memory::gate::Gate;
use crate::memory::holes::holes_of;
use crate::memory::pages::{Pages, Run, PRESENT, SWAPPED};
use crate::memory::recent::RecentPages;
use crate::patient::{is_apart, RunningMemory};
use crate::work::{NoWatcher, Steps, Task, Watcher};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The source from which the bytes of a segment are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Backing {
    /// The process itself, or the reader of a remote process.
    Process,
    File {
        index: u32,
        offset: u64,
    },
    Zeros,
}

#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub start: u64,
    pub end: u64,
    pub backing: Backing,
}

/// The way in which a mapping of a live process is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MappingKind {
    PrivateAnonymous,
    /// Pages that the process has not written to are read from the file.
    PrivateFile {
        index: u32,
        offset: u64,
    },
    /// All pages are read from the process.
    Process,
    /// Only pages that the process has are read, and only from the process. A read of any other page of shared memory
    /// would allocate that page in the process.
    Present,
    /// All pages are read from the file.
    File {
        index: u32,
        offset: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub kind: MappingKind,
}

/// A reader that only the calling thread can use, such as a debugger's connection.
pub trait Source: Send + Sync {
    /// Fill a prefix of `buffer` with the bytes at `address`. Return its length.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;
}

/// The largest size, in bytes, of a read that uses cached pages while the process is stopped. Reads that follow
/// pointers are small.
const SMALL_READ: usize = 512;
/// The largest size in bytes of a read that goes through the file `/proc/PID/mem`.
const SMALL_OF_FILE: usize = 4 << 10;
/// The number of bytes that `show_places` reads at once.
const PLACES: usize = 1 << 20;
/// The largest number of fruitless steps in a search of a range. STEPS_OF_PAGE more are allowed for each page with
/// bytes. Without a limit, a search in hostile memory could visit all pages again for each page.
const STEPS: u64 = 1 << 18;
/// The number of further fruitless steps that a search of a range may make for each page with bytes, in addition to
/// STEPS.
const STEPS_OF_PAGE: u64 = 16;

enum Origin {
    Nothing,
    /// A process. `shared`: whether other processes share some of its private pages, as after fork(). For a read by
    /// process_vm_readv(2), the kernel (5.19 and later) pins the pages, and gives the process its own copy of each
    /// shared page. A read of /proc/PID/mem does neither.
    Process {
        process: ProcessFolder,
        mem: Option<File>,
        shared: bool,
        /// The gate of the stop, which is closed when the process is released. Bytes that are read after that are not
        /// used.
        gate: Option<Arc<Gate>>,
    },
    /// A process that gdbheap does not stop. The process id may be reused, but the open file always belongs to this
    /// process.
    Running(RunningMemory),
    Remote(Box<dyn Source>),
}

pub struct Space {
    pub machine: Machine,
    segments: Vec<Segment>,
    /// The ranges of all segments, ascending, with adjacent ranges merged.
    covered: Vec<(u64, u64)>,
    /// The ranges of all segments except those that are zeros by definition, ascending, with adjacent ranges merged.
    backed: Vec<(u64, u64)>,
    files: Vec<File>,
    origin: Origin,
    read: AtomicU64,
    copy: OnceLock<Capture>,
    uncopied: OnceLock<SharedMemory>,
    recent: RecentPages,
}

impl Space {
    /// Return the size of the target's pages.
    #[inline]
    pub fn page(&self) -> PageSize {
        self.machine.page
    }

    fn segment_at(&self, address: u64) -> Option<usize> {
        let index = self.segments.partition_point(|segment| segment.end <= address);
        (index < self.segments.len() && self.segments[index].start <= address).then_some(index)
    }

    /// Fill `buffer` with the bytes at `address`, up to the first absent byte. Return the number of bytes.
    pub fn fill(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        let Some(mut index) = self.segment_at(address) else { return 0 };
        while done < buffer.len() {
            let at = address + done as u64;
            let Some(segment) = self.segments.get(index).filter(|segment| segment.start <= at) else { break };
            let size = ((segment.end - at).min((buffer.len() - done) as u64)) as usize;
            let part = &mut buffer[done..done + size];
            let got = match segment.backing {
                Backing::Zeros => {
                    part.fill(0);
                    size
                }
                Backing::File { index, offset } => {
                    self.file_bytes(index, offset.wrapping_add(at - segment.start), part)
                }
                Backing::Process => self.origin_bytes(at, part),
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
        // The kernel fills up the last page of a mapped file with zeros. (The segments of a truncated core end where
        // the file does.)
        let tail = (offset.wrapping_add(got as u64).wrapping_neg() % self.machine.page.bytes()) as usize;
        let end = buffer.len().min(got + tail);
        buffer[got..end].fill(0);
        end
    }

    fn origin_bytes(&self, address: u64, buffer: &mut [u8]) -> usize {
        match &self.origin {
            Origin::Nothing => 0,
            Origin::Process { .. } | Origin::Running(_) => {
                self.copied_bytes(address, buffer).unwrap_or_else(|| self.live_bytes(address, buffer))
            }
            Origin::Remote(source) => source.read(address, buffer).min(buffer.len()),
        }
    }

    /// Fill the prefix of `buffer` that is in the copy, or in shared memory, which is read while the process runs. None
    /// if nothing was copied yet, or if `address` is in neither of them.
    fn copied_bytes(&self, address: u64, buffer: &mut [u8]) -> Option<usize> {
        let copied = self.copy.get()?.fill(address, buffer);
        copied.or_else(|| self.uncopied.get()?.fill(address, buffer))
    }

    /// Fill `buffer` with bytes of the process. Return the number of bytes; 0 if the read was not in time
    /// (`was_in_time`). While gdbheap has stopped the process, small reads come from pages that are read whole and
    /// cached.
    fn live_bytes(&self, address: u64, buffer: &mut [u8]) -> usize {
        let is_small = buffer.len() <= SMALL_READ && self.is_held();
        if is_small && self.recent.fill(address, buffer, |page, bytes| self.timely_bytes(page, bytes)) {
            return buffer.len();
        }
        self.timely_bytes(address, buffer)
    }

    /// Return whether gdbheap has stopped the process.
    fn is_held(&self) -> bool {
        matches!(&self.origin, Origin::Process { gate: Some(gate), .. } if gate.is_open())
    }

    fn timely_bytes(&self, address: u64, buffer: &mut [u8]) -> usize {
        let got = if self.is_over() { 0 } else { self.process_bytes(address, buffer) };
        if self.was_in_time() {
            got
        } else {
            0
        }
    }

    fn process_bytes(&self, address: u64, buffer: &mut [u8]) -> usize {
        let (process, mem, shared) = match &self.origin {
            Origin::Process { process, mem, shared, .. } => (process, mem, shared),
            Origin::Running(memory) => return memory.read(address, buffer),
            _ => return 0,
        };
        // Small reads are as fast from the file; and if a thread waits there for the lock of the memory map, it can be
        // killed.
        let is_small = buffer.len() <= SMALL_OF_FILE;
        if let Some(file) = mem.as_ref().filter(|_| *shared || is_small) {
            return read_file(file, address, buffer);
        }
        let got = read_process(process.pid(), address, buffer);
        match mem {
            // process_vm_readv refuses mappings without PROT_READ; /proc/PID/mem does not.
            Some(file) if got < buffer.len() => got + read_file(file, address + got as u64, &mut buffer[got..]),
            _ => got,
        }
    }

    /// Return whether gdbheap has stopped the process and released it again.
    fn is_over(&self) -> bool {
        matches!(&self.origin, Origin::Process { gate: Some(gate), .. } if !gate.is_open())
    }

    /// Return whether the last read can be trusted: the process is still stopped, or, without a gate, the id still
    /// belongs to the process. A read after the release is counted as missed.
    fn was_in_time(&self) -> bool {
        let gate = match &self.origin {
            Origin::Process { gate: Some(gate), .. } => gate,
            // The process id may have been reused.
            Origin::Process { process, .. } => return process.is_there(),
            _ => return true,
        };
        let open = gate.is_open();
        if !open {
            gate.miss();
        }
        open
    }

    /// Fill the whole buffer, or return the address of the first absent byte.
    pub fn exact(&self, address: u64, buffer: &mut [u8]) -> Result<(), MissingByte> {
        let got = self.fill(address, buffer);
        if got < buffer.len() {
            return Err(MissingByte(address.wrapping_add(got as u64)));
        }
        Ok(())
    }

    #[inline]
    pub fn word(&self, address: u64) -> Result<u64, MissingByte> {
        let mut bytes = [0; 8];
        self.exact(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Read a record of `size` bytes at each of many addresses into `out`. Return, for each address, whether its record
    /// could be read.
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
            segment.backing == Backing::Process && size as u64 <= segment.end - address
        })
    }

    fn many_from_process(&self, addresses: &[u64], size: usize, out: &mut [u8]) -> bool {
        let Origin::Process { process, .. } = &self.origin else { return false };
        let remote: Vec<libc::iovec> =
            addresses.iter().map(|address| libc::iovec { iov_base: *address as *mut _, iov_len: size }).collect();
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        // SAFETY: the kernel writes at most `out.len()` bytes into `out`; the remote addresses are only read, in
        // another process.
        let got = unsafe { libc::process_vm_readv(process.pid(), &local, 1, remote.as_ptr(), remote.len() as u64, 0) };
        self.read.fetch_add(got.max(0) as u64, Ordering::Relaxed);
        got == out.len() as isize && self.was_in_time()
    }

    /// Return whether every byte of [address, address + size) is in a segment.
    pub fn covers(&self, address: u64, size: u64) -> bool {
        address.checked_add(size).is_some() && self.prefix(address, size) == size
    }

    /// Return the first address at or after `address` that is read from the process or a file; None if there is no such
    /// address. Segments that are zeros by definition are skipped.
    pub fn next_backed(&self, address: u64) -> Option<u64> {
        let index = self.backed.partition_point(|(_, end)| *end <= address);
        self.backed.get(index).map(|(start, _)| (*start).max(address))
    }

    /// Return how many bytes of [start, end) are in segments.
    pub fn covered_bytes(&self, start: u64, end: u64) -> u64 {
        bytes_in(&self.covered, start, end)
    }

    /// Return a counter for the steps of a search of [start, end). The counter limits the number of fruitless steps.
    pub fn steps<'a>(&self, watcher: &'a dyn Watcher, start: u64, end: u64) -> Steps<'a> {
        Steps::new(watcher, self.vain_steps(start, end))
    }

    pub fn vain_steps(&self, start: u64, end: u64) -> u64 {
        let pages = self.machine.page.number(self.backed_bytes(start, end));
        pages.saturating_mul(STEPS_OF_PAGE).saturating_add(STEPS)
    }

    /// Return how many bytes of [start, end) lie in segments that are read from the process or a file. Segments that
    /// are zeros by definition are left out.
    pub fn backed_bytes(&self, start: u64, end: u64) -> u64 {
        bytes_in(&self.backed, start, end)
    }

    /// Call `look` with the bytes of [start, end) that are present, one window after the other. Each window starts at a
    /// multiple of 8, and has at most the length of `bytes`. Addresses without backing take no time, even if a mapping
    /// has very many of them.
    pub fn show(&self, start: u64, end: u64, bytes: &mut [u8], mut look: impl FnMut(u64, &[u8])) {
        let _ = self.try_show(start, end, bytes, |at, piece| {
            look(at, piece);
            Ok(())
        });
    }

    /// Call `look` with bytes as `show` does, until it returns an error.
    pub fn try_show(
        &self,
        start: u64,
        end: u64,
        bytes: &mut [u8],
        mut look: impl FnMut(u64, &[u8]) -> Result<(), Cancellation>,
    ) -> Result<(), Cancellation> {
        let (mut at, page) = (start, self.machine.page);
        while let Some(next) = self.next_backed(at).and_then(|next| next.checked_next_multiple_of(8)) {
            if next >= end {
                break;
            }
            let size = (end - next).min(bytes.len() as u64) as usize;
            let got = self.fill_words(next, &mut bytes[..size]);
            look(next, &bytes[..got])?;
            // After a partial read, continue at the next page; if nothing could be read, continue after the whole
            // window.
            let is_cut = got > 0 && got < size;
            let step = if is_cut { (page.number(got as u64) + 1) * page.bytes() } else { size as u64 };
            at = next.saturating_add(step);
        }
        Ok(())
    }

    /// Call `look` for each multiple of 8 in [start, end) at which at least `size` backed bytes are present. `look`
    /// gets the address, and the bytes that start there. Addresses without backing take no time.
    pub fn show_places(
        &self,
        watcher: &dyn Watcher,
        (start, end): (u64, u64),
        size: usize,
        mut look: impl FnMut(u64, &[u8]),
    ) -> Result<()> {
        let mut bytes = vec![0; PLACES + size];
        let mut at = start;
        while let Some(next) = self.next_backed(at).and_then(|next| next.checked_next_multiple_of(8)) {
            watcher.check()?;
            if next >= end {
                break;
            }
            let wanted = (end - next).min(bytes.len() as u64) as usize;
            let got = self.fill(next, &mut bytes[..wanted]);
            for place in (0..got.min(PLACES)).step_by(8).take_while(|place| place + size <= got) {
                look(next + place as u64, &bytes[place..got]);
            }
            at = next.saturating_add(PLACES as u64);
        }
        Ok(())
    }

    /// Fill a buffer as `fill` does. Memory that the copy left out, because it contains no pointers, is filled with
    /// zeros.
    pub fn fill_words(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut got = self.fill(address, buffer);
        while got < buffer.len() {
            let blank = self.left_out_at(address + got as u64).min((buffer.len() - got) as u64) as usize;
            if blank == 0 {
                break;
            }
            buffer[got..got + blank].fill(0);
            got += blank;
            got += self.fill(address + got as u64, &mut buffer[got..]);
        }
        got
    }

    /// Return how many bytes, starting at `address`, the copy left out because they contain no pointers.
    pub fn left_out_at(&self, address: u64) -> u64 {
        self.copy.get().map_or(0, |copy| copy.left_out_at(address))
    }

    /// Return how many bytes from `at + got` on could not be read although segments contain them. The count ends at the
    /// first gap, or at `end`. `got`: how many bytes at `at` could be read.
    pub fn unread_after(&self, at: u64, got: u64, end: u64) -> u64 {
        let next = at.saturating_add(got);
        if next < end && self.left_out_at(next) == 0 && self.segment_at(next).is_some() {
            self.prefix(next, end - next)
        } else {
            0
        }
    }

    /// Return a task that reads this space. `total`: the sum of the progress that the task will report; None if it
    /// reports none.
    pub fn task<'a>(&self, watcher: &'a dyn Watcher, total: Option<u64>) -> Task<'a> {
        Task { watcher, total, inline: matches!(self.origin, Origin::Remote(_)) || is_apart() }
    }

    /// Do `work`, which may make many small reads. If the process is running, another thread does the work, without the
    /// watcher. ETIMEDOUT if the kernel blocks that thread.
    pub fn do_reads<T: Send + 'static>(
        self: &Arc<Space>,
        watcher: &dyn Watcher,
        work: impl FnOnce(&dyn Watcher, &Space) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let Origin::Running(memory) = &self.origin else { return work(watcher, self) };
        let space = Arc::clone(self);
        memory.apart(move || work(&NoWatcher, &space))?
    }

    fn build(machine: Machine, mut segments: Vec<Segment>, files: &[String], origin: Origin) -> Result<Space> {
        segments.retain(|segment| segment.start < segment.end);
        segments.sort_by_key(|segment| segment.start);
        if segments.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return Err(Error::invalid("segments overlap"));
        }
        // Do not wait if a pipe has replaced the file.
        let open = |path: &String| File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let opened = files.iter().map(open).collect::<std::io::Result<Vec<File>>>()?;
        let holes = holes_of(&opened, !matches!(origin, Origin::Nothing));
        let cut = segments.into_iter().flat_map(|segment| without_holes(segment, &holes)).collect();
        Ok(Space::with_files(machine, cut, opened, origin))
    }

    fn with_files(machine: Machine, segments: Vec<Segment>, files: Vec<File>, origin: Origin) -> Space {
        let (copy, uncopied, recent) = (OnceLock::new(), OnceLock::new(), RecentPages::default());
        let (covered, backed) = (joined(&segments, |_| true), joined(&segments, |one| one.backing != Backing::Zeros));
        let read = AtomicU64::new(0);
        Space { machine, segments, covered, backed, files, origin, read, copy, uncopied, recent }
    }
}

/// Return how many bytes of [start, end) are in the ranges, which ascend.
fn bytes_in(ranges: &[(u64, u64)], start: u64, end: u64) -> u64 {
    let inside = ranges[ranges.partition_point(|range| range.1 <= start)..].iter().take_while(|range| range.0 < end);
    inside.map(|range| range.1.min(end) - range.0.max(start)).sum()
}

/// Return the ranges of the segments for which `is_meant` returns true. Adjacent ranges are merged. The segments must
/// be ascending.
fn joined(segments: &[Segment], is_meant: impl Fn(&Segment) -> bool) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    segments.iter().filter(|one| is_meant(one)).for_each(|one| append(&mut found, one.start, one.end));
    found
}

/// Cut a segment at the holes of its file, which are zeros by definition. `holes`: the holes of each file.
fn without_holes(segment: Segment, holes: &[Vec<(u64, u64)>]) -> Vec<Segment> {
    let Segment { start, end, backing: Backing::File { index, offset } } = segment else { return vec![segment] };
    let Some((holes, last)) = holes.get(index as usize).zip(offset.checked_add(end - start)) else {
        return vec![segment];
    };
    let (mut cut, mut at) = (Vec::new(), offset);
    let mut push = |from: u64, to: u64, backing: Backing| {
        let of_file = Segment { start: start + (from - offset), end: start + (to - offset), backing };
        cut.extend(Some(of_file).filter(|_| from < to));
    };
    for (from, to) in &holes[holes.partition_point(|hole| hole.1 <= offset)..] {
        let (from, to) = ((*from).clamp(at, last), (*to).min(last));
        if from >= to {
            break;
        }
        push(at, from, Backing::File { index, offset: at });
        push(from, to, Backing::Zeros);
        at = to;
    }
    push(at, last, Backing::File { index, offset: at });
    cut
}

/// Fill `buffer` with the bytes of a process at `address`. Return how many bytes could be read.
pub(crate) fn read_process(pid: i32, address: u64, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote = libc::iovec { iov_base: (address + done as u64) as *mut _, iov_len: rest.len() };
        // SAFETY: the kernel writes at most `rest.len()` bytes into `rest`; the remote address is only read, in another
        // process.
        let got = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        if got <= 0 {
            break;
        }
        done += got as usize;
    }
    done
}

/// Divide a private mapping into segments by the state of its pages. Pages that the process has are read from the
/// process; for other pages, `absent` returns the source of the bytes: the file, or zeros.
fn by_pages(start: u64, end: u64, pages: &Pages, absent: impl Fn(u64) -> Backing, out: &mut Vec<Segment>) {
    let mut at = start;
    for run in pages.runs[pages.first_after(start)..].iter().take_while(|run| run.start < end) {
        let (from, to) = (run.start.max(start), run.end.min(end));
        let backing = if is_there(run) { Backing::Process } else { Backing::Zeros };
        if at < from {
            out.push(Segment { start: at, end: from, backing: absent(at) });
        }
        match out.last_mut() {
            Some(last) if last.end == from && last.backing == backing && last.start >= start => last.end = to,
            _ => out.push(Segment { start: from, end: to, backing }),
        }
        at = to;
    }
    if at < end {
        out.push(Segment { start: at, end, backing: absent(at) });
    }
}

/// Append segments for those parts of a mapping whose pages the process has.
fn present_parts(start: u64, end: u64, pages: &Pages, out: &mut Vec<Segment>) {
    for run in pages.runs[pages.first_after(start)..].iter().take_while(|run| run.start < end) {
        if is_there(run) {
            out.push(Segment { start: run.start.max(start), end: run.end.min(end), backing: Backing::Process });
        }
    }
}

fn is_there(run: &Run) -> bool {
    run.state == PRESENT || run.state == SWAPPED
}

impl Space {
    /// Create the space of a live process. `memory`: the memory of the process, if the caller has it open. `files`: the
    /// paths that `mappings` refer to by index. `shared`: whether other processes share some private pages of the
    /// process. `gate`: the gate of the process's stop; once it is closed, no more bytes are read. If there are neither
    /// `pages` nor a `gate`, the process is running.
    pub fn for_process(
        machine: Machine,
        (process, memory): (ProcessFolder, Option<File>),
        mappings: &[Mapping],
        pages: Option<&Pages>,
        files: &[String],
        shared: bool,
        gate: Option<Arc<Gate>>,
    ) -> Result<Space> {
        let mut segments = Vec::new();
        for Mapping { start, end, kind } in mappings.iter().copied() {
            match (kind, pages) {
                (MappingKind::PrivateAnonymous, Some(pages)) => {
                    by_pages(start, end, pages, |_| Backing::Zeros, &mut segments);
                }
                (MappingKind::PrivateFile { index, offset }, Some(pages)) => {
                    let absent = |at| Backing::File { index, offset: offset.wrapping_add(at - start) };
                    by_pages(start, end, pages, absent, &mut segments);
                }
                (MappingKind::Present, Some(pages)) => present_parts(start, end, pages, &mut segments),
                (MappingKind::File { index, offset }, _) => {
                    segments.push(Segment { start, end, backing: Backing::File { index, offset } });
                }
                _ => segments.push(Segment { start, end, backing: Backing::Process }),
            }
        }
        let mem = memory.or_else(|| File::open(process.path("mem")).ok());
        let origin = match mem {
            Some(mem) if shared && pages.is_none() && gate.is_none() => Origin::Running(RunningMemory::new(mem)?),
            mem => Origin::Process { process, mem, shared, gate },
        };
        Space::build(machine, segments, files, origin)
    }

    /// Create the space of a core, whose segments are in files or are zeros.
    pub fn for_core(machine: Machine, segments: Vec<Segment>, files: &[String]) -> Result<Space> {
        Space::build(machine, segments, files, Origin::Nothing)
    }

    /// Create a space whose bytes come from `source`. The bytes are read on the thread that asks for them.
    pub fn for_remote(machine: Machine, ranges: &[(u64, u64)], source: Box<dyn Source>) -> Result<Space> {
        let segment = |(start, end): &(u64, u64)| Segment { start: *start, end: *end, backing: Backing::Process };
        Space::build(machine, ranges.iter().map(segment).collect(), &[], Origin::Remote(source))
    }

    /// Copy into the buffer `room` the bytes of `ranges` (ascending, disjoint) that would be read from the process.
    /// Later reads of these bytes use the copy, so that the process can be released. If the buffer is too small for
    /// everything, memory without pointers is left out. If it is still too small, return false and change nothing.
    /// `shared`: memory that is not copied, but later read through `mem` (`/proc/PID/mem` of the process). If the
    /// process is released meanwhile, the copy ends there.
    pub fn capture(
        &self,
        watcher: &dyn Watcher,
        ranges: &[(u64, u64)],
        room: Arc<Room>,
        shared: &[(u64, u64)],
        mem: &str,
    ) -> Result<bool> {
        let (stretches, mem) = (self.live_parts(ranges), File::open(mem));
        let (read, is_over) = (|address: u64, buffer: &mut [u8]| self.timely_bytes(address, buffer), || self.is_over());
        let order = CopyOrder { ranges, stretches: &stretches, known: &self.covered, read, is_over };
        let Some(copy) = Capture::take(&self.task(watcher, None), &order, room)? else { return Ok(false) };
        if let (Ok(mem), Some((witness, _))) = (mem.and_then(RunningMemory::new), stretches.first()) {
            let _ = self.uncopied.set(SharedMemory::new(mem, self.live_parts(shared), *witness));
        }
        if copy.is_cut {
            self.was_in_time();
        }
        Ok(self.copy.set(copy).is_ok())
    }

    /// Return the number of bytes that were left out of the copy because they contain no pointers.
    pub fn left_out(&self) -> u64 {
        self.copy.get().map_or(0, |copy| copy.left_out())
    }

    /// Return a space that reads the memory of the process as it is now, whether the process is stopped or not.
    ///
    /// The space is for data that does not change while a program runs. Return None if no copy was cut short by a
    /// release of the process, or if the memory cannot be read.
    pub fn as_it_runs(&self) -> Option<Space> {
        self.copy.get().filter(|copy| copy.is_cut)?;
        let Origin::Process { mem: Some(mem), .. } = &self.origin else { return None };
        let origin = Origin::Running(RunningMemory::new(mem.try_clone().ok()?).ok()?);
        let files: std::io::Result<Vec<File>> = self.files.iter().map(File::try_clone).collect();
        Some(Space::with_files(self.machine, self.segments.clone(), files.ok()?, origin))
    }

    /// Return whether the process ended before all requested shared memory was read.
    pub fn is_shared_lost(&self) -> bool {
        self.uncopied.get().is_some_and(SharedMemory::is_lost)
    }

    /// Return the number of bytes that all reads of this space have returned so far, including those from a copy.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Return the parts of `ranges` that are read from the process.
    fn live_parts(&self, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let live = self.segments.iter().filter(|segment| segment.backing == Backing::Process);
        let mut found = Vec::new();
        for segment in live {
            let first = ranges.partition_point(|(_, end)| *end <= segment.start);
            for (start, end) in ranges[first..].iter().take_while(|(start, _)| *start < segment.end) {
                found.push((segment.start.max(*start), segment.end.min(*end)));
            }
        }
        found
    }

    /// Return how many of the `size` bytes at `address` are in segments, up to the first gap.
    pub fn prefix(&self, address: u64, size: u64) -> u64 {
        let end = address.saturating_add(size);
        range_at(&self.covered, address).map_or(0, |place| self.covered[place].1.min(end) - address)
    }

    /// Return the bytes from `address` to the first NUL, at most `limit` bytes.
    pub fn string(&self, address: u64, limit: usize) -> Result<Vec<u8>, MissingByte> {
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
                return Err(MissingByte(at.wrapping_add(got as u64)));
            }
        }
        bytes.truncate(limit);
        Ok(bytes)
    }
}
