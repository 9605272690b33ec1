//! The endpoints of a process: one, or several at its address with a part of the peers each, as a Node has that
//! spreads them over threads.
//!
//! Inputs → outputs: the address of a peer → the endpoint that has it. What one core does for each of them, this does
//! for all, one after the other.

use super::host::HostSpec;
use super::landing::LANDED_FROM_BYTES;
use crate::net::topology::HostId;
use core::net::SocketAddr;
use denrei_proto::{Config, Endpoint, PeerCounters, Place};
use denrei_wire::Instant;
use std::sync::Arc;

/// At least one endpoint. The first goes on with everything once they are gathered.
pub(super) struct Shards {
    all: Vec<Endpoint>,
}

impl Shards {
    /// What is one process's is shared as a Node shares it: memory, buffer, handshakes.
    pub fn new(spec: &HostSpec, config: Arc<Config>, seed: u64, now: Instant) -> Self {
        let count = spec.shards.max(1);
        let config = if count == 1 { config } else { Arc::new(config.share_of(count)) };
        let make = |place| {
            let mut endpoint = Endpoint::at(place, Arc::clone(&config), seed, now);
            if spec.lands {
                endpoint.lend_from(LANDED_FROM_BYTES);
            }
            if spec.tells_buffer {
                endpoint.set_receive_buffer(spec.receive_buffer_bytes / u64::from(count));
            }
            endpoint
        };
        Self { all: Place::all(count).map(make).collect() }
    }

    /// The one that has the groups, and whatever there is if there is no other.
    pub fn first(&self) -> &Endpoint {
        &self.all[0]
    }

    /// The one that has the peer at an address: always the same until they are gathered.
    pub fn at(&mut self, addr: SocketAddr) -> &mut Endpoint {
        let number = HostId::at(addr).map_or(0, |host| host.0 as usize);
        let count = self.all.len();
        &mut self.all[number % count]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.all.iter()
    }

    /// All of them, to be driven.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Endpoint> {
        self.all.iter_mut()
    }

    /// The first goes on with the sessions of all; what happened on those of the others that are over.
    pub fn gather(&mut self, now: Instant) -> PeerCounters {
        let others: Vec<Endpoint> = self.all.drain(1..).collect();
        others.into_iter().fold(PeerCounters::default(), |ended, mut other| {
            self.all[0].absorb(now, &mut other);
            ended + other.session_totals()
        })
    }
}
