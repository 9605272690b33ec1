//! The demonstration: a cluster of node processes on one machine, with a death in the middle.
//!
//! Inputs → outputs: a number of nodes → stages of all-to-all messages, checked at the receivers; a
//! table; whether every message arrived whole, once, in order. Stages: everybody to everybody;
//! the same while one node is killed and started again at its address; the same with its new
//! incarnation.

mod ledger;
mod members;
mod node;
mod protocol;
mod report;
mod traffic;

pub use members::NODE_COMMAND;
pub use node::run as run_node;

use crate::cmd::key::KeyArgs;
use anyhow::{Result, bail};
use denrei_output::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use members::Members;
use protocol::{Order, STAGE_AGAIN, STAGE_ALL, STAGE_KILL, STAGES};
use report::Report;
use std::time::{Duration, Instant};
use traffic::Traffic;

/// A stage takes about a second on two cores, with many nodes or others on the machine far longer; one in which
/// nothing arrives for so long hangs.
const STAGE_LIMIT: Duration = Duration::from_secs(40);

/// How long the killed node stays away: long enough that the others send into the void.
const AWAY: Duration = Duration::from_millis(300);

/// The node is killed when it has received one message in this many of its second stage.
const KILL_AFTER_ONE_IN: u64 = 3;

/// Pause between two looks at the nodes' answers.
const LOOK: Duration = Duration::from_millis(10);

/// What to demonstrate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes, at least 2.
    pub nodes: usize,
    /// What all contents follow from.
    pub seed: u64,
    /// What protects the nodes.
    pub keys: KeyArgs,
}

/// Runs the demonstration; whether everything held.
pub fn run(options: Options) -> Result<bool> {
    let traffic = Traffic::new(options.seed, options.nodes);
    let mut demo = Demo {
        members: Members::start(options.nodes, options.seed, options.keys)?,
        victim: options.nodes - 1,
        traffic,
        progress: progress_bar(&traffic)?,
    };
    demo.introduce();
    let completed = demo.run_stages();
    demo.progress.finish_and_clear();
    let report = Report::new(&demo.members, demo.victim, completed.is_ok());
    say!("{}", report.table());
    say!("† killed and started again; what its old incarnation had in its hands died with it");
    for fault in report.faults() {
        say!("FAULT: {fault}");
    }
    if let Err(error) = completed {
        say!("FAULT: {}", denrei_output::in_words(&error));
        return Ok(false);
    }
    demo.members.stop()?;
    if report.faults().is_empty() {
        say!("every message arrived whole, exactly once and in order");
    }
    Ok(report.faults().is_empty())
}

struct Demo {
    members: Members,
    victim: usize,
    traffic: Traffic,
    progress: ProgressBar,
}

impl Demo {
    fn introduce(&self) {
        say!("{} nodes, a process and a UDP port each (seed {}):", self.members.len(), self.traffic.seed());
        for (index, addr) in self.members.addresses().iter().enumerate() {
            say!("  node {index}: process {}, {addr}", self.members.pid(index));
        }
    }

    fn run_stages(&mut self) -> Result<()> {
        self.stage(STAGE_ALL, "everybody to everybody")?;
        self.stage_with_death()?;
        self.stage(STAGE_AGAIN, "everybody to everybody, with the new incarnation")
    }

    fn stage(&mut self, stage: u32, what: &str) -> Result<()> {
        let started = self.begin(stage, what)?;
        self.until(stage, None, |members| members.have_finished(stage, None))?;
        self.end(stage, what, started);
        Ok(())
    }

    fn stage_with_death(&mut self) -> Result<()> {
        let (victim, what) = (self.victim, "everybody to everybody, with a death");
        let enough = self.members.received_by(victim)
            + self.traffic.messages() * (self.members.len() as u64 - 1) / KILL_AFTER_ONE_IN;
        let started = self.begin(STAGE_KILL, what)?;
        self.until(STAGE_KILL, None, |members| members.received_by(victim) >= enough)?;
        self.members.kill(victim);
        self.say(format!("         node {victim} killed (SIGKILL)"));
        let away = Instant::now();
        self.until(STAGE_KILL, Some(victim), |_| away.elapsed() >= AWAY)?;
        self.members.restart(victim, STAGE_AGAIN)?;
        self.say(format!("         node {victim} started again as process {}", self.members.pid(victim)));
        self.until(STAGE_KILL, None, |members| members.have_finished(STAGE_KILL, Some(victim)))?;
        // Who was done with it before it died has yet to learn that it did.
        self.until(STAGE_KILL, None, |members| members.have_noticed(victim))?;
        for loss in self.members.losses() {
            self.say(format!(
                "         node {} lost node {} ({}); {} messages reported undelivered",
                loss.observer, loss.lost, loss.reason, loss.unacknowledged
            ));
        }
        self.end(STAGE_KILL, what, started);
        Ok(())
    }

    fn begin(&mut self, stage: u32, what: &str) -> Result<Instant> {
        self.progress.set_message(format!("stage {stage}: {what}"));
        self.members.order_all(&Order::Stage(stage))?;
        Ok(Instant::now())
    }

    fn end(&mut self, stage: u32, what: &str, started: Instant) {
        self.members.end_stage();
        self.say(format!("stage {stage}: {what}: {:.2} s", started.elapsed().as_secs_f64()));
    }

    /// Listens to the nodes until something holds.
    fn until(
        &mut self,
        stage: u32,
        dead: Option<usize>,
        mut holds: impl FnMut(&Members) -> bool,
    ) -> Result<()> {
        let (mut arrived, mut since) = (self.members.totals().0, Instant::now());
        while !holds(&self.members) {
            if !self.members.listen(dead)? {
                std::thread::sleep(LOOK);
            }
            let now_arrived = self.members.totals().0;
            self.progress.set_position(now_arrived);
            if now_arrived != arrived {
                (arrived, since) = (now_arrived, Instant::now());
            }
            if since.elapsed() > STAGE_LIMIT {
                bail!("in stage {stage} nothing has arrived for {STAGE_LIMIT:?}: messages are missing");
            }
        }
        Ok(())
    }

    /// Says something above the progress bar, or where there is none.
    fn say(&self, line: String) {
        self.progress.suspend(|| say!("{line}"));
    }
}

fn progress_bar(traffic: &Traffic) -> Result<ProgressBar> {
    let nodes = traffic.nodes() as u64;
    let total = traffic.messages() * nodes * (nodes - 1) * STAGES.count() as u64;
    let progress = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    progress.set_style(ProgressStyle::with_template("{msg:50} {wide_bar} {pos}/{len} messages")?);
    Ok(progress)
}
