//! `denrei relay`: forwards between networks that cannot reach each other.

use super::key::KeyArgs;
use super::wrong_arguments;
use crate::bench::args::parse_size_from;
use crate::cmd::signals::Ending;
use crate::cmd::values::{seconds, whole};
use anyhow::{Context, Result};
use clap::Args;
use denrei::BindError;
use denrei::relay::{MIN_PAIR_BYTES, Relay, RelayConfig, Route};
use denrei_output::{say, tell};
use std::net::IpAddr;
use std::time::Duration;

/// Stand for peers that senders cannot reach, and forward messages both ways.
///
/// Every route is an address of this host that stands for a peer beyond: who connects to LISTEN speaks
/// with TARGET. To let both sides begin, give a route in each direction. The relay is a node like any
/// other: it needs the cluster's key, and reads what it forwards. Messages arrive once, whole and in
/// order while it and both sides live; what it had acknowledged and not forwarded is lost if it dies,
/// or who it was for: the sender hears that the session is over. A slow far side slows its own senders
/// only. Groups do not go through: a group opened by a program hears nothing from members behind a
/// relay, which are sent to by themselves, as `denrei cast` does. Runs until SIGINT, SIGTERM or SIGHUP:
/// then it takes no more, hands on what it had taken (--drain), tells who speaks through it, and ends;
/// a second signal ends it at once.
#[derive(Args, Debug)]
pub struct RelayCommand {
    /// An address of this host and the peer it stands for; may be repeated
    #[arg(long = "route", required = true, value_parser = parse_route, value_name = "LISTEN=TARGET")]
    routes: Vec<Route>,

    /// Local address towards the targets, without an interface: one of a single link is that of the target's [default:
    /// any; loopback towards loopback]
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,

    /// What a pair of peers may hold in each direction, and the largest message that goes through,
    /// bytes
    #[arg(long, default_value = "64M", value_parser = parse_size_from(MIN_PAIR_BYTES), value_name = "BYTES")]
    pair_bytes: u64,

    /// Pairs of peers at a time
    #[arg(long, default_value_t = 64, value_parser = whole(1_u64..=1024), value_name = "N")]
    max_pairs: u64,

    /// Take a peer on either side for lost that is silent for so long
    #[arg(long, default_value = "20", value_parser = seconds(0.01..=86_400.0), value_name = "S")]
    failure_timeout: Duration,

    /// Print the state of all pairs this often, as one JSON object a line
    #[arg(long, value_parser = whole(1_u64..=86_400), value_name = "S")]
    status: Option<u64>,

    /// Once a signal has come, hand on what was taken of either side for so long at most; 0: not at all
    #[arg(long, default_value = "10", value_parser = seconds(0.0..=86_400.0), value_name = "S")]
    drain: Duration,

    #[command(flatten)]
    keys: KeyArgs,
}

/// How long the relay sleeps where no status is asked for.
const NAP: Duration = Duration::from_secs(3600);
/// What ends sooner after a signal is not announced.
const UNSAID: Duration = Duration::from_millis(100);

impl RelayCommand {
    /// Relays until the process is ended.
    pub fn run(self) -> Result<bool> {
        let ending = Ending::watch()?;
        let mut node = self.keys.own_config()?;
        let timeout = self.failure_timeout;
        node.protocol.failure_timeout = timeout;
        node.protocol.keepalive = node.protocol.keepalive.map(|usual| usual.min(timeout / 4));
        let config = RelayConfig {
            node,
            from: self.from,
            pair_bytes: self.pair_bytes,
            max_pairs: self.max_pairs as usize,
        };
        let relay = Relay::start(&self.routes, &config).map_err(|error| match error {
            BindError::Config(error) => wrong_arguments(error.to_string()),
            error => anyhow::Error::new(error).context("cannot open the relay"),
        })?;
        for (addr, route) in relay.addresses().iter().zip(&self.routes) {
            let text = format!("relaying {addr} to {}", route.target);
            // Where objects are printed, nothing else is.
            if self.status.is_some() { tell!("{text}") } else { say!("{text}") }
        }
        loop {
            if let Some(signal) = ending.wait(self.status.map_or(NAP, Duration::from_secs)) {
                drain(&relay, self.drain);
                drop(relay);
                signal.end_process();
            }
            if self.status.is_some() {
                print_status(&relay)?;
            }
        }
    }
}

/// Hands on what was taken, and says so if it takes a while.
fn drain(relay: &Relay, limit: Duration) {
    let unsaid = limit.min(UNSAID);
    if limit.is_zero() || relay.drain(unsaid) {
        return;
    }
    let seconds = limit.as_secs_f64();
    tell!("ending: handing on what was taken, for {seconds} s at most; another signal ends it at once");
    if !relay.drain(limit - unsaid) {
        let left = relay.pairs();
        let bytes: u64 = left.iter().map(|pair| pair.held_bytes).sum();
        tell!(
            "not all was handed on, of {} pairs: {bytes} bytes towards their targets, at least",
            left.len()
        );
    }
}

fn print_status(relay: &Relay) -> Result<()> {
    for pair in relay.pairs() {
        let line = serde_json::json!({
            "near": pair.near.to_string(),
            "target": pair.target.to_string(),
            "forwarded_messages": pair.forwarded_messages,
            "forwarded_bytes": pair.forwarded_bytes,
            "returned_messages": pair.returned_messages,
            "held_bytes": pair.held_bytes,
            "lowered": pair.lowered,
        });
        say!("{}", serde_json::to_string(&line).context("cannot print the status")?);
    }
    Ok(())
}

fn parse_route(text: &str) -> Result<Route, String> {
    let wrong =
        |why: String| format!("{why}: give a route as LISTEN=TARGET, such as 10.1.0.1:7000=10.2.0.5:7000");
    let (listen, target) = text.split_once('=').ok_or_else(|| wrong(format!("{text:?} is one address")))?;
    let end = |text: &str| denrei::resolve(text.trim()).map_err(wrong);
    Ok(Route { listen: end(listen)?, target: end(target)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_two_addresses() {
        let route = parse_route("10.1.0.1:7000=[fd00::5]:7001").unwrap();
        assert_eq!(route.listen, "10.1.0.1:7000".parse().unwrap());
        assert_eq!(route.target, "[fd00::5]:7001".parse().unwrap());
        assert!(parse_route("localhost:7000=[fd00::5]:7001").unwrap().listen.ip().is_loopback());
        for wrong in ["10.1.0.1:7000", "a=b", "10.1.0.1=10.2.0.5:7000", ""] {
            assert!(parse_route(wrong).unwrap_err().contains("LISTEN=TARGET"), "{wrong}");
        }
    }
}
