//! Collective operations over a set of nodes (U9, S12).

use crate::buffer::message_of;
use crate::error::{self, DenreiError};
use crate::held::Closable;
use crate::node::Node;
use crate::number::numbers;
use crate::wait::{SLICE, Signals, resolve, seconds, several};
use denrei::{Bytes, COLLECTIVE_CHANNEL, CollectiveError};
use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::time::{Duration, Instant};

// Signatures that Python shows have the number itself.
const _: () = assert!(COLLECTIVE_CHANNEL == 15);

/// How long leaving a block waits for the others, seconds.
const CLOSE_LIMIT_S: f64 = 30.0;

/// A set of nodes that work together: every node calls the same operations in the same order. Rank 0
/// is the first. Waits at most `timeout` seconds (`TimeoutError` then, which names the ranks missing). That
/// operation is over for all, and the set goes on with the next: a node that had not come to it calls it still, and
/// hears at once that others gave up (`TimeoutError`). One whose process has ended stays away: each operation that needs
/// something of all ends as soon as it is missed, with an error that names it (`PeerLost` at rank 0, `TimeoutError`
/// elsewhere), and broadcasts reach those that are left; to go on without it, make another set. Ctrl-C is an end of time,
/// too, for this node and so for all. What
/// goes to one node goes over `channel`: nodes that are in several sets at a time give each a channel, and
/// a group, of its own. Use it as a context manager, or call `close`.
#[pyclass(frozen, module = "denrei")]
pub(crate) struct Collective {
    /// One call at a time works with it; the last, `close`, takes it.
    set: Closable<Mutex<Option<denrei::Collective>>>,
    signals: Signals,
    rank: usize,
    size: usize,
}

/// How long a call waits: for its turn, and with what that has left for the others.
struct Patience {
    began: Instant,
    timeout: Duration,
}

impl Patience {
    fn new(timeout: f64) -> PyResult<Self> {
        Ok(Self { began: Instant::now(), timeout: seconds(timeout)? })
    }

    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.began.elapsed())
    }
}

/// The set, while a call works with it.
type Turn<'a> = MutexGuard<'a, Option<denrei::Collective>>;

impl Collective {
    fn operate<T: Send>(
        &self,
        py: Python<'_>,
        timeout: f64,
        operation: impl FnOnce(&mut denrei::Collective, Duration) -> Result<T, CollectiveError> + Send,
    ) -> PyResult<T> {
        let patience = Patience::new(timeout)?;
        self.signals.outcome(py.detach(|| {
            let gone = |why| DenreiError::new_err(format!("the set {why}"));
            let set = self
                .set
                .get()
                .ok_or_else(|| gone("is that of the process from which this one was forked"))?;
            let mut set = self.turn(&set, &patience)?;
            let set = set.as_mut().ok_or_else(|| gone("was closed"))?;
            operation(set, patience.left()).map_err(error::collective)
        }))
    }

    /// Waits until no other call works with the set.
    fn turn<'a>(
        &self,
        set: &'a Mutex<Option<denrei::Collective>>,
        patience: &Patience,
    ) -> PyResult<Turn<'a>> {
        loop {
            let left = patience.left();
            if let Some(turn) = set.try_lock_for(left.min(SLICE)) {
                return Ok(turn);
            }
            if left <= SLICE {
                return Err(PyTimeoutError::new_err("another call worked with the set for the time given"));
            }
            if self.signals.interrupt() {
                return Err(error::collective(CollectiveError::Interrupted));
            }
        }
    }
}

fn bytes<'py>(py: Python<'py>, parts: &[Bytes]) -> Vec<Bound<'py, PyBytes>> {
    parts.iter().map(|part| PyBytes::new(py, part)).collect()
}

#[pymethods]
impl Collective {
    #[new]
    #[pyo3(signature = (node, addresses, group, timeout = 30.0, *, channel = 15))]
    fn new(
        py: Python<'_>,
        node: &Node,
        #[pyo3(from_py_with = several)] addresses: Vec<String>,
        group: &str,
        timeout: f64,
        #[pyo3(from_py_with = numbers)] channel: u16,
    ) -> PyResult<Self> {
        let (group, timeout) = (resolve(py, group)?, seconds(timeout)?);
        let addresses = addresses.iter().map(|address| resolve(py, address)).collect::<PyResult<Vec<_>>>()?;
        let signals = Signals::default();
        let asked = signals.clone();
        let set = signals.outcome(node.call(py, |node| {
            let interrupted = move || asked.interrupt();
            let set =
                denrei::Collective::interruptible(node, &addresses, group, channel, timeout, interrupted);
            set.map_err(error::collective)
        }))?;
        let (rank, size) = (set.rank(), set.size());
        Ok(Self { set: Closable::new(Mutex::new(Some(set))), signals, rank, size })
    }

    /// Ends the set: rank 0 waits until all have everything, the others until rank 0 has their parts, or has ended the
    /// set without them; whether it came to that. Calls fail from then on.
    #[pyo3(signature = (timeout = 30.0))]
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let patience = Patience::new(timeout)?;
        self.signals.outcome(py.detach(|| {
            let Some(set) = self.set.get() else { return Ok(true) };
            let set = self.turn(&set, &patience)?.take();
            Ok(set.is_none_or(|set| set.close(patience.left())))
        }))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py, CLOSE_LIMIT_S).map(drop)
    }

    /// This node's place in the list of addresses.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// How many nodes there are.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// Waits until all have come here.
    #[pyo3(signature = (timeout = 30.0))]
    fn barrier(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        self.operate(py, timeout, |set, left| set.barrier(left))
    }

    /// Gives what rank 0 has to all; the others' `data` is not looked at.
    #[pyo3(signature = (data = None, timeout = 30.0))]
    fn broadcast<'py>(
        &self,
        py: Python<'py>,
        data: Option<&Bound<'py, PyAny>>,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let data = self.part(data)?;
        let all = self.operate(py, timeout, |set, left| set.broadcast(data, left))?;
        Ok(PyBytes::new(py, &all))
    }

    /// Brings what all have to rank 0, in the order of ranks; the others get an empty list.
    #[pyo3(signature = (data, timeout = 30.0))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        timeout: f64,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        self.bring(py, data, timeout, denrei::Collective::gather)
    }

    /// Brings what all have to all, in the order of ranks.
    #[pyo3(signature = (data, timeout = 30.0))]
    fn all_gather<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        timeout: f64,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        self.bring(py, data, timeout, denrei::Collective::all_gather)
    }

    /// Joins what all have by `join(a, b)`, a function of two `bytes` that returns a buffer and has to
    /// be associative, at rank 0 and in the order of ranks; all get the result. Where it raises, rank 0 gets
    /// that exception and all others a `DenreiError` that says so.
    #[pyo3(signature = (data, join, timeout = 30.0))]
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        join: Py<PyAny>,
        timeout: f64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let data = message_of(data, true)?;
        let mut failed = None;
        let two = |a: Bytes, b: Bytes| {
            let joined = Python::attach(|py| {
                let both = (PyBytes::new(py, &a), PyBytes::new(py, &b));
                message_of(join.bind(py).call1(both)?.as_any(), true)
            });
            joined.map_err(|error| failed.insert(error).to_string())
        };
        let all = self.operate(py, timeout, |set, left| set.try_reduce(data, two, left));
        match failed {
            Some(error) => Err(error),
            None => Ok(PyBytes::new(py, &all?)),
        }
    }

    fn __repr__(&self) -> String {
        format!("<denrei.Collective rank {} of {}>", self.rank, self.size)
    }
}

impl Collective {
    /// An operation that brings what several ranks have.
    fn bring<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        timeout: f64,
        gather: impl FnOnce(&mut denrei::Collective, Bytes, Duration) -> Result<Vec<Bytes>, CollectiveError>
        + Send,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let data = message_of(data, true)?;
        Ok(bytes(py, &self.operate(py, timeout, |set, left| gather(set, data, left))?))
    }

    fn part(&self, data: Option<&Bound<'_, PyAny>>) -> PyResult<Bytes> {
        match data {
            Some(data) if self.rank == 0 => message_of(data, true),
            _ => Ok(Bytes::new()),
        }
    }
}
