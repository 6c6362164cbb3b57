//! Python's objects in a target.

use crate::claimed::Claimed;
use crate::heaps::Heaps;
use crate::memory::Pages;
use crate::records::{records, Given};
use crate::rows::tally_pair;
use crate::watch::{raised, watched};
use gdbheap_core::allocators::glibc::{Listed, Wanted};
use gdbheap_core::python::containers::{self, Entries, Growing, Slack, Table, WantedSlack};
use gdbheap_core::python::{
    self, Claim, Estimate, Extent, Family, Instance, Measures, Owned, Question, Row, Sizing, Slab, TableHead,
    TypeLayout, WantedInstances,
};
use pyo3::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

records! {
    Extent { rule, at, unit, more }
    Claim { offset, test, mask, value, equal, role, follow, last, contents, count_at, extent }
    Family { flags, names, claims }
    Slab { block, header, item, names }
    TypeLayout {
        ob_refcnt, ob_type, tp_name, tp_basicsize, tp_itemsize, tp_flags, tp_base, smallest_heap_type, flag_gc,
        flag_type_subclass, hook, gc_head, flags_pre_header, pre_header, flag_no_minimum, flags_plain, shortened,
        state_size, slab, families, tp_dealloc, class_dealloc, closed, reached_role, names, data, unwalked,
    }
    Question { roots, registers, last, watched, unknown }
    Sizing {
        ob_size, tagged, flag_int, flag_str, str_length, str_state, str_state_shift, sizeof_ascii, sizeof_compact,
        flag_inline,
    }
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
    roots: Vec<Vec<(u64, u64)>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Claimed> {
    let heaps = heaps.0.lend();
    let find =
        |watcher: &dyn gdbheap_core::Watcher| python::find_claimed(watcher, heaps, &layout.0, &measures.0, &roots);
    Ok(Claimed(Arc::new(watched(py, progress, find)?)))
}

type Four = (u64, u64, u64, u64);

/// `(type address, tp_flags, own, owned)`; own: live count and bytes, idle count and bytes; owned: buffers, as
/// `(role, count, bytes)`.
type CensusRow = (u64, u64, Four, Vec<(u8, u64, u64)>);

fn census_row(row: Row) -> CensusRow {
    let owned = |owned: Owned| (owned.role, owned.buffers.count, owned.buffers.bytes);
    let own = (row.live.count, row.live.bytes, row.idle.count, row.idle.bytes);
    (row.kind, row.flags, own, row.owned.into_iter().map(owned).collect())
}

/// What one store has, by its name: used blocks `(count, bytes)`, and those of them that are neither objects nor claimed.
#[pyclass(frozen, get_all)]
pub struct StoreRow {
    name: &'static str,
    used: (u64, u64),
    unclassified: (u64, u64),
}

impl StoreRow {
    fn new(py: Python<'_>, row: python::StoreRow) -> PyResult<Py<StoreRow>> {
        let (used, unclassified) = (tally_pair(&row.used), tally_pair(&row.unclassified));
        Py::new(py, StoreRow { name: row.name, used, unclassified })
    }
}

/// The answer of a census; sizes in bytes.
#[pyclass(frozen, get_all)]
pub struct Census {
    /// One for each type that has objects.
    rows: Vec<CensusRow>,
    /// What each of the heaps' stores has.
    stores: Vec<Py<StoreRow>>,
    /// Of the watched blocks: `(block, owner's address, owner's type, role)`; for a block that a root leads to the
    /// type is 0, the role is the root's number, and the address is that of a word in the root.
    owners: Vec<(u64, u64, u64, u32)>,
    /// `(count, bytes)` of the blocks that each root leads to.
    roots: Vec<(u64, u64)>,
    /// The largest blocks of which nothing is known, largest first: `(user address, size)`.
    unknown: Vec<(u64, u64)>,
    /// Buffers that look like objects, by user address.
    contested: Vec<u64>,
    /// How long it took to find the owners of buffers, in seconds: as the walk went on, where workers share that, and to
    /// follow the pointers that lead to the rest.
    settling: f64,
    following: f64,
}

/// Classifies every used block. Raises KeyboardInterrupt and whatever
/// `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, question, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn take_census(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    question: Given<Question>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Census> {
    let heaps = heaps.0.lend();
    let take = |watcher: &dyn gdbheap_core::Watcher| python::take_census(watcher, heaps, &layout.0, &question.0);
    let found = watched(py, progress, take)?;
    Ok(Census {
        rows: found.rows.into_iter().map(census_row).collect(),
        stores: found.stores.into_iter().map(|row| StoreRow::new(py, row)).collect::<PyResult<_>>()?,
        owners: found.owners,
        roots: found.roots.iter().map(tally_pair).collect(),
        unknown: found.unknown,
        contested: found.contested,
        settling: found.settling.as_secs_f64(),
        following: found.following.as_secs_f64(),
    })
}

/// The object in each block `(user address, size, address inside it)`: `(object address, type address, alive)` or None.
/// Of a block that holds many the one at that address, else the first.
#[pyfunction]
pub fn objects_in(
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    blocks: Vec<(u64, u64, u64)>,
) -> Vec<Option<(u64, u64, bool)>> {
    python::objects_in(heaps.0.lend(), &layout.0, &blocks)
}

/// The wanted used chunks that look like live objects of one of the types at `kinds`, in no order:
/// `(header, size, state, arena)`. Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, kinds, wanted, progress=None))]
pub fn list_objects(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    kinds: HashSet<u64>,
    wanted: Given<Wanted>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Listed>> {
    let heaps = heaps.0.lend();
    watched(py, progress, |watcher| python::list_objects(watcher, heaps, &layout.0, &kinds, &wanted.0))
}

/// The live objects of the types at `kinds`, `(object, type, size, buffers)`, in order and cut to `top`, and before
/// them how many there are, their bytes and their buffers'. `kinds`: types with the place of their names in the
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
    progress: Option<Py<PyAny>>,
) -> PyResult<(u64, u64, u64, Vec<Instance>)> {
    let wanted = WantedInstances { kinds, without, order: order.parse().map_err(raised)?, top };
    let heaps = heaps.0.lend();
    let list = |watcher: &dyn gdbheap_core::Watcher| python::list_instances(watcher, heaps, &layout.0, &wanted);
    let (all, rows) = watched(py, progress, list)?;
    Ok((all.count, all.bytes, all.buffers, rows))
}

/// `(block size, objects that tell their size, bytes that they asked for)` of each size class, by size. Raises
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
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<(u64, u64, u64)>> {
    let heaps = heaps.0.lend();
    watched(py, progress, |watcher| python::asked_sizes(watcher, heaps, &layout.0, &sizing.0, &without))
}

/// Containers, small bytes, bytes of resident pages, what one has at most, its address.
type SlackRow = (u64, u64, u64, u64, u64);

/// One row for each of `growing` and of `tables`, of those that lie in blocks of `sizes`, each (smallest, largest), in
/// groups of equal ones; with `most` the first three are estimates, from that many groups of each size.
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
    sizes: Vec<(u64, u64)>,
    most: Option<usize>,
) -> PyResult<Vec<SlackRow>> {
    let heaps = heaps.0.lend();
    let wanted = WantedSlack { growing: growing.0, tables: tables.0, sizes, most };
    let pages = pages.map(|pages| &*pages.0);
    let list = |watcher: &dyn gdbheap_core::Watcher| containers::list_slack(watcher, heaps, pages, &layout.0, &wanted);
    let row = |slack: Slack| (slack.containers, slack.small, slack.pages, slack.most, slack.address);
    Ok(watched(py, None, list)?.into_iter().map(row).collect())
}

/// A type's address, live objects, their bytes, objects on free lists, their bytes.
type EstimateRow = (u64, u64, u64, u64, u64);

/// What a sample of at most `most` pools of each size says of all objects in blocks of at most 512 bytes.
#[pyfunction]
pub fn estimate_types(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    most: usize,
) -> PyResult<Vec<EstimateRow>> {
    let heaps = heaps.0.lend();
    let row = |found: Estimate| (found.kind, found.live, found.bytes, found.idle, found.idle_bytes);
    let found = watched(py, None, |watcher| python::estimate_types(watcher, heaps, &layout.0, most))?;
    Ok(found.into_iter().map(row).collect())
}

/// How often each distance from a block's start to an object occurs, by the flags of its type: `{(flags & mask,
/// distance): blocks}`, over at most `most` pools of each size class, or without pools over chunks of each size, or over as
/// many pages of mimalloc if that is in use. The layout's own distances are not used.
#[pyfunction]
pub fn vote_distances(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    mask: u64,
    most: usize,
) -> PyResult<HashMap<(u64, u64), u64>> {
    let heaps = heaps.0.lend();
    watched(py, None, |watcher| python::vote_distances(watcher, heaps, &layout.0, mask, most))
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
