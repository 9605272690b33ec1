//! Where the sides of a benchmark run: here, in namespaces, or one on another machine.
//!
//! Inputs → outputs: [`PlaceArgs`] → a [`Place`] that starts a side and knows its address.

use super::args::PlaceArgs;
use crate::process::LineProcess;
use anyhow::{Context, Result};
use denrei_netlab::{Lab, LabConfig};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// How long the other machine may take to accept.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The hidden subcommand that is one side.
pub const PEER_COMMAND: &str = "__bench-peer";

/// Where the sides run.
pub enum Place {
    /// Processes on loopback.
    Loopback,
    /// Each in a namespace of its own.
    Netns(Lab),
    /// Side 0 here, side 1 where `--listen` runs.
    Remote(SocketAddr),
}

impl Place {
    /// Builds what was asked for, for `members` sides.
    pub fn open(args: &PlaceArgs, members: usize) -> Result<Self> {
        if let Some(addr) = args.connect {
            return Ok(Self::Remote(addr));
        }
        if !args.netns {
            return Ok(Self::Loopback);
        }
        let config = LabConfig { offload: !args.no_offload, ..LabConfig::default() };
        let lab = Lab::with_config(members, config).context("cannot build the namespaces")?;
        for host in 0..members {
            if let Some(permille) = args.loss.filter(|permille| *permille > 0) {
                lab.loss(host, permille)?;
            }
            if let Some(mbit) = args.link_mbit {
                lab.rate(host, mbit, args.queue_bytes)?;
            }
        }
        Ok(Self::Netns(lab))
    }

    /// Makes the switch's link towards side `index` a bottleneck, if the sides are in namespaces.
    pub fn limit_link_to(&self, index: usize, mbit: u64, queue_bytes: u64) -> Result<()> {
        match self {
            Self::Netns(lab) => Ok(lab.rate_towards(index, mbit, queue_bytes)?),
            _ => Ok(()),
        }
    }

    /// Whether all sides read the same clock.
    pub fn has_one_clock(&self) -> bool {
        !matches!(self, Self::Remote(_))
    }

    /// Starts side `index`; gives it and the address it is to bind.
    pub fn start(&self, index: usize, members: usize) -> Result<(LineProcess, IpAddr)> {
        let name = format!("side {index} of {members}");
        let exe = std::env::current_exe().context("cannot find this program")?;
        match self {
            Self::Loopback => {
                let mut command = Command::new(exe);
                command.arg(PEER_COMMAND);
                Ok((LineProcess::spawn(command, name)?, Ipv4Addr::LOCALHOST.into()))
            }
            Self::Netns(lab) => {
                let host = lab.host(index);
                let mut command = host.command(exe);
                command.arg(PEER_COMMAND);
                Ok((LineProcess::spawn(command, name)?, host.ip()))
            }
            Self::Remote(addr) => {
                // The addresses of the control connection are those that reach the other machine.
                let control = connect(addr)?;
                if index == 1 {
                    return Ok((LineProcess::over(control, format!("{name} at {addr}"))?, addr.ip()));
                }
                let local = control.local_addr()?.ip();
                let mut command = Command::new(exe);
                command.arg(PEER_COMMAND);
                Ok((LineProcess::spawn(command, name)?, local))
            }
        }
    }
}

fn connect(addr: &SocketAddr) -> Result<TcpStream> {
    TcpStream::connect_timeout(addr, CONNECT_LIMIT).with_context(|| {
        format!(
            "cannot reach {addr}: start `denrei bench pingpong --listen {addr}` there, with its own address"
        )
    })
}
