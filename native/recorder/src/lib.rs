//! A library that a program is started with (LD_PRELOAD): it writes down each call of the allocator in a file of its own for
//! each process, below the folder that GDBHEAP_CALLS names.
//!
//! It starts no thread, allocates nothing, and keeps all that changes in memory that a forked child finds empty. The
//! program's own calls go on to whoever would have served them.

mod file;
mod hooks;
mod identity;
mod lock;
mod log;
mod order;
mod python;
mod real;
mod stacks;
mod stage;
mod state;
mod system;
mod turn;
