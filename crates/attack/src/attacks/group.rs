//! Groups: the outsider who hears what anybody on the link can hear, and the member that was sent away.

use super::sweep::Sweep;
use crate::forge::Forger;
use crate::former::{FormerKey, headers};
use crate::member::Member;
use crate::outcome::Tried;
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use denrei_wire::checksum;
use denrei_wire::group::{Join, Record};
use std::collections::VecDeque;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// Larger than any datagram, bytes.
const BUFFER_BYTES: usize = 1 << 16;
/// Packets behind after which a packet is repeated again.
const LATER: usize = 40;
/// Harmed copies of every packet.
const COPIES: usize = 16;
/// How long a group is recorded for.
const RECORDING: Duration = Duration::from_millis(400);
/// How long what was sealed before an ejection may still be on its way.
const UNDER_WAY: Duration = Duration::from_millis(100);
/// Between two looks at what has come.
const GLANCE: Duration = Duration::from_millis(2);
/// Symbols in a row that a former member forges.
const FORGED: u32 = 8;

/// The datagrams waiting at a socket that does not wait.
fn heard(listener: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; BUFFER_BYTES];
    std::iter::from_fn(|| listener.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())).collect()
}

/// An attacker beside the group, who can pass for its opener as far as addresses go.
struct Beside {
    forger: Forger,
    opener: SocketAddrV4,
    targets: [SocketAddrV4; 2],
}

impl Beside {
    fn of(stage: &Stage) -> Result<Self> {
        let targets = [stage.group_addr(), stage.victim_addr()];
        Ok(Self { forger: stage.forger()?, opener: stage.sender_addr(), targets })
    }

    /// Sends a datagram to the group and to the victim itself, as if the opener had; how many.
    fn send(&mut self, datagram: &[u8]) -> Result<usize> {
        for to in self.targets {
            self.forger.send(self.opener, to, datagram)?;
        }
        Ok(self.targets.len())
    }

    fn send_all(&mut self, datagrams: &[Vec<u8>]) -> Result<usize> {
        datagrams.iter().try_fold(0, |count, datagram| Ok(count + self.send(datagram)?))
    }
}

/// What the group says for a while.
fn recorded(listener: &UdpSocket) -> Result<Vec<Vec<u8>>> {
    std::thread::sleep(RECORDING);
    let recording = heard(listener);
    ensure!(!recording.is_empty(), "nothing was heard of the group");
    Ok(recording)
}

/// The victim has seen the repetitions, and taken none.
fn expect_repeated(stage: &mut Stage, tried: &mut Tried, before: u64) -> Result<()> {
    let repeated = stage.victim_counter("repeated_group_packets")? - before;
    tried.note(format!("the victim counted {repeated} packets of its group that it had before"));
    tried.expect(repeated > 0, || "no repetition reached the victim: nothing was shown".into());
    Ok(())
}

/// Every packet of the group twice at once, and again when it is old.
pub fn replay_at_once(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let listener = stage.listener()?;
    let mut beside = Beside::of(stage)?;
    stage.open_group(None)?;
    let mut old = VecDeque::new();
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        for datagram in heard(&listener) {
            tried.add(beside.send(&datagram)? + beside.send(&datagram)?);
            old.push_back(datagram);
            if old.len() > LATER {
                tried.add(beside.send(&old.pop_front().expect("it is not empty"))?);
            }
        }
        std::thread::sleep(GLANCE);
    }
    stage.end_group(tried);
    expect_repeated(stage, tried, 0)
}

/// A group's packets, recorded, again: to a victim that is fresh, and beside a new group.
pub fn replay_after_restart(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let listener = stage.listener()?;
    stage.open_group(None)?;
    let recording = recorded(&listener)?;
    stage.end_group(tried);
    tried.note(format!("{} packets recorded", recording.len()));
    stage.restart_both(tried);
    let mut beside = Beside::of(stage)?;
    tried.add(beside.send_all(&recording)?);
    stage.open_group(None)?;
    stage.reconnect();
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        tried.add(beside.send_all(&recording)?);
    }
    stage.end_group(tried);
    let strange = stage.victim_counter("unknown_session")?;
    tried.note(format!("the victim counted {strange} packets of no group or session of its own"));
    tried.expect(strange > 0, || "no repetition reached the victim: nothing was shown".into());
    Ok(())
}

/// A group that the attacker is a member of, and what it was told.
fn as_member(stage: &mut Stage) -> Result<(Member, FormerKey)> {
    let mut member = stage.member(stage.settings.key)?;
    member.listen(stage.listener()?);
    stage.open_group(Some(&mut member))?;
    let key = FormerKey::from_open(member.open_record().context("no OPEN came")?)?;
    Ok((member, key))
}

/// Packets of a key that was given up when a member was ejected.
pub fn replay_after_rekey(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let (mut member, _) = as_member(stage)?;
    member.drive(RECORDING)?;
    let recording = member.heard();
    ensure!(!recording.is_empty(), "nothing was heard of the group");
    stage.eject();
    member.drive(UNDER_WAY)?;
    member.heard();
    member.drive(UNDER_WAY)?;
    let phase = |datagrams: &[Vec<u8>]| {
        datagrams.last().and_then(|datagram| headers(datagram)).map(|(header, _)| header.flags & 2)
    };
    let changed = phase(&recording) != phase(&member.heard());
    tried.note(format!("{} packets recorded; the key changed: {changed}", recording.len()));
    tried.expect(changed, || "the key did not change: nothing was shown".into());
    let before = stage.victim_counter("corrupted")?;
    let mut beside = Beside::of(stage)?;
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        tried.add(beside.send_all(&recording)?);
    }
    stage.end_group(tried);
    let dropped = stage.victim_counter("corrupted")? - before;
    tried.note(format!("the victim counted {dropped} packets that do not open"));
    tried.expect(dropped > 0, || "no repetition reached the victim: nothing was shown".into());
    Ok(())
}

/// Copies of the group's packets, harmed at every place in turn, and plain ones under their numbers.
pub fn forgery(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let listener = stage.listener()?;
    let mut beside = Beside::of(stage)?;
    stage.open_group(None)?;
    let before = stage.victim_counter("corrupted")?;
    let (mut flips, mut cuts) = (Sweep::default(), Sweep::default());
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        for datagram in heard(&listener) {
            let mut copies = flips.flipped(&datagram, COPIES);
            copies.extend(cuts.truncated(&datagram, COPIES));
            // Without a tag and with the checksum of plain packets; and one of the next number.
            let mut plain = datagram[..datagram.len() - denrei_wire::packet::TAG_BYTES].to_vec();
            plain[4] = plain[4].wrapping_add(1);
            let sum = checksum::crc32c(&plain);
            plain.extend(sum.to_le_bytes());
            copies.push(plain);
            tried.add(beside.send_all(&copies)?);
        }
        std::thread::sleep(GLANCE);
    }
    stage.end_group(tried);
    tried.note(format!("bits: {}; lengths: {}", flips.progress(), cuts.progress()));
    let dropped = stage.victim_counter("corrupted")? - before;
    tried.note(format!("the victim counted {dropped} packets that do not open"));
    tried.expect(dropped > 0, || "nothing reached the victim: nothing was shown".into());
    Ok(())
}

/// A member that is ejected by the opener.
pub fn ejected_member(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    listen_on(stage, tried, |stage, _, _| {
        stage.eject();
        Ok(())
    })
}

/// A member that has the key, and then says that it does not take part.
pub fn refusing_member(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    listen_on(stage, tried, |stage, member, group| {
        member.say_record(stage.sender_addr().into(), &Record::Refuse.encode(group))?;
        stage.attacker_departed();
        Ok(())
    })
}

/// What a member does that `goes`: opens what it hears with the key it had, in every way; forges with that
/// key under the opener's address and by its session with the victim; asks to be a member again.
fn listen_on(
    stage: &mut Stage,
    tried: &mut Tried,
    goes: impl FnOnce(&mut Stage, &mut Member, u64) -> Result<()>,
) -> Result<()> {
    let (mut member, key) = as_member(stage)?;
    member.drive(RECORDING)?;
    let before = member.heard();
    let opened = before.iter().filter(|datagram| key.attempt(datagram).1).count();
    let messages = member.group_messages();
    tried.note(format!("as a member: {opened} of {} packets opened, {messages} messages", before.len()));
    tried.expect(opened == before.len() && messages > 0, || "its key was not the group's".into());
    goes(stage, &mut member, key.group)?;
    // Sealed while it was a member.
    member.drive(UNDER_WAY)?;
    member.heard();
    let messages = member.group_messages();
    let mut former = Former { member, key, tries: 0, opened: 0, heard: 0, forged: 0 };
    let mut beside = Beside::of(stage)?;
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        former.turn(stage, &mut beside)?;
    }
    stage.end_group(tried);
    let Former { member, tries, opened, heard, forged, .. } = former;
    tried.add(tries + forged);
    tried.note(format!("gone: {heard} packets heard, {tries} attempts to open them, {opened} opened"));
    tried.note(format!("{forged} packets and records forged with the old key, or asking to be let in"));
    tried.expect(heard > 0, || "nothing was heard afterwards: nothing was shown".into());
    tried.expect(opened == 0, || format!("{opened} packets opened with a key that had been given up"));
    let more = member.group_messages() - messages;
    tried.expect(more == 0, || format!("{more} messages came afterwards"));
    let invitations = member.invitations();
    tried.expect(invitations == 0, || "it was asked to be a member again".into());
    Ok(())
}

/// A member that is one no longer, and what it has tried since.
struct Former {
    member: Member,
    key: FormerKey,
    tries: usize,
    opened: usize,
    heard: usize,
    forged: usize,
}

impl Former {
    fn turn(&mut self, stage: &Stage, beside: &mut Beside) -> Result<()> {
        self.member.drive(GLANCE)?;
        let heard = self.member.heard();
        self.heard += heard.len();
        for datagram in &heard {
            let (tries, opened) = self.key.attempt(datagram);
            self.tries += tries;
            self.opened += usize::from(opened);
        }
        let Some(latest) = heard.last() else { return Ok(()) };
        let (victim, opener) = (stage.victim_addr().into(), stage.sender_addr().into());
        for ahead in 0..FORGED {
            let packet = self.key.forge(latest, ahead).context("what was heard is no packet of a group")?;
            self.forged += beside.send(&packet)?;
            let record = self.key.forge_record(latest, ahead).context("nor a symbol")?;
            self.member.say_record(victim, &record)?;
            self.forged += 1;
        }
        let address = stage.group_addr().into();
        let (name, credit) = (self.key.group, 1 << 30);
        for record in [
            Record::Join(Join { address, history: true }).encode(0),
            Record::Accept { credit, max_message: credit }.encode(name),
        ] {
            self.member.say_record(opener, &record)?;
            self.forged += 1;
        }
        Ok(())
    }
}
