//! Groups: one process opens one, or is a member of one. What it does is told by the rest of the
//! command line; what happens is printed line by line, for people and tests alike.

use crate::{Drive, Random, Settings};
use anyhow::{Context, Result, bail};
use denrei::{Bytes, GroupBackend, GroupOptions, GroupPolicy, Node};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Longest wait for a group, a message, an end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of a message.
fn content(number: u64, bytes: usize) -> Bytes {
    Random::new(number).bytes(bytes).into()
}

fn node(addr: SocketAddr) -> Result<Node> {
    Ok(Node::bind(addr, Settings::driven(Drive::Thread).config())?)
}

fn argument<T: std::str::FromStr>(arguments: &mut impl Iterator<Item = String>, name: &str) -> Result<T> {
    let text = arguments.next().with_context(|| format!("the argument {name} is missing"))?;
    text.parse().ok().with_context(|| format!("{text:?} is no {name}"))
}

/// `group-member BIND GROUP`: takes what comes and says at the end how much of it was right.
pub fn run_member() -> Result<()> {
    let mut arguments = std::env::args().skip(2);
    let node = node(argument(&mut arguments, "BIND")?)?;
    let listener = node.join_group(argument(&mut arguments, "GROUP")?)?;
    println!("ready");
    let Some(membership) = listener.accept(PATIENCE) else { bail!("no group came") };
    let mut count = 0u64;
    let end = loop {
        match membership.recv_timeout(PATIENCE) {
            Ok(Some(message)) => {
                let right = message.number == count && message.data == content(count, message.data.len());
                anyhow::ensure!(right, "message {} is not number {count}, or damaged", message.number);
                count += 1;
            }
            Ok(None) => bail!("nothing came after {count} messages"),
            Err(end) => break end,
        }
    };
    println!("end {count} {end:?}");
    // The opener may not have heard the last word.
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// `group-opener BIND GROUP POLICY BACKEND COUNT BYTES PACE_US MEMBER…`: sends, and says what happened.
pub fn run_opener() -> Result<()> {
    let mut arguments = std::env::args().skip(2);
    let node = node(argument(&mut arguments, "BIND")?)?;
    let address: SocketAddr = argument(&mut arguments, "GROUP")?;
    let policy = policy(&argument::<String>(&mut arguments, "POLICY")?)?;
    let backend = match argument::<String>(&mut arguments, "BACKEND")?.as_str() {
        "auto" => GroupBackend::Auto,
        "tree" => GroupBackend::Tree,
        "unicast" => GroupBackend::Unicast,
        other => bail!("{other:?} is no backend"),
    };
    let count: u64 = argument(&mut arguments, "COUNT")?;
    let bytes: usize = argument(&mut arguments, "BYTES")?;
    let pace = Duration::from_micros(argument(&mut arguments, "PACE_US")?);
    let members = arguments.map(|text| Ok(text.parse()?)).collect::<Result<Vec<SocketAddr>>>()?;
    let group = node.open_group(address, &members, GroupOptions { backend, ..policy.into() })?;
    println!("open");
    let began = Instant::now();
    for number in 0..count {
        group.send(content(number, bytes))?;
        while let Some(event) = group.try_event() {
            println!("event {event:?}");
        }
        std::thread::sleep(pace);
    }
    println!("sent {:?}", began.elapsed());
    let flushed = group.flush(PATIENCE);
    println!("flushed {flushed} {:?}", began.elapsed());
    if let Some(status) = group.status() {
        let paths: Vec<String> = status.members.iter().map(|member| format!("{:?}", member.path)).collect();
        println!("paths {}", paths.join(" "));
        println!("repaired by session {}", status.counters.unicast_repairs);
        println!("counters {:?}", status.counters);
    }
    let closed = group.close(PATIENCE);
    while let Some(event) = group.try_event() {
        println!("event {event:?}");
    }
    println!("closed {closed}");
    Ok(())
}

fn policy(text: &str) -> Result<GroupPolicy> {
    let after = |millis: &str| Ok::<_, anyhow::Error>(Duration::from_millis(millis.parse()?));
    Ok(match text.split_once(':') {
        None if text == "wait" => GroupPolicy::Wait,
        Some(("eject", millis)) => GroupPolicy::Eject { after: after(millis)? },
        Some(("lag", millis)) => GroupPolicy::Lag { after: after(millis)? },
        _ => bail!("{text:?} is no policy"),
    })
}
