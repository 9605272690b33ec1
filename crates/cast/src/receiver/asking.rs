//! Whom a receiver asks for a cast, and when it turns to another sender of the same one.
//!
//! Inputs → outputs: senders that were named or heard, time → HELLO to them; a sender that is silent though another
//! offers the same → that one. Source: `spec/cast.md` §5, §7.

use super::Receiver;
use crate::error::CastError;
use crate::message::{Message, VERSION};
use crate::silence::Silence;
use denrei::{ConnectError, PeerId, Phase};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often a sender that was named is asked.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a sender that was heard has to answer: who forges or repeats a beacon makes a receiver ask in vain.
const ANSWER: Duration = Duration::from_secs(3);
/// Says to nobody that it was waited for (`spec/protocol.md` §8: the application's).
const NO_ANSWER: u16 = 0x8000;
/// How often it is looked whether something has come from the sender.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// A sender that is silent for so long, though it was asked for a sign of life, may have been started again: others are
/// listened to …
const LISTEN_AFTER: Duration = Duration::from_secs(1);
/// … and taken for it, if they send the same.
const SILENCE: Duration = Duration::from_secs(2);

impl Receiver {
    /// Asks senders that were named or have been heard.
    pub(super) fn find(&mut self, now: Instant) -> Result<(), CastError> {
        self.forget_silent(now);
        let alone = self.sender.is_none();
        if !alone && self.silence(now) < LISTEN_AFTER {
            return Ok(());
        }
        let due = self.asked_at.is_none_or(|asked| now.duration_since(asked) >= ASK_INTERVAL);
        let named = self.options.from.filter(|_| due && alone);
        let heard = self.finder.as_mut().and_then(|finder| finder.poll(now));
        if let Some(sender) = named {
            self.asked_at = Some(now);
            // It does not become possible by waiting.
            match self.ask(sender) {
                Ok(_) | Err(ConnectError::TooManyPeers { .. }) => {}
                Err(error) => {
                    return Err(CastError::NoReceivers(format!("the sender cannot be asked: {error}")));
                }
            }
        }
        // One that has not answered yet has been told already; and HELLO behind the last word would begin it all anew.
        if let Some(sender) = heard.filter(|sender| !self.is_asked(*sender) && !self.is_told(*sender)) {
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

    /// Whether the last word is under way to a sender in the session that there is.
    fn is_told(&self, sender: SocketAddr) -> bool {
        self.last_word.is_some() && self.node.peer_at(sender).is_some_and(|peer| self.is_sender(peer))
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

    /// For how long nothing has come from the sender, which is asked for a sign of life then.
    fn silence(&mut self, now: Instant) -> Duration {
        let Some((peer, _)) = self.sender else {
            self.silence = None;
            return Duration::ZERO;
        };
        let received = || self.node.flow(peer).map_or(0, |flow| flow.counters.packets_received);
        let silence = match &mut self.silence {
            Some((of, silence)) if *of == peer => silence,
            other => return other.insert((peer, Silence::new(received(), now))).1.lasts(now),
        };
        if now.saturating_duration_since(silence.looked_at()) >= LOOK_INTERVAL
            && silence.look(received(), now)
        {
            // A session that is over says so by an event.
            let _ = self.node.request_status(peer);
        }
        silence.lasts(now)
    }

    /// Leaves a sender that gives no sign of life, where another offers the same: it was killed and started again, most
    /// likely, which its session would show much later.
    pub(super) fn turn_to_next(&mut self, now: Instant) -> Result<(), CastError> {
        let (Some((peer, _)), Some(_)) = (self.sender, self.next_sender) else { return Ok(()) };
        if self.silence(now) < SILENCE {
            return Ok(());
        }
        let why = "it does not answer, and another sends the same";
        // It may have just ended by itself.
        let _ = self.node.abort(peer, NO_ANSWER, why);
        self.lost(peer, why)
    }
}
