//! `denrei bench`: which benchmark, with what options.

use crate::bench::args::{PairArgs, Plan};
use crate::bench::bcast::{self, BcastArgs};
use crate::bench::gather::{self, GatherArgs};
use crate::bench::layers::{self, LayersArgs};
use crate::bench::mpi::{self, MpiArgs};
use crate::bench::picture::PictureArgs;
use crate::bench::rate::{self, RateArgs};
use crate::bench::{self, Bench};
use crate::cmd::values::whole;
use crate::cmd::wrong_arguments;
use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure denrei beside TCP (NODELAY) and bare UDP, interleaved in one run.
///
/// Every run has processes of its own. Figures are medians over the runs; "vs tcp" is the median of
/// the ratios of runs made side by side.
#[derive(Args, Debug)]
pub struct BenchCommand {
    #[command(subcommand)]
    bench: BenchKind,
}

#[derive(Subcommand, Debug)]
enum BenchKind {
    /// Round trips: latencies are of whole round trips, rates count messages one way (two per trip)
    Pingpong(PingpongArgs),
    /// Messages without a pause to a receiver that is busy: what is lost, and where losses begin
    Burst(BurstArgs),
    /// One way, as fast as it goes, or paced with --rate to see the latency of each message
    Stream(StreamArgs),
    /// All to all: descriptors and memory per process, time
    ///
    /// Time is from the first process's start to the last one's end; descriptors and memory are those of the
    /// process that has most. A line of --json has them as time_ms, descriptors and memory_bytes, with nodes,
    /// after the fields of every benchmark. Over bare UDP a process has one socket, and rates count what arrived.
    Mesh(MeshArgs),
    /// Time per PDU through 1-4 protocol layers, in one thread or in several (L8)
    Layers(LayersArgs),
    /// N to one at once: completion of a gather in rounds, goodput and fairness of a stream
    ///
    /// Every run has two parts. In the rounds the receiver asks all senders for one message each and
    /// waits for all: latencies are those of whole rounds. In the stream all send without a pause:
    /// goodput, and Jain's index of what had arrived from each when the first was done. "Ideal" is one
    /// idle round trip and the time that the bottleneck needs for the payload in full UDP packets.
    Gather(GatherArgs),
    /// What the receiver's rate and burst do: tracking and collapse, accuracy, sharing, free capacity
    ///
    /// The slowed receiver computes for a while after each message, and its socket has a small buffer:
    /// nothing is received meanwhile, so what exceeds the buffer is lost. The senders have no congestion
    /// window: the rate is the only limit, as it was when R9 was measured. "auto" is what a receiver with
    /// the setting learn_rates learns and sets by itself.
    Rate(RateArgs),
    /// One to N: time, the sender's CPU time, packets and bytes, over each backend of a group
    ///
    /// The sender sends a message, waits until every member has acknowledged it, and sends the next.
    /// "done" is that time, "sent" until send returned, "last has it" until the last member's application
    /// had it. CPU time is the sender process's, with all that the kernel does on its behalf: on one machine
    /// a software bridge copies multicast on the sender's own core, which a real switch would do.
    Bcast(BcastArgs),
    /// MPI programs over denrei, and over what else carries MPI, interleaved; needs an MPI's mpicc
    Mpi(MpiArgs),
}

#[derive(Args, Debug)]
struct PingpongArgs {
    #[command(flatten)]
    pair: PairArgs,
    #[command(flatten)]
    picture: PictureArgs,
}

#[derive(Args, Debug)]
struct BurstArgs {
    #[command(flatten)]
    pair: PairArgs,
    /// How long the receiver computes after the first message before it takes the others
    #[arg(long, default_value_t = 100, value_parser = whole(0_u64..=10_000), conflicts_with = "listen", value_name = "MS")]
    read_after: u64,
}

#[derive(Args, Debug)]
struct StreamArgs {
    #[command(flatten)]
    pair: PairArgs,
    /// Send at this pace; shows one-way latencies (both sides on one machine). Without --seconds a run lasts as
    /// long as --iters [default: 10000] at this pace take
    #[arg(long, value_parser = whole(1_u64..=10_000_000), conflicts_with_all = ["connect", "listen"], value_name = "MSGS_PER_S")]
    rate: Option<u64>,
    #[command(flatten)]
    picture: PictureArgs,
}

#[derive(Args, Debug)]
struct MeshArgs {
    #[command(flatten)]
    pair: PairArgs,
    /// Processes; with --connect every other one on the other machine, and at most 16
    #[arg(long, default_value_t = 8, value_parser = whole(2_u64..=100), conflicts_with = "listen", value_name = "N")]
    nodes: u64,
}

/// Messages of a paced stream if nothing else is asked for: one second at 10,000/s.
const PACED_ITERS: u64 = 10_000;

/// Most messages of a paced stream: each arrival is kept.
const MAX_PACED_ITERS: u64 = 1_000_000;

impl BenchCommand {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        match self.bench {
            BenchKind::Pingpong(args) => {
                bench::run(&Plan::new(Bench::Pingpong, &args.pair.bench)?, &args.pair, &args.picture)
            }
            BenchKind::Burst(args) => {
                let plan = Plan::new(Bench::Burst, &args.pair.bench)?;
                bench::run(
                    &Plan { read_after_ms: args.read_after, ..plan },
                    &args.pair,
                    &PictureArgs::default(),
                )
            }
            BenchKind::Stream(args) => run_stream(&args),
            BenchKind::Layers(args) => layers::run(&args),
            BenchKind::Gather(args) => gather::run(&args),
            BenchKind::Rate(args) => rate::run(&args),
            BenchKind::Bcast(args) => bcast::run(&args),
            BenchKind::Mpi(args) => mpi::run(&args),
            BenchKind::Mesh(args) => {
                if args.pair.connect.is_some() && args.nodes as usize > bench::MAX_MESH {
                    let (nodes, most) = (args.nodes, bench::MAX_MESH);
                    return Err(wrong_arguments(format!(
                        "--nodes is {nodes}: a mesh between two machines has at most {most}"
                    )));
                }
                let plan = Plan::new(Bench::Mesh, &args.pair.bench)?;
                bench::run(
                    &Plan { members: args.nodes as usize, ..plan },
                    &args.pair,
                    &PictureArgs::default(),
                )
            }
        }
    }
}

fn run_stream(args: &StreamArgs) -> Result<()> {
    let mut plan = Plan::new(Bench::Stream, &args.pair.bench)?;
    if let Some(rate) = args.rate {
        plan.rate_per_s = Some(rate as f64);
        plan.iters = args.pair.bench.iters.unwrap_or(PACED_ITERS);
        if plan.iters > MAX_PACED_ITERS {
            let iters = plan.iters;
            return Err(wrong_arguments(format!(
                "--iters is {iters}: with --rate at most {MAX_PACED_ITERS}"
            )));
        }
    }
    bench::run(&plan, &args.pair, &args.picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_figures_mean_is_in_the_long_help() {
        let mut bench = BenchCommand::augment_args(clap::Command::new("bench"));
        for (name, word) in [
            ("gather", "Jain's index"),
            ("rate", "slowed receiver"),
            ("bcast", "CPU time"),
            ("mesh", "time_ms"),
        ] {
            let command = bench.find_subcommand_mut(name).unwrap();
            let about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.contains(word), "{name}: {about}");
        }
    }
}
