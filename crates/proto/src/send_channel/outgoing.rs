//! A message between `send` and its acknowledgement, or that of those before it.
//!
//! Inputs → outputs: how far it is → what may be sent of it, and what it means for the application that it is done.

use crate::Completion;
use bytes::Bytes;
use denrei_wire::frame::message_flags;

#[derive(Debug)]
pub(super) struct Outgoing {
    pub data: Bytes,
    pub completion: Completion,
    /// It goes before those that are not, if they have not been begun.
    pub is_first: bool,
    pub progress: Progress,
    /// Bytes sent for the first time.
    pub sent: u64,
    /// Bytes acknowledged.
    pub acked: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing sent.
    Queued,
    /// Charged to the channel's credit and on its way.
    Unasked,
    /// OFFER sent; so many bytes granted.
    Offered { limit: u64 },
    /// Too late; the receiver is being told. `charged`: octets of credit it was charged beyond the 64
    /// of every message, and whether these were.
    Skipped { charged: u64, billed: bool },
    /// Acknowledged, refused or dropped. `untold`: the first, and the application does not know: if one before it never
    /// arrives, this one has not, either.
    Done { untold: bool },
}

impl Progress {
    pub const DONE: Self = Self::Done { untold: false };

    /// Whether the message is still to be delivered.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Skipped { .. } | Self::Done { .. })
    }

    pub fn is_done(self) -> bool {
        matches!(self, Self::Done { .. })
    }

    /// Whether the application has to hear of the message when the session ends: the receiver may not hand it over, and
    /// nothing was said of it.
    pub fn may_be_lost(self) -> bool {
        self != Self::DONE
    }
}

impl Outgoing {
    pub fn new(data: Bytes, completion: Completion, is_first: bool) -> Self {
        Self { data, completion, is_first, progress: Progress::Queued, sent: 0, acked: 0 }
    }

    pub fn len(&self) -> u64 {
        self.data.len() as u64
    }

    pub fn flags(&self) -> u8 {
        let report = if self.completion == Completion::Delivered { message_flags::REPORT } else { 0 };
        let offered =
            if matches!(self.progress, Progress::Offered { .. }) { message_flags::OFFERED } else { 0 };
        report | offered
    }

    /// Bytes that may have been sent by now.
    pub fn limit(&self) -> u64 {
        match self.progress {
            Progress::Offered { limit } => limit.min(self.len()),
            _ => self.len(),
        }
    }

    /// All of it has arrived. Of one that was given up, or whose acknowledgement is reported, the application knows.
    pub fn arrived(&self) -> Progress {
        Progress::Done { untold: self.progress.is_open() && self.completion != Completion::Acknowledged }
    }
}
