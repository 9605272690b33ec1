//! Files and directories to many hosts at once: casts.

use crate::config::name_of;
use crate::error::denrei_code::{DENREI_CAST, DENREI_INVALID, DENREI_UNKNOWN_PEER};
use crate::error::{Failure, array_of, borrow, call, denrei_code, free, place, put, text};
use crate::group::resolve_all;
use crate::node::denrei_node;
use denrei_cast::{
    CAST_SETTINGS, CastError, CastOptions, MemberProgress, MemberReport, Outcome, ReceiveProgress,
    ReceiveReport, SendProgress, SendReport, State,
};
use std::ffi::{CString, c_char, c_void};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

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

/// Where a receiver of a cast is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum denrei_cast_stage {
    /// It was not heard of, or not since it vanished.
    DENREI_CAST_ABSENT = 0,
    /// It is there, and has not said what it misses.
    DENREI_CAST_INVITED = 1,
    /// It gets what it misses.
    DENREI_CAST_RECEIVING = 2,
    /// It has everything, verified, in its place.
    DENREI_CAST_COMPLETE = 3,
    /// It has given up, or was given up.
    DENREI_CAST_FAILED = 4,
}

use denrei_cast_stage::*;

/// A receiver of a cast, as its sender sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_cast_member {
    /// Where it is.
    pub stage: denrei_cast_stage,
    /// Its address.
    pub address: [c_char; 64],
    /// What it calls itself, cut to fit.
    pub name: [c_char; 64],
    /// Why it failed or vanished, cut to fit.
    pub reason: [c_char; 256],
    /// Bytes that it has; in a report 0.
    pub bytes: u64,
    /// Bytes that it had before; in progress 0.
    pub resumed_bytes: u64,
    /// In a report: until it had everything, from the first piece sent; 0 if it has not.
    pub took_us: u64,
}

/// How a cast goes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_cast_progress {
    /// Bytes sent; at a receiver, bytes that are here.
    pub bytes: u64,
    /// Bytes of all there is; UINT64_MAX if that is not known.
    pub total_bytes: u64,
    /// At the sender: since pieces began to be sent.
    pub elapsed_us: u64,
    /// At a receiver: the sender; empty while there is none.
    pub sender: [c_char; 64],
    /// At the sender: the receivers, valid during the call.
    pub members: *const denrei_cast_member,
    /// How many they are.
    pub member_count: usize,
}

/// Called about five times a second by the thread that sends or receives; false breaks the cast off.
pub type denrei_cast_watch =
    Option<unsafe extern "C" fn(context: *mut c_void, progress: *const denrei_cast_progress) -> bool>;

/// How sending went. Give it back with denrei_cast_report_free.
pub struct denrei_cast_report {
    report: SendReport,
}

/// How sending went, in numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_cast_summary {
    /// Whether every receiver has everything.
    pub complete: bool,
    /// The cast's name, its first octets.
    pub cast: u64,
    /// From the first piece until the last receiver had everything.
    pub took_us: u64,
    /// Bytes of what was sent.
    pub bytes: u64,
    /// Bytes put onto the network, with headers.
    pub wire_bytes: u64,
    /// Datagrams put onto the network.
    pub wire_packets: u64,
    /// Sent again to the whole group.
    pub multicast_repairs: u64,
    /// Sent again to single receivers.
    pub unicast_repairs: u64,
    /// How many receivers there were.
    pub member_count: usize,
}

/// How receiving went.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_cast_receipt {
    /// The cast's name, its first octets.
    pub cast: u64,
    /// The sender's address.
    pub sender: [c_char; 64],
    /// From the offer until everything was in its place.
    pub took_us: u64,
    /// Bytes of all that was sent.
    pub bytes: u64,
    /// Of these, those that were here before.
    pub resumed_bytes: u64,
    /// Those that came now.
    pub new_bytes: u64,
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
}

impl From<CastError> for Failure {
    fn from(error: CastError) -> Self {
        let code = match error {
            CastError::Cancelled => denrei_code::DENREI_CANCELLED,
            CastError::NoReceivers(_) => denrei_code::DENREI_TIMEOUT,
            CastError::Storage { .. } => denrei_code::DENREI_SYSTEM,
            _ => DENREI_CAST,
        };
        Self::new(code, error)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl From<&MemberProgress> for denrei_cast_member {
    fn from(member: &MemberProgress) -> Self {
        let (stage, reason) = match &member.state {
            State::Absent { why } => (DENREI_CAST_ABSENT, why.as_deref()),
            State::Invited => (DENREI_CAST_INVITED, None),
            State::Receiving => (DENREI_CAST_RECEIVING, None),
            State::Complete { .. } => (DENREI_CAST_COMPLETE, None),
            State::Failed { text, .. } => (DENREI_CAST_FAILED, Some(text.as_str())),
        };
        Self {
            stage,
            address: array_of(&member.addr.to_string()),
            name: array_of(&member.name),
            reason: array_of(reason.unwrap_or_default()),
            bytes: member.bytes,
            resumed_bytes: 0,
            took_us: 0,
        }
    }
}

impl From<&MemberReport> for denrei_cast_member {
    fn from(member: &MemberReport) -> Self {
        let (stage, reason) = match &member.outcome {
            Outcome::Complete => (DENREI_CAST_COMPLETE, None),
            Outcome::Failed(why) => (DENREI_CAST_FAILED, Some(why.as_str())),
            Outcome::Vanished(why) => (DENREI_CAST_ABSENT, Some(why.as_str())),
            Outcome::Absent => (DENREI_CAST_ABSENT, None),
        };
        Self {
            stage,
            address: array_of(&member.addr.to_string()),
            name: array_of(&member.name),
            reason: array_of(reason.unwrap_or_default()),
            bytes: 0,
            resumed_bytes: member.resumed_bytes,
            took_us: micros(member.took),
        }
    }
}

impl From<&ReceiveReport> for denrei_cast_receipt {
    fn from(report: &ReceiveReport) -> Self {
        Self {
            cast: report.cast,
            sender: array_of(&report.sender.to_string()),
            took_us: micros(report.took),
            bytes: report.bytes,
            resumed_bytes: report.resumed_bytes,
            new_bytes: report.new_bytes,
            files: report.files,
            directories: report.directories,
        }
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

fn sending(progress: &SendProgress, members: &[denrei_cast_member]) -> denrei_cast_progress {
    denrei_cast_progress {
        bytes: progress.sent_bytes,
        total_bytes: progress.total_bytes.unwrap_or(u64::MAX),
        elapsed_us: micros(progress.elapsed),
        sender: [0; 64],
        members: members.as_ptr(),
        member_count: members.len(),
    }
}

fn receiving(progress: &ReceiveProgress) -> denrei_cast_progress {
    let sender = progress.sender.map(|sender| sender.to_string()).unwrap_or_default();
    denrei_cast_progress {
        bytes: progress.bytes,
        total_bytes: progress.total_bytes.unwrap_or(u64::MAX),
        elapsed_us: 0,
        sender: array_of(&sender),
        members: std::ptr::null(),
        member_count: 0,
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
        let (node, options) = unsafe { (borrow("node", node)?, options.as_ref()) };
        if paths.is_null() || path_count == 0 {
            return Err(Failure::new(DENREI_INVALID, "paths are none"));
        }
        // SAFETY: by the contract.
        let paths = unsafe { std::slice::from_raw_parts(paths, path_count) };
        // SAFETY: by the contract.
        let paths = paths.iter().map(|path| unsafe { text("path", *path) }.map(PathBuf::from));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let members = match member_count {
            0 => Vec::new(),
            // SAFETY: by the contract.
            count => unsafe { resolve_all("members", members, count) }?,
        };
        let none = denrei_cast_options::default();
        let options = options.unwrap_or(&none);
        let sender = options.options.sender(node.node.clone(), &paths, members)?;
        let sent = sender.run(|progress| {
            let members: Vec<_> = progress.members.iter().map(denrei_cast_member::from).collect();
            options.tell(&sending(progress, &members))
        })?;
        // SAFETY: by the contract.
        unsafe { hand_out(report, denrei_cast_report { report: sent }) };
        Ok(())
    })
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
        let summary = denrei_cast_summary {
            complete: report.is_complete(),
            cast: report.cast,
            took_us: micros(report.took),
            bytes: report.bytes,
            wire_bytes: report.wire.bytes,
            wire_packets: report.wire.packets,
            multicast_repairs: report.wire.multicast_repairs,
            unicast_repairs: report.wire.unicast_repairs,
            member_count: report.members.len(),
        };
        // SAFETY: by the contract.
        unsafe { place.put(summary) };
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
        let (node, into, options) = unsafe { (borrow("node", node)?, text("into", into)?, options.as_ref()) };
        let none = denrei_cast_options::default();
        let options = options.unwrap_or(&none);
        let receiver = options.options.receiver(node.node.clone(), Path::new(into))?;
        let received = receiver.run(|progress| options.tell(&receiving(progress)))?;
        // SAFETY: by the contract.
        unsafe { put(receipt, (&received).into()) };
        Ok(())
    })
}
