//! Read the Python frames of the calling thread from the interpreter's structures, without calling the interpreter's
//! functions. Anything inconsistent ends the walk.

use super::memory::Windows;
use super::modules::{Module, Modules};
use super::settings::{layout_of, Layout};
use gdbheap_calls::part::EventWriter;

const MAX_INTERPRETERS: usize = 16;
const MAX_THREADS: usize = 1 << 12;
pub(super) const MAX_FRAMES: usize = 512;
const CODES: usize = 8 << 10;
/// The number of bytes at the beginning of `_PyRuntime` that contain the pointers to the interpreters.
const RUNTIME_HEAD: u64 = 8 << 10;
/// The size of PyThreadState in bytes, with a margin. Since 3.14 a thread state contains a frame that is not a Python
/// function's, and is skipped.
const STATE_BYTES: u64 = 16 << 10;
/// The number of unsuccessful searches after which only every PATIENCE-th look-up searches again. The thread may not
/// run Python at all.
const PATIENCE: u64 = 256;
const LOWEST: u64 = 64 << 10;
/// A value of `enum _frameowner`. If the owner of a frame is at least this, the frame stands for C code.
const OWNED_BY_C: u8 = 3;
/// Offsets of fields in an object, in a variable-sized object, and in a type.
const OB_TYPE: u64 = 8;
const OB_SIZE: u64 = 16;
const TP_NAME: u64 = 24;
const MAX_NAME: usize = 400;
const MAX_FILE: usize = 1 << 10;
const MAX_LINES: usize = 40 << 10;
/// The largest number of bytes that a code object takes in the log.
pub(super) const MAX_CODE: usize = 48 << 10;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const MAX_DYNAMIC: u64 = 128;
const MAX_CHAIN: u32 = 1 << 16;
const SYMBOL: u64 = 24;
/// The first word of `_PyRuntime` since 3.13: "xdebugpy". After it come the version, and whether this is a
/// free-threaded build.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// A Python frame.
///
/// - `code`: the address of its code object. 0 stands for C code: such a frame only marks where the frames of an
///   evaluator end.
/// - `offset`: the offset in bytes from the code's first instruction.
/// - `ends`: whether it is the outermost frame of its evaluator.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct PythonFrame {
    pub(super) code: u64,
    pub(super) offset: i64,
    pub(super) ends: bool,
}

/// The known facts about the interpreter. If all bytes of the value are 0, nothing is known.
pub(super) struct Python {
    /// The age of the list of loaded objects (`Modules::age`) when the interpreter was last searched. Another age means
    /// that the list was read again.
    age: u64,
    runtime: u64,
    release: u32,
    interpreters: [u64; MAX_INTERPRETERS],
    count: usize,
    /// The number of look-ups that found no state for a thread. From PATIENCE on, the search becomes less frequent.
    missed: u64,
    last: (u64, u64),
    /// A hash table of the code objects that were recorded, each as (address, hash of its fields). Another hash at the
    /// same address means a new code object.
    codes: [(u64, u64); CODES],
    codes_used: usize,
}

/// The result of a walk. `count`: the number of frames. `is_torn`: whether outer frames are missing. `is_python`:
/// whether the thread runs Python.
pub(super) struct PythonWalk {
    pub(super) count: usize,
    pub(super) is_torn: bool,
    pub(super) is_python: bool,
}

fn at(base: u64, offset: i32) -> u64 {
    base.wrapping_add_signed(offset.into())
}

impl Python {
    /// Search for `_PyRuntime` and the release of Python again, if the list of loaded objects was read again.
    fn look(&mut self, windows: &mut Windows, modules: &Modules) {
        if self.age == modules.age {
            return;
        }
        self.age = modules.age;
        let all = modules.all.get(..modules.count).unwrap_or_default();
        let found = all.iter().find_map(|module| Some((symbol(windows, module, b"_PyRuntime")?, module)));
        let Some((runtime, holder)) = found else {
            self.runtime = 0;
            return;
        };
        if runtime == self.runtime {
            return;
        }
        (self.runtime, self.release, self.count, self.last) = (runtime, 0, 0, (0, 0));
        if windows.word(runtime) == Some(COOKIE) && windows.word(runtime + 16) != Some(0) {
            return;
        }
        let told = symbol(windows, holder, b"Py_Version").and_then(|place| windows.half(place)).map(|told| told >> 16);
        self.release = told.or_else(|| named(holder.path())).unwrap_or(0);
    }

    #[inline(never)]
    /// Fill `frames` with the Python frames of the thread with the thread pointer `me`, innermost first.
    pub(super) fn walk(
        &mut self,
        windows: &mut Windows,
        modules: &Modules,
        me: u64,
        frames: &mut [PythonFrame; MAX_FRAMES],
    ) -> PythonWalk {
        self.look(windows, modules);
        let mut walked = PythonWalk { count: 0, is_torn: false, is_python: false };
        let Some(layout) = layout_of(self.release).filter(|_| self.runtime != 0) else { return walked };
        let Some(state) = self.state_of(windows, layout, me) else { return walked };
        walked.is_python = true;
        walked.is_torn = self.walk_frames(windows, layout, state, frames, &mut walked.count).is_none();
        walked
    }

    /// Collect the frames of a thread state. Return None if they could not be followed to the end, or are too many.
    fn walk_frames(
        &mut self,
        windows: &mut Windows,
        layout: &Layout,
        state: u64,
        frames: &mut [PythonFrame; MAX_FRAMES],
        count: &mut usize,
    ) -> Option<()> {
        let head = match layout.ts_cframe {
            -1 => at(state, layout.ts_frame),
            chain => at(windows.word(at(state, chain))?, layout.cf_frame),
        };
        let mut frame = windows.word(head)?;
        let is_object = layout.f_previous < 0;
        let clean = !(layout.f_tags.max(0) as u64);
        while frame != 0 {
            let place = frames.get_mut(*count)?;
            if layout.f_owner >= 0 && windows.byte(at(frame, layout.f_owner))? >= OWNED_BY_C {
                // Since 3.14 the outermost frame is in the thread state and belongs to no evaluator.
                if frame.wrapping_sub(state) >= STATE_BYTES {
                    *place = PythonFrame { code: 0, offset: 0, ends: true };
                    *count += 1;
                }
            } else {
                let code = windows.word(at(frame, layout.f_code))? & clean;
                let offset = match layout.f_instruction {
                    -1 => i64::from(windows.half(at(frame, layout.f_lasti))? as i32) * i64::from(layout.f_lasti_unit),
                    instruction => windows.word(at(frame, instruction))?.wrapping_sub(at(code, layout.co_code)) as i64,
                };
                let ends = match layout.f_is_entry {
                    -1 => is_object,
                    entry => windows.byte(at(frame, entry))? != 0,
                };
                if code < LOWEST {
                    return None;
                }
                *place = PythonFrame { code, offset, ends };
                *count += 1;
            }
            frame = windows.word(at(frame, if is_object { layout.f_back } else { layout.f_previous }))?;
        }
        Some(())
    }

    fn state_of(&mut self, windows: &mut Windows, layout: &Layout, me: u64) -> Option<u64> {
        let (thread, state) = self.last;
        if thread == me && self.is_state(windows, layout, state, me) {
            return Some(state);
        }
        let mut found = self.listed(windows, layout, me);
        if found.is_none() {
            // The thread may not run Python.
            self.missed += 1;
            if self.missed < PATIENCE || self.missed % PATIENCE == 0 {
                self.search(windows, layout);
                found = self.listed(windows, layout, me);
            }
        }
        self.last = (me, found?);
        found
    }

    fn is_state(&self, windows: &mut Windows, layout: &Layout, state: u64, me: u64) -> bool {
        let interpreters = self.interpreters.get(..self.count).unwrap_or_default();
        windows.word(at(state, layout.thread_id)) == Some(me)
            && windows.word(at(state, layout.ts_interp)).is_some_and(|word| interpreters.contains(&word))
    }

    fn listed(&self, windows: &mut Windows, layout: &Layout, me: u64) -> Option<u64> {
        let mut left = MAX_THREADS;
        for interpreter in self.interpreters.get(..self.count)? {
            let mut state = windows.word(at(*interpreter, layout.interp_tstates))?;
            while state != 0 && left > 0 {
                left -= 1;
                if windows.word(at(state, layout.thread_id))? == me && self.is_state(windows, layout, state, me) {
                    return Some(state);
                }
                state = windows.word(at(state, layout.ts_next))?;
            }
        }
        None
    }

    /// Find the interpreters. `_PyRuntime` points to each of them, and the first thread of an interpreter points back
    /// to the interpreter.
    fn search(&mut self, windows: &mut Windows, layout: &Layout) {
        self.count = 0;
        for place in (self.runtime..self.runtime.saturating_add(RUNTIME_HEAD)).step_by(8) {
            let Some(word) = windows.word(place) else { return };
            let known = self.interpreters.get(..self.count).unwrap_or_default();
            if word < LOWEST || word % 8 != 0 || known.contains(&word) {
                continue;
            }
            let state = windows.word(at(word, layout.interp_tstates)).filter(|state| *state >= LOWEST);
            let back = state.and_then(|state| windows.word(at(state, layout.ts_interp)));
            if back == Some(word) {
                let Some(into) = self.interpreters.get_mut(self.count) else { return };
                *into = word;
                self.count += 1;
            }
        }
    }

    /// Write a code object as an event into `room`. Return the event's first byte and its length, as
    /// `EventWriter::finish` does. None if the same code object was recorded already, or if `code` is not the address
    /// of a code object.
    pub(super) fn new_code(
        &mut self,
        windows: &mut Windows,
        code: u64,
        room: &mut [u8],
        kind: u8,
    ) -> Option<(u8, usize)> {
        let layout = layout_of(self.release)?;
        let name = windows.word(at(code, if layout.co_qualname >= 0 { layout.co_qualname } else { layout.co_name }))?;
        let file = windows.word(at(code, layout.co_filename))?;
        let lines =
            windows.word(at(code, if layout.co_linetable >= 0 { layout.co_linetable } else { layout.co_lnotab }))?;
        let first = windows.half(at(code, layout.co_firstlineno))?;
        let mut print = 0xcbf2_9ce4_8422_2325u64;
        for word in [name, file, lines, first.into()] {
            print = (print ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        if !self.is_new(code, print) {
            return None;
        }
        if !is_code(windows, code) {
            return None;
        }
        let mut part = EventWriter::new(room);
        part.number(code);
        part.number(self.release.into());
        part.number(first.into());
        text(windows, layout, name, MAX_NAME, &mut part);
        text(windows, layout, file, MAX_FILE, &mut part);
        let size = windows.word(lines.wrapping_add(OB_SIZE)).unwrap_or(0).min(MAX_LINES as u64);
        raw(windows, at(lines, layout.bytes_data), size as usize, &mut part);
        part.finish(kind)
    }

    fn is_new(&mut self, code: u64, print: u64) -> bool {
        if self.codes_used > CODES / 4 * 3 {
            // The table is nearly full. It is cleared, so all code objects are recorded again.
            self.codes = [(0, 0); CODES];
            self.codes_used = 0;
        }
        let start = (code >> 4) as usize;
        for step in 0..CODES {
            let Some(place) = self.codes.get_mut((start + step) % CODES) else { return false };
            if place.0 == 0 {
                *place = (code, print);
                self.codes_used += 1;
                return true;
            }
            if place.0 == code {
                return core::mem::replace(&mut place.1, print) != print;
            }
        }
        false
    }
}

/// Return whether the type of an object says that it is a code object.
fn is_code(windows: &mut Windows, object: u64) -> bool {
    let mut name = [0; 5];
    let kind = windows.word(object.wrapping_add(OB_TYPE));
    let place = kind.and_then(|kind| windows.word(kind.wrapping_add(TP_NAME)));
    place.and_then(|place| windows.read(place, &mut name)).is_some() && &name == b"code\0"
}

/// Write a str: the number of bytes per character (0 if the str could not be read), and the characters.
fn text(windows: &mut Windows, layout: &Layout, object: u64, limit: usize, part: &mut EventWriter) {
    let state = windows.half(at(object, layout.unicode_state)).unwrap_or(0);
    let length = windows.word(at(object, layout.unicode_length)).unwrap_or(0);
    // The two bits below these bits say whether the str is interned.
    let (kind, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1, state >> 6 & 1);
    if is_compact == 0 || ![1, 2, 4].contains(&kind) {
        part.number(0);
        return part.number(0);
    }
    let start = at(object, if is_ascii != 0 { layout.sizeof_ascii } else { layout.sizeof_compact });
    part.number(kind.into());
    raw(windows, start, (length.min((limit / 4) as u64) * u64::from(kind)) as usize, part);
}

fn raw(windows: &mut Windows, start: u64, size: usize, part: &mut EventWriter) {
    let mut piece = [0u8; 256];
    // Write all bytes, or none if some of them are absent.
    let mut probe = [0u8; 1];
    let is_there = (0..size)
        .step_by(1 << 11)
        .chain(size.checked_sub(1))
        .all(|offset| windows.read(start.wrapping_add(offset as u64), &mut probe).is_some());
    if !is_there {
        return part.number(0);
    }
    part.number(size as u64);
    let mut done = 0;
    while done < size {
        let count = (size - done).min(piece.len());
        let Some(into) = piece.get_mut(..count) else { return };
        if windows.read(start.wrapping_add(done as u64), into).is_none() {
            into.fill(0);
        }
        into.iter().for_each(|byte| part.byte(*byte));
        done += count;
    }
}

/// Return the address of the exported symbol with this name, by the hash table that the dynamic linker itself uses;
/// None if there is no such symbol.
fn symbol(windows: &mut Windows, module: &Module, name: &[u8]) -> Option<u64> {
    let (mut strings, mut symbols, mut hashes) = (0, 0, 0);
    if module.dynamic == 0 {
        return None;
    }
    for entry in (0..MAX_DYNAMIC).map(|number| module.dynamic.wrapping_add(16 * number)) {
        let value = windows.word(entry.wrapping_add(8))?;
        // The dynamic linker has added the bias, except in the vDSO, whose section is not writable.
        let value = if module.holds(value) { value } else { module.bias.wrapping_add(value) };
        match windows.word(entry)? {
            0 => break,
            DT_STRTAB => strings = value,
            DT_SYMTAB => symbols = value,
            DT_GNU_HASH => hashes = value,
            _ => {}
        }
    }
    if strings == 0 || symbols == 0 || hashes == 0 {
        return None;
    }
    let hash = name.iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
    let (buckets, first) = (windows.half(hashes)?, windows.half(hashes + 4)?);
    let bloom = u64::from(windows.half(hashes + 8)?);
    let bucket_at = hashes.wrapping_add(16).wrapping_add(8 * bloom);
    let start = windows.half(bucket_at.wrapping_add(4 * u64::from(hash.checked_rem(buckets)?)))?;
    let chains = bucket_at.wrapping_add(4 * u64::from(buckets));
    for step in 0..MAX_CHAIN {
        let index = start.wrapping_add(step);
        let chain = windows.half(chains.wrapping_add(4 * u64::from(index.checked_sub(first)?)))?;
        if chain | 1 == hash | 1 {
            let entry = symbols.wrapping_add(SYMBOL * u64::from(index));
            let text = strings.wrapping_add(windows.half(entry)?.into());
            let value = windows.word(entry.wrapping_add(8))?;
            if value != 0 && is_text(windows, text, name) {
                return Some(module.bias.wrapping_add(value));
            }
        }
        if chain & 1 != 0 {
            return None;
        }
    }
    None
}

fn is_text(windows: &mut Windows, place: u64, name: &[u8]) -> bool {
    let mut bytes = [0u8; 32];
    let Some(into) = bytes.get_mut(..name.len() + 1) else { return false };
    windows.read(place, into).is_some() && into.split_last() == Some((&0, name))
}

/// Return the release of Python according to the name of a file: `python3.9`, `libpython3.9.so.1.0`. None for other
/// names.
fn named(path: &[u8]) -> Option<u32> {
    let file = path.rsplit(|byte| *byte == b'/').next()?;
    let start = file.windows(6).position(|part| part == b"python")? + 6;
    let mut numbers = file.get(start..)?.split(|byte| *byte == b'.');
    let mut next = || {
        let digits = numbers.next()?;
        let count = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
        core::str::from_utf8(digits.get(..count)?).ok()?.parse::<u32>().ok()
    };
    let (major, minor) = (next()?, next()?);
    Some(major << 8 | minor)
}
