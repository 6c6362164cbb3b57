//! The loaded objects, read from /proc/self/maps and from their headers in memory. The dynamic linker is not asked,
//! because it takes locks that another thread may hold while it waits for this one.

use super::memory::{copy, Windows};
use core::ptr::null_mut;

pub(super) const MAX_MODULES: usize = 512;
const MAX_STRANGE: usize = 32;
const MAX_PATH: usize = 512;
const MAX_BUILD_ID: usize = 32;
const MAX_TABLE: u64 = 64 << 20;
const MAX_SEGMENTS: u64 = 64;
const MAX_NOTES: u64 = 4 << 10;
const PIECE: usize = 8 << 10;
const MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const NT_GNU_BUILD_ID: u32 = 3;
/// Offsets of fields in an ELF header, and the size of a program header, in bytes.
const PHOFF: u64 = 32;
const PHNUM: u64 = 56;
const SEGMENT: u64 = 56;

/// A loaded object. An object whose bytes are all 0 is valid, and covers no address.
#[derive(Clone, Copy)]
pub(super) struct Module {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) bias: u64,
    inode: u64,
    is_code: bool,
    /// The range from `.eh_frame_hdr` to the end of its segment, and a copy of its bytes. The copy is null until it is
    /// needed.
    table_start: u64,
    table_end: u64,
    copy: *mut u8,
    copied: usize,
    /// The address of the dynamic section; 0 if the object has none.
    pub(super) dynamic: u64,
    build_id: [u8; MAX_BUILD_ID],
    build_id_size: usize,
    path: [u8; MAX_PATH],
    path_size: usize,
}

impl Module {
    pub(super) fn holds(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    pub(super) fn path(&self) -> &[u8] {
        self.path.get(..self.path_size).unwrap_or_default()
    }

    pub(super) fn build_id(&self) -> &[u8] {
        self.build_id.get(..self.build_id_size).unwrap_or_default()
    }

    fn is(&self, other: &Module) -> bool {
        (self.start, self.end, self.inode) == (other.start, other.end, other.inode)
            && self.path() == other.path()
            && self.build_id() == other.build_id()
    }

    /// Return the address of `.eh_frame_hdr`, and a copy of the bytes from there on; None if the object has no such
    /// table. They are copied because another thread may unload the object.
    pub(super) fn table(&mut self, pid: i32) -> Option<(u64, &'static [u8])> {
        let size = self.table_end.checked_sub(self.table_start).filter(|size| (1..=MAX_TABLE).contains(size))? as usize;
        if self.table_start == 0 {
            return None;
        }
        if self.copy.is_null() {
            self.copy = new_memory(size, libc::MADV_DONTFORK)?;
            self.copied = copy(pid, self.table_start, self.copy, size);
        }
        // SAFETY: our own memory, which is only unmapped while no stack is being followed.
        Some((self.table_start, unsafe { core::slice::from_raw_parts(self.copy, self.copied) }))
    }

    fn forget(&mut self) {
        if let Some(size) = self.table_end.checked_sub(self.table_start).filter(|_| !self.copy.is_null()) {
            // SAFETY: the copy was mapped with that size.
            unsafe { libc::syscall(libc::SYS_munmap, self.copy, size as usize) };
        }
        self.copy = null_mut();
    }
}

/// Map `size` bytes of zeroed memory; None if there is too little memory. `advice`: the advice to madvise(2) that says
/// what a forked child gets.
pub(super) fn new_memory(size: usize, advice: libc::c_int) -> Option<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    unsafe {
        let found = libc::syscall(libc::SYS_mmap, null_mut::<u8>(), size, protection, flags, -1, 0);
        if found == -1 {
            return None;
        }
        libc::madvise(found as usize as *mut _, size, advice);
        Some(found as usize as *mut u8)
    }
}

/// The loaded objects, by ascending address. A value whose bytes are all 0 is valid: an empty list.
pub(super) struct Modules {
    pub(super) all: [Module; MAX_MODULES],
    pub(super) count: usize,
    /// The previous list, while the list is being read.
    old: [Module; MAX_MODULES],
    /// Code without a file (of a just-in-time compiler) that was seen in stacks since the list was read.
    strange: [(u64, u64); MAX_STRANGE],
    strange_count: usize,
    /// How often the list of objects was read. Facts that were cached at another age may be about objects that are
    /// gone.
    pub(super) age: u64,
}

/// Buffers for reading the list of objects. They are not on the program's stack, which may be small.
pub(super) struct Buffers {
    line: [u8; MAX_PATH + 256],
    piece: [u8; PIECE],
}

/// The parts of a line of /proc/self/maps.
struct Line<'a> {
    start: u64,
    end: u64,
    is_code: bool,
    offset: u64,
    inode: u64,
    path: &'a [u8],
}

impl Modules {
    pub(super) fn find(&mut self, address: u64) -> Option<&mut Module> {
        let all = self.all.get_mut(..self.count)?;
        let place = all.partition_point(|module| module.start <= address).checked_sub(1)?;
        all.get_mut(place).filter(|module| module.holds(address))
    }

    /// Return whether the code at an address outside all objects may belong to an object that was loaded since the list
    /// was read. This is false if the address is in known code without a file.
    pub(super) fn may_be_new(&self, address: u64) -> bool {
        let strange = self.strange.get(..self.strange_count).unwrap_or_default();
        self.strange_count < MAX_STRANGE && !strange.iter().any(|(start, end)| (*start..*end).contains(&address))
    }

    /// Read the list of loaded objects (the program and its libraries) again. `wanted`: an address that was in none of
    /// them. `added`: a function that is called for each object that was not in the list before.
    #[inline(never)]
    pub(super) fn read(
        &mut self,
        windows: &mut Windows,
        buffers: &mut Buffers,
        wanted: u64,
        mut added: impl FnMut(&Module),
    ) {
        core::mem::swap(&mut self.all, &mut self.old);
        let before = core::mem::take(&mut self.count);
        self.age += 1;
        let mut strange = (wanted, wanted.saturating_add(1));
        self.read_lines(windows, buffers, wanted, &mut strange);
        let old = self.old.get_mut(..before).unwrap_or_default();
        for module in self.all.get_mut(..self.count).unwrap_or_default() {
            match old.iter_mut().find(|one| one.is(module)) {
                Some(one) => {
                    (module.copy, module.copied) = (one.copy, one.copied);
                    one.copy = null_mut();
                }
                None => added(module),
            }
        }
        old.iter_mut().for_each(Module::forget);
        if wanted != 0 && self.find(wanted).is_none() {
            if let Some(place) = self.strange.get_mut(self.strange_count) {
                *place = strange;
                self.strange_count += 1;
            }
        }
    }

    fn read_lines(&mut self, windows: &mut Windows, buffers: &mut Buffers, wanted: u64, strange: &mut (u64, u64)) {
        // SAFETY: a constant path.
        let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if file < 0 {
            return;
        }
        let mut used = 0;
        loop {
            // SAFETY: reads into our own memory.
            let got = unsafe { libc::read(file, buffers.piece.as_mut_ptr() as *mut _, PIECE) };
            if got <= 0 {
                break;
            }
            for at in 0..got as usize {
                let byte = buffers.piece.get(at).copied().unwrap_or(b'\n');
                if byte != b'\n' {
                    // The end of a path that is too long is dropped.
                    if let Some(place) = buffers.line.get_mut(used) {
                        *place = byte;
                        used += 1;
                    }
                    continue;
                }
                if let Some(line) = parsed(buffers.line.get(..used).unwrap_or_default()) {
                    if (line.start..line.end).contains(&wanted) {
                        *strange = (line.start, line.end);
                    }
                    self.take(windows, &line);
                }
                used = 0;
            }
        }
        self.close(windows);
        // SAFETY: our own descriptor.
        unsafe { libc::close(file) };
    }

    /// Add a line of the list. The line is a further part of the last object, or the beginning of another object.
    fn take(&mut self, windows: &mut Windows, line: &Line) {
        if line.inode == 0 && line.path != b"[vdso]" {
            return;
        }
        if let Some(last) = self.count.checked_sub(1).and_then(|place| self.all.get_mut(place)) {
            if last.inode == line.inode && last.path() == line.path && line.offset != 0 {
                last.end = line.end;
                last.is_code |= line.is_code;
                return;
            }
        }
        self.close(windows);
        if line.offset != 0 {
            return;
        }
        let Some(place) = self.all.get_mut(self.count) else { return };
        // SAFETY: a module whose bytes are all 0 is valid. It is written in place, because it is too large for the
        // program's stack.
        unsafe { (place as *mut Module).write_bytes(0, 1) };
        (place.start, place.end, place.inode, place.is_code) = (line.start, line.end, line.inode, line.is_code);
        place.path_size = line.path.len().min(MAX_PATH);
        for (into, byte) in place.path.iter_mut().zip(line.path) {
            *into = *byte;
        }
        self.count += 1;
    }

    /// Complete the last entry of the list with facts from its headers. Remove it if it is not a loaded object with
    /// code.
    fn close(&mut self, windows: &mut Windows) {
        let Some(last) = self.count.checked_sub(1).and_then(|place| self.all.get_mut(place)) else { return };
        // The headers of the object were already examined.
        if last.table_end != 0 || last.dynamic != 0 {
            return;
        }
        if !last.is_code || look_at(windows, last).is_none() {
            self.count -= 1;
        }
    }
}

fn look_at(windows: &mut Windows, module: &mut Module) -> Option<()> {
    if windows.half(module.start)? != MAGIC {
        return None;
    }
    let table = module.start.checked_add(windows.word(module.start + PHOFF)?)?;
    let count = u64::from(windows.half(module.start + PHNUM)? & 0xffff).min(MAX_SEGMENTS);
    let field = |windows: &mut Windows, number: u64, at: u64| windows.word(table.checked_add(number * SEGMENT + at)?);
    let kind = |word: u64| word as u32;
    let (mut first, mut header) = (None, None);
    for number in 0..count {
        let (offset, address) = (field(windows, number, 8)?, field(windows, number, 16)?);
        match kind(field(windows, number, 0)?) {
            PT_LOAD => first = first.or(Some(address.wrapping_sub(offset))),
            PT_GNU_EH_FRAME => header = Some(address),
            _ => {}
        }
    }
    module.bias = module.start.wrapping_sub(first?);
    module.table_end = 1;
    for number in 0..count {
        let (kind, address) = (kind(field(windows, number, 0)?), field(windows, number, 16)?);
        let (at, size) = (module.bias.wrapping_add(address), field(windows, number, 40)?);
        match (kind, header) {
            (PT_DYNAMIC, _) => module.dynamic = at,
            (PT_NOTE, _) if module.build_id_size == 0 => read_build_id(windows, module, at, size.min(MAX_NOTES)),
            (PT_LOAD, Some(header)) if header.wrapping_sub(address) < size => {
                module.table_start = module.bias.wrapping_add(header);
                module.table_end = at.wrapping_add(size);
            }
            _ => {}
        }
    }
    Some(())
}

fn read_build_id(windows: &mut Windows, module: &mut Module, start: u64, size: u64) {
    let mut at = start;
    while at.wrapping_sub(start) < size {
        let (Some(name), Some(content), Some(kind)) =
            (windows.half(at), windows.half(at.wrapping_add(4)), windows.half(at.wrapping_add(8)))
        else {
            return;
        };
        let round = |size: u32| u64::from(size).next_multiple_of(4);
        let place = at.wrapping_add(12).wrapping_add(round(name));
        if (kind, name) == (NT_GNU_BUILD_ID, 4) {
            let size = (content as usize).min(MAX_BUILD_ID);
            let Some(into) = module.build_id.get_mut(..size) else { return };
            if windows.read(place, into).is_some() {
                module.build_id_size = size;
            }
            return;
        }
        at = place.wrapping_add(round(content));
    }
}

/// Parse a line such as "7f3c1000-7f3c2000 r-xp 00001000 fe:01 1234    /usr/lib/libc.so.6"; None for any other line.
fn parsed(line: &[u8]) -> Option<Line<'_>> {
    let mut words = LineWords(line);
    let range = words.next()?;
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let (start, end) = (number(range.get(..dash)?, 16)?, number(range.get(dash + 1..)?, 16)?);
    let is_code = words.next()?.get(2) == Some(&b'x');
    let offset = number(words.next()?, 16)?;
    words.next()?;
    let inode = number(words.next()?, 10)?;
    let blanks = words.0.iter().take_while(|byte| **byte == b' ').count();
    Some(Line { start, end, is_code, offset, inode, path: words.0.get(blanks..)? })
}

struct LineWords<'a>(&'a [u8]);

impl<'a> LineWords<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == b' ')?;
        let word = self.0.get(..end)?;
        self.0 = self.0.get(end + 1..)?;
        Some(word)
    }
}

fn number(digits: &[u8], base: u32) -> Option<u64> {
    digits.iter().try_fold(0u64, |number, digit| {
        Some(number.wrapping_mul(base.into()).wrapping_add(char::from(*digit).to_digit(base)?.into()))
    })
}
