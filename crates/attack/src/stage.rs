//! The stage of an attack: three hosts, an honest transfer, a victim that is watched.
//!
//! Inputs → outputs: a [`Wiring`] → hosts 0 (sender), 1 (victim) and 2 (attacker) on a bridge, a
//! session of the first two, direct or through the attacker's relay → while the attack goes on, a
//! transfer whose every message the victim checks → the [`Outcome`].

mod group;

use crate::forge::{self, Forger};
use crate::member::Member;
use crate::outcome::{Outcome, Tried};
use crate::relay::Relay;
use anyhow::{Context, Result};
use denrei_e2e::{Order, Plan, Process, Random, Report, Settings, Sizes, Stream};
use denrei_netlab::{Lab, LabConfig};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Largest message of the honest transfer, bytes: some fit a packet, most do not.
const MOST_BYTES: usize = 16 << 10;
/// Channels that it uses.
const CHANNELS: u16 = 3;
/// Pause between two of its messages, µs.
const PACE_US: u64 = 1_000;
/// How long the transfer goes on alone, to know what it costs by itself.
const ALONE: Duration = Duration::from_millis(500);
/// How long a process may take to report what has happened.
const SETTLE: Duration = Duration::from_millis(50);
/// How long it may take to end after the attack.
const END_LIMIT: Duration = Duration::from_secs(30);
/// The victim's port: a victim that is started again has it too.
const VICTIM_PORT: u16 = 7000;

/// How sender and victim are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// By the bridge; the attacker is beside the path.
    Direct,
    /// Through the attacker's relay.
    Relayed,
}

/// How long an attack goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A second each: for every run of the tests.
    Short,
    /// Ten seconds, and whole sweeps.
    Full,
}

impl Effort {
    /// How long an attack lasts that could go on for ever.
    pub fn time(self) -> Duration {
        Duration::from_millis(if self == Self::Short { 800 } else { 10_000 })
    }

    /// How far an attack goes that counts.
    pub fn times(self, short: usize, full: usize) -> usize {
        if self == Self::Short { short } else { full }
    }
}

/// Where an attack finds its place.
pub struct Stage {
    /// How long.
    pub effort: Effort,
    /// Decides what is not given.
    pub random: Random,
    /// What every honest process has.
    pub settings: Settings,
    sender: Process,
    victim: Process,
    relay: Option<Relay>,
    lab: Lab,
    program: PathBuf,
    plan: Plan,
    sender_addr: SocketAddr,
    peer: u64,
    /// Messages per channel of the transfer under way.
    count: u64,
    /// Messages of the group's transfer.
    group_messages: u64,
    /// Longest gaps of transfers that are over.
    past_gap_ms: u64,
    /// Honest traffic of transfers that are over: messages, bytes.
    past: (u64, u64),
    delivered: u64,
}

impl Stage {
    /// Builds it; the honest session, which changes its keys after so many packets or as seldom as by default, is not
    /// open yet.
    pub fn open(
        wiring: Wiring,
        rekey_after_packets: Option<u64>,
        effort: Effort,
        program: &Path,
        seed: u64,
    ) -> Result<Self> {
        let config = LabConfig { offload: false, ..LabConfig::default() };
        let lab = Lab::with_config(3, config).context("cannot build the namespaces")?;
        let mut random = Random::new(seed);
        let key = random.bytes(32).try_into().ok();
        let settings = Settings { key, rekey_after_packets, ..Settings::default() };
        let plan = Plan { seed, sizes: Sizes::Mixed { most: MOST_BYTES } };
        let mut victim = start(&lab, 1, program, "victim");
        victim.order(&Order::Verify { plan, from: Vec::new(), trace: false });
        let victim_addr = victim.bind_to((lab.host(1).ip(), VICTIM_PORT).into(), settings.clone());
        let mut sender = start(&lab, 0, program, "sender");
        let sender_addr = sender.bind(lab.host(0).ip(), settings.clone());
        let relay = match wiring {
            Wiring::Direct => None,
            Wiring::Relayed => Some(Relay::start(lab.host(2).namespace(), lab.host(2).ipv4(), victim_addr)?),
        };
        Ok(Self {
            effort,
            random,
            settings,
            sender,
            victim,
            relay,
            lab,
            program: program.to_owned(),
            plan,
            sender_addr,
            peer: 0,
            count: 0,
            group_messages: 0,
            past_gap_ms: 0,
            past: (0, 0),
            delivered: 0,
        })
    }

    /// Opens the session, attacks, and says what was seen, which is not judged yet.
    pub fn perform(mut self, attack: impl FnOnce(&mut Self, &mut Tried) -> Result<()>) -> Outcome {
        self.connect();
        self.begin_transfer();
        let start = self.victim.resources();
        std::thread::sleep(ALONE);
        let before = self.victim.resources();
        let honest_share = share(before.cpu_ms - start.cpu_ms, ALONE.as_millis() as u64);
        let began = Instant::now();
        let mut tried = Tried::default();
        if let Err(error) = attack(&mut self, &mut tried) {
            tried.failures.push(format!("the attack could not be carried out: {error:#}"));
        }
        let millis = began.elapsed().as_millis() as u64;
        let at_end = self.victim.resources();
        self.end_transfer(&mut tried);
        let after = self.victim.resources();
        let cpu_ms = at_end.cpu_ms.saturating_sub(before.cpu_ms);
        Outcome {
            attempts: tried.attempts,
            delivered: self.delivered,
            lost: self.lost_sessions(),
            longest_gap_ms: self.past_gap_ms,
            messages: self.past.0,
            bytes: self.past.1,
            millis,
            rss_before_bytes: before.rss_bytes,
            rss_peak_bytes: after.peak_rss_bytes,
            cpu_ms,
            cpu_honest_ms: (honest_share * millis as f64) as u64,
            counters: after.counters,
            notes: tried.notes,
            failures: tried.failures,
            ..Outcome::default()
        }
    }

    /// Where the sender's session leads: to the victim, or to the relay before it.
    fn session_addr(&self) -> SocketAddr {
        self.relay.as_ref().map_or(self.victim_addr().into(), Relay::front_addr)
    }

    fn connect(&mut self) {
        let addr = self.session_addr();
        self.peer = self.sender.connect(addr);
        // So that the next session that the victim reports is the attacker's.
        self.victim_connected();
    }

    /// The victim's address.
    pub fn victim_addr(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.lab.host(1).ipv4(), VICTIM_PORT)
    }

    /// The sender's address.
    pub fn sender_addr(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.lab.host(0).ipv4(), self.sender_addr.port())
    }

    /// The attacker's address.
    pub fn attacker_ip(&self) -> Ipv4Addr {
        self.lab.host(2).ipv4()
    }

    /// The relay of a stage that has one.
    ///
    /// # Panics
    /// If this attack was not given one.
    pub fn relay(&self) -> &Relay {
        self.relay.as_ref().expect("attacks on the path have a relay")
    }

    /// A socket on the attacker's host.
    pub fn socket(&self) -> Result<UdpSocket> {
        forge::udp(self.lab.host(2).namespace(), self.attacker_ip())
    }

    /// A forger on the attacker's host.
    pub fn forger(&self) -> Result<Forger> {
        Forger::on(self.lab.host(2).namespace(), self.attacker_ip())
    }

    /// Somebody on the attacker's host who speaks the protocol, with a key or without.
    pub fn member(&mut self, key: Option<[u8; 32]>) -> Result<Member> {
        let seed = self.random.next_u64();
        Ok(Member::new(self.socket()?, key, seed))
    }

    /// Entries of the victim's address table.
    pub fn victim_peers(&mut self) -> usize {
        self.victim.peers()
    }

    /// Lets the victim send, as an honest process would, to a peer that it has.
    pub fn victim_sends(&mut self, peer: u64, count: u64) {
        self.victim.order(&Order::Send(Stream {
            peer,
            plan: Plan { seed: 3, sizes: Sizes::Fixed(1000) },
            channels: 1,
            from: Vec::new(),
            to: count,
            pace_us: 0,
            delivered: false,
        }));
    }

    /// The next peer that the victim says it has a session with.
    pub fn victim_connected(&mut self) -> u64 {
        let limit = Duration::from_secs(5);
        self.victim.wait("a session", limit, |report| match report {
            Report::Connected { peer } => Some(*peer),
            _ => None,
        })
    }

    /// Drops what the victim has reported, such as that it could not send to a peer that is gone.
    pub fn forget_what_the_victim_said(&mut self) {
        std::thread::sleep(SETTLE);
        self.victim.said();
    }

    /// Ends both honest processes and starts them again: the victim at its address, the sender with a
    /// new session and a new transfer.
    pub fn restart_both(&mut self, tried: &mut Tried) {
        self.end_transfer(tried);
        self.restart_victim();
        self.sender = start(&self.lab, 0, &self.program, "sender");
        self.sender_addr = self.sender.bind(self.lab.host(0).ip(), self.settings.clone());
    }

    fn restart_victim(&mut self) {
        let old = std::mem::replace(&mut self.victim, start(&self.lab, 1, &self.program, "victim"));
        drop(old);
        self.victim.order(&Order::Verify { plan: self.plan, from: Vec::new(), trace: false });
        self.victim.bind_to(self.victim_addr().into(), self.settings.clone());
    }

    /// Opens the honest session anew, with a transfer.
    pub fn reconnect(&mut self) {
        self.connect();
        self.begin_transfer();
    }

    fn begin_transfer(&mut self) {
        // Longer than the attack by itself; an attack that takes longer yet outlives it.
        let time = ALONE + self.effort.time() + Duration::from_millis(500);
        self.count = time.as_micros() as u64 / PACE_US / u64::from(CHANNELS);
        self.sender.order(&Order::Send(Stream {
            peer: self.peer,
            plan: self.plan,
            channels: CHANNELS,
            from: Vec::new(),
            to: self.count,
            pace_us: PACE_US,
            delivered: false,
        }));
    }

    /// Waits for the transfer's end and checks it.
    fn end_transfer(&mut self, tried: &mut Tried) {
        let peer = self.peer;
        let (messages, bytes) =
            self.sender.wait("end of the honest transfer", END_LIMIT, |report| match *report {
                Report::Sent { peer: to, messages, bytes, .. } if to == peer => Some((messages, bytes)),
                _ => None,
            });
        let expected = self.count * u64::from(CHANNELS);
        tried.expect(messages == expected, || format!("{messages} of {expected} honest messages were sent"));
        let sessions = self.settled_tally(messages);
        for session in &sessions {
            if session.messages() == messages && session.problems.is_empty() {
                self.past_gap_ms = self.past_gap_ms.max(session.longest_gap_ms);
                self.past = (self.past.0 + messages, self.past.1 + bytes);
                continue;
            }
            self.delivered += session.messages().max(1);
            tried.failures.extend(session.problems.clone());
        }
        let whole = sessions.iter().any(|session| session.messages() == messages);
        tried.expect(whole, || format!("the victim did not take all {messages} honest messages"));
    }

    /// What the victim has, once it has `messages` of somebody.
    fn settled_tally(&mut self, messages: u64) -> Vec<denrei_e2e::Session> {
        let until = Instant::now() + denrei_e2e::SOON;
        loop {
            let sessions = self.victim.tally();
            let whole = sessions.iter().any(|session| session.messages() >= messages);
            if whole || Instant::now() > until {
                return sessions;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends of the honest session that the sender reported.
    fn lost_sessions(&mut self) -> u64 {
        let peer = self.peer;
        let lost = |report: &&Report| matches!(report, Report::Lost { peer: lost, .. } if *lost == peer);
        self.sender.said().iter().filter(lost).count() as u64
    }
}

fn start(lab: &Lab, host: usize, program: &Path, name: &str) -> Process {
    let mut command = lab.host(host).command(program);
    command.arg(ROLE_COMMAND);
    Process::start(command, name, "node")
}

/// The hidden subcommand that plays an honest process; the role comes behind it.
pub const ROLE_COMMAND: &str = "__role";

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
