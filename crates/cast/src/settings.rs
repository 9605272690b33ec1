//! Casts by name and text, for those who have no Rust: C and Python.
//!
//! Inputs → outputs: names of [`CAST_SETTINGS`] and values as text → [`CastOptions`] → what a
//! [`Sender`] or a [`Receiver`] takes.

use crate::error::{CastError, storage};
use crate::interfaces::{default_group, parse_group};
use crate::receiver::{ReceiveOptions, Receiver};
use crate::reception::Destination;
use crate::scan::scan;
use crate::sender::{Members, SendOptions, Sender};
use crate::source::Source;
use denrei::settings::{SIZE, SWITCH, Setting, TIME, group_backend, set_by_name, size, switch, time};
use denrei::{ConfigError, GroupBackend, Node};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the file that receivers write a stream to, if none is given.
pub const STREAM_NAME: &str = "stdin";

/// How much of a stream is retained, bytes: little to a host, and a second of a 500 Mbit/s stream.
pub const RETAIN_BYTES: u64 = 64 << 20;

/// How to send or to receive; what does not concern the one or the other is not looked at.
#[derive(Clone, Debug, Default)]
pub struct CastOptions {
    /// The group's multicast address; its port + 1 is that of the beacons. [`default_group`] if `None`.
    pub group: Option<SocketAddr>,
    /// How the group's messages travel.
    pub backend: GroupBackend,
    /// How long to wait for the members, or for a sender.
    pub wait: Option<Duration>,
    /// How long to wait for those that have vanished.
    pub patience: Option<Duration>,
    /// How long to go on serving those who come late, once all are served.
    pub linger: Duration,
    /// A member that stands still for this long is served by itself from then on, as [`SendOptions::stall`] says.
    pub stall: Option<Duration>,
    /// Bytes of content a second that leave this host, at most, as [`SendOptions::rate_bytes_per_s`] says.
    pub rate_bytes_per_s: Option<u64>,
    /// Begin when so many receivers have come, where they are not listed.
    pub min_members: usize,
    /// Send what links point to, not the links.
    pub dereference: bool,
    /// A sender to ask, where its beacons do not reach.
    pub from: Option<SocketAddr>,
    /// What people call this receiver, the host's name if `None`; at the sender of a stream, the name of
    /// the file that receivers write it to.
    pub name: Option<String>,
    /// How much of what was read of a stream is kept for receivers that are late or slow, bytes.
    pub retain_bytes: Option<u64>,
    /// Have everything on disk before it appears under its name.
    pub sync: bool,
}

/// All options of casts. Each is described at the field of [`CastOptions`] that has its name.
pub const CAST_SETTINGS: &[Setting<CastOptions>] = &[
    Setting::new("group", "a multicast address with a port, such as 239.255.71.17:7118", |options, text| {
        set(&mut options.group, parse_group(text).ok())
    }),
    Setting::new("backend", "auto, multicast, unicast or tree", |options, text| {
        options.backend = group_backend(text)?;
        Some(())
    }),
    Setting::new("wait", TIME, |options, text| set(&mut options.wait, time(text))),
    Setting::new("patience", TIME, |options, text| set(&mut options.patience, time(text))),
    Setting::new("linger", TIME, |options, text| {
        options.linger = time(text)?;
        Some(())
    }),
    Setting::new("stall", TIME, |options, text| set(&mut options.stall, time(text))),
    Setting::new("rate_bytes_per_s", "a size from 1, such as 64KiB or 10MiB", |options, text| {
        set(&mut options.rate_bytes_per_s, size(text).filter(|rate| *rate > 0))
    }),
    Setting::new("min_members", "a whole number from 1", |options, text| {
        options.min_members = text.parse().ok().filter(|least| *least > 0)?;
        Some(())
    }),
    Setting::new("dereference", SWITCH, |options, text| {
        options.dereference = switch(text)?;
        Some(())
    }),
    Setting::new("from", "the address of a sender", |options, text| {
        set(&mut options.from, address(text).filter(|from| from.port() != 0))
    }),
    Setting::new("name", "text", |options, text| set(&mut options.name, Some(text.to_owned()))),
    Setting::new("retain_bytes", SIZE, |options, text| set(&mut options.retain_bytes, size(text))),
    Setting::new("sync", SWITCH, |options, text| {
        options.sync = switch(text)?;
        Some(())
    }),
];

/// Whether casts can be received into a directory: known before a sender comes, who would have to be told.
///
/// # Errors
/// It is none, cannot be looked at, or nothing can be made in it.
pub fn check_directory(into: &Path) -> Result<(), CastError> {
    use nix::unistd::{AccessFlags, access};
    if !std::fs::metadata(into).map_err(storage("receive into", into))?.is_dir() {
        return Err(CastError::InTheWay { path: into.into(), problem: "is not a directory" });
    }
    let made = access(into, AccessFlags::W_OK | AccessFlags::X_OK);
    made.map_err(|error| storage("receive into", into)(error.into()))
}

/// Options of the command `denrei cast`, and what they are to those who set [`CAST_SETTINGS`].
const OPTIONS: [(&str, &str); 8] = [
    ("--min-members", "\"min_members\""),
    ("--members", "\"members\""),
    ("--group", "\"group\""),
    ("--from", "\"from\""),
    ("--retain", "\"retain_bytes\""),
    ("--dereference", "\"dereference\""),
    ("--insecure", "\"insecure\""),
    ("--bind", "node address"),
];

/// A sentence of this crate for those who set options by name: where it tells to give the command an option, it names
/// theirs. Whole commands, which stand in backticks, stay.
///
/// ```
/// let text = "run `denrei cast recv --group G`, or give the sender a larger --retain";
/// let expected = "run `denrei cast recv --group G`, or give the sender a larger \"retain_bytes\"";
/// assert_eq!(denrei_cast::by_name(text), expected);
/// ```
pub fn by_name(text: &str) -> String {
    let named = |text: &str| {
        OPTIONS.iter().fold(text.to_owned(), |text, (option, name)| {
            text.replace(&format!(" {option}"), &format!(" {name}"))
                .replace(&format!("({option}"), &format!("({name}"))
        })
    };
    let parts = text.split('`').enumerate();
    let parts: Vec<_> = parts.map(|(at, part)| if at % 2 == 0 { named(part) } else { part.into() }).collect();
    parts.join("`")
}

/// Sets what has a value.
fn set<T>(place: &mut Option<T>, value: Option<T>) -> Option<()> {
    *place = Some(value?);
    Some(())
}

fn address(text: &str) -> Option<SocketAddr> {
    denrei::resolve(text).ok()
}

impl CastOptions {
    /// Sets one option by its name in [`CAST_SETTINGS`].
    ///
    /// # Errors
    /// No option has this name, or the text is no value of it; both say what would be possible.
    ///
    /// ```
    /// let mut options = denrei_cast::CastOptions::default();
    /// options.set("patience", "3s")?;
    /// assert_eq!(options.patience, Some(std::time::Duration::from_secs(3)));
    /// # Ok::<(), denrei::ConfigError>(())
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        set_by_name(CAST_SETTINGS, self, name, value)
    }

    /// A sender of files and directories over `node`: to the nodes at `members`, or, if those are
    /// none, to whoever comes, as soon as [`min_members`](Self::min_members) have.
    ///
    /// # Errors
    /// What is to be sent cannot be, or nobody to send to was named.
    pub fn sender(
        &self,
        node: Node,
        paths: &[PathBuf],
        members: Vec<SocketAddr>,
    ) -> Result<Sender, CastError> {
        let options = self.send_options(members)?;
        let found = scan(paths, self.dereference)?;
        let skipped = found.skipped.clone();
        Ok(Sender::new(node, Source::files(found)?, options)?.warning_of(skipped))
    }

    /// A sender of what `reader` brings, to the same members as [`sender`](Self::sender).
    ///
    /// # Errors
    /// A name that no file can have, no thread to be had, or nobody to send to was named.
    pub fn stream_sender(
        &self,
        node: Node,
        reader: impl Read + Send + 'static,
        members: Vec<SocketAddr>,
    ) -> Result<Sender, CastError> {
        let options = self.send_options(members)?;
        let name = self.name.as_deref().unwrap_or(STREAM_NAME);
        let source = Source::stream(name, reader, self.retain_bytes.unwrap_or(RETAIN_BYTES))?;
        Sender::new(node, source, options)
    }

    fn send_options(&self, members: Vec<SocketAddr>) -> Result<SendOptions, CastError> {
        if members.is_empty() && self.min_members == 0 {
            let text = "nobody to send to: name members, or set min_members to how many have to come";
            return Err(CastError::NoReceivers(text.into()));
        }
        let listed = !members.is_empty();
        let group = self.group.unwrap_or_else(|| default_group(&members));
        let members = if listed { Members::Listed(members) } else { Members::AtLeast(self.min_members) };
        let mut options = SendOptions::new(group, members);
        options.backend = self.backend;
        options.wait = self.wait.unwrap_or(options.wait);
        options.patience = self.patience.unwrap_or(options.patience);
        options.linger = self.linger;
        options.stall = self.stall;
        options.rate_bytes_per_s = self.rate_bytes_per_s;
        Ok(options)
    }

    /// A receiver into a directory, over `node`.
    ///
    /// # Errors
    /// As for [`check_directory`].
    pub fn receiver(&self, node: Node, into: &Path) -> Result<Receiver, CastError> {
        check_directory(into)?;
        let destination = Destination::Directory { path: into.into(), sync: self.sync };
        Ok(Receiver::new(node, destination, self.receive_options()))
    }

    /// A receiver of one file or stream, whose bytes go to `writer` as they come, over `node`.
    pub fn stream_receiver(&self, node: Node, writer: impl Write + Send + 'static) -> Receiver {
        Receiver::new(node, Destination::Pipe(Box::new(writer)), self.receive_options())
    }

    fn receive_options(&self) -> ReceiveOptions {
        let mut options = ReceiveOptions::new(self.group.unwrap_or_else(|| default_group(&[])));
        options.from = self.from;
        options.wait = self.wait;
        options.patience = self.patience.unwrap_or(options.patience);
        options.name = self.name.clone().unwrap_or(options.name);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_the_option_of_that_name() {
        let mut options = CastOptions::default();
        for (name, value) in [
            ("group", "239.1.2.3:7000"),
            ("backend", "unicast"),
            ("wait", "3s"),
            ("patience", "1.5s"),
            ("linger", "20ms"),
            ("stall", "4s"),
            ("rate_bytes_per_s", "10MiB"),
            ("min_members", "3"),
            ("dereference", "on"),
            ("from", "127.0.0.1:7117"),
            ("name", "rack 7"),
            ("retain_bytes", "8MiB"),
            ("sync", "on"),
        ] {
            options.set(name, value).unwrap();
        }
        assert_eq!(CAST_SETTINGS.len(), 13);
        assert_eq!(options.retain_bytes, Some(8 << 20));
        assert_eq!((options.group, options.from), (address("239.1.2.3:7000"), address("127.0.0.1:7117")));
        assert_eq!(options.backend, GroupBackend::Unicast);
        assert_eq!((options.wait, options.linger), (time("3s"), Duration::from_millis(20)));
        assert_eq!((options.patience, options.stall), (time("1.5s"), time("4s")));
        assert_eq!((options.rate_bytes_per_s, options.min_members), (Some(10 << 20), 3));
        assert!(options.dereference && options.sync && options.name.as_deref() == Some("rack 7"));
        for (name, value) in [
            ("group", "10.0.0.1:7000"),
            ("wait", "soon"),
            ("min_members", "0"),
            ("rate_bytes_per_s", "0"),
            ("colour", "red"),
        ] {
            assert!(options.set(name, value).is_err(), "{name}");
        }
    }
}
