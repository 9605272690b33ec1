//! Live video beside bulk (S10, S13): frames that are worth nothing once they are late, to receivers
//! of different speed, while bulk fills what is left.
//!
//! ```text
//! cargo run --release -p denrei --example live -- [SECONDS]
//! ```
//!
//! Each receiver is a Node on loopback that sets its own pace: one takes all it can get, one has room
//! for the frames and a little more, one for less than the frames, and one reads slowly. Frames go by
//! an urgent channel with a deadline, bulk by another one. Exits with 1 if the fast receiver did not
//! get its frames in time.

use denrei::{ChannelId, Completion, Config, Drive, Event, Node, PeerId, Rate, SendError};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Frames a second.
const FRAMES_PER_S: u32 = 50;
/// Bytes of a frame: 5 MB/s.
const FRAME_BYTES: usize = 100_000;
/// A frame that has not arrived by then is not wanted any more.
const DEADLINE: Duration = Duration::from_millis(60);
/// Bytes of a message of bulk.
const BULK_BYTES: usize = 32 * 1024;
/// Which channel carries what.
const FRAMES: u16 = 0;
const BULK: u16 = 1;

/// A receiver's speed.
#[derive(Clone, Copy)]
struct Speed {
    name: &'static str,
    /// What it lets the sender send.
    rate: Rate,
    /// How long it is busy with each message.
    busy: Duration,
}

const fn limited(name: &'static str, bytes_per_s: u64) -> Speed {
    Speed { name, rate: Rate { bytes_per_s, burst_bytes: 65_536 }, busy: Duration::ZERO }
}

/// From the fastest to the slowest.
const SPEEDS: [Speed; 4] = [
    Speed { name: "fast", rate: Rate::UNLIMITED, busy: Duration::ZERO },
    limited("8 MB/s", 8_000_000),
    limited("2.5 MB/s", 2_500_000),
    Speed { name: "reads slowly", rate: Rate::UNLIMITED, busy: Duration::from_millis(8) },
];

/// What a receiver got.
#[derive(Default)]
struct Got {
    in_time: u64,
    late: u64,
    bulk_bytes: u64,
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let seconds: u32 = match seconds_of(std::env::args().skip(1).collect()) {
        Ok(seconds) => seconds,
        Err(status) => return Ok(status),
    };
    let config = Config { drive: Drive::Thread, ..Config::default() };
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let sender = Node::bind("127.0.0.1:0", config.clone())?;
    let receivers =
        SPEEDS.iter().map(|_| Node::bind("127.0.0.1:0", config.clone())).collect::<Result<Vec<_>, _>>()?;
    let peers =
        receivers.iter().map(|node| sender.connect(node.local_addr())).collect::<Result<Vec<_>, _>>()?;
    let (sent, got) = std::thread::scope(|scope| {
        let running: Vec<_> = (receivers.iter().zip(SPEEDS))
            .map(|(node, speed)| {
                let over = &over;
                scope.spawn(move || receive(node.clone(), speed, began, over))
            })
            .collect();
        let sent = send(&sender, &peers, began, seconds * FRAMES_PER_S);
        over.store(true, Ordering::Release);
        (
            sent,
            running
                .into_iter()
                .map(|receiver| receiver.join().expect("it does not panic"))
                .collect::<Vec<_>>(),
        )
    });
    let dropped = sent?;
    let frames = u64::from(seconds * FRAMES_PER_S);
    println!("{frames} frames of {FRAME_BYTES} bytes to each, {DEADLINE:?} to get there, bulk beside them");
    println!("{:14} {:>8} {:>6} {:>9} {:>12}", "receiver", "in time", "late", "dropped", "bulk, MB/s");
    for ((speed, peer), got) in SPEEDS.iter().zip(&peers).zip(&got) {
        let bulk = got.bulk_bytes as f64 / 1e6 / f64::from(seconds);
        let dropped = dropped.get(peer).copied().unwrap_or(0);
        println!("{:14} {:>8} {:>6} {:>9} {:>12.1}", speed.name, got.in_time, got.late, dropped, bulk);
    }
    Ok(if got[0].in_time * 10 >= frames * 9 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// How long it is to run; or, if that was not said, how to end.
fn seconds_of(arguments: Vec<String>) -> Result<u32, ExitCode> {
    const USAGE: &str = "usage: live [SECONDS]\n\nSECONDS: how long to send, 1 to 3600; 5 if not given";
    match arguments.as_slice() {
        [] => Ok(5),
        [help] if help == "--help" || help == "-h" => {
            println!("{USAGE}");
            Err(ExitCode::SUCCESS)
        }
        [text] if text.parse().is_ok_and(|seconds| (1..=3600).contains(&seconds)) => {
            Ok(text.parse().unwrap_or(5))
        }
        wrong => {
            eprintln!("live: {:?} is no whole number from 1 to 3600\n{USAGE}", wrong.join(" "));
            Err(ExitCode::from(2))
        }
    }
}

/// Sends a frame to each receiver at every tick, and bulk meanwhile; how many frames were dropped
/// for each, being late.
fn send(
    node: &Node,
    peers: &[PeerId],
    began: Instant,
    frames: u32,
) -> Result<HashMap<PeerId, u64>, Box<dyn std::error::Error>> {
    let mut dropped = HashMap::new();
    for peer in peers {
        node.set_priority(ChannelId { peer: *peer, channel: FRAMES }, 0)?;
        node.set_priority(ChannelId { peer: *peer, channel: BULK }, 7)?;
    }
    let bulk = vec![0xb0; BULK_BYTES];
    let bulk = denrei::Bytes::from(bulk);
    let first = began.elapsed();
    for number in 0..frames {
        let frame = frame(began.elapsed());
        for peer in peers {
            let channel = ChannelId { peer: *peer, channel: FRAMES };
            match node.send_within(channel, frame.clone(), Completion::None, DEADLINE) {
                Ok(_) => {}
                // So many frames are waiting that this one would be late as well.
                Err(SendError::WouldBlock { .. }) => *dropped.entry(*peer).or_default() += 1,
                Err(error) => return Err(error.into()),
            }
        }
        let next = first + Duration::from_secs(1) * (number + 1) / FRAMES_PER_S;
        while began.elapsed() < next {
            for peer in peers {
                let channel = ChannelId { peer: *peer, channel: BULK };
                // A full queue is no reason to wait: there are other receivers, and the next frame.
                while node.try_send(channel, bulk.clone()).is_ok() && began.elapsed() < next {}
            }
            while let Some(event) = node.event_timeout(Duration::from_millis(1)) {
                if let Event::Expired(message) = event {
                    *dropped.entry(message.channel.peer).or_default() += 1;
                }
            }
        }
    }
    std::thread::sleep(DEADLINE);
    while let Some(event) = node.try_event() {
        if let Event::Expired(message) = event {
            *dropped.entry(message.channel.peer).or_default() += 1;
        }
    }
    Ok(dropped)
}

/// A frame: when it was made, then pixels.
fn frame(made: Duration) -> denrei::Bytes {
    let mut frame = vec![0x55; FRAME_BYTES];
    frame[..8].copy_from_slice(&(made.as_micros() as u64).to_le_bytes());
    frame.into()
}

/// Takes what comes at this receiver's speed until it is over.
fn receive(node: Node, speed: Speed, began: Instant, over: &AtomicBool) -> Got {
    let mut got = Got::default();
    let mut paced = false;
    while !over.load(Ordering::Acquire) {
        let Ok(Some(message)) = node.recv_timeout(Duration::from_millis(10)) else { continue };
        if !paced {
            // The receiver sets the pace, from the first message on.
            paced = node.set_rate(message.channel.peer, speed.rate).is_ok();
        }
        match (message.channel.channel, message.data.first_chunk()) {
            (FRAMES, Some(made)) => {
                let took = began.elapsed().saturating_sub(Duration::from_micros(u64::from_le_bytes(*made)));
                if took <= DEADLINE { got.in_time += 1 } else { got.late += 1 }
            }
            _ => got.bulk_bytes += message.data.len() as u64,
        }
        std::thread::sleep(speed.busy);
    }
    got
}
