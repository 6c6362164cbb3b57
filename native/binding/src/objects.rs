//! Python's objects in a target.

use crate::claimed::Claimed;
use crate::glibc::{listed, ListedChunk};
use crate::graph::Graph;
use crate::heaps::Heaps;
use crate::memory::Pages;
use crate::records::{records, Given};
use crate::rows::{all, answers, Place, Range, Tally};
use crate::watch::{raised, watched, Report};
use gdbheap_core::allocators::{self, glibc::Wanted};
use gdbheap_core::python::containers::{self, Entries, Growing, Table, WantedFill, WantedSlack};
use gdbheap_core::python::{
    self, CensusRequest, Claim, Extent, Family, Measures, Sizing, Slab, TableHead, TraceTable, TypeLayout, Values,
    WantedInstances, WantedValues,
};
use pyo3::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

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
    Sizing {
        ob_size, tagged, flag_int, flag_str, str_length, str_state, str_state_shift, sizeof_ascii, sizeof_compact,
        flag_inline,
    }
    TraceTable { buckets, count, entries, key }
    Values { kinds, sizing, str_data, bytes_data, tuple_items, ob_digit, number }
    TableHead { slots_at, log2_at, kind_at, indices }
    Measures { sizing, keys, plain, flag_heap_type }
    Growing { name, size_at, allocated_at, data_at, first_at, item, behind }
    Entries { text_flags, text_at, first_names }
    Table { name, used_at, table_at, mask_at, shared_at, slot, head, entries }
}

/// The places in `layout.unwalked` that Python's objects tell of. `roots`: groups of ranges of memory outside of the heaps
/// whose words lead there, the ones that are to be believed most first. Raises KeyboardInterrupt and whatever
/// `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, measures, roots, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn find_claimed(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    measures: Given<Measures>,
    roots: Vec<Vec<Range>>,
    progress: Option<Report>,
) -> PyResult<Claimed> {
    let heaps = heaps.0.lend();
    let find =
        |watcher: &dyn gdbheap_core::Watcher| python::find_claimed(watcher, heaps, &layout.0, &measures.0, &roots);
    Ok(Claimed(Arc::new(watched(py, progress, find)?)))
}

/// A block's address and size, and an address inside it.
type Spot = (u64, u64, u64);

/// The smallest and the largest size.
type Sizes = (u64, u64);

answers! {
    /// Buffers by what they are to their owner.
    struct OwnedBuffers { role: u8, count: u64, bytes: u64 }

    /// The objects of the type at an address with these `tp_flags`: those that live, those on free lists, and the buffers.
    struct TypeRow { address: u64, flags: u64, live: Tally, idle: Tally, owned: Vec<OwnedBuffers> }

    /// What one store has, by its name: used blocks, and those of them that are neither objects nor claimed.
    struct StoreRow of python::StoreRow { name: &'static str, used: Tally, unclassified: Tally }

    /// Who owns a block: an object and its type, or a word of a root; then the type is 0, the role is the root's number,
    /// and the address is that of the word.
    struct BlockOwner { block: u64, address: u64, type_address: u64, role: u32 }

    /// An object in a block.
    struct ObjectAt { address: u64, type_address: u64, alive: bool }

    /// A live object with its size and the bytes of its buffers.
    struct Instance { address: u64, type_address: u64, size: u64, buffers: u64 }

    /// How many objects there are, their bytes and their buffers', and the first of them in order.
    struct InstanceList { count: u64, bytes: u64, buffers: u64, rows: Vec<Instance> }

    /// Of one size of blocks: objects that tell their size, and the bytes that they asked for.
    struct AskedSize { block_size: u64, objects: u64, bytes: u64 }

    /// Containers with room: small bytes of it, bytes of resident pages, what the one at the address has, which is the most.
    struct Slack of containers::Slack { containers: u64, small: u64, pages: u64, most: u64, address: u64 }

    /// Objects of the type at `kind`: those that live and their bytes, those on free lists and theirs.
    struct Estimate of python::Estimate { kind: u64, live: u64, bytes: u64, idle: u64, idle_bytes: u64 }

    /// The blocks that one traceback, at its address, allocated.
    struct Traced of python::Traced { traceback: u64, count: u64, bytes: u64 }

    /// What tables of traces hold, by traceback, and how many entries were read.
    struct Traces { rows: Vec<Traced>, entries: u64 }

    /// Equal objects: the hash of their value, their kind, their blocks' bytes, those of the largest, and the first of them.
    struct Equal of python::Equal { hash: u128, kind: u8, count: u64, bytes: u64, largest: u64, address: u64 }

    /// Over all values of a kind: objects and bytes; values that several have, those objects, and what one each would save.
    struct KindSum of python::KindSum { kind: u8, objects: u64, bytes: u64, values: u64, copies: u64, saved: u64 }

    /// Values that several objects have: the first of them in order, sums by kind, and how many there are in all.
    struct EqualValues { rows: Vec<Equal>, sums: Vec<KindSum>, count: u64 }

    /// One of equal objects: the hash of its value, its address and its block's size.
    struct EqualObject { hash: u128, address: u64, size: u64 }

    /// Containers of one kind: how many, those without room, those whose table others share, the items of the rest and those
    /// they have room for, and how many are up to a tenth, two tenths and so on full.
    struct ContainerFill of containers::Fill {
        count: u64,
        empty: u64,
        shared: u64,
        used: u64,
        room: u64,
        tenths: Vec<u64>,
    }

    /// Objects with the same key, and the bytes of their blocks.
    struct Tallied { key: u64, count: u64, bytes: u64 }

    /// In how many blocks an object, whose type has these of the flags that were asked for, lies at this distance.
    struct DistanceVotes { flags: u64, distance: u64, blocks: u64 }
}

fn type_row(row: python::Row) -> TypeRow {
    let owned = |owned: python::Owned| {
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

/// The answer of a census; sizes in bytes.
#[pyclass(frozen, get_all)]
pub struct Census {
    /// One for each type that has objects.
    rows: Vec<Py<TypeRow>>,
    /// What each of the heaps' stores has.
    stores: Vec<StoreRow>,
    /// Of the watched blocks.
    owners: Vec<Py<BlockOwner>>,
    /// The blocks that each root leads to.
    roots: Vec<Tally>,
    /// The largest blocks of which nothing is known, largest first.
    unknown: Vec<Place>,
    /// Buffers that look like objects, by user address.
    contested: Vec<u64>,
    /// Blocks of many objects of which none is alive.
    idle_slabs: Tally,
    /// How long it took to find the owners of buffers, in seconds: as the walk went on, where workers share that, and to
    /// follow the pointers that lead to the rest.
    settling: f64,
    following: f64,
}

/// Classifies every used block. Raises KeyboardInterrupt and whatever
/// `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, question, graph=None, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn take_census(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    question: Given<CensusRequest>,
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

/// The object in each block, or None; of a block that holds many the one at the address inside it, else the first.
#[pyfunction]
pub fn objects_in(heaps: &Heaps, layout: Given<TypeLayout>, blocks: Vec<Spot>) -> Vec<Option<ObjectAt>> {
    let found = python::objects_in(heaps.0.lend(), &layout.0, &blocks);
    found.into_iter().map(|found| found.map(object_at)).collect()
}

/// The wanted used chunks that look like live objects of one of the types at `kinds`, in no order. Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, kinds, wanted, progress=None))]
pub fn list_objects(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    kinds: HashSet<u64>,
    wanted: Given<Wanted>,
    progress: Option<Report>,
) -> PyResult<Vec<ListedChunk>> {
    let heaps = heaps.0.lend();
    let found = watched(py, progress, |watcher| python::list_objects(watcher, heaps, &layout.0, &kinds, &wanted.0))?;
    Ok(found.into_iter().map(listed).collect())
}

/// The live objects of the types at `kinds`, in order and cut to `top`. `kinds`: types with the place of their names in the
/// alphabet. Raises ValueError for an unknown order,
/// KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, kinds, without, order, top=None, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn list_instances(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
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

/// Each size class, by size. Raises
/// KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, sizing, without, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn asked_sizes(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    sizing: Given<Sizing>,
    without: HashSet<u64>,
    progress: Option<Report>,
) -> PyResult<Vec<AskedSize>> {
    let heaps = heaps.0.lend();
    let ask = |watcher: &dyn gdbheap_core::Watcher| python::asked_sizes(watcher, heaps, &layout.0, &sizing.0, &without);
    let row = |(block_size, objects, bytes)| AskedSize { block_size, objects, bytes };
    Ok(watched(py, progress, ask)?.into_iter().map(row).collect())
}

/// One row for each of `growing` and of `tables`, of those that lie in blocks of `sizes`, in groups of equal ones; with `most` the first three are estimates, from that many groups of each size.
#[pyfunction]
#[pyo3(signature = (heaps, layout, pages, growing, tables, sizes, most=None))]
#[allow(clippy::too_many_arguments)]
pub fn list_slack(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    pages: Option<&Pages>,
    growing: Given<Vec<Growing>>,
    tables: Given<Vec<Table>>,
    sizes: Vec<Sizes>,
    most: Option<usize>,
) -> PyResult<Vec<Slack>> {
    let heaps = heaps.0.lend();
    let wanted = WantedSlack { growing: growing.0, tables: tables.0, sizes, most };
    let pages = pages.map(|pages| &*pages.0);
    let list = |watcher: &dyn gdbheap_core::Watcher| containers::list_slack(watcher, heaps, pages, &layout.0, &wanted);
    Ok(all(watched(py, None, list)?))
}

/// What a sample of at most `most` pools of each size says of all objects in blocks of at most 512 bytes.
#[pyfunction]
pub fn estimate_types(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    most: usize,
) -> PyResult<Vec<Estimate>> {
    let heaps = heaps.0.lend();
    Ok(all(watched(py, None, |watcher| python::estimate_types(watcher, heaps, &layout.0, most))?))
}

/// How often each distance from a block's start to an object occurs, by the flags of its type in
/// `mask`, over at most `most` pools of each size class, or without pools over chunks of each size, or over as
/// many pages of mimalloc if that is in use. The layout's own distances are not used.
#[pyfunction]
pub fn vote_distances(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    mask: u64,
    most: usize,
) -> PyResult<Vec<DistanceVotes>> {
    let heaps = heaps.0.lend();
    let found = watched(py, None, |watcher| python::vote_distances(watcher, heaps, &layout.0, mask, most))?;
    let row = |((flags, distance), blocks)| DistanceVotes { flags, distance, blocks };
    Ok(found.into_iter().map(row).collect())
}

/// The types that blocks of such a sample point to: `{address: tp_flags}`.
#[pyfunction]
pub fn sample_types(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    most: usize,
) -> PyResult<HashMap<u64, u64>> {
    let heaps = heaps.0.lend();
    watched(py, None, |watcher| python::sample_types(watcher, heaps, &layout.0, most))
}

/// What tracemalloc's tables hold. Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, tables, progress=None))]
pub fn count_traces(
    py: Python<'_>,
    heaps: &Heaps,
    tables: Given<Vec<TraceTable>>,
    progress: Option<Report>,
) -> PyResult<Traces> {
    let heaps = heaps.0.lend();
    let found = watched(py, progress, |watcher| python::count_traces(watcher, heaps.space, &tables.0))?;
    Ok(Traces { rows: all(found.rows), entries: found.entries })
}

/// Values that `least` objects or more of the types at `types` have, the `top` of them; `slices`: in how many passes, each
/// with as large a part of the distinct values in memory. `apart`: (start, end, number) of memory whose objects are equal only to
/// those of the same number. Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, values, types, without, apart, least, by_bytes, slices, top, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn equal_values(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    values: Given<Values>,
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

/// The objects of the types at `types` whose values have these hashes, by address, at most `most`. Raises
/// KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, values, types, without, apart, hashes, most, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn equal_objects(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    values: Given<Values>,
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
    let row = |(hash, address, size): python::Copied| EqualObject { hash, address, size };
    Ok(watched(py, progress, find)?.into_iter().map(row).collect())
}

/// The hashes of the values of the objects at these addresses; None where one cannot be read, or is of no kind that has one.
/// Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, values, addresses, progress=None))]
pub fn value_hashes(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    values: Given<Values>,
    addresses: Vec<u64>,
    progress: Option<Report>,
) -> PyResult<Vec<Option<u128>>> {
    let heaps = heaps.0.lend();
    watched(py, progress, |watcher| python::value_hashes(watcher, heaps, &layout.0, &values.0, &addresses))
}

/// Live objects of the types at `kinds` by the size of their block, where the type's offset is negative, else by the
/// number at that offset from the object, without its sign. Raises KeyboardInterrupt and whatever `progress(done, total)`
/// raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, kinds, without, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn tally_objects(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    kinds: HashMap<u64, i64>,
    without: HashSet<u64>,
    progress: Option<Report>,
) -> PyResult<Vec<Tallied>> {
    let heaps = heaps.0.lend();
    let tally =
        |watcher: &dyn gdbheap_core::Watcher| python::tally_objects(watcher, heaps, &layout.0, &kinds, &without);
    let row = |(key, count, bytes)| Tallied { key, count, bytes };
    Ok(watched(py, progress, tally)?.into_iter().map(row).collect())
}

/// How full the containers of the types at `kinds` are, each type with its place among `growing` and, after those, `tables`.
/// Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, kinds, growing, tables, without, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn count_fill(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    kinds: HashMap<u64, usize>,
    growing: Given<Vec<Growing>>,
    tables: Given<Vec<Table>>,
    without: HashSet<u64>,
    progress: Option<Report>,
) -> PyResult<Vec<ContainerFill>> {
    let heaps = heaps.0.lend();
    let wanted = WantedFill { kinds, growing: growing.0, tables: tables.0, without };
    let count = |watcher: &dyn gdbheap_core::Watcher| containers::count_fill(watcher, heaps, &layout.0, &wanted);
    Ok(all(watched(py, progress, count)?))
}
