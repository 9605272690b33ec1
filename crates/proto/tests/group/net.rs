//! A network in memory: multicast that reaches some, loss, hosts that stand still.

use bytes::Bytes;
use denrei_proto::group::{GroupEvent, GroupId, GroupOptions, MemberPath};
use denrei_proto::{Config, Endpoint};
use denrei_wire::{DatagramMeta, Ecn, Instant, TransmitBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const DELAY: Duration = Duration::from_micros(50);
const STEPS: usize = 3_000_000;

pub fn addr(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (host / 250) as u8, (host % 250) as u8 + 1], 7000))
}

pub fn group_addr() -> SocketAddr {
    "239.1.1.1:7400".parse().unwrap()
}

/// A slow link that passes `burst` at once after a pause; what would wait for longer than `queue` is lost.
pub struct Link {
    pub bytes_per_second: u64,
    pub burst: Duration,
    pub queue: Duration,
}

/// Host 0 opens the group; the others are its members.
pub struct Net {
    pub now: Instant,
    pub hosts: Vec<Endpoint>,
    pub under_way: BTreeMap<(Instant, u64), (usize, SocketAddr, Vec<u8>)>,
    pub order: u64,
    pub random: u64,
    /// How much later than multicast what goes to one host alone arrives.
    pub session_delay: Duration,
    /// The same for all that single hosts send and are sent.
    pub session_delays: BTreeMap<usize, Duration>,
    /// How much later what the opener sends to a host alone arrives there.
    pub opener_delays: BTreeMap<usize, Duration>,
    /// How much later each datagram arrives, at most: each by a time of its own, so that they overtake each other.
    pub jitter: Duration,
    /// Per mille of all datagrams lost, per receiving host.
    pub loss: Vec<u64>,
    /// Links slower than the others' to a host, and when each is done with what it was given.
    pub links: BTreeMap<usize, (Link, Instant)>,
    /// From whom nothing arrives at whom.
    pub cut: BTreeSet<(usize, usize)>,
    /// Hosts that multicast does not reach.
    pub deaf: BTreeSet<usize>,
    /// Whether what has a mark of ECN is lost.
    pub drops_marked: bool,
    /// Hosts that neither receive nor act.
    pub stopped: BTreeSet<usize>,
    /// Hosts whose application does not take messages.
    pub idle: BTreeSet<usize>,
    pub group: GroupId,
    pub events: Vec<GroupEvent>,
    pub received: Vec<Vec<(u64, Bytes)>>,
    pub multicast_datagrams: u64,
    pub sent_datagrams: u64,
    pub sent_bytes: u64,
    /// Datagrams to the group's address, where they are wanted.
    pub recording: Option<Vec<Vec<u8>>>,
}

impl Net {
    pub fn new(members: usize, config: Config) -> Self {
        let config = Arc::new(config);
        let hosts: Vec<_> =
            (0..=members).map(|host| Endpoint::new(config.clone(), host as u64 + 1, Instant::ZERO)).collect();
        Self {
            now: Instant::ZERO,
            under_way: BTreeMap::new(),
            order: 0,
            random: 12345,
            session_delay: Duration::ZERO,
            session_delays: BTreeMap::new(),
            opener_delays: BTreeMap::new(),
            jitter: Duration::ZERO,
            loss: vec![0; hosts.len()],
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            deaf: BTreeSet::new(),
            drops_marked: false,
            stopped: BTreeSet::new(),
            idle: BTreeSet::new(),
            group: GroupId(0),
            events: Vec::new(),
            received: vec![Vec::new(); hosts.len()],
            hosts,
            multicast_datagrams: 0,
            sent_datagrams: 0,
            sent_bytes: 0,
            recording: None,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % below
    }

    pub fn chance(&mut self, permille: u64) -> bool {
        self.draw(1000) < permille
    }

    pub fn open(&mut self, options: GroupOptions) {
        let members: Vec<SocketAddr> = (1..self.hosts.len()).map(addr).collect();
        for host in 1..self.hosts.len() {
            self.hosts[host].join_group(self.now, group_addr()).unwrap();
        }
        self.group = self.hosts[0].open_group(self.now, group_addr(), &members, options).unwrap();
    }

    pub fn opened(members: usize, options: GroupOptions) -> Self {
        let mut net = Self::new(members, Config::default());
        net.open(options);
        net.run(Duration::from_secs(1));
        assert_eq!(net.events, [GroupEvent::Opened]);
        net
    }

    pub fn send(&mut self, message: impl Into<Bytes>) {
        self.hosts[0].group_send(self.group, message.into()).unwrap();
    }

    pub fn deliver(&mut self, from: usize, to: usize, later: Duration, bytes: &[u8]) {
        let loss = self.loss[to].max(self.loss[from] * (from != 0) as u64);
        if self.chance(loss) || self.cut.contains(&(from, to)) {
            return;
        }
        let Some(waits) = self.queue(to, bytes.len() as u64) else { return };
        self.order += 1;
        let mut at = self.now + DELAY + later + waits;
        if !self.jitter.is_zero() {
            at += Duration::from_nanos(self.draw(self.jitter.as_nanos() as u64));
        }
        self.under_way.insert((at, self.order), (to, addr(from), bytes.to_vec()));
    }

    /// How long a datagram to a host waits for its link, if there is room in the queue before that.
    fn queue(&mut self, to: usize, bytes: u64) -> Option<Duration> {
        let Some((link, busy_until)) = self.links.get_mut(&to) else { return Some(Duration::ZERO) };
        let begins = self.now.max(*busy_until);
        let ends = begins + Duration::from_secs_f64(bytes as f64 / link.bytes_per_second as f64);
        let waits = ends.saturating_since(self.now).saturating_sub(link.burst);
        *busy_until = if waits <= link.queue { ends } else { *busy_until };
        (waits <= link.queue).then_some(waits)
    }

    pub fn drain(&mut self, host: usize) {
        if self.stopped.contains(&host) {
            return;
        }
        let mut buf = TransmitBuf::new(64);
        for _ in 0..100_000 {
            let Some(transmit) = self.hosts[host].poll_transmit(self.now, &mut buf) else { break };
            assert_eq!(transmit.len, buf.len());
            let bytes = buf.bytes().to_vec();
            for datagram in bytes.chunks(transmit.segment_size.unwrap_or(transmit.len)) {
                assert!(datagram.len() <= 1472 || transmit.to != group_addr(), "larger than the path");
                self.sent_datagrams += (host == 0) as u64;
                self.sent_bytes += if host == 0 { datagram.len() as u64 } else { 0 };
                if self.drops_marked && transmit.ecn != Ecn::NotEct {
                    continue;
                }
                if transmit.to == group_addr() {
                    self.multicast_datagrams += 1;
                    if let Some(recording) = &mut self.recording {
                        recording.push(datagram.to_vec());
                    }
                    for to in 1..self.hosts.len() {
                        if !self.deaf.contains(&to) {
                            self.deliver(host, to, Duration::ZERO, datagram);
                        }
                    }
                } else if let Some(to) = (0..self.hosts.len()).find(|to| addr(*to) == transmit.to) {
                    let by_opener = self.opener_delays.get(&to).filter(|_| host == 0);
                    let own = [host, to].into_iter().filter_map(|end| self.session_delays.get(&end));
                    let own = own.chain(by_opener).max();
                    self.deliver(host, to, own.copied().unwrap_or(self.session_delay), datagram);
                }
            }
        }
        while let Some(event) = self.hosts[0].poll_group_event(self.group) {
            self.events.push(event);
        }
        while self.hosts[host].poll_event().is_some() {}
        if host > 0 && !self.idle.contains(&host) {
            self.hosts[host].accept_group(group_addr());
            while let Some(message) = self.hosts[host].group_recv(self.now, self.group) {
                self.received[host].push((message.number, message.data));
            }
        }
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..STEPS {
            for host in 0..self.hosts.len() {
                self.drain(host);
            }
            let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let live = (0..self.hosts.len()).filter(|host| !self.stopped.contains(host));
            let timeout = live.filter_map(|host| self.hosts[host].poll_timeout()).min();
            let next = [arrival, timeout].into_iter().flatten().min().filter(|next| *next <= end);
            let Some(next) = next else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, from, mut bytes) = entry.remove();
                if !self.stopped.contains(&to) && bytes.len() <= 1472 {
                    self.hosts[to].handle_datagram(
                        self.now,
                        &DatagramMeta { from, at: None, ecn: Ecn::NotEct },
                        &mut bytes,
                    );
                }
            }
            for host in 0..self.hosts.len() {
                if !self.stopped.contains(&host)
                    && self.hosts[host].poll_timeout().is_some_and(|at| at <= self.now)
                {
                    self.hosts[host].handle_timeout(self.now);
                }
            }
        }
        panic!("no rest after {STEPS} steps at {:?}", self.now);
    }

    pub fn close(&mut self) {
        self.hosts[0].close_group(self.group).unwrap();
    }

    pub fn paths(&self) -> Vec<MemberPath> {
        let status = self.hosts[0].group_status(self.group).unwrap();
        status.members.iter().map(|member| member.path).collect()
    }

    pub fn assert_received(&self, host: usize, sizes: &[usize]) {
        assert_eq!(self.received[host].len(), sizes.len(), "messages at host {host}");
        for (number, size) in sizes.iter().enumerate() {
            let (got, data) = &self.received[host][number];
            assert_eq!((*got, data), (number as u64, &content(number, *size)), "host {host}");
        }
    }
}

pub fn content(number: usize, len: usize) -> Bytes {
    crate::common::content(number, len).into()
}
