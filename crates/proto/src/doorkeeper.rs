//! Whether whoever has opened a session is let in: the word of whoever owns the endpoint, for what only that knows.
//!
//! Inputs → outputs: how many relays a session has come through → in, or the END that its initiator gets.
//!
//! It is asked when the initiator is proven (`spec/protocol.md` §7.1), and nothing that came has been acknowledged by
//! then: who is turned away hears that none of its messages arrived.

use core::fmt;
use std::sync::Arc;

/// Why somebody is turned away: code and reason of END.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// From 0x8000 on the application's own (§8).
    pub code: u16,
    /// What the initiator is told.
    pub reason: String,
}

type Asked = dyn Fn(u8) -> Result<(), Refusal> + Send + Sync;

/// Who says whether a session is let in. Called while the endpoint handles a datagram, once for each session of another's
/// that is proven and that this side has not opened as well: it must neither wait nor call the endpoint.
#[derive(Clone)]
pub struct Doorkeeper(Arc<Asked>);

impl Doorkeeper {
    /// Asks `lets_in` with the relays that a session has come through (§13.2).
    pub fn new(lets_in: impl Fn(u8) -> Result<(), Refusal> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lets_in))
    }

    pub(crate) fn ask(&self, relays: u8) -> Result<(), Refusal> {
        (self.0)(relays)
    }
}

impl fmt::Debug for Doorkeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Doorkeeper")
    }
}

/// The same one, not one that decides alike.
impl PartialEq for Doorkeeper {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
