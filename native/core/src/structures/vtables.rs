//! Find the classes of C++ objects by their vtables (Itanium C++ ABI, 2.5.2 and 2.9.5), without symbols.
//!
//! The two words before the address of a vtable are the distance to the top of the object and the address of the
//! class's `type_info`. A `type_info` is an object itself: its vtable belongs to a class of `__cxxabiv1`, and its
//! second word points to the mangled name of the class.

use crate::by_address::ByAddress;
use crate::demangle::demangle_class;
use gdbheap_access::bytes::range_at;
use gdbheap_access::memory::reader::Reader;
use gdbheap_access::memory::space::Space;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// The largest length in bytes of a class name that is read. Real names are shorter; a forged one could be endless.
const LONGEST_NAME: usize = 4 << 10;
/// The largest offset in bytes of a base class in its object.
const LARGEST_OBJECT: u64 = 1 << 30;
/// The beginning of the mangled name of every class of type_info: the namespace that contains all these classes.
const OF_TYPE_INFO: &[u8] = b"N10__cxxabiv1";

/// The largest number of bytes of names that are read and kept, for all vtables of a target. The names of 100,000
/// classes have tens of MiB.
pub(crate) const ROOM_FOR_NAMES: u64 = 64 << 20;
/// The number of bytes that a name takes in memory in addition to its characters.
const ENTRY: u64 = 64;

/// The facts that a vtable tells about each object that points to it: the class, and the offset of the pointer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vtable {
    pub(crate) class: Arc<str>,
    /// The distance in bytes from the beginning of the object to the pointer.
    pub(crate) to_top: u64,
}

/// The vtables of a target. Each vtable is read once.
pub(crate) struct Vtables<'a> {
    /// The memory of loaded objects, as ascending ranges.
    objects: &'a [(u64, u64)],
    reader: Reader<'a>,
    known: ByAddress<Option<Vtable>>,
    /// The classes, by the address of their mangled name. Many vtables may share a name.
    names: ByAddress<Option<Arc<str>>>,
    /// The number of bytes of names that may still be read, in all searches of the target together.
    left: &'a AtomicU64,
}

impl<'a> Vtables<'a> {
    pub(crate) fn new(space: &'a Space, objects: &'a [(u64, u64)], left: &'a AtomicU64) -> Vtables<'a> {
        let (known, names) = (ByAddress::default(), ByAddress::default());
        Vtables { objects, reader: Reader::new(space), known, names, left }
    }

    /// Return the vtable to which `word` points; None if it points to no vtable.
    #[inline]
    pub(crate) fn at(&mut self, word: u64) -> Option<&Vtable> {
        if word % 8 != 0 || !self.is_in_object(word) {
            return None;
        }
        if !self.known.contains_key(&word) {
            let read = self.read(word);
            self.known.insert(word, read);
        }
        self.known[&word].as_ref()
    }

    #[inline]
    fn is_in_object(&self, address: u64) -> bool {
        range_at(self.objects, address).is_some()
    }

    fn read(&mut self, vtable: u64) -> Option<Vtable> {
        let to_top = self.reader.word(vtable.checked_sub(16)?)?.wrapping_neg();
        if to_top >= LARGEST_OBJECT || to_top % 8 != 0 {
            return None;
        }
        let name = self.name_of_vtable(vtable)?;
        // If the names of the C++ library cannot be read, it suffices that the vtable of the type_info lies in a loaded
        // object.
        let info = self.reader.word(vtable - 8)?;
        let meta = self.reader.word(info).filter(|meta| self.is_in_object(*meta))?;
        let mut begin = [0; OF_TYPE_INFO.len()];
        let own = self.name_of_vtable(meta).filter(|own| self.reader.fill(*own, &mut begin) == begin.len());
        if own.is_some() && begin != OF_TYPE_INFO {
            return None;
        }
        Some(Vtable { class: self.class(name)?, to_top })
    }

    /// Return the address of the mangled name of the class to which this vtable belongs; None if there is no vtable.
    fn name_of_vtable(&mut self, vtable: u64) -> Option<u64> {
        let info = self.reader.word(vtable.checked_sub(8)?).filter(|info| self.is_in_object(*info))?;
        self.reader.word(info.checked_add(8)?).filter(|name| self.is_in_object(*name))
    }

    /// Return the class whose mangled name is at `name`; None if no name of a class is there, or if no more names may
    /// be read.
    fn class(&mut self, name: u64) -> Option<Arc<str>> {
        if !self.names.contains_key(&name) {
            let class = self.read_class(name);
            self.names.insert(name, class);
        }
        self.names[&name].clone()
    }

    fn read_class(&mut self, name: u64) -> Option<Arc<str>> {
        self.take(0)?;
        let mangled = self.reader.string(name, LONGEST_NAME);
        // A name without an end counts too, because it was read.
        self.take(mangled.as_ref().map_or(LONGEST_NAME, Vec::len))?;
        let class = demangle_class(&mangled?)?;
        self.take(class.len())?;
        Some(class.into())
    }

    fn take(&self, bytes: usize) -> Option<()> {
        let less = |left: u64| left.checked_sub(bytes as u64 + ENTRY);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if taken.is_err() {
            self.left.store(0, Ordering::Relaxed);
        }
        taken.ok().map(drop)
    }
}

/// Return the first template argument in the name `class`, without `*` at its end; None if there is none. For
/// `std::_Sp_counted_ptr<Foo*, …>` it is `Foo`.
pub(crate) fn first_argument(class: &str) -> Option<&str> {
    let rest = &class[class.find('<')? + 1..];
    let mut depth = 0u32;
    for (at, letter) in rest.char_indices() {
        match letter {
            ',' | '>' if depth == 0 => return Some(rest[..at].trim().trim_end_matches('*')),
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth -= 1,
            _ => (),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{first_argument, Vtables};
    use gdbheap_access::machine::{Machine, EM_X86_64};
    use gdbheap_access::memory::space::{Backing, Segment, Space};
    use std::sync::atomic::AtomicU64;

    /// Make vtables of `count` classes. Each class has its own name, or all share one name. Return the memory, the
    /// addresses of the vtables, and the address range of the memory.
    fn forged(count: u64, is_shared: bool) -> (Space, Vec<u64>, (u64, u64)) {
        const START: u64 = 1 << 20;
        let one = format!("900{}\0", "x".repeat(900)).into_bytes();
        let mut bytes = vec![0; 64];
        let metas = START + 40;
        bytes[32..40].copy_from_slice(&(START + 48).to_le_bytes());
        bytes[56..64].copy_from_slice(&(START + 64).to_le_bytes());
        bytes.extend(b"N10__cxxabiv117__class_type_infoE\0");
        bytes.resize(128, 0);
        let names: Vec<u64> = (0..if is_shared { 1 } else { count })
            .map(|_| {
                bytes.extend(&one);
                START + (bytes.len() - one.len()) as u64
            })
            .collect();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let vtables = (0..count).map(|number| {
            let info = START + bytes.len() as u64;
            let name = names[number as usize % names.len()];
            [metas, name, 0, info].iter().for_each(|word: &u64| bytes.extend(word.to_le_bytes()));
            info + 32
        });
        let vtables: Vec<u64> = vtables.collect();
        bytes.resize(bytes.len().next_multiple_of(4096) + 4096, 0);
        let path = std::env::temp_dir().join(format!("gdbheap-vtables-{is_shared}-{}", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        let range = (START, START + bytes.len() as u64);
        let segments = vec![Segment { start: range.0, end: range.1, backing: Backing::File { index: 0, offset: 0 } }];
        let machine = Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).unwrap();
        let space = Space::for_core(machine, segments, &[path.to_string_lossy().into_owned()]).unwrap();
        std::fs::remove_file(&path).unwrap();
        (space, vtables, range)
    }

    #[test]
    fn names_are_kept_once_and_have_one_room() {
        let (space, places, range) = forged(1000, true);
        let (objects, left) = ([range], AtomicU64::new(10_000));
        let mut vtables = Vtables::new(&space, &objects, &left);
        let known = places.iter().filter(|place| vtables.at(**place).is_some()).count();
        assert_eq!((known, vtables.names.len()), (1000, 1));

        let (space, places, range) = forged(1000, false);
        let (objects, left) = ([range], AtomicU64::new(10_000));
        let mut vtables = Vtables::new(&space, &objects, &left);
        let known = places.iter().filter(|place| vtables.at(**place).is_some()).count();
        assert_eq!((known, left.into_inner()), (5, 0));
    }

    #[test]
    fn first_arguments() {
        assert_eq!(first_argument("std::_Sp_counted_ptr<a::Foo*, (__gnu_cxx::_Lock_policy)2>"), Some("a::Foo"));
        assert_eq!(first_argument("X<std::pair<int, long> const, int>"), Some("std::pair<int, long> const"));
        assert_eq!((first_argument("X"), first_argument("X<a")), (None, None));
    }
}
