//! One local UDP port: a main socket and a bounded number of connected ones.
//!
//! Inputs → outputs: address and [`SocketConfig`] → an open port. Sending is in `send`, receiving
//! in `recv`. The kernel delivers a connected peer's datagrams to its connected socket and all
//! others to the main one; both are read alike, by source address, so a datagram that arrives on
//! the "wrong" socket while one is opened or closed is not lost.

use crate::buffers::RecvBuffers;
use crate::config::{Capabilities, MAX_BUFFER_BYTES, MAX_LANES, SocketConfig};
use crate::lanes::{Lane, PollPolicy};
use crate::offload::GsoPaths;
use crate::open;
use crate::outcome::{DropKind, IoCounters, SendHook, SendOutcome};
use crate::plain::{canonical, mapped};
use crate::wait::any_readable;
use denrei_wire::datagram::MAX_SEGMENTS;
use denrei_wire::{DatagramMeta, Transmit, TransmitBuf, Way};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};

/// One local UDP port.
pub struct UdpSocket {
    pub(crate) local: SocketAddr,
    pub(crate) config: SocketConfig,
    pub(crate) batched: bool,
    /// Whether one call may send many datagrams.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) send_batches: bool,
    /// The main socket, then the connected ones.
    pub(crate) lanes: Vec<Lane>,
    /// Lanes about to be closed.
    pub(crate) draining: usize,
    /// A lane's peer has been refused, or was.
    pub(crate) has_refused: bool,
    pub(crate) policy: PollPolicy,
    pub(crate) gso: GsoPaths,
    /// Lane whose send buffer was full.
    pub(crate) blocked: Option<usize>,
    pub(crate) hook: Option<SendHook>,
    pub(crate) counters: IoCounters,
    pub(crate) granted: open::Granted,
    pub(crate) warnings: Vec<String>,
    /// What was warned of that the host refuses to send.
    pub(crate) refusals: Vec<DropKind>,
    /// It was warned of that receiving fails.
    pub(crate) fails_to_receive: bool,
}

impl UdpSocket {
    /// Binds `addr` (port 0: any free port; `[::ffff:10.0.0.1]` is 10.0.0.1). Nonblocking, closed on exec; `[::]`
    /// takes IPv4 too.
    ///
    /// # Errors
    /// When the port is in use, the address is not this host's, the backend is not available here, or more than
    /// [`MAX_CONNECTED_SOCKETS`](crate::MAX_CONNECTED_SOCKETS) are wished for.
    pub fn bind(addr: SocketAddr, config: &SocketConfig) -> io::Result<Self> {
        check_connected(config)?;
        let batched = open::choose_batched(config.backend)?;
        let mut config = config.clone();
        config.gso &= batched;
        config.gro &= batched;
        let (main, granted) = open::open_main(canonical(addr), &config)?;
        let local = main.local_addr()?;
        Ok(Self {
            local,
            batched,
            send_batches: batched,
            lanes: vec![Lane::new(main, None, granted.gro)],
            draining: 0,
            has_refused: false,
            policy: PollPolicy::default(),
            gso: GsoPaths::new(granted.gso),
            blocked: None,
            hook: None,
            counters: IoCounters::default(),
            warnings: buffer_warnings(&config, &granted),
            refusals: Vec::new(),
            fails_to_receive: false,
            config,
            granted,
        })
    }

    /// The same port again, to send from another thread: a descriptor of the main socket, with counters
    /// of its own. It is not meant to receive.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn sender(&self) -> io::Result<Self> {
        let main = self.lanes[0].socket.try_clone()?;
        Ok(Self {
            local: self.local,
            config: self.config.clone(),
            batched: self.batched,
            send_batches: self.send_batches,
            lanes: vec![Lane::new(main, None, self.lanes[0].trains)],
            draining: 0,
            has_refused: false,
            policy: PollPolicy::default(),
            gso: GsoPaths::new(self.gso.enabled()),
            blocked: None,
            hook: None,
            counters: IoCounters::default(),
            granted: self.granted,
            warnings: Vec::new(),
            refusals: Vec::new(),
            fails_to_receive: false,
        })
    }

    /// The address bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// What the socket can do, as far as is known now.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: if self.batched { "batched" } else { "plain" },
            gso: self.gso.enabled(),
            gso_disabled_paths: self.gso.disabled_paths(),
            gro: self.granted.gro,
            ecn: self.granted.ecn && self.batched,
            recv_buffer_bytes: self.granted.recv_buffer_bytes,
            send_buffer_bytes: self.granted.send_buffer_bytes,
            max_segments: if self.batched { MAX_SEGMENTS } else { 1 },
        }
    }

    /// What the user should know and can change, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Running totals.
    pub fn counters(&self) -> &IoCounters {
        &self.counters
    }

    /// Datagrams that came while a receive buffer was full, over all sockets that are open now, each since it was opened;
    /// 0 where the system does not say.
    pub fn overflows(&self) -> u64 {
        self.lanes.iter().map(|lane| open::overflows(&lane.socket)).sum()
    }

    /// Descriptors to wait on; the main socket first. At most 64.
    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> {
        self.lanes.iter().map(|lane| lane.socket.as_raw_fd())
    }

    /// Whether there is something to receive now. An answer that cannot be had is a yes: who then
    /// receives learns what is wrong.
    pub fn is_readable(&self) -> bool {
        any_readable(self.raw_fds()).unwrap_or(true)
    }

    /// The descriptor whose send buffer was full at the last send, to wait on until it is writable.
    pub fn blocked_fd(&self) -> Option<RawFd> {
        self.blocked.map(|lane| self.lanes[lane].socket.as_raw_fd())
    }

    /// Opens a connected socket on this port for a busy peer. `Ok(false)`: nothing was done, because
    /// the peer has one already or all [`connected_sockets`](SocketConfig::connected_sockets) are
    /// taken; whom to disconnect is the caller's choice. Datagrams of the same [`Way`] go by it from then on.
    ///
    /// # Errors
    /// When the system refuses (out of descriptors, no route); the peer is then served by the main
    /// socket as before.
    pub fn connect_peer(&mut self, way: impl Into<Way>) -> io::Result<bool> {
        let Way { to, from } = way.into();
        let peer = canonical(to);
        let limit = self.config.connected_sockets;
        let groups = self.lanes.iter().filter(|lane| lane.group.is_some()).count();
        let full = self.connected_peers().count() >= limit
            || self.lanes.len() - groups > 2 * limit
            || self.lanes.len() >= MAX_LANES;
        if full || self.connected_peers().any(|connected| connected.to == peer) {
            return Ok(false);
        }
        let target = mapped(peer, self.local.is_ipv6());
        let socket = open::open_connected(
            self.lanes.iter().filter(|lane| lane.group.is_none()).map(|lane| &lane.socket),
            self.local_at(from, peer),
            target,
            &self.config,
        )?;
        self.lanes.push(Lane::new(socket, Some(Way { to: peer, from }), self.granted.gro));
        self.policy.connected();
        // Fewer than were asked for are all there were.
        self.lanes[0].ask = self.lanes[0].ask.max(2);
        self.counters.peers_connected += 1;
        Ok(true)
    }

    /// Gives up the connected socket of `peer`. What is queued in it is delivered by the next calls
    /// of [`recv`](Self::recv), which then close it. Nothing happens if there is none.
    pub fn disconnect_peer(&mut self, peer: SocketAddr) {
        let peer = canonical(peer);
        if let Some(index) = self.lanes.iter().position(|lane| lane.peer == Some(peer)) {
            if !self.lanes[index].trains {
                self.ask_for_trains(index, true);
            }
            let lane = &mut self.lanes[index];
            open::turn_away(&lane.socket);
            lane.peer = None;
            lane.draining = Some(0);
            self.draining += 1;
        }
    }

    /// The peers that have a connected socket.
    pub fn connected_peers(&self) -> impl Iterator<Item = Way> {
        self.lanes.iter().filter_map(|lane| lane.peer.map(|to| Way { to, from: lane.at }))
    }

    /// A peer with a connected socket whose host has said, since this was last asked, that nobody is at its port. Anybody
    /// may have said so in its place.
    #[inline]
    pub fn take_refused(&mut self) -> Option<SocketAddr> {
        if self.has_refused { self.next_refused() } else { None }
    }

    #[cold]
    fn next_refused(&mut self) -> Option<SocketAddr> {
        let refused = self.lanes.iter_mut().find(|lane| lane.refused && lane.peer.is_some());
        self.has_refused = refused.is_some();
        let lane = refused?;
        lane.refused = false;
        lane.peer
    }

    /// Has the kernel say who it is that refuses what a peer with a connected socket is sent, from the first refusal on:
    /// else that one is not known to be the peer's, and does not count.
    #[cold]
    pub fn ask_who_refuses(&mut self, peer: SocketAddr) {
        let peer = canonical(peer);
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.peer == Some(peer)) {
            lane.ask_who_refuses();
        }
    }

    /// What a call on a lane ended with may be word of the peer's host.
    #[cold]
    pub(crate) fn note_refusal(&mut self, lane: usize, error: &io::Error) {
        if lane > 0 && self.lanes[lane].is_refusal_of_peer(error) {
            self.lanes[lane].refused = true;
            self.has_refused = true;
        }
    }

    /// The port at one of the addresses that it is bound to, in the socket's family; one of a link is on the peer's.
    fn local_at(&self, ip: Option<IpAddr>, peer: SocketAddr) -> SocketAddr {
        let at = |ip| match (ip, peer) {
            (IpAddr::V6(ip), SocketAddr::V6(peer)) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, self.local.port(), 0, peer.scope_id()).into()
            }
            (ip, _) => mapped(SocketAddr::new(ip, self.local.port()), self.local.is_ipv6()),
        };
        ip.filter(|_| self.local.ip().is_unspecified()).map_or(self.local, at)
    }

    /// A socket was closed, and others moved: what waited for room goes by the main one.
    pub(crate) fn send_elsewhere(&mut self) {
        self.blocked = self.blocked.map(|_| 0);
    }

    pub(crate) fn close_lane(&mut self, index: usize) {
        self.lanes.swap_remove(index);
        self.policy.removed(index, self.lanes.len());
        self.send_elsewhere();
        self.draining -= 1;
        self.counters.peers_disconnected += 1;
    }
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpSocket")
            .field("local", &self.local)
            .field("capabilities", &self.capabilities())
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

fn check_connected(config: &SocketConfig) -> io::Result<()> {
    let Some(expected) = config.wrong_connected_sockets() else { return Ok(()) };
    let what = format!("connected_sockets is {}, but has to be {expected}", config.connected_sockets);
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// One sentence for each buffer that is smaller than wished, with what to set.
fn buffer_warnings(config: &SocketConfig, granted: &open::Granted) -> Vec<String> {
    let buffers = [
        ("receive", granted.recv_buffer_bytes, config.recv_buffer_bytes, "rmem_max"),
        ("send", granted.send_buffer_bytes, config.send_buffer_bytes, "wmem_max"),
    ];
    let short = buffers.into_iter().filter(|(_, granted, wished, _)| granted < wished);
    short
        .map(|(name, granted, wished, sysctl)| {
            let possible = wished.min(MAX_BUFFER_BYTES);
            let advice = if granted >= possible {
                format!("no kernel gives more than {MAX_BUFFER_BYTES}")
            } else if cfg!(target_os = "linux") {
                format!("set net.core.{sysctl} (as root: sysctl -w net.core.{sysctl}={possible})")
            } else {
                "raise kern.ipc.maxsockbuf".to_owned()
            };
            format!("{name} buffer is {granted} bytes, wanted {wished}: {advice}")
        })
        .collect()
}

/// Anything that sends and receives datagrams as a [`UdpSocket`] does; adapters wrap one in another.
pub trait DatagramIo {
    /// The local address.
    fn local_addr(&self) -> SocketAddr;

    /// See [`UdpSocket::send_from`].
    fn send_from(&mut self, transmit: &Transmit, buf: &TransmitBuf, skip: usize) -> SendOutcome;

    /// See [`UdpSocket::send`].
    fn send(&mut self, transmit: &Transmit, buf: &TransmitBuf) -> SendOutcome {
        self.send_from(transmit, buf, 0)
    }

    /// See [`UdpSocket::recv`].
    ///
    /// # Errors
    /// When the socket itself is unusable.
    fn recv(
        &mut self,
        buffers: &mut RecvBuffers,
        handle: impl FnMut(&DatagramMeta, &mut [u8]),
    ) -> io::Result<usize>;
}

impl DatagramIo for UdpSocket {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn send_from(&mut self, transmit: &Transmit, buf: &TransmitBuf, skip: usize) -> SendOutcome {
        Self::send_from(self, transmit, buf, skip)
    }

    fn recv(
        &mut self,
        buffers: &mut RecvBuffers,
        handle: impl FnMut(&DatagramMeta, &mut [u8]),
    ) -> io::Result<usize> {
        Self::recv(self, buffers, handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_what_the_kernel_takes() {
        let wish =
            SocketConfig { recv_buffer_bytes: usize::MAX, send_buffer_bytes: 0, ..SocketConfig::default() };
        let warnings = |recv_buffer_bytes| {
            let granted =
                open::Granted { gso: false, gro: false, ecn: false, recv_buffer_bytes, send_buffer_bytes: 0 };
            buffer_warnings(&wish, &granted).concat()
        };
        assert!(warnings(MAX_BUFFER_BYTES).ends_with("no kernel gives more than 1073741823"));
        if cfg!(target_os = "linux") {
            let short = warnings(212_992);
            assert!(short.contains("sysctl -w net.core.rmem_max=1073741823)"), "{short}");
        }
    }

    #[test]
    fn more_connected_sockets_than_there_can_be_are_refused() {
        let wish = |connected_sockets| {
            let config = SocketConfig { connected_sockets, ..SocketConfig::default() };
            UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config).map(drop)
        };
        wish(31).unwrap();
        let error = wish(32).unwrap_err().to_string();
        assert_eq!(error, "connected_sockets is 32, but has to be at most 31, of which 0 switches them off");
    }
}
