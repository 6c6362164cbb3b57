//! The classes and functions for tcmalloc of gperftools that Python sees. Any module of the process may contain the
//! tcmalloc.

use crate::detaching::detached;
use crate::heaps::ExtentStore;
use crate::memory::{Pages, Space};
use crate::packing::{copied, Packing};
use crate::rows::{all, answers, damage_rows, exports, Damage, Range};
use crate::watch::watched;
use gdbheap_core::allocators::tcmalloc::{self, MapShape, TcmallocRoot};
use gdbheap_core::allocators::Use;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

answers! {
    /// The address of the root of a page map in static data, and the size of a page in bytes.
    struct FoundSpanMap of tcmalloc::FoundMap { address: u64, page: u64 }

    /// The number of spans that were checked, and the number of consistent spans among them. In a consistent span, the
    /// free blocks and the count of other blocks add up to the capacity.
    struct TcmallocFit of tcmalloc::TcmallocFit { spans: u64, fit: u64 }

    /// The memory of one tcmalloc, in bytes.
    ///
    /// - `used`: used blocks.
    /// - `listed`, `transfer`, `cached`: free blocks in their spans, in transfer caches, and in thread caches.
    /// - `waste`: leftover bytes in spans.
    /// - `free`, `returned`: free pages that tcmalloc keeps, and those that it has returned to the kernel.
    /// - `metadata`: tcmalloc's own data.
    struct TcmallocUse of tcmalloc::TcmallocUse {
        used: u64,
        listed: u64,
        transfer: u64,
        cached: u64,
        waste: u64,
        free: u64,
        returned: u64,
        metadata: u64,
    }

    /// The blocks of one size: the number of spans, and the numbers of blocks that are used, free in their spans
    /// (`listed`), in transfer caches, and in thread caches (`cached`).
    struct TcmallocSizeUse of tcmalloc::SizeUse {
        root: u32,
        size: u64,
        spans: u64,
        used: u64,
        listed: u64,
        transfer: u64,
        cached: u64,
    }

    /// A thread cache: its address, the number of its blocks, and their bytes. `root`: the index of its tcmalloc among
    /// those that were read.
    struct TcmallocCache of tcmalloc::CacheUse { root: u32, address: u64, blocks: u64, bytes: u64 }

    /// The inconsistencies that exist because threads were inside tcmalloc.
    ///
    /// - `locked`: the number of locks of central lists that are held.
    /// - `chains`: the number of chains of free blocks whose length or last block differs from the recorded one.
    /// - `astray`: the number of entries of chains that are also free elsewhere, or are not blocks.
    struct TcmallocInMotion of tcmalloc::InMotion { locked: u64, chains: u64, astray: u64 }
}

exports! {
    classes: Tcmalloc;
    functions: find_span_maps, tcmalloc_fit, read_tcmalloc;
}

/// All blocks of one or more tcmallocs, by address.
#[pyclass(frozen, extends = ExtentStore)]
pub struct Tcmalloc(tcmalloc::Tcmalloc);

#[pymethods]
impl Tcmalloc {
    /// Return how many blocks of each size are used, and how many are free in each kind of list or cache.
    fn sizes(&self) -> Vec<TcmallocSizeUse> {
        all(self.0.sizes())
    }

    /// Return the memory that would be freed if the program copied the blocks of spans and then freed the old blocks.
    /// Without `pages`, all pages count as resident.
    #[pyo3(signature = (pages))]
    fn packing(&self, py: Python<'_>, pages: Option<&Pages>) -> Packing {
        let pages = pages.map(|pages| pages.0.clone());
        detached(py, || copied(self.0.slabs(), pages.as_deref()))
    }

    /// Return for each tcmalloc how many bytes its blocks, free pages and metadata take.
    fn sums(&self) -> Vec<TcmallocUse> {
        all(self.0.sums())
    }

    /// The thread caches that were found.
    #[getter]
    fn holding(&self) -> Vec<TcmallocCache> {
        all(self.0.holding.iter().copied())
    }

    /// For each tcmalloc, the number of thread caches that were found; None if its central lists were not found.
    #[getter]
    fn caches(&self) -> Vec<Option<usize>> {
        self.0.caches.clone()
    }

    #[getter]
    fn moving(&self) -> TcmallocInMotion {
        self.0.moving.into()
    }

    /// Return [start, end) of free pages that were not returned to the kernel, ascending.
    fn unused(&self) -> Vec<Range> {
        self.0.extents.pieces_of(Use::Free)
    }

    /// Spans in which the number of free blocks and the count of other blocks do not add up.
    #[getter]
    fn miscounted(&self) -> Vec<Damage> {
        damage_rows(&self.0.miscounted)
    }

    /// Broken lists of free blocks outside spans.
    #[getter]
    fn broken(&self) -> Vec<Damage> {
        damage_rows(&self.0.broken)
    }
}

/// Make the core's record of a tcmalloc. Raises ValueError for an impossible page size.
fn root(root: u64, page: u64, data: Vec<Range>) -> PyResult<TcmallocRoot> {
    let shape = MapShape::of(page);
    let shape = shape.ok_or_else(|| PyValueError::new_err(format!("no tcmalloc has pages of {page} bytes")))?;
    Ok(TcmallocRoot { root, shape, data })
}

/// Return the roots of page maps in static data (`data`) that point to `anonymous` memory. In both lists, the ranges
/// must be ascending and must not touch.
#[pyfunction]
pub fn find_span_maps(
    py: Python<'_>,
    space: &Space,
    data: Vec<Range>,
    anonymous: Vec<Range>,
) -> PyResult<Vec<FoundSpanMap>> {
    Ok(all(watched(py, None, |watcher| tcmalloc::find_page_maps(watcher, &space.0, &data, &anonymous))?))
}

/// Check how well the spans of a page map fit the size classes in the static data of its module. Raises ValueError for
/// an impossible page size.
#[pyfunction]
pub fn tcmalloc_fit(py: Python<'_>, space: &Space, address: u64, page: u64, data: Vec<Range>) -> PyResult<TcmallocFit> {
    let root = root(address, page, data)?;
    Ok(watched(py, None, |watcher| tcmalloc::fit_of(watcher, &space.0, &root))?.into())
}

/// Read one or more tcmallocs. `roots`: for each tcmalloc, the root of its page map, the size of a page in bytes, and
/// the static data of its module. `anonymous`: where the memory of the tcmallocs may lie, ascending. Raises ValueError
/// for an impossible page size.
#[pyfunction]
pub fn read_tcmalloc(
    py: Python<'_>,
    space: &Space,
    anonymous: Vec<Range>,
    roots: Vec<(u64, u64, Vec<Range>)>,
) -> PyResult<Py<Tcmalloc>> {
    let roots = roots.into_iter().map(|(address, page, data)| root(address, page, data));
    let roots = roots.collect::<PyResult<Vec<TcmallocRoot>>>()?;
    let found = watched(py, None, |watcher| tcmalloc::read_tcmalloc(watcher, &space.0, &anonymous, &roots))?;
    ExtentStore::with(py, found.extents.clone(), Tcmalloc(found))
}
