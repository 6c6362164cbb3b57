//! The state of the pages of an address space: present, swapped out, or the kernel's shared zero page.
//!
//! A page in none of the runs is absent. Zero pages are present for the MMU, but the kernel does not count them in Rss
//! (`vm_normal_page`), and neither does gdbheap.

use crate::error::{Error, Result};
use crate::machine::PageSize;
use crate::patient::{at_path, open_patiently, read_at_patiently};
use crate::work::Watcher;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

pub const PRESENT: u8 = 1;
pub const SWAPPED: u8 = 2;
pub const ZERO: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    pub start: u64,
    pub end: u64,
    pub state: u8,
}

/// The runs of pages that are present, swapped out or zero pages, sorted and disjoint.
pub struct Pages {
    pub page: PageSize,
    pub runs: Vec<Run>,
    /// The parts of the runs that the kernel maps as huge pages, ascending; None if the kernel does not report them.
    pub huge: Option<Vec<(u64, u64)>>,
}

/// `struct pm_scan_arg` of `<linux/fs.h>` (Linux 6.7).
#[repr(C)]
#[derive(Default)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;
const PAGEMAP_SCAN: u64 = (3 << 30) | ((std::mem::size_of::<PmScanArg>() as u64) << 16) | ((b'f' as u64) << 8) | 16;

/// The largest number of runs that one call of the kernel returns.
const REGIONS_AT_ONCE: usize = 4 << 10;

pub(crate) const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_PFN: u64 = (1 << 55) - 1;

struct Collector {
    page: PageSize,
    runs: Vec<Run>,
    huge: Vec<(u64, u64)>,
}

impl Collector {
    fn new(page: PageSize) -> Collector {
        Collector { page, runs: Vec::new(), huge: Vec::new() }
    }

    /// Add a run of pages, without the part of it that is already known.
    ///
    /// A kernel (6.18) was observed to return a run a second time: it reported that it had stopped before that run,
    /// although it had already returned the run.
    fn add(&mut self, start: u64, end: u64, state: u8) {
        let start = self.runs.last().map_or(start, |last| start.max(last.end));
        if start >= end {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.end == start && last.state == state => last.end = end,
            _ => self.runs.push(Run { start, end, state }),
        }
    }

    fn add_huge(&mut self, start: u64, end: u64) {
        let start = self.huge.last().map_or(start, |last| start.max(last.1));
        match self.huge.last_mut() {
            _ if start >= end => {}
            Some(last) if last.1 == start => last.1 = end,
            _ => self.huge.push((start, end)),
        }
    }

    fn entries(&mut self, start: u64, bytes: &[u8], zero_pfn: Option<u64>) {
        for (index, entry) in bytes.chunks_exact(8).enumerate() {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            let state = if entry & ENTRY_PRESENT != 0 {
                let zero = zero_pfn.is_some_and(|pfn| entry & ENTRY_PFN == pfn);
                if zero {
                    ZERO
                } else {
                    PRESENT
                }
            } else if entry & ENTRY_SWAPPED != 0 {
                SWAPPED
            } else {
                continue;
            };
            let at = start.wrapping_add(index as u64 * self.page.bytes());
            self.add(at, at.wrapping_add(self.page.bytes()), state);
        }
    }

    /// Ask the kernel for the runs of pages in [start, end). Before Linux 6.7 the kernel does not know the request
    /// (ENOTTY).
    fn scan(&mut self, file: &File, start: u64, end: u64) -> std::io::Result<()> {
        let mut found = vec![PageRegion::default(); REGIONS_AT_ONCE];
        let wanted = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
        let mut at = start;
        while at < end {
            let mut argument = PmScanArg {
                size: std::mem::size_of::<PmScanArg>() as u64,
                start: at,
                end,
                vec: found.as_mut_ptr() as u64,
                vec_len: found.len() as u64,
                category_anyof_mask: wanted,
                return_mask: wanted | PAGE_IS_PFNZERO | PAGE_IS_HUGE,
                ..Default::default()
            };
            // SAFETY: the argument and the vector that it points to outlive the call, and have the given lengths.
            let count = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN as _, &mut argument) };
            if count < 0 {
                let error = std::io::Error::last_os_error();
                if error.raw_os_error() == Some(libc::EINTR) {
                    continue;
                }
                return Err(error);
            }
            for region in found.iter().take(count as usize) {
                let state = if region.categories & PAGE_IS_PFNZERO != 0 {
                    ZERO
                } else if region.categories & PAGE_IS_PRESENT != 0 {
                    PRESENT
                } else {
                    SWAPPED
                };
                self.add(region.start, region.end, state);
                if state == PRESENT && region.categories & PAGE_IS_HUGE != 0 {
                    self.add_huge(region.start, region.end);
                }
            }
            if argument.walk_end <= at {
                break;
            }
            at = argument.walk_end;
        }
        Ok(())
    }

    fn read(&mut self, watcher: &dyn Watcher, file: &File, range: (u64, u64), zero_pfn: Option<u64>) -> Result<()> {
        let page = self.page;
        show_entries(watcher, file, range, page, |at, entries| self.entries(at, entries, zero_pfn))
    }
}

/// Pass the pagemap entries of a range to a function, in parts, each with the address of its first page. Stop where the
/// file ends.
pub(super) fn show_entries(
    watcher: &dyn Watcher,
    file: &File,
    (start, end): (u64, u64),
    page: PageSize,
    mut show: impl FnMut(u64, &[u8]),
) -> Result<()> {
    let mut buffer = vec![0u8; 64 * 1024];
    let mut at = start;
    let mut turns = 0u32;
    while at < end {
        turns += 1;
        if turns % 256 == 0 {
            watcher.check()?;
        }
        let pages = page.number(end - at).min(buffer.len() as u64 / 8);
        let wanted = &mut buffer[..pages as usize * 8];
        let got = file.read_at(wanted, page.number(at) * 8)?;
        if got < 8 {
            break;
        }
        show(at, &wanted[..got / 8 * 8]);
        at += (got / 8) as u64 * page.bytes();
    }
    Ok(())
}

/// Return the page frame number of the kernel's zero page, read from the entry of an untouched page of this process;
/// None if the kernel hides frame numbers.
fn zero_pfn(page: PageSize) -> Option<u64> {
    let size = page.bytes() as usize;
    // SAFETY: a new private mapping, read once and unmapped; nothing else refers to it.
    let address = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapped = libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, flags, -1, 0);
        if mapped == libc::MAP_FAILED {
            return None;
        }
        std::ptr::read_volatile(mapped as *const u8);
        mapped
    };
    let mut entry = [0u8; 8];
    let read = File::open("/proc/self/pagemap")
        .and_then(|file| file.read_exact_at(&mut entry, page.number(address as u64) * 8));
    // SAFETY: unmaps exactly what was mapped above.
    unsafe { libc::munmap(address, size) };
    read.ok()?;
    Some(u64::from_le_bytes(entry) & ENTRY_PFN).filter(|pfn| *pfn != 0)
}

impl Pages {
    /// Return the index of the first run that ends after `address`.
    #[inline]
    pub(crate) fn first_after(&self, address: u64) -> usize {
        self.runs.partition_point(|run| run.end <= address)
    }
}

impl Pages {
    /// Read the states of the pages in `ranges` (ascending) from a `pagemap` file. If `scan` is true, the kernel
    /// returns runs of pages (Linux 6.7); otherwise the entry of every page is read.
    pub fn from_pagemap(
        watcher: &dyn Watcher,
        path: &str,
        ranges: &[(u64, u64)],
        page: PageSize,
        scan: bool,
    ) -> Result<Pages> {
        let mut collector = Collector::new(page);
        if scan {
            let ranges = ranges.to_vec();
            collector = at_path(path.as_ref(), move |path| {
                let file = File::open(path)?;
                ranges.into_iter().try_for_each(|(start, end)| collector.scan(&file, start, end))?;
                Ok(collector)
            })?;
        } else {
            let (file, zero) = (open_patiently(path.as_ref(), false)?, zero_pfn(page));
            // Read one entry patiently first: if the kernel blocks this read, it would block the other reads, too.
            read_at_patiently(path.as_ref(), ranges.first().map_or(0, |(start, _)| page.number(*start) * 8), 8)?;
            for range in ranges {
                collector.read(watcher, &file, *range, zero)?;
            }
        }
        Pages::checked(page, collector.runs, scan.then_some(collector.huge))
    }

    /// Build page states from raw pagemap entries (u64, little endian), in parts, each with the address of its first
    /// page.
    pub fn from_entries(parts: &[(u64, Vec<u8>)], page: PageSize) -> Result<Pages> {
        let mut collector = Collector::new(page);
        for (start, bytes) in parts {
            collector.entries(*start, bytes, None);
        }
        Pages::checked(page, collector.runs, None)
    }

    /// Build page states from runs, which must be ascending and disjoint.
    pub fn from_runs(runs: Vec<Run>, page: PageSize) -> Result<Pages> {
        Pages::checked(page, runs, None)
    }

    /// Return the `(resident, swapped)` bytes of [start, end).
    #[inline]
    pub fn count(&self, start: u64, end: u64) -> (u64, u64) {
        let (mut resident, mut swapped) = (0, 0);
        for run in self.runs[self.first_after(start)..].iter().take_while(|run| run.start < end) {
            let size = run.end.min(end) - run.start.max(start);
            match run.state {
                PRESENT => resident += size,
                SWAPPED => swapped += size,
                _ => {}
            }
        }
        (resident, swapped)
    }

    /// Return the runs inside [start, end), clipped to it.
    pub fn runs_in(&self, start: u64, end: u64) -> impl Iterator<Item = Run> + '_ {
        let runs = self.runs[self.first_after(start)..].iter().take_while(move |run| run.start < end);
        runs.map(move |run| Run { start: run.start.max(start), end: run.end.min(end), state: run.state })
    }

    fn checked(page: PageSize, runs: Vec<Run>, huge: Option<Vec<(u64, u64)>>) -> Result<Pages> {
        let ordered = runs.windows(2).all(|pair| pair[0].end <= pair[1].start);
        if !ordered || runs.iter().any(|run| run.start >= run.end) {
            return Err(Error::invalid("runs of pages must be ascending and disjoint"));
        }
        Ok(Pages { page, runs, huge })
    }
}
