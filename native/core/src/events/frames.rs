//! Read and write the frames of a log. A stage is a buffer of recorded events. A log has one frame for each stage. Each
//! frame is compressed on its own, so that it can be read alone.

use super::by_time;
use super::memory_limit::Room;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::{Error, Result};
use gdbheap_access::signals::SignalsHeld;
use gdbheap_access::work::{Progress, Watcher};
use gdbheap_calls::waiting::from_words;
use gdbheap_calls::{encode, header, Event, EventReader, LastValues, MAX_EVENT, STAGE};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{sync_channel, SyncSender};

/// The fastest zstd level that still compresses well: a recorder produces stages at 100 MB a second.
const LEVEL: i32 = 1;

/// A compressed stage in the file of a log.
///
/// - `offset`: its position in the file.
/// - `size`: its compressed size in bytes.
/// - `tick`: the time of its first call, if each thread has its own stages. 0 if all threads share the stages, which
///   then follow one another.
#[derive(Clone, Copy, Debug)]
pub struct StageFrame {
    pub offset: u64,
    pub size: u64,
    pub tick: u64,
}

/// Return the time of the first call in a stage; 0 if the stage's calls have no times.
pub fn first_tick(stage: &[u8]) -> u64 {
    let mut reader = EventReader::new(stage);
    while let Ok(Some(event)) = reader.next_event() {
        match event {
            Event::Tick { ticks } => return ticks.max(1),
            Event::Time { .. } | Event::Thread { .. } | Event::Switch { .. } | Event::Usable { .. } => {}
            Event::Loaded | Event::Code | Event::Stack => {}
            _ => return 0,
        }
    }
    0
}

/// Compress a stage as a frame. Bytes after the stage's last event (zeros, or events of an earlier stage in the same
/// buffer) are left out.
pub fn pack(stage: &[u8]) -> Result<Vec<u8>> {
    let mut reader = EventReader::new(stage);
    let mut rest = stage.len();
    while let Ok(Some(_)) = reader.next_event() {
        rest = reader.rest();
    }
    zstd::bulk::compress(&stage[..stage.len() - rest], LEVEL).map_err(|_| Error::Memory("no room to compress a stage"))
}

/// Return a stage of the calls in a recorder's header (`bytes`) that were not yet written to the log. These are calls
/// of signal handlers. The result is empty if there are none.
pub fn waiting_stage(bytes: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64_at(bytes, at);
    let count = word(header::word::WAITING * 8).min(header::MAX_WAITING as u64) as usize;
    let written = word(header::word::WRITTEN * 8).min(count as u64) as usize;
    let (mut stage, mut last) = (Vec::new(), LastValues::default());
    for place in written..count {
        let at = header::WAITING_AT + place * header::WAITING_WORDS * 8;
        let Some((event, usable)) = from_words(&std::array::from_fn(|number| word(at + 8 * number))) else { continue };
        let usable = usable.map(|size| Event::Usable { size });
        for event in [event].into_iter().chain(usable) {
            let mut room = [0; MAX_EVENT];
            let (first, used) = encode(event, &mut last, &mut room);
            room[0] = first;
            stage.extend_from_slice(&room[..used]);
        }
    }
    stage
}

/// The stages of one process in a log. `room`: the memory that tables made from these stages may take.
pub struct Stages<'a> {
    pub file: &'a File,
    pub frames: &'a [StageFrame],
    pub room: &'a Room,
}

/// The largest number of unpacked stages that wait to be shown.
const AHEAD: usize = 3;

impl Stages<'_> {
    /// Call `visit` for every event. Return whether all stages were whole. A damaged stage ends the log; in a log that
    /// is ordered by time, only the rest of this stage is missing. The watcher learns how many bytes of the log were
    /// read.
    pub fn show(&self, watcher: &dyn Watcher, mut visit: impl FnMut(Event)) -> Result<bool> {
        self.show_all(watcher, |event, _content| visit(event))
    }

    /// Call `visit` for every event as `show` does. Also pass the content of a stack, a code object or a loaded object;
    /// it is empty for other events.
    pub fn show_all(&self, watcher: &dyn Watcher, mut visit: impl FnMut(Event, &[u8])) -> Result<bool> {
        self.show_while(watcher, |event, content| {
            visit(event, content);
            true
        })
    }

    /// Call `visit` for the events as `show_all` does, but only as long as `visit` returns true.
    pub fn show_while(&self, watcher: &dyn Watcher, mut visit: impl FnMut(Event, &[u8]) -> bool) -> Result<bool> {
        if self.frames.iter().any(|frame| frame.tick != 0) {
            return self.show_by_time(watcher, visit);
        }
        let (total, mut done) = (self.bytes(), 0);
        std::thread::scope(|scope| {
            let (send, receive) = sync_channel(AHEAD);
            let held = SignalsHeld::hold();
            scope.spawn(move || self.unpack_all(&send));
            drop(held);
            for stage in receive {
                watcher.attend(Some(Progress { done, total }))?;
                self.room.check()?;
                let Some(UnpackedStage { events, size }) = stage? else { return Ok(false) };
                let mut reader = EventReader::new(&events);
                loop {
                    match reader.next_event() {
                        Ok(Some(event)) if visit(event, reader.content()) => {}
                        Ok(Some(_)) => return Ok(true),
                        Ok(None) => break,
                        Err(_) => return Ok(false),
                    }
                }
                done += size;
            }
            self.room.check()?;
            Ok(true)
        })
    }

    fn show_by_time(&self, watcher: &dyn Watcher, visit: impl FnMut(Event, &[u8]) -> bool) -> Result<bool> {
        let (total, done) = (self.bytes(), Cell::new(0));
        let attend = || {
            watcher.attend(Some(Progress { done: done.get(), total }))?;
            self.room.check()
        };
        let unpack = |number: usize| {
            let frame: &StageFrame = &self.frames[number];
            let stage = self.unpack(frame, &mut Vec::new())?;
            done.set(done.get() + frame.size);
            Ok(stage.map(|stage| stage.events))
        };
        let ticks: Vec<u64> = self.frames.iter().map(|frame| frame.tick).collect();
        by_time::show(&ticks, self.room, attend, unpack, visit)
    }

    /// Return the sum of the compressed sizes of all frames.
    fn bytes(&self) -> u64 {
        self.frames.iter().map(|frame| frame.size).sum()
    }

    /// Send all stages to the listener, as long as it listens. A damaged stage is sent as None, and is the last one.
    fn unpack_all(&self, listener: &SyncSender<Result<Option<UnpackedStage>>>) {
        let mut packed = Vec::new();
        for frame in self.frames {
            let stage = self.unpack(frame, &mut packed);
            let is_last = !matches!(stage, Ok(Some(_)));
            if listener.send(stage).is_err() || is_last {
                return;
            }
        }
    }

    fn unpack(&self, frame: &StageFrame, packed: &mut Vec<u8>) -> Result<Option<UnpackedStage>> {
        let size = usize::try_from(frame.size).ok().filter(|size| *size <= 2 * STAGE).ok_or_else(damaged)?;
        packed.resize(size, 0);
        let is_there = self.file.read_exact_at(packed, frame.offset).is_ok();
        let events = is_there.then(|| zstd::bulk::decompress(packed, STAGE).ok()).flatten();
        Ok(events.map(|events| UnpackedStage { events, size: frame.size }))
    }
}

/// A stage as it was recorded, and its compressed size.
struct UnpackedStage {
    events: Vec<u8>,
    size: u64,
}

fn damaged() -> Error {
    Error::invalid("a stage claims to be larger than any")
}

#[cfg(test)]
mod tests {
    use super::super::testing::random;
    use super::*;

    /// Return a random number of 0 to 64 random bits, so that small numbers are as frequent as large ones.
    fn number(state: &mut u64) -> u64 {
        let bits = random(state) % 65;
        random(state).checked_shr(64 - bits as u32).unwrap_or(0)
    }

    fn event(state: &mut u64) -> Event {
        let (size, mut result) = (number(state), number(state));
        if random(state) % 8 != 0 {
            result &= !7;
        }
        match random(state) % 22 {
            0 => Event::Malloc { size, result },
            1 => Event::Calloc { size, result },
            2 => Event::Realloc { size, old: number(state), result },
            3 => Event::Memalign { size, alignment: number(state), result },
            4 => Event::Free { address: result },
            5 => Event::Usable { size },
            6 => Event::Switch { thread: 1 + size as u32 % 100 },
            7 => Event::Thread { thread: size as u32, tid: result as u32 },
            8 => Event::End,
            9 => Event::Time { nanoseconds: size },
            10 => Event::Mmap { size, protection: size as u32, flags: result as u32, result },
            11 => Event::Munmap { address: result, size },
            12 => Event::Mremap { old: number(state), old_size: number(state), size, result },
            13 => Event::Mallopt { parameter: size as i32, value: result as i32 },
            14 => Event::Trim { pad: size },
            15 => Event::Fork { number: size },
            16 => Event::PythonMalloc { size, result },
            17 => Event::PythonCalloc { size, result },
            18 => Event::PythonRealloc { size, old: number(state), result },
            19 => Event::PythonFree { address: result },
            20 => Event::Tick { ticks: size },
            _ => Event::Malloc { size: 8 * (size % 40), result },
        }
    }

    /// Check that zero bytes at the end of a stage belong to its last event, such as free(NULL).
    #[test]
    fn zero_bytes_at_the_end_belong_to_the_last_event() {
        let mut stage = vec![0u8; STAGE];
        let (mut used, mut last) = (0, LastValues::default());
        for event in [Event::Malloc { size: 24, result: 4096 }, Event::Free { address: 0 }] {
            let room: &mut [u8; MAX_EVENT] = (&mut stage[used..used + MAX_EVENT]).try_into().unwrap();
            let (first, length) = encode(event, &mut last, room);
            room[0] = first;
            used += length;
        }
        let packed = zstd::bulk::decompress(&pack(&stage).unwrap(), STAGE).unwrap();
        let mut reader = EventReader::new(&packed);
        assert_eq!(reader.next_event(), Ok(Some(Event::Malloc { size: 24, result: 4096 })));
        assert_eq!(reader.next_event(), Ok(Some(Event::Free { address: 0 })));
        assert_eq!(reader.next_event(), Ok(None));
    }

    /// Check that events are read as they were written, one by one, for any numbers in them.
    #[test]
    fn events_are_read_as_they_were_written() {
        for seed in 1..200u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let written: Vec<Event> = (0..200).map(|_| event(&mut state)).collect();
            let (mut bytes, mut last) = (vec![0u8; 200 * MAX_EVENT], LastValues::default());
            let mut used = 0;
            for event in &written {
                let room: &mut [u8; MAX_EVENT] = (&mut bytes[used..used + MAX_EVENT]).try_into().unwrap();
                let (first, length) = encode(*event, &mut last, room);
                assert_ne!(first, 0);
                room[0] = first;
                used += length;
            }
            let mut reader = EventReader::new(&bytes[..used]);
            for event in &written {
                assert_eq!(reader.next_event(), Ok(Some(*event)), "seed {seed}");
            }
            assert_eq!(reader.next_event(), Ok(None));
            // Damaged bytes must give an error or other events, never a panic.
            for _ in 0..50 {
                bytes[random(&mut state) as usize % used] = random(&mut state) as u8;
                let mut reader = EventReader::new(&bytes[..used]);
                while let Ok(Some(_)) = reader.next_event() {}
            }
        }
    }
}
