//! Processes that share what their host can receive.

use crate::harness::{Process, SOON, Test, begin, stream, until, until_within};
use denrei_e2e::{Drive, Order, Plan, Settings, Sizes};
use denrei_netlab::Lab;
use nix::sys::signal::Signal;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the host receives in all, bytes per second.
const HOST_BYTES_PER_S: u64 = 20_000_000;
/// A rate at which something was lost is not tried again for so long (spec §13.7), be it that a busy host lost it.
const TOO_MUCH_COUNTS: Duration = Duration::from_secs(10);
/// What the link to the host carries where nobody has said it.
const LINK_MBIT: u64 = 100;
/// Messages a channel: nobody comes to the end of them.
const ENDLESS: u64 = 1 << 32;
const PLAN: Plan = Plan { seed: 7, sizes: Sizes::Fixed(1_200) };

/// A receiver that shares its host, and a sender that has more for it than it may send.
struct Stream {
    sender: Process,
    receiver: Process,
    peer: u64,
}

fn named(settings: &[(&str, &str)]) -> Settings {
    Settings {
        named: settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        ..Settings::driven(Drive::Thread)
    }
}

/// Of a Node that shares its host.
fn shares_host(directory: &Path, stated: Option<u64>) -> Settings {
    let bytes_per_s = stated.unwrap_or(0).to_string();
    named(&[
        ("learn_rates", "on"),
        ("host_directory", directory.to_str().expect("a path in UTF-8")),
        ("host_bytes_per_s", &bytes_per_s),
    ])
}

impl Stream {
    /// On loopback, where it is said what the host takes.
    fn start(test: &Test, name: &str, directory: &Path) -> Self {
        let receiver = test.process(format!("receiver {name}"), "node");
        let sender = test.process(format!("sender {name}"), "node");
        Self::between(receiver, sender, Ipv4Addr::LOCALHOST, directory, Some(HOST_BYTES_PER_S))
    }

    /// From the first host of `lab` to the second, where nobody says what that one takes.
    fn across(test: &Test, lab: &Lab, name: &str, directory: &Path) -> Self {
        let receiver = test.process_on(lab, 1, format!("receiver {name}"), "node");
        let sender = test.process_on(lab, 0, format!("sender {name}"), "node");
        Self::between(receiver, sender, lab.host(1).ipv4(), directory, None)
    }

    fn between(
        mut receiver: Process,
        mut sender: Process,
        address: Ipv4Addr,
        directory: &Path,
        stated: Option<u64>,
    ) -> Self {
        let addr = receiver.bind(address.into(), shares_host(directory, stated));
        sender.bind(Ipv4Addr::UNSPECIFIED.into(), named(&[("congestion", "rate-only")]));
        let peer = sender.connect(addr);
        sender.order(&Order::Send(stream(peer, PLAN, ENDLESS, 0)));
        Self { sender, receiver, peer }
    }

    /// What the sender may send, bytes per second.
    fn rate(&mut self) -> f64 {
        self.sender.flow(self.peer).rate_bytes_per_s as f64
    }

    /// What the sender may send, as a share of what the host receives.
    fn share(&mut self) -> f64 {
        self.rate() / HOST_BYTES_PER_S as f64
    }
}

fn records(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the receivers made it");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

fn is_half(share: f64) -> bool {
    (0.45..=0.55).contains(&share)
}

/// Waits until each of two has half; should that take too long, there is what they had meanwhile.
fn until_halves(what: &str, one: &mut Stream, two: &mut Stream) {
    let mut said = String::new();
    until_within(TOO_MUCH_COUNTS + SOON, what, || {
        let shares = [one.share(), two.share()];
        let text = format!("{shares:.2?}");
        if text != said {
            println!("{text}");
            said = text;
        }
        shares.into_iter().all(is_half)
    });
}

/// Two that share the host, and have half of it each.
fn halves(test: &Test, directory: &Path) -> [Stream; 2] {
    let [mut one, mut two] = ["one", "two"].map(|name| Stream::start(test, name, directory));
    until_halves("half for each", &mut one, &mut two);
    [one, two]
}

/// Each has half; when one is killed the other has all, and what it left behind is gone.
#[test]
fn two_processes_share_a_host_until_one_is_killed() {
    let test = begin("two_processes_share_a_host_until_one_is_killed");
    let directory = std::env::temp_dir().join(format!("denrei-e2e-host-{}", std::process::id()));
    let [mut one, mut two] = halves(&test, &directory);
    assert_eq!(records(&directory).len(), 2);
    // Shares hold while both want all they can get.
    let before = (one.receiver.received(), two.receiver.received());
    until("messages within the rates", || two.receiver.received() > before.1 + 2_000);
    assert!(one.receiver.received() > before.0);

    two.receiver.kill();
    until("all for the one left", || one.share() > 0.95);
    until("no trace of the other", || records(&directory).len() == 1);

    let mut third = Stream::start(&test, "three", &directory);
    until_halves("half for each again", &mut one, &mut third);
    one.receiver.kill();
    third.receiver.kill();
    std::fs::remove_dir_all(&directory).expect("it is there");
}

/// A process that is stopped keeps its file, but takes nothing: the other has all until it goes on.
#[test]
fn a_process_that_is_stopped_keeps_no_share_from_the_others() {
    let test = begin("a_process_that_is_stopped_keeps_no_share_from_the_others");
    let directory = std::env::temp_dir().join(format!("denrei-e2e-stopped-{}", std::process::id()));
    let [mut one, mut two] = halves(&test, &directory);

    two.receiver.signal(Signal::SIGSTOP);
    until("all for the one that runs", || one.share() > 0.95);
    assert_eq!(records(&directory).len(), 2);
    two.receiver.signal(Signal::SIGCONT);
    until_halves("half for each again", &mut one, &mut two);
    one.receiver.kill();
    two.receiver.kill();
    std::fs::remove_dir_all(&directory).expect("it is there");
}

/// Two behind one link, of which nobody has said what it carries: they learn it together, and neither takes what is lost on
/// the way for its own affair.
#[test]
fn two_processes_behind_one_link_learn_together_what_it_carries() {
    let test = begin("two_processes_behind_one_link_learn_together_what_it_carries");
    let Some(lab) = test.lab(2, 1500) else { return };
    lab.rate_towards(1, LINK_MBIT, 64 << 10).expect("a slow link");
    let directory = std::env::temp_dir().join(format!("denrei-e2e-learn-{}", std::process::id()));
    let mut streams = ["one", "two"].map(|name| Stream::across(&test, &lab, name, &directory));
    let link = LINK_MBIT as f64 * 1e6 / 8.0;
    let mut of_link = || streams.each_mut().map(|stream| stream.rate() / link);
    let most = TOO_MUCH_COUNTS * 2 + SOON;
    until_within(most, "what the link carries", || {
        of_link().into_iter().all(|share| (0.3..0.65).contains(&share))
    });
    // And go on so.
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        let shares = of_link();
        assert!(shares.into_iter().all(|share| share > 0.2), "{shares:.2?} of the link");
        std::thread::sleep(Duration::from_millis(100));
    }
    test.print(format_args!("{:.2?} of the link", of_link()));
    // One that comes and goes, and whose name may be the least, makes nobody forget.
    for number in 0..5 {
        let mut guest = test.process_on(&lab, 1, format!("guest {number}"), "node");
        guest.bind(lab.host(1).ipv4().into(), shares_host(&directory, None));
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            let shares = of_link();
            assert!(shares.into_iter().all(|share| share < 2.0), "{shares:.2?} of the link");
            std::thread::sleep(Duration::from_millis(5));
        }
        guest.kill();
    }
    for stream in &mut streams {
        stream.receiver.kill();
    }
    std::fs::remove_dir_all(&directory).expect("it is there");
}
