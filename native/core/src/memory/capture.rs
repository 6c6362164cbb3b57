//! A copy of what a process has in its private memory, taken while it stands, so that it can run on while we compute.

use crate::error::{Cancelled, Result};
use crate::work::{Control, Task};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const PIECE: u64 = 1 << 20;
const SMALL: u64 = 4 << 10;
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// Memory of our own that is there already: touching it for the first time costs more than filling it.
pub struct Room {
    start: usize,
    size: usize,
}

// SAFETY: the mapping is written by `Capture::take` alone, in disjoint pieces, and only read afterwards.
unsafe impl Send for Room {}
// SAFETY: as above.
unsafe impl Sync for Room {}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.start as *mut _, self.size) };
    }
}

impl Room {
    /// `size` bytes; an error where there are none.
    pub fn new(size: usize) -> Result<Room> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let size = size.max(SMALL as usize);
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        let room = Room { start: start as usize, size };
        // SAFETY: advice about our own mapping. Where a kernel does not know it, the pages come when written.
        unsafe {
            libc::madvise(start_of(&room), size, libc::MADV_HUGEPAGE);
            libc::madvise(start_of(&room), size, MADV_POPULATE_WRITE);
        }
        Ok(room)
    }
}

fn start_of(room: &Room) -> *mut libc::c_void {
    room.start as *mut _
}

/// A stretch of addresses and where its bytes are in the room.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    place: usize,
}

pub(crate) struct Capture {
    runs: Vec<Run>,
    /// What could not be read even while the process stood.
    holes: Vec<(u64, u64)>,
    room: Arc<Room>,
}

impl Capture {
    /// Copies `stretches` (ascending, disjoint) by `read`, which fills a prefix of a buffer with the bytes at an address;
    /// None where there is not room enough.
    pub(crate) fn take(
        task: &Task<'_>,
        stretches: &[(u64, u64)],
        room: Arc<Room>,
        read: impl Fn(u64, &mut [u8]) -> usize + Sync,
    ) -> Result<Option<Capture>> {
        let mut runs = Vec::with_capacity(stretches.len());
        let mut place = 0usize;
        for (start, end) in stretches {
            runs.push(Run { start: *start, end: *end, place });
            place += (end - start) as usize;
        }
        if place > room.size {
            return Ok(None);
        }
        let base = room.start;
        let pieces: Vec<Run> = runs.iter().flat_map(cut).collect();
        let holes = Mutex::new(Vec::new());
        let copy = |_: &mut (), piece: &Run, control: &Control| -> Result<(), Cancelled> {
            let size = (piece.end - piece.start) as usize;
            // SAFETY: pieces are disjoint and lie in the room, which nobody reads before all of them are filled.
            let bytes = unsafe { std::slice::from_raw_parts_mut((base + piece.place) as *mut u8, size) };
            let missing = read_pieces(&read, piece.start, bytes);
            holes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(missing);
            control.advance(size as u64)
        };
        task.run(&pieces, || (), copy)?;
        let mut holes = holes.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        holes.sort_unstable();
        Ok(Some(Capture { runs, holes, room }))
    }

    /// Fills the prefix of `buffer` that was copied; its length, or None where nothing of it was.
    pub(crate) fn fill(&self, address: u64, buffer: &mut [u8]) -> Option<usize> {
        let index = self.runs.partition_point(|run| run.end <= address);
        let run = self.runs.get(index).filter(|run| run.start <= address)?;
        let hole = self.holes.partition_point(|(_, end)| *end <= address);
        let end = self.holes.get(hole).map_or(run.end, |(start, _)| run.end.min((*start).max(address)));
        let size = ((end - address) as usize).min(buffer.len());
        let from = self.room.start + run.place + (address - run.start) as usize;
        // SAFETY: the run lies in the room, which lives as long as this.
        buffer[..size].copy_from_slice(unsafe { std::slice::from_raw_parts(from as *const u8, size) });
        Some(size)
    }
}

/// Memory that the process shares and that was not copied. Stopping one of its writers would not hold it still, so it is
/// read while the process runs.
pub(crate) struct SharedMemory {
    /// `/proc/PID/mem`: its descriptor belongs to this process alone, whoever gets the number later.
    pub(crate) mem: File,
    /// Ascending, disjoint.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// An address that could be read while the process was stopped.
    pub(crate) witness: u64,
    lost: AtomicBool,
}

impl SharedMemory {
    pub(crate) fn new(mem: File, ranges: Vec<(u64, u64)>, witness: u64) -> SharedMemory {
        SharedMemory { mem, ranges, witness, lost: AtomicBool::new(false) }
    }

    /// Fills the prefix of `buffer` that can be read; its length, or None where `address` is not in these ranges.
    pub(crate) fn fill(&self, address: u64, buffer: &mut [u8]) -> Option<usize> {
        let index = self.ranges.partition_point(|(_, end)| *end <= address);
        let (_, end) = self.ranges.get(index).filter(|(start, _)| *start <= address)?;
        let size = ((end - address).min(buffer.len() as u64)) as usize;
        let done = read_file(&self.mem, address, &mut buffer[..size]);
        if done < size && !matches!(self.mem.read_at(&mut [0], self.witness), Ok(1)) {
            self.lost.store(true, Ordering::Relaxed);
        }
        Some(done)
    }

    /// Whether the process ended before all that was asked for had been read.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Fills the prefix of `buffer` that a file has from `offset` on; its length.
pub(crate) fn read_file(file: &File, offset: u64, buffer: &mut [u8]) -> usize {
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

fn cut(run: &Run) -> Vec<Run> {
    let mut pieces = Vec::new();
    let mut start = run.start;
    while start < run.end {
        let end = run.end.min(start + PIECE);
        pieces.push(Run { start, end, place: run.place + (start - run.start) as usize });
        start = end;
    }
    pieces
}

/// Reads all that is there, page by page where something is missing; says what is.
fn read_pieces(read: impl Fn(u64, &mut [u8]) -> usize, start: u64, bytes: &mut [u8]) -> Vec<(u64, u64)> {
    let mut missing = Vec::new();
    let mut done = read(start, bytes);
    while done < bytes.len() {
        let at = start + done as u64;
        let page_end = ((at / SMALL + 1) * SMALL - start).min(bytes.len() as u64) as usize;
        missing.push((at, start + page_end as u64));
        done = page_end;
        if done < bytes.len() {
            done += read(start + done as u64, &mut bytes[done..]);
        }
    }
    missing
}
