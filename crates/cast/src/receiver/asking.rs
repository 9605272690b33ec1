//! Whom a receiver asks for a cast, and when it turns to another sender of the same one.
//!
//! Inputs → outputs: senders that were named or heard, time → HELLO to them; a sender that is silent though another
//! offers the same → that one. Source: `spec/cast.md` §5, §7.

use super::Receiver;
use crate::error::CastError;
use crate::message::{Message, VERSION};
use denrei::{ConnectError, PeerId, Phase};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often a sender that was named is asked.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a sender that was heard has to answer: who forges or repeats a beacon makes a receiver ask in vain.
const ANSWER: Duration = Duration::from_secs(3);
/// Says to nobody that it was waited for (`spec/protocol.md` §8: the application's).
const NO_ANSWER: u16 = 0x8000;
/// A sender that is silent for so long is asked for a sign of life, while another offers the same.
const ASK_AFTER: Duration = Duration::from_millis(500);
/// One that gives none for so long is left for the other.
const SILENCE: Duration = Duration::from_secs(2);

impl Receiver {
    /// Asks senders that were named or have been heard.
    pub(super) fn find(&mut self, now: Instant) -> Result<(), CastError> {
        self.forget_silent(now);
        if self.sender.is_some() {
            return Ok(());
        }
        let due = self.asked_at.is_none_or(|asked| now.duration_since(asked) >= ASK_INTERVAL);
        let named = self.options.from.filter(|_| due);
        let heard = self.finder.as_mut().and_then(|finder| finder.poll(now));
        if let Some(sender) = named {
            self.asked_at = Some(now);
            // It does not become possible by waiting.
            if let Err(error @ (ConnectError::OtherFamily { .. } | ConnectError::BadAddress(_))) =
                self.ask(sender)
            {
                return Err(CastError::NoReceivers(format!("the sender cannot be asked: {error}")));
            }
        }
        // One that has not answered yet has been told already.
        if let Some(sender) = heard.filter(|sender| !self.is_asked(*sender)) {
            self.asked_at = Some(now);
            let known = self.node.peer_at(sender).is_some();
            let peer = self.ask(sender).ok().filter(|_| !known);
            self.asked.extend(peer.map(|peer| (peer, now)));
        }
        Ok(())
    }

    fn ask(&self, sender: SocketAddr) -> Result<PeerId, ConnectError> {
        let peer = self.node.connect(sender);
        let peer = peer.inspect_err(|error| tracing::debug!("cannot ask {sender}: {error}"))?;
        self.say(peer, &Message::Hello { version: VERSION });
        Ok(peer)
    }

    fn is_asked(&self, sender: SocketAddr) -> bool {
        self.node.peer_at(sender).is_some_and(|peer| self.asked.iter().any(|(asked, _)| *asked == peer))
    }

    /// Tries no longer with those who were heard and do not answer.
    fn forget_silent(&mut self, now: Instant) {
        let node = &self.node;
        self.asked.retain(|(peer, at)| {
            let silent = node.flow(*peer).is_some_and(|flow| flow.phase == Phase::Opening);
            let late = now.duration_since(*at) >= ANSWER;
            if silent && late {
                // It may have just ended by itself.
                let _ = node.abort(*peer, NO_ANSWER, "no answer");
            }
            silent && !late
        });
    }

    /// Leaves a sender that does not answer, where another offers the same: it was killed and started again, most
    /// likely, which its session would show much later.
    pub(super) fn turn_to_next(&mut self, now: Instant) -> Result<(), CastError> {
        let (Some((peer, _)), Some(_)) = (self.sender, self.next_sender) else {
            self.heard = None;
            return Ok(());
        };
        let Some(flow) = self.node.flow(peer) else { return Ok(()) };
        let received = flow.counters.packets_received;
        let since = match self.heard {
            // Time in which nobody was listened to, as files were verified, is nobody's silence.
            Some((before, since, at))
                if before == received && now.saturating_duration_since(at) < ASK_AFTER =>
            {
                since
            }
            _ => now,
        };
        self.heard = Some((received, since, now));
        let silence = now.saturating_duration_since(since);
        if silence >= SILENCE {
            let why = "it does not answer, and another sends the same";
            // It may have just ended by itself.
            let _ = self.node.abort(peer, NO_ANSWER, why);
            return self.lost(peer, why);
        }
        // Where something is under way its transport is being asked.
        if silence >= ASK_AFTER && flow.queued_messages == 0 {
            self.say(peer, &Message::Hello { version: VERSION });
        }
        Ok(())
    }
}
