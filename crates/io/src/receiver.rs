//! Whoever gets what is received.
//!
//! Inputs → outputs: each datagram → whatever it leads to; a source whose last datagram was large → memory that what
//! follows is expected to belong in.

use denrei_wire::{DatagramMeta, Landing};
use std::convert::Infallible;
use std::net::SocketAddr;

/// Gets datagrams, and may lend memory to receive them into. A closure lends none.
pub trait Receiver {
    /// Memory that is lent.
    type Lent;

    /// A datagram has come; it may be written to.
    fn handle(&mut self, meta: &DatagramMeta, datagram: &mut [u8]);

    /// Memory for the next train of `source`, if that may belong in one message; it is [taken
    /// back](Self::take_back) when at most one train has been handled.
    fn lend(&mut self, source: &SocketAddr) -> Option<Self::Lent>;

    /// Where in it the train is expected to belong; `None`: nothing is received into it.
    fn landing(lent: &mut Self::Lent) -> Option<Landing<'_>>;

    /// The memory is here again.
    fn take_back(&mut self, lent: Self::Lent);
}

impl<F: FnMut(&DatagramMeta, &mut [u8])> Receiver for F {
    type Lent = Infallible;

    fn handle(&mut self, meta: &DatagramMeta, datagram: &mut [u8]) {
        self(meta, datagram);
    }

    fn lend(&mut self, _: &SocketAddr) -> Option<Infallible> {
        None
    }

    fn landing(lent: &mut Infallible) -> Option<Landing<'_>> {
        match *lent {}
    }

    fn take_back(&mut self, lent: Infallible) {
        match lent {}
    }
}
