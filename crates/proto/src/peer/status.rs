//! Status on demand (R7's SREQ): what the two sides ask each other about their queues.
//!
//! Inputs → outputs: requests of the application and of the peer → the frames that ask and answer, and
//! the event that tells. Source: R7; `spec/protocol.md` §8. An answer is made once per request and
//! repeated as it is, so that it says what held when it was asked.

use super::{Context, Peer};
use crate::event::Event;
use crate::sent::Control;
use denrei_wire::frame::Status;
use std::collections::VecDeque;

/// Status requests remembered; the answer to an older one is ignored.
const MAX_STATUS_REQUESTS: usize = 64;

/// Questions and answers of one session; most have none.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    /// Answer to the peer's newest request.
    answer: Option<Status>,
    next_request: u32,
    /// Requests that have not been answered, oldest first.
    requests: VecDeque<u32>,
}

impl Statuses {
    /// The answer to request `id`, if that is still the newest.
    pub fn answer(&self, id: u32) -> Option<Status> {
        self.answer.filter(|status| status.id == id)
    }

    /// The peer has the answer to request `id`.
    pub fn on_answer_acked(&mut self, id: u32) {
        self.answer = self.answer.filter(|status| status.id != id);
    }
}

impl Peer {
    /// SREQ: asks for the peer's state; the request's number.
    pub fn request_status(&mut self) -> u32 {
        let statuses = self.statuses.get_or_insert_default();
        let id = statuses.next_request;
        statuses.next_request = id.wrapping_add(1);
        if statuses.requests.len() == MAX_STATUS_REQUESTS {
            statuses.requests.pop_front();
        }
        statuses.requests.push_back(id);
        self.want(Control::StatusRequest { id });
        id
    }

    /// The session begins anew: what was asked is asked again.
    pub(super) fn restart_status(&mut self) {
        let Some(statuses) = &mut self.statuses else { return };
        statuses.answer = None;
        for id in statuses.requests.clone() {
            self.want(Control::StatusRequest { id });
        }
    }

    pub(super) fn on_status_request(&mut self, id: u32) {
        let statuses = self.statuses.get_or_insert_default();
        // An older request, repeated, must not displace the newest one's answer.
        if statuses.answer.is_some_and(|newest| newest.id.wrapping_sub(id) < u32::MAX / 2 && newest.id != id)
        {
            return;
        }
        statuses.answer = Some(Status {
            id,
            buffered_bytes: self.inbox.held_bytes(),
            buffered_messages: self.inbox.ready_messages() as u32,
        });
        self.control.retain(|control| !matches!(control, Control::Status { .. }));
        self.want(Control::Status { id });
    }

    pub(super) fn on_status(&mut self, cx: &mut Context<'_>, status: &Status) {
        let Some(statuses) = &mut self.statuses else { return };
        let Some(asked) = statuses.requests.iter().position(|id| *id == status.id) else { return };
        statuses.requests.remove(asked);
        cx.events.push(Event::Status {
            peer: self.id,
            request: status.id,
            buffered_bytes: status.buffered_bytes,
            buffered_messages: status.buffered_messages,
        });
    }
}
