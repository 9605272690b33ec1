//! For tests: a relay that holds messages, for a target that takes little at a time.

use crate::relay::{Relay, RelayConfig, Route};
use crate::{Config, Drive, Node};
use denrei_proto::ChannelId;
use std::time::Duration;

pub const SOON: Duration = Duration::from_secs(20);
/// What the relay and its Nodes hold, with more on its channel than that has room for, so that some waits in a Node.
pub const MESSAGES: u32 = 150;
const MESSAGE_BYTES: usize = 4_000;

/// A relay and its two sides.
pub struct Filled {
    pub relay: Relay,
    pub sender: Node,
    /// The channel of the sender on which all went.
    pub to: ChannelId,
    pub target: Node,
}

impl Filled {
    /// One more of the sender's messages.
    pub fn send(&self, number: u32) {
        let mut message = vec![0; MESSAGE_BYTES];
        message[..4].copy_from_slice(&number.to_be_bytes());
        self.sender.send(self.to, message).unwrap();
    }

    /// How many messages the target gets, from the first on and in order, a pause behind each, before it hears nothing for
    /// a second.
    pub fn read(&self, pause: Duration) -> u32 {
        let mut number = 0_u32;
        while let Some(message) = self.target.recv_timeout(Duration::from_secs(1)).unwrap() {
            assert_eq!(message.data[..4], number.to_be_bytes());
            number += 1;
            std::thread::sleep(pause);
        }
        number
    }
}

/// A relay that has acknowledged messages which its target does not take yet.
pub fn filled() -> Filled {
    let mut narrow = Config { drive: Drive::Thread, ..Config::default() };
    let sender = Node::bind("127.0.0.1:0", narrow.clone()).unwrap();
    narrow.protocol.channel_credit_bytes = 64 << 10;
    narrow.protocol.offer_above_bytes = 32 << 10;
    let target = Node::bind("127.0.0.1:0", narrow).unwrap();
    let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: target.local_addr() };
    let config = RelayConfig { pair_bytes: 1 << 20, ..RelayConfig::default() };
    let relay = Relay::start(&[route], &config).unwrap();
    let to = ChannelId { peer: sender.connect(relay.addresses()[0]).unwrap(), channel: 0 };
    let filled = Filled { relay, sender, to, target };
    (0..MESSAGES).for_each(|number| filled.send(number));
    assert!(filled.sender.flush(to.peer, SOON), "the relay has all of it");
    filled
}
