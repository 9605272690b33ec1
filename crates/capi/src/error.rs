//! Codes and texts: how a failure gets to C.

use denrei::key_file::KeyFileError;
use denrei::{
    BindError, ConfigError, ConnectError, GroupError, Maker, NoMore, NodeError, OpenGroupError, PeerError,
    RecvError, SendError,
};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What became of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum denrei_code {
    /// It was done.
    DENREI_OK = 0,
    /// Nothing was there within the time given.
    DENREI_TIMEOUT = 1,
    /// An argument cannot be: a null pointer, text that is not UTF-8, an address that is none.
    DENREI_INVALID = 2,
    /// A setting does not exist or cannot have this value.
    DENREI_CONFIG = 3,
    /// The system refused something: a port in use, no descriptors left, no memory for a copy.
    DENREI_SYSTEM = 4,
    /// No such peer, or no longer.
    DENREI_UNKNOWN_PEER = 5,
    /// The queue to the peer is full and the time given was too short.
    DENREI_WOULD_BLOCK = 6,
    /// The message is larger than the receiver takes.
    DENREI_TOO_LARGE = 7,
    /// The channel's number is not below the limit of both sides.
    DENREI_NO_CHANNEL = 8,
    /// This side has closed writing, or the peer reading; of a call that receives: the peer has closed writing.
    DENREI_CLOSED = 9,
    /// The session is over.
    DENREI_PEER_LOST = 10,
    /// No such offer waits.
    DENREI_NO_OFFER = 11,
    /// The address table is full, or there are too many groups.
    DENREI_TOO_MANY_PEERS = 12,
    /// Without a cluster key a node opens on loopback only.
    DENREI_EXPOSED = 13,
    /// A buffer of the caller's is too small.
    DENREI_BUFFER = 14,
    /// A fault of the library's own. Please report it with its message.
    DENREI_INTERNAL = 15,
    /// A key file is not there, is none, or can be read by others.
    DENREI_KEY = 16,
    /// The caller broke it off.
    DENREI_CANCELLED = 17,
    /// A cast came to nothing: what is sent or received cannot be, or the sender has given up.
    DENREI_CAST = 18,
}

use denrei_code::*;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// What the last call of this thread that failed has to say, for people. Valid until the next call
/// of this thread fails; empty if none has. What C runs when a thread or the program has ended, destructors of a
/// thread's data and functions of atexit, may call everything, but the words of a failure are not kept for it.
#[unsafe(no_mangle)]
pub extern "C" fn denrei_error_message() -> *const c_char {
    MESSAGE
        .try_with(|message| message.borrow().as_ptr())
        .unwrap_or(c"the thread is ending: no words are kept".as_ptr())
}

/// A code and its text.
pub(crate) struct Failure {
    code: denrei_code,
    message: String,
}

impl Failure {
    pub fn new(code: denrei_code, message: impl Display) -> Self {
        Self { code, message: message.to_string() }
    }

    pub fn null(what: &str) -> Self {
        Self::new(DENREI_INVALID, format!("{what} is NULL"))
    }

    /// The code alone.
    pub fn code(&self) -> denrei_code {
        self.code
    }

    /// The text alone.
    pub fn into_message(self) -> String {
        self.message
    }

    pub fn timeout() -> Self {
        Self::late("nothing was there")
    }

    /// `what` was not so in time.
    pub fn late(what: &str) -> Self {
        Self::new(DENREI_TIMEOUT, format!("{what} within the time given"))
    }
}

/// Does a call's work: keeps panics inside, and the text of a failure for
/// [`denrei_error_message`].
pub(crate) fn call(work: impl FnOnce() -> Result<(), Failure>) -> denrei_code {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return DENREI_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Failure::new(DENREI_INTERNAL, format!("a fault of denrei's own: {text}"))
        }
    };
    // Texts of ours have no NUL, but reasons of peers may.
    let text = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has let go of its own: the code has to do.
    let _ = MESSAGE.try_with(|message| *message.borrow_mut() = text);
    failure.code
}

/// Text from C.
///
/// # Safety
/// `text` is null or points to a NUL-terminated string.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: not null, so by the contract a string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::new(DENREI_INVALID, format!("{what} is not UTF-8")))
}

/// Several texts from C, one at least.
///
/// # Safety
/// `texts` is null or has `count` strings.
pub(crate) unsafe fn several<'a>(
    what: &str,
    texts: *const *const c_char,
    count: usize,
) -> Result<Vec<&'a str>, Failure> {
    if texts.is_null() || count == 0 {
        return Err(Failure::new(DENREI_INVALID, format!("{what} are none")));
    }
    // -1 of a call that failed, which is passed on, is a number as well.
    if count > isize::MAX as usize / size_of::<*const c_char>() {
        return Err(Failure::new(DENREI_INVALID, format!("{what} are {count}: no memory has as many")));
    }
    // SAFETY: by the contract.
    let texts = unsafe { std::slice::from_raw_parts(texts, count) };
    // SAFETY: by the contract.
    texts.iter().map(|one| unsafe { text(what, *one) }).collect()
}

/// What a pointer from C points to.
///
/// # Safety
/// `pointer` is null or points to a `T` that nobody changes meanwhile.
pub(crate) unsafe fn borrow<'a, T>(what: &str, pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: by the contract.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(what))
}

/// What C holds of a node's, with its threads and locks: a child that was forked has but a copy.
pub(crate) trait Owned {
    /// The process that made it.
    fn maker(&self) -> Maker;
}

/// What a pointer from C points to, if it is this process's.
///
/// # Safety
/// As for [`borrow`].
pub(crate) unsafe fn own<'a, T: Owned>(what: &str, pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: by the contract.
    let value = unsafe { borrow(what, pointer) }?;
    check_own(what, value.maker())?;
    Ok(value)
}

/// Whether this process made something, and has not been forked from the one that did.
pub(crate) fn check_own(what: &str, maker: Maker) -> Result<(), Failure> {
    if maker.is_this_process() {
        return Ok(());
    }
    let text = format!("the {what} is {maker}'s, from which this one was forked: open a node here");
    Err(Failure::new(DENREI_INVALID, text))
}

/// Takes back what C was given, if anything.
///
/// # Safety
/// `pointer` is null or comes from `Box::into_raw`, and is not used again.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: by the contract.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// Checks a place for a result before the work is done.
pub(crate) fn place<T>(what: &str, pointer: *mut T) -> Result<Place<T>, Failure> {
    if pointer.is_null() { Err(Failure::null(what)) } else { Ok(Place(pointer)) }
}

/// Writes a result that the caller may not want.
///
/// # Safety
/// `pointer` is null or valid for a `T` to be written.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: by the contract.
        unsafe { pointer.write(value) }
    }
}

/// A place for a result, not null.
pub(crate) struct Place<T>(*mut T);

impl<T> Place<T> {
    /// # Safety
    /// The pointer that C passed is valid for a `T` to be written.
    pub unsafe fn put(self, value: T) {
        // SAFETY: by the contract, and not null.
        unsafe { self.0.write(value) }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(DENREI_CONFIG, error)
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        let code = match error {
            BindError::Config(_) => DENREI_CONFIG,
            BindError::Resolve(_) | BindError::NoAddress => DENREI_INVALID,
            BindError::Exposed { .. } => DENREI_EXPOSED,
            BindError::KeyFile { .. } => DENREI_KEY,
            _ => DENREI_SYSTEM,
        };
        Self::new(code, error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let code = match error {
            ConnectError::TooManyPeers { .. } => DENREI_TOO_MANY_PEERS,
            _ => DENREI_INVALID,
        };
        Self::new(code, error)
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        let code = match error {
            SendError::WouldBlock { .. } => DENREI_WOULD_BLOCK,
            SendError::UnknownPeer(_) => DENREI_UNKNOWN_PEER,
            SendError::TooLarge { .. } => DENREI_TOO_LARGE,
            SendError::NoSuchChannel { .. } => DENREI_NO_CHANNEL,
            SendError::WriteClosed(_) | SendError::PeerDoneReading(_) => DENREI_CLOSED,
            SendError::PeerLost { .. } => DENREI_PEER_LOST,
            SendError::NodeFailed => DENREI_SYSTEM,
            _ => DENREI_INVALID,
        };
        Self::new(code, error)
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Self {
        let code = match error {
            RecvError::NoMore(NoMore::UnknownPeer(_)) => DENREI_UNKNOWN_PEER,
            RecvError::NoMore(NoMore::PeerDoneWriting(_)) => DENREI_CLOSED,
            RecvError::NoMore(NoMore::NoSuchChannel { .. }) => DENREI_NO_CHANNEL,
            RecvError::NoMore(_) => DENREI_PEER_LOST,
            _ => DENREI_SYSTEM,
        };
        Self::new(code, error)
    }
}

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        let code = match error {
            GroupError::OpenFailed { .. } => DENREI_TIMEOUT,
            GroupError::WouldBlock { .. } => DENREI_WOULD_BLOCK,
            GroupError::TooLarge { .. } => DENREI_TOO_LARGE,
            GroupError::Unknown(_) | GroupError::Closing(_) => DENREI_CLOSED,
            GroupError::Deserted(_) => DENREI_PEER_LOST,
            GroupError::UnknownMember { .. } => DENREI_UNKNOWN_PEER,
            GroupError::TooManyGroups { .. } => DENREI_TOO_MANY_PEERS,
            _ => DENREI_INVALID,
        };
        Self::new(code, error)
    }
}

impl From<OpenGroupError> for Failure {
    fn from(error: OpenGroupError) -> Self {
        match error {
            OpenGroupError::Group(error) => error.into(),
            _ => Self::new(DENREI_SYSTEM, error),
        }
    }
}

impl From<PeerError> for Failure {
    fn from(error: PeerError) -> Self {
        let code = match error {
            PeerError::UnknownPeer(_) => DENREI_UNKNOWN_PEER,
            PeerError::NoSuchChannel { .. } => DENREI_NO_CHANNEL,
            PeerError::NoSuchOffer { .. } => DENREI_NO_OFFER,
            _ => DENREI_INVALID,
        };
        Self::new(code, error)
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        Self::new(DENREI_SYSTEM, error)
    }
}

impl From<KeyFileError> for Failure {
    fn from(error: KeyFileError) -> Self {
        Self::new(DENREI_KEY, error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(DENREI_SYSTEM, error)
    }
}

/// Text in an array, cut to fit, with a NUL at the end.
pub(crate) fn array_of<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let end = text.floor_char_boundary(N - 1);
    for (place, byte) in array.iter_mut().zip(&text.as_bytes()[..end]) {
        *place = *byte as c_char;
    }
    array
}
