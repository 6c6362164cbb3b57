//! Makes Python the watcher of the core's work, and converts the core's errors to Python exceptions.

use crate::detaching::detached;
use gdbheap_core::{Cancellation, Error, MissingByte, Progress, Watcher};
use pyo3::exceptions::{
    PyKeyboardInterrupt, PyMemoryError, PyOSError, PyOverflowError, PyRuntimeError, PyTimeoutError, PyValueError,
};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

pyo3::create_exception!(
    gdbheap._native,
    Fault,
    pyo3::exceptions::PyException,
    "Bytes that are not there; args[0] is the first address."
);

/// A Python function that is called as `report(done, total)`.
pub type Report = Py<PyAny>;

/// A watcher that reports progress to Python and runs Python's signal handlers. It stores the first exception that one
/// of these calls raises.
struct Watch {
    progress: Option<Report>,
    failure: Mutex<Option<PyErr>>,
    /// Whether a signal handler has raised an exception.
    is_told: AtomicBool,
}

impl Watcher for Watch {
    fn attend(&self, progress: Option<Progress>) -> Result<(), Cancellation> {
        // A thread cannot attach to an interpreter that is shutting down.
        let attended = Python::try_attach(|py| {
            let mut answer = py.check_signals();
            self.is_told.fetch_or(answer.is_err(), Ordering::Relaxed);
            if let (Ok(()), Some(callable), Some(Progress { done, total })) = (&answer, &self.progress, progress) {
                answer = callable.call1(py, (done, total)).map(drop);
            }
            answer.map_err(|error| {
                self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
                Cancellation
            })
        });
        attended.unwrap_or(Err(Cancellation))
    }

    fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }
}

/// Do `work` without the GIL. The GIL is taken back a few times a second, to report progress and to check for signals.
pub fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<Report>,
    work: impl FnOnce(&dyn Watcher) -> gdbheap_core::Result<T> + Send,
) -> PyResult<T> {
    let watch = Watch { progress, failure: Mutex::new(None), is_told: AtomicBool::new(false) };
    let answer = detached(py, || work(&watch));
    // A failure is raised even if the work finished, because nothing else would report it.
    match watch.failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(failure) => Err(failure),
        None => answer.map_err(raised),
    }
}

/// Return the Python exception for an error of the core.
pub fn raised(error: Error) -> PyErr {
    match error {
        Error::Missing(missing) => fault(missing),
        Error::Cancelled => PyKeyboardInterrupt::new_err(()),
        Error::Io(error) => PyOSError::new_err((error.raw_os_error(), error.to_string())),
        Error::Invalid(text) => PyValueError::new_err(text),
        Error::Memory(text) => PyMemoryError::new_err(text),
        Error::Overflow(text) => PyOverflowError::new_err(text),
        Error::Timeout(text) => PyTimeoutError::new_err(text),
        Error::Failed(text) => PyRuntimeError::new_err(text),
    }
}

pub fn fault(missing: MissingByte) -> PyErr {
    Fault::new_err(missing.0)
}
