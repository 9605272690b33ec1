//! No window: whoever configures this leaves the pace to the receiver's rate, burst and credit.
//!
//! Source: R1–R4. Loss and marks change nothing here; `spec/protocol.md` §5.6 says where that is
//! allowed.

use super::{Acked, Controller, MAX_WINDOW_BYTES};
use denrei_wire::Instant;

/// The controller that does not control.
#[derive(Debug)]
pub(super) struct RateOnly;

impl Controller for RateOnly {
    fn on_ack(&mut self, _acked: Acked) {}

    fn on_loss(&mut self, _now: Instant, _sent_at: Instant, _packets: u64) {}

    fn on_persistent_loss(&mut self) {}

    fn on_absence(&mut self) {}

    fn set_datagram_bytes(&mut self, _bytes: u64) {}

    fn window(&self) -> u64 {
        MAX_WINDOW_BYTES
    }
}
