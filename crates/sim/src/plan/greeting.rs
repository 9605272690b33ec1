//! Opens the sessions of an experiment before its time begins.
//!
//! Inputs → outputs: who sends to whom → a message of eight octets each, one after the other, so
//! that they do not get in each other's way; then a pause in which paths' sizes are found.

use super::Cell;
use crate::net::topology::HostId;
use crate::world::{Application, Stuck, World};
use bytes::Bytes;
use core::time::Duration;
use denrei_proto::{ChannelId, Completion, Endpoint, Event};
use denrei_wire::Instant;

/// What a host greets with; no message of an experiment is like it.
pub(super) const GREETING: &[u8] = b"greeting";

/// Round trips in the pause: enough for the search for the path's size.
const PAUSE_ROUND_TRIPS: u32 = 20;

/// The pause lasts at least so long: a search waits for the loss of probes that are too large.
const LEAST_PAUSE: Duration = Duration::from_millis(200);

/// Counts greetings.
#[derive(Default)]
struct Greetings {
    arrived: usize,
}

impl Application for Greetings {
    fn on_event(&mut self, _now: Instant, _host: HostId, _endpoint: &mut Endpoint, _event: Event) {}

    fn on_readable(&mut self, now: Instant, _host: HostId, endpoint: &mut Endpoint) {
        while endpoint.recv(now).is_some() {
            self.arrived += 1;
        }
    }
}

/// Lets each pair exchange a greeting, and then all be quiet. One that does not arrive, because of
/// faults, has had its time.
pub(super) fn exchange(
    cell: &Cell,
    world: &mut World,
    pairs: impl Iterator<Item = (HostId, HostId)>,
) -> Result<(), Stuck> {
    let round_trip = cell.full_round_trip();
    let mut greetings = Greetings::default();
    for (count, (from, to)) in pairs.enumerate() {
        world.touch(from, &mut greetings, |_, now, endpoint| {
            let Ok(peer) = endpoint.connect(now, to.addr()) else { return };
            let channel = ChannelId { peer, channel: 0 };
            // A session that cannot be opened is one that the experiment cannot finish without.
            let _ = endpoint.send(channel, Bytes::from_static(GREETING), Completion::None);
        });
        for _ in 0..PAUSE_ROUND_TRIPS {
            if greetings.arrived > count {
                break;
            }
            world.run_for(round_trip, &mut greetings)?;
        }
    }
    world.run_for((round_trip * PAUSE_ROUND_TRIPS).max(LEAST_PAUSE), &mut greetings)
}
