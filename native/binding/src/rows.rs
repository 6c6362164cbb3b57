//! Records that Python receives: frozen classes with named fields. This file has those that several parts share.

use crate::records::{records, Read};
use crate::watch::raised;
use gdbheap_core::allocators::{self, Asked, Order};
use pyo3::prelude::*;

/// `[start, end)`.
pub type Range = (u64, u64);

/// An address, and the size of what lies there.
pub type Place = (u64, u64);

/// Return the repr of a record: `Damage(address=16, …)`.
pub fn shown(record: &Bound<'_, PyAny>, name: &str, fields: &[&str]) -> PyResult<String> {
    let shown = |field: &&str| Ok(format!("{field}={}", record.getattr(*field)?.repr()?));
    Ok(format!("{name}({})", fields.iter().map(shown).collect::<PyResult<Vec<_>>>()?.join(", ")))
}

/// Declares classes whose fields Python reads by name. `of` names the record of the core with the same fields.
macro_rules! answers {
    ($($(#[$about:meta])* struct $name:ident $(of $core:ty)? { $($(#[$what:meta])* $field:ident: $type:ty),* $(,)? })*)
    => {$(
        $(#[$about])*
        #[pyo3::pyclass(frozen, get_all, eq, module = "gdbheap._native")]
        #[derive(Clone, PartialEq)]
        pub struct $name { $($(#[$what])* pub $field: $type),* }

        #[pyo3::pymethods]
        impl $name {
            fn __repr__(slf: &pyo3::Bound<'_, Self>) -> pyo3::PyResult<String> {
                $crate::rows::shown(slf.as_any(), stringify!($name), &[$(stringify!($field)),*])
            }
        }

        $crate::rows::answers! { @from $name $($core)? { $($field),* } }
    )*};
    (@from $name:ident { $($field:ident),* }) => {};
    (@from $name:ident $core:ty { $($field:ident),* }) => {
        impl From<$core> for $name {
            fn from(row: $core) -> $name {
                $name { $($field: row.$field.into()),* }
            }
        }
    };
}
pub(crate) use answers;

answers! {
    /// Something at `address` is not what it must be.
    struct Damage of allocators::Damage { address: u64, what: &'static str, expected: String, found: String }

    /// A number of blocks, and their bytes.
    struct Tally of allocators::Tally { count: u64, bytes: u64 }

    /// A block, or another part of an allocator's memory: its address, its size, and what it is.
    struct Block { address: u64, size: u64, state: &'static str }

    /// Unused bytes [start, end). `arena`: the allocator's number of the arena, None if it has no arenas. `address`:
    /// what the allocator would return for the first of the free blocks. `before`, `after`: the adjacent blocks; None
    /// at the ends.
    struct Hole {
        start: u64,
        end: u64,
        address: u64,
        arena: Option<u32>,
        before: Option<Block>,
        after: Option<Block>,
    }

    /// The blocks of one size. `groups`: the pools or pages that have such blocks. `used`, `free`: the number of
    /// blocks.
    struct SizeClass { block_size: u64, groups: u64, used: u64, free: u64 }

    /// What malloc_trim() would release of free chunks, in bytes: whole pages, and the resident and swapped parts of
    /// them.
    struct Released of allocators::glibc::Released { whole: u64, resident: u64, swapped: u64 }

    /// A block of a group that pins pages. `used`: False if only a cache keeps it.
    struct Member { address: u64, size: u64, used: bool }

    /// A block in a list. `arena`: the number of its arena; None if its allocator has no arenas.
    struct BlockRow of allocators::BlockRow { address: u64, size: u64, arena: Option<u32> }

    /// The number of blocks that match, their bytes, and the first of them.
    struct BlockList { count: u64, bytes: u64, rows: Vec<BlockRow> }
}

impl From<allocators::BlockList> for BlockList {
    fn from(found: allocators::BlockList) -> BlockList {
        BlockList { count: found.count, bytes: found.bytes, rows: all(found.rows) }
    }
}

impl Read for Order {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Order> {
        object.extract::<String>()?.parse().map_err(raised)
    }
}

records! {
    Asked { least, largest, used, cached, arena, order, most }
}

pub fn damage_rows<'a>(damage: impl IntoIterator<Item = &'a allocators::Damage>) -> Vec<Damage> {
    damage.into_iter().cloned().map(Damage::from).collect()
}

/// Convert a block of the core: `(address, size, state)`.
pub fn block((address, size, state): (u64, u64, &'static str)) -> Block {
    Block { address, size, state }
}

/// Return a used block.
pub fn used((address, size): Place) -> Member {
    Member { address, size, used: true }
}

/// Convert a size class of the core: `(block size, groups, used blocks, free blocks)`.
pub fn size_class((block_size, groups, used, free): (u64, u64, u64, u64)) -> SizeClass {
    SizeClass { block_size, groups, used, free }
}

/// Convert rows of the core to what Python receives.
pub fn all<A, B: From<A>>(rows: impl IntoIterator<Item = A>) -> Vec<B> {
    rows.into_iter().map(B::from).collect()
}
