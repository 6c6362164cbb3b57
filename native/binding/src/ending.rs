//! The function that Python calls when it ends.

use crate::detaching::hold_others;
use crate::rows::{answers, exports};
use pyo3::prelude::*;

answers! {}

/// Keep all other threads from taking the GIL again. Python calls this function when it ends (atexit).
#[pyfunction]
fn hold_threads(py: Python<'_>) {
    hold_others(py);
}

exports! {
    functions: hold_threads;
}
