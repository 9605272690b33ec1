//! The honest group of a stage: the sender's, with the victim and perhaps an attacker as members.
//!
//! Inputs → outputs: who else is a member → messages at a pace, each checked by the victim, until the
//! attack is over; datagrams heard at the group's address.

use super::{ALONE, END_LIMIT, SETTLE, Stage};
use crate::forge;
use crate::member::Member;
use crate::outcome::Tried;
use anyhow::{Context, Result, ensure};
use denrei_e2e::{Order, Report, SOON};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// The group's address.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 91, 6), 7490);
/// Pause between two of its messages, µs.
const PACE_US: u64 = 2_000;
/// Turns in which an attacker becomes a member.
const TURN: Duration = Duration::from_millis(2);

impl Stage {
    /// Where the group is.
    pub fn group_addr(&self) -> SocketAddrV4 {
        GROUP
    }

    /// A socket on the attacker's host that hears the group.
    pub fn listener(&self) -> Result<UdpSocket> {
        forge::listener(self.lab.host(2).namespace(), self.attacker_ip(), GROUP)
    }

    /// Opens the group with the victim and, if there is one, `other` as members 0 and 1, and begins to
    /// send. Nobody else is let in.
    pub fn open_group(&mut self, other: Option<&mut Member>) -> Result<()> {
        self.victim.make(&Order::GroupJoin { address: GROUP.into(), plan: self.plan });
        let mut members: Vec<SocketAddr> = vec![self.victim_addr().into()];
        members.extend(other.as_ref().map(|other| other.local_addr()).transpose()?);
        self.sender.order(&Order::GroupOpen { address: GROUP.into(), members, admit: false });
        if let Some(other) = other {
            let until = Instant::now() + SOON;
            while !other.takes_part(GROUP.into())? {
                ensure!(Instant::now() < until, "the attacker was not made a member");
                other.drive(TURN)?;
            }
        }
        self.sender.wait("the group", SOON, |report| matches!(report, Report::Done).then_some(()));
        let time = ALONE + self.effort.time() + Duration::from_millis(500);
        self.group_messages = time.as_micros() as u64 / PACE_US;
        let (plan, to) = (self.plan, self.group_messages);
        self.sender.order(&Order::GroupSend { plan, to, pace_us: PACE_US });
        Ok(())
    }

    /// Removes the attacker from the group.
    pub fn eject(&mut self) {
        self.sender.make(&Order::GroupEject { member: 1 });
        self.attacker_departed();
    }

    /// Waits until the opener knows that the attacker is no member any more.
    pub fn attacker_departed(&mut self) {
        self.sender.wait("the departure", SOON, |report| match report {
            Report::GroupDeparted { member: 1, .. } => Some(()),
            _ => None,
        });
    }

    /// Waits for the end of what is sent to the group, and checks what the victim has got of it.
    pub fn end_group(&mut self, tried: &mut Tried) {
        let sent = self.sender.wait("end of the group's messages", END_LIMIT, |report| match *report {
            Report::GroupSent { messages, .. } => Some(messages),
            _ => None,
        });
        std::thread::sleep(SETTLE);
        let groups = self.victim.group_tally();
        let [group] = &groups[..] else {
            return tried.expect(false, || format!("the victim took part in {} groups", groups.len()));
        };
        tried.note(format!(
            "the group's {sent} messages, {} KiB: all checked; longest gap {} ms",
            group.bytes >> 10,
            group.longest_gap_ms
        ));
        self.past_gap_ms = self.past_gap_ms.max(group.longest_gap_ms);
        let (got, expected) = (group.messages(), self.group_messages);
        tried.expect(got == expected, || {
            format!("the victim took {got} of {expected} of the group's messages")
        });
        tried.failures.extend(group.problems.clone());
        self.delivered += group.problems.len() as u64;
    }

    /// One of the victim's counters.
    pub fn victim_counter(&mut self, name: &str) -> Result<u64> {
        let counters = self.victim.resources().counters;
        let value = counters.split_once(&format!(" {name}: ")).context("the victim has no such counter")?.1;
        let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().context("the counter is no number")
    }
}
