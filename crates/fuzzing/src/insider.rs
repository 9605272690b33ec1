//! Target `insider`: a sealed session with a member that has the key and says whatever the input says.
//! Its packets are numbered, sealed and opened as any; their frames are arbitrary. Nothing panics,
//! nothing runs without end, and what the victim holds for it stays within its limits.

use crate::input::Input;
use crate::world::{self, CHANNELS, World};
use core::time::Duration;
use denrei_proto::seal::ClusterKey;
use denrei_proto::{ChannelId, Completion, Config, Event, OfferPolicy, PeerId};

/// Steps per input, at most: keeps one run in the milliseconds.
const MAX_STEPS: usize = 300;
/// Sizes of messages: empty, a packet, fragments, offered.
const SIZES: [usize; 4] = [0, 1100, 5000, 30_000];
/// Index of the malicious member.
const MEMBER: usize = 0;
/// Index of the Node that has to bear with it.
const VICTIM: usize = 1;

/// Runs `data` as the words of a malicious member.
pub fn insider(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(first) = input.octet() else { return };
    let offers = if first & 1 == 0 { OfferPolicy::Automatic } else { OfferPolicy::Ask };
    let cluster_key = Some(ClusterKey::from_bytes([7; 32]));
    let config = Config { cluster_key, offers, rekey_after_packets: 64, ..world::config() };
    let limit = config.receive_memory_bytes + u64::from(config.max_channels) * config.channel_credit_bytes;
    let mut world = World::new(config);
    let peers = establish(&mut world);
    for _ in 0..MAX_STEPS {
        if step(&mut world, peers, &mut input).is_none() {
            break;
        }
        let unread = world.nodes[VICTIM].endpoint.flow(peers[VICTIM]).map_or(0, |flow| flow.unread_bytes);
        assert!(unread <= limit, "{unread} bytes are held for one member");
    }
    world.advance(Duration::from_secs(3));
    applications(&mut world);
}

fn establish(world: &mut World) -> [PeerId; 2] {
    let (now, target) = (world.now, world.nodes[VICTIM].addr);
    let there = world.nodes[MEMBER].endpoint.connect(now, target).expect("there is room");
    world.drive(MEMBER);
    for _ in 0..100 {
        if !world.deliver_next() {
            break;
        }
    }
    let back = world.nodes[VICTIM].endpoint.peer_at(world.nodes[MEMBER].addr);
    [there, back.expect("a session opens without disturbance")]
}

/// One decision of the input; `None` at its end.
fn step(world: &mut World, peers: [PeerId; 2], input: &mut Input<'_>) -> Option<()> {
    match input.below(8)? {
        0..=2 => {
            let len = input.octet()? as usize;
            let frames = input.octets(len).to_vec();
            let now = world.now;
            // The session may be over: then nobody is spoken to.
            let _ = world.nodes[MEMBER].endpoint.say(now, peers[MEMBER], &frames);
            world.drive(MEMBER);
        }
        3..=4 => drop(world.deliver_next()),
        5 => world.advance(Duration::from_micros(50) * (1 << input.below(16)?)),
        6 => {
            let (from, channel) = (input.below(2)?, input.below(CHANNELS as usize)? as u16);
            let data = world::message(from as u32, channel, 0, SIZES[input.below(SIZES.len())?]);
            let to = ChannelId { peer: peers[from], channel };
            let _ = world.nodes[from].endpoint.send(to, data, Completion::Delivered);
            world.drive(from);
        }
        _ => applications(world),
    }
    Some(())
}

/// Both applications take what there is.
fn applications(world: &mut World) {
    for index in 0..2 {
        let (now, node) = (world.now, &mut world.nodes[index]);
        while let Some(event) = node.events.pop_front() {
            if let Event::Offered { channel, number, .. } = event {
                // The offer may be gone by now, if its sender is.
                let _ = node.endpoint.accept(now, channel, number, Vec::new());
            }
        }
        while node.endpoint.recv(now).is_some() {}
        world.drive(index);
    }
}
