//! Python objects in the memory of a target.

use crate::claimed_blocks::Claimed;
use crate::glibc::{listed, ListedChunk};
use crate::graph::Graph;
use crate::heaps::Heaps;
use crate::memory::Pages;
use crate::records::{records, Argument};
use crate::rows::{all, answers, exports, Place, Range, Tally};
use crate::watch::{raised, watched, Report};
use gdbheap_core::allocators::{self, glibc::ChunkFilter};
use gdbheap_core::python::containers::{self, Entries, GrowthRule, TableRule, WantedFill, WantedSlack};
use gdbheap_core::python::{
    self, CensusRequest, Claim, Extent, Family, Measures, SizeFields, Slab, TableHead, TraceTable, TypeLayout, Values,
    WantedInstances, WantedValues,
};
use pyo3::prelude::*;
use std::collections::{HashMap, HashSet};

records! {
    Extent { rule, at, unit, more }
    Claim { offset, test, mask, low, high, role, follow, last, contents, count_at, extent }
    Family { flags, names, claims }
    Slab { block, header, item, names }
    TypeLayout {
        ob_refcnt, ob_type, tp_name, tp_basicsize, tp_itemsize, tp_flags, tp_base, smallest_heap_type, flag_gc,
        flag_type_subclass, hook, gc_head, flags_pre_header, pre_header, flag_no_minimum, flags_plain, shortened,
        state_size, slab, families, tp_dealloc, class_dealloc, closed, reached_role, names, data, unwalked,
    }
    CensusRequest { roots, watched, unknown }
    SizeFields {
        ob_size, tagged, flag_int, flag_str, str_length, str_state, str_state_shift, sizeof_ascii, sizeof_compact,
        flag_inline,
    }
    TraceTable { buckets, count, entries, key }
    Values { kinds, sizing, str_data, bytes_data, tuple_items, ob_digit, number }
    TableHead { slots_at, log2_at, kind_at, indices }
    Measures { sizing, keys, plain, flag_heap_type }
    GrowthRule { name, size_at, allocated_at, data_at, first_at, item, behind }
    Entries { text_flags, text_at, first_names }
    TableRule { name, used_at, table_at, mask_at, shared_at, slot, head, entries }
}

/// Return the blocks that Python objects own in `layout.unwalked`, which is memory that cannot be walked. `roots`:
/// groups of ranges outside the heaps whose words may point to such objects; the most credible group comes first.
/// Raises KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, measures, roots, progress=None))]
pub fn find_claimed(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    measures: Argument<Measures>,
    roots: Vec<Vec<Range>>,
    progress: Option<Report>,
) -> PyResult<Py<Claimed>> {
    let heaps = heaps.0.lend();
    let find =
        |watcher: &dyn gdbheap_core::Watcher| python::find_claimed(watcher, heaps, &layout.0, &measures.0, &roots);
    Py::new(py, Claimed::of(watched(py, progress, find)?))
}

/// A block and an address in it: (address of the block, size of the block, address inside the block).
type Spot = (u64, u64, u64);

/// The smallest and the largest block size, in bytes.
type Sizes = (u64, u64);

answers! {
    /// Buffers that have the same role for the object that owns them.
    struct OwnedBuffers { role: u8, count: u64, bytes: u64 }

    /// The objects of the type at `address`. `flags`: the `tp_flags` of the type. `live`: the living objects. `idle`:
    /// the objects on free lists. `owned`: the buffers of the objects, by role.
    struct TypeRow { address: u64, flags: u64, live: Tally, idle: Tally, owned: Vec<OwnedBuffers> }

    /// The used blocks of one store. `unclassified`: the used blocks that are neither objects nor owned by an object.
    struct StoreRow of python::StoreRow { name: &'static str, used: Tally, unclassified: Tally }

    /// The owner of a block: an object with its type, or a word of a root. For a root, `type_address` is 0, `role` is
    /// the number of the root, and `address` is the address of the word.
    struct BlockOwner { block: u64, address: u64, type_address: u64, role: u32 }

    /// An object in a block. `alive`: whether the object is alive; False if it is on a free list.
    struct ObjectAt { address: u64, type_address: u64, alive: bool }

    /// A live object. `size`: the size of its block. `buffers`: the bytes of its buffers.
    struct Instance { address: u64, type_address: u64, size: u64, buffers: u64 }

    /// The number of objects, the bytes of the objects, the bytes of their buffers, and the first objects in the
    /// requested order.
    struct InstanceList { count: u64, bytes: u64, buffers: u64, rows: Vec<Instance> }

    /// For one block size: the number of objects whose requested size is known, and the sum of these sizes in bytes.
    struct AskedSize { block_size: u64, objects: u64, bytes: u64 }

    /// Containers with unused capacity. `small`: the unused bytes in pages that also contain used bytes. `pages`: the
    /// unused bytes in whole resident pages. `most`: the largest number of unused bytes in one container; `address`:
    /// the address of that container.
    struct Slack of containers::Slack { containers: u64, small: u64, pages: u64, most: u64, address: u64 }

    /// An estimate for the objects of the type at `kind`: the number of living objects and their bytes, and the number
    /// of objects on free lists and their bytes.
    struct Estimate of python::Estimate { kind: u64, live: u64, bytes: u64, idle: u64, idle_bytes: u64 }

    /// The blocks that were allocated with one traceback. `traceback`: the address of the traceback.
    struct TracebackSum of python::TracebackSum { traceback: u64, count: u64, bytes: u64 }

    /// The sums over tracemalloc's tables by traceback, and the number of entries that were read.
    struct Traces { rows: Vec<TracebackSum>, entries: u64 }

    /// Objects with equal values. `hash` and `kind`: those of the value. `count`: the number of objects. `bytes`: the
    /// bytes of their blocks. `largest`: the size of the largest block. `address`: the address of the first object.
    struct EqualGroup of python::EqualGroup { hash: u128, kind: u8, count: u64, bytes: u64, largest: u64, address: u64 }

    /// Sums over all values of a kind. `objects`, `bytes`: the number of objects with such values, and their bytes.
    /// `values`: the number of values that more than one object has. `copies`: the number of objects with these values.
    /// `saved`: the bytes that keeping one object for each value would save.
    struct KindSum of python::KindSum { kind: u8, objects: u64, bytes: u64, values: u64, copies: u64, saved: u64 }

    /// The values that more than one object has. `rows`: the first of these values in the requested order. `sums`: the
    /// sums by kind. `count`: the number of all such values.
    struct EqualValues { rows: Vec<EqualGroup>, sums: Vec<KindSum>, count: u64 }

    /// One of several equal objects: the hash of its value, its address, and the size of its block.
    struct EqualObject { hash: u128, address: u64, size: u64 }

    /// How full the containers of one kind are.
    ///
    /// - `empty`: the number of containers without any capacity.
    /// - `shared`: the number of containers that share their table with other containers.
    /// - `used`, `room`: for the remaining containers, the number of their items, and of the items that fit.
    /// - `tenths`: how many of the remaining containers are at most 10 % full, 20 % full, and so on.
    struct ContainerFill of containers::Fill {
        count: u64,
        empty: u64,
        shared: u64,
        used: u64,
        room: u64,
        tenths: Vec<u64>,
    }

    /// The objects for which `tally_objects` computed the same key: their number, and the size of their blocks in
    /// bytes.
    struct KeyTally { key: u64, count: u64, bytes: u64 }

    /// The number of blocks whose object begins at this distance from the start of the block. `flags`: the requested
    /// bits of the `tp_flags` of the object's type.
    struct DistanceVotes { flags: u64, distance: u64, blocks: u64 }
}

exports! {
    classes: Census;
    functions:
        find_claimed, take_census, objects_in, list_objects, list_instances, asked_sizes, count_traces, equal_values,
        equal_objects, value_hashes, tally_objects, count_fill, list_slack, estimate_types, vote_distances, sample_types;
}

fn type_row(row: python::TypeRow) -> TypeRow {
    let owned = |owned: python::OwnedBuffers| {
        let allocators::Tally { count, bytes } = owned.buffers;
        OwnedBuffers { role: owned.role, count, bytes }
    };
    let owned = row.owned.into_iter().map(owned).collect();
    TypeRow { address: row.kind, flags: row.flags, live: row.live.into(), idle: row.idle.into(), owned }
}

fn object_at((address, type_address, alive): (u64, u64, bool)) -> ObjectAt {
    ObjectAt { address, type_address, alive }
}

fn instance((address, type_address, size, buffers): python::Instance) -> Instance {
    Instance { address, type_address, size, buffers }
}

/// The used blocks of a target by type, store and owner, as `take_census` classified them. All sizes are in bytes.
#[pyclass(frozen, get_all)]
pub struct Census {
    /// One row for each type that has objects.
    rows: Vec<Py<TypeRow>>,
    /// One row for each store of the heaps.
    stores: Vec<StoreRow>,
    /// The owners of the blocks whose owner was asked for.
    owners: Vec<Py<BlockOwner>>,
    /// For each owner of roots, by its number, the blocks that its roots own; the number 0 is the interpreter.
    roots: Vec<Tally>,
    /// The largest unidentified blocks, largest first.
    unknown: Vec<Place>,
    /// The user addresses of those buffers of objects that also look like objects themselves.
    contested: Vec<u64>,
    /// The slabs (blocks for many objects) in which no object is alive.
    idle_slabs: Tally,
    /// The time in seconds that the workers took, on average, to find owners of buffers during the walk.
    settling: f64,
    /// The time in seconds that it took to follow the pointers to the other buffers.
    following: f64,
}

/// Find out for every used block whether it is an object, or which object or root owns it. Without a `graph`, blocks of
/// C code have no owner. Raises KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, question, graph=None, progress=None))]
pub fn take_census(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    question: Argument<CensusRequest>,
    graph: Option<&Graph>,
    progress: Option<Report>,
) -> PyResult<Census> {
    let (heaps, graph) = (heaps.0.lend(), graph.map(|graph| &graph.0 as &dyn python::Owners));
    let take = |watcher: &dyn gdbheap_core::Watcher| python::take_census(watcher, heaps, &layout.0, &question.0, graph);
    let found = watched(py, progress, take)?;
    let owner = |(block, address, type_address, role)| Py::new(py, BlockOwner { block, address, type_address, role });
    Ok(Census {
        rows: found.rows.into_iter().map(|row| Py::new(py, type_row(row))).collect::<PyResult<_>>()?,
        stores: all(found.stores),
        owners: found.owners.into_iter().map(owner).collect::<PyResult<_>>()?,
        roots: all(found.roots),
        unknown: found.unknown,
        contested: found.contested,
        idle_slabs: found.idle_slabs.into(),
        settling: found.settling.as_secs_f64(),
        following: found.following.as_secs_f64(),
    })
}

/// Return the object in each block, or None if the block has no object. If a block has many objects, return the object
/// at the address inside the block, else the first object.
#[pyfunction]
pub fn objects_in(heaps: &Heaps, layout: Argument<TypeLayout>, blocks: Vec<Spot>) -> Vec<Option<ObjectAt>> {
    let found = python::objects_in(heaps.0.lend(), &layout.0, &blocks);
    found.into_iter().map(|found| found.map(object_at)).collect()
}

/// Return the used chunks that match `wanted` and look like live objects of one of the types at `kinds`, in any order.
/// Raises KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, kinds, wanted, progress=None))]
pub fn list_objects(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    kinds: HashSet<u64>,
    wanted: Argument<ChunkFilter>,
    progress: Option<Report>,
) -> PyResult<Vec<ListedChunk>> {
    let heaps = heaps.0.lend();
    let found = watched(py, progress, |watcher| python::list_objects(watcher, heaps, &layout.0, &kinds, &wanted.0))?;
    Ok(found.into_iter().map(listed).collect())
}

/// Return at most `top` live objects of the types at `kinds`, in the requested order. `kinds`: maps each type to the
/// position of its name in alphabetical order. Raises ValueError if `order` is unknown. Also raises KeyboardInterrupt,
/// and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, kinds, without, order, top=None, progress=None))]
pub fn list_instances(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    kinds: HashMap<u64, u32>,
    without: HashSet<u64>,
    order: &str,
    top: Option<usize>,
    progress: Option<Report>,
) -> PyResult<InstanceList> {
    let wanted = WantedInstances { kinds, without, order: order.parse().map_err(raised)?, top };
    let heaps = heaps.0.lend();
    let list = |watcher: &dyn gdbheap_core::Watcher| python::list_instances(watcher, heaps, &layout.0, &wanted);
    let (all, rows) = watched(py, progress, list)?;
    let python::Instances { count, bytes, buffers } = all;
    Ok(InstanceList { count, bytes, buffers, rows: rows.into_iter().map(instance).collect() })
}

/// Return, for each block size, how many objects have a known requested size, and the sum of these sizes. Raises
/// KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, sizing, without, progress=None))]
pub fn asked_sizes(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    sizing: Argument<SizeFields>,
    without: HashSet<u64>,
    progress: Option<Report>,
) -> PyResult<Vec<AskedSize>> {
    let heaps = heaps.0.lend();
    let ask = |watcher: &dyn gdbheap_core::Watcher| python::asked_sizes(watcher, heaps, &layout.0, &sizing.0, &without);
    let row = |(block_size, objects, bytes)| AskedSize { block_size, objects, bytes };
    Ok(watched(py, progress, ask)?.into_iter().map(row).collect())
}

/// Return the unused capacity of containers. There is one row for each rule in `growing` (containers with a buffer that
/// grows). The rows for the rules in `tables` (hash tables) follow.
///
/// Only containers in blocks of the given `sizes` are included, and only in stores that keep blocks of one size
/// together. If `most` is given, `containers`, `small` and `pages` are estimates from a sample of at most `most` groups
/// (pools or pages) of each size.
#[pyfunction]
#[pyo3(signature = (heaps, layout, pages, growing, tables, sizes, most=None))]
pub fn list_slack(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    pages: Option<&Pages>,
    growing: Argument<Vec<GrowthRule>>,
    tables: Argument<Vec<TableRule>>,
    sizes: Vec<Sizes>,
    most: Option<usize>,
) -> PyResult<Vec<Slack>> {
    let heaps = heaps.0.lend();
    let wanted = WantedSlack { growing: growing.0, tables: tables.0, sizes, most };
    let pages = pages.map(|pages| &*pages.0);
    let list = |watcher: &dyn gdbheap_core::Watcher| containers::list_slack(watcher, heaps, pages, &layout.0, &wanted);
    Ok(all(watched(py, None, list)?))
}

/// Estimate the number of objects of each type in blocks of at most 512 bytes, from a sample of at most `most` pools of
/// each size.
#[pyfunction]
pub fn estimate_types(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    most: usize,
) -> PyResult<Vec<Estimate>> {
    let heaps = heaps.0.lend();
    Ok(all(watched(py, None, |watcher| python::estimate_types(watcher, heaps, &layout.0, most))?))
}

/// Count how often an object begins at each distance from the start of its block, by the bits `mask` of its type's
/// flags. For each size, the sample has at most `most` pools, pages of mimalloc, or chunks, depending on the process's
/// allocator. The distances in the layout are not used.
#[pyfunction]
pub fn vote_distances(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    mask: u64,
    most: usize,
) -> PyResult<Vec<DistanceVotes>> {
    let heaps = heaps.0.lend();
    let found = watched(py, None, |watcher| python::vote_distances(watcher, heaps, &layout.0, mask, most))?;
    let row = |((flags, distance), blocks)| DistanceVotes { flags, distance, blocks };
    Ok(found.into_iter().map(row).collect())
}

/// Return the types that the blocks of a sample point to, as `{address: tp_flags}`. The sample is chosen as in
/// `vote_distances`.
#[pyfunction]
pub fn sample_types(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    most: usize,
) -> PyResult<HashMap<u64, u64>> {
    let heaps = heaps.0.lend();
    watched(py, None, |watcher| python::sample_types(watcher, heaps, &layout.0, most))
}

/// Sum up tracemalloc's tables. Raises KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, tables, progress=None))]
pub fn count_traces(
    py: Python<'_>,
    heaps: &Heaps,
    tables: Argument<Vec<TraceTable>>,
    progress: Option<Report>,
) -> PyResult<Traces> {
    let heaps = heaps.0.lend();
    let found = watched(py, progress, |watcher| python::count_traces(watcher, heaps.space, &tables.0))?;
    Ok(Traces { rows: all(found.rows), entries: found.entries })
}

/// Return at most `top` values that at least `least` objects of the types at `types` have. The first values are those
/// for which keeping a single object would save the most bytes. If `by_bytes` is true, the first values are those with
/// the most bytes.
///
/// `slices`: the number of passes; each pass keeps one part of the distinct values in memory. `apart`: (start, end,
/// number) of memory whose objects are compared only with objects that have the same number. Raises KeyboardInterrupt,
/// and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, values, types, without, apart, least, by_bytes, slices, top, progress=None))]
pub fn equal_values(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    values: Argument<Values>,
    types: HashSet<u64>,
    without: HashSet<u64>,
    apart: Vec<(u64, u64, u64)>,
    least: u64,
    by_bytes: bool,
    slices: u64,
    top: usize,
    progress: Option<Report>,
) -> PyResult<EqualValues> {
    let heaps = heaps.0.lend();
    let wanted = WantedValues { types, without, apart };
    let find = |watcher: &dyn gdbheap_core::Watcher| {
        python::equal_values(watcher, heaps, &layout.0, &values.0, &wanted, least, by_bytes, slices, top)
    };
    let (rows, sums, count) = watched(py, progress, find)?;
    Ok(EqualValues { rows: all(rows), sums: all(sums), count })
}

/// Return at most `most` objects of the types at `types` whose values have one of these hashes, by address. Raises
/// KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, values, types, without, apart, hashes, most, progress=None))]
pub fn equal_objects(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    values: Argument<Values>,
    types: HashSet<u64>,
    without: HashSet<u64>,
    apart: Vec<(u64, u64, u64)>,
    hashes: HashSet<u128>,
    most: usize,
    progress: Option<Report>,
) -> PyResult<Vec<EqualObject>> {
    let heaps = heaps.0.lend();
    let wanted = WantedValues { types, without, apart };
    let find = |watcher: &dyn gdbheap_core::Watcher| {
        python::equal_objects(watcher, heaps, &layout.0, &values.0, &wanted, &hashes, most)
    };
    let row = |(hash, address, size): python::EqualObject| EqualObject { hash, address, size };
    Ok(watched(py, progress, find)?.into_iter().map(row).collect())
}

/// Return the hash of the value of the object at each address; None if the object cannot be read, or is of a kind whose
/// values are not hashed. Raises KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, values, addresses, progress=None))]
pub fn value_hashes(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    values: Argument<Values>,
    addresses: Vec<u64>,
    progress: Option<Report>,
) -> PyResult<Vec<Option<u128>>> {
    let heaps = heaps.0.lend();
    watched(py, progress, |watcher| python::value_hashes(watcher, heaps, &layout.0, &values.0, &addresses))
}

/// Count live objects by a key. `kinds`: maps each type to an offset. If the offset is negative, the key is the size of
/// the object's block. Otherwise the key is the absolute value of the number at that offset in the object. Raises
/// KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, kinds, without, progress=None))]
pub fn tally_objects(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    kinds: HashMap<u64, i64>,
    without: HashSet<u64>,
    progress: Option<Report>,
) -> PyResult<Vec<KeyTally>> {
    let heaps = heaps.0.lend();
    let tally =
        |watcher: &dyn gdbheap_core::Watcher| python::tally_objects(watcher, heaps, &layout.0, &kinds, &without);
    let row = |(key, count, bytes)| KeyTally { key, count, bytes };
    Ok(watched(py, progress, tally)?.into_iter().map(row).collect())
}

/// Return how full containers are. There is one row for each rule in `growing` (containers with a buffer that grows).
/// The rows for the rules in `tables` (hash tables) follow. Raises KeyboardInterrupt, and any error of `progress(done,
/// total)`.
///
/// - `kinds`: maps the address of each type to the index of its rule in `growing` followed by `tables`.
/// - `without`: the user addresses of blocks that only look like objects.
#[pyfunction]
#[pyo3(signature = (heaps, layout, kinds, growing, tables, without, progress=None))]
pub fn count_fill(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    kinds: HashMap<u64, usize>,
    growing: Argument<Vec<GrowthRule>>,
    tables: Argument<Vec<TableRule>>,
    without: HashSet<u64>,
    progress: Option<Report>,
) -> PyResult<Vec<ContainerFill>> {
    let heaps = heaps.0.lend();
    let wanted = WantedFill { kinds, growing: growing.0, tables: tables.0, without };
    let count = |watcher: &dyn gdbheap_core::Watcher| containers::count_fill(watcher, heaps, &layout.0, &wanted);
    Ok(all(watched(py, progress, count)?))
}
