//! Messages, whose bytes Python sees where they are.

use crate::peer::Peer;
use bytes::Bytes;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::{c_int, c_void};

/// A message received. `memoryview(message)`, `numpy.frombuffer(message)` and everything else that
/// takes a buffer reads its bytes where they are. A message keeps its node; views of `data` do not.
#[pyclass(frozen, module = "denrei")]
pub(crate) struct Message {
    /// Who sent it.
    #[pyo3(get)]
    peer: Py<Peer>,
    /// On which channel it came.
    #[pyo3(get)]
    channel: u16,
    /// Its number in the channel, from 0.
    #[pyo3(get)]
    number: u64,
    data: Bytes,
}

impl Message {
    pub fn new(py: Python<'_>, peer: Peer, message: denrei::Message) -> PyResult<Self> {
        let channel = message.channel.channel;
        Ok(Self { peer: Py::new(py, peer)?, channel, number: message.number, data: message.data })
    }
}

/// A message's bytes, for views of them: whoever keeps a view keeps these, and not the node.
#[pyclass(frozen, module = "denrei")]
struct Memory {
    data: Bytes,
}

#[pymethods]
impl Message {
    /// The bytes, without a copy.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pyo3::types::PyMemoryView::from(slf)?.into_any())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.data)
    }

    fn __len__(&self) -> usize {
        self.data.len()
    }

    /// The Python object that `Peer.send_object` has sent. Unpickling runs code that the sender
    /// chooses: only for peers that are trusted as this process is.
    fn object<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import("pickle")?.call_method1("loads", (Self::data(slf)?,))
    }

    fn __repr__(&self) -> String {
        format!("<denrei.Message {} of channel {}: {} bytes>", self.number, self.channel, self.data.len())
    }

    /// # Safety
    /// Called by Python's buffer protocol, with its guarantees.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let memory = Bound::new(slf.py(), Memory { data: slf.get().data.clone() })?;
        let data = &memory.get().data;
        let (pointer, length) = (data.as_ptr().cast_mut().cast::<c_void>(), data.len() as ffi::Py_ssize_t);
        // SAFETY: `view` is not null and the object, which the view keeps, keeps the bytes where they
        // are. The last argument but one says that they are read-only: a wish to write is refused.
        let refused = unsafe { ffi::PyBuffer_FillInfo(view, memory.as_ptr(), pointer, length, 1, flags) };
        if refused == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
