//! The core as a Python module. This crate is a thin layer, with one file for each group of classes and functions.
//!
//! Work that takes long runs without the GIL (watch.rs). Arguments that are records are read from Python objects by the
//! names of their fields (records.rs). Results are classes with named fields (rows.rs).

// The arguments are passed by name from Python, so a function may have many.
#![allow(clippy::too_many_arguments)]

mod call_stats;
mod claimed_blocks;
mod detaching;
mod ending;
mod events;
mod following;
mod glibc;
mod graph;
mod heaps;
mod history;
mod jemalloc;
mod mallocng;
mod memory;
mod memory_use;
mod mimalloc;
mod objects;
mod oldmalloc;
mod packed;
mod packing;
mod process;
mod pymalloc;
mod records;
mod rows;
mod stacks;
mod structures;
mod symbols;
mod tcmalloc;
mod watch;

use pyo3::prelude::*;
use std::io::Write;

/// Adds the classes and functions of each of the named files to the Python module.
macro_rules! add {
    ($module:ident: $($part:ident),* $(,)?) => { $($part::add_to($module)?;)* };
}

/// Set a panic hook that prints one line with the place of a panic in gdbheap's code. Python gets the panic as an
/// exception. The default hook may also compute a backtrace under a lock, and would wait without end if memory runs out
/// meanwhile. A panic inside pyo3 is not printed: it means that there is no memory for a Python object, and the
/// exception says so.
fn say_panics_briefly() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| (at.file(), at.line())).unwrap_or_default();
        if !place.0.contains("pyo3") {
            let _ = writeln!(std::io::stderr(), "gdbheap: panic at {}:{}", place.0, place.1);
        }
    }));
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Create the counter of waiting children before this process forks, so that forked processes share the counter.
    gdbheap_access::child::apart::waiting();
    say_panics_briefly();
    module.add("Fault", module.py().get_type::<watch::Fault>())?;
    module.add("PRESENT", gdbheap_access::memory::PRESENT)?;
    module.add("SWAPPED", gdbheap_access::memory::SWAPPED)?;
    module.add("ZERO", gdbheap_access::memory::ZERO)?;
    module.add("OWN_MEMORY", gdbheap_access::process::OWN_MEMORY)?;
    module.add("NO_OWN_MEMORY", gdbheap_access::process::NO_OWN_MEMORY)?;
    module.add("NOT_STARTED", gdbheap_access::process::NOT_STARTED)?;
    module.add("BY_SIGNAL", gdbheap_access::process::BY_SIGNAL)?;
    module.add("STATES", gdbheap_core::allocators::glibc::STATES)?;
    add! {
        module: call_stats, claimed_blocks, ending, events, following, glibc, graph, heaps, history, jemalloc, mallocng, memory,
        memory_use, mimalloc, objects, oldmalloc, packed, packing, process, pymalloc, rows, stacks, structures,
        symbols, tcmalloc
    }
    module.py().import("atexit")?.call_method1("register", (module.getattr("hold_threads")?,))?;
    Ok(())
}
