//! What a test tells an `e2e-node`: one JSON object a line, on its standard input.

use crate::Plan;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// An order. What answers it is named behind the arrow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Bind the process's Node. → `Bound` or `Failed`
    Bind {
        /// Where.
        addr: SocketAddr,
        /// How.
        settings: Settings,
    },
    /// Bind one more Node on loopback and let it go again. → `Bound` or `Failed`
    BindAnother,
    /// Forward from now on, without a Node of its own. → `Bound` with the address that stands for the
    /// target, or `Failed`
    Relay {
        /// Where senders come.
        listen: SocketAddr,
        /// Whom it stands for.
        target: SocketAddr,
        /// What a pair may hold, bytes.
        pair_bytes: u64,
        /// Of its Nodes.
        settings: Settings,
    },
    /// Allow the process only `spare` descriptors more than it has. → `Done`
    LimitFiles {
        /// How many more.
        spare: u64,
    },
    /// Open a session. → `Peer` or `Failed`
    Connect {
        /// With whom.
        addr: SocketAddr,
    },
    /// Send messages. → `Sent` once all are acknowledged, or `Failed`
    Send(Stream),
    /// From now on compare what arrives with a plan.
    Verify {
        /// The plan.
        plan: Plan,
        /// Index of the first message of a session, per channel; 0 beyond the list.
        from: Vec<u64>,
        /// Report each message as `Took`.
        trace: bool,
    },
    /// From now on send back what arrives.
    Echo,
    /// Send, wait for the echo, pause, and so on. → `Latency`
    Ping {
        /// Whose echo.
        peer: u64,
        /// On which channel.
        channel: u16,
        /// Size of a message, bytes.
        bytes: usize,
        /// How many.
        count: usize,
        /// Pause between an echo and the next message, µs.
        pause_us: u64,
    },
    /// Take what arrives, or leave it.
    Read(bool),
    /// → `Tally`
    Tally,
    /// → `Flow` or `Failed`
    Flow {
        /// Of which peer.
        peer: u64,
    },
    /// → `Resources`
    Resources,
    /// → `Peers`
    Peers,
    /// Take part in the first group at an address, and compare what comes with channel 0 of a plan.
    /// → `Done` or `Failed`
    GroupJoin {
        /// Multicast.
        address: SocketAddr,
        /// The plan.
        plan: Plan,
    },
    /// Open a group and wait for its members. → `Done` or `Failed`
    GroupOpen {
        /// Multicast.
        address: SocketAddr,
        /// Their Nodes; the member ids count them from 0.
        members: Vec<SocketAddr>,
        /// Whether others may ask to become members.
        admit: bool,
    },
    /// Send the messages with the indices 0 .. `to` of a plan's channel 0 to the group. → `GroupSent`
    /// once all members have them, or `Failed`
    GroupSend {
        /// The plan.
        plan: Plan,
        /// How many.
        to: u64,
        /// Least time from one message to the next, µs.
        pace_us: u64,
    },
    /// Remove a member from the group. → `Done` or `Failed`, and `GroupDeparted`
    GroupEject {
        /// Its id.
        member: u32,
    },
    /// What came of groups, each as the session of a peer with its name. → `Tally`
    GroupTally,
    /// Role `leaves`: bind Nodes, let each say something to the hub and wait for its echo. → `Echoed`
    Leaves {
        /// How many Nodes.
        count: usize,
        /// The Node that echoes.
        hub: SocketAddr,
        /// Of these Nodes.
        settings: Settings,
    },
    /// Role `capture`: collect IPv4 packets with UDP datagrams to this port. → `Captured`
    Capture {
        /// The port.
        port: u16,
        /// How many packets.
        count: usize,
    },
    /// Role `inject`: send damaged, truncated and repeated copies of packets, under their own source
    /// addresses, and random datagrams under this host's. → `Injected`
    Inject {
        /// IPv4 packets, in hexadecimal digits.
        packets: Vec<String>,
        /// How often each is used.
        rounds: usize,
        /// Chooses the damage.
        seed: u64,
        /// Where random datagrams go.
        to: SocketAddr,
    },
}

/// Messages to send: on each of the channels 0 .. `channels`, taking turns, those with the indices
/// `from[channel]` .. `to`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// To whom.
    pub peer: u64,
    /// What.
    pub plan: Plan,
    /// Channels, counted from 0.
    pub channels: u16,
    /// Index of the first message per channel; 0 beyond the list.
    pub from: Vec<u64>,
    /// Index behind the last message of each channel.
    pub to: u64,
    /// Least time from one message to the next, µs.
    pub pace_us: u64,
    /// Ask for a report of each delivery.
    pub delivered: bool,
}

/// Which thread does a Node's I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Drive {
    /// The one that calls.
    #[default]
    Inline,
    /// One in the background.
    Thread,
}

/// Settings of a Node that tests change; `None` leaves the default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// Who drives.
    pub drive: Drive,
    /// See `denrei::ProtocolConfig`, as the following, ms.
    pub failure_timeout_ms: Option<u64>,
    /// ms.
    pub keepalive_ms: Option<u64>,
    /// Bytes.
    pub max_message_bytes: Option<u64>,
    /// Count.
    pub max_channels: Option<u16>,
    /// The octets of the cluster key.
    pub key: Option<[u8; 32]>,
    /// Packets.
    pub rekey_after_packets: Option<u64>,
    /// See `denrei::SocketConfig`, bytes.
    pub recv_buffer_bytes: Option<usize>,
    /// Others, as `denrei::Config::set` takes them.
    pub named: Vec<(String, String)>,
}

impl Settings {
    /// The defaults under this drive mode.
    pub fn driven(drive: Drive) -> Self {
        Self { drive, ..Self::default() }
    }

    /// The configuration of a Node.
    pub fn config(&self) -> denrei::Config {
        let drive = match self.drive {
            Drive::Inline => denrei::Drive::Inline,
            // In the background: as the environment says, or in one thread.
            Drive::Thread if std::env::var_os(denrei::environment::DRIVE).is_some() => Default::default(),
            Drive::Thread => denrei::Drive::Thread,
        };
        // Hosts of a lab are alone with each other.
        let mut config = denrei::Config { drive, insecure: true, ..denrei::Config::default() };
        let protocol = &mut config.protocol;
        if let Some(ms) = self.failure_timeout_ms {
            protocol.failure_timeout = Duration::from_millis(ms);
        }
        if let Some(ms) = self.keepalive_ms {
            protocol.keepalive = Some(Duration::from_millis(ms));
        }
        protocol.cluster_key = self.key.map(denrei::ClusterKey::from_bytes);
        set(&mut protocol.rekey_after_packets, self.rekey_after_packets);
        set(&mut protocol.max_message_bytes, self.max_message_bytes);
        set(&mut protocol.max_channels, self.max_channels);
        set(&mut config.socket.recv_buffer_bytes, self.recv_buffer_bytes);
        for (name, value) in &self.named {
            config.set(name, value).expect("a setting of the test");
        }
        config
    }
}

fn set<T>(setting: &mut T, wish: Option<T>) {
    if let Some(value) = wish {
        *setting = value;
    }
}
