//! Offsets of the fields of jemalloc's structures, for each layout that these structures have had (`FORMS`), and the
//! size classes.
//!
//! An extent (`extent_t` up to 5.2, `edata_t` since 5.3) is `u64 e_bits@0, void *e_addr@8, u64 e_size_esn@16`, then
//! links. At offset 64 a bitmap begins, with a bit for each region of a slab, set if the region is free. Offsets and
//! bits come from the headers and the debug information of builds of 5.1.0, 5.2.1, 5.3.0 and 5.3.1.

use gdbheap_access::bytes::u64_at;
use gdbheap_access::machine::PageSize;

pub(crate) const EXTENT_BYTES: usize = 128;
/// The smallest alignment of extent structures. In a leaf of the tree, the lower bits of an extent's address contain
/// other information.
pub(crate) const EXTENT_ALIGNMENT: u64 = 64;
const BITMAP: usize = 64;
/// The largest number of regions of a slab.
pub(crate) const MAX_REGIONS: u64 = 512;
pub(crate) const WORDS: usize = (MAX_REGIONS / 64) as usize;
/// The offset of the first word of an extent that may point to another extent on the same list. Extents that are not
/// slabs have their list links at the last two of these words, at 64 and 72.
const LINKS: usize = 24;
pub(crate) const LINK_WORDS: usize = 7;
/// The number of words at offset 64 of an extent that may point to the stack of a sampled block.
pub(crate) const SAMPLE_WORDS: usize = 3;
/// The mask of the arena number in `e_bits`. All of its bits are set if the extent belongs to no arena.
const ARENA_MASK: u64 = 0xfff;
const SLAB: u32 = 12;
/// The bit in `e_bits` which says that an extent belongs to the huge page allocator (since 5.3).
const HUGE: u32 = 14;
/// The smallest size class, in bytes, whose blocks have extents of their own. Blocks of smaller classes lie in slabs.
pub(crate) const SMALLEST_LARGE: u64 = 16 << 10;
const SMALLEST: u64 = 8;

/// A form: one layout of jemalloc's structures, which some releases share.
#[derive(Clone, Copy, Debug)]
pub struct JemallocForm {
    pub name: &'static str,
    /// The quantum: sizes of small classes are multiples of it.
    pub quantum: u64,
    /// The lowest bit of the extent's state in `e_bits`, and the mask of the state.
    state: (u32, u64),
    /// The lowest bit of the size class in `e_bits`.
    class: u32,
    /// The lowest bit of the count of free regions in `e_bits`.
    free: u32,
    /// Whether the bins of threads' caches store only the low halves of addresses (since 5.3).
    pub(crate) has_low_bits: bool,
}

const OLD: JemallocForm =
    JemallocForm { name: "5.1", quantum: 16, state: (16, 3), class: 18, free: 26, has_low_bits: false };
const NEW: JemallocForm =
    JemallocForm { name: "5.3", quantum: 16, state: (17, 7), class: 20, free: 28, has_low_bits: true };

/// All known forms (layouts) of jemalloc's structures.
pub const FORMS: [JemallocForm; 4] = [
    NEW,
    JemallocForm { name: "5.3, quantum 8", quantum: 8, ..NEW },
    OLD,
    JemallocForm { name: "5.1, quantum 8", quantum: 8, ..OLD },
];

/// Return the layout with this name, such as `5.3`; None if there is none.
pub fn form_named(name: &str) -> Option<&'static JemallocForm> {
    FORMS.iter().find(|form| form.name == name)
}

impl JemallocForm {
    /// Return the sizes of the classes: multiples of the quantum up to four quanta, then four sizes between each power
    /// of two and the next. The last few classes, too large for any memory, are left out.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = if self.quantum > SMALLEST { vec![SMALLEST] } else { Vec::new() };
        sizes.extend((1..=4).map(|number| number * self.quantum));
        let mut base = 4 * self.quantum;
        while base < 1 << 61 {
            sizes.extend((1..=4).map(|number| base + number * (base / 4)));
            base *= 2;
        }
        sizes
    }

    /// Return how many size classes have slabs.
    pub(crate) fn small(&self, sizes: &[u64]) -> usize {
        sizes.partition_point(|size| *size < SMALLEST_LARGE)
    }

    /// Parse the extent from `bytes`, the bytes of its structure at `at`.
    pub(crate) fn extent(&self, page: PageSize, at: u64, bytes: &[u8]) -> Extent {
        let (bits, address, size) = (u64_at(bytes, 0), u64_at(bytes, 8), u64_at(bytes, 16));
        let start = page.down(address);
        let mut free = [0; WORDS];
        free.iter_mut().enumerate().for_each(|(place, word)| *word = u64_at(bytes, BITMAP + 8 * place));
        Extent {
            at,
            address,
            start,
            end: start.saturating_add(page.down(size)),
            arena: (bits & ARENA_MASK) as u32,
            is_slab: bits >> SLAB & 1 == 1,
            is_huge: self.has_low_bits && bits >> HUGE & 1 == 1,
            state: match bits >> self.state.0 & self.state.1 {
                0 => ExtentState::Active,
                1 => ExtentState::Dirty,
                2 => ExtentState::Muzzy,
                3 => ExtentState::Retained,
                _ => ExtentState::Moving,
            },
            class: (bits >> self.class & 0xff) as usize,
            free_count: bits >> self.free & 0x3ff,
            free,
            links: std::array::from_fn(|place| u64_at(bytes, LINKS + 8 * place)),
        }
    }
}

/// The use of an extent. A moving extent is being split, merged or purged by a thread at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentState {
    Active,
    Dirty,
    Muzzy,
    Retained,
    Moving,
}

/// An extent, parsed from its structure (`extent_t` or `edata_t`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// The address of the extent's structure.
    pub(crate) at: u64,
    /// The address of the first block in the extent.
    pub(crate) address: u64,
    /// The address of the extent's first page. `end` is the end of its last page.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) arena: u32,
    pub(crate) is_slab: bool,
    /// Whether the extent is a part of a slab of the huge page allocator.
    pub(crate) is_huge: bool,
    pub(crate) state: ExtentState,
    pub(crate) class: usize,
    pub(crate) free_count: u64,
    /// A bitmap: the bit of each free region is set. Bits after the bit of the last region have other meanings.
    pub(crate) free: [u64; WORDS],
    /// Words that may point to other extents on the same list.
    pub(crate) links: [u64; LINK_WORDS],
}

impl Extent {
    pub(crate) fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Return how many regions of `size` bytes a slab has; None if they do not fill it exactly.
    pub(crate) fn regions(&self, size: u64) -> Option<u64> {
        let count = self.size() / size;
        (self.size() % size == 0 && (1..=MAX_REGIONS).contains(&count) && self.address == self.start).then_some(count)
    }

    /// Return the words of the bitmap of `count` regions; None if a bit after the last region's bit is set.
    pub(crate) fn bitmap(&self, count: u64) -> Option<&[u64]> {
        let words = &self.free[..count.div_ceil(64) as usize];
        let rest = count % 64;
        let is_clean = rest == 0 || words.last().is_none_or(|word| word >> rest == 0);
        is_clean.then_some(words)
    }

    /// Return whether the fields of an active extent agree. The size of its class must fit its own size. In a slab, the
    /// bitmap must fit the count of free regions.
    pub(crate) fn agrees(&self, page: PageSize, sizes: &[u64]) -> bool {
        let Some(size) = sizes.get(self.class).copied() else { return false };
        if self.is_slab {
            let words = self.regions(size).and_then(|count| self.bitmap(count));
            return words.is_some_and(|words| ones(words) == self.free_count);
        }
        if size < SMALLEST_LARGE {
            return self.is_sampled_as(page, size, 0) || self.is_sampled_as(page, size, page.bytes());
        }
        let fits = |own: u64| is_of_class(sizes, self.class, own);
        fits(self.size()) || fits(self.size().saturating_sub(page.bytes()))
    }

    /// Return whether this may be the extent of a sampled block of `size` bytes. `size` is the size of a small class:
    /// the extent of a sampled block still names the block's class. Up to 5.3.0 the extent has the size of the smallest
    /// large class. In 5.3.1 it has only the pages that the block needs. `pad` is added to either size.
    fn is_sampled_as(&self, page: PageSize, size: u64, pad: u64) -> bool {
        [SMALLEST_LARGE, page.down(size + page.bytes() - 1)].into_iter().any(|own| own + pad == self.size())
    }

    /// Return the usable size of the block in an active extent that is not a slab. `size`: the size of its class. Since
    /// 5.3.1 a large block may have any number of pages. `pad`: by how many bytes extents are longer than their blocks.
    pub(crate) fn usable(&self, size: u64, pad: u64) -> u64 {
        if size < SMALLEST_LARGE {
            size
        } else {
            self.size().saturating_sub(pad)
        }
    }

    /// Return whether this extent comes from a build that lets a large block begin at any cache line of its first page.
    /// Such builds add one page to each large extent. Sampled blocks begin at a page boundary, but their extents have
    /// the extra page too.
    pub(crate) fn is_padded(&self, page: PageSize, sizes: &[u64]) -> bool {
        let longer = |size: u64| match size < SMALLEST_LARGE {
            true => self.is_sampled_as(page, size, page.bytes()) && !self.is_sampled_as(page, size, 0),
            false => self.size() > size,
        };
        let is_longer = || sizes.get(self.class).is_some_and(|size| longer(*size));
        self.state == ExtentState::Active && !self.is_slab && (self.address != self.start || is_longer())
    }
}

/// A block in use that has an extent of its own. `root`: the number of its jemalloc. `words`: the words after the
/// extent's links. If the block was sampled, one of these words points to the data about its stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LargeBlock {
    pub(crate) root: u32,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) words: [u64; SAMPLE_WORDS],
}

/// Return whether a block of `bytes` bytes is of the size class `class`: the smallest class that is large enough for
/// it.
pub(crate) fn is_of_class(sizes: &[u64], class: usize, bytes: u64) -> bool {
    let below = class.checked_sub(1).and_then(|below| sizes.get(below)).copied().unwrap_or(0);
    sizes.get(class).is_some_and(|size| below < bytes && bytes <= *size)
}

pub(crate) fn ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the size classes against jemalloc's own table: the values of `SC_NSIZES` and `SC_NBINS`, and some sizes.
    #[test]
    fn classes() {
        let sizes = NEW.sizes();
        assert_eq!((sizes[..7].to_vec(), sizes[35], sizes[36]), (vec![8, 16, 32, 48, 64, 80, 96], 14336, 16384));
        assert_eq!((NEW.small(&sizes), sizes.len()), (36, 225));
        assert!(is_of_class(&sizes, 224, sizes[224]) && !is_of_class(&sizes, 255, sizes[224]));
        let fine = FORMS[1];
        let sizes = fine.sizes();
        assert_eq!((sizes[..6].to_vec(), fine.small(&sizes)), (vec![8, 16, 24, 32, 40, 48], 39));
    }
}
