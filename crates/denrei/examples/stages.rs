//! What a stream costs each thread of a Node, inline and pipelined: `cargo run --release -p denrei
//! --example stages`. Linux only, for it reads `/proc`.
//!
//! Inputs → outputs: a sender and a receiver in one process, the drive modes by turns → CPU time of
//! every thread per MiB (what it waits is not in it), what the machine's cores made of it here, and what
//! sides with cores of their own can at most reach, together, and each beside one that is never waited
//! for: the busiest thread sets the pace, and two cores do two seconds' work in a second. What is *not*
//! measured is a stream between two hosts: on a machine of two cores the two sides share them, and this
//! says what they would do if they did not.

use denrei::{Bytes, ChannelId, ClusterKey, Config, Drive, Node, Stage};
use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Octets of one run: a third of a second of a sealed stream.
const RUN_BYTES: usize = 512 << 20;
/// Runs of each mode, by turns; figures are of the one in the middle.
const RUNS: usize = 5;
const SIZES: [usize; 2] = [64 << 10, 1 << 20];
const PATIENCE: Duration = Duration::from_secs(30);

/// A drive mode to be measured.
struct Mode {
    name: &'static str,
    drive: Drive,
    pipeline: &'static [&'static [Stage]],
}

const MODES: [Mode; 6] = {
    use Stage::{Open, Proto, Rx, Seal, Tx};
    [
        Mode { name: "inline", drive: Drive::Inline, pipeline: &[] },
        Mode {
            name: "rx+open|proto+seal+tx",
            drive: Drive::Pipelined,
            pipeline: &[&[Rx, Open], &[Proto, Seal, Tx]],
        },
        Mode {
            name: "rx+open+proto|seal+tx",
            drive: Drive::Pipelined,
            pipeline: &[&[Rx, Open, Proto], &[Seal, Tx]],
        },
        Mode {
            name: "rx+open+proto+seal|tx",
            drive: Drive::Pipelined,
            pipeline: &[&[Rx, Open, Proto, Seal], &[Tx]],
        },
        Mode {
            name: "rx+open|proto|seal+tx",
            drive: Drive::Pipelined,
            pipeline: &[&[Rx, Open], &[Proto], &[Seal, Tx]],
        },
        Mode {
            name: "rx|open|proto|seal|tx",
            drive: Drive::Pipelined,
            pipeline: &[&[Rx], &[Open], &[Proto], &[Seal], &[Tx]],
        },
    ]
};

/// One run: how long it took, and what each thread of the sender and of the receiver worked, ns.
struct Run {
    elapsed: Duration,
    sides: [Vec<(String, u64)>; 2],
}

impl Run {
    /// Seconds' work of one side: of its busiest thread, and of all.
    fn busiest_and_all(&self, side: usize) -> (f64, f64) {
        let seconds = self.sides[side].iter().map(|(_, ns)| *ns as f64 / 1e9);
        (seconds.clone().fold(0.0, f64::max), seconds.sum())
    }

    /// The least time of a side with so many cores.
    fn least_of(&self, side: usize, cores: f64) -> f64 {
        let (busiest, all) = self.busiest_and_all(side);
        busiest.max(all / cores)
    }

    /// The least time with so many cores for each side.
    fn least(&self, cores: f64) -> f64 {
        self.least_of(0, cores).max(self.least_of(1, cores))
    }
}

/// Threads of this process: what they are called, and how long each was on a core, ns.
fn threads() -> BTreeMap<u32, (String, u64)> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let of = |task: fs::DirEntry| {
        let read = |file| fs::read_to_string(task.path().join(file)).ok();
        let on_core = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, (read("comm")?.trim().to_owned(), on_core)))
    };
    tasks.filter_map(of).collect()
}

fn own_thread() -> u32 {
    let link = fs::read_link("/proc/thread-self").expect("Linux");
    link.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok()).expect("a number")
}

/// Binds a Node, and finds the threads that it starts.
fn bind(mode: &Mode, key: Option<&ClusterKey>) -> (Node, Vec<u32>) {
    let before = threads();
    let pipeline = mode.pipeline.iter().map(|group| group.to_vec()).collect();
    let config = Config { drive: mode.drive, pipeline, cluster_key: key.cloned(), ..Config::default() };
    let node = Node::bind("127.0.0.1:0", config).expect("loopback");
    (node, threads().into_keys().filter(|thread| !before.contains_key(thread)).collect())
}

fn run(mode: &Mode, size: usize, key: Option<&ClusterKey>) -> Run {
    let (sender, mut sending) = bind(mode, key);
    let (receiver, mut receiving) = bind(mode, key);
    let peer = sender.connect(receiver.local_addr()).expect("there is room");
    let to = ChannelId { peer, channel: 0 };
    let message = Bytes::from(vec![0x5a; size]);
    let count = RUN_BYTES / size;
    let (said, heard) = mpsc::channel();
    std::thread::scope(|scope| {
        let receive = scope.spawn(|| {
            said.send(own_thread()).expect("it is awaited");
            let take = || receiver.recv_timeout(PATIENCE).expect("it works").expect("it comes");
            assert_eq!(take().data.len(), size);
            let (began, before) = (Instant::now(), threads());
            (1..count).for_each(|_| assert_eq!(take().data.len(), size));
            let measured = (began.elapsed(), before, threads());
            // Whoever waits for the last acknowledgement gets it.
            let _ = receiver.recv_timeout(Duration::from_millis(20));
            measured
        });
        receiving.push(heard.recv().expect("the thread runs"));
        sending.push(own_thread());
        for _ in 0..count {
            sender.send(to, message.clone()).expect("it is taken");
        }
        sender.flush(peer, PATIENCE);
        let (elapsed, before, after) = receive.join().expect("it does not panic");
        let worked = |side: &[u32]| {
            let of = |thread: &u32| {
                let (name, until) = after.get(thread)?;
                Some((name.clone(), until - before.get(thread).map_or(0, |(_, from)| *from)))
            };
            side.iter().filter_map(of).collect()
        };
        Run { elapsed, sides: [worked(&sending), worked(&receiving)] }
    })
}

fn main() {
    let key = ClusterKey::from_bytes([7; 32]);
    for (sealing, key) in [("plain", None), ("sealed", Some(&key))] {
        for size in SIZES {
            let mut runs: Vec<Vec<Run>> = MODES.iter().map(|_| Vec::new()).collect();
            for _ in 0..RUNS {
                MODES.iter().zip(&mut runs).for_each(|(mode, runs)| runs.push(run(mode, size, key)));
            }
            println!("{} KiB, {sealing}", size >> 10);
            report(runs);
        }
    }
}

fn report(runs: Vec<Vec<Run>>) {
    let per_s = |seconds: f64| RUN_BYTES as f64 / 1e9 / seconds;
    let mut inline = None;
    for (mode, mut runs) in MODES.iter().zip(runs) {
        runs.sort_by_key(|run| run.elapsed);
        let run = &runs[RUNS / 2];
        let [here, two, many] = [run.elapsed.as_secs_f64(), run.least(2.0), run.least(f64::INFINITY)];
        let sides = [0, 1].map(|side| run.least_of(side, 2.0));
        let (here_inline, two_inline, many_inline, sides_inline) =
            *inline.get_or_insert((here, two, many, sides));
        println!(
            "  {:<22} {:.2} GB/s here ({:.2} of inline); at most {:.2} with two cores a side ({:.2}), {:.2} with a core a thread ({:.2})",
            mode.name,
            per_s(here),
            here_inline / here,
            per_s(two),
            two_inline / two,
            per_s(many),
            many_inline / many,
        );
        for (side, threads) in ["sends", "receives"].iter().zip(&run.sides) {
            let each = threads
                .iter()
                .map(|(name, ns)| format!("{name} {:.0}", *ns as f64 / 1e3 / (RUN_BYTES >> 20) as f64));
            println!("    {side:<9} us per MiB: {}", each.collect::<Vec<_>>().join(", "));
        }
        let [sends, receives] = [0, 1].map(|side| sides_inline[side] / sides[side]);
        println!("    two cores for one side alone: sending {sends:.2} of inline, receiving {receives:.2}");
    }
}
