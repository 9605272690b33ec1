//! How casts go, and how they went, in the terms of C.

use crate::error::array_of;
use denrei_cast::{
    MemberProgress, MemberReport, Outcome, ReceiveProgress, ReceiveReport, SendProgress, SendReport, State,
    by_name,
};
use std::ffi::{CString, c_char};
use std::time::Duration;

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
    /// What the user should know, a sentence each, valid during the call: what was left out, casts that
    /// cannot be heard.
    pub warnings: *const *const c_char,
    /// How many they are.
    pub warning_count: usize,
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
            reason: array_of(&by_name(reason.unwrap_or_default())),
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
            reason: array_of(&by_name(reason.unwrap_or_default())),
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

impl From<&SendReport> for denrei_cast_summary {
    fn from(report: &SendReport) -> Self {
        Self {
            complete: report.is_complete(),
            cast: report.cast,
            took_us: micros(report.took),
            bytes: report.bytes,
            wire_bytes: report.wire.bytes,
            wire_packets: report.wire.packets,
            multicast_repairs: report.wire.multicast_repairs,
            unicast_repairs: report.wire.unicast_repairs,
            member_count: report.members.len(),
        }
    }
}

/// Sentences as C wants them.
pub(crate) struct Warnings {
    /// What the pointers point to.
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Warnings {
    pub fn new(warnings: &[String]) -> Self {
        // Names of files may not have a NUL in them, so neither do these.
        let texts: Vec<_> = warnings.iter().filter_map(|text| CString::new(by_name(text)).ok()).collect();
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Self { _texts: texts, pointers }
    }
}

/// A sender's progress; what it points to belongs to `members` and `warnings`.
pub(crate) fn sending(
    progress: &SendProgress,
    members: &[denrei_cast_member],
    warnings: &Warnings,
) -> denrei_cast_progress {
    denrei_cast_progress {
        bytes: progress.sent_bytes,
        total_bytes: progress.total_bytes.unwrap_or(u64::MAX),
        elapsed_us: micros(progress.elapsed),
        sender: [0; 64],
        members: members.as_ptr(),
        member_count: members.len(),
        warnings: warnings.pointers.as_ptr(),
        warning_count: warnings.pointers.len(),
    }
}

/// A receiver's progress; what it points to belongs to `warnings`.
pub(crate) fn receiving(progress: &ReceiveProgress, warnings: &Warnings) -> denrei_cast_progress {
    let sender = progress.sender.map(|sender| sender.to_string()).unwrap_or_default();
    denrei_cast_progress {
        bytes: progress.bytes,
        total_bytes: progress.total_bytes.unwrap_or(u64::MAX),
        elapsed_us: 0,
        sender: array_of(&sender),
        members: std::ptr::null(),
        member_count: 0,
        warnings: warnings.pointers.as_ptr(),
        warning_count: warnings.pointers.len(),
    }
}
