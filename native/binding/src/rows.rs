//! Records that Python is handed: frozen classes with a name for each field, and those that several parts share.

use crate::records::{records, Read};
use crate::watch::raised;
use gdbheap_core::allocators::{self, Asked, Order};
use pyo3::prelude::*;

/// `[start, end)`.
pub type Range = (u64, u64);

/// An address, and the size of what lies there.
pub type Place = (u64, u64);

/// The text of a record: `Damage(address=16, …)`.
pub fn shown(record: &Bound<'_, PyAny>, name: &str, fields: &[&str]) -> PyResult<String> {
    let shown = |field: &&str| Ok(format!("{field}={}", record.getattr(*field)?.repr()?));
    Ok(format!("{name}({})", fields.iter().map(shown).collect::<PyResult<Vec<_>>>()?.join(", ")))
}

/// Declares classes whose fields Python reads by their names. `of` names the record of the core with the same fields.
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
    /// What lies at `address` is not what it must be.
    struct Damage of allocators::Damage { address: u64, what: &'static str, expected: String, found: String }

    /// Blocks of one kind, and their bytes.
    struct Tally of allocators::Tally { count: u64, bytes: u64 }

    /// A block, or what else lies in an allocator's memory: where it begins, its size, and what it is.
    struct Block { address: u64, size: u64, state: &'static str }

    /// Bytes [start, end) that nobody holds, the allocator's number of the arena if it has arenas, what it would return for
    /// the first of the free blocks, and the blocks before and after them unless they touch an end.
    struct Hole {
        start: u64,
        end: u64,
        address: u64,
        arena: Option<u32>,
        before: Option<Block>,
        after: Option<Block>,
    }

    /// The blocks of one size: groups (pools, pages) that have some, and how many blocks are used and free.
    struct SizeClass { block_size: u64, groups: u64, used: u64, free: u64 }

    /// What malloc_trim() would release of free chunks, in bytes: whole pages, and how much of these is there.
    struct Released of allocators::glibc::Released { whole: u64, resident: u64, swapped: u64 }

    /// A block of a group that keeps pages: in use, or only kept by a cache.
    struct Member { address: u64, size: u64, used: bool }

    /// A block in a list, and the number of its arena where its allocator has arenas.
    struct BlockRow of allocators::BlockRow { address: u64, size: u64, arena: Option<u32> }

    /// How many blocks are meant, their bytes, and the first of them.
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

/// A block as the core has it: `(address, size, state)`.
pub fn block((address, size, state): (u64, u64, &'static str)) -> Block {
    Block { address, size, state }
}

/// A block that is in use.
pub fn used((address, size): Place) -> Member {
    Member { address, size, used: true }
}

/// A size as the core has it: `(block size, groups, used blocks, free blocks)`.
pub fn size_class((block_size, groups, used, free): (u64, u64, u64, u64)) -> SizeClass {
    SizeClass { block_size, groups, used, free }
}

/// All of them, as what Python is handed.
pub fn all<A, B: From<A>>(rows: impl IntoIterator<Item = A>) -> Vec<B> {
    rows.into_iter().map(B::from).collect()
}
