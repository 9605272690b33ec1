//! The settings of a Node: of the protocol, of the socket, and of who drives it.

use crate::BindError;
use crate::pipeline::Stage;
use crate::shards::MAX_SHARDS;
use denrei_io::SocketConfig;
use denrei_proto::seal::{ClusterKey, Identity, PublicIdentity};
use denrei_proto::{Config as ProtocolConfig, ConfigError, MAX_RATE};
use denrei_wire::Token;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

/// Everything that can be set. `Config::default()` is right for a LAN and safe on the internet.
#[derive(Clone, Debug)]
pub struct Config {
    /// Times, sizes, limits and algorithms of the protocol.
    pub protocol: ProtocolConfig,
    /// Buffers and features of the socket.
    pub socket: SocketConfig,
    /// Which thread does the work.
    pub drive: Drive,
    /// For [`Drive::Pipelined`]: the stages of a packet's way, in groups that share a thread, as in
    /// `[[Rx, Open], [Proto], [Seal, Tx]]`. Empty, the default: as the number of cores suggests.
    pub pipeline: Vec<Vec<Stage>>,
    /// For [`Drive::Pipelined`]: over how many protocol threads peers are spread, by a hash of their
    /// addresses. For hosts where one core cannot keep up with the protocol: more than one is for
    /// cores to spare. The threads of `proto` are as many; each has its part of
    /// [`receive_memory_bytes`](ProtocolConfig::receive_memory_bytes). As soon as the Node has to do with
    /// a group, one of them has all peers. 1 (the default) ..= 128, and 1 in the other drive modes.
    pub shards: usize,
    /// How long a waiting call looks again and again before it sleeps. Saves the wake-up (tens of
    /// microseconds) at the price of a busy core; zero, the default, never does. At most 10 s.
    pub spin: Duration,
    /// Without a cluster key: open the Node on any address all the same, not on loopback only.
    /// Whoever reaches it can then read, change and inject messages (`spec/protocol.md` §12); for
    /// networks that only trusted machines are on. A Node that has a key is sealed whatever this says.
    pub insecure: bool,
    /// Nodes that name the same directory here, in whatever process of this host, share what the host can
    /// receive (R10, R13): what one does not use, the others have. Each keeps a small file there, best in a
    /// file system in memory, such as `/run/user/1000/denrei` or `/dev/shm/denrei`; it is made if need be,
    /// for this user alone. Needs [`learn_rates`](ProtocolConfig::learn_rates).
    pub host_directory: Option<PathBuf>,
    /// What the host can receive in all its Nodes, bytes per second; the same for all of them. 0, the
    /// default: learnt from what is lost on the way to any of them. At most [`MAX_RATE`]; needs a
    /// [`host_directory`](Self::host_directory), even if there is only one Node.
    pub host_bytes_per_s: u64,
    /// Where this Node tells whoever asks how it is, as [`status`](crate::status) says, and `denrei top` shows: it listens
    /// at a socket of its own in this directory, which is made if need be, for this user alone. Its path has at most some
    /// 60 characters. Where it is not set, `DENREI_STATUS_DIRECTORY` may name one.
    pub status_directory: Option<PathBuf>,
    /// The secret that the cluster shares: with it everything is sealed. Where it is not set,
    /// [`Node::bind`](crate::Node::bind) reads the file that `DENREI_KEY_FILE` names
    /// ([`environment`](crate::environment)). Like the next two a
    /// shorthand for the field of `protocol` of the same name, and goes before it.
    pub cluster_key: Option<ClusterKey>,
    /// This Node's own secret, for peers that have its public half on their lists.
    pub identity: Option<Identity>,
    /// The identities to speak with.
    pub allowed: Vec<PublicIdentity>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protocol: ProtocolConfig::default(),
            socket: SocketConfig::default(),
            drive: Drive::default(),
            pipeline: Vec::new(),
            shards: 1,
            spin: Duration::ZERO,
            insecure: false,
            host_directory: None,
            host_bytes_per_s: 0,
            status_directory: None,
            cluster_key: None,
            identity: None,
            allowed: Vec::new(),
        }
    }
}

/// Which thread does a Node's I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Drive {
    /// The thread that calls. Two system calls an exchange, no context switch; between calls
    /// nothing is received, acknowledged or repeated. A new peer hands messages to its application when this
    /// Node has answered it: who sends and has nothing to wait for calls [`flush`](crate::Node::flush). Between two calls
    /// as much comes as the sender's window lets go, which is twice that the next time, and no more than the socket's
    /// buffer holds: who computes for long between calls and receives much takes a thread, or
    /// [`poll`](crate::Node::poll)s meanwhile.
    #[default]
    Inline,
    /// One thread in the background, for applications that go away and compute, or that send
    /// small messages faster than a system call each would allow.
    Thread,
    /// Threads for receiving, decrypting, the protocol, encrypting and sending, grouped as
    /// [`Config::pipeline`] says: for hosts with cores to spare, where one core is not enough for a
    /// peer. The protocol is the same.
    Pipelined,
}

/// Longest busy polling: it is for the time between messages, not for the time between jobs.
const MAX_SPIN: Duration = Duration::from_secs(10);

/// Peers that a port can have: as many as tokens can name.
const MAX_PEERS: usize = (1 << Token::SLOT_BITS) - 1;

impl Config {
    /// Checks all settings.
    ///
    /// # Errors
    /// The first one that cannot work, with what it would have to be.
    pub fn validate(&self) -> Result<(), BindError> {
        self.protocol().validate()?;
        crate::pipeline::check(&self.pipeline)?;
        self.check_shards()?;
        if self.spin > MAX_SPIN {
            return Err(BindError::Config(ConfigError {
                setting: "spin",
                value: format!("{:?}", self.spin),
                expected: format!("at most {MAX_SPIN:?}"),
            }));
        }
        self.check_socket()?;
        self.check_interface()?;
        Ok(self.check_host()?)
    }

    fn check_socket(&self) -> Result<(), ConfigError> {
        let Some(expected) = self.socket.wrong_connected_sockets() else { return Ok(()) };
        let value = self.socket.connected_sockets.to_string();
        Err(ConfigError { setting: "connected_sockets", value, expected })
    }

    /// The system knows: what can be bound is an address of this host's, or a group's.
    fn check_interface(&self) -> Result<(), ConfigError> {
        let Some(ip) = self.socket.multicast_interface else { return Ok(()) };
        if !ip.is_multicast() && !ip.is_broadcast() && UdpSocket::bind((ip, 0)).is_ok() {
            return Ok(());
        }
        Err(ConfigError {
            setting: "multicast_interface",
            value: ip.to_string(),
            expected: "an IPv4 address of this host, of the interface that groups are on".to_owned(),
        })
    }

    fn check_host(&self) -> Result<(), ConfigError> {
        let wrong = |setting, value, expected: String| Err(ConfigError { setting, value, expected });
        if self.host_directory.is_some() && !self.protocol.learn_rates {
            let expected = "on where host_directory is set: a host is shared by the rates it sets";
            return wrong("learn_rates", "off".to_owned(), expected.to_owned());
        }
        if self.host_bytes_per_s > 0 && self.host_directory.is_none() {
            let expected = "a directory where host_bytes_per_s is set: by it a host's Nodes share that rate";
            return wrong("host_directory", "not set".to_owned(), expected.to_owned());
        }
        if self.host_bytes_per_s > MAX_RATE {
            let expected = format!("at most {MAX_RATE} (1 PiB)");
            return wrong("host_bytes_per_s", self.host_bytes_per_s.to_string(), expected);
        }
        Ok(())
    }

    fn check_shards(&self) -> Result<(), ConfigError> {
        let most = match self.drive {
            Drive::Pipelined => MAX_SHARDS.min(MAX_PEERS / self.protocol.max_peers.max(1) as usize),
            Drive::Inline | Drive::Thread => 1,
        };
        if (1..=most).contains(&self.shards) {
            return self.check_shared_memory();
        }
        Err(ConfigError {
            setting: "shards",
            value: self.shards.to_string(),
            expected: match self.drive {
                Drive::Pipelined => format!("1 to {most}, as max_peers times shards is below 2^24"),
                _ => "1, unless drive is pipelined, which alone has protocol threads".to_owned(),
            },
        })
    }

    /// Each shard has its part of the memory, which is worth a channel's credit at least.
    fn check_shared_memory(&self) -> Result<(), ConfigError> {
        let ProtocolConfig { channel_credit_bytes: credit, receive_memory_bytes: memory, .. } = self.protocol;
        let least = credit.saturating_mul(self.shards as u64);
        if memory >= least {
            return Ok(());
        }
        Err(ConfigError {
            setting: "receive_memory_bytes",
            value: memory.to_string(),
            expected: format!(
                "at least {least}: shards ({}) times channel_credit_bytes ({credit})",
                self.shards
            ),
        })
    }

    /// The protocol's settings for each shard.
    pub(crate) fn shard_protocol(&self) -> ProtocolConfig {
        self.protocol().share_of(self.shards as u32)
    }

    /// The protocol's settings with the secrets in their place.
    pub(crate) fn protocol(&self) -> ProtocolConfig {
        let mut protocol = self.protocol.clone();
        protocol.cluster_key = self.cluster_key.clone().or(protocol.cluster_key);
        protocol.identity = self.identity.clone().or(protocol.identity);
        protocol.allowed.extend_from_slice(&self.allowed);
        protocol
    }

    /// Refuses an address that others than this host's processes reach, unless something protects
    /// the Node there.
    pub(crate) fn check_exposure(&self, addr: SocketAddr) -> Result<(), BindError> {
        // An IPv4 address in IPv6 clothes is what it is.
        if addr.ip().to_canonical().is_loopback() || self.insecure || self.has_key() {
            return Ok(());
        }
        Err(BindError::Exposed { addr })
    }

    /// Whether a cluster key is named, here or below.
    pub(crate) fn has_key(&self) -> bool {
        self.key().is_some()
    }

    /// The cluster key, named here or below.
    pub(crate) fn key(&self) -> Option<&ClusterKey> {
        self.cluster_key.as_ref().or(self.protocol.cluster_key.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_takes_needs_a_directory_and_a_rate_that_can_be() {
        let refusal = |settings: &[(&str, &str)]| {
            let mut config = Config::default();
            for (name, value) in settings {
                config.set(name, value).unwrap();
            }
            config.validate().err().map(|error| error.to_string())
        };
        let (learn, shared) = (("learn_rates", "on"), ("host_directory", "/dev/shm/denrei"));
        for others in [&[][..], &[learn]] {
            let alone = refusal(&[others, &[("host_bytes_per_s", "100000000")]].concat()).unwrap();
            assert!(alone.contains("host_bytes_per_s") && alone.contains("host_directory"), "{alone}");
        }
        assert_eq!(refusal(&[learn, shared, ("host_bytes_per_s", "1125899906842624")]), None);
        let most = refusal(&[learn, shared, ("host_bytes_per_s", "1125899906842625")]).unwrap();
        assert!(most.contains("host_bytes_per_s is 1125899906842625") && most.contains("1 PiB"), "{most}");
        assert_eq!(refusal(&[("host_bytes_per_s", "0")]), None, "which is the default");
    }

    #[test]
    fn what_is_valid_is_valid_for_each_shard() {
        let (mut valid, mut short) = (0, 0);
        for credit in [1 << 16, 100_001, 4 << 20, 1 << 40] {
            for memory in [1 << 16, 1 << 20, (4 << 20) + 1, 1 << 30, u64::MAX] {
                for shards in [1, 2, 3, 32, 128] {
                    let mut config = Config { drive: Drive::Pipelined, shards, ..Config::default() };
                    config.protocol.channel_credit_bytes = credit;
                    config.protocol.receive_memory_bytes = memory;
                    config.protocol.offer_above_bytes = 0;
                    match config.validate().map_err(|error| error.to_string()) {
                        Ok(()) => {
                            config.shard_protocol().validate().unwrap();
                            valid += 1;
                        }
                        Err(error) => {
                            assert!(
                                error.starts_with(&format!("receive_memory_bytes is {memory}")),
                                "{error}"
                            );
                            short += 1;
                        }
                    }
                }
            }
        }
        assert!(valid > 20 && short > 20, "{valid} valid, {short} too short");
    }

    #[test]
    fn groups_are_on_an_interface_of_this_host() {
        let refusal = |value: &str| {
            let mut config = Config::default();
            config.set("multicast_interface", value).unwrap();
            config.validate().err().map(|error| error.to_string())
        };
        assert_eq!((refusal("127.0.0.1"), refusal("")), (None, None));
        // TEST-NET-1 (RFC 5737), and a group.
        for strange in ["192.0.2.1", "239.0.0.1"] {
            let error = refusal(strange).unwrap();
            assert!(
                error.starts_with(&format!("multicast_interface is {strange}, but has to be")),
                "{error}"
            );
        }
    }
}
