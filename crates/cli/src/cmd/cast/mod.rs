//! `denrei cast`: files and directories, or a stream, to any number of hosts at once.
//!
//! Inputs → outputs: paths, addresses → a summary or JSON, progress on standard error, an exit status.
//! What is done is in the crate `denrei-cast`.

mod recv;
mod send;
mod show;

use crate::cmd::key::KeyArgs;
use crate::cmd::values::seconds;
use crate::cmd::wrong_arguments;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use denrei::{BindError, Config, Drive, Node};
use denrei_cast::message::MAX_MESSAGE_BYTES;
use denrei_output::in_words;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The port of receivers for which none is named.
const DEFAULT_PORT: u16 = 7117;

/// A host that is silent for so long has vanished, though its process may live.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(6);

/// How often a silent host is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// What others may have this process hold, bytes; what they have said is read at once, but while files are verified.
const RECEIVE_MEMORY_BYTES: u64 = 256 << 20;

/// Send files and directories to many hosts at once, or receive them
///
/// One host sends, any number receive. What is sent travels once for all of them where the network
/// carries multicast, and by unicast or a tree of relays where it does not. Content is verified
/// (BLAKE3), appears under its name when it is complete, and is resumed where it was interrupted;
/// a receiver that comes late, vanishes or fails does not disturb the others.
///
/// On each receiver: denrei cast recv --into DIR
///
/// On the sender: denrei cast send PATH --members host1,host2,host3
#[derive(Args, Debug)]
pub struct CastCommand {
    #[command(subcommand)]
    command: Direction,
}

#[derive(Subcommand, Debug)]
enum Direction {
    Send(Box<send::SendCommand>),
    Recv(Box<recv::RecvCommand>),
}

impl CastCommand {
    /// Sends or receives; whether all have everything.
    pub fn run(self) -> Result<bool> {
        match self.command {
            Direction::Send(command) => command.run(),
            Direction::Recv(command) => command.run(),
        }
    }
}

/// The port that a cast uses here, and what protects it.
#[derive(Args, Clone, Debug)]
struct PortArgs {
    /// Local address [default: any address; loopback only, if there is no key and no --insecure]
    #[arg(long, visible_alias = "listen", value_name = "ADDR")]
    bind: Option<String>,

    #[command(flatten)]
    keys: KeyArgs,
}

impl PortArgs {
    /// Opens the Node of a side that has `peers` to reach, as far as they are known, and `group`; one at `port`, or any
    /// other where that is taken, if no address was given.
    fn open(&self, group: SocketAddr, port: u16, peers: &[SocketAddr]) -> Result<Node> {
        let mut config = self.keys.clone().own_config()?;
        config.drive = Drive::Thread;
        config.protocol.failure_timeout = FAILURE_TIMEOUT;
        config.protocol.keepalive = Some(KEEPALIVE);
        config.protocol.max_message_bytes = MAX_MESSAGE_BYTES;
        config.protocol.receive_memory_bytes = RECEIVE_MEMORY_BYTES;
        let Some(bind) = &self.bind else {
            let beyond = peers.iter().any(|peer| !peer.ip().to_canonical().is_loopback());
            let open = config.insecure || config.cluster_key.is_some() || beyond;
            return bind_default(default_ips(group, peers, open), port, &config);
        };
        let addr = resolve(bind, port).map_err(|why| wrong_arguments(format!("--bind: {why}")))?;
        Node::bind(addr, config).context("cannot open the port")
    }
}

/// What to say of a port that this host alone reaches.
fn reach(node: &Node) -> &'static str {
    if node.local_addr().ip().to_canonical().is_loopback() { ", for this host alone" } else { "" }
}

/// Where a side is if nobody says: at all addresses of its host, of both IP versions where it has both, or at loopback,
/// of the version of those it has to reach. The second is for hosts that have no IPv6.
fn default_ips(group: SocketAddr, peers: &[SocketAddr], open: bool) -> [IpAddr; 2] {
    let loopback = match peers.first().unwrap_or(&group).ip().to_canonical() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    if open { [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()] } else { [loopback; 2] }
}

/// Binds `port` of the first address, or another where that is taken: several receivers on one host find senders all
/// the same.
fn bind_default(ips: [IpAddr; 2], port: u16, config: &Config) -> Result<Node> {
    let mut bound = Node::bind((ips[0], port), config.clone());
    for addr in [(ips[0], 0), (ips[1], port), (ips[1], 0)] {
        if !matches!(bound, Err(BindError::Socket { .. })) {
            break;
        }
        bound = Node::bind(addr, config.clone());
    }
    bound.context("cannot open the port")
}

/// `host`, `host:port`, `10.0.0.1`, `[fd00::1]:7117`, `fe80::7%eth0`.
fn resolve(text: &str, port: u16) -> Result<SocketAddr, String> {
    if text.is_empty() {
        return Err("\"\" is no host: give a name or an address, such as node1 or 10.0.0.1:7117".into());
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    if text.contains('%') && !text.starts_with('[') {
        return denrei::resolve(&format!("[{text}]:{port}"));
    }
    let has_port = text.contains(':') && !text.ends_with(']');
    if has_port { denrei::resolve(text) } else { denrei::resolve(&format!("{text}:{port}")) }
}

/// The address of another side, which `option` names: as for [`resolve`], with `port` where it names none and there is one
/// that such a side has by default.
fn resolve_peer(option: &str, text: &str, port: Option<u16>) -> Result<SocketAddr> {
    let wrong = |why: String| wrong_arguments(format!("{option}: {why}"));
    let addr = resolve(text, port.unwrap_or(0)).map_err(wrong)?;
    let ip = addr.ip().to_canonical();
    if ip.is_multicast() || ip.is_unspecified() || ip == Ipv4Addr::BROADCAST {
        return Err(wrong(format!("{text:?} is no address of a single host")));
    }
    match (addr.port(), port) {
        (0, Some(_)) => return Err(wrong(format!("{text:?} has port 0, at which nobody is"))),
        (0, None) => {
            let why = "has no port at which it could be: give that of its --bind, such as node1:7200";
            return Err(wrong(format!("{text:?} {why}")));
        }
        _ => {}
    }
    // As the same host may be named in the other way too.
    Ok(if ip.is_ipv4() { SocketAddr::new(ip, addr.port()) } else { addr })
}

/// The object of `--json` for a cast that came to nothing.
fn failure(error: &anyhow::Error) -> String {
    json!({ "complete": false, "error": in_words(error) }).to_string()
}

/// Longest time that may be given: eleven days, seconds.
const MAX_SECONDS: f64 = 1e6;

/// A time to wait.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    seconds(0.0..=MAX_SECONDS)(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_lack_their_port() {
        for (text, addr) in [
            ("10.0.0.1", "10.0.0.1:7117"),
            ("10.0.0.1:9", "10.0.0.1:9"),
            ("[fd00::1]", "[fd00::1]:7117"),
            ("fd00::1", "[fd00::1]:7117"),
            ("[fd00::1]:9", "[fd00::1]:9"),
        ] {
            assert_eq!(resolve(text, DEFAULT_PORT), Ok(addr.parse().unwrap()), "{text}");
        }
        for text in ["[fe80::7%lo]", "fe80::7%lo"] {
            assert!(resolve(text, 9).is_ok() && resolve(text, 9) == resolve("[fe80::7%lo]:9", 7), "{text}");
        }
        assert_eq!(
            resolve_peer("--members", "::ffff:10.0.0.1", Some(DEFAULT_PORT)).unwrap(),
            "10.0.0.1:7117".parse().unwrap()
        );
        assert!(resolve("localhost", 9).unwrap().ip().is_loopback());
        assert!(resolve("no such host", 9).unwrap_err().contains("no such host"));
        assert!(resolve("", 9).unwrap_err().contains("such as node1"));
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse_seconds("-1").is_err() && parse_seconds("soon").is_err());
    }
}
