//! Files and directories to many hosts at once: casts.

use crate::cast_state::{
    Warnings, denrei_cast_member, denrei_cast_progress, denrei_cast_receipt, denrei_cast_summary, receiving,
    sending,
};
use crate::config::name_of;
use crate::error::denrei_code::{DENREI_CAST, DENREI_INVALID, DENREI_SYSTEM, DENREI_UNKNOWN_PEER};
use crate::error::{Failure, borrow, call, denrei_code, free, own, place, put, several, text};
use crate::group::resolve_all;
use crate::node::denrei_node;
use crate::pipe_signal::NoPipeSignal;
use denrei_cast::{CAST_SETTINGS, CastError, CastOptions, Receiver, SendReport, Sender, by_name};
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How to send or receive a cast, made by denrei_cast_options_new.
pub struct denrei_cast_options {
    options: CastOptions,
    watch: denrei_cast_watch,
    context: *mut c_void,
}

impl Default for denrei_cast_options {
    fn default() -> Self {
        Self { options: CastOptions::default(), watch: None, context: std::ptr::null_mut() }
    }
}

/// Called about five times a second by the thread that sends or receives; false breaks the cast off.
pub type denrei_cast_watch =
    Option<unsafe extern "C" fn(context: *mut c_void, progress: *const denrei_cast_progress) -> bool>;

/// How sending went. Give it back with denrei_cast_report_free.
pub struct denrei_cast_report {
    report: SendReport,
}

impl From<CastError> for Failure {
    fn from(error: CastError) -> Self {
        let code = match error {
            CastError::Cancelled { .. } => denrei_code::DENREI_CANCELLED,
            CastError::NoReceivers(_) => denrei_code::DENREI_TIMEOUT,
            CastError::Storage { .. } => denrei_code::DENREI_SYSTEM,
            _ => DENREI_CAST,
        };
        Self::new(code, by_name(&error.to_string()))
    }
}

impl denrei_cast_options {
    /// Tells C how it goes.
    fn tell(&self, progress: &denrei_cast_progress) -> ControlFlow<()> {
        let Some(watch) = self.watch else { return ControlFlow::Continue(()) };
        // SAFETY: by the contract of denrei_cast_options_watch.
        let go_on = unsafe { watch(self.context, progress) };
        if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Options of a cast with their defaults.
#[unsafe(no_mangle)]
pub extern "C" fn denrei_cast_options_new() -> *mut denrei_cast_options {
    Box::into_raw(Box::default())
}

/// Sets one option by its name, such as "group" to "239.255.71.17:7118", "wait" to "10s",
/// "rate_bytes_per_s" to "50MiB", "sync" to "on". An unknown name and an impossible value are refused
/// with DENREI_CONFIG and a message that lists what is possible.
///
/// # Safety
/// `options` comes from denrei_cast_options_new; `name` and `value` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_options_set(
    options: *mut denrei_cast_options,
    name: *const c_char,
    value: *const c_char,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (name, value) = unsafe { (text("name", name)?, text("value", value)?) };
        // SAFETY: by the contract.
        let options = unsafe { options.as_mut() }.ok_or_else(|| Failure::null("options"))?;
        Ok(options.options.set(name, value)?)
    })
}

/// Has `watch` called with `context` while a cast goes on; NULL: nothing.
///
/// # Safety
/// `options` comes from denrei_cast_options_new; `watch` may be called with `context` during every call
/// with these options, by the thread that makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_options_watch(
    options: *mut denrei_cast_options,
    watch: denrei_cast_watch,
    context: *mut c_void,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let options = unsafe { options.as_mut() }.ok_or_else(|| Failure::null("options"))?;
        (options.watch, options.context) = (watch, context);
        Ok(())
    })
}

/// Names of all options of casts, in turn from index 0; NULL after the last.
#[unsafe(no_mangle)]
pub extern "C" fn denrei_cast_option_name(index: usize) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    name_of(&NAMES, CAST_SETTINGS, index)
}

/// Gives options back.
///
/// # Safety
/// `options` is NULL or comes from denrei_cast_options_new, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_options_free(options: *mut denrei_cast_options) {
    // SAFETY: by the contract.
    unsafe { free(options) };
}

/// Sends the files and directories at `paths` to the receivers at `members` (`member_count` 0: to
/// whoever comes, as soon as the option "min_members" have), and returns when every one has
/// everything or is given up: receivers that failed are in the report. `node` needs the setting
/// "drive" to be "thread", and nobody else may take messages or events from it meanwhile. `options` and
/// `report` may be NULL. DENREI_TIMEOUT if nobody came, DENREI_CANCELLED if the options' watch broke it
/// off, DENREI_SYSTEM or DENREI_CAST if something cannot be sent.
///
/// # Safety
/// `node` is a node, `paths` and `members` have so many strings, `options` is NULL or options, `report`
/// is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_send(
    node: *const denrei_node,
    paths: *const *const c_char,
    path_count: usize,
    members: *const *const c_char,
    member_count: usize,
    options: *const denrei_cast_options,
    report: *mut *mut denrei_cast_report,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (node, options) = unsafe { (own("node", node)?, options.as_ref()) };
        // SAFETY: by the contract.
        let paths = unsafe { several("paths", paths, path_count) }?;
        let paths: Vec<_> = paths.into_iter().map(PathBuf::from).collect();
        // SAFETY: by the contract.
        let members = unsafe { receivers(members, member_count) }?;
        let none = denrei_cast_options::default();
        let options = options.unwrap_or(&none);
        let sender = options.options.sender(node.node.clone(), &paths, members)?;
        // SAFETY: by the contract.
        unsafe { send(sender, options, report) }
    })
}

/// The addresses of receivers, which may be none.
///
/// # Safety
/// `members` has `count` strings.
unsafe fn receivers(members: *const *const c_char, count: usize) -> Result<Vec<SocketAddr>, Failure> {
    match count {
        0 => Ok(Vec::new()),
        // SAFETY: by the contract.
        _ => unsafe { resolve_all("members", members, count) },
    }
}

/// Sends, and gives the report to a caller who may not want it.
///
/// # Safety
/// `report` is null or a place for a pointer.
unsafe fn send(
    sender: Sender,
    options: &denrei_cast_options,
    report: *mut *mut denrei_cast_report,
) -> Result<(), Failure> {
    let warnings = Warnings::new(sender.warnings());
    let sent = sender.run(|progress| {
        let members: Vec<_> = progress.members.iter().map(denrei_cast_member::from).collect();
        options.tell(&sending(progress, &members, &warnings))
    })?;
    // SAFETY: by the contract.
    unsafe { hand_out(report, denrei_cast_report { report: sent }) };
    Ok(())
}

/// Receives, and gives the receipt to a caller who may not want it.
///
/// # Safety
/// `receipt` is null or a place for a receipt.
unsafe fn receive(
    receiver: Receiver,
    options: &denrei_cast_options,
    receipt: *mut denrei_cast_receipt,
) -> Result<(), Failure> {
    let warnings = Warnings::new(receiver.warnings());
    let received = receiver.run(|progress| options.tell(&receiving(progress, &warnings)))?;
    // SAFETY: by the contract.
    unsafe { put(receipt, (&received).into()) };
    Ok(())
}

/// Gives a value to a caller who may not want it.
///
/// # Safety
/// `place` is null or a place for a pointer.
unsafe fn hand_out<T>(place: *mut *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: by the contract.
        unsafe { put(place, Box::into_raw(Box::new(value))) }
    }
}

/// A descriptor of the caller's for this cast: a copy, so that each side closes its own.
fn descriptor(fd: c_int) -> Result<File, Failure> {
    if fd < 0 {
        return Err(Failure::new(DENREI_INVALID, format!("{fd} is no descriptor")));
    }
    // SAFETY: not negative; one that is not open is refused by the copying.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let own = borrowed.try_clone_to_owned();
    own.map(File::from).map_err(|error| Failure::new(DENREI_SYSTEM, format!("descriptor {fd}: {error}")))
}

/// Sends what can be read from the descriptor `fd`, to its end, as one stream, to those to whom
/// denrei_cast_send would send files; those who receive into a directory get a file of the name that
/// the option "name" says ("stdin" if none). Of what was read the option "retain_bytes" (64 MiB) is
/// kept for receivers that are late or slow. `fd` stays open and is the caller's; nobody else may read
/// from it until its end. The rest is as for denrei_cast_send.
///
/// # Safety
/// As for denrei_cast_send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_send_stream(
    node: *const denrei_node,
    fd: c_int,
    members: *const *const c_char,
    member_count: usize,
    options: *const denrei_cast_options,
    report: *mut *mut denrei_cast_report,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (node, options) = unsafe { (own("node", node)?, options.as_ref()) };
        // SAFETY: by the contract.
        let members = unsafe { receivers(members, member_count) }?;
        let none = denrei_cast_options::default();
        let options = options.unwrap_or(&none);
        let sender = options.options.stream_sender(node.node.clone(), descriptor(fd)?, members)?;
        // SAFETY: by the contract.
        unsafe { send(sender, options, report) }
    })
}

/// What a report says in numbers.
///
/// # Safety
/// `report` is a report, `summary` a place for a summary.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_report_summary(
    report: *const denrei_cast_report,
    summary: *mut denrei_cast_summary,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (report, place) = (&unsafe { borrow("report", report) }?.report, place("summary", summary)?);
        // SAFETY: by the contract.
        unsafe { place.put(report.into()) };
        Ok(())
    })
}

/// What a report says about a receiver, the first is 0. DENREI_UNKNOWN_PEER after the last.
///
/// # Safety
/// `report` is a report, `member` a place for a member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_report_member(
    report: *const denrei_cast_report,
    index: usize,
    member: *mut denrei_cast_member,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (report, place) = (&unsafe { borrow("report", report) }?.report, place("member", member)?);
        let Some(member) = report.members.get(index) else {
            let text = format!("there are {} receivers, no number {index}", report.members.len());
            return Err(Failure::new(DENREI_UNKNOWN_PEER, text));
        };
        // SAFETY: by the contract.
        unsafe { place.put(member.into()) };
        Ok(())
    })
}

/// Gives a report back.
///
/// # Safety
/// `report` is NULL or a report that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_report_free(report: *mut denrei_cast_report) {
    // SAFETY: by the contract.
    unsafe { free(report) };
}

/// Waits for one cast, for the option "wait" at most (else without limit), and receives it into the
/// directory `into`: what has come is kept whatever happens, and appears under its name when it is
/// complete and verified. `options` and `receipt` may be NULL; as to `node` and the codes, see
/// denrei_cast_send. DENREI_CAST if the sender has given up.
///
/// # Safety
/// `node` is a node, `into` a string, `options` is NULL or options, `receipt` is NULL or a place for a
/// receipt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_receive(
    node: *const denrei_node,
    into: *const c_char,
    options: *const denrei_cast_options,
    receipt: *mut denrei_cast_receipt,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (node, into, options) = unsafe { (own("node", node)?, text("into", into)?, options.as_ref()) };
        let none = denrei_cast_options::default();
        let options = options.unwrap_or(&none);
        let receiver = options.options.receiver(node.node.clone(), Path::new(into))?;
        // SAFETY: by the contract.
        unsafe { receive(receiver, options, receipt) }
    })
}

/// Waits for one cast of a stream or a single file, and writes its bytes to the descriptor `fd` as they
/// come, so a part of them if the sender gives up. `fd` stays open and is the caller's. A pipe that nobody reads
/// any more is DENREI_SYSTEM, and no SIGPIPE. The rest is as for denrei_cast_receive.
///
/// # Safety
/// As for denrei_cast_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_cast_receive_stream(
    node: *const denrei_node,
    fd: c_int,
    options: *const denrei_cast_options,
    receipt: *mut denrei_cast_receipt,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (node, options) = unsafe { (own("node", node)?, options.as_ref()) };
        let none = denrei_cast_options::default();
        let options = options.unwrap_or(&none);
        let receiver = options.options.stream_receiver(node.node.clone(), descriptor(fd)?);
        let _held = NoPipeSignal::begin();
        // SAFETY: by the contract.
        unsafe { receive(receiver, options, receipt) }
    })
}
