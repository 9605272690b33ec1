//! A member that ignores the rate it was told, and a Node that has to live with it. On loopback.

use denrei::{ChannelId, Config, Drive, Message, Node, PeerId, Rate};
use denrei_attack::member::Member;
use denrei_wire::frame::{self, Frame};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// What the member is told.
const RATE: Rate = Rate { bytes_per_s: 100_000, burst_bytes: 10_000 };
/// How long it ignores that, and with what, bytes.
const FLOOD: Duration = Duration::from_secs(1);
const PAYLOAD_BYTES: usize = 1000;
/// Two bursts, what 50 ms bring, and 64 KiB (`spec/protocol.md` §13.6).
const TOLERANCE_BYTES: u64 = 2 * 10_000 + 5_000 + (64 << 10);
/// The honest sender's messages.
const MESSAGES: u32 = 300;
const MESSAGE_BYTES: usize = 10_000;
/// For what has to happen, however slow the machine is.
const LIMIT: Duration = Duration::from_secs(60);

/// A Node that answers while this thread does other things.
fn node() -> Node {
    let config = Config { drive: Drive::Thread, ..Config::default() };
    Node::bind("127.0.0.1:0", config).unwrap()
}

fn receive(victim: &Node) -> Message {
    victim.recv_timeout(LIMIT).unwrap().expect("a message comes")
}

/// Opens the member's session and tells it its rate; how the victim calls it.
fn tell(victim: &Node, member: &mut Member) -> PeerId {
    assert!(member.connect(victim.local_addr()).unwrap());
    member.send(0, b"hello".to_vec()).unwrap();
    let peer = receive(victim).channel.peer;
    victim.set_rate(peer, RATE).unwrap();
    // It hears it, acknowledges it, and has had time to obey.
    member.drive(Duration::from_millis(300)).unwrap();
    peer
}

/// Messages on a channel of their own, one a packet, as fast as they go, and an acknowledgement of every new rate.
fn flood(member: &mut Member) -> u32 {
    let until = Instant::now() + FLOOD;
    let mut number = 0;
    while Instant::now() < until {
        if number % 256 == 0 {
            member.drive(Duration::ZERO).unwrap();
        }
        let message = frame::Message { flags: 0, channel: 1, number, payload: &[0x46; PAYLOAD_BYTES] };
        let mut octets = Vec::new();
        Frame::Message(message).encode(&mut |bytes| octets.extend_from_slice(bytes));
        member.say(&octets).unwrap();
        number += 1;
    }
    number
}

/// A malicious member beside an honest sender, at a rate that `another` changes between two messages of the honest one.
fn flood_beside(another: impl Fn(u32) -> Rate) {
    let victim = node();
    let mut member = Member::new(UdpSocket::bind("127.0.0.1:0").unwrap(), None, 7);
    let peer = tell(&victim, &mut member);
    let before = victim.flow(peer).unwrap().counters;
    let began = Instant::now();

    let honest = node();
    let address = victim.local_addr();
    let sender = std::thread::spawn(move || {
        let peer = honest.connect(address).unwrap();
        for _ in 0..MESSAGES {
            honest.send(ChannelId { peer, channel: 0 }, vec![0x48; MESSAGE_BYTES]).unwrap();
        }
        assert!(honest.flush(peer, LIMIT), "the honest sender's messages arrive");
    });
    let flooding = std::thread::spawn(move || flood(&mut member));
    let mut arrived = 0;
    while arrived < MESSAGES {
        let message = receive(&victim);
        if message.channel.peer != peer {
            assert_eq!(message.data.len(), MESSAGE_BYTES);
            arrived += 1;
            victim.set_rate(peer, another(arrived)).unwrap();
        }
    }
    sender.join().unwrap();
    let sent = flooding.join().unwrap() as u64 * PAYLOAD_BYTES as u64;

    let after = victim.flow(peer).unwrap().counters;
    let allowed = RATE.bytes_per_s as f64 * began.elapsed().as_secs_f64() + TOLERANCE_BYTES as f64;
    // Headers and trailers are not the rate's affair: less than a tenth of such packets.
    let taken = (after.bytes_received - before.bytes_received) as f64 / 1.1;
    assert!(sent as f64 > allowed, "{sent} sent: that was no flood");
    assert!(taken <= allowed, "{taken} of {sent} were taken, {allowed} are allowed");
    assert!(after.excess > before.excess, "what was too much is counted");
}

#[test]
fn who_ignores_its_rate_gets_no_more_and_takes_nobodys_share() {
    flood_beside(|_| RATE);
}

/// As where rates are learnt, or a relay passes its own on.
#[test]
fn nor_does_it_where_its_rate_changes_all_the_time() {
    flood_beside(|number| Rate { bytes_per_s: RATE.bytes_per_s - u64::from(number % 64) * 1_000, ..RATE });
}
