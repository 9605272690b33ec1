//! 10,000 peers on one endpoint (S1, U1: one port serves any number).

use crate::rig::{Rig, config};
use core::time::Duration;
use denrei_proto::Config;
use denrei_sim::{HostId, HostSpec, LinkSpec};

const PEERS: u32 = 10_000;

#[test]
fn ten_thousand_peers_exchange_messages_with_one() {
    let hub = HostId(0);
    // A keepalive of 5 s, so that idle traffic does not dominate.
    let times = Config {
        failure_timeout: Duration::from_secs(20),
        keepalive: Some(Duration::from_secs(5)),
        connect_timeout: Duration::from_secs(20),
        ..config()
    };
    let mut rig = Rig::new(PEERS + 1, &HostSpec::new(LinkSpec::LAN), times);
    for peer in (1..=PEERS).map(HostId) {
        assert!(rig.send(peer, hub, 0, 64));
    }
    // 10,000 FIRSTs at once are more than the 1,024 unproven sessions: the rest repeat theirs.
    rig.run_until(10_000, "all reach the hub", |rig| rig.received() == PEERS as u64);
    for peer in (1..=PEERS).map(HostId) {
        assert!(rig.send(hub, peer, 0, 64));
    }
    rig.run_until(2_000, "the hub reaches all", |rig| rig.received() == 2 * PEERS as u64);
    let endpoint = rig.world.endpoint(hub).unwrap();
    assert_eq!(endpoint.peers().count(), PEERS as usize);
}
