//! Records that Python receives: frozen classes with named fields. This file has the records that several parts share.

use crate::records::{records, FromObject};
use crate::watch::raised;
use gdbheap_core::allocators::{self, BlockOrder, BlockQuery};
use pyo3::prelude::*;

/// A range of addresses, `[start, end)`.
pub type Range = (u64, u64);

/// An address, and the size of the object or block at that address.
pub type Place = (u64, u64);

/// Return the repr of a record: `Damage(address=16, …)`.
pub fn shown(record: &Bound<'_, PyAny>, name: &str, fields: &[&str]) -> PyResult<String> {
    let shown = |field: &&str| Ok(format!("{field}={}", record.getattr(*field)?.repr()?));
    Ok(format!("{name}({})", fields.iter().map(shown).collect::<PyResult<Vec<_>>>()?.join(", ")))
}

/// Declares classes whose fields Python reads by name. `of`: the record of the core that has the same fields.
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
    )*
        /// Add the record classes of this file to the module.
        fn add_answers(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
            $(pyo3::types::PyModuleMethods::add_class::<$name>(_module)?;)*
            Ok(())
        }
    };
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

/// Declares the classes and functions that a file adds to the module.
macro_rules! exports {
    ($(classes: $($class:ident),*;)? $(functions: $($function:ident),*;)?) => {
        pub fn add_to(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
            add_answers(module)?;
            $($(pyo3::types::PyModuleMethods::add_class::<$class>(module)?;)*)?
            $($(pyo3::types::PyModuleMethods::add_function(module, pyo3::wrap_pyfunction!($function, module)?)?;)*)?
            Ok(())
        }
    };
}
pub(crate) use exports;

answers! {
    /// A mistake in the data of an allocator, at `address`.
    ///
    /// - `what`: the name of the structure there.
    /// - `expected`, `found`: the right content, and the content that is there.
    /// - `is_absent`: whether the memory is missing instead.
    struct Damage of allocators::Damage {
        address: u64,
        what: &'static str,
        expected: String,
        found: String,
        is_absent: bool,
    }

    /// A number of blocks, and the bytes of these blocks.
    struct Tally of allocators::Tally { count: u64, bytes: u64 }

    /// A block, or another part of an allocator's memory: its address, its size, and its use.
    struct Block { address: u64, size: u64, state: &'static str }

    /// A hole: unused bytes [start, end).
    ///
    /// - `arena`: the allocator's number of the arena; None if the allocator has no arenas.
    /// - `address`: the address that the allocator would return for the first of the free blocks.
    /// - `before`, `after`: the blocks next to the hole; None at the ends of a region.
    struct Hole {
        start: u64,
        end: u64,
        address: u64,
        arena: Option<u32>,
        before: Option<Block>,
        after: Option<Block>,
    }

    /// The blocks of one size. `groups`: the number of pools or pages that have such blocks. `used`, `free`: the
    /// numbers of used and of free blocks.
    struct SizeClass { block_size: u64, groups: u64, used: u64, free: u64 }

    /// The memory that malloc_trim() would release from free chunks, in bytes: the whole pages, and the resident and
    /// the swapped part of these pages.
    struct PageSum of allocators::glibc::PageSum { whole: u64, resident: u64, swapped: u64 }

    /// A block of a group or a list. `used`: whether the block is in use; if false, it is in a cache of the allocator.
    struct Member { address: u64, size: u64, used: bool }

    /// A block in a list. `arena`: the number of the block's arena; None if the allocator has no arenas.
    struct BlockRow of allocators::BlockRow { address: u64, size: u64, arena: Option<u32> }

    /// The number of blocks that match, the bytes of these blocks, and the first of these blocks.
    struct BlockList { count: u64, bytes: u64, rows: Vec<BlockRow> }
}

exports! {}

impl From<allocators::BlockList> for BlockList {
    fn from(found: allocators::BlockList) -> BlockList {
        BlockList { count: found.count, bytes: found.bytes, rows: all(found.rows) }
    }
}

impl From<allocators::Hole> for Hole {
    fn from(found: allocators::Hole) -> Hole {
        let allocators::Hole { start, end, arena, before, after } = found;
        Hole { start, end, address: start, arena, before: before.map(block), after: after.map(block) }
    }
}

impl FromObject for BlockOrder {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<BlockOrder> {
        object.extract::<String>()?.parse().map_err(raised)
    }
}

records! {
    BlockQuery { least, largest, used, cached, arena, order, most }
}

pub fn damage_rows<'a>(damage: impl IntoIterator<Item = &'a allocators::Damage>) -> Vec<Damage> {
    damage.into_iter().cloned().map(Damage::from).collect()
}

/// Convert a block of the core, `(address, size, state)`, to the record that Python receives.
pub fn block((address, size, state): (u64, u64, &'static str)) -> Block {
    Block { address, size, state }
}

/// Return the record of a used block.
pub fn used((address, size): Place) -> Member {
    Member { address, size, used: true }
}

/// Convert a size class of the core, `(block size, groups, used blocks, free blocks)`, to the record that Python
/// receives.
pub fn size_class((block_size, groups, used, free): (u64, u64, u64, u64)) -> SizeClass {
    SizeClass { block_size, groups, used, free }
}

/// Convert rows of the core to the records that Python receives.
pub fn all<A, B: From<A>>(rows: impl IntoIterator<Item = A>) -> Vec<B> {
    rows.into_iter().map(B::from).collect()
}
