//! `denrei bench gather` (S12, S11): N senders, one receiver, against TCP.
//!
//! Inputs → outputs: [`GatherArgs`] → for every number of senders and every size, interleaved runs
//! of all transports ([`work::gather`](super::work)) → [`figures`] → a table or JSON lines.

mod figures;

use super::args::{BenchArgs, PlaceArgs, Plan, each_once};
use super::control::{Bench, Transport};
use super::place::Place;
use super::{Machine, runner};
use crate::cmd::values::whole;
use anyhow::{Context, Result};
use clap::Args;
use denrei_output::say;
use figures::{Figures, Row, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What all senders share is the bottleneck here, and their own links are none.
const LINK_HELP: &str =
    "With --netns: rate of the switch's link towards the receiver, such as 1gbit; a number alone is Mbit/s";
const QUEUE_HELP: &str = "With --link: queue of the switch in front of that link, bytes";

/// Options of `denrei bench gather`.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("link", |arg| arg.help(LINK_HELP)), mut_arg("queue", |arg| arg.help(QUEUE_HELP)))]
pub struct GatherArgs {
    #[command(flatten)]
    bench: BenchArgs,

    /// Senders, separated by commas (1..=256)
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64", value_parser = whole(1_u64..=256), value_name = "N,...")]
    nodes: Vec<u64>,
}

/// The link that all senders share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// Mbit/s.
    mbit: u64,
}

impl Bottleneck {
    /// Payload of a full UDP packet, and what it takes on the link: Ethernet, IPv4 and UDP headers.
    const FULL_PAYLOAD_BYTES: u64 = 1472;
    /// Ethernet, IPv4 and UDP headers, bytes; what a token bucket counts.
    const HEADERS_BYTES: u64 = 42;

    /// What a message of `size` bytes takes in full UDP packets, bytes on the link.
    fn on_link(size: u64) -> u64 {
        size + size.div_ceil(Self::FULL_PAYLOAD_BYTES) * Self::HEADERS_BYTES
    }

    /// How long `messages` of `size` bytes take, µs.
    fn time_us(self, messages: u64, size: u64) -> f64 {
        (messages * Self::on_link(size)) as f64 * 8.0 / self.mbit as f64
    }

    /// What goes through in full UDP packets, into which small messages may be bundled, bytes per second.
    fn payload_per_s(self) -> f64 {
        let full = Self::FULL_PAYLOAD_BYTES;
        self.mbit as f64 * 1e6 / 8.0 * full as f64 / Self::on_link(full) as f64
    }
}

/// Measures, and prints.
pub fn run(args: &GatherArgs) -> Result<()> {
    let (bench, common) = (&args.bench, &args.bench.common);
    let plan = Plan::new(Bench::Gather, bench)?;
    let most = args.nodes.iter().max().copied().unwrap_or(1) as usize + 1;
    let link = common.place.link;
    let bottleneck_only = PlaceArgs { link_only_to: Some(0), ..common.place.clone() };
    let place = Place::open(&bottleneck_only, None, &bench.keys, &plan.transports, most)?;
    let bottleneck = link.map(|mbit| Bottleneck { mbit });
    if common.json {
        return measure(args, &plan, &place, bottleneck, |_, rows| {
            for (row, _) in rows {
                say!("{}", serde_json::to_string(row)?);
            }
            Ok(())
        });
    }
    say!("{}", Machine::this());
    let mut table = Table::new();
    measure(args, &plan, &place, bottleneck, |size, rows| {
        table.add(size, rows);
        Ok(())
    })?;
    say!("{table}");
    Ok(())
}

/// The row of each transport and the goodput of its runs.
type Rows = [(Row, Vec<f64>)];

fn measure(
    args: &GatherArgs,
    plan: &Plan,
    place: &Place,
    bottleneck: Option<Bottleneck>,
    mut done: impl FnMut(usize, &Rows) -> Result<()>,
) -> Result<()> {
    let nodes = each_once(&args.nodes);
    let steps = nodes.len() * plan.sizes.len() * plan.transports.len() * plan.repeat as usize;
    // Drawn on standard error, and only if that is a terminal.
    let progress = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    progress.set_style(ProgressStyle::with_template("{msg:32} {wide_bar} {pos}/{len} runs, {eta} left")?);
    for senders in nodes {
        let plan = Plan { members: senders as usize + 1, ..plan.clone() };
        for size in &plan.sizes {
            let rows = measure_one(&plan, place, *size, bottleneck, |transport| {
                progress.set_message(format!("{senders} to 1, {size} B, {}", transport.name()));
                progress.inc(1);
            })?;
            done(*size, &rows)?;
        }
    }
    progress.finish_and_clear();
    Ok(())
}

fn measure_one(
    plan: &Plan,
    place: &Place,
    size: usize,
    bottleneck: Option<Bottleneck>,
    mut before: impl FnMut(Transport),
) -> Result<Vec<(Row, Vec<f64>)>> {
    let mut runs: Vec<(Transport, Vec<Figures>)> =
        plan.transports.iter().map(|transport| (*transport, Vec::new())).collect();
    for repeat in 0..plan.repeat as usize {
        for turn in 0..runs.len() {
            // Each begins in turn, so that none always follows the same other.
            let (transport, done) = {
                let order = (turn + repeat) % plan.transports.len();
                &mut runs[order]
            };
            before(*transport);
            let reports = runner::measure(plan, place, *transport, size).with_context(|| {
                format!("{} to 1 over {}, {size} bytes", plan.members - 1, transport.name())
            })?;
            // Without a lab all processes read the counters of one TCP.
            let one_tcp = *transport == Transport::Tcp && !place.is_lab();
            done.push(Figures::new(plan, size, bottleneck, one_tcp, reports)?);
        }
    }
    let rows = runs.into_iter().map(|(transport, runs)| {
        let goodput = runs.iter().filter_map(Figures::goodput).collect();
        (Row::new(transport, plan.members - 1, size, bottleneck, &runs), goodput)
    });
    Ok(rows.collect())
}
