//! Classes of C++ objects by their vtables (Itanium C++ ABI, 2.5.2 and 2.9.5): no symbols needed.
//!
//! The words before what a vtable pointer points to are the distance to the top of the object and the address of the class's
//! `type_info`, an object itself: its own vtable is one of those of `__cxxabiv1`, and its second word points to the mangled
//! name.

use crate::by_address::ByAddress;
use crate::bytes::range_at;
use crate::memory::reader::Reader;
use crate::memory::space::Space;
use crate::process::demangle_class;

/// Longer names are nobody's.
const LONGEST_NAME: usize = 4 << 10;
/// How far a base may lie in its object.
const LARGEST_OBJECT: u64 = 1 << 30;
/// Where all classes of type_info are, by the mangled names of themselves.
const OF_TYPE_INFO: &[u8] = b"N10__cxxabiv1";

/// What a vtable says of the object that a pointer to it lies in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vtable {
    pub(crate) class: String,
    /// How far before the pointer the object begins.
    pub(crate) to_top: u64,
}

/// The vtables of a target, each read once.
pub(crate) struct Vtables<'a> {
    /// The memory of loaded objects, ascending.
    objects: &'a [(u64, u64)],
    reader: Reader<'a>,
    known: ByAddress<Option<Vtable>>,
}

impl<'a> Vtables<'a> {
    pub(crate) fn new(space: &'a Space, objects: &'a [(u64, u64)]) -> Vtables<'a> {
        Vtables { objects, reader: Reader::new(space), known: ByAddress::default() }
    }

    /// The vtable that `word` points to, if it does.
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
        let class = self.name_of_vtable(vtable)?;
        // Where the names of the C++ library cannot be read, that its vtable lies in an object has to do.
        let info = self.reader.word(vtable - 8)?;
        let meta = self.reader.word(info).filter(|meta| self.is_in_object(*meta))?;
        let proven = self.name_of_vtable(meta).is_none_or(|name| name.starts_with(OF_TYPE_INFO));
        if !proven || to_top >= LARGEST_OBJECT || to_top % 8 != 0 {
            return None;
        }
        Some(Vtable { class: demangle_class(&class)?, to_top })
    }

    /// The mangled name of the class with this vtable.
    fn name_of_vtable(&mut self, vtable: u64) -> Option<Vec<u8>> {
        let info = self.reader.word(vtable.checked_sub(8)?).filter(|info| self.is_in_object(*info))?;
        let name = self.reader.word(info.checked_add(8)?).filter(|name| self.is_in_object(*name))?;
        self.reader.string(name, LONGEST_NAME)
    }
}

/// The first argument of the template that `class` begins with: `Foo` of `std::_Sp_counted_ptr<Foo*, …>` without the star.
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
    use super::first_argument;

    #[test]
    fn first_arguments() {
        assert_eq!(first_argument("std::_Sp_counted_ptr<a::Foo*, (__gnu_cxx::_Lock_policy)2>"), Some("a::Foo"));
        assert_eq!(first_argument("X<std::pair<int, long> const, int>"), Some("std::pair<int, long> const"));
        assert_eq!((first_argument("X"), first_argument("X<a")), (None, None));
    }
}
