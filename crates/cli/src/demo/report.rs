//! The demonstration's account: what each pair has exchanged, and whether all of it is right.
//!
//! Inputs → outputs: the [`Members`] after the last stage → a table, and a verdict with its reasons.

use super::members::Members;
use super::protocol::Exchange;
use crate::cells::human_bytes;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Color, Table};
use derive_more::AddAssign;

/// With more nodes the table has a row per receiver, not per pair.
const MAX_NODES_BY_PAIR: usize = 6;

/// What was exchanged in one direction, or in several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign)]
struct Account {
    sent: u64,
    reported: u64,
    retransmitted: u64,
    received: u64,
    verified: u64,
    lost: u64,
    repeated: u64,
    out_of_order: u64,
    damaged: u64,
    bytes: u64,
}

impl Account {
    /// `undisturbed`: neither node was killed, so all that was sent has to have arrived.
    fn of_pair(sender: &Exchange, receiver: &Exchange, undisturbed: bool) -> Self {
        let arrived = &receiver.arrived;
        // A killed sender's last word is older than its last message.
        let sent = if undisturbed { sender.sent } else { sender.sent.max(arrived.received) };
        let absent = sent.saturating_sub(arrived.received.saturating_sub(arrived.repeated));
        Self {
            sent,
            reported: sender.reported,
            retransmitted: sender.retransmitted,
            received: arrived.received,
            verified: arrived.verified,
            lost: if undisturbed { absent.max(arrived.missing) } else { arrived.missing },
            repeated: arrived.repeated,
            out_of_order: arrived.out_of_order,
            damaged: arrived.damaged,
            bytes: arrived.bytes,
        }
    }

    fn faults(&self) -> u64 {
        self.lost + self.repeated + self.out_of_order + self.damaged
    }
}

/// The account of all pairs.
pub struct Report {
    accounts: Vec<Vec<Account>>,
    victim: usize,
    /// How long all stages took, if they came to their ends.
    seconds: Option<f64>,
    faults: Vec<String>,
}

impl Report {
    /// Draws up the account. `victim` is the node that was killed; `completed`: all stages came to their ends.
    pub fn new(members: &Members, victim: usize, completed: bool) -> Self {
        let count = members.len();
        let account = |from: usize, to: usize| {
            let undisturbed = from != victim && to != victim;
            Account::of_pair(&members.exchange(from, to), &members.exchange(to, from), undisturbed)
        };
        let accounts = (0..count).map(|from| (0..count).map(|to| account(from, to)).collect()).collect();
        let seconds = completed.then_some(members.busy_ms as f64 / 1e3);
        let mut report = Self { accounts, victim, seconds, faults: Vec::new() };
        report.judge(members);
        report
    }

    /// What did not hold; empty if all did.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// The table.
    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header([
            "from → to",
            "sent",
            "received",
            "verified",
            "lost",
            "repeated",
            "out of order",
            "damaged",
            "undelivered, told",
            "sent again",
            "throughput",
        ]);
        let mut total = Account::default();
        for to in 0..self.accounts.len() {
            let mut into = Account::default();
            for from in (0..self.accounts.len()).filter(|from| *from != to) {
                let account = &self.accounts[from][to];
                if self.accounts.len() <= MAX_NODES_BY_PAIR {
                    table.add_row(self.row(&format!("{} → {}", self.name(from), self.name(to)), account));
                }
                into += *account;
            }
            if self.accounts.len() > MAX_NODES_BY_PAIR {
                table.add_row(self.row(&format!("all → {}", self.name(to)), &into));
            }
            total += into;
        }
        table.add_row(self.row("all", &total));
        table
    }

    fn judge(&mut self, members: &Members) {
        for (from, row) in self.accounts.iter().enumerate() {
            for (to, account) in row.iter().enumerate().filter(|(_, account)| account.faults() > 0) {
                self.faults.push(format!(
                    "node {from} → node {to}: {} lost, {} repeated, {} out of order, {} damaged",
                    account.lost, account.repeated, account.out_of_order, account.damaged
                ));
            }
        }
        for observer in 0..members.len() {
            let mut seen = 0;
            for loss in members.losses().iter().filter(|loss| loss.observer == observer) {
                seen += usize::from(loss.lost == self.victim);
                if loss.lost != self.victim {
                    self.faults.push(format!(
                        "node {observer} lost node {}, which was alive: {}",
                        loss.lost, loss.reason
                    ));
                }
            }
            let due = usize::from(observer != self.victim);
            if seen != due {
                self.faults
                    .push(format!("node {observer} lost node {} {seen} times, not {due}", self.victim));
            }
        }
    }

    fn name(&self, index: usize) -> String {
        format!("{index}{}", if index == self.victim { "†" } else { "" })
    }

    fn row(&self, name: &str, account: &Account) -> Vec<Cell> {
        let count = |value: u64| Cell::new(value).set_alignment(CellAlignment::Right);
        let fault = |value: u64| {
            let color = if value == 0 { Color::Green } else { Color::Red };
            count(value).fg(color)
        };
        let throughput = match self.seconds {
            Some(seconds) => human_bytes(account.bytes as f64 / seconds.max(1e-3)) + "/s",
            None => "–".to_owned(),
        };
        vec![
            Cell::new(name),
            count(account.sent),
            count(account.received),
            count(account.verified),
            fault(account.lost),
            fault(account.repeated),
            fault(account.out_of_order),
            fault(account.damaged),
            count(account.reported),
            count(account.retransmitted),
            Cell::new(throughput).set_alignment(CellAlignment::Right),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::protocol::Arrived;

    fn exchange(sent: u64, received: u64, missing: u64) -> Exchange {
        let arrived = Arrived { received, verified: received, missing, ..Arrived::default() };
        Exchange { sent, arrived, ..Exchange::default() }
    }

    #[test]
    fn what_was_sent_between_the_living_has_to_arrive() {
        let account = Account::of_pair(&exchange(10, 0, 0), &exchange(0, 8, 1), true);
        assert_eq!((account.lost, account.faults()), (2, 2));
    }

    #[test]
    fn what_a_killed_node_had_in_its_hands_is_not_a_loss_but_a_gap_is() {
        let account = Account::of_pair(&exchange(10, 0, 0), &exchange(0, 8, 0), false);
        assert_eq!((account.sent, account.lost), (10, 0));
        let account = Account::of_pair(&exchange(5, 0, 0), &exchange(0, 8, 1), false);
        assert_eq!((account.sent, account.lost), (8, 1));
    }
}
