//! What has arrived, and whether it is what had to arrive.
//!
//! Inputs → outputs: messages → counts per session and channel, and what was lost, repeated, out of
//! order or changed.

use crate::{Plan, Report, Session};
use denrei::Message;
use std::collections::BTreeMap;
use std::time::Instant;

/// Faults reported per session: the first few say all.
const MAX_PROBLEMS: usize = 8;

/// Counts, by session.
#[derive(Default)]
pub struct Tally {
    plan: Option<Plan>,
    from: Vec<u64>,
    trace: bool,
    sessions: BTreeMap<u64, Session>,
    /// When the last message of each session came.
    last: BTreeMap<u64, Instant>,
}

impl Tally {
    /// Compares content with `plan`, whose index `from[channel]` is message 0 of a session.
    pub fn verifying(plan: Plan, from: Vec<u64>, trace: bool) -> Self {
        Self { plan: Some(plan), from, trace, ..Self::default() }
    }

    pub fn sessions(&self) -> Vec<Session> {
        self.sessions.values().cloned().collect()
    }

    /// Counts a message; a report if each is to be reported.
    pub fn on_message(&mut self, message: &Message) -> Option<Report> {
        let peer = message.channel.peer.as_u64();
        let (channel, number) = (message.channel.channel, message.number);
        let session = self.sessions.entry(peer).or_insert_with(|| Session { peer, ..Session::default() });
        let now = Instant::now();
        let since = self.last.insert(peer, now).map_or(0, |last| now.duration_since(last).as_millis() as u64);
        session.longest_gap_ms = session.longest_gap_ms.max(since);
        let place = usize::from(channel);
        if session.channels.len() <= place {
            session.channels.resize(place + 1, 0);
        }
        let due = std::mem::replace(&mut session.channels[place], number + 1);
        session.bytes += message.data.len() as u64;
        let index = self.from.get(place).copied().unwrap_or(0) + number;
        let order = if due == number { Ok(()) } else { Err(format!("came where {due} was due")) };
        let content = self.plan.map_or(Ok(()), |plan| plan.check(channel, index, &message.data));
        for problem in [order, content].into_iter().filter_map(Result::err) {
            if session.problems.len() < MAX_PROBLEMS {
                session.problems.push(format!("channel {channel}, message {number}: {problem}"));
            }
        }
        self.trace.then_some(Report::Took { peer, channel, index })
    }
}
