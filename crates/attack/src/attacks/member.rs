//! The malicious member: has the cluster key, and says in a session of its own what it likes.

use crate::member::Member;
use crate::outcome::Tried;
use crate::stage::Stage;
use anyhow::{Result, ensure};
use denrei_wire::frame::{Credit, Delivered, End, Fragment, Frame, Message, Offer, Rate};
use denrei_wire::{PacketNumber, Token, packet};
use std::time::{Duration, Instant};

/// What fits a packet on every path beside a header, bytes.
const PAYLOAD_BYTES: usize = 1000;
/// Largest message the attack on reassembly announces unasked: below the victim's channel credit.
const TOTAL_BYTES: u64 = 1 << 20;
/// Between two looks at what the other side says.
const GLANCE: Duration = Duration::from_millis(1);
/// Packets beyond the newest that came which an eager liar acknowledges.
const LEAST_AHEAD: u32 = 2;
/// How long a session may take to be ended after a violation.
const END_TIME: Duration = Duration::from_secs(2);

fn octets(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut octets = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut |bytes| octets.extend_from_slice(bytes)));
    octets
}

/// A member in a session with the victim.
fn connected(stage: &mut Stage) -> Result<Member> {
    let key = stage.settings.key;
    let mut member = stage.member(key)?;
    ensure!(member.connect(stage.victim_addr().into())?, "a member with the key cannot connect");
    Ok(member)
}

/// Whether the victim ends the member's session soon.
fn is_ended(member: &mut Member) -> Result<bool> {
    let until = Instant::now() + END_TIME;
    while member.lost().is_none() && Instant::now() < until {
        member.drive(GLANCE)?;
    }
    Ok(member.lost().is_some())
}

/// On every channel a message that is begun and never completed, in pieces with gaps between them.
pub fn reassembly_exhaustion(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let until = Instant::now() + stage.effort.time();
    let mut ended = 0;
    while Instant::now() < until {
        let mut member = connected(stage)?;
        for round in 0..u64::MAX {
            let channel = (round % 1024) as u16;
            let offset = (round / 1024 * 2 + 1) * PAYLOAD_BYTES as u64;
            if offset + 1 > TOTAL_BYTES || Instant::now() > until {
                break;
            }
            let payload = &[0x41][..];
            let fragment = Fragment { flags: 0, channel, number: 0, offset, total: TOTAL_BYTES, payload };
            member.say(&octets(&[Frame::Fragment(fragment)]))?;
            tried.add(1);
            if round % 64 == 0 {
                member.drive(GLANCE)?;
                if member.lost().is_some() {
                    ended += 1;
                    break;
                }
            }
        }
    }
    tried.note(format!("the victim ended {ended} of its sessions"));
    Ok(())
}

/// More on a channel than the credit that was given; a new session each time it is ended.
pub fn credit_exhaustion(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let until = Instant::now() + stage.effort.time();
    let mut ended = 0;
    let mut begun = 0;
    while Instant::now() < until {
        let mut member = connected(stage)?;
        begun += 1;
        for number in 0..20_000 {
            // Number 0 never comes, so nothing is handed over and no credit returns.
            let message =
                Message { flags: 0, channel: 5, number: number + 1, payload: &[0x42; PAYLOAD_BYTES] };
            member.say(&octets(&[Frame::Message(message)]))?;
            tried.add(1);
            if number % 32 == 0 {
                member.drive(GLANCE)?;
            }
            if member.lost().is_some() {
                break;
            }
        }
        ended += u32::from(is_ended(&mut member)?);
    }
    tried.note(format!("{ended} of {begun} sessions were ended"));
    tried.expect(ended == begun, || "a member went beyond its credit unpunished".into());
    Ok(())
}

/// Offers of all that there can be, status requests and parameters again and again.
pub fn request_flood(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let mut member = connected(stage)?;
    let until = Instant::now() + stage.effort.time();
    let mut number = 0;
    while Instant::now() < until {
        let offers = (0..8).map(|channel| Offer { flags: 1, channel: 8 + channel, number, total: 8 << 20 });
        let mut frames: Vec<Frame<'_>> = offers.map(Frame::Offer).collect();
        frames.push(Frame::StatusRequest(number));
        frames.push(Frame::Credit(Credit { channel: 3, limit: u64::MAX }));
        frames.push(Frame::Delivered(Delivered { channel: 3, next: number }));
        frames.push(Frame::Ping);
        tried.add(frames.len());
        member.say(&octets(&frames))?;
        number += 1;
        if number % 16 == 0 {
            member.drive(GLANCE)?;
        }
        if member.lost().is_some() {
            tried.note(format!("ended after {number} packets: {:?}", member.lost()));
            member = connected(stage)?;
            number = 0;
        }
    }
    Ok(())
}

/// An ACK of packets up to `largest`, without a gap.
fn ack(largest: u32, count: u32) -> Vec<u8> {
    let mut octets = vec![0x02, 0, 0, 0];
    octets.extend_from_slice(&largest.to_le_bytes());
    octets.extend_from_slice(&(count - 1).to_le_bytes());
    octets
}

/// Acknowledges packets that the victim has not sent: far ahead, one ahead, half the numbers ahead.
pub fn acks_of_unsent(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let mut unpunished = Vec::new();
    for largest in [1_000, 100_000, 1 << 20, (1 << 31) - 1] {
        let mut member = connected(stage)?;
        member.say(&ack(largest, 1))?;
        tried.add(1);
        if !is_ended(&mut member)? {
            unpunished.push(largest);
        }
    }
    tried.expect(unpunished.is_empty(), || format!("unnoticed: {unpunished:?}"));
    Ok(())
}

/// Asks the victim for data and acknowledges it before it arrives: a receiver that lies to make a
/// sender go faster than the path (RFC 9000 §21.4).
pub fn optimistic_acks(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let mut noticed = 0;
    let rounds = stage.effort.times(2, 8);
    for _ in 0..rounds {
        let mut member = connected(stage)?;
        let peer = stage.victim_connected();
        stage.victim_sends(peer, 4000);
        let until = Instant::now() + END_TIME;
        let mut ahead = LEAST_AHEAD;
        while Instant::now() < until && member.lost().is_none() {
            // All up to a little more than what has come, whether it has come or is under way, and
            // so what the victim has left out.
            let newest = member.newest();
            let lie = newest.saturating_add(ahead);
            member.say(&ack(lie, lie))?;
            tried.add(1);
            member.drive(GLANCE)?;
            // A lie about what the path does not carry may have stopped all, with many packets under way: the
            // next is twice as bold.
            ahead = if member.newest() == newest { ahead.saturating_mul(2) } else { LEAST_AHEAD };
        }
        noticed += usize::from(member.lost().is_some());
        stage.forget_what_the_victim_said();
    }
    tried.note(format!("{noticed} of {rounds} liars were noticed"));
    tried.expect(noticed == rounds, || "a liar was believed".into());
    Ok(())
}

/// Packets of random octets, and of frames that cannot be, each in a session of its own.
pub fn malformed_frames(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let mut ended = 0;
    let rounds = stage.effort.times(12, 100);
    for round in 0..rounds {
        let mut member = connected(stage)?;
        let frames = match round % 4 {
            0 => vec![0xff],
            1 => octets(&[Frame::Message(Message { flags: 0, channel: 60_000, number: 0, payload: b"x" })]),
            2 => vec![0x05, 0, 0, 0, 0, 0, 0, 0, 9],
            _ => {
                let mut random = stage.random.bytes(200);
                random[0] |= 0x80;
                random
            }
        };
        member.say(&frames)?;
        tried.add(1);
        ended += usize::from(is_ended(&mut member)?);
    }
    tried.note(format!("{ended} of {rounds} sessions were ended"));
    tried.expect(ended == rounds, || "a malformed frame was ignored".into());
    Ok(())
}

/// Ends, and stops with rate 0, in the member's own session and under the honest sender's address.
pub fn cross_session_close(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let (victim, sender) = (stage.victim_addr(), stage.sender_addr());
    let mut forger = stage.forger()?;
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        let mut member = connected(stage)?;
        let stop = Rate { serial: 1, rate: 0, burst: 0 };
        member.say(&octets(&[Frame::Rate(stop)]))?;
        for number in 0..200 {
            // Sealed packets of the member's own cannot be had here; tokens are guessed.
            let mut packet = packet::common_header(
                packet::Kind::Session,
                0,
                PacketNumber(number),
                Token(stage.random.next_u64()),
            )
            .to_vec();
            packet.extend_from_slice(&octets(&[Frame::Rate(stop), Frame::End(End { code: 0, reason: "" })]));
            packet.extend_from_slice(&[0; packet::TAG_BYTES]);
            forger.send(sender, victim, &packet)?;
            forger.send(victim, sender, &packet)?;
            tried.add(2);
        }
        member.say(&octets(&[Frame::End(End { code: 0, reason: "over" })]))?;
        tried.add(2);
        member.drive(GLANCE)?;
    }
    Ok(())
}

/// Sessions that are opened and dropped, as fast as it goes.
pub fn session_churn(stage: &mut Stage, tried: &mut Tried) -> Result<()> {
    let key = stage.settings.key;
    let until = Instant::now() + stage.effort.time();
    while Instant::now() < until {
        let mut member = stage.member(key)?;
        if !member.connect(stage.victim_addr().into())? {
            continue;
        }
        tried.add(1);
        // Every other one says goodbye.
        if stage.random.below(2) == 0 {
            member.say(&octets(&[Frame::End(End { code: 0, reason: "" })]))?;
        }
    }
    let peers = stage.victim_peers();
    tried.note(format!("{} sessions; {peers} entries in the address table at the end", tried.attempts));
    Ok(())
}
