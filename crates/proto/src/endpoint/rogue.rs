//! What only a malicious member does, for programs that attack and for fuzzing (feature `rogue`).
//!
//! Inputs → outputs: octets → a packet of a session of one's own that carries them as its frames,
//! numbered, sealed and sent like any other. It breaks no rule but that of what frames say.

use super::Endpoint;
use crate::event::{PeerError, PeerId};
use denrei_wire::Instant;

impl Endpoint {
    /// Puts `frames` into the next packet to `peer`, whatever they are. They are not repeated.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn say(&mut self, now: Instant, peer: PeerId, frames: &[u8]) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, _| peer.say_once(frames))
    }
}
