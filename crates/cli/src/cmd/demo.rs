//! `denrei demo`: the main job, from one command.

use crate::bench::args::Plan;
use crate::bench::{self, Bench, Machine, Place};
use crate::cmd::doctor::check_loopback;
use crate::cmd::key::KeyArgs;
use crate::cmd::values::whole;
use crate::demo::{self, Options};
use anyhow::Result;
use clap::Args;
use denrei_output::say;
use std::time::Duration;

/// Sizes of the ping-pong at the end, bytes: U7's, and one that does not fit a packet.
const PINGPONG_SIZES: [usize; 5] = [16, 64, 256, 1024, 65_536];

/// Exchanges per run of that ping-pong: a quarter of a minute altogether. In the first thousand the processors
/// are not as deeply idle between two messages as they become, which flatters whoever wakes them sooner.
const PINGPONG_ITERS: u64 = 4000;

/// Runs of it.
const PINGPONG_REPEAT: u32 = 3;

/// Longest time of one run: 45 of them are below a minute however busy the machine is.
const PINGPONG_TIME: Duration = Duration::from_secs(1);

/// Start a small cluster, kill a node in the middle, and check every message.
///
/// Each node is a process with one UDP port on loopback. They send messages of 0 bytes to 8 MiB, all
/// to all, whose content and order the receivers check; one node is killed with SIGKILL and started
/// again. Then ping-pong, beside TCP and bare UDP. Takes well below a minute.
#[derive(Args, Debug)]
pub struct DemoCommand {
    /// How many nodes
    #[arg(long, default_value_t = 4, value_parser = whole(2_u64..=64), value_name = "N")]
    nodes: u64,

    /// What sizes and contents follow from
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX), value_name = "NUMBER")]
    seed: u64,

    #[command(flatten)]
    keys: KeyArgs,

    /// Leave out the ping-pong
    #[arg(long)]
    no_pingpong: bool,
}

impl DemoCommand {
    /// Runs it; whether every message arrived whole, once and in order.
    pub fn run(&self) -> Result<bool> {
        // What the nodes could not use either.
        self.keys.clone().own_config()?;
        check_loopback()?;
        say!("{}", Machine::this());
        let holds =
            demo::run(Options { nodes: self.nodes as usize, seed: self.seed, keys: self.keys.clone() })?;
        if !self.no_pingpong {
            say!("\nping-pong between two processes on loopback:");
            let (table, _) = bench::run_table(&pingpong_plan(), &Place::loopback())?;
            say!("{table}");
        }
        Ok(holds)
    }
}

fn pingpong_plan() -> Plan {
    Plan {
        sizes: PINGPONG_SIZES.to_vec(),
        iters: PINGPONG_ITERS,
        repeat: PINGPONG_REPEAT,
        time: Some(PINGPONG_TIME),
        ..Plan::of(Bench::Pingpong)
    }
}
