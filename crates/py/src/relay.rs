//! Relays: nodes on the path between networks that cannot reach each other (R6).

use crate::config::from_keywords;
use crate::error;
use crate::held::Closable;
use crate::number::numbers_in;
use crate::wait::{resolve, several, wait};
use denrei::relay::{MAX_PAIR_BYTES, MAX_PAIRS, MIN_PAIR_BYTES, PairState, RelayConfig, Route};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::net::IpAddr;

const LEAST_BYTES: i128 = MIN_PAIR_BYTES as i128;
const MOST_BYTES: i128 = MAX_PAIR_BYTES as i128;
const PAIRS: i128 = MAX_PAIRS as i128;

/// A relay, at work until it is closed: whoever connects to the first address of a route speaks with the
/// peer at the second. To let both sides begin, give a route in each direction. `from_address` is the
/// local IP address towards the targets, `pair_bytes` what a pair may hold in each direction and the
/// largest message that goes through (64 KiB to 1 GiB), `max_pairs` how many pairs there may be (1 to 1024). Settings
/// of its nodes are keyword arguments, as those of `Node`.
#[pyclass(frozen, module = "denrei")]
pub(crate) struct Relay {
    addresses: Vec<String>,
    relay: Closable<denrei::relay::Relay>,
}

/// A sender and the peer beyond a relay that it speaks to.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct RelayPair {
    /// The sender's address.
    near: String,
    /// The peer's address.
    target: String,
    /// Messages forwarded to the target.
    forwarded_messages: u64,
    /// Bytes of them.
    forwarded_bytes: u64,
    /// Messages forwarded back.
    returned_messages: u64,
    /// Bytes held on the way to the target.
    held_bytes: u64,
    /// Times that the sender's rate was lowered or stopped.
    lowered: u64,
}

impl From<PairState> for RelayPair {
    fn from(pair: PairState) -> Self {
        Self {
            near: pair.near.to_string(),
            target: pair.target.to_string(),
            forwarded_messages: pair.forwarded_messages,
            forwarded_bytes: pair.forwarded_bytes,
            returned_messages: pair.returned_messages,
            held_bytes: pair.held_bytes,
            lowered: pair.lowered,
        }
    }
}

#[pymethods]
impl RelayPair {
    fn __repr__(&self) -> String {
        format!("<denrei.RelayPair {} to {}>", self.near, self.target)
    }
}

#[pymethods]
impl Relay {
    #[new]
    #[pyo3(signature = (routes, *, from_address = None, pair_bytes = None, max_pairs = None, **settings))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = several)] routes: Vec<(String, String)>,
        from_address: Option<&str>,
        #[pyo3(from_py_with = numbers_in::<_, LEAST_BYTES, MOST_BYTES>)] pair_bytes: Option<u64>,
        #[pyo3(from_py_with = numbers_in::<_, 1, PAIRS>)] max_pairs: Option<usize>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut config = RelayConfig { node: from_keywords(settings)?, ..RelayConfig::default() };
        let refuse = |text| PyValueError::new_err(format!("{text:?} is no IP address"));
        let from = from_address.map(|text| text.parse::<IpAddr>().map_err(|_| refuse(text)));
        config.from = from.transpose()?;
        config.pair_bytes = pair_bytes.unwrap_or(config.pair_bytes);
        config.max_pairs = max_pairs.unwrap_or(config.max_pairs);
        let route = |(listen, target): &(String, String)| {
            Ok(Route { listen: resolve(py, listen)?, target: resolve(py, target)? })
        };
        let routes = routes.iter().map(route).collect::<PyResult<Vec<_>>>()?;
        let relay = py.detach(|| denrei::relay::Relay::start(&routes, &config)).map_err(error::bind)?;
        let addresses = relay.addresses().iter().map(ToString::to_string).collect();
        Ok(Self { addresses, relay: Closable::new(relay) })
    }

    /// The addresses that stand for the targets, in the order of the routes.
    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    /// All pairs, as of now; none once it is closed.
    #[getter]
    fn pairs(&self, py: Python<'_>) -> Vec<RelayPair> {
        let pairs = py.detach(|| self.relay.get().map(|relay| relay.pairs()));
        pairs.into_iter().flatten().map(RelayPair::from).collect()
    }

    /// Ends all sessions in order: nobody begins any more, both sides of each pair are told to stop, and hear that the relay
    /// is ending once all that it had acknowledged has gone on to the other; whether that came about in time. What is
    /// left, `close` ends.
    #[pyo3(signature = (timeout = 30.0))]
    fn drain(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let attempt = |slice| Ok(self.relay.get().is_none_or(|relay| relay.drain(slice)).then_some(()));
        Ok(wait(py, Some(timeout), attempt)?.is_some())
    }

    /// Ends the relay and all its sessions at once.
    fn close(&self, py: Python<'_>) {
        self.relay.close(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<denrei.Relay {}>", self.addresses.join(", "))
    }
}
