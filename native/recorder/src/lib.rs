//! A library that is preloaded into a program (LD_PRELOAD). It records the allocator calls of each process in a file,
//! in the folder that GDBHEAP_CALLS names.
//!
//! The library starts no thread and allocates nothing. All data that changes is in memory that is empty in a forked
//! child. The program's calls are passed on to the functions that would have served them without the library.

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
