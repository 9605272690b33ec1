//! The receiving half of a channel: whole messages, exactly once, in order (U2, U4, S4, S7).
//!
//! Inputs → outputs: message frames in any order → messages in sequence, offers in sequence, and
//! the credit the sender may have (S5). Source: `spec/protocol.md` §6.

use crate::blocks::Blocks;
use crate::buffer_pool::BufferPool;
use crate::config::{MESSAGE_COST_BYTES, OfferPolicy};
use crate::lending::{Handled, Memory};
use crate::pending::{Pending, Ready, Skipped};
use crate::placement::AcceptInto;
use crate::reassembly::Reassembly;
use crate::slots;
use bytes::Bytes;
use denrei_wire::Shape;
use denrei_wire::frame::{Fragment, Message, message_flags};
use denrei_wire::ids::expand;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Slots a queue keeps when it is empty.
const IDLE_SLOTS: usize = 4;

/// What a peer did that no honest implementation does.
pub(crate) type Violation = &'static str;

/// The violation that has an END code of its own.
pub(crate) const CREDIT_EXCEEDED: Violation = "more sent than the channel's credit allows";

const AFTER_CLOSE_WRITE: Violation = "a message after CLOSE_WRITE";

const OUT_OF_MEMORY: Violation = "a message within its credit for which there is no memory";

/// An offer whose turn in the sequence has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announced {
    pub number: u64,
    pub total: u64,
}

/// A message handed to the application.
#[derive(Debug)]
pub(crate) struct Taken {
    pub number: u64,
    pub data: Bytes,
}

/// The receiving half of a channel.
#[derive(Debug)]
pub(crate) struct RecvChannel {
    /// First number whose turn has not come.
    next: u64,
    pending: BTreeMap<u64, Pending>,
    ready: VecDeque<Ready>,
    /// Of these, the accepted offers, which became ready behind messages with larger numbers.
    late: BTreeSet<u64>,
    policy: OfferPolicy,
    /// Where the memory for messages in parts comes from.
    pool: BufferPool,
    /// Whether all that its sender had to send has come.
    pub ended: bool,
    /// Whether the endpoint lists this channel among those with something to take.
    pub listed: bool,
    /// Cost of the messages seen, granted to the sender, and given back by the application.
    seen: u64,
    granted: u64,
    taken: u64,
    /// Bytes held here.
    held_bytes: u64,
    /// Bytes of offers on the endpoint's list, and the numbers of those that are on none.
    queued_bytes: u64,
    open_offers: BTreeSet<u64>,
    /// Accepted messages that are not complete.
    promised: usize,
    /// The sender asked for word of messages below this, and has been told of those below that.
    report_below: u64,
    reported: u64,
}

impl RecvChannel {
    pub fn new(initial_credit: u64, policy: OfferPolicy, pool: BufferPool) -> Self {
        Self {
            next: 0,
            pending: BTreeMap::new(),
            ready: VecDeque::new(),
            late: BTreeSet::new(),
            policy,
            pool,
            ended: false,
            listed: false,
            seen: 0,
            granted: initial_credit,
            taken: 0,
            held_bytes: 0,
            queued_bytes: 0,
            open_offers: BTreeSet::new(),
            promised: 0,
            report_below: 0,
            reported: 0,
        }
    }

    /// A whole message has arrived; the bytes newly held.
    pub fn on_message(&mut self, message: &Message<'_>, blocks: &mut Blocks) -> Result<u64, Violation> {
        let (number, payload) = (expand(message.number, self.next), message.payload);
        if self.is_known(number) {
            return Ok(0);
        }
        self.charge(payload.len() as u64 + MESSAGE_COST_BYTES)?;
        self.held_bytes += payload.len() as u64;
        let ready = Ready {
            number,
            data: blocks.copy(payload, &self.pool),
            cost: payload.len() as u64 + MESSAGE_COST_BYTES,
            report: message.flags & message_flags::REPORT != 0,
        };
        if number == self.next && self.pending.is_empty() {
            self.next += 1;
            blocks.slots.push(&mut self.ready, ready);
        } else {
            self.pending.insert(number, Pending::Whole(ready));
        }
        Ok(payload.len() as u64)
    }

    /// A part of a message has arrived; the bytes newly held.
    pub fn on_fragment(&mut self, fragment: &Fragment<'_>) -> Result<u64, Violation> {
        let number = expand(fragment.number, self.next);
        let report = fragment.flags & message_flags::REPORT != 0;
        let mut held = 0;
        if !self.is_known(number) {
            if fragment.flags & message_flags::OFFERED != 0 {
                return Err("fragment of a message that was not accepted");
            }
            self.charge(fragment.total.saturating_add(MESSAGE_COST_BYTES))?;
            let reassembly = Reassembly::new(fragment.total, Vec::new(), &self.pool).map(Box::new);
            let reassembly = reassembly.ok_or(OUT_OF_MEMORY)?;
            held = fragment.total;
            self.held_bytes += held;
            self.pending.insert(number, Pending::Unasked { reassembly, report });
        }
        let reassembly = match self.pending.get_mut(&number) {
            Some(Pending::Unasked { reassembly, .. } | Pending::Accepted { reassembly, .. }) => reassembly,
            // It was acknowledged, so it must not be dropped; nobody sends it before the ACCEPT.
            Some(Pending::Offered { .. }) => return Err("fragment of a message that was not accepted"),
            _ => return Ok(held),
        };
        if reassembly.total() != fragment.total {
            return Err("two sizes of one message");
        }
        reassembly
            .insert(fragment.offset, fragment.payload)
            .map_err(|_| "message cut into too many pieces")?;
        if reassembly.is_complete() {
            self.complete(number);
        }
        Ok(held)
    }

    /// Lends the memory of the message that fragment `number` was of: see [`Reassembly::lend`].
    pub fn lend(&mut self, number: u32, datagram: &Handled) -> Option<(u64, Memory, usize, Shape)> {
        let number = expand(number, self.next);
        let (memory, at, shape) = self.reassembly(number)?.lend(datagram)?;
        Some((number, memory, at, shape))
    }

    /// The memory of a message is here again, unless that does not come any more.
    pub fn take_back(&mut self, number: u64, memory: Memory) {
        if let Some(reassembly) = self.reassembly(number) {
            reassembly.take_back(memory);
        }
    }

    fn reassembly(&mut self, number: u64) -> Option<&mut Reassembly> {
        match self.pending.get_mut(&number)? {
            Pending::Unasked { reassembly, .. } | Pending::Accepted { reassembly, .. } => Some(reassembly),
            _ => None,
        }
    }

    /// An offer has arrived. `refuse` it if it is larger than any message taken here; whether that
    /// was done.
    pub fn on_offer(
        &mut self,
        number: u32,
        flags: u8,
        total: u64,
        max: u64,
    ) -> Result<Option<u64>, Violation> {
        let number = expand(number, self.next);
        if self.is_known(number) {
            return Ok(None);
        }
        self.charge(MESSAGE_COST_BYTES)?;
        let refuse = total > max;
        let report = flags & message_flags::REPORT != 0;
        let entry = match refuse {
            true => Pending::Refused { cost: MESSAGE_COST_BYTES },
            false => Pending::Offered { total, report, queued: false },
        };
        if !refuse {
            self.open_offers.insert(number);
        }
        self.pending.insert(number, entry);
        Ok(refuse.then_some(number))
    }

    /// The sender has given a message up. One that is complete here is kept: it was not late.
    pub fn on_skip(&mut self, number: u32, charged: u64) -> Result<Skipped, Violation> {
        let number = expand(number, self.next);
        let mut skipped = Skipped::default();
        let Some(entry) = self.pending.get_mut(&number) else {
            if number >= self.next {
                let cost = charged.saturating_add(MESSAGE_COST_BYTES);
                self.charge(cost)?;
                self.pending.insert(number, Pending::Refused { cost });
            }
            return Ok(skipped);
        };
        match entry {
            Pending::Whole(_) | Pending::Refused { .. } => return Ok(skipped),
            Pending::Unasked { reassembly, .. } => skipped.freed = reassembly.total(),
            Pending::Offered { total, queued: true, .. } => self.queued_bytes -= *total,
            Pending::Offered { .. } => _ = self.open_offers.remove(&number),
            Pending::Accepted { reassembly, .. } => {
                self.promised -= 1;
                // Nothing of what is placed.
                skipped.freed = reassembly.held();
            }
        }
        *entry = Pending::Refused { cost: entry.cost() };
        self.held_bytes -= skipped.freed;
        if number < self.next {
            // The application has been told of it, and may have accepted.
            skipped.withdrawn = Some(number);
            self.drop_refused(number);
        }
        Ok(skipped)
    }

    /// Moves on as far as the sequence is complete. Hands each offer whose turn has come to
    /// `announce`; whether there is something to take.
    pub fn advance(&mut self, mut announce: impl FnMut(Announced)) -> bool {
        while let Some(entry) = self.pending.get(&self.next) {
            match entry {
                Pending::Whole(_) => self.make_ready(self.next),
                Pending::Refused { .. } => self.drop_refused(self.next),
                // The application has the offer; what follows need not wait for its bytes.
                Pending::Offered { total, .. } if self.policy == OfferPolicy::Ask => {
                    announce(Announced { number: self.next, total: *total });
                }
                Pending::Accepted { .. } if self.policy == OfferPolicy::Ask => {}
                _ => break,
            }
            self.next += 1;
        }
        !self.ready.is_empty()
    }

    /// Whether offers wait that have not been handed to [`queue_offers`](Self::queue_offers)' caller.
    pub fn has_open_offers(&self) -> bool {
        !self.open_offers.is_empty()
    }

    /// Hands the offer that this channel may accept now to `queue`, once. In sequence and one at a
    /// time, so that what is accepted never waits for what is not. A channel may hold its credit
    /// window, or one message and the next, so that a reader who stops does not fill the memory of
    /// all; the message whose turn it is may always come, because nothing can be taken before it.
    pub fn queue_offers(&mut self, window: u64, mut queue: impl FnMut(Announced)) {
        let Some(&number) = self.open_offers.first().filter(|_| self.queued_bytes == 0) else { return };
        let Some(Pending::Offered { total, queued, .. }) = self.pending.get_mut(&number) else { return };
        if number == self.next || self.held_bytes <= window.max(*total) {
            *queued = true;
            self.queued_bytes += *total;
            self.open_offers.pop_first();
            queue(Announced { number, total: *total });
        }
    }

    /// Offers whose turn has come and that wait for the application's word.
    pub fn announced_offers(&self) -> impl Iterator<Item = Announced> + '_ {
        let announced = self.pending.range(..self.next).filter(|_| self.policy == OfferPolicy::Ask);
        announced.filter_map(|(&number, entry)| match entry {
            Pending::Offered { total, .. } => Some(Announced { number, total: *total }),
            _ => None,
        })
    }

    /// Accepts an offer; the bytes newly held, or `None` if there is no such offer.
    /// There is none either when the memory is not to be had.
    pub fn accept(&mut self, number: u64, into: AcceptInto) -> Option<u64> {
        let entry = self.pending.get_mut(&number)?;
        let Pending::Offered { total, report, queued } = *entry else { return None };
        let reassembly = Box::new(Reassembly::new(total, into, &self.pool)?);
        let held = reassembly.held();
        match queued {
            true => self.queued_bytes -= total,
            false => _ = self.open_offers.remove(&number),
        }
        *entry = Pending::Accepted { reassembly, report };
        self.promised += 1;
        self.held_bytes += held;
        Some(held)
    }

    /// Refuses an offer; whether there was one.
    pub fn refuse(&mut self, number: u64) -> bool {
        let Some(entry) = self.pending.get_mut(&number) else { return false };
        let Pending::Offered { total, queued, .. } = *entry else { return false };
        match queued {
            true => self.queued_bytes -= total,
            false => _ = self.open_offers.remove(&number),
        }
        *entry = Pending::Refused { cost: MESSAGE_COST_BYTES };
        if number < self.next {
            self.drop_refused(number);
        }
        true
    }

    /// The full number of an offer that was accepted and is not complete.
    pub fn granted_offer(&self, number: u32) -> Option<u64> {
        let number = expand(number, self.next);
        self.grant(number).map(|_| number)
    }

    /// How far an accepted message may be sent, for its ACCEPT; `None` once that no longer matters.
    pub fn grant(&self, number: u64) -> Option<u64> {
        match self.pending.get(&number) {
            Some(Pending::Accepted { reassembly, .. }) => Some(reassembly.total()),
            _ => None,
        }
    }

    /// The next message in sequence, if there is one.
    pub fn take(&mut self, blocks: &mut Blocks) -> Option<Taken> {
        let Ready { number, data, cost, report } = self.ready.pop_front()?;
        if !self.late.is_empty() {
            self.late.remove(&number);
        }
        if report {
            self.report_below = self.report_below.max(number + 1);
        }
        self.taken += cost;
        self.held_bytes -= data.len() as u64;
        blocks.slots.take_back(&mut self.ready, IDLE_SLOTS);
        Some(Taken { number, data })
    }

    /// Accepted messages that are not complete.
    pub fn promised(&self) -> usize {
        self.promised
    }

    /// Whether there is something to take.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Size of the message that [`take`](Self::take) would give.
    pub fn peek(&self) -> Option<usize> {
        self.ready.front().map(|ready| ready.data.len())
    }

    /// Messages that could be taken.
    pub fn ready_messages(&self) -> usize {
        self.ready.len()
    }

    /// Grants credit up to `window` beyond what was taken, if that is worth a frame; whether it is.
    pub fn renew_credit(&mut self, window: u64) -> bool {
        // A quarter at a time: few frames, and the sender never runs dry.
        let wanted = self.taken + window;
        let worth_it = wanted >= self.granted + window / 4;
        if worth_it {
            self.granted = wanted;
        }
        worth_it
    }

    /// Cost of the messages seen.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// What a CREDIT frame has to say.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Whether a DELIVERED frame would tell the sender something it asked for.
    pub fn owes_report(&self) -> bool {
        self.report_below > self.reported && self.undelivered() > self.reported
    }

    /// What a DELIVERED frame has to say: everything below was handed over (or refused).
    pub fn report(&mut self) -> u64 {
        self.reported = self.undelivered();
        self.reported
    }

    /// First number that the application has not taken.
    fn undelivered(&self) -> u64 {
        // Whatever is in its order behind a late one became ready after that, and so has a larger number.
        let ready = self.ready.front().map_or(self.next, |ready| ready.number);
        let ready = self.late.first().map_or(ready, |late| ready.min(*late));
        let pending = self.pending.keys().next().copied().unwrap_or(self.next);
        ready.min(pending).min(self.next)
    }

    /// Drops everything received and not taken; the bytes freed.
    pub fn discard(&mut self) -> u64 {
        // Announced offers have had their turn: nothing will move past them again.
        self.taken += self.pending.range(..self.next).map(|(_, entry)| entry.cost()).sum::<u64>();
        self.pending.retain(|number, _| *number >= self.next);
        for entry in self.pending.values_mut() {
            *entry = Pending::Refused { cost: entry.cost() };
        }
        self.queued_bytes = 0;
        self.open_offers.clear();
        self.promised = 0;
        self.taken += self.ready.drain(..).map(|ready| ready.cost).sum::<u64>();
        self.late.clear();
        core::mem::take(&mut self.held_bytes)
    }

    /// Forgets incomplete messages: the peer is gone. The bytes freed.
    pub fn drop_incomplete(&mut self) -> u64 {
        let ready: u64 = self.ready.iter().map(|ready| ready.data.len() as u64).sum();
        let freed = self.held_bytes - ready;
        self.held_bytes = ready;
        self.promised = 0;
        self.pending.clear();
        self.open_offers.clear();
        freed
    }

    /// Whether nothing has come of a message.
    pub fn is_new(&self, number: u32) -> bool {
        !self.is_known(expand(number, self.next))
    }

    fn is_known(&self, number: u64) -> bool {
        number < self.next || self.pending.contains_key(&number)
    }

    /// Takes note of a message that is new.
    fn charge(&mut self, cost: u64) -> Result<(), Violation> {
        if self.ended {
            return Err(AFTER_CLOSE_WRITE);
        }
        let seen = self.seen.saturating_add(cost);
        if seen > self.granted {
            return Err(CREDIT_EXCEEDED);
        }
        self.seen = seen;
        Ok(())
    }

    fn complete(&mut self, number: u64) {
        let Some(entry) = self.pending.remove(&number) else { return };
        let (data, report, cost) = match entry {
            Pending::Unasked { reassembly, report } => {
                let cost = reassembly.total() + MESSAGE_COST_BYTES;
                (reassembly.into_bytes(), report, cost)
            }
            Pending::Accepted { reassembly, report } => {
                self.promised -= 1;
                (reassembly.into_bytes(), report, MESSAGE_COST_BYTES)
            }
            other => {
                self.pending.insert(number, other);
                return;
            }
        };
        let ready = Ready { number, data, cost, report };
        if number < self.next {
            // Its turn came when it was announced.
            self.late.insert(number);
            slots::push(&mut self.ready, ready);
        } else {
            self.pending.insert(number, Pending::Whole(ready));
        }
    }

    fn make_ready(&mut self, number: u64) {
        if let Some(Pending::Whole(ready)) = self.pending.remove(&number) {
            slots::push(&mut self.ready, ready);
        }
    }

    fn drop_refused(&mut self, number: u64) {
        if let Some(entry) = self.pending.remove(&number) {
            self.taken += entry.cost();
        }
    }
}
