//! Read all memory of one or more jemallocs: extents, base blocks, and the blocks that are in use, cached and free.

use crate::allocators::damage::{hex, Damage};
use crate::allocators::extents::{Areas, Extents, Owner, Piece, StateNames, Use};
use crate::allocators::jemalloc::base::{blocks_of, find_blocks, led_into};
use crate::allocators::jemalloc::caches::{Bin, Caches, Finder};
use crate::allocators::jemalloc::huge::{find_edens, find_slabs, FreePageState, HUGE, PAGES};
use crate::allocators::jemalloc::layout::{
    is_of_class, ones, Extent, ExtentState, JemallocForm, LargeBlock, LINK_WORDS, SAMPLE_WORDS,
};
use crate::allocators::jemalloc::tree::{named_extents, show_extents, table_addresses, TreeShape, LEAVES_ASKED};
use crate::allocators::runs::{Run, Runs};
use crate::allocators::slab::BlockSlab;
use crate::allocators::spread::spread;
use crate::bits;
use gdbheap_access::bytes::range_at;
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{ContinueCheck, Watcher};
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

const MAX_DAMAGE: usize = 1000;
/// The largest number of unfinished changes that are kept. An unfinished change is a contradiction that a thread
/// stopped inside jemalloc may have left. The limit is higher than MAX_DAMAGE because some changes are found twice.
const MAX_UNFINISHED: usize = 4 * MAX_DAMAGE;
/// The largest number of extents that are checked against a layout of the structures (`JemallocForm`).
const EXTENTS_ASKED: usize = 2048;

/// The number of active extents that were checked against a `JemallocForm` (`extents`), and the number of
/// those that fit it (`fit`).
#[derive(Clone, Copy, Debug, Default)]
pub struct JemallocFit {
    pub extents: u64,
    pub fit: u64,
}

/// Check how many active extents of a tree fit the layout `form`.
pub fn fit_of(
    watcher: &dyn Watcher,
    space: &Space,
    form: &JemallocForm,
    root: u64,
    shape: TreeShape,
) -> Result<JemallocFit> {
    let named = named_extents(&|| watcher.check(), space, shape, root, LEAVES_ASKED)?;
    let all: Vec<&(u64, u64)> = named.iter().collect();
    let asked: Vec<u64> = spread(&all, EXTENTS_ASKED).into_iter().map(|((at, _), _)| *at).collect();
    let (sizes, page, mut found) = (form.sizes(), space.page(), JemallocFit::default());
    show_extents(space, &asked, |at, bytes| {
        let extent = form.extent(page, at, bytes);
        if extent.state == ExtentState::Active && extent.class < sizes.len() {
            found.extents += 1;
            found.fit += u64::from(extent.agrees(page, &sizes));
        }
    });
    Ok(found)
}

/// One jemalloc. `form`: the layout of its structures. `root`: the root of its tree of extents. `shape`: the shape of
/// this tree. `data`: the static data of its module. `storage`: the ranges in which threads' storage may lie.
pub struct JemallocRoot {
    pub form: &'static JemallocForm,
    pub root: u64,
    pub shape: TreeShape,
    pub data: Vec<(u64, u64)>,
    pub storage: Vec<(u64, u64)>,
}

/// The memory of one arena of jemalloc, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaUse {
    pub root: u32,
    pub arena: u32,
    /// The size of the extents with blocks. `dirty`, `muzzy` and `retained` are jemalloc's states of free extents. An
    /// extent that a thread is changing counts as dirty.
    pub active: u64,
    pub dirty: u64,
    pub muzzy: u64,
    pub retained: u64,
    /// The size of the blocks in use by the program.
    pub used: u64,
    /// The size of the free blocks in threads' caches.
    pub cached: u64,
    /// The size of the blocks in which threads' caches keep their lists.
    pub own: u64,
}

/// The blocks of one size in an arena. `slabs` is 0 for large blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassUse {
    pub root: u32,
    pub arena: u32,
    pub size: u64,
    pub slabs: u64,
    pub used: u64,
    pub cached: u64,
    pub own: u64,
    pub free: u64,
}

/// The changes that threads inside jemalloc had not finished, as counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InMotion {
    /// The number of extents that a thread was changing.
    pub extents: u64,
    /// The same number, but extents that link to each other count once: a thread that purges puts its extents on one
    /// list.
    pub lists: u64,
    /// The number of blocks in a cache that are also in another cache, or free in a slab.
    pub both: u64,
    /// The number of entries of caches that are not blocks of their class.
    pub astray: u64,
    /// The smallest number of bins of caches that explains `both` and `astray`.
    pub bins: u64,
}

/// All memory of one or more jemallocs, by address.
pub struct Jemalloc {
    pub extents: Arc<Extents>,
    /// The blocks that have an extent of their own, by address.
    pub(super) larges: Vec<LargeBlock>,
    /// For each jemalloc, the number of threads' caches that were found.
    pub caches: Vec<usize>,
    /// For each jemalloc, the total size in bytes of the huge page allocator's extents that are in no known slab.
    pub astray: Vec<u64>,
    pub moving: InMotion,
    /// Active extents whose size or bitmap does not fit their size class.
    pub unfit: Vec<Damage>,
    /// Slabs whose bitmap and whose count of free regions differ.
    pub miscounted: Vec<Damage>,
    /// Changes that a thread inside jemalloc had not finished. Some are extents that are being changed. Others are
    /// blocks in a cache that are also in another cache, or free in a slab. Others are cache entries that are not
    /// blocks.
    pub unfinished: Vec<Damage>,
}

/// The results of reading one or more jemallocs, collected one jemalloc after the other.
#[derive(Default)]
struct JemallocContent {
    runs: Vec<(Run, Vec<u64>)>,
    /// The owner of each run, by the run's start.
    owners: BTreeMap<u64, Owner>,
    pieces: Vec<Piece>,
    larges: Vec<LargeBlock>,
    /// For each bin of a cache: its blocks, and whether the bin also has an entry that is not a block.
    cached: Vec<(Vec<u64>, bool)>,
    lists: Vec<u64>,
    /// The extents that the huge page allocator of the current jemalloc has, with the numbers of their arenas.
    huge: Vec<(u64, u64, u32)>,
    /// For each jemalloc, the total size in bytes of the huge page allocator's extents that are in no known slab.
    astray: Vec<u64>,
    caches: Vec<usize>,
    moving: InMotion,
    /// The extents that a thread is changing, each with those of its words that may point to other extents.
    changing: Vec<(u64, [u64; LINK_WORDS])>,
    damage: Vec<Damage>,
    unfit: Vec<Damage>,
    miscounted: Vec<Damage>,
    unfinished: Vec<Damage>,
}

/// Read all memory of the jemallocs in `roots`. `anonymous`: the ranges in which jemalloc's own memory may lie,
/// ascending.
pub fn read_jemalloc(
    watcher: &dyn Watcher,
    space: &Space,
    anonymous: &[(u64, u64)],
    roots: &[JemallocRoot],
) -> Result<Jemalloc> {
    space
        .task(watcher, None)
        .alone(|control| {
            let blocks = find_blocks(space, anonymous);
            let mut found = JemallocContent::default();
            for (root, number) in roots.iter().zip(0..) {
                control.advance(0)?;
                let named = named_extents(&|| control.advance(0), space, root.shape, root.root, usize::MAX)?;
                let places: Vec<u64> = named.into_iter().map(|(at, _)| at).collect();
                let from = found.runs.len();
                found.add_extents(space, root.form, number, (&places, anonymous));
                control.advance(0)?;
                let tables = table_addresses(space, root.shape, root.root);
                let mut own = blocks_of(space, &blocks, places.into_iter().chain(tables));
                let known = led_into(
                    space,
                    &root.data,
                    &blocks.iter().map(|(start, block)| (*start, block.end)).collect::<Vec<_>>(),
                );
                own = blocks_of(space, &blocks, own.iter().map(|(start, _)| *start).chain(known));
                let metadata = |(start, end): &(u64, u64)| Piece::new(*start, *end, Use::Metadata, number);
                found.pieces.extend(own.iter().map(metadata));
                found.add_caches(&|| control.advance(0), space, root, (&own, from))?;
                found.add_huge(&|| control.advance(0), space, &root.data, number, &own)?;
            }
            Ok(found)
        })?
        .finish()
}

impl JemallocContent {
    /// Add the extents whose structures are at `places`: one range (piece) for each extent, and the blocks of active
    /// extents. `anonymous`: the mapped ranges. They are needed because a core contains no bytes of a mapping that was
    /// never touched.
    fn add_extents(
        &mut self,
        space: &Space,
        form: &JemallocForm,
        root: u32,
        (places, anonymous): (&[u64], &[(u64, u64)]),
    ) {
        let (sizes, page) = (form.sizes(), space.page());
        let mut pad = 0;
        show_extents(space, places, |at, bytes| {
            if form.extent(page, at, bytes).is_padded(page, &sizes) {
                pad = page.bytes();
            }
        });
        let absent = show_extents(space, places, |at, bytes| {
            let extent = form.extent(page, at, bytes);
            // The address range of a retained extent may be mapped without read access.
            let is_mapped = range_at(anonymous, extent.start).is_some_and(|place| extent.end <= anonymous[place].1);
            let is_there =
                extent.state != ExtentState::Active || is_mapped || space.covers(extent.start, extent.size());
            if extent.size() == 0 || extent.end > space.machine.user_end || !is_there {
                let found = format!("{:#x}", extent.address);
                let damage = Damage::new(at, "memory of an extent", "mapped memory", found);
                self.report(Damage { is_absent: !is_there, ..damage });
            } else {
                self.add_extent(&extent, (&sizes, pad), root);
            }
        });
        absent.into_iter().for_each(|at| self.report(Damage::absent(at, "extent")));
    }

    fn add_extent(&mut self, extent: &Extent, sizes: (&[u64], u64), root: u32) {
        let span = match extent.state {
            ExtentState::Active => self.add_active(extent, sizes, root),
            ExtentState::Dirty => Use::Free,
            ExtentState::Muzzy => Use::Muzzy,
            ExtentState::Retained => Use::Returned,
            ExtentState::Moving => Use::Moving,
        };
        if span == Use::Moving {
            self.moving.extents += 1;
            self.changing.push((extent.at, extent.links));
            self.leave_unfinished(extent.at, "state of an extent", "a lasting state", || "a temporary state");
        }
        self.pieces.push(Piece { arena: extent.arena, ..Piece::new(extent.start, extent.end, span, root) });
        if extent.is_huge {
            self.huge.push((extent.start, extent.end, extent.arena));
        }
    }

    /// Add an active extent and return the use of its pages. An extent without a size class has no block: a thread is
    /// splitting, merging or purging the extent, or the huge page allocator keeps it for the next request of its size.
    fn add_active(&mut self, extent: &Extent, (sizes, pad): (&[u64], u64), root: u32) -> Use {
        let Some(size) = sizes.get(extent.class).copied() else {
            return if extent.is_huge { Use::Free } else { Use::Moving };
        };
        let (run, used) = if extent.is_slab {
            let Some((count, free)) = extent.regions(size).and_then(|count| Some((count, extent.bitmap(count)?)))
            else {
                let expected = format!("regions of {size} bytes");
                self.unfit.push(Damage::new(extent.at, "bitmap of a slab", expected, "a bitmap that does not match"));
                return Use::Unexplained;
            };
            if ones(free) != extent.free_count {
                let found = Damage::new(
                    extent.at,
                    "free regions of a slab",
                    extent.free_count.to_string(),
                    ones(free).to_string(),
                );
                self.miscounted.push(found);
            }
            let mut used: Vec<u64> = free.iter().map(|word| !word).collect();
            bits::clear_range(&mut used, count, count.next_multiple_of(64));
            (Run { start: extent.address, stride: size, count }, used)
        } else {
            let usable = extent.usable(size, pad);
            if usable == 0 || extent.address.checked_add(usable).is_none_or(|end| end > extent.end) {
                let expected = format!("at most {}", extent.size());
                self.unfit.push(Damage::new(extent.at, "size of a large block", expected, usable.to_string()));
                return Use::Unexplained;
            }
            let words = std::array::from_fn::<u64, SAMPLE_WORDS, _>(|place| extent.free[place]);
            self.larges.push(LargeBlock { root, address: extent.address, size: usable, words });
            (Run { start: extent.address, stride: usable, count: 1 }, vec![1])
        };
        self.owners.insert(run.start, Owner { root, arena: extent.arena, is_slab: extent.is_slab });
        self.runs.push((run, used));
        Use::Run(run.start)
    }

    /// Add the threads' caches of the jemalloc whose runs begin at the index `from`. `own`: the base blocks of this
    /// jemalloc.
    fn add_caches(
        &mut self,
        go_on: ContinueCheck,
        space: &Space,
        root: &JemallocRoot,
        (own, from): (&[(u64, u64)], usize),
    ) -> Result<(), Cancellation> {
        let sizes = root.form.sizes();
        let mut runs: Vec<Run> = self.runs[from..].iter().map(|(run, _)| *run).collect();
        runs.sort_unstable_by_key(|run| run.start);
        let is_right = |block: u64, class: usize| {
            let place = runs.partition_point(|run| run.start <= block);
            place.checked_sub(1).is_some_and(|place| {
                let (run, inside) = (&runs[place], block - runs[place].start);
                is_of_class(&sizes, class, run.stride) && inside % run.stride == 0 && block < run.end()
            })
        };
        let finder = Finder { space, form: root.form, small: root.form.small(&sizes), go_on };
        let mut caches = finder.find(&led_into(space, &root.data, own), is_right)?;
        if caches.count == 0 {
            caches = finder.find_in(&root.storage, is_right)?;
        }
        let Caches { count, bins } = caches;
        self.caches.push(count);
        for Bin { class, list, blocks } in bins {
            let mut right = Vec::with_capacity(blocks.len());
            for (block, entry) in blocks.iter().copied().zip((list..).step_by(8)) {
                if is_right(block, class) {
                    right.push(block);
                } else {
                    let expected = "a block of its size";
                    self.leave_unfinished(entry, "entry of a thread's cache", expected, || hex(block));
                }
            }
            let astray = (blocks.len() - right.len()) as u64;
            self.moving.astray += astray;
            self.cached.push((right, astray > 0));
            self.lists.push(list);
        }
        Ok(())
    }

    /// Add the memory of the huge page allocator that lies in no extent in use.
    fn add_huge(
        &mut self,
        go_on: ContinueCheck,
        space: &Space,
        data: &[(u64, u64)],
        number: u32,
        own: &[(u64, u64)],
    ) -> Result<(), Cancellation> {
        let mut extents = std::mem::take(&mut self.huge);
        let is_none = extents.is_empty() || space.page().bytes() * PAGES as u64 != HUGE;
        let slabs = if is_none { BTreeMap::new() } else { find_slabs(space, own) };
        extents.sort_unstable();
        let is_known = |start: &u64| slabs.contains_key(&(start / HUGE * HUGE));
        let lost = extents.iter().filter(|(start, ..)| !is_known(start)).map(|(start, end, _)| end - start);
        let (mut astray, mut left) = (lost.sum::<u64>(), space.vain_steps(0, u64::MAX) + extents.len() as u64);
        for slab in slabs.values() {
            go_on()?;
            let first = extents.partition_point(|(_, end, _)| *end <= slab.start);
            let own = extents[first..].iter().take_while(|(start, ..)| *start < slab.start + HUGE);
            let taken: Vec<(u64, u64)> = own.map(|(start, end, _)| (*start, *end)).collect();
            // Limit the number of pieces: a slab's description is far smaller than all the pieces that it can produce.
            if left == 0 {
                astray += taken.iter().map(|(start, end)| end - start).sum::<u64>();
                continue;
            }
            left = left.saturating_sub(taken.len() as u64);
            let arena = extents.get(first).filter(|_| !taken.is_empty()).map_or(0, |(_, _, arena)| *arena);
            slab.show_unused(space.page(), &taken, |start, end, what| {
                let span = match what {
                    FreePageState::Moving => Use::Moving,
                    FreePageState::Dirty => Use::Free,
                    FreePageState::GivenBack => Use::Returned,
                };
                if span == Use::Moving {
                    self.moving.extents += 1;
                    self.leave_unfinished(start, "active pages of the huge page allocator", "an extent", || "none");
                }
                left = left.saturating_sub(1);
                self.pieces.push(Piece { arena, ..Piece::new(start, end, span, number) });
            });
        }
        self.astray.push(astray);
        let edens = find_edens(space, data, &slabs);
        self.pieces.extend(edens.iter().map(|(start, end)| Piece::new(*start, *end, Use::Returned, number)));
        Ok(())
    }

    fn report(&mut self, damage: Damage) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(damage);
        }
    }

    /// Report an unfinished change. Only the first MAX_UNFINISHED reports are kept.
    fn leave_unfinished<T: Into<String>>(
        &mut self,
        at: u64,
        what: &'static str,
        expected: &'static str,
        found: impl FnOnce() -> T,
    ) {
        if self.unfinished.len() < MAX_UNFINISHED {
            self.unfinished.push(Damage::new(at, what, expected, found()));
        }
    }

    fn finish(mut self) -> Result<Jemalloc> {
        self.runs.sort_unstable_by_key(|(run, _)| run.start);
        let (pieces, overlaps) = disjoint(std::mem::take(&mut self.pieces));
        let areas = Areas::of(pieces);
        // If a run's extent was dropped because of an overlap, the run is in no area.
        areas.retain_runs(&mut self.runs, |(run, _)| run.start);
        self.moving.extents += overlaps.len() as u64;
        self.moving.lists = joined_by(&self.changing) + overlaps.len() as u64;
        overlaps.iter().for_each(|start| {
            self.leave_unfinished(*start, "pages of an extent", "pages of one extent", || "pages of two extents")
        });
        let mut owners: Vec<Owner> = Vec::with_capacity(self.runs.len());
        owners.extend(self.runs.iter().filter_map(|(run, _)| self.owners.get(&run.start)));
        let mut runs = Runs::new(std::mem::take(&mut self.runs))?;
        let none = || bits::Bits::new(runs.block_numbers());
        let (mut cached, transfer, mut own) = (none(), none(), none());
        // A map from the address of each block to the number of bins that contain it.
        let mut listed: HashMap<u64, u32> = HashMap::new();
        let bins = std::mem::take(&mut self.cached);
        bins.iter().flat_map(|(bin, _)| bin).for_each(|block| *listed.entry(*block).or_default() += 1);
        let mut off = Vec::new();
        for (bin, has_astray) in &bins {
            // A flush frees the last blocks of a bin before it lowers the bin's count. Blocks that are no longer free
            // were handed out again, or are in the cache that took them.
            let is_off = |block: &u64| runs.block_at(*block).is_none() || listed[block] > 1;
            let kept = bin.iter().position(is_off).unwrap_or(bin.len());
            let of_bin: HashSet<u64> = bin[kept..].iter().copied().filter(is_off).collect();
            self.moving.both += of_bin.len() as u64;
            for block in &of_bin {
                let place = if listed[block] > 1 { "listed twice in caches" } else { "free in its slab, too" };
                self.leave_unfinished(*block, "block in a thread's cache", "free once", || place);
            }
            off.push((of_bin, *has_astray));
            for number in bin[..kept].iter().filter_map(|block| Some(runs.block_at(*block)?.number)).collect::<Vec<_>>()
            {
                cached.set(number);
                runs.clear(number);
            }
        }
        self.moving.bins = fewest(&off);
        self.unfit.truncate(MAX_DAMAGE);
        self.unfinished.sort_by_key(|damage| damage.address);
        self.unfinished.dedup();
        self.unfinished.truncate(MAX_DAMAGE);
        for list in &self.lists {
            let large = runs.run_at(*list).filter(|place| !owners[*place].is_slab);
            if let Some(number) = large.map(|place| runs.first_block(place)) {
                own.set(number);
                runs.clear(number);
            }
        }
        let words =
            StateNames { free: "dirty pages", returned: "retained address space", list: "slab", has_arenas: true };
        let JemallocContent { larges, caches, astray, moving, damage, unfit, miscounted, unfinished, .. } = self;
        let extents = Arc::new(Extents { words, runs, owners, cached, transfer, own, areas, damage });
        Ok(Jemalloc { extents, larges, caches, astray, moving, unfit, miscounted, unfinished })
    }
}

/// Sort the pieces, and cut or drop pieces that overlap others. Return the pieces, ascending and disjoint, and the
/// starts of those that overlapped others. Two pieces may claim the same pages while an extent is split or merged. The
/// pages then go to the piece with blocks.
fn disjoint(mut all: Vec<Piece>) -> (Vec<Piece>, Vec<u64>) {
    all.sort_unstable_by_key(|piece| (piece.start, !piece.is_run()));
    let (mut pieces, mut overlaps) = (Vec::<Piece>::with_capacity(all.len()), Vec::new());
    for mut piece in all {
        if let Some(last) = pieces.last_mut().filter(|last| last.end > piece.start) {
            overlaps.push(piece.start);
            if piece.is_run() && !last.is_run() {
                last.end = piece.start;
                if last.start == last.end {
                    pieces.pop();
                }
            } else if piece.is_run() || piece.end <= last.end {
                continue;
            } else {
                piece.start = last.end;
            }
        }
        pieces.push(piece);
    }
    (pieces, overlaps)
}

/// Return the number of extents. Extents that link to each other count as one.
fn joined_by(extents: &[(u64, [u64; LINK_WORDS])]) -> u64 {
    let places: HashMap<u64, usize> = extents.iter().enumerate().map(|(place, (at, _))| (*at, place)).collect();
    let mut list: Vec<usize> = (0..extents.len()).collect();
    let mut count = extents.len() as u64;
    for (place, (_, links)) in extents.iter().enumerate() {
        for other in links.iter().filter_map(|link| places.get(link)) {
            let (one, other) = (first_of(&mut list, place), first_of(&mut list, *other));
            count -= u64::from(one != other);
            list[one] = other;
        }
    }
    count
}

/// Return the representative of the list that contains `place`, and shorten the path to it (union-find).
fn first_of(list: &mut [usize], mut place: usize) -> usize {
    while list[place] != place {
        list[place] = list[list[place]];
        place = list[place];
    }
    place
}

/// Return the smallest number of bins that explains all misplaced blocks. `off`: for each bin, its misplaced blocks,
/// and whether another entry already proves that a thread was changing the bin. A bin that a thread is emptying shares
/// many blocks with other bins.
fn fewest(off: &[(HashSet<u64>, bool)]) -> u64 {
    let mut bins_of: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, (blocks, _)) in off.iter().enumerate() {
        blocks.iter().for_each(|block| bins_of.entry(*block).or_default().push(place));
    }
    let mut left: Vec<usize> = off.iter().map(|(blocks, _)| blocks.len()).collect();
    // Take first the bins that are proven, then those with the most unexplained blocks. A number in the queue may be
    // out of date, because the number of unexplained blocks of a bin only falls.
    let mut open: BinaryHeap<(bool, usize, usize)> =
        (0..off.len()).map(|place| (off[place].1, left[place], place)).collect();
    let mut count = 0;
    while let Some((proven, size, place)) = open.pop() {
        if size > left[place] {
            open.push((proven, left[place], place));
        } else if proven || size > 0 {
            count += 1;
            let others = off[place].0.iter().filter_map(|block| bins_of.remove(block)).flatten();
            others.for_each(|other| left[other] -= 1);
        }
    }
    count
}

impl Jemalloc {
    /// Return the slabs. Blocks in threads' caches count as used. `arenas`: compute as if the slabs belonged to only
    /// this many arenas, to predict the effect of fewer arenas. None: keep the real arenas.
    pub fn slabs(&self, arenas: Option<NonZeroU32>) -> impl Iterator<Item = BlockSlab> + '_ {
        let all = self.extents.owned_runs().filter(|(_, _, owner)| owner.is_slab);
        all.map(move |(place, run, Owner { root, arena, .. })| BlockSlab {
            root: *root,
            keeper: u64::from(arenas.map_or(*arena, |most| *arena % most)),
            size: run.stride,
            start: run.start,
            end: run.end(),
            room: run.count,
            live: self.extents.runs.count_of(place) + ones(self.extents.cached_of(place)),
            // Free blocks need not stay in a cache, because a thread can flush its cache.
            waiting: 0,
        })
    }

    /// Return the blocks of each size class in each arena.
    pub fn class_use(&self) -> Vec<ClassUse> {
        let mut rows: BTreeMap<(u32, u32, u64, bool), ClassUse> = BTreeMap::new();
        for (place, run, Owner { root, arena, is_slab }) in self.extents.owned_runs() {
            let row = rows.entry((*root, *arena, run.stride, *is_slab)).or_default();
            let (used, cached) = (self.extents.runs.count_of(place), ones(self.extents.cached_of(place)));
            let own = u64::from(self.extents.is_own(place));
            *row = ClassUse {
                root: *root,
                arena: *arena,
                size: run.stride,
                slabs: row.slabs + u64::from(*is_slab),
                used: row.used + used,
                cached: row.cached + cached,
                own: row.own + own,
                free: row.free + run.count - used - cached - own,
            };
        }
        rows.into_values().collect()
    }

    /// Return the memory of each arena.
    pub fn arena_use(&self) -> Vec<ArenaUse> {
        let mut rows: BTreeMap<(u32, u32), ArenaUse> = BTreeMap::new();
        for piece in self.extents.areas.pieces.iter().filter(|piece| piece.of != Use::Metadata) {
            let row = rows.entry((piece.root, piece.arena)).or_default();
            (row.root, row.arena) = (piece.root, piece.arena);
            let size = piece.end - piece.start;
            match piece.of {
                Use::Free | Use::Moving => row.dirty += size,
                Use::Muzzy => row.muzzy += size,
                Use::Returned => row.retained += size,
                _ => row.active += size,
            }
        }
        for row in self.class_use() {
            let sum = rows.entry((row.root, row.arena)).or_default();
            sum.used += row.used * row.size;
            sum.cached += row.cached * row.size;
            sum.own += row.own * row.size;
        }
        rows.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdbheap_access::machine::{Machine, EM_X86_64};
    use gdbheap_access::memory::space::{Backing, Segment};

    /// Check that slabs with many active pages outside extents produce a limited number of pieces and reports. Each
    /// slab's description has 256 bytes and says that every second page is active.
    #[test]
    fn stretches_without_extents() {
        let (own, count, start) = (4 * HUGE, 1000, 1000 * HUGE);
        let mut words = vec![0; 32 * count];
        for (known, number) in words.chunks_exact_mut(32).zip(0..) {
            (known[0], known[8], known[9], known[18]) = (start + number * HUGE, 1, 256, 512);
            known[10..18].fill(0x5555_5555_5555_5555);
            known[19..27].fill(u64::MAX);
        }
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let path = std::env::temp_dir().join(format!("gdbheap-stretches-{}", std::process::id()));
        std::fs::write(&path, &bytes).expect("room for a file");
        let end = own + bytes.len() as u64;
        let file = Segment { start: own, end, backing: Backing::File { index: 0, offset: 0 } };
        let zeros = Segment { start, end: start + count as u64 * HUGE, backing: Backing::Zeros };
        let machine = Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).expect("a machine");
        let space = Space::for_core(machine, vec![file, zeros], &[path.to_string_lossy().into_owned()]);
        std::fs::remove_file(&path).expect("the file");
        let space = space.expect("disjoint segments");
        let mut found = JemallocContent { huge: vec![(start, start + 4096, 0)], ..JemallocContent::default() };
        found.add_huge(&|| Ok(()), &space, &[], 0, &[(own, end)]).expect("not cancelled");
        assert!(found.unfinished.len() <= MAX_UNFINISHED, "{} are told", found.unfinished.len());
        assert!(found.pieces.len() < 300_000 && found.moving.extents > 100_000, "{} pieces", found.pieces.len());
        found.huge = vec![(start, start + 4096, 0)];
        assert!(found.add_huge(&|| Err(Cancellation), &space, &[], 0, &[(own, end)]).is_err());
    }

    /// Check that three extents on a list count once, whichever of them link to each other.
    #[test]
    fn extents_on_lists() {
        let extent = |at: u64, to: u64| (at, [0, to, 0, 7, 0, 0, at]);
        assert_eq!(joined_by(&[extent(64, 192), extent(128, 0), extent(192, 256), extent(256, 64)]), 2);
        assert_eq!(joined_by(&[extent(64, 64), extent(128, 1)]), 2);
        assert_eq!(joined_by(&[]), 0);
    }

    /// Check that one bin that is being emptied explains the blocks that two other bins share with it. Check that a bin
    /// with an entry that is not a block always counts.
    #[test]
    fn fewest_bins() {
        let bins = |off: &[(&[u64], bool)]| {
            let off: Vec<_> = off.iter().map(|(blocks, proven)| (blocks.iter().copied().collect(), *proven)).collect();
            fewest(&off)
        };
        assert_eq!(bins(&[(&[1, 2, 3], false), (&[1], false), (&[3], false)]), 1);
        assert_eq!(bins(&[(&[1, 2], false), (&[2, 3], false), (&[], true)]), 3);
        assert_eq!(bins(&[(&[1], true), (&[1, 2], false), (&[2], false)]), 2);
        assert_eq!(bins(&[(&[], false)]), 0);
    }
}
