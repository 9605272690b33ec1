//! What only a malicious member does, for programs that attack and for fuzzing (feature `rogue`).
//!
//! Inputs → outputs: octets → a packet of a session of one's own that carries them as its frames,
//! numbered, sealed and sent like any other. It breaks no rule but that of what frames say.

use super::Endpoint;
use crate::event::{PeerError, PeerId};
use crate::group::Host;
use denrei_wire::Instant;

impl Endpoint {
    /// Puts `frames` into the next packet to `peer`, whatever they are. They are not repeated.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn say(&mut self, now: Instant, peer: PeerId, frames: &[u8]) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, _| peer.say_once(frames))
    }

    /// Says `record` to `peer` as a record of groups, whatever it is.
    pub fn say_record(&mut self, now: Instant, peer: PeerId, record: &[u8]) {
        Host::send(self, now, peer, record.to_vec().into());
    }

    /// The OPENs that have come for addresses that nobody has joined here, with the groups' keys.
    pub fn invitations(&self) -> impl Iterator<Item = &[u8]> {
        self.groups.iter().flat_map(|groups| groups.invitations())
    }
}
