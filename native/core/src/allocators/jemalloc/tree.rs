//! The tree that maps each page to its extent: `arena_emap_global.rtree`, up to 5.2 `extents_rtree`.
//!
//! The root of the tree is an array in static data. For addresses of 48 bits the root points to leaves with one word
//! for each page. For 57 bits it points to nodes, and these point to leaves with two words for each page. The machine
//! on which jemalloc was configured decides between the two.

use crate::allocators::jemalloc::layout::{Extent, EXTENT_ALIGNMENT, EXTENT_BYTES, FORMS};
use crate::allocators::roots::{has_room, show_words, RootRange};
use crate::allocators::spread::spread;
use gdbheap_access::bytes::{u64_at, words};
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{ContinueCheck, Watcher};

const PAGE_BITS: u32 = 12;
const STRETCH: u64 = 4 << 10;
/// The highest number of a size class that an element of a leaf may contain.
const MAX_CLASSES: u64 = 240;
/// The number of elements of a table that are read to find out whether the table is a leaf.
const ELEMENTS_ASKED: usize = 32;
/// The number of extents that are sampled from a tree. Most of them must contain the page that points to them.
const EXTENTS_ASKED: usize = 5000;
/// The number of leaves that are read to check a tree's extents, or to see whether a layout (`JemallocForm`) fits. Each
/// leaf covers at most a GiB of addresses.
pub(crate) const LEAVES_ASKED: usize = 16;
/// The mask of the address of an extent in an element: the low 48 bits, without the lowest bits, which contain other
/// information.
const COMPACT_MASK: u64 = 0xffff_ffff_ffc0;
/// The number of extents that are read at once.
const BATCH: usize = 4 << 10;

/// The way in which a tree splits addresses: the number of bits for each level, and the size in bytes of an element of
/// a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    pub bits: u32,
    /// The number of address bits for the root, for the nodes between (None if there are no nodes), and for the leaves.
    levels: (u32, Option<u32>, u32),
    element: u64,
}

/// The shapes of trees for addresses of 48 bits and of 57 bits.
pub const SHAPES: [TreeShape; 2] = [
    TreeShape { bits: 48, levels: (18, None, 18), element: 8 },
    TreeShape { bits: 57, levels: (15, Some(15), 15), element: 16 },
];

impl TreeShape {
    /// Return the shape of a tree for addresses of `bits` bits; None if no tree has this shape.
    pub fn of(bits: u32) -> Option<TreeShape> {
        SHAPES.into_iter().find(|shape| shape.bits == bits)
    }

    fn root_bytes(&self) -> u64 {
        8 << self.levels.0
    }

    fn node_bytes(&self) -> u64 {
        self.levels.1.map_or(self.leaf_bytes(), |bits| 8 << bits)
    }

    fn leaf_bytes(&self) -> u64 {
        self.element << self.levels.2
    }

    /// Return by how many bits an address is shifted right to get its index in the root.
    fn root_shift(&self) -> u32 {
        self.bits - self.levels.0
    }

    fn leaf_shift(&self) -> u32 {
        PAGE_BITS + self.levels.2
    }

    /// Return the extent to which an element of a leaf points, if any.
    fn extent(&self, word: u64) -> Option<u64> {
        let masked = if self.element == 8 { word & COMPACT_MASK } else { word };
        (masked != 0 && masked % EXTENT_ALIGNMENT == 0).then_some(masked)
    }
}

/// The address of the root of a tree in static data, and the number of address bits that the tree covers.
#[derive(Clone, Copy, Debug)]
pub struct FoundTree {
    pub address: u64,
    pub bits: u32,
}

/// Find the roots of trees in `data` (ascending, joined). The tables and extents of a tree must lie in `anonymous`
/// memory (ascending, joined).
pub fn find_trees(
    watcher: &dyn Watcher,
    space: &Space,
    data: &[(u64, u64)],
    anonymous: &[(u64, u64)],
) -> Result<Vec<FoundTree>> {
    let mut found: Vec<FoundTree> = Vec::new();
    for (start, end) in data.iter().copied() {
        for shape in SHAPES.iter().filter(|shape| end - start >= shape.root_bytes()) {
            watcher.check()?;
            let search = Search { space, shape: *shape, data: (start, end), anonymous };
            let new = search.roots(watcher)?;
            found.extend(new.into_iter().map(|address| FoundTree { address, bits: shape.bits }));
        }
    }
    Ok(found)
}

struct Search<'a> {
    space: &'a Space,
    shape: TreeShape,
    data: (u64, u64),
    anonymous: &'a [(u64, u64)],
}

impl Search<'_> {
    fn roots(&self, watcher: &dyn Watcher) -> Result<Vec<u64>> {
        let Search { space, shape, data, anonymous } = *self;
        let place = RootRange { space, data, bytes: shape.root_bytes(), shift: shape.root_shift(), anonymous };
        let is_table = |word: u64| self.is_table(word, shape.node_bytes());
        let is_proven = |root: u64| self.is_proven(&|| watcher.check(), root);
        place.roots(watcher, is_table, |word| self.upper_bits(word), is_proven)
    }

    fn is_table(&self, address: u64, size: u64) -> bool {
        has_room(self.anonymous, address, EXTENT_ALIGNMENT, size)
    }

    /// Return a table's index in the root, derived from the first extents to which the table points. None if the table
    /// points to no extent, or to something that cannot be an extent.
    fn upper_bits(&self, table: u64) -> Option<u64> {
        let leaf = match self.shape.levels.1 {
            None => table,
            Some(_) => {
                let (leaf, size) = (self.shape.leaf_bytes(), self.shape.node_bytes());
                let nodes = first_words(self.space, (table, size, 8), 1, |word| self.is_table(word, leaf))?;
                nodes.first()?.1
            }
        };
        let place = (leaf, self.shape.leaf_bytes(), self.shape.element);
        let elements = first_words(self.space, place, ELEMENTS_ASKED, |word| self.is_element(word))?;
        elements.into_iter().find_map(|(index, word)| {
            let extent = self.extent_at(self.shape.extent(word)?)?;
            let page = extent.start >> PAGE_BITS & ((1 << self.shape.levels.2) - 1);
            let is_named = page <= index && extent.size() >> PAGE_BITS > index - page;
            is_named.then_some(extent.start >> self.shape.root_shift())
        })
    }

    /// Return whether a word may be an element of a leaf. An element points to an extent, or to the remains of an
    /// extent that was removed.
    fn is_element(&self, word: u64) -> bool {
        let is_of_class = self.shape.element != 8 || word >> 48 <= MAX_CLASSES;
        let at = if self.shape.element == 8 { word & COMPACT_MASK } else { word };
        is_of_class && (at == 0 || self.is_table(at, EXTENT_BYTES as u64))
    }

    fn extent_at(&self, at: u64) -> Option<Extent> {
        let mut bytes = [0; EXTENT_BYTES];
        self.space.exact(at, &mut bytes).ok()?;
        // The address and the size of an extent have the same offsets in all forms.
        Some(FORMS[0].extent(self.space.page(), at, &bytes))
    }

    /// Return whether nine in ten elements point to an extent that contains the element's page.
    fn is_proven(&self, go_on: ContinueCheck, root: u64) -> Result<bool> {
        let (mut right, mut wrong) = (0u64, 0u64);
        let named = named_extents(go_on, self.space, self.shape, root, LEAVES_ASKED)?;
        for (at, page) in named.into_iter().take(EXTENTS_ASKED) {
            let fits = self.extent_at(at).is_some_and(|extent| (extent.start..extent.end).contains(&page));
            *(if fits { &mut right } else { &mut wrong }) += 1;
        }
        Ok(right > 0 && wrong * 9 <= right)
    }
}

/// Return the first `most` words of a table that are not zero, each with its index; None if `fits` rejects one of them.
/// `start`, `size`, `step`: the start of the table, its size in bytes, and the distance from one word to the next. No
/// more words are read than needed.
fn first_words(
    space: &Space,
    (start, size, step): (u64, u64, u64),
    most: usize,
    fits: impl Fn(u64) -> bool,
) -> Option<Vec<(u64, u64)>> {
    let (mut found, mut at, end) = (Vec::new(), start, start.saturating_add(size));
    let mut bytes = [0; STRETCH as usize];
    while found.len() < most {
        let Some(next) = space.next_backed(at).filter(|next| *next < end) else { break };
        let from = start + (next - start) / STRETCH * STRETCH;
        let got = space.fill(from, &mut bytes[..STRETCH.min(end - from) as usize]);
        for (word, place) in words(&bytes[..got]).into_iter().zip((from - start) / 8..) {
            if word != 0 && place * 8 % step == 0 && found.len() < most {
                if !fits(word) {
                    return None;
                }
                found.push((place * 8 / step, word));
            }
        }
        at = from + STRETCH;
    }
    Some(found)
}

/// Tables, each with the lowest address that it covers.
type Tables = Vec<(u64, u64)>;

/// Return the tables of a tree: its nodes, if it has some, and its leaves, each with the lowest address that it covers.
/// Tables that overlap others are dropped, so that hostile data is not read many times.
fn tables(space: &Space, shape: TreeShape, root: u64) -> (Tables, Tables) {
    let apart = |mut found: Vec<(u64, u64)>, size: u64| {
        found.retain(|(table, _)| table % EXTENT_ALIGNMENT == 0 && space.covers(*table, size));
        found.sort_unstable();
        found.dedup_by(|next, kept| next.0 < kept.0.saturating_add(size));
        found
    };
    let mut first = Vec::new();
    show_words(space, root, shape.root_bytes(), 8, |index, word| first.push((word, index << shape.root_shift())));
    let first = apart(first, shape.node_bytes());
    if shape.levels.1.is_none() {
        return (Vec::new(), first);
    }
    let mut leaves = Vec::new();
    for (node, base) in &first {
        show_words(space, *node, shape.node_bytes(), 8, |index, word| {
            leaves.push((word, base + (index << shape.leaf_shift())));
        });
    }
    (first, apart(leaves, shape.leaf_bytes()))
}

/// Return the addresses of all nodes and leaves of a tree.
pub(crate) fn table_addresses(space: &Space, shape: TreeShape, root: u64) -> Vec<u64> {
    let (nodes, leaves) = tables(space, shape, root);
    nodes.into_iter().chain(leaves).map(|(table, _)| table).collect()
}

/// Return the extents to which at most `most` leaves of a tree point, ascending, each with the first page that points
/// to it.
pub(crate) fn named_extents(
    go_on: ContinueCheck,
    space: &Space,
    shape: TreeShape,
    root: u64,
    most: usize,
) -> Result<Vec<(u64, u64)>, Cancellation> {
    let (_, leaves) = tables(space, shape, root);
    let mut found: Vec<(u64, u64)> = Vec::new();
    for ((leaf, base), _) in spread(&leaves.iter().collect::<Vec<_>>(), most) {
        go_on()?;
        show_words(space, *leaf, shape.leaf_bytes(), shape.element, |index, word| {
            let at = shape.extent(word).filter(|at| found.last().is_none_or(|(last, _)| last != at));
            found.extend(at.map(|at| (at, base + (index << PAGE_BITS))));
        });
    }
    found.sort_unstable();
    found.dedup_by_key(|(at, _)| *at);
    Ok(found)
}

/// Show the extents at the given addresses, in the same order. Return the addresses that could not be read.
pub(crate) fn show_extents(space: &Space, places: &[u64], mut show: impl FnMut(u64, &[u8])) -> Vec<u64> {
    let (mut bytes, mut absent) = (Vec::new(), Vec::new());
    for batch in places.chunks(BATCH) {
        bytes.resize(batch.len() * EXTENT_BYTES, 0);
        let good = space.many(batch, EXTENT_BYTES, &mut bytes);
        for ((at, is_there), bytes) in batch.iter().zip(good).zip(bytes.chunks_exact(EXTENT_BYTES)) {
            if is_there {
                show(*at, bytes);
            } else {
                absent.push(*at);
            }
        }
    }
    absent
}

/// Return the `COUNT` words at `at`; None if they cannot be read.
pub(crate) fn words_from<const COUNT: usize>(space: &Space, at: u64) -> Option<[u64; COUNT]> {
    let mut bytes = vec![0; 8 * COUNT];
    space.exact(at, &mut bytes).ok()?;
    Some(std::array::from_fn(|place| u64_at(&bytes, 8 * place)))
}
