//! Files and directories, or a stream, to any number of hosts at once: what `denrei cast` does.
//!
//! A [`Sender`] offers a [`Source`]; every [`Receiver`] says what it misses, and gets it by a group
//! together with the others, or by its own session where it is alone, late or slow. What has arrived
//! survives the receiver's process, is verified by BLAKE3, and appears under its name when it is
//! complete. `spec/cast.md` has the messages and the rules.
//!
//! ```
//! use denrei::{Config, Drive, Node};
//! use std::ops::ControlFlow;
//! use denrei_cast::{Destination, Members, ReceiveOptions, Receiver, SendOptions, Sender, Source, scan};
//!
//! let config = || Config { drive: Drive::Thread, ..Config::default() };
//! let group = "239.255.71.17:7318".parse()?;
//! let dir = tempfile::tempdir()?;
//! std::fs::write(dir.path().join("order"), "attack at dawn")?;
//! let into = tempfile::tempdir()?;
//!
//! let node = Node::bind("127.0.0.1:0", config())?;
//! let members = Members::Listed(vec![node.local_addr()]);
//! let destination = Destination::Directory { path: into.path().into(), sync: false };
//! let receiver = Receiver::new(node, destination, ReceiveOptions::new(group));
//! let receiving = std::thread::spawn(move || receiver.run(|_| ControlFlow::Continue(())));
//!
//! let source = Source::files(scan(&[dir.path().join("order")], false)?)?;
//! let node = Node::bind("127.0.0.1:0", config())?;
//! let report = Sender::new(node, source, SendOptions::new(group, members))?.run(|_| ControlFlow::Continue(()))?;
//! assert!(report.is_complete());
//! receiving.join().unwrap()?;
//! assert_eq!(std::fs::read(into.path().join("order"))?, b"attack at dawn");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod beacon;
mod body;
mod busy;
mod error;
mod interfaces;
pub mod manifest;
pub mod message;
mod pieces;
mod place;
mod publish;
mod receiver;
mod reception;
mod roster;
mod scan;
mod sender;
mod settings;
mod silence;
mod source;
mod stage;

pub use busy::Busy;
pub use error::CastError;
pub use interfaces::{DEFAULT_GROUP, default_group, named, parse_group};
pub use receiver::{BROKEN_OFF, ReceiveOptions, ReceiveProgress, ReceiveReport, Receiver};
pub use reception::{Destination, Reception};
pub use roster::State;
pub use scan::{Scan, scan};
pub use sender::{
    MemberProgress, MemberReport, Members, Outcome, SendOptions, SendProgress, SendReport, Sender, Wire,
};
pub use settings::{CAST_SETTINGS, CastOptions, RETAIN_BYTES, STREAM_NAME, by_name, check_directory};
pub use source::Source;
