//! Errors of denrei as exceptions.

use denrei::{
    BindError, CollectiveError, ConfigError, ConnectError, GroupError, NoMore, NodeError, OpenGroupError,
    PeerError, RecvError, SendError,
};
use pyo3::create_exception;
use pyo3::exceptions::{PyEOFError, PyException, PyKeyError, PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use std::fmt::Display;

create_exception!(denrei, DenreiError, PyException, "What denrei refuses, or cannot do.");
create_exception!(denrei, PeerLost, DenreiError, "The session with a peer is over.");
create_exception!(denrei, GroupClosed, DenreiError, "A group has ended in order: there is no more.");
create_exception!(denrei, CastFailed, DenreiError, "A cast came to nothing.");
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

/// What the system refused, with its number: `OSError` of the kind that has it.
pub(crate) fn system(refused: &std::io::Error, text: impl Display) -> PyErr {
    match refused.raw_os_error() {
        Some(number) => PyOSError::new_err((number, text.to_string())),
        None => PyOSError::new_err(text.to_string()),
    }
}

pub(crate) fn connect(error: ConnectError) -> PyErr {
    match error {
        ConnectError::TooManyPeers { .. } => DenreiError::new_err(error.to_string()),
        _ => value(error),
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

pub(crate) fn recv(error: RecvError) -> PyErr {
    let text = error.to_string();
    match error {
        RecvError::NoMore(NoMore::PeerDoneWriting(_)) => PyEOFError::new_err(text),
        RecvError::NoMore(NoMore::NoSuchChannel { .. }) => PyValueError::new_err(text),
        RecvError::NoMore(_) => PeerLost::new_err(text),
        _ => DenreiError::new_err(text),
    }
}

pub(crate) fn node(error: NodeError) -> PyErr {
    DenreiError::new_err(error.to_string())
}

pub(crate) fn group(error: GroupError) -> PyErr {
    let text = error.to_string();
    match error {
        GroupError::OpenFailed { .. } => PyTimeoutError::new_err(text),
        GroupError::WouldBlock { .. } => QueueFull::new_err(text),
        GroupError::Unknown(_) | GroupError::Closing(_) => GroupClosed::new_err(text),
        GroupError::Deserted(_) => PeerLost::new_err(text),
        GroupError::UnknownMember { .. } => PyKeyError::new_err(text),
        GroupError::TooManyGroups { .. } => DenreiError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

pub(crate) fn open_group(error: OpenGroupError) -> PyErr {
    match error {
        OpenGroupError::Group(error) => group(error),
        _ => DenreiError::new_err(error.to_string()),
    }
}

pub(crate) fn collective(error: CollectiveError) -> PyErr {
    match error {
        CollectiveError::Open(error) => open_group(error),
        CollectiveError::Connect(error) => connect(error),
        CollectiveError::Group(error) => group(error),
        CollectiveError::TimedOut { .. }
        | CollectiveError::GaveUp { .. }
        | CollectiveError::NotOpened { .. } => PyTimeoutError::new_err(error.to_string()),
        CollectiveError::BadSet(_) | CollectiveError::Unlike { .. } => value(error),
        CollectiveError::RootGone(_)
        | CollectiveError::Send { source: SendError::PeerLost { .. } | SendError::UnknownPeer(_), .. } => {
            PeerLost::new_err(error.to_string())
        }
        _ => DenreiError::new_err(error.to_string()),
    }
}
