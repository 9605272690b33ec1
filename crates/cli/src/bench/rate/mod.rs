//! `denrei bench rate` (R9): what rate and burst do, and how well they are kept.
//!
//! Inputs → outputs: [`RateArgs`] → runs of one or more senders to one receiver that sets the pace
//! ([`work::pace`](super::work)) → [`figures`] → a table or JSON lines, and [`plot`] → SVG.
//!
//! * *tracking*: throughput and recoveries per 1000 packets against the rate, for several bursts, to
//!   a fast and to a slowed receiver, and with the parameters that the receiver learns;
//! * *accuracy*: mean rate and largest burst, as the receiver sees them, against what was set (R2);
//! * *sharing*: several senders, learnt parameters: Jain's index;
//! * *capacity*: one of two senders stops: how soon the other has taken what it left.

mod figures;
mod limit;
mod plot;

use super::args::{CommonArgs, Plan, parse_rate, parse_size};
use super::control::{Bench, Pace};
use super::picture::PictureArgs;
use super::place::Place;
use super::{Machine, runner};
use crate::cmd::key::KeyArgs;
use crate::cmd::values::whole;
use crate::cmd::wrong_arguments;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use denrei_output::say;
use figures::{Row, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is said of the only size that messages have here.
const SIZES_HELP: &str = "Message size in bytes, one; K, M and G are powers of 1024 (4..=1G) [default: 1400]";

/// Options of `denrei bench rate`.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("sizes", |arg| arg.help(SIZES_HELP).value_name("BYTES")))]
pub struct RateArgs {
    #[command(flatten)]
    common: CommonArgs,

    /// What to measure, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "tracking,accuracy,sharing,capacity",
        value_name = "PART,..."
    )]
    parts: Vec<Part>,

    /// Tracking: receivers, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fast,slow", value_name = "NAME,...")]
    receivers: Vec<Receiver>,

    /// Tracking: learnt parameters only
    #[arg(long)]
    auto: bool,

    /// Tracking: rates in bytes per second, separated by commas [default: from an eighth of the
    /// receiver's capacity to twice that]
    #[arg(long, value_delimiter = ',', value_parser = parse_rate, value_name = "BYTES/S,...")]
    rates: Vec<u64>,

    /// Tracking: bursts in bytes, separated by commas [default: one packet to far beyond the buffer]
    #[arg(long, value_delimiter = ',', value_parser = parse_size, value_name = "BYTES,...")]
    bursts: Vec<u64>,

    /// How long the slowed receiver computes after each message, µs
    #[arg(long, default_value_t = READ_US, value_parser = whole(1_u64..=100_000), value_name = "US")]
    read_us: u64,

    /// Socket buffer of the slowed receiver, bytes
    #[arg(long, default_value = "64K", value_parser = parse_size, value_name = "BYTES")]
    buffer: u64,

    /// Accuracy: how long each rate is kept, s
    #[arg(long, default_value_t = ACCURACY_SECONDS, value_parser = whole(1_u64..=600), value_name = "S")]
    accuracy_seconds: u64,

    #[command(flatten)]
    picture: PictureArgs,
}

impl RateArgs {
    /// Refuses options that what is measured has no use for.
    fn refuse_what_has_no_effect(&self) -> Result<()> {
        const TRACKING: &str = "tracking in --parts";
        const POINTS: &str = "tracking in --parts, and no --auto";
        let has = |part| self.parts.contains(&part);
        let points = has(Part::Tracking) && !self.auto;
        let slow = has(Part::Tracking) && self.receivers.contains(&Receiver::Slow)
            || has(Part::Sharing)
            || has(Part::Capacity);
        // Which, whether it differs from what holds without it, whether it is of use, and what it takes.
        let options = [
            ("--svg", self.picture.is_wanted(), has(Part::Tracking), TRACKING),
            ("--auto", self.auto, has(Part::Tracking), TRACKING),
            ("--receivers", self.receivers != Receiver::ALL, has(Part::Tracking), TRACKING),
            ("--rates", !self.rates.is_empty(), points, POINTS),
            ("--bursts", !self.bursts.is_empty(), points, POINTS),
            ("--read-us", self.read_us != READ_US, slow, "a slow receiver"),
            ("--buffer", self.buffer != BUFFER_BYTES, slow, "a slow receiver"),
            (
                "--accuracy-seconds",
                self.accuracy_seconds != ACCURACY_SECONDS,
                has(Part::Accuracy),
                "accuracy in --parts",
            ),
        ];
        match options.into_iter().find(|(_, given, useful, _)| *given && !useful) {
            Some((option, _, _, needs)) => {
                Err(wrong_arguments(format!("{option} has no effect here: it takes {needs}")))
            }
            None => Ok(()),
        }
    }
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Throughput and recoveries against the rate
    Tracking,
    /// Mean rate and largest burst against what was set
    Accuracy,
    /// Several senders with learnt parameters
    Sharing,
    /// How soon free capacity is used
    Capacity,
}

/// The receivers of the tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Receiver {
    /// Takes messages as fast as it can
    Fast,
    /// Computes after each message; small socket buffer
    Slow,
}

impl Receiver {
    const ALL: [Self; 2] = [Self::Fast, Self::Slow];

    fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
        }
    }

    fn burst_packets(self) -> [u64; 4] {
        match self {
            Self::Fast => FAST_BURST_PACKETS,
            Self::Slow => SLOW_BURST_PACKETS,
        }
    }
}

/// What the slowed receiver is, if not said otherwise: µs that it computes after each message, and its buffer.
const READ_US: u64 = 100;
const BUFFER_BYTES: u64 = 64 << 10;

/// How long each rate is kept, if not said otherwise, s.
const ACCURACY_SECONDS: u64 = 10;

/// How long a point of the tracking lasts at least, and at most, milliseconds.
const POINT_MS: (u64, u64) = (400, 1_500);

/// And how many bursts, if they fit into that.
const POINT_BURSTS: u64 = 5;

/// Of a point this share is for settling: the first burst at least.
const SETTLE_SHARE: u64 = 4;

/// The same with learnt parameters: they have to be learnt first.
const LEARNING_MS: (u64, u64) = (3_000, 2_000);

/// Rates of the tracking as shares of the receiver's capacity: tracking below 1, collapse above.
const RATE_SHARES: [f64; 6] = [0.125, 0.3, 0.6, 0.9, 1.25, 2.0];

/// Bursts of the tracking to the slowed receiver in packets: R9's first, one that fits into its
/// buffer, two that do not.
const SLOW_BURST_PACKETS: [u64; 4] = [1, 8, 64, 256];

/// The same to the fast one, whose buffer is large, and for whose rates a timer is too coarse for
/// bursts of a packet.
const FAST_BURST_PACKETS: [u64; 4] = [16, 128, 1_024, 8_192];

/// Rates whose accuracy is measured, bytes per second, and their bursts: so large that a process
/// may be late by some milliseconds.
const ACCURACY: [(u64, u64); 5] = [
    (100_000, 5_600),
    (1_000_000, 28_000),
    (10_000_000, 112_000),
    (100_000_000, 524_288),
    (1_000_000_000, 2_097_152),
];

/// Above this rate messages are larger and packets travel in trains, bytes per second.
const TRAINS_ABOVE: u64 = 50_000_000;

/// Message size above that rate, bytes.
const TRAIN_MESSAGE_BYTES: usize = 16 * 1024;

/// Senders of the sharing.
const SHARING: [usize; 2] = [2, 4];

/// What is measured next, and how it is called.
struct Point {
    part: Part,
    receiver: Receiver,
    senders: usize,
    size: usize,
    pace: Pace,
}

impl Point {
    /// What errors call it.
    fn words(&self) -> String {
        let pace = match self.pace.fixed {
            Some((rate, burst)) => format!("{rate} bytes/s in bursts of {burst} bytes"),
            None => "a learnt pace".to_owned(),
        };
        format!("{} at {pace}, {} bytes", self.part.name(), self.size)
    }
}

/// Measures, and prints.
pub fn run(args: &RateArgs) -> Result<()> {
    if args.common.sizes.len() > 1 {
        return Err(wrong_arguments("rates are measured with messages of one size: give one with --sizes"));
    }
    args.refuse_what_has_no_effect()?;
    args.picture.check()?;
    // Each point is one run, as long as it needs, of Nodes without a key that sleep, on any core.
    let plan = Plan::of(Bench::Rate).with_sizes(&args.common);
    let most = SHARING.iter().max().copied().unwrap_or(1) + 1;
    let place = Place::open(&args.common.place, None, &KeyArgs::default(), &plan.transports, most)?;
    let measurement = Measurement { args, plan: &plan, place: &place };
    let mut rows = Vec::new();
    measurement.all(|row| {
        if args.common.json {
            say!("{}", serde_json::to_string(&row)?);
        }
        rows.push(row);
        Ok(())
    })?;
    if !args.common.json {
        say!("{}", Machine::this());
        for part in &args.parts {
            say!("{}", Table::of(*part, &rows));
        }
    }
    args.picture.draw(|path| plot::write(path, &rows))
}

struct Measurement<'a> {
    args: &'a RateArgs,
    plan: &'a Plan,
    place: &'a Place,
}

impl Measurement<'_> {
    fn all(&self, mut done: impl FnMut(Row) -> Result<()>) -> Result<()> {
        // Drawn on standard error, and only if that is a terminal.
        let progress = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        progress.set_style(ProgressStyle::with_template("{msg} {spinner} {pos} points, {elapsed}")?);
        for part in &self.args.parts {
            progress.set_message(format!("{part:?}"));
            let mut next = |row: Row| {
                progress.inc(1);
                done(row)
            };
            match part {
                Part::Tracking => {
                    for receiver in &self.args.receivers {
                        self.tracking(*receiver, &mut next)?;
                    }
                }
                Part::Accuracy => self.accuracy(&mut next)?,
                Part::Sharing => {
                    for senders in SHARING {
                        next(self.measure(&self.learning(Part::Sharing, senders, |_| LEARNING_MS.0))?)?;
                    }
                }
                Part::Capacity => {
                    let stops = |sender| if sender == 0 { 2 * LEARNING_MS.0 } else { LEARNING_MS.0 };
                    next(self.measure(&self.learning(Part::Capacity, 2, stops))?)?;
                }
            }
        }
        progress.finish_and_clear();
        Ok(())
    }

    /// Learnt parameters, beside the burst that the slowed receiver can take, and then every rate with every
    /// burst.
    fn tracking(&self, receiver: Receiver, done: &mut impl FnMut(Row) -> Result<()>) -> Result<()> {
        let size = self.plan.sizes[0];
        let learnt = Point { receiver, ..self.learning(Part::Tracking, 1, |_| LEARNING_MS.0) };
        let learnt = Point { pace: Pace { ..self.pace(receiver, learnt.pace) }, ..learnt };
        let mut row = self.measure(&learnt)?;
        let capacity = row.common.bytes_per_s.context("nothing arrived")?;
        if receiver == Receiver::Slow {
            row.burst_limit = self.burst_limit(receiver, capacity as u64)?;
        }
        done(row)?;
        if self.args.auto {
            return Ok(());
        }
        let rates: Vec<u64> = match self.args.rates.as_slice() {
            [] => RATE_SHARES.iter().map(|share| (share * capacity) as u64).collect(),
            rates => rates.to_vec(),
        };
        let bursts: Vec<u64> = match self.args.bursts.as_slice() {
            [] => receiver.burst_packets().iter().map(|packets| packets * size as u64).collect(),
            bursts => bursts.to_vec(),
        };
        for burst in bursts {
            for rate in &rates {
                done(self.measure(&self.fixed(receiver, *rate, burst, POINT_BURSTS))?)?;
            }
        }
        Ok(())
    }

    /// A point of the tracking with so many bursts, if they fit into its time.
    fn fixed(&self, receiver: Receiver, rate: u64, burst: u64, bursts: u64) -> Point {
        let send_ms = (bursts * burst * 1000 / rate.max(1)).clamp(POINT_MS.0, POINT_MS.1);
        let pace = Pace {
            fixed: Some((rate, burst)),
            read_ns: 0,
            buffer_bytes: None,
            send_ms: vec![send_ms],
            settle_ms: send_ms / SETTLE_SHARE,
            trains: false,
            timed: false,
        };
        let pace = self.pace(receiver, pace);
        Point { part: Part::Tracking, receiver, senders: 1, size: self.plan.sizes[0], pace }
    }

    /// Arrival is timed by the kernel: what is seen shall be the sender's doing.
    fn accuracy(&self, done: &mut impl FnMut(Row) -> Result<()>) -> Result<()> {
        for (rate, burst) in ACCURACY {
            let trains = rate > TRAINS_ABOVE;
            let pace = Pace {
                fixed: Some((rate, burst)),
                read_ns: 0,
                buffer_bytes: None,
                send_ms: vec![self.args.accuracy_seconds * 1000],
                settle_ms: 0,
                trains,
                timed: true,
            };
            let size = if trains { TRAIN_MESSAGE_BYTES } else { self.plan.sizes[0] };
            let receiver = Receiver::Fast;
            done(self.measure(&Point { part: Part::Accuracy, receiver, senders: 1, size, pace })?)?;
        }
        Ok(())
    }

    /// Several senders to the slowed receiver, with learnt parameters.
    fn learning(&self, part: Part, senders: usize, send_ms: impl Fn(usize) -> u64) -> Point {
        let pace = Pace {
            fixed: None,
            read_ns: 0,
            buffer_bytes: None,
            send_ms: (0..senders).map(send_ms).collect(),
            settle_ms: LEARNING_MS.1,
            trains: false,
            timed: false,
        };
        let receiver = Receiver::Slow;
        let pace = self.pace(receiver, pace);
        Point { part, receiver, senders, size: self.plan.sizes[0], pace }
    }

    /// With what makes the receiver what it is.
    fn pace(&self, receiver: Receiver, pace: Pace) -> Pace {
        match receiver {
            Receiver::Fast => Pace { read_ns: 0, buffer_bytes: None, ..pace },
            Receiver::Slow => Pace {
                read_ns: self.args.read_us * 1000,
                buffer_bytes: Some(self.args.buffer as usize),
                ..pace
            },
        }
    }

    fn measure(&self, point: &Point) -> Result<Row> {
        let plan = Plan {
            members: point.senders + 1,
            pace: Some(point.pace.clone()),
            // On a machine that others use as well the kernel knows better which core is free.
            pin: false,
            ..self.plan.clone()
        };
        let transport = plan.transports[0];
        let reports =
            runner::measure(&plan, self.place, transport, point.size).with_context(|| point.words())?;
        Row::new(&plan, point, transport, reports)
    }
}
