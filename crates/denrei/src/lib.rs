//! denrei: reliable messages between the processes of a cluster, over one UDP port each.
//!
//! ```
//! use denrei::{ChannelId, Config, Drive, Node};
//! use std::time::Duration;
//!
//! // Both are driven by threads of their own, so that this one may wait for either.
//! let config = Config { drive: Drive::Thread, ..Config::default() };
//! let alice = Node::bind("127.0.0.1:0", config.clone())?;
//! let bob = Node::bind("127.0.0.1:0", config)?;
//! let peer = alice.connect(bob.local_addr())?;
//! alice.send(ChannelId { peer, channel: 0 }, "one order for many")?;
//! let message = bob.recv_timeout(Duration::from_secs(5))?.expect("it arrives");
//! assert_eq!(message.data, "one order for many");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Node`] owns the port. What drives it is a setting ([`Drive`]): by default the thread that
//! calls does the work (*inline*), so an exchange costs one system call each way; an application
//! that goes away to compute takes [`Drive::Thread`].
//!
//! # In tasks
//!
//! What waits for a Node or a group has a form for tasks, whose name ends in `_async`; any runtime will do, and a thread of
//! the Node's wakes them. A future that is dropped, by `select!` or a timeout of the runtime's, has taken, sent and left nothing. A
//! task for each channel is cheap: a message [wakes](Node::recv_from_async) the one that it is for.
//!
//! ```
//! use denrei::{ChannelId, Config, Node};
//!
//! let alice = Node::bind("127.0.0.1:0", Config::default())?;
//! let bob = Node::bind("127.0.0.1:0", Config::default())?;
//! pollster::block_on(async {
//!     let on_two = ChannelId { peer: alice.connect(bob.local_addr())?, channel: 2 };
//!     alice.send_async(on_two, "are you there?").await?;
//!     let question = bob.recv_async().await?;
//!     bob.send_async(question.channel, "yes").await?;
//!     assert_eq!(alice.recv_from_async(on_two).await?.data, "yes");
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

mod address;
mod blocked;
mod busy;
mod collective;
mod config;
mod core;
mod driver;
pub mod environment;
mod error;
mod future;
mod giving_way;
mod group;
mod host;
mod io;
pub mod key_file;
mod lobby;
mod node;
mod pipeline;
pub mod relay;
pub mod settings;
mod shards;
pub mod status;
mod tasks;
mod wait;

pub use address::resolve;
pub use collective::{COLLECTIVE_CHANNEL, Collective, CollectiveError};
pub use config::{Config, Drive};
pub use denrei_io::{
    BackendChoice, Capabilities, IoCounters, Maker, PageMemory, SocketConfig, is_of_one_link, of_its_site,
    source_towards,
};
pub use denrei_proto::group::{
    Departure, GroupBackend, GroupCounters, GroupError, GroupEvent, GroupFeedback, GroupId, GroupMessage,
    GroupOptions, GroupPolicy, GroupStatus, MemberPath, MemberStatus, MembershipCounters, MembershipEnd,
    POLICY_TIMES, Removal,
};
pub use denrei_proto::seal::{BeaconKey, ClusterKey, Identity, PublicIdentity, SecretOctets};
pub use denrei_proto::{
    AcceptInto, ChannelId, Completion, CongestionAlgorithm, ConnectError, DEFAULT_WEIGHT, Doorkeeper,
    EndpointCounters, Event, FlowState, LostReason, MAX_RATE, MAX_WEIGHT, Message, MessageId, NoMore,
    OfferPolicy, PeerCounters, PeerError, PeerId, Phase, Placement, Rate, Refusal, SendError,
};
pub use denrei_proto::{Config as ProtocolConfig, ConfigError};
pub use error::{BindError, NodeError, RecvError};
pub use group::{Group, GroupListener, Membership, OpenGroupError};
pub use node::{Incoming, Node};
pub use pipeline::Stage;
pub use settings::{GROUP_SETTINGS, SETTINGS, Setting, set_group_option};

/// The owned bytes that messages are made of, re-exported from the `bytes` crate.
pub use bytes::Bytes;
