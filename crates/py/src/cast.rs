//! Casts: files and directories to many hosts at once.

use crate::config::set_by_keywords;
use crate::error::{self, CastFailed};
use crate::node::Node;
use crate::number::numbers;
use crate::wait::{is_over, resolve};
use denrei_cast::{
    CastError, CastOptions, MemberProgress, MemberReport, Outcome, ReceiveProgress, ReceiveReport, Receiver,
    SendProgress, SendReport, Sender, State, by_name,
};
use pyo3::exceptions::{PyTimeoutError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fs::File;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;

/// A receiver, as its sender sees it.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct CastMember {
    /// Its address.
    address: String,
    /// What it calls itself.
    name: String,
    /// "absent", "invited", "receiving", "complete" or "failed".
    state: &'static str,
    /// Why it failed or vanished.
    reason: Option<String>,
    /// Bytes that it has; `None` in a report.
    bytes: Option<u64>,
    /// Bytes that it had before; `None` while the cast goes on.
    resumed_bytes: Option<u64>,
    /// Seconds until it had everything; `None` if it has not.
    took: Option<f64>,
}

impl From<&MemberProgress> for CastMember {
    fn from(member: &MemberProgress) -> Self {
        let (state, reason) = match &member.state {
            State::Absent { why } => ("absent", why.clone()),
            State::Invited => ("invited", None),
            State::Receiving => ("receiving", None),
            State::Complete { .. } => ("complete", None),
            State::Failed { text, .. } => ("failed", Some(text.clone())),
        };
        Self {
            address: member.addr.to_string(),
            name: member.name.clone(),
            state,
            reason: reason.map(|text| by_name(&text)),
            bytes: Some(member.bytes),
            resumed_bytes: None,
            took: None,
        }
    }
}

impl From<&MemberReport> for CastMember {
    fn from(member: &MemberReport) -> Self {
        let (state, reason) = match &member.outcome {
            Outcome::Complete => ("complete", None),
            Outcome::Failed(why) => ("failed", Some(why.clone())),
            Outcome::Vanished(why) => ("absent", Some(why.clone())),
            Outcome::Absent => ("absent", None),
        };
        Self {
            address: member.addr.to_string(),
            name: member.name.clone(),
            state,
            reason: reason.map(|text| by_name(&text)),
            bytes: None,
            resumed_bytes: Some(member.resumed_bytes),
            took: (member.outcome == Outcome::Complete).then_some(member.took.as_secs_f64()),
        }
    }
}

#[pymethods]
impl CastMember {
    fn __repr__(&self) -> String {
        format!("<denrei.CastMember {} {}>", self.address, self.state)
    }
}

/// How a cast goes.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct CastProgress {
    /// Bytes sent; at a receiver, bytes that are here.
    bytes: u64,
    /// Bytes of all there is; `None` if that is not known.
    total_bytes: Option<u64>,
    /// At the sender: seconds since pieces began to be sent.
    elapsed: Option<f64>,
    /// What the user should know, a sentence each: what was left out, casts that cannot be heard.
    warnings: Vec<String>,
    /// At a receiver: the sender's address; `None` while there is none.
    sender: Option<String>,
    /// At the sender: the receivers.
    members: Vec<Py<CastMember>>,
}

#[pymethods]
impl CastProgress {
    fn __repr__(&self) -> String {
        let total = self.total_bytes.map_or("?".into(), |bytes| bytes.to_string());
        format!("<denrei.CastProgress {} of {total} bytes>", self.bytes)
    }
}

/// How sending went.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct CastReport {
    /// The cast's name, the same at its receivers.
    cast: u64,
    /// Whether every receiver has everything.
    complete: bool,
    /// Seconds from the first piece until the last receiver had everything.
    took: f64,
    /// Bytes of what was sent.
    bytes: u64,
    /// Bytes put onto the network, with headers.
    wire_bytes: u64,
    /// Datagrams put onto the network.
    wire_packets: u64,
    /// Sent again to the whole group.
    multicast_repairs: u64,
    /// Sent again to single receivers.
    unicast_repairs: u64,
    /// The receivers.
    members: Vec<Py<CastMember>>,
}

#[pymethods]
impl CastReport {
    fn __repr__(&self) -> String {
        let complete = if self.complete { "complete" } else { "not complete" };
        format!("<denrei.CastReport {} bytes to {}: {complete}>", self.bytes, self.members.len())
    }
}

/// How receiving went.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct CastReceipt {
    /// The cast's name, the same at its sender.
    cast: u64,
    /// The sender's address.
    sender: String,
    /// Seconds from the offer until everything was in its place.
    took: f64,
    /// Bytes of all that was sent.
    bytes: u64,
    /// Of these, those that were here before.
    resumed_bytes: u64,
    /// Those that came now.
    new_bytes: u64,
    /// Files.
    files: u64,
    /// Directories.
    directories: u64,
}

#[pymethods]
impl CastReceipt {
    fn __repr__(&self) -> String {
        format!("<denrei.CastReceipt {} bytes from {}>", self.bytes, self.sender)
    }
}

fn members<'a, T: 'a>(py: Python<'_>, of: &'a [T]) -> PyResult<Vec<Py<CastMember>>>
where
    CastMember: From<&'a T>,
{
    of.iter().map(|member| Py::new(py, CastMember::from(member))).collect()
}

fn sending(py: Python<'_>, progress: &SendProgress, warnings: &[String]) -> PyResult<CastProgress> {
    Ok(CastProgress {
        bytes: progress.sent_bytes,
        total_bytes: progress.total_bytes,
        elapsed: Some(progress.elapsed.as_secs_f64()),
        warnings: warnings.iter().map(|text| by_name(text)).collect(),
        sender: None,
        members: members(py, &progress.members)?,
    })
}

fn receiving(_py: Python<'_>, progress: &ReceiveProgress, warnings: &[String]) -> PyResult<CastProgress> {
    Ok(CastProgress {
        bytes: progress.bytes,
        total_bytes: progress.total_bytes,
        elapsed: None,
        warnings: warnings.iter().map(|text| by_name(text)).collect(),
        sender: progress.sender.map(|sender| sender.to_string()),
        members: Vec::new(),
    })
}

fn report(py: Python<'_>, report: &SendReport) -> PyResult<CastReport> {
    Ok(CastReport {
        cast: report.cast,
        complete: report.is_complete(),
        took: report.took.as_secs_f64(),
        bytes: report.bytes,
        wire_bytes: report.wire.bytes,
        wire_packets: report.wire.packets,
        multicast_repairs: report.wire.multicast_repairs,
        unicast_repairs: report.wire.unicast_repairs,
        members: members(py, &report.members)?,
    })
}

fn receipt(report: &ReceiveReport) -> CastReceipt {
    CastReceipt {
        cast: report.cast,
        sender: report.sender.to_string(),
        took: report.took.as_secs_f64(),
        bytes: report.bytes,
        resumed_bytes: report.resumed_bytes,
        new_bytes: report.new_bytes,
        files: report.files,
        directories: report.directories,
    }
}

/// Who is told how it goes, and what that said: an exception ends the cast, and so does `False`, and closing the node.
struct Watch {
    node: Node,
    tell: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Watch {
    fn new(node: &Node, tell: Option<Py<PyAny>>) -> Self {
        Self { node: node.clone(), tell, raised: None }
    }

    /// Tells it, unless the cast is wanted no longer; takes signals, such as Ctrl-C, too.
    fn see<P>(
        &mut self,
        progress: &P,
        show: impl Fn(Python<'_>, &P) -> PyResult<CastProgress>,
    ) -> ControlFlow<()> {
        let tell = |py: Python<'_>| {
            if is_over(py)? {
                return Ok(false);
            }
            let Some(tell) = &self.tell else { return Ok(true) };
            let answer = tell.call1(py, (Py::new(py, show(py, progress)?)?,))?;
            Ok(!answer.bind(py).is(pyo3::types::PyBool::new(py, false).as_any()))
        };
        match self.node.denrei().and_then(|_open| Python::attach(tell)) {
            Ok(true) => return ControlFlow::Continue(()),
            Ok(false) => {}
            Err(raised) => self.raised = Some(raised),
        }
        ControlFlow::Break(())
    }

    /// What the cast came to.
    fn outcome<T>(self, came: Result<T, CastError>) -> PyResult<T> {
        match self.raised {
            Some(raised) => Err(raised),
            None => came.map_err(failed),
        }
    }
}

fn failed(error: CastError) -> PyErr {
    let text = by_name(&error.to_string());
    match error {
        CastError::NoReceivers(_) => PyTimeoutError::new_err(text),
        CastError::Storage { source, .. } => error::system(&source, text),
        _ => CastFailed::new_err(text),
    }
}

fn options_of(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<CastOptions> {
    let mut options = CastOptions::default();
    set_by_keywords(keywords, |name, value| options.set(name, value).map_err(error::config))?;
    Ok(options)
}

/// A descriptor of a Python object's, or one that is a number: a copy, which is closed by itself.
fn file_of(object: &Bound<'_, PyAny>) -> PyResult<File> {
    let number = match numbers::<RawFd>(object) {
        Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
            numbers::<RawFd>(&object.call_method0("fileno")?)?
        }
        number => number?,
    };
    if number < 0 {
        return Err(PyValueError::new_err(format!("{number} is no descriptor")));
    }
    // SAFETY: not negative; one that is not open is refused by the copying.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(File::from(borrowed.try_clone_to_owned().map_err(|refused| error::system(&refused, &refused))?))
}

/// Makes a sender and sends.
fn run_sender(
    py: Python<'_>,
    node: &Node,
    to: &[String],
    progress: Option<Py<PyAny>>,
    make: impl FnOnce(denrei::Node, Vec<SocketAddr>) -> Result<Sender, CastError> + Send,
) -> PyResult<CastReport> {
    let to = to.iter().map(|member| resolve(py, member)).collect::<PyResult<Vec<_>>>()?;
    let mut watch = Watch::new(node, progress);
    let sent = py.detach(|| {
        let node = node.denrei()?;
        Ok::<_, PyErr>(make(node, to).and_then(|sender| {
            let warnings = sender.warnings().to_vec();
            sender.run(|progress| watch.see(progress, |py, progress| sending(py, progress, &warnings)))
        }))
    })?;
    report(py, &watch.outcome(sent)?)
}

/// Makes a receiver and receives.
fn run_receiver(
    py: Python<'_>,
    node: &Node,
    progress: Option<Py<PyAny>>,
    make: impl FnOnce(denrei::Node) -> Result<Receiver, CastError> + Send,
) -> PyResult<CastReceipt> {
    let mut watch = Watch::new(node, progress);
    let received = py.detach(|| {
        let node = node.denrei()?;
        Ok::<_, PyErr>(make(node).and_then(|receiver| {
            let warnings = receiver.warnings().to_vec();
            receiver.run(|progress| watch.see(progress, |py, progress| receiving(py, progress, &warnings)))
        }))
    })?;
    Ok(receipt(&watch.outcome(received)?))
}

/// Sends a cast; see `Node.cast_send`.
pub(crate) fn send(
    py: Python<'_>,
    node: &Node,
    paths: &[PathBuf],
    to: &[String],
    progress: Option<Py<PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<CastReport> {
    let options = options_of(options)?;
    run_sender(py, node, to, progress, |node, to| options.sender(node, paths, to))
}

/// Sends a stream; see `Node.cast_send_stream`.
pub(crate) fn send_stream(
    py: Python<'_>,
    node: &Node,
    source: &Bound<'_, PyAny>,
    to: &[String],
    progress: Option<Py<PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<CastReport> {
    let (options, source) = (options_of(options)?, file_of(source)?);
    run_sender(py, node, to, progress, |node, to| options.stream_sender(node, source, to))
}

/// Receives a cast; see `Node.cast_receive`.
pub(crate) fn receive(
    py: Python<'_>,
    node: &Node,
    into: &std::path::Path,
    progress: Option<Py<PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<CastReceipt> {
    let options = options_of(options)?;
    run_receiver(py, node, progress, |node| options.receiver(node, into))
}

/// Receives a stream; see `Node.cast_receive_stream`.
pub(crate) fn receive_stream(
    py: Python<'_>,
    node: &Node,
    target: &Bound<'_, PyAny>,
    progress: Option<Py<PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<CastReceipt> {
    let (options, target) = (options_of(options)?, file_of(target)?);
    run_receiver(py, node, progress, |node| Ok(options.stream_receiver(node, target)))
}
