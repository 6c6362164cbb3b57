//! Statistics of recorded allocator calls.

use crate::events::{frames_of, Frames};
use crate::rows::{all, answers, exports};
use crate::watch::{watched, Report};
use gdbheap_core::events;
use pyo3::prelude::*;
use std::fs::File;

// See native/core/src/events/stats for the meaning of each field.
answers! {
    /// The number of calls of each kind.
    struct CallKinds of events::Calls {
        malloc: u64,
        calloc: u64,
        realloc: u64,
        memalign: u64,
        free: u64,
        mmap: u64,
        munmap: u64,
        mremap: u64,
        mallopt: u64,
        malloc_trim: u64,
        fork: u64,
    }

    /// The number of blocks in use, the bytes that were requested for them, and the bytes that the program can use in
    /// them.
    struct CallsInUse of events::InUse { blocks: u64, bytes: u64, usable: u64 }

    /// The state after the call with the number `call`. Calls are numbered from 1.
    struct CallMoment of events::Moment { call: u64, nanoseconds: u64, in_use: CallsInUse }

    /// The effect of realloc on known blocks: the numbers of grown, shrunk and moved blocks, and the number of copied
    /// bytes.
    struct CallResizes of events::ResizeCounts { grown: u64, shrunk: u64, moved: u64, copied: u64 }

    /// The number of blocks with a lifetime of at least `start` and less than `end`, in calls or in nanoseconds.
    struct LifeSpan of events::Span { start: u64, end: u64, blocks: u64 }

    /// The lifetimes of released blocks, in calls or in nanoseconds. `zero`: the number of blocks with the lifetime 0.
    /// Half of the blocks lived no longer than `median`, and nine tenths no longer than `most_of`. `median`, `most_of`
    /// and `longest` are None if no block was released.
    struct Lives { zero: u64, median: Option<u64>, most_of: Option<u64>, longest: Option<u64>, spans: Vec<LifeSpan> }

    /// Calls that returned blocks of at least `start` and less than `end` bytes: the number of calls, and the bytes of
    /// their blocks. `live`, `live_bytes`: the number and the bytes of such blocks in use at the end.
    struct CallSize of events::SizeRow { start: u64, end: u64, calls: u64, bytes: u64, live: u64, live_bytes: u64 }

    /// The blocks in use after `calls` calls. `most_bytes`: the largest number of bytes in use since the previous
    /// point.
    struct CurvePoint of events::Point { calls: u64, nanoseconds: u64, blocks: u64, bytes: u64, most_bytes: u64 }

    /// Statistics of a process's recorded allocator calls: the numbers of calls, the blocks in use, their sizes and
    /// their lifetimes.
    struct CallStats {
        calls: u64,
        kinds: CallKinds,
        threads: u64,
        blocks: u64,
        released: u64,
        unseen: u64,
        failed: u64,
        nothing: u64,
        unknown: u64,
        live: CallsInUse,
        peak: CallMoment,
        most: CallMoment,
        upper: u64,
        usable: u64,
        lower: u64,
        resized: CallResizes,
        temporary: u64,
        temporary_bytes: u64,
        nanoseconds: u64,
        ticks: u64,
        lives_in_calls: Lives,
        lives_in_nanoseconds: Lives,
        sizes: Vec<CallSize>,
        by_call: Vec<CurvePoint>,
        by_time: Vec<CurvePoint>,
        whole: bool,
    }
}

exports! {
    functions: call_stats;
}

impl From<events::Lives> for Lives {
    fn from(lives: events::Lives) -> Lives {
        let events::Lives { zero, median, most_of, longest, spans } = lives;
        Lives { zero, median, most_of, longest, spans: all(spans) }
    }
}

impl From<events::Stats> for CallStats {
    fn from(stats: events::Stats) -> CallStats {
        CallStats {
            calls: stats.calls,
            kinds: stats.kinds.into(),
            threads: stats.threads,
            blocks: stats.blocks,
            released: stats.released,
            unseen: stats.unseen,
            failed: stats.failed,
            nothing: stats.nothing,
            unknown: stats.unknown,
            live: stats.live.into(),
            peak: stats.peak.into(),
            most: stats.most.into(),
            upper: stats.upper,
            usable: stats.usable,
            lower: stats.lower,
            resized: stats.resized.into(),
            temporary: stats.temporary,
            temporary_bytes: stats.temporary_bytes,
            nanoseconds: stats.nanoseconds,
            ticks: stats.ticks,
            lives_in_calls: stats.lives_in_calls.into(),
            lives_in_nanoseconds: stats.lives_in_nanoseconds.into(),
            sizes: all(stats.sizes),
            by_call: all(stats.by_call),
            by_time: all(stats.by_time),
            whole: stats.whole,
        }
    }
}

/// Return statistics of the calls of a process. `room`: how many bytes of memory may be used. The log is read up to the
/// first damaged stage. Raises OSError if the file cannot be read, MemoryError if `room` is too small, and ValueError
/// if a stage is too large.
#[pyfunction]
#[pyo3(signature = (path, frames, room, progress=None))]
pub fn call_stats(
    py: Python<'_>,
    path: &str,
    frames: Frames,
    room: u64,
    progress: Option<Report>,
) -> PyResult<CallStats> {
    let (file, frames, room) = (File::open(path)?, frames_of(frames), events::Room::new(room));
    let stages = events::Stages { file: &file, frames: &frames, room: &room };
    Ok(watched(py, progress, |watcher| events::stats(watcher, &stages))?.into())
}
