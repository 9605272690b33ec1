//! `denrei bench bcast` (M9, S12): one sender, N receivers, against N TCP connections.
//!
//! Inputs → outputs: [`BcastArgs`] → for every number of receivers and every size, interleaved runs of
//! all backends, each with processes of its own ([`side`]) → [`figures`] → a table or JSON lines.

mod figures;
mod protocol;
pub mod side;
mod tcp;

use super::Machine;
use super::args::{each_once, parse_size};
use super::control::Transport;
use super::place::Secrets;
use crate::cmd::doctor::check_loopback;
use crate::cmd::key::KeyArgs;
use crate::cmd::values::whole;
use crate::process::{LineProcess, receive_among};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use denrei_netlab::{Lab, LabConfig};
use denrei_output::say;
use figures::{Figures, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use protocol::{Answer, Job, MemberReport, Order, SenderReport};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

/// The hidden subcommand that is one side.
pub const SIDE_COMMAND: &str = "__bcast-side";

/// A side has to be ready within this time.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// A run may take this long.
const RUN_LIMIT: Duration = Duration::from_secs(120);
/// Bytes that a run sends if nothing else is asked for, and most and fewest messages.
const RUN_BYTES: u64 = 64 << 20;
const MESSAGES: std::ops::RangeInclusive<u64> = 3..=500;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// A group; the backend is chosen by probing.
    Auto,
    /// A group over IP multicast.
    Multicast,
    /// A group over one session with each member.
    Unicast,
    /// A group over a tree of relays.
    Tree,
    /// N TCP connections, NODELAY, one after the other.
    Tcp,
}

impl Backend {
    /// Its name in commands and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Multicast => "multicast",
            Self::Unicast => "unicast",
            Self::Tree => "tree",
            Self::Tcp => "tcp",
        }
    }
}

/// What is compared: a backend, and whether all packets are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    backend: Backend,
    sealed: bool,
}

impl Way {
    /// What a row of any benchmark calls it.
    fn transport(self) -> Transport {
        match (self.backend, self.sealed) {
            (Backend::Tcp, _) => Transport::Tcp,
            (_, true) => Transport::DenreiSealed,
            (_, false) => Transport::Denrei,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.backend.name(), if self.sealed { ", sealed" } else { "" })
    }
}

/// Options of `denrei bench bcast`.
#[derive(Args, Clone, Debug)]
pub struct BcastArgs {
    /// Receivers, separated by commas (1..=256)
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,9", value_parser = whole(1_u64..=256), value_name = "N,...")]
    nodes: Vec<u64>,

    /// Message sizes in bytes, separated by commas; K, M and G are powers of 1024 (4..=1G)
    #[arg(long, value_delimiter = ',', default_value = "16,4K,64K,1M,64M", value_parser = parse_size, value_name = "BYTES,...")]
    sizes: Vec<u64>,

    /// What to compare, separated by commas; tcp is always measured
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "multicast,unicast,tree",
        value_name = "NAME,..."
    )]
    backend: Vec<Backend>,

    /// Messages per run; fewer for large sizes if not given
    #[arg(long, value_parser = whole(1_u64..=1_000_000), value_name = "N")]
    iters: Option<u64>,

    /// Runs per backend, size and number of receivers, interleaved; figures are medians over the runs
    #[arg(long, default_value_t = 3, value_parser = whole(1_u32..=100), value_name = "N")]
    repeat: u32,

    /// Between network namespaces on a bridge with multicast, built and removed by this program; needs root
    #[arg(long)]
    netns: bool,

    /// With --netns: every receiver loses this share of the packets that reach it, permille
    #[arg(long, requires = "netns", value_parser = whole(0_u32..=500), value_name = "PERMILLE")]
    loss: Option<u32>,

    /// With --netns: packets travel one by one, as on a cable, and not as trains that are lost together
    #[arg(long, requires = "netns")]
    no_offload: bool,

    /// Print one JSON object per line and per (receivers, size, backend) instead of a table
    #[arg(long)]
    json: bool,

    /// Measure every backend with a cluster key too, as denrei-sealed, beside denrei without: with the key
    /// of --key-file or DENREI_KEY_FILE, either of which says the same, or one made for the purpose
    #[arg(long)]
    sealed: bool,

    #[command(flatten)]
    keys: KeyArgs,
}

impl BcastArgs {
    /// What to compare, TCP first.
    fn ways(&self) -> Vec<Way> {
        let mut ways = vec![Way { backend: Backend::Tcp, sealed: false }];
        for backend in each_once(&self.backend).into_iter().filter(|backend| *backend != Backend::Tcp) {
            ways.push(Way { backend, sealed: false });
            ways.extend(self.is_sealed().then_some(Way { backend, sealed: true }));
        }
        ways
    }

    fn is_sealed(&self) -> bool {
        self.sealed || self.keys.name_a_key()
    }
}

/// Where the sides run, and with what secrets.
struct Place {
    lab: Option<Lab>,
    secrets: Secrets,
}

impl Place {
    fn open(args: &BcastArgs) -> Result<Self> {
        if !args.netns {
            args.keys.check_on_loopback()?;
            check_loopback()?;
        }
        let secrets = Secrets::new(&args.keys, args.netns, true, args.is_sealed())?;
        if !args.netns {
            return Ok(Self { lab: None, secrets });
        }
        let most = args.nodes.iter().max().copied().unwrap_or(1) as usize;
        let config = LabConfig { offload: !args.no_offload, ..LabConfig::default() };
        let lab = Lab::with_config(most + 1, config).context("cannot build the namespaces")?;
        if let Some(permille) = args.loss.filter(|permille| *permille > 0) {
            (1..=most).try_for_each(|host| lab.loss(host, permille))?;
        }
        Ok(Self { lab: Some(lab), secrets })
    }

    fn start(&self, index: usize) -> Result<(LineProcess, IpAddr)> {
        let exe = std::env::current_exe().context("cannot find this program")?;
        let (command, ip) = match &self.lab {
            None => (Command::new(exe), Ipv4Addr::LOCALHOST.into()),
            Some(lab) => (lab.host(index).command(exe), lab.host(index).ip()),
        };
        Ok((self.secrets.start(command, SIDE_COMMAND, format!("side {index}"))?, ip))
    }
}

/// Measures, and prints.
pub fn run(args: &BcastArgs) -> Result<()> {
    let place = Place::open(args)?;
    let ways = args.ways();
    let (nodes, sizes) = (each_once(&args.nodes), each_once(&args.sizes));
    let total = nodes.len() * sizes.len() * ways.len() * args.repeat as usize;
    let progress = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
    progress.set_style(ProgressStyle::with_template("{msg:32} {wide_bar} {pos}/{len} runs, {eta} left")?);
    let mut table = Table::new();
    for (&nodes, &size) in nodes.iter().flat_map(|n| sizes.iter().map(move |size| (n, size))) {
        let mut runs: Vec<(Way, Vec<Figures>)> = ways.iter().map(|way| (*way, Vec::new())).collect();
        for repeat in 0..args.repeat as usize {
            for turn in 0..runs.len() {
                let at = (turn + repeat) % runs.len();
                let (way, done) = &mut runs[at];
                progress.set_message(format!("1→{nodes} {way} {size} B"));
                let figures = measure(args, &place, *way, nodes as usize, size)
                    .with_context(|| format!("1→{nodes} over {way}, {size} bytes"))?;
                done.push(figures);
                progress.inc(1);
            }
        }
        for row in figures::rows(nodes, size, &runs) {
            match args.json {
                true => say!("{}", serde_json::to_string(&row)?),
                false => table.add(&row),
            }
        }
    }
    progress.finish_and_clear();
    if !args.json {
        say!("{}\n{table}", Machine::this());
    }
    Ok(())
}

/// One run.
fn measure(args: &BcastArgs, place: &Place, way: Way, nodes: usize, size: u64) -> Result<Figures> {
    let iters = args.iters.unwrap_or((RUN_BYTES / size / 4).clamp(*MESSAGES.start(), *MESSAGES.end()));
    let group = SocketAddr::from((Ipv4Addr::new(239, 255, 90, 1), 7401));
    let mut sides = Vec::with_capacity(nodes + 1);
    for index in 0..=nodes {
        let (mut side, bind) = place.start(index)?;
        side.send(&Order::Prepare(Job { way, size, iters, index, bind, group }))?;
        sides.push(side);
    }
    let addresses = sides.iter().map(ready).collect::<Result<Vec<SocketAddr>>>()?;
    for side in sides.iter_mut().rev() {
        side.send(&Order::Start(addresses.clone()))?;
    }
    let sender: SenderReport = match receive_among(&mut sides, 0, RUN_LIMIT, failure)? {
        Answer::Sent(report) => report,
        other => bail!("the sender said {other:?}"),
    };
    let mut members: Vec<MemberReport> = Vec::with_capacity(nodes);
    for index in 1..=nodes {
        match receive_among(&mut sides, index, RUN_LIMIT, failure)? {
            Answer::Received(report) => members.push(report),
            other => bail!("{} said {other:?}", sides[index].name()),
        }
    }
    for side in &mut sides {
        side.send(&Order::Stop)?;
    }
    Figures::new(size, &sender, &members)
}

fn ready(side: &LineProcess) -> Result<SocketAddr> {
    match side.receive(READY_LIMIT)? {
        Answer::Ready(addr) => Ok(addr),
        Answer::Failed(why) => bail!("{}: {why}", side.name()),
        other => bail!("{} said {other:?} before it was started", side.name()),
    }
}

/// Why a side cannot go on, if it says so.
fn failure(answer: &Answer) -> Option<String> {
    if let Answer::Failed(why) = answer { Some(why.clone()) } else { None }
}
