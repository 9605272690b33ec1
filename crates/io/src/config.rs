//! What the caller wishes of a socket, and what the host gave.
//!
//! Inputs → outputs: plain data, read by `open` and `socket`.

use std::net::Ipv4Addr;

/// Wished socket receive buffer: 4 MiB hold 3 ms of a 10 Gbit/s link, longer than a process is
/// usually kept off its core.
const DEFAULT_RECV_BUFFER_BYTES: usize = 4 << 20;
/// Wished socket send buffer: room for 16 full trains of 64 KiB.
const DEFAULT_SEND_BUFFER_BYTES: usize = 1 << 20;
/// Connected sockets beside the main one: enough for a ring, a tree or a small mesh, few enough to
/// poll in turn.
const DEFAULT_CONNECTED_SOCKETS: usize = 8;
/// Largest buffer that a kernel gives: it counts the double, with its bookkeeping, in an `int`.
pub(crate) const MAX_BUFFER_BYTES: usize = i32::MAX as usize / 2;
/// Most connected sockets, draining ones included: readiness is reported as a 64-bit set.
pub(crate) const MAX_LANES: usize = 64;
/// Most connected sockets that can be wished for: as many again may be draining.
pub const MAX_CONNECTED_SOCKETS: usize = MAX_LANES / 2 - 1;

/// Which system calls to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// The best that this platform has.
    #[default]
    Auto,
    /// `sendmsg`/`recvmmsg`/`sendmmsg` with segmentation offload; Linux only.
    Batched,
    /// One datagram per call; runs everywhere.
    Plain,
}

/// Wishes for a [`UdpSocket`](crate::UdpSocket). Whatever the host refuses is left out, and told by
/// [`capabilities`](crate::UdpSocket::capabilities) and [`warnings`](crate::UdpSocket::warnings).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Bytes of datagrams the kernel should hold for us; 0 keeps the system's default.
    pub recv_buffer_bytes: usize,
    /// Bytes of datagrams the kernel should hold on the way out; 0 keeps the system's default.
    pub send_buffer_bytes: usize,
    /// Which system calls to use.
    pub backend: BackendChoice,
    /// Send trains of equal datagrams in one call (`UDP_SEGMENT`).
    pub gso: bool,
    /// Receive trains of equal datagrams in one call (`UDP_GRO`).
    pub gro: bool,
    /// Send ECT(0) and read the ECN bits of what arrives.
    pub ecn: bool,
    /// Most connected sockets on this port, at most 31; 0 switches them off. Without one nobody hears of a peer's host
    /// that refuses what is sent.
    pub connected_sockets: usize,
    /// Address of the interface by which IPv4 groups are heard and spoken to, one of this host's; `None`: the one that the
    /// port's address is of; for a port on all addresses, that of the default route to hear them, and that by which
    /// the first member is reached to speak to them. For IPv6 groups
    /// the scope of the group's address says it (`[ff02::7%eth1]:7400`); where a group of one link has none, the port's
    /// address, or, for a port on all addresses, the way to the first member at a group's opener, and the route to groups
    /// of a whole site (`ff05::/16`) elsewhere.
    pub multicast_interface: Option<Ipv4Addr>,
}

impl SocketConfig {
    /// What [`connected_sockets`](Self::connected_sockets) would have to be, if it cannot be what it is.
    pub fn wrong_connected_sockets(&self) -> Option<String> {
        (self.connected_sockets > MAX_CONNECTED_SOCKETS)
            .then(|| format!("at most {MAX_CONNECTED_SOCKETS}, of which 0 switches them off"))
    }
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            recv_buffer_bytes: DEFAULT_RECV_BUFFER_BYTES,
            send_buffer_bytes: DEFAULT_SEND_BUFFER_BYTES,
            backend: BackendChoice::Auto,
            gso: true,
            gro: true,
            ecn: true,
            connected_sockets: DEFAULT_CONNECTED_SOCKETS,
            multicast_interface: None,
        }
    }
}

/// What a socket can do, as far as is known now: a feature that fails later is taken back here, until it works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the backend: `batched` or `plain`.
    pub backend: &'static str,
    /// Trains are sent in one call.
    pub gso: bool,
    /// Paths on which `gso` was found not to work although the kernel announced it; it is tried again seldom.
    pub gso_disabled_paths: usize,
    /// Trains are received in one call.
    pub gro: bool,
    /// ECN bits are sent and read.
    pub ecn: bool,
    /// Usable receive buffer in bytes, in the unit of the wish (Linux reserves as much again for
    /// its bookkeeping and reports the double).
    pub recv_buffer_bytes: usize,
    /// Usable send buffer in bytes, in the unit of the wish.
    pub send_buffer_bytes: usize,
    /// Most datagrams that one [`Transmit`](denrei_wire::Transmit) may usefully have.
    pub max_segments: usize,
}
