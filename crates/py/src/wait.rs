//! What all calls share: waiting without the interpreter's lock and who ends it, times, addresses.

use parking_lot::Mutex;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTimeoutError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySequence, PyString, PyTuple};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

/// A wait is made of such ones, between which signals are looked at: Ctrl-C works.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

pub(crate) fn timeout_of(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    let timeout = Duration::try_from_secs_f64(seconds);
    timeout
        .map(Some)
        .map_err(|_| PyValueError::new_err("a timeout is a number of seconds, 0 or more, or None"))
}

/// A time of which every wait has one.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    Ok(timeout_of(Some(seconds))?.unwrap_or_default())
}

/// An object as the bytes of its pickle.
pub(crate) fn pickled<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let pickle = object.py().import("pickle")?;
    pickle.call_method1("dumps", (object, pickle.getattr("HIGHEST_PROTOCOL")?))
}

thread_local! {
    /// Who is asked whether what this thread waits for is wanted no longer.
    static OVER: RefCell<Option<Py<PyAny>>> = const { RefCell::new(None) };
}

/// Calls `call(*arguments)`. What waits in it, in this thread, ends as if time were up once `over()`, which is asked ten
/// times a second or more, returns what is true.
#[pyfunction]
#[pyo3(signature = (over, call, /, *arguments))]
pub(crate) fn call_unless<'py>(
    over: Bound<'py, PyAny>,
    call: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let before = OVER.replace(Some(over.unbind()));
    let came = call.call1(arguments);
    OVER.set(before);
    came.map_err(|error| {
        let py = call.py();
        if !error.is_instance_of::<PyStopIteration>(py) {
            return error;
        }
        // No future takes it.
        let other = PyRuntimeError::new_err("a function that was called raised StopIteration");
        other.set_cause(py, Some(error));
        other
    })
}

/// Looks at signals, and asks whether the call that waits is wanted no longer.
pub(crate) fn is_over(py: Python<'_>) -> PyResult<bool> {
    py.check_signals()?;
    // Whoever is asked may wait for something, too.
    let over = OVER.with_borrow(|over| over.as_ref().map(|over| over.clone_ref(py)));
    over.map_or(Ok(false), |over| over.bind(py).call0()?.is_truthy())
}

/// Tries, with the interpreter's lock released, until there is a value or time is up.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    mut attempt: impl FnMut(Duration) -> PyResult<Option<T>> + Send,
) -> PyResult<Option<T>> {
    let deadline = timeout_of(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = left.unwrap_or(SLICE).min(SLICE);
        if let Some(value) = py.detach(|| attempt(slice))? {
            return Ok(Some(value));
        }
        if left.is_some_and(|left| left <= slice) {
            return Ok(None);
        }
        if is_over(py)? {
            return Ok(None);
        }
    }
}

/// What ends the waiting of something that waits by itself without the interpreter's lock: a signal whose handler
/// raises, such as Ctrl-C, or that its call is wanted no longer. Where several threads wait by the same, what was raised
/// in one of them is for that one.
#[derive(Clone, Default)]
pub(crate) struct Signals(Arc<Mutex<Option<(ThreadId, PyErr)>>>);

impl Signals {
    /// Looks; whether the waiting ends.
    pub fn interrupt(&self) -> bool {
        Python::attach(is_over).unwrap_or_else(|raised| {
            *self.0.lock() = Some((current().id(), raised));
            true
        })
    }

    /// What waited in this thread is over: what it came to, unless something raised ended it.
    pub fn outcome<T>(&self, came: PyResult<T>) -> PyResult<T> {
        let raised = self.0.lock().take_if(|(thread, _)| *thread == current().id());
        raised.map_or(came, |(_, raised)| Err(raised))
    }
}

pub(crate) fn in_time<T>(value: Option<T>) -> PyResult<T> {
    value.ok_or_else(|| PyTimeoutError::new_err("nothing was there within the time given"))
}

/// Takes an argument that is several of what one text is, too; for `from_py_with`.
pub(crate) fn several<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
    if value.is_instance_of::<PyString>() {
        let one = value.repr()?;
        return Err(PyTypeError::new_err(format!("{one} is a single one: it takes a list of them")));
    }
    listed(value)
}

/// What a sequence has. Memory is taken for what has come of it, not for how long it says that it is.
pub(crate) fn listed<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
    if value.is_instance_of::<PyDict>() || !value.hasattr("__getitem__")? {
        value.cast::<PySequence>()?;
    }
    value.try_iter()?.map(|item| item?.extract::<T>().map_err(Into::into)).collect()
}

/// The first address of a host and a port. Asking for a name may take long.
pub(crate) fn resolve(py: Python<'_>, address: &str) -> PyResult<SocketAddr> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    py.detach(|| denrei::resolve(address)).map_err(PyValueError::new_err)
}
