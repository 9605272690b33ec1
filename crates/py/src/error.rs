//! Errors of denrei as exceptions.

use denrei::{BindError, ConfigError, ConnectError, NodeError, PeerError, SendError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;

create_exception!(denrei, DenreiError, PyException, "What denrei refuses, or cannot do.");
create_exception!(denrei, PeerLost, DenreiError, "The session with a peer is over.");
create_exception!(denrei, QueueFull, DenreiError, "The queue to a peer is full: wait, or send less.");

/// A wish that cannot be: `ValueError`.
pub(crate) fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub(crate) fn config(error: ConfigError) -> PyErr {
    value(error)
}

pub(crate) fn bind(error: BindError) -> PyErr {
    match (&error, error.raw_os_error()) {
        (BindError::Config(_), _) => value(error),
        (_, Some(number)) => PyOSError::new_err((number, error.to_string())),
        _ => DenreiError::new_err(error.to_string()),
    }
}

pub(crate) fn connect(error: ConnectError) -> PyErr {
    match error {
        ConnectError::BadAddress(_) => value(error),
        _ => DenreiError::new_err(error.to_string()),
    }
}

pub(crate) fn send(error: SendError) -> PyErr {
    match error {
        SendError::WouldBlock { .. } => QueueFull::new_err(error.to_string()),
        SendError::PeerLost { .. } | SendError::UnknownPeer(_) => PeerLost::new_err(error.to_string()),
        SendError::TooLarge { .. } | SendError::NoSuchChannel { .. } => value(error),
        _ => DenreiError::new_err(error.to_string()),
    }
}

pub(crate) fn peer(error: PeerError) -> PyErr {
    match error {
        PeerError::UnknownPeer(_) => PeerLost::new_err(error.to_string()),
        PeerError::NoSuchOffer { .. } => PyKeyError::new_err(error.to_string()),
        _ => value(error),
    }
}

pub(crate) fn node(error: NodeError) -> PyErr {
    DenreiError::new_err(error.to_string())
}
