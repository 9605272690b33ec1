//! `--listen`: the other side of benchmarks that another machine runs.
//!
//! Inputs → outputs: connections → one side each, a process that reads its orders from the
//! connection. It ends with the connection, and after its job's limit in any case. A side that cannot be started ends
//! its connection, and not the service.

use super::place::{PEER_COMMAND, with_secrets};
use crate::cmd::key::KeyArgs;
use anyhow::{Context, Result};
use denrei_output::{in_words, tell};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

/// Most sides at a time; a further connection is closed at once.
pub const MAX_SIDES: usize = 16;

/// Most processes of a mesh between two machines: half of them are served, while those of the run before may not
/// have ended.
pub const MAX_MESH: usize = MAX_SIDES;

/// After a connection that could not be served: what is short, descriptors or processes, may be there again.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves until interrupted.
pub fn serve(addr: SocketAddr, keys: &KeyArgs) -> Result<()> {
    let listener = TcpListener::bind(addr).with_context(|| format!("cannot listen on {addr}"))?;
    tell!("serving benchmarks on {}; end with Ctrl-C", listener.local_addr()?);
    tell!("whoever reaches this address may start traffic from here: trusted networks only");
    let mut sides: Vec<Child> = Vec::new();
    loop {
        if let Err(error) = serve_next(&listener, &mut sides, keys) {
            tell!("denrei: {}", in_words(&error));
            thread::sleep(PAUSE);
        }
    }
}

/// Waits for a connection, and starts a side for it if there is room.
fn serve_next(listener: &TcpListener, sides: &mut Vec<Child>, keys: &KeyArgs) -> Result<()> {
    let (stream, _) = listener.accept().context("cannot accept a connection")?;
    sides.retain_mut(|side| matches!(side.try_wait(), Ok(None)));
    if sides.len() < MAX_SIDES {
        sides.push(start(stream, keys).context("cannot start a side")?);
    }
    Ok(())
}

fn start(stream: TcpStream, keys: &KeyArgs) -> Result<Child> {
    stream.set_nodelay(true)?;
    let orders = OwnedFd::from(stream.try_clone()?);
    let answers = OwnedFd::from(stream);
    let exe = std::env::current_exe().context("cannot find this program")?;
    Ok(with_secrets(&mut Command::new(exe), PEER_COMMAND, keys).stdin(orders).stdout(answers).spawn()?)
}
