//! `denrei cast send`.

use super::show::{SendBars, bytes, seconds, who};
use super::{DEFAULT_PORT, PortArgs, failure, parse_seconds, reach, resolve_peer};
use crate::bench::args::{parse_rate, parse_size};
use crate::cmd::patient::Patient;
use crate::cmd::signals::{Ending, Signal};
use crate::cmd::values::whole;
use crate::cmd::wrong_arguments;
use anyhow::{Context, Result};
use clap::{ArgGroup, Args, ValueEnum};
use denrei::GroupBackend;
use denrei_cast::manifest::ManifestError;
use denrei_cast::{
    CastError, Members, Outcome, RETAIN_BYTES, STREAM_NAME, SendOptions, SendReport, Sender, Source,
    default_group, named, parse_group, scan,
};
use denrei_output::{say, tell};
use serde_json::json;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

/// How long to wait for receivers whose number alone is known: people start them by hand.
const GATHER_WAIT: Duration = Duration::from_secs(600);
/// How long to wait for receivers that are listed: they are started together with the sender.
const LISTED_WAIT: Duration = Duration::from_secs(30);

/// How a cast travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// Multicast to those it reaches, unicast or a tree to the others
    Auto,
    /// Multicast; a single receiver, and those it does not reach from the beginning, by unicast
    Multicast,
    /// From the sender to each receiver
    Unicast,
    /// From receiver to receiver
    Tree,
}

/// Send files, directories or standard input to many receivers at once
///
/// Either the receivers are listed (--members), or the sender announces itself and begins when enough
/// have come (--min-members); those that come later are served too. Where multicast does not reach,
/// receivers are told the sender's address with their --from, and the sender binds a port of its own
/// choice with --bind. Permissions, times, symbolic links and holes of files are kept; owners,
/// setuid, setgid and sticky bits, hard links and extended attributes are not. Links that lead out of
/// what is sent are refused. A PATH of - is standard input: tar c . | denrei cast send - --min-members 3
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("receivers").required(true),
    after_help = "Exit status: 0 every receiver has everything, verified and in its place; 1 some have not \
                        (the summary names them and says why); 2 the command line is wrong; 3 nothing could be sent"
)]
pub struct SendCommand {
    /// What to send; - for standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Multicast address and port of the group [default: 239.255.71.17:7118, or [ff15::7117]:7118 if all of --members
    /// have addresses of IPv6, or the same of their link, [ff12::7117%eth0]:7118, if they are of one alone]
    #[arg(long, value_parser = parse_group, value_name = "ADDR")]
    group: Option<SocketAddr>,

    /// The receivers: host or host:port, separated by commas; port 7117 where none is given
    #[arg(long, group = "receivers", value_delimiter = ',', value_name = "HOST,...")]
    members: Vec<String>,

    /// Announce the cast, and begin when so many receivers have come
    #[arg(long, group = "receivers", value_parser = whole(1_u32..=16_384), value_name = "N")]
    min_members: Option<u32>,

    /// How the content travels
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,

    /// Send at most so many bytes of content a second; K, M and G are powers of 1024
    #[arg(long, value_parser = parse_rate, value_name = "BYTES")]
    rate: Option<u64>,

    /// Wait so long for the receivers: then begin with those of --members that are there, or give up if
    /// --min-members are not [default: 30, or 600 with --min-members]
    #[arg(long, value_parser = parse_seconds, value_name = "S")]
    wait: Option<Duration>,

    /// Wait so long, once the others are served, for receivers that are missing or have vanished
    #[arg(long, value_parser = parse_seconds, default_value = "10", value_name = "S")]
    patience: Duration,

    /// Stay so long after all are served, for receivers that come late
    #[arg(long, value_parser = parse_seconds, default_value = "0", value_name = "S")]
    linger: Duration,

    /// A receiver that stands still for so long, 0.1 at least, is served by itself; with files also one that the
    /// others wait for half of that [default: 2, or 60 with -]
    #[arg(long, value_parser = parse_seconds, value_name = "S")]
    stall: Option<Duration>,

    /// Send what symbolic links point to instead of the links
    #[arg(long, short = 'L')]
    dereference: bool,

    /// With -: the name of the file that receivers write it to [default: stdin]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// With -: how much of what was read is kept for receivers that are late or slow [default: 64M]
    #[arg(long, value_parser = parse_size, value_name = "BYTES")]
    retain: Option<u64>,

    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    port: PortArgs,
}

impl SendCommand {
    /// Sends; whether every receiver has everything.
    pub fn run(self) -> Result<bool> {
        let json = self.json;
        let sent = self.send();
        if json && let Err(error) = &sent {
            say!("{}", failure(error));
        }
        sent
    }

    fn send(self) -> Result<bool> {
        let members = self.members()?;
        let (source, ending) = self.source()?;
        let listed = match &members {
            Members::Listed(listed) => &listed[..],
            Members::AtLeast(_) => &[],
        };
        let group = self.group.unwrap_or_else(|| default_group(listed));
        let node = self.port.open(group, 0, listed)?;
        if !self.quiet {
            tell!("sending from {} to the group {}{}", named(node.local_addr()), named(group), reach(&node));
        }
        let wait = match members {
            Members::Listed(_) => LISTED_WAIT,
            Members::AtLeast(_) => GATHER_WAIT,
        };
        let options = SendOptions {
            backend: match self.backend {
                Backend::Auto => GroupBackend::Auto,
                Backend::Multicast => GroupBackend::Multicast,
                Backend::Unicast => GroupBackend::Unicast,
                Backend::Tree => GroupBackend::Tree,
            },
            wait: self.wait.unwrap_or(wait),
            patience: self.patience,
            linger: self.linger,
            stall: self.stall.map(|stall| stall.max(Duration::from_millis(100))),
            rate_bytes_per_s: self.rate,
            ..SendOptions::new(group, members)
        };
        let sender = Sender::new(node, source, options).context("cannot send")?;
        sender.warnings().iter().for_each(|warning| tell!("denrei: {warning}"));
        let mut bars = SendBars::new(self.quiet || self.json);
        let (mut began, mut signal) = (false, None);
        let sent = sender.run(|progress| {
            began |= !progress.elapsed.is_zero();
            bars.show(progress);
            signal = signal.take().or_else(|| ending.wait(Duration::ZERO));
            if signal.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bars.clear();
        match sent {
            Ok(report) => {
                if self.json {
                    print_json(&report)
                } else {
                    print_summary(&report)
                }
                Ok(report.is_complete())
            }
            Err(error) => self.broken_off(error, began, signal),
        }
    }

    /// Says what the cast broke off at, as far as that is not what could not be tried.
    fn broken_off(&self, error: CastError, began: bool, signal: Option<Signal>) -> Result<bool> {
        use CastError::{Cancelled, Changed, Removed};
        if !began && !matches!(error, Cancelled { .. } | Changed { .. } | Removed { .. }) {
            return Err(error.into());
        }
        tell!("denrei: {error}");
        if self.json {
            say!("{}", failure(&error.into()));
        }
        if let Some(signal) = signal {
            signal.end_process();
        }
        Ok(false)
    }

    fn members(&self) -> Result<Members> {
        if let Some(least) = self.min_members {
            return Ok(Members::AtLeast(least as usize));
        }
        let mut members = Vec::new();
        for text in &self.members {
            let addr = resolve_peer("--members", text.trim(), Some(DEFAULT_PORT))?;
            if members.contains(&addr) {
                return Err(wrong_arguments(format!("--members names {addr} twice")));
            }
            members.push(addr);
        }
        Ok(Members::Listed(members))
    }

    /// What to send, and from when on signals do not end the process by themselves.
    fn source(&self) -> Result<(Source, Ending)> {
        let is_stream = self.paths.iter().any(|path| path.as_os_str() == "-");
        let useless = match is_stream {
            true => self.dereference.then_some("--dereference is for files and directories"),
            false => (self.name.is_some() || self.retain.is_some())
                .then_some("--name and --retain are for standard input, which a PATH of - is"),
        };
        if let Some(useless) = useless {
            return Err(wrong_arguments(useless));
        }
        if is_stream {
            if self.paths.len() > 1 {
                return Err(wrong_arguments("- is sent alone: give files and directories to another cast"));
            }
            let (name, retain) =
                (self.name.as_deref().unwrap_or(STREAM_NAME), self.retain.unwrap_or(RETAIN_BYTES));
            let ending = Ending::watch()?;
            let stdin = Patient::of(std::io::stdin()).context("cannot read standard input")?;
            return match Source::stream(name, ending.guard(stdin), retain) {
                Err(CastError::Manifest(error)) => Err(wrong_arguments(format!("--name: {error}"))),
                source => Ok((source.context("cannot send standard input")?, ending)),
            };
        }
        let found = match scan(&self.paths, self.dereference) {
            // Those of a directory have different names: both are named here.
            Err(CastError::Manifest(error @ ManifestError::Twice { .. })) => {
                return Err(wrong_arguments(format!("{error}: send one of them by itself")));
            }
            found => found.context("cannot send")?,
        };
        found.skipped.iter().for_each(|skipped| tell!("denrei: {skipped}"));
        Ok((Source::files(found)?, Ending::watch()?))
    }
}

/// Of a member that nothing came from.
const NEVER_ANSWERED: &str =
    "it never answered: run `denrei cast recv` there, with the same key, and send the same again";

/// What became of a member: a word, and a reason.
fn outcome(outcome: &Outcome) -> (&'static str, Option<&str>) {
    match outcome {
        Outcome::Complete => ("complete", None),
        Outcome::Failed(text) => ("failed", Some(text)),
        Outcome::Vanished(text) => ("vanished", Some(text)),
        Outcome::Absent => ("absent", Some(NEVER_ANSWERED)),
    }
}

fn print_json(report: &SendReport) {
    let members = report.members.iter().map(|member| {
        let (state, error) = outcome(&member.outcome);
        json!({
            "addr": member.addr.to_string(),
            "name": member.name,
            "state": state,
            "error": error,
            "seconds": member.took.as_secs_f64(),
            "resumed_bytes": member.resumed_bytes,
        })
    });
    let wire = report.wire;
    let line = json!({
        "cast": format!("{:016x}", report.cast.swap_bytes()),
        "complete": report.is_complete(),
        "bytes": report.bytes,
        "seconds": report.took.as_secs_f64(),
        "wire_bytes": wire.bytes,
        "wire_packets": wire.packets,
        "repairs": wire.multicast_repairs + wire.unicast_repairs,
        "multicast_repairs": wire.multicast_repairs,
        "unicast_repairs": wire.unicast_repairs,
        "slowest": report.slowest().map(|member| member.addr.to_string()),
        "members": members.collect::<Vec<_>>(),
    });
    say!("{line}");
}

fn print_summary(report: &SendReport) {
    let through = report.members.iter().filter(|member| member.outcome == Outcome::Complete).count();
    say!(
        "{} to {through} of {} receivers in {}",
        bytes(report.bytes),
        report.members.len(),
        seconds(report.took)
    );
    let wire = report.wire;
    let repairs = wire.multicast_repairs + wire.unicast_repairs;
    say!("on the wire: {} in {} packets, {repairs} repairs", bytes(wire.bytes), wire.packets);
    if let Some(slowest) = report.slowest() {
        say!("slowest: {} after {}", who(slowest.addr, &slowest.name), seconds(slowest.took));
    }
    for member in &report.members {
        let who = who(member.addr, &member.name);
        if let (word, Some(why)) = outcome(&member.outcome) {
            say!("{word}: {who}: {why}");
        } else if member.resumed_bytes > 0 {
            say!("resumed: {who} had {} already", bytes(member.resumed_bytes));
        }
    }
}
