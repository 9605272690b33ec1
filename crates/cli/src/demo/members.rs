//! The node processes of the demonstration, as their parent sees them.
//!
//! Inputs → outputs: orders to all or one → their answers, gathered: who has finished which stage,
//! what each pair has exchanged, which peers were lost.

use super::protocol::{Answer, Exchange, Order, Setup};
use crate::cmd::key::KeyArgs;
use crate::process::LineProcess;
use anyhow::{Context, Result, bail};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

/// The hidden subcommand that is one node.
pub const NODE_COMMAND: &str = "__demo-node";

/// A node has to have its port open within this time.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// A node has to have closed its sessions and ended within this time.
const END_LIMIT: Duration = Duration::from_secs(3);

/// A peer that a node has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The node that noticed.
    pub observer: usize,
    /// The one it lost.
    pub lost: usize,
    /// Why.
    pub reason: String,
    /// Messages to it that are not known to have arrived.
    pub unacknowledged: u64,
}

/// One node, through all its lives.
struct Member {
    process: LineProcess,
    /// What earlier lives had exchanged, by node.
    past: Vec<Exchange>,
    /// What this life has exchanged, by node.
    present: Vec<Exchange>,
    /// The last stage it has finished, 0 before the first.
    finished: u32,
}

/// All nodes.
pub struct Members {
    members: Vec<Member>,
    addresses: Vec<SocketAddr>,
    losses: Vec<Loss>,
    seed: u64,
    keys: KeyArgs,
    /// The longest a node took over a stage, milliseconds, all stages together.
    pub busy_ms: u64,
    stage_ms: u64,
}

impl Members {
    /// Starts `count` nodes and tells each the addresses of all.
    pub fn start(count: usize, seed: u64, keys: KeyArgs) -> Result<Self> {
        let mut new = Self {
            members: Vec::new(),
            addresses: Vec::new(),
            losses: Vec::new(),
            seed,
            keys,
            busy_ms: 0,
            stage_ms: 0,
        };
        for index in 0..count {
            let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let setup = Setup { index, nodes: count, bind: any_port, seed, first_stage: 1 };
            let (process, addr) = start_node(&setup, &new.keys)?;
            let nothing = vec![Exchange::default(); count];
            new.members.push(Member { process, past: nothing.clone(), present: nothing, finished: 0 });
            new.addresses.push(addr);
        }
        new.order_all(&Order::Peers(new.addresses.clone()))?;
        Ok(new)
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Where the nodes are.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The process id of a node.
    pub fn pid(&self, index: usize) -> u32 {
        self.members[index].process.pid().unwrap_or(0)
    }

    /// Gives all the same order.
    pub fn order_all(&mut self, order: &Order) -> Result<()> {
        self.members.iter_mut().try_for_each(|member| member.process.send(order))
    }

    /// Lets all close their sessions and end.
    pub fn stop(&mut self) -> Result<()> {
        self.order_all(&Order::Stop)?;
        self.members.iter_mut().for_each(|member| member.process.end_within(END_LIMIT));
        Ok(())
    }

    /// Kills a node with SIGKILL.
    pub fn kill(&mut self, index: usize) {
        self.members[index].process.kill();
    }

    /// Starts a killed node again, at the same address, for the stages from `first_stage` on.
    pub fn restart(&mut self, index: usize, first_stage: u32) -> Result<()> {
        let bind = self.addresses[index];
        let setup = Setup { index, nodes: self.len(), bind, seed: self.seed, first_stage };
        let (mut process, _) = start_node(&setup, &self.keys)?;
        process.send(&Order::Peers(self.addresses.clone()))?;
        let member = &mut self.members[index];
        member.process = process;
        let last = std::mem::replace(&mut member.present, vec![Exchange::default(); self.addresses.len()]);
        for (past, last) in member.past.iter_mut().zip(&last) {
            *past += *last;
        }
        member.finished = first_stage - 1;
        Ok(())
    }

    /// Takes all answers that are there; whether there were any. `dead` is not asked.
    pub fn listen(&mut self, dead: Option<usize>) -> Result<bool> {
        let mut heard = false;
        for index in (0..self.len()).filter(|index| Some(*index) != dead) {
            while let Some(answer) = self.members[index].process.receive_within(Duration::ZERO)? {
                heard = true;
                self.take(index, answer)?;
            }
        }
        Ok(heard)
    }

    fn take(&mut self, index: usize, answer: Answer) -> Result<()> {
        match answer {
            Answer::Progress(exchanges) => self.members[index].present = exchanges,
            Answer::StageDone { stage, exchanges, took_ms } => {
                self.members[index].present = exchanges;
                self.members[index].finished = stage;
                self.stage_ms = self.stage_ms.max(took_ms);
            }
            Answer::PeerLost { index: lost, reason, unacknowledged } => {
                self.losses.push(Loss { observer: index, lost, reason, unacknowledged });
            }
            Answer::Failed(why) => bail!("node {index}: {why}"),
            Answer::Ready(_) => bail!("node {index} was ready twice"),
        }
        Ok(())
    }

    /// Whether all nodes, but for `except`, have finished a stage.
    pub fn have_finished(&self, stage: u32, except: Option<usize>) -> bool {
        let mut others = self.members.iter().enumerate().filter(|(index, _)| Some(*index) != except);
        others.all(|(_, member)| member.finished >= stage)
    }

    /// Whether all others have lost a node.
    pub fn have_noticed(&self, victim: usize) -> bool {
        let mut others = (0..self.len()).filter(|index| *index != victim);
        others.all(|other| self.losses.iter().any(|loss| (loss.observer, loss.lost) == (other, victim)))
    }

    /// Adds the time of the stage that has just ended to the busy time.
    pub fn end_stage(&mut self) {
        self.busy_ms += std::mem::take(&mut self.stage_ms);
    }

    /// Messages that a node, in this life, has received from the others.
    pub fn received_by(&self, index: usize) -> u64 {
        self.members[index].present.iter().map(|exchange| exchange.arrived.received).sum()
    }

    /// Messages and bytes received by all nodes in all lives.
    pub fn totals(&self) -> (u64, u64) {
        let both = self.members.iter().flat_map(|member| member.past.iter().chain(&member.present));
        both.fold((0, 0), |(messages, bytes), exchange| {
            (messages + exchange.arrived.received, bytes + exchange.arrived.bytes)
        })
    }

    /// What node `own` and node `other` have exchanged, as `own` saw it, in all its lives.
    pub fn exchange(&self, own: usize, other: usize) -> Exchange {
        let mut sum = self.members[own].past[other];
        sum += self.members[own].present[other];
        sum
    }

    /// Every peer that was lost without being closed.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }
}

fn start_node(setup: &Setup, keys: &KeyArgs) -> Result<(LineProcess, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg(NODE_COMMAND).args(keys.to_args());
    let mut process = LineProcess::spawn(command, format!("node {}", setup.index))?;
    process.send(&Order::Setup(*setup))?;
    match process.receive(READY_LIMIT)? {
        Answer::Ready(addr) => Ok((process, addr)),
        Answer::Failed(why) => bail!("node {} cannot start: {why}", setup.index),
        _ => bail!("node {} spoke before its port was open", setup.index),
    }
}
