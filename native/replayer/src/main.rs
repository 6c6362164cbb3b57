//! A program that repeats recorded allocator calls: `_replayer DESCRIPTOR FILL THREADS MEMORY [CALL…]`.
//!
//! - DESCRIPTOR: an open descriptor of a plan (gdbheap-plan).
//! - FILL: 1 to touch a byte of each page that a request covers, else 0. Add 2 to write a line for each call that made
//!   an arena of glibc larger.
//! - THREADS: the largest number of threads that may exist at once.
//! - MEMORY: a limit for the private memory of the program, in bytes; 0 means no limit.
//! - CALL: the number of a call after which the program stops. It also stops after the last call of the plan.
//!
//! At each stop the program writes its figures to standard output, and waits for a byte on standard input. When the
//! input has ended, the program ends. If the replay is impossible, it writes the reason as JSON and ends with status 2.
//! If the machine runs out of memory, the kernel ends this program before others.
//!
//! The tested allocator is the one that would serve any program: glibc's, or that of a preloaded library. Allocations
//! of libc itself are served separately (own.rs).
#![no_main]

mod growth;
mod output;
mod own;
mod real;
mod report;
mod run;
mod steps;
mod system;
mod threads;

use core::ffi::{c_char, c_int, CStr};
use gdbheap_plan::{header, ALIGNED, HEADER, MAGIC, VERSION};
use growth::{Growth, HEAPS};
use run::{Run, StopReason};

/// The bits of the argument FILL: FILLS touches pages, SAYS_GROWTH writes a line for each growth of an arena.
const FILLS: u64 = 1;
const SAYS_GROWTH: u64 = 2;

type Arguments = *const *const c_char;
type Header = [u64; header::WORDS];

/// # Safety
///
/// Only the C library may call this function. `words` must point to `count` strings, each ended by a zero byte, and to
/// a NULL after them.
#[no_mangle]
pub unsafe extern "C" fn main(count: c_int, words: Arguments) -> c_int {
    // SAFETY: the arguments are numbers. This program should end with its parent.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let is_fixed = system::without_randomization(words);
    let number = |place: c_int| number(words, place).filter(|_| place < count);
    let (Some(descriptor), Some(fill), Some(threads), Some(memory)) = (number(1), number(2), number(3), number(4))
    else {
        output::refuse("arguments", 0);
        return 2;
    };
    let (says_growth, fill) = (fill & SAYS_GROWTH != 0, fill & FILLS != 0);
    system::be_first_to_go();
    system::limit_memory(memory);
    let refused = match prepare(descriptor as i32, fill, says_growth, threads) {
        Ok(mut run) => {
            let stops = (5..count).filter_map(number);
            return replay(&mut run, fill, stops, is_fixed);
        }
        Err(refused) => refused,
    };
    output::refuse(refused, errno());
    2
}

fn errno() -> i32 {
    // SAFETY: each thread has an errno.
    unsafe { *libc::__errno_location() }
}

fn number(words: Arguments, place: c_int) -> Option<u64> {
    // SAFETY: the list ends with NULL, and is not read beyond `count`.
    let word = unsafe { *words.add(place as usize) };
    if word.is_null() {
        return None;
    }
    // SAFETY: words end with a zero byte.
    unsafe { CStr::from_ptr(word) }.to_str().ok()?.parse().ok()
}

fn prepare(descriptor: i32, fill: bool, says_growth: bool, most_threads: u64) -> Result<Run, &'static str> {
    let real = real::look_up().ok_or("allocator")?;
    let header = read_header(descriptor).ok_or("plan")?;
    let [blocks, mappings, threads] =
        [header::BLOCKS, header::MAPPINGS, header::THREADS].map(|word| header[word] as usize);
    let mut run = Run {
        real,
        steps: steps::Steps::new(descriptor, header[header::STEPS]).ok_or("memory")?,
        threads: threads::Threads::new(threads, most_threads).ok_or("memory")?,
        blocks: table(blocks).ok_or("memory")?,
        sizes: table(if fill { blocks } else { 0 }).ok_or("memory")?,
        mappings: table(mappings).ok_or("memory")?,
        growth: None,
        calls: 0,
        failures: 0,
    };
    if run.real.mallinfo2.is_some() {
        begin_heap_alike(header[header::LOWEST]);
        if says_growth {
            run.growth = Some(Growth::new(table(2 * HEAPS).ok_or("memory")?));
        }
    }
    Ok(run)
}

fn read_header(descriptor: i32) -> Option<Header> {
    let mut header: Header = [0; header::WORDS];
    // SAFETY: writes into memory of this function.
    let got = unsafe { libc::pread(descriptor, header.as_mut_ptr() as *mut _, HEADER, 0) };
    let is_ours = got == HEADER as isize && header[header::MAGIC] == MAGIC && header[header::VERSION] == VERSION;
    is_ours.then_some(header)
}

/// Return a table of `count` words or addresses that are all 0; None if there is too little memory. The table is
/// resident from the start, because it must not grow while pages are counted.
fn table<T>(count: usize) -> Option<&'static mut [T]> {
    assert_eq!(size_of::<T>(), 8);
    if count == 0 {
        return Some(&mut []);
    }
    let found = system::shared(count.checked_mul(8)?, libc::MAP_POPULATE)?;
    // SAFETY: new memory of that size; bytes that are all 0 are valid for both.
    Some(unsafe { core::slice::from_raw_parts_mut(found as *mut T, count) })
}

/// Move the program break, so that pages of the heap are aligned as in the recorded program: relative to multiples of
/// `ALIGNED`. `lowest`: the lowest address of a recorded block.
fn begin_heap_alike(lowest: u64) {
    if lowest == 0 {
        return;
    }
    // SAFETY: nothing has used the break so far.
    unsafe {
        let now = libc::sbrk(0) as u64;
        let distance = (lowest & !0xfff).wrapping_sub(now) % ALIGNED;
        libc::sbrk(distance as isize);
    }
}

fn replay(run: &mut Run, fill: bool, stops: impl Iterator<Item = u64>, is_fixed: bool) -> c_int {
    // Measure twice, because the first time touches the memory that measuring needs.
    report::Memory::now();
    report::Memory::forget_peak();
    let before = report::Memory::now();
    let mut nanoseconds = 0;
    for limit in stops.chain([u64::MAX]) {
        let began = system::processor_time();
        let stop = if fill { run.until::<true>(limit) } else { run.until::<false>(limit) };
        nanoseconds += system::processor_time() - began;
        match stop {
            StopReason::AtCall => report::write(run, &before, nanoseconds, "stop", is_fixed),
            StopReason::AtEnd => {
                report::write(run, &before, nanoseconds, "end", is_fixed);
                wait();
                break;
            }
            StopReason::Damaged => {
                output::refuse("plan", 0);
                return 2;
            }
            StopReason::TooManyThreads(most) => {
                output::refuse("threads", most.min(i32::MAX as u64) as i32);
                return 2;
            }
            StopReason::NoThread(number) => {
                output::refuse("thread", number);
                return 2;
            }
        }
        if !wait() {
            break;
        }
    }
    // SAFETY: waiting threads need no cleanup.
    unsafe { libc::_exit(0) }
}

/// Wait for a byte on standard input. Return false if the input has ended.
fn wait() -> bool {
    let mut byte = 0u8;
    // SAFETY: writes into memory of this function.
    unsafe { libc::read(0, &mut byte as *mut u8 as *mut _, 1) == 1 }
}
