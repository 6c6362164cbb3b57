//! A library that is preloaded into a program (LD_PRELOAD). It records each allocator call in one file per process, in
//! the folder that GDBHEAP_CALLS names.
//!
//! It starts no thread and allocates nothing. All data that changes is in memory that is empty in a forked child. The
//! program's calls are passed on to the functions that would have served them.

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
