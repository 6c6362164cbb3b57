//! What Python sees of `call`: the same for threads that `Stop` holds and for those of the debugger that we run in.

use crate::call::{self, Answer, End, Look, Plan, Style};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// `([(function, arguments)], restorer, keeper, index of keeper's register, bytes by which keeper moves the stack
/// pointer, descriptor that is captured or -1, whether the thread is filtered by seccomp, limit in seconds, whether the
/// thread finishes by itself after that, [(address, bytes)] to put back in any case, and after a call that was undone)`.
pub type PlanRow =
    (Vec<(u64, Vec<u64>)>, u64, u64, usize, u64, i32, bool, f64, bool, Vec<(u64, Vec<u8>)>, Vec<(u64, Vec<u8>)>);

/// `("returned", "abandoned", "left", "gone" or "signal N", result, captured bytes, the limit that it had in seconds)`.
pub type AnswerRow = (String, u64, Vec<u8>, f64);

/// `(registers, shadow stack, syscall user dispatch, rseq_cs, entering a system call, bytes of vector state)`.
pub type LookRow = (Vec<u64>, bool, bool, u64, bool, usize);

/// Registers in which a caller's value survives a function: rbx, rbp, r12 to r15 of `user_regs_struct`.
const KEPT: [usize; 6] = [5, 4, 3, 2, 1, 0];

pub fn plan(row: PlanRow) -> PyResult<Plan> {
    let (calls, restorer, keeper, keeper_register, keeper_skips, captured, filtered, limit, leaves, kept, freed) = row;
    let fits = calls.iter().all(|(_, arguments)| arguments.len() <= 6);
    if !fits || !KEPT.contains(&keeper_register) || keeper_skips > 256 || keeper_skips % 8 != 0 {
        return Err(pyo3::exceptions::PyValueError::new_err("not a plan of a call"));
    }
    let limit = Duration::from_secs_f64(limit.clamp(0.0, 1e6));
    let cancelled = Arc::default();
    Ok(Plan {
        calls,
        restorer,
        keeper,
        keeper_register,
        keeper_skips,
        captured,
        filtered,
        limit,
        cancelled,
        leaves,
        kept,
        freed,
    })
}

pub fn answer_row(answer: Answer, limit: Duration) -> AnswerRow {
    let end = match answer.end {
        End::Returned => "returned".to_string(),
        End::Abandoned => "abandoned".to_string(),
        End::Left => "left".to_string(),
        End::Gone => "gone".to_string(),
        End::Failed(signal) => format!("signal {signal}"),
    };
    (end, answer.value, answer.text, limit.as_secs_f64())
}

pub fn look_row(look: Look) -> LookRow {
    let Look { registers, shadow_stack, dispatched, sequence, entering, vector_size } = look;
    (registers, shadow_stack, dispatched, sequence, entering, vector_size)
}

/// What decides whether a call may be made in a thread that this thread's debugger holds. Raises OSError.
#[pyfunction]
pub fn look_at_thread(tid: i32) -> PyResult<LookRow> {
    Ok(look_row(call::look(tid).map_err(crate::space::os_error)?))
}

/// Makes a call in a thread that is attached to by PTRACE_ATTACH, as gdb does. Raises OSError, ValueError.
#[pyfunction]
pub fn call_in_thread(py: Python<'_>, tid: i32, row: PlanRow) -> PyResult<AnswerRow> {
    let plan = plan(row)?;
    let answer = py.detach(|| call::call(tid, Style::Attached, &plan));
    Ok(answer_row(answer.map_err(crate::space::os_error)?, plan.limit))
}
