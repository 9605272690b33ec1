//! Memory that Python lends, without copies: what is sent from, and what is received into.

use bytes::Bytes;
use denrei::Placement;
use denrei_prefetch::ahead_of_writing;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Messages up to this size are copied: a few cache lines cost less than taking the interpreter's
/// lock to give the memory back.
const COPY_BELOW_BYTES: usize = 4096;

/// A message that lives in an object's memory. The object is kept, and its export, until denrei lets
/// go of the message.
pub(crate) fn message_of(data: &Bound<'_, PyAny>, copy: bool) -> PyResult<Bytes> {
    let buffer = contiguous(data, "send a contiguous copy of it")?;
    if copy || buffer.len_bytes() < COPY_BELOW_BYTES {
        return Ok(Bytes::copy_from_slice(octets(&buffer)));
    }
    Ok(Bytes::from_owner(Lent { buffer: Some(buffer) }))
}

/// The export of an object whose memory is in one piece, whatever its items are; what to do `instead` if it is not.
fn contiguous(object: &Bound<'_, PyAny>, instead: &str) -> PyResult<PyUntypedBuffer> {
    let buffer = match PyUntypedBuffer::get(object) {
        // What has no dimensions, such as a NumPy scalar, PyO3 does not take.
        Err(error) if error.is_instance_of::<PyBufferError>(object.py()) => {
            PyUntypedBuffer::get(&PyMemoryView::from(object)?.call_method1("cast", ("B",))?)
        }
        buffer => buffer,
    }?;
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err(format!("the buffer is not contiguous in C's order: {instead}")));
    }
    if has_objects(buffer.format().to_bytes()) {
        let what = "the buffer's items are Python objects, of which it has the addresses: `send_object` sends what they are";
        return Err(PyValueError::new_err(what));
    }
    Ok(buffer)
}

/// Whether items of a format of the buffer protocol are references, or have any. Names of fields are between colons.
fn has_objects(format: &[u8]) -> bool {
    format.split(|&octet| octet == b':').step_by(2).any(|types| types.contains(&b'O'))
}

/// The octets of what is contiguous.
fn octets(buffer: &PyUntypedBuffer) -> &[u8] {
    // An empty buffer may be anywhere.
    if buffer.len_bytes() == 0 {
        return &[];
    }
    // SAFETY: the export keeps the memory where it is as long as `buffer` lives, and it is
    // contiguous. The caller of `send` has promised not to write to it meanwhile.
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }
}

/// Threads that are giving something back.
static GIVING: AtomicUsize = AtomicUsize::new(0);
/// The program ends: nothing is given back any more.
static ENDS: AtomicBool = AtomicBool::new(false);
/// The end of the program waits so long for those that had begun before.
const LAST_GIVEN: Duration = Duration::from_secs(1);

/// Gives an export back; to nobody, if the interpreter is gone or about to go.
fn give_back(buffer: Option<PyUntypedBuffer>) {
    let mut buffer = buffer;
    GIVING.fetch_add(1, Ordering::SeqCst);
    let given = !ENDS.load(Ordering::SeqCst) && Python::try_attach(|_| drop(buffer.take())).is_some();
    GIVING.fetch_sub(1, Ordering::SeqCst);
    if !given {
        std::mem::forget(buffer);
    }
}

/// To be called as the program ends: what is lent stays so from now on. Whoever asks for the interpreter's lock while that
/// is taken down never comes back, and who closes the Node would wait for its thread for ever.
#[pyfunction]
pub(crate) fn keep_what_is_lent(py: Python<'_>) {
    ENDS.store(true, Ordering::SeqCst);
    let latest = Instant::now() + LAST_GIVEN;
    py.detach(|| {
        while GIVING.load(Ordering::SeqCst) > 0 && Instant::now() < latest {
            sleep(Duration::from_millis(1));
        }
    });
}

/// An exported buffer that a message lives in.
struct Lent {
    buffer: Option<PyUntypedBuffer>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], octets)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // By whichever thread has sent the last of it, or been told that it arrived.
        give_back(self.buffer.take());
    }
}

/// Memory of a writable object that an offered message is received into.
#[derive(Debug)]
pub(crate) struct Target {
    buffer: Option<PyUntypedBuffer>,
    address: usize,
    length: usize,
}

impl Target {
    pub fn new(into: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(into, "receive into one that is, and copy from there")?;
        if buffer.readonly() {
            return Err(PyValueError::new_err("the buffer cannot be written to"));
        }
        let (address, length) = (buffer.buf_ptr() as usize, buffer.len_bytes());
        Ok(Self { buffer: Some(buffer), address, length })
    }

    pub fn len(&self) -> usize {
        self.length
    }
}

impl Placement for Target {
    fn place(&mut self, offset: u64, bytes: &[u8]) {
        let room = usize::try_from(offset).ok().and_then(|offset| self.length.checked_sub(offset));
        let count = bytes.len().min(room.unwrap_or(0));
        if count > 0 {
            ahead_of_writing(self.address as *const u8, self.length, offset as usize, count);
            // SAFETY: offset + count ≤ length; the export keeps the memory where it is, and the caller
            // of `accept` has promised to leave it alone until the message has come.
            unsafe {
                let target = (self.address as *mut u8).add(offset as usize);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, count);
            }
        }
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as in `place`. An empty buffer may be anywhere.
        (self.length > 0)
            .then(|| unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.length) })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        give_back(self.buffer.take());
    }
}
