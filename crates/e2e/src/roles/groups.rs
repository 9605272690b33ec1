//! Groups of the role `node`: the one it opened, and those it is a member of.
//!
//! Inputs → outputs: orders and turns → messages to a group at a pace, messages of groups compared with
//! a plan, reports.

use super::tally::Tally;
use super::{report, report_failure};
use crate::{Order, Plan, Report};
use anyhow::Result;
use denrei::{
    ChannelId, Group, GroupError, GroupEvent, GroupListener, GroupMessage, GroupOptions, Membership, Message,
    Node, PeerId,
};
use std::time::{Duration, Instant};

/// Messages sent, and messages taken of a group, before others get their turn.
const MAX_PER_TURN: usize = 32;
/// Groups are messages of this channel of a plan.
const CHANNEL: u16 = 0;

/// Messages to the group on their way.
struct Sending {
    plan: Plan,
    next: u64,
    to: u64,
    pace: Duration,
    due: Instant,
    began: Instant,
    bytes: u64,
}

/// A group's listener, and what its messages have to be.
struct Joined {
    listener: GroupListener,
    tally: Tally,
    members: Vec<Membership>,
}

/// All groups of a process.
#[derive(Default)]
pub struct Groups {
    opened: Option<Group>,
    sending: Option<Sending>,
    joined: Option<Joined>,
}

impl Groups {
    /// Whether there is something to do at every turn.
    pub fn is_empty(&self) -> bool {
        self.opened.is_none() && self.joined.is_none()
    }

    /// Carries out an order that is about groups; others come back.
    pub fn carry_out(&mut self, node: &Node, order: Order) -> Result<Option<Order>> {
        let outcome = match order {
            Order::GroupJoin { address, plan } => node.join_group(address).map(|listener| {
                let tally = Tally::verifying(plan, Vec::new(), false);
                self.joined = Some(Joined { listener, tally, members: Vec::new() });
            }),
            Order::GroupOpen { address, members, admit } => {
                let options = GroupOptions { admit, ..GroupOptions::default() };
                node.open_group(address, &members, options).map(|group| self.opened = Some(group))
            }
            Order::GroupSend { plan, to, pace_us } => {
                let (now, pace) = (Instant::now(), Duration::from_micros(pace_us));
                self.sending = Some(Sending { plan, next: 0, to, pace, due: now, began: now, bytes: 0 });
                return Ok(None);
            }
            Order::GroupEject { member } => self.eject(member).map_err(Into::into),
            Order::GroupTally => {
                let sessions = self.joined.as_ref().map(|joined| joined.tally.sessions());
                report(&Report::Tally(sessions.unwrap_or_default()))?;
                return Ok(None);
            }
            order => return Ok(Some(order)),
        };
        match outcome {
            Ok(()) => report(&Report::Done)?,
            Err(error) => report_failure(error)?,
        }
        Ok(None)
    }

    fn eject(&self, member: u32) -> Result<(), GroupError> {
        self.opened.as_ref().map_or(Ok(()), |group| group.remove_member(member))
    }

    /// Sends what is due and takes what is here.
    pub fn turn(&mut self) -> Result<()> {
        if let Some(joined) = &mut self.joined {
            joined.take();
        }
        let Some(group) = &self.opened else { return Ok(()) };
        while let Some(event) = group.try_event() {
            if let GroupEvent::Departed { member, why, .. } = event {
                report(&Report::GroupDeparted { member, why: why.to_string() })?;
            }
        }
        let Some(sending) = &mut self.sending else { return Ok(()) };
        match sending.advance(group) {
            Ok(false) => Ok(()),
            Ok(true) => {
                let (messages, bytes) = (sending.to, sending.bytes);
                let millis = sending.began.elapsed().as_millis() as u64;
                self.sending = None;
                report(&Report::GroupSent { messages, bytes, millis })
            }
            Err(error) => {
                self.sending = None;
                report_failure(error)
            }
        }
    }
}

impl Joined {
    fn take(&mut self) {
        self.members.extend(self.listener.accept(Duration::ZERO));
        for member in &self.members {
            for _ in 0..MAX_PER_TURN {
                let Ok(Some(GroupMessage { number, data })) = member.try_recv() else { break };
                let channel = ChannelId { peer: PeerId::from_u64(member.id().0), channel: CHANNEL };
                self.tally.on_message(&Message { channel, number, data });
            }
        }
    }
}

impl Sending {
    /// Sends what is due; whether everything has been sent and all members have it.
    fn advance(&mut self, group: &Group) -> Result<bool, GroupError> {
        for _ in 0..MAX_PER_TURN {
            let now = Instant::now();
            if self.next == self.to || self.due > now {
                break;
            }
            let content = self.plan.content(CHANNEL, self.next);
            let bytes = content.len() as u64;
            match group.try_send(content) {
                Ok(_) => {}
                Err(GroupError::WouldBlock { .. }) => break,
                Err(error) => return Err(error),
            }
            self.next += 1;
            self.bytes += bytes;
            self.due = self.due.max(now) + self.pace;
        }
        let arrived = || group.status().is_none_or(|status| status.messages_acknowledged >= self.to);
        Ok(self.next == self.to && arrived())
    }
}
