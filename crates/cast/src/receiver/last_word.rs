//! The last word of a receiver: that everything is in its place, or why it gives up.
//!
//! Inputs → outputs: a word → the sender has acknowledged it, in this session or in one that takes its place; or is
//! waited for no longer. A receiver that ended without would be taken for one that has vanished. Source: `spec/cast.md`
//! §5.

use super::{BROKEN_OFF, PROGRESS_INTERVAL, ReceiveProgress, Receiver, Reception, TURN};
use crate::error::CastError;
use crate::message::Message;
use denrei::PeerId;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How long a sender has to acknowledge the last word. That is longer than both sides need to miss a session and to
/// open another, and than a sender that nobody has told otherwise waits for a receiver.
pub(super) const LAST_WORD: Duration = Duration::from_secs(20);

impl Receiver {
    /// Says it to all who send this, and answers with it from now on.
    pub(super) fn say_last(&mut self, word: Message) {
        let sender = self.sender.map(|(peer, _)| peer);
        for peer in sender.into_iter().chain(self.next_sender.map(|(peer, _)| peer)) {
            self.say(peer, &word);
        }
        self.last_word = Some(word);
    }

    /// Tells the sender why nothing comes of this, also one that has to come back for that.
    pub(super) fn say_why(
        &mut self,
        error: &CastError,
        progress: &mut impl FnMut(&ReceiveProgress) -> ControlFlow<()>,
    ) {
        match (error, self.sender) {
            // The sender knows already what it has said itself, and was waited for.
            (CastError::Sender(_), _) => {}
            (CastError::Cancelled { .. }, sender) => {
                if let Some((peer, _)) = sender {
                    // It may be started again, and so has not failed. The session may have just ended by itself.
                    let _ = self.node.abort(peer, BROKEN_OFF, "interrupted");
                }
            }
            // Nobody is concerned.
            (_, None) if self.reception.is_none() => {}
            _ => {
                self.say_last(Message::Failed { code: error.code(), text: error.to_string() });
                self.be_heard(progress);
            }
        }
    }

    /// Says it to one that has offered the cast, if this has ended; whether it has.
    pub(super) fn answers_with_last(&self, peer: PeerId) -> bool {
        let Some(word) = &self.last_word else { return false };
        self.say(peer, word);
        true
    }

    /// Waits until the sender has heard the last word, where it is there or may come back; ends also when `progress`
    /// breaks that off.
    pub(super) fn be_heard(&mut self, progress: &mut impl FnMut(&ReceiveProgress) -> ControlFlow<()>) {
        let until = Instant::now() + LAST_WORD;
        while !(self.is_heard() || self.sender_ended && self.sender.is_none()) {
            let now = Instant::now();
            let interrupted = now.duration_since(self.progress_at) >= PROGRESS_INTERVAL && {
                self.progress_at = now;
                // The others of the group do not wait for who is through.
                self.membership = None;
                let (bytes, total_bytes) = self.reception.as_ref().map_or((0, None), Reception::bytes);
                let sender = self.sender.map(|(_, sender)| sender);
                progress(&ReceiveProgress { sender, bytes, total_bytes }).is_break()
            };
            // Neither is a reason to fail any more.
            let goes_on = self.find(now).and_then(|()| self.sessions()).is_ok();
            if interrupted || !goes_on || now >= until {
                tracing::warn!("the sender may not know how this has ended");
                return;
            }
        }
    }

    /// Whether all who send this have acknowledged the last word, and there is one.
    fn is_heard(&self) -> bool {
        let Some((sender, _)) = self.sender else { return false };
        let heard = |peer| self.node.flush(peer, TURN);
        heard(sender) && self.next_sender.is_none_or(|(next, _)| heard(next))
    }
}
