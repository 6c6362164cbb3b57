//! A live process: stopping it, copying it, looking at its threads, making a call in one of them.

pub(crate) mod accounts;
pub(crate) mod call;
pub(crate) mod chase;
pub(crate) mod descriptor;
pub(crate) mod follower;
pub(crate) mod frozen;
pub(crate) mod guard;
pub(crate) mod injection;
pub(crate) mod launch;
#[cfg(target_arch = "x86_64")]
pub(crate) mod limits;
pub(crate) mod living;
pub mod named;
mod one_memory;
pub mod patch;
pub(crate) mod pipe;
pub(crate) mod program_memory;
pub(crate) mod ptrace;
pub(crate) mod registers;
mod sharers;
pub(crate) mod stop;
pub(crate) mod telling;
pub(crate) mod tracepoint;
pub(crate) mod tracer;
pub(crate) mod unwind;

pub use crate::folder::ProcessFolder;
pub use accounts::{accounts, every_process, Account, Memory};
pub use call::{call, look, Answer, Bytes, End, Look, Plan, Style};
pub use chase::{return_from_trap, Course};
pub use descriptor::{filesystem, owned};
pub use follower::Follower;
pub use frozen::Frozen;
pub use guard::restore_left;
pub use launch::Start;
pub use one_memory::have_one_memory;
pub use program_memory::ProgramMemory;
pub use sharers::has_sharer;
pub use stop::{Stop, Thread};
pub use telling::{Finish, Hit};
pub use tracepoint::{tracepoint, Traced, Tracepoint};
pub use unwind::{mentions, unwind_stacks, Module, Stack, Unwinder, Unwound, REGISTERS, RSP};
