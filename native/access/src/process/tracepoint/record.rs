//! The parts of the kernel's ring records that gdbheap uses.
#![forbid(unsafe_code)]

use crate::arch::registers;
use crate::bytes::word_at;
use perf_event::data::parse::{ParseConfig, Parser};
use perf_event::data::{Comm, Fork, Lost, RecordMetadata, Sample, Visitor};
use perf_event_open_sys::bindings::{perf_event_header, PERF_RECORD_MISC_COMM_EXEC, PERF_SAMPLE_REGS_ABI_64};

/// A record: its time (CLOCK_MONOTONIC, nanoseconds), its thread, and its contents.
pub(super) struct Record {
    pub(super) time: u64,
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) what: RecordEvent,
}

impl Record {
    /// Return the thread that started the thread of this record; None if the record does not report a new thread.
    pub(super) fn starter(&self) -> Option<i32> {
        match self.what {
            RecordEvent::Started { parent } => Some(parent),
            _ => None,
        }
    }
}

pub(super) enum RecordEvent {
    /// The thread reached the tracepoint. `event`: the kernel's id of the event that reports this.
    Call { event: u64, number: u64, registers: Vec<u64>, stack: Option<Vec<u8>> },
    /// The thread is new; the thread `parent` started it.
    Started { parent: i32 },
    /// The process of the thread has started another program.
    Exec,
    /// This many records were lost, because the ring was full.
    Lost(u64),
}

/// A parser of ring records. `number_at`: the offset in bytes of the system call number in the tracepoint's data.
pub(super) struct RecordReader {
    pub(super) number_at: usize,
}

impl RecordReader {
    /// Parse a record; None if it contains no useful data.
    pub(super) fn read(&self, record: &perf_event::Record, config: ParseConfig<Native>) -> Option<Record> {
        let size = u16::try_from(record.len() + size_of::<perf_event_header>()).ok()?;
        let header = perf_event_header { type_: record.ty(), misc: record.misc(), size };
        let bytes = record.to_contiguous();
        Parser::new(&*bytes, config).parse_record_with_header(self, header).ok()?
    }

    fn call(&self, sample: &Sample) -> Option<RecordEvent> {
        let found = sample.regs_user().filter(|found| found.abi.0 == u64::from(PERF_SAMPLE_REGS_ABI_64))?;
        let number = word_at(sample.raw()?, self.number_at)?;
        let registers = registers::of_perf(&found.regs, number)?;
        let stack = sample.stack_user().map(<[u8]>::to_vec);
        Some(RecordEvent::Call { event: sample.id()?, number, registers, stack })
    }
}

type Native = perf_event::data::endian::Native;

impl<'a> Visitor<'a> for &RecordReader {
    type Output = Option<Record>;

    fn visit_unimplemented(self, _: RecordMetadata) -> Option<Record> {
        None
    }

    fn visit_unknown(self, _: std::borrow::Cow<'a, [u8]>, _: RecordMetadata) -> Option<Record> {
        None
    }

    fn visit_sample(self, sample: Sample<'a>, _: RecordMetadata) -> Option<Record> {
        let what = self.call(&sample)?;
        Some(Record { time: sample.time()?, pid: sample.pid()? as i32, tid: sample.tid()? as i32, what })
    }

    fn visit_fork(self, fork: Fork, _: RecordMetadata) -> Option<Record> {
        let what = RecordEvent::Started { parent: fork.ptid as i32 };
        Some(Record { time: fork.time, pid: fork.pid as i32, tid: fork.tid as i32, what })
    }

    fn visit_comm(self, comm: Comm<'a>, about: RecordMetadata) -> Option<Record> {
        let is_exec = u32::from(about.misc()) & PERF_RECORD_MISC_COMM_EXEC != 0;
        let time = about.sample_id().time().filter(|_| is_exec)?;
        Some(Record { time, pid: comm.pid as i32, tid: comm.tid as i32, what: RecordEvent::Exec })
    }

    fn visit_lost(self, lost: Lost, about: RecordMetadata) -> Option<Record> {
        Some(Record { time: about.sample_id().time()?, pid: 0, tid: 0, what: RecordEvent::Lost(lost.lost) })
    }
}
