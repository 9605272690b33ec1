//! Somebody who speaks the protocol and need not keep to it: a malicious member, or a stranger
//! whose key is another.
//!
//! Inputs → outputs: octets that shall be the frames of a packet → that packet, in a session of its
//! own, sealed as its key allows; what comes back is taken as an honest endpoint takes it.

use anyhow::{Context, Result};
use denrei_proto::group::GroupId;
use denrei_proto::seal::{ClusterKey, Seed};
use denrei_proto::{ChannelId, Completion, Config, Endpoint, Event, LostReason, PeerId};
use denrei_wire::group::Record;
use denrei_wire::packet::{Header, Kind, Packet};
use denrei_wire::{DatagramMeta, Ecn, Instant, TransmitBuf};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Larger than any datagram, bytes.
const BUFFER_BYTES: usize = 1 << 16;
/// Longest wait for a datagram.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long a session may take to open.
const OPEN_LIMIT: Duration = Duration::from_millis(1500);
/// Datagrams taken before it is time to send.
const TURN: usize = 64;
/// Most datagrams of a group kept until they are asked for.
const MOST_KEPT: usize = 20_000;

/// A member.
pub struct Member {
    socket: UdpSocket,
    endpoint: Endpoint,
    origin: std::time::Instant,
    out: TransmitBuf,
    buffer: Vec<u8>,
    peer: Option<PeerId>,
    lost: Option<LostReason>,
    /// Every datagram it sent, if that is wanted.
    sent: Option<Vec<Vec<u8>>>,
    newest: u32,
    group: Option<Heard>,
}

/// What comes of a group.
struct Heard {
    socket: UdpSocket,
    /// The first OPEN that came.
    open: Option<Vec<u8>>,
    begun: bool,
    /// Messages taken as a member.
    messages: u64,
    /// Datagrams that have come since they were last asked for.
    datagrams: Vec<Vec<u8>>,
}

impl Member {
    /// With a cluster key, or without.
    pub fn new(socket: UdpSocket, key: Option<[u8; 32]>, seed: u64) -> Self {
        let config = Config { cluster_key: key.map(ClusterKey::from_bytes), ecn: false, ..Config::default() };
        let origin = std::time::Instant::now();
        Self {
            socket,
            endpoint: Endpoint::new(Arc::new(config), Seed::from(seed), Instant::from_nanos(0)),
            origin,
            out: TransmitBuf::new(1),
            buffer: vec![0; BUFFER_BYTES],
            peer: None,
            lost: None,
            sent: None,
            newest: 0,
            group: None,
        }
    }

    /// Where it can be reached.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }

    /// Hears the group's address by `socket` from now on.
    pub fn listen(&mut self, socket: UdpSocket) {
        self.group = Some(Heard { socket, open: None, begun: false, messages: 0, datagrams: Vec::new() });
    }

    /// Takes part in the group at `address` once it was asked to; whether it does. The OPEN, which has the
    /// key, is kept.
    pub fn takes_part(&mut self, address: SocketAddr) -> Result<bool> {
        let now = self.now();
        let group = self.group.as_mut().context("the member does not listen")?;
        if group.open.is_none() {
            group.open = self.endpoint.invitations().next().map(<[u8]>::to_vec);
            if group.open.is_some() {
                self.endpoint.join_group(now, address)?;
                self.flush()?;
            }
            return Ok(false);
        }
        Ok(group.begun)
    }

    /// The OPEN that made it a member.
    pub fn open_record(&self) -> Option<&[u8]> {
        self.group.as_ref()?.open.as_deref()
    }

    /// OPENs that it has not followed.
    pub fn invitations(&self) -> usize {
        self.endpoint.invitations().count()
    }

    /// Messages of groups that it took as a member.
    pub fn group_messages(&self) -> u64 {
        self.group.as_ref().map_or(0, |group| group.messages)
    }

    /// The datagrams heard at the group's address since the last time.
    pub fn heard(&mut self) -> Vec<Vec<u8>> {
        self.group.as_mut().map(|group| std::mem::take(&mut group.datagrams)).unwrap_or_default()
    }

    /// Says a record of groups to whoever is at `to`.
    pub fn say_record(&mut self, to: SocketAddr, record: &[u8]) -> Result<()> {
        let now = self.now();
        let peer = self.endpoint.connect(now, to).context("cannot begin a session")?;
        self.endpoint.say_record(now, peer, record);
        self.flush()
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// The datagrams that open a session with `to`, not sent: the first of the handshake.
    pub fn opening(mut self, to: SocketAddr) -> Result<Vec<Vec<u8>>> {
        self.sent = Some(Vec::new());
        let now = self.now();
        self.endpoint.connect(now, to).context("cannot begin a session")?;
        while self.endpoint.poll_transmit(now, &mut self.out).is_some() {
            self.sent.get_or_insert_default().push(self.out.bytes().to_vec());
        }
        Ok(self.sent.unwrap_or_default())
    }

    /// Opens a session; whether it opened.
    pub fn connect(&mut self, to: SocketAddr) -> Result<bool> {
        let now = self.now();
        self.lost = None;
        let peer = self.endpoint.connect(now, to).context("cannot begin a session")?;
        self.peer = Some(peer);
        let until = std::time::Instant::now() + OPEN_LIMIT;
        while std::time::Instant::now() < until && self.lost.is_none() {
            self.drive(PATIENCE)?;
            if self.endpoint.flow(peer).is_some_and(|flow| flow.phase == denrei_proto::Phase::Open) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says `frames` in a packet of their own.
    pub fn say(&mut self, frames: &[u8]) -> Result<()> {
        let now = self.now();
        let peer = self.peer.context("there is no session")?;
        // Gone if the other side has ended it: that is looked at elsewhere.
        let _ = self.endpoint.say(now, peer, frames);
        self.flush()
    }

    /// Sends a message as an honest member does.
    pub fn send(&mut self, channel: u16, message: Vec<u8>) -> Result<()> {
        let peer = self.peer.context("there is no session")?;
        let _ = self.endpoint.send(ChannelId { peer, channel }, message.into(), Completion::None);
        self.flush()
    }

    /// Why the session is over, if it is.
    pub fn lost(&self) -> Option<&LostReason> {
        self.lost.as_ref()
    }

    /// The highest packet number that has come.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Receives, answers and times out for this long, and at least once.
    pub fn drive(&mut self, time: Duration) -> Result<()> {
        let until = std::time::Instant::now() + time;
        loop {
            self.receive()?;
            let now = self.now();
            self.endpoint.handle_timeout(now);
            self.flush()?;
            self.take();
            if std::time::Instant::now() >= until {
                return Ok(());
            }
        }
    }

    /// What is here of the group goes the way it goes in an honest member, and is kept.
    fn hear(&mut self) {
        let now = self.now();
        let Some(group) = &mut self.group else { return };
        while group.datagrams.len() < MOST_KEPT
            && let Ok((len, from)) = group.socket.recv_from(&mut self.buffer)
        {
            group.datagrams.push(self.buffer[..len].to_vec());
            let meta = DatagramMeta { from, at: None, ecn: Ecn::NotEct };
            self.endpoint.handle_datagram(now, &meta, &mut self.buffer[..len]);
        }
    }

    fn take_of_group(&mut self, now: Instant) {
        let Some(group) = &mut self.group else { return };
        let Some(Ok((name, Record::Open(open)))) = group.open.as_deref().map(Record::decode) else { return };
        group.begun |= self.endpoint.accept_group(open.address).is_some();
        while self.endpoint.group_recv(now, GroupId(name)).is_some() {
            group.messages += 1;
        }
    }

    fn receive(&mut self) -> Result<()> {
        self.hear();
        self.socket.set_read_timeout(Some(PATIENCE))?;
        for _ in 0..TURN {
            let Ok((len, from)) = self.socket.recv_from(&mut self.buffer) else { return Ok(()) };
            if let Ok(Packet { header: Header { kind: Kind::Session, number, .. }, .. }) =
                Packet::decode(&self.buffer[..len])
            {
                self.newest = self.newest.max(number);
            }
            let now = self.now();
            let meta = DatagramMeta { from, at: None, ecn: Ecn::NotEct };
            self.endpoint.handle_datagram(now, &meta, &mut self.buffer[..len]);
        }
        Ok(())
    }

    fn take(&mut self) {
        let now = self.now();
        while self.endpoint.recv(now).is_some() {}
        self.take_of_group(now);
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::PeerLost { peer, reason, .. } = event
                && Some(peer) == self.peer
            {
                self.lost = Some(reason);
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        let now = self.now();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.out) {
            // What the link does not carry is lost, as on any path.
            let _ = self.socket.send_to(self.out.bytes(), transmit.to);
        }
        Ok(())
    }
}
