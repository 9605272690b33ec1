//! Where the sides of a benchmark run: here, in namespaces, or every other one on another machine.
//!
//! Inputs → outputs: [`PlaceArgs`] → a [`Place`] that starts a side and knows its address.

use super::args::PlaceArgs;
use super::control::Transport;
use crate::cmd::doctor::check_loopback;
use crate::cmd::key::KeyArgs;
use crate::cmd::keygen::new_cluster_key;
use crate::cmd::wrong_arguments;
use crate::process::LineProcess;
use anyhow::{Context, Result};
use denrei::{environment, key_file, source_towards};
use denrei_netlab::{Lab, LabConfig};
use denrei_output::tell;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How long the other machine may take to accept.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The hidden subcommand that is one side.
pub const PEER_COMMAND: &str = "__bench-peer";

/// Where the sides run, and with what secrets.
pub struct Place {
    kind: Kind,
    secrets: Secrets,
}

/// With what secrets sides are started: those of the command, and what is missing for its rows.
#[derive(Default)]
pub struct Secrets {
    keys: KeyArgs,
    /// Holds the key that was made for this measurement.
    _made: Option<File>,
}

impl Secrets {
    /// For rows without a key (`plain`), in namespaces or not, and for rows with one (`sealed`).
    pub fn new(keys: &KeyArgs, is_lab: bool, plain: bool, sealed: bool) -> Result<Self> {
        if !sealed && (keys.identity_file.is_some() || keys.allow_file.is_some()) {
            return Err(wrong_arguments(
                "--identity-file and --allow-file are for the row denrei-sealed: give --key-file FILE or --sealed, too",
            ));
        }
        let mut keys = keys.clone().or_environment();
        if is_lab && plain && !keys.insecure {
            tell!(
                "the row denrei is measured without a key (--insecure): these namespaces are alone with each other"
            );
            keys.insecure = true;
        }
        let mut made = None;
        if sealed && keys.key_file.is_none() {
            let line = key_file::cluster_key_line(&new_cluster_key()?);
            let (file, path) = nameless(&line).context("cannot keep a key for the sides")?;
            (keys.key_file, made) = (Some(path), Some(file));
        }
        if sealed {
            // Each side reads its files: what is wrong with them is said now, not when it is its turn.
            keys.config()?;
        }
        Ok(Self { keys, _made: made })
    }

    /// Starts `command`, this program, as one side: its hidden subcommand `subcommand`, with these secrets.
    pub fn start(&self, mut command: Command, subcommand: &str, name: String) -> Result<LineProcess> {
        with_secrets(&mut command, subcommand, &self.keys);
        LineProcess::spawn(command, name)
    }
}

/// A file of its owner's alone that holds `text` and has no name, so that nothing of it is left however this process
/// ends; and where the processes that this one starts find it.
fn nameless(text: &str) -> io::Result<(File, PathBuf)> {
    // With a name at first: others may read what never has one (0666, and the umask).
    let (mut file, name) = tempfile::NamedTempFile::new()?.into_parts();
    name.close()?;
    file.write_all(text.as_bytes())?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((file, path.into()))
}

enum Kind {
    /// Processes on loopback.
    Loopback,
    /// Each in a namespace of its own.
    Netns(Lab),
    /// Even sides here, odd ones where `--listen` runs.
    Remote(SocketAddr),
}

impl Place {
    /// Processes on loopback, without a key.
    pub fn loopback() -> Self {
        Self { kind: Kind::Loopback, secrets: Secrets::default() }
    }

    /// Builds what was asked for, for `members` sides of each of `transports`; or has every other one on the machine
    /// at `connect`.
    pub fn open(
        args: &PlaceArgs,
        connect: Option<SocketAddr>,
        keys: &KeyArgs,
        transports: &[Transport],
        members: usize,
    ) -> Result<Self> {
        let sealed = transports.contains(&Transport::DenreiSealed);
        let plain = transports.contains(&Transport::Denrei);
        if let Some(addr) = connect.filter(|_| plain) {
            keys.check_plain_with(addr)?;
        }
        match connect {
            Some(_) if sealed => keys.check_between_machines()?,
            None if !args.netns => keys.check_on_loopback()?,
            _ => {}
        }
        // Before anything is built: a key may be missing.
        let secrets = Secrets::new(keys, args.netns, plain, sealed)?;
        let kind = match connect {
            Some(addr) => Kind::Remote(addr),
            None if args.netns => Kind::lab(args, members)?,
            None => {
                check_loopback()?;
                Kind::Loopback
            }
        };
        Ok(Self { kind, secrets })
    }

    /// Whether each side has a network stack of its own.
    pub fn is_lab(&self) -> bool {
        matches!(self.kind, Kind::Netns(_))
    }

    /// Whether all sides read the same clock.
    pub fn has_one_clock(&self) -> bool {
        !matches!(self.kind, Kind::Remote(_))
    }

    /// Starts side `index`; gives it and the address it is to bind.
    pub fn start(&self, index: usize, members: usize) -> Result<(LineProcess, IpAddr)> {
        let name = format!("side {index} of {members}");
        let exe = std::env::current_exe().context("cannot find this program")?;
        let (command, ip) = match &self.kind {
            Kind::Loopback => (Command::new(exe), Ipv4Addr::LOCALHOST.into()),
            Kind::Netns(lab) => (lab.host(index).command(exe), lab.host(index).ip()),
            Kind::Remote(addr) => {
                if index % 2 == 1 {
                    let control = connect(addr)?;
                    return Ok((LineProcess::over(control, format!("{name} at {addr}"))?, addr.ip()));
                }
                let own = source_towards(*addr).with_context(|| format!("there is no route to {addr}"))?;
                (Command::new(exe), own.ip())
            }
        };
        Ok((self.secrets.start(command, PEER_COMMAND, name)?, ip))
    }
}

impl Kind {
    fn lab(args: &PlaceArgs, members: usize) -> Result<Self> {
        let config = LabConfig { offload: !args.no_offload, ..LabConfig::default() };
        let lab = Lab::with_config(members, config).context("cannot build the namespaces")?;
        for host in 0..members {
            if let Some(permille) = args.loss.filter(|permille| *permille > 0) {
                lab.loss(host, permille)?;
            }
            match (args.link, args.link_only_to) {
                (Some(mbit), None) => lab.rate(host, mbit, args.queue)?,
                (Some(mbit), Some(only)) if only == host => lab.rate_towards(host, mbit, args.queue)?,
                _ => {}
            }
        }
        Ok(Self::Netns(lab))
    }
}

/// Makes `command`, this program, its hidden subcommand `subcommand`, with these secrets and none from the
/// environment: which row is sealed, and who drives its Nodes, is for the plan to say.
pub fn with_secrets<'a>(command: &'a mut Command, subcommand: &str, keys: &KeyArgs) -> &'a mut Command {
    for name in
        [environment::KEY_FILE, environment::IDENTITY_FILE, environment::ALLOW_FILE, environment::DRIVE]
    {
        command.env_remove(name);
    }
    command.arg(subcommand).args(keys.to_args())
}

fn connect(addr: &SocketAddr) -> Result<TcpStream> {
    TcpStream::connect_timeout(addr, CONNECT_LIMIT).with_context(|| {
        format!(
            "cannot reach {addr}: start `denrei bench pingpong --listen {addr}` there, with its own address"
        )
    })
}
