//! The options that all benchmarks share.

use super::control::{Bench, Drive, Pace, Transport, Wait};
use crate::cmd::key::KeyArgs;
use crate::cmd::values::{address, seconds, whole};
use crate::cmd::wrong_arguments;
use anyhow::Result;
use clap::Args;
use denrei::MAX_RATE;
use std::net::SocketAddr;
use std::time::Duration;

/// Smallest and largest message, bytes: a number has to fit, and a length in four octets.
const SIZES: std::ops::RangeInclusive<u64> = 4..=1 << 30;

/// Runs per transport and size: an odd number, so that the median is one of them.
pub const DEFAULT_REPEAT: u32 = 5;

/// Longest time of one run: TCP with 5 % loss moves a few MB/s.
const DEFAULT_TIME: Duration = Duration::from_secs(5);

/// How long a run may be asked to take, seconds.
pub const RUN_SECONDS: std::ops::RangeInclusive<f64> = 0.001..=600.0;

/// Options of every benchmark between Nodes.
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// Message sizes in bytes, separated by commas; K, M and G are powers of 1024 (4..=1G)
    #[arg(long, value_delimiter = ',', value_parser = parse_size, value_name = "BYTES,...")]
    pub sizes: Vec<u64>,

    /// Print one JSON object per line and per (transport, size) instead of a table
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Options of those that compare transports.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    pub common: CommonArgs,

    /// Messages (exchanges) per run; fewer for large sizes, so that a run stays below a few seconds
    #[arg(long, value_parser = whole(1_u64..=100_000_000), value_name = "N")]
    pub iters: Option<u64>,

    /// Longest time of one run; it ends with fewer messages then [default: 5]
    #[arg(long, value_parser = seconds(RUN_SECONDS), value_name = "S")]
    pub seconds: Option<Duration>,

    /// How both sides wait for messages
    #[arg(long, value_enum, default_value_t = Wait::Sleep)]
    pub wait: Wait,

    /// Which thread does a Node's work
    #[arg(long, value_enum, default_value_t = Drive::Inline)]
    pub drive: Drive,

    /// Runs per transport and size, interleaved; figures are medians over the runs
    #[arg(long, default_value_t = DEFAULT_REPEAT, value_parser = whole(1_u32..=1000), value_name = "N")]
    pub repeat: u32,

    /// What to compare, separated by commas [default: all that the benchmark has]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    pub transports: Vec<Transport>,

    /// Leave the choice of cores to the kernel (else each side of a pair has its own)
    #[arg(long)]
    pub no_pin: bool,

    /// Measure denrei with a cluster key too, as denrei-sealed, beside denrei without: with the key
    /// of --key-file or DENREI_KEY_FILE, either of which says the same, or one made for the purpose
    #[arg(long)]
    pub sealed: bool,

    #[command(flatten)]
    pub keys: KeyArgs,
}

/// Where the sides run.
#[derive(Args, Clone, Debug)]
pub struct PlaceArgs {
    /// Between processes on loopback (this is the default)
    #[arg(long, conflicts_with = "netns")]
    pub loopback: bool,

    /// Between network namespaces on a bridge, built and removed by this program; needs root
    #[arg(long)]
    pub netns: bool,

    /// With --netns: share of packets that every host loses, in 1/1000
    #[arg(long, requires = "netns", value_parser = whole(0_u32..=1000), value_name = "PERMILLE")]
    pub loss: Option<u32>,

    /// With --netns: rate of every host's link, such as 1gbit; a number alone is Mbit/s
    #[arg(long, alias = "link-mbit", requires = "netns", value_parser = parse_mbit, value_name = "RATE")]
    pub link: Option<u64>,

    /// With --link: queue of the switch towards every host, bytes
    #[arg(long, alias = "queue-bytes", requires = "link", value_parser = parse_size_from(LEAST_QUEUE_BYTES), default_value = "64KiB", value_name = "BYTES")]
    pub queue: u64,

    /// The only side whose link that is, and only towards it.
    #[arg(skip)]
    pub link_only_to: Option<usize>,

    /// With --netns: packets travel one by one, without segmentation offload
    #[arg(long, requires = "netns")]
    pub no_offload: bool,
}

/// What the machine that measures tells the one that serves it, and where else sides run.
const SAID_BY_WHO_CONNECTS: [&str; 12] = [
    "connect",
    "sizes",
    "iters",
    "seconds",
    "wait",
    "drive",
    "repeat",
    "json",
    "transports",
    "no_pin",
    "loopback",
    "netns",
];

/// Options of those that run between two machines, too.
#[derive(Args, Clone, Debug)]
pub struct PairArgs {
    #[command(flatten)]
    pub bench: BenchArgs,

    /// Serve the other side of any benchmark to another machine; trusted networks only, for whoever
    /// reaches the address may start traffic
    #[arg(long, value_parser = address, conflicts_with_all = SAID_BY_WHO_CONNECTS, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,

    /// Measure against the machine where `denrei bench ... --listen` runs
    #[arg(long, value_parser = address, conflicts_with_all = ["loopback", "netns"], value_name = "ADDR:PORT")]
    pub connect: Option<SocketAddr>,
}

/// What one invocation measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What.
    pub bench: Bench,
    /// Over what, in the order of the table.
    pub transports: Vec<Transport>,
    /// Bytes per message.
    pub sizes: Vec<usize>,
    /// Messages per run at most.
    pub iters: u64,
    /// Longest time of one run, if that was asked for.
    pub time: Option<Duration>,
    /// How to wait.
    pub wait: Wait,
    /// Which thread does a Node's work.
    pub drive: Drive,
    /// Runs per transport and size.
    pub repeat: u32,
    /// Messages per second of a paced stream.
    pub rate_per_s: Option<f64>,
    /// How long the receiver of a burst is busy, milliseconds.
    pub read_after_ms: u64,
    /// For runs at a set rate.
    pub pace: Option<Pace>,
    /// Processes.
    pub members: usize,
    /// Whether each side of a pair gets a core of its own.
    pub pin: bool,
}

impl Plan {
    /// The plan of a benchmark with its defaults.
    pub fn of(bench: Bench) -> Self {
        Self {
            bench,
            transports: default_transports(bench),
            sizes: default_sizes(bench),
            iters: default_iters(bench),
            time: None,
            wait: Wait::Sleep,
            drive: Drive::Inline,
            repeat: DEFAULT_REPEAT,
            rate_per_s: None,
            read_after_ms: 0,
            pace: None,
            members: 2,
            pin: true,
        }
    }

    /// The plan of a benchmark with what was asked for.
    ///
    /// # Errors
    /// If a transport was asked for that the benchmark does not have.
    pub fn new(bench: Bench, args: &BenchArgs) -> Result<Self> {
        let defaults = Self::of(bench).with_sizes(&args.common);
        let offered = offered_transports(bench);
        if let Some(unknown) = args.transports.iter().find(|transport| !offered.contains(transport)) {
            let names: Vec<_> = offered.iter().map(|transport| transport.name()).collect();
            let (name, asked) = (bench.name(), unknown.name());
            return Err(wrong_arguments(format!(
                "{name} cannot be measured over {asked}: choose from {}",
                names.join(", ")
            )));
        }
        Ok(Self {
            transports: transports(args, defaults.transports),
            iters: args.iters.unwrap_or(defaults.iters),
            time: args.seconds,
            wait: args.wait,
            drive: args.drive,
            repeat: args.repeat,
            pin: !args.no_pin,
            ..defaults
        })
    }

    /// With the sizes that were asked for.
    pub fn with_sizes(self, args: &CommonArgs) -> Self {
        let sizes: Vec<usize> = args.sizes.iter().map(|size| *size as usize).collect();
        Self { sizes: or_else_default(&sizes, self.sizes), ..self }
    }

    /// Messages of one run: fewer for large ones.
    pub fn iters_for(&self, size: usize) -> u64 {
        /// Bytes that a run moves at most, one way: half a second at 2 GB/s.
        const RUN_BYTES: u64 = 1 << 30;
        /// A round trip of a large message costs two; and their number matters less.
        const PINGPONG_BYTES: u64 = 128 << 20;
        /// Below this a median means nothing.
        const LEAST: u64 = 5;
        let bytes = if self.bench == Bench::Pingpong { PINGPONG_BYTES } else { RUN_BYTES };
        let peers = self.members as u64 * (self.members as u64 - 1) / 2;
        self.iters.min((bytes / peers.max(1) / size as u64).max(LEAST))
    }

    /// How long one run sends at most. Where nothing was asked for, a paced one lasts as long as its pace takes.
    pub fn time_for(&self, size: usize) -> Duration {
        let paced_s = self.rate_per_s.map_or(0.0, |rate| self.iters_for(size) as f64 / rate);
        self.time.unwrap_or(DEFAULT_TIME + 2 * Duration::from_secs_f64(paced_s))
    }
}

fn or_else_default<T: PartialEq + Clone>(given: &[T], default: Vec<T>) -> Vec<T> {
    if given.is_empty() { default } else { each_once(given) }
}

/// What is asked for twice is measured once: a row is told from the others by what it is of.
pub fn each_once<T: PartialEq + Clone>(given: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for one in given {
        once.extend((!once.contains(one)).then(|| one.clone()));
    }
    once
}

/// The transports asked for; with `--sealed` the sealed one beside the plain one.
fn transports(args: &BenchArgs, default: Vec<Transport>) -> Vec<Transport> {
    let mut chosen = or_else_default(&args.transports, default);
    let sealed = args.sealed || args.keys.name_a_key();
    if sealed && !chosen.contains(&Transport::DenreiSealed) {
        let plain = chosen.iter().position(|transport| *transport == Transport::Denrei);
        chosen.insert(plain.map_or(0, |plain| plain + 1), Transport::DenreiSealed);
    }
    chosen
}

fn default_transports(bench: Bench) -> Vec<Transport> {
    let mut offered = offered_transports(bench);
    offered.retain(|transport| *transport != Transport::DenreiSealed);
    offered
}

fn offered_transports(bench: Bench) -> Vec<Transport> {
    if bench == Bench::Rate {
        return vec![Transport::Denrei];
    }
    if bench == Bench::Gather {
        return vec![Transport::Denrei, Transport::DenreiSealed, Transport::Tcp];
    }
    if bench == Bench::Mesh {
        return vec![Transport::Denrei, Transport::DenreiSealed, Transport::Tcp, Transport::Udp];
    }
    vec![
        Transport::Denrei,
        Transport::DenreiSealed,
        Transport::Tcp,
        Transport::Udp,
        #[cfg(feature = "bench-zmq")]
        Transport::Zmq,
        #[cfg(feature = "bench-quinn")]
        Transport::Quinn,
    ]
}

fn default_sizes(bench: Bench) -> Vec<usize> {
    match bench {
        Bench::Pingpong => vec![16, 32, 64, 128, 256, 512, 1024, 4096, 16_384, 65_536],
        Bench::Burst => vec![16, 32, 64, 128, 256, 512, 1024],
        Bench::Stream => vec![4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20],
        Bench::Mesh => vec![64, 4096, 65_536],
        Bench::Rate => vec![1400],
        Bench::Gather => vec![4, 1024, 65_536, 1 << 20],
    }
}

/// U7 and U8 have 10,000; a stream needs more to last some tenths of a second.
fn default_iters(bench: Bench) -> u64 {
    match bench {
        Bench::Pingpong | Bench::Burst => 10_000,
        Bench::Stream => 500_000,
        Bench::Mesh => 2_000,
        Bench::Gather => 200,
        Bench::Rate => u64::MAX,
    }
}

/// A queue with room for four full packets at an MTU of 1,500: with less nothing gets through,
/// or no two in a row.
const LEAST_QUEUE_BYTES: u64 = 4 * 1514;

/// A size with a suffix, as an argument.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_within(text, SIZES)
}

/// The same of what takes so many at least.
pub fn parse_size_from(least: u64) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| parse_within(text, least..=*SIZES.end())
}

/// The same for messages that may be empty.
pub fn parse_length(text: &str) -> Result<u64, String> {
    parse_within(text, 0..=*SIZES.end())
}

/// A rate in bytes per second, as an argument.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    parse_within(text, 1..=MAX_RATE)
}

fn parse_within(text: &str, sizes: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let (digits, shift) = match text.trim().to_ascii_uppercase().trim_end_matches("IB") {
        number if number.ends_with('K') => (number.trim_end_matches('K').to_owned(), 10),
        number if number.ends_with('M') => (number.trim_end_matches('M').to_owned(), 20),
        number if number.ends_with('G') => (number.trim_end_matches('G').to_owned(), 30),
        number => (number.to_owned(), 0),
    };
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    let least = *sizes.start();
    let such = if least > 64 { "64K" } else { "64, 4K" };
    let most = sizes.end() >> 30;
    size.filter(|size| sizes.contains(size))
        .ok_or_else(|| format!("{text:?} is no size from {least} to {most}G bytes, such as {such} or 1M"))
}

/// A link rate in Mbit/s, as an argument: a number with `mbit` or `gbit`.
pub fn parse_mbit(text: &str) -> Result<u64, String> {
    /// What a lab can shape.
    const MBIT: std::ops::RangeInclusive<u64> = 1..=400_000;
    let lower = text.trim().to_ascii_lowercase();
    let (digits, factor) = match (lower.strip_suffix("gbit"), lower.strip_suffix("mbit")) {
        (Some(gbit), _) => (gbit, 1_000.0),
        (_, Some(mbit)) => (mbit, 1.0),
        // As the option's former name, --link-mbit, says.
        _ => (lower.as_str(), 1.0),
    };
    let mbit = digits.trim().parse::<f64>().map_or(f64::NAN, |number| number * factor);
    if mbit.fract() == 0.0 && MBIT.contains(&(mbit as u64)) {
        return Ok(mbit as u64);
    }
    Err(format!("{text:?} is no rate from 1mbit to 400gbit, such as 100mbit, 1gbit or 2.5gbit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units_and_limits() {
        assert_eq!(parse_mbit("1gbit"), Ok(1_000));
        assert_eq!(parse_mbit("2.5Gbit"), Ok(2_500));
        assert_eq!(parse_mbit("100 mbit"), Ok(100));
        assert_eq!(parse_mbit("100"), Ok(100));
        for wrong in ["0", "0mbit", "1kbit", "401gbit", "-1gbit", "1.0000001mbit", "gbit", "NaNmbit"] {
            assert!(parse_mbit(wrong).unwrap_err().contains("from 1mbit to 400gbit"), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_suffixes_and_limits() {
        assert_eq!(parse_size("64"), Ok(64));
        assert_eq!(parse_size("4K"), Ok(4096));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        for wrong in ["3", "2G", "x", "", "-1", "99999999999999999999", "18014398509481984K"] {
            assert!(parse_size(wrong).unwrap_err().contains("from 4 to 1G"), "{wrong}");
        }
        assert_eq!(parse_length("0"), Ok(0));
        assert!(parse_length("2G").unwrap_err().contains("from 0 to 1G"));
        // Networks are faster than messages are large.
        assert_eq!((parse_rate("12G"), parse_rate("1048576G")), (Ok(12 << 30), Ok(1 << 50)));
        for wrong in ["0", "1048577G"] {
            assert!(parse_rate(wrong).unwrap_err().contains("from 1 to 1048576G"), "{wrong}");
        }
    }
}
