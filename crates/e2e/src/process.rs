//! A process of `e2e-node`: orders to it, reports from it, signals.
//!
//! Inputs → outputs: [`Order`]s → [`Report`]s, each waited for no longer than a limit. Whatever else
//! arrives meanwhile is kept. Dropping a [`Process`] kills it, also while a test panics; a process
//! whose test was killed ends by itself, as its orders end.

use crate::{Flow, Order, Report, Resources, Session, Settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Reports read from a process and not yet taken; a process with more to say waits.
const MAX_WAITING_REPORTS: usize = 1 << 16;

/// Longest wait for an answer that is due at once; generous, as the machine may be busy.
pub const SOON: Duration = Duration::from_secs(10);

/// A process.
pub struct Process {
    name: String,
    child: Child,
    orders: ChildStdin,
    reports: Receiver<Report>,
    kept: VecDeque<Report>,
}

impl Process {
    /// Starts `command` in a role. `name` is what failures call it.
    pub fn start(mut command: Command, name: impl Into<String>, role: &str) -> Self {
        let name = name.into();
        let mut child = command
            .arg(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let orders = child.stdin.take().expect("was piped");
        let lines = BufReader::new(child.stdout.take().expect("was piped")).lines();
        let (sender, reports) = sync_channel(MAX_WAITING_REPORTS);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // What a killed process wrote last may be cut.
                let Ok(report) = serde_json::from_str(&line) else { return };
                if sender.send(report).is_err() {
                    return;
                }
            }
        });
        Self { name, child, orders, reports, kept: VecDeque::new() }
    }

    /// Gives an order.
    pub fn order(&mut self, order: &Order) {
        let mut line = serde_json::to_string(order).expect("orders can be written");
        line.push('\n');
        let written = self.orders.write_all(line.as_bytes());
        written.unwrap_or_else(|error| panic!("{} takes no orders: {error}", self.name));
    }

    /// Waits for the first report that `pick` takes.
    pub fn wait<T>(&mut self, what: &str, limit: Duration, pick: impl Fn(&Report) -> Option<T>) -> T {
        let (at, found) = self.find(what, limit, pick);
        self.kept.remove(at);
        found
    }

    /// Waits until there is a report that `is_it`, and leaves it in its place among the others.
    pub fn watch(&mut self, what: &str, limit: Duration, is_it: impl Fn(&Report) -> bool) {
        self.find(what, limit, |report| is_it(report).then_some(()));
    }

    /// The first report that `pick` takes, and its place in `kept`.
    fn find<T>(&mut self, what: &str, limit: Duration, pick: impl Fn(&Report) -> Option<T>) -> (usize, T) {
        let until = Instant::now() + limit;
        for at in 0.. {
            if at == self.kept.len() {
                let left = until.saturating_duration_since(Instant::now());
                let Ok(report) = self.reports.recv_timeout(left) else { break };
                self.kept.push_back(report);
            }
            let report = &self.kept[at];
            if let Some(found) = pick(report) {
                return (at, found);
            }
            let failed = matches!(report, Report::Failed { .. });
            assert!(!failed, "{}: {report:?} while waiting for {what}", self.name);
        }
        self.no_report(what, limit)
    }

    fn no_report(&self, what: &str, limit: Duration) -> ! {
        let last: Vec<_> = self.kept.iter().rev().take(5).map(clip).collect();
        panic!("{}: no {what} within {limit:?}; the last reports, newest first: {last:?}", self.name)
    }

    /// Gives an order and waits for its answer.
    pub fn ask<T>(&mut self, order: &Order, pick: impl Fn(&Report) -> Option<T>) -> T {
        self.order(order);
        self.wait(&format!("answer to {}", clip(order)), SOON, pick)
    }

    /// Gives an order that will not be carried out; what the user would read.
    pub fn ask_in_vain(&mut self, order: &Order) -> String {
        self.ask(order, |report| match report {
            Report::Failed { error } => Some(error.clone()),
            _ => None,
        })
    }

    /// Binds a Node to any free port.
    pub fn bind(&mut self, ip: IpAddr, settings: Settings) -> SocketAddr {
        self.bind_to((ip, 0).into(), settings)
    }

    /// Binds a Node.
    pub fn bind_to(&mut self, addr: SocketAddr, settings: Settings) -> SocketAddr {
        self.ask(&Order::Bind { addr, settings }, |report| match report {
            Report::Bound { addr } => Some(*addr),
            _ => None,
        })
    }

    /// Opens a session.
    pub fn connect(&mut self, addr: SocketAddr) -> u64 {
        self.ask(&Order::Connect { addr }, |report| match report {
            Report::Peer { peer } => Some(*peer),
            _ => None,
        })
    }

    /// What has been received, by session.
    pub fn tally(&mut self) -> Vec<Session> {
        self.ask(&Order::Tally, tally)
    }

    /// Gives an order that has no answer but that it was carried out.
    pub fn make(&mut self, order: &Order) {
        self.ask(order, |report| matches!(report, Report::Done).then_some(()));
    }

    /// What has been received of groups.
    pub fn group_tally(&mut self) -> Vec<Session> {
        self.ask(&Order::GroupTally, tally)
    }

    /// Messages received over all sessions.
    pub fn received(&mut self) -> u64 {
        self.tally().iter().map(Session::messages).sum()
    }

    /// The state of a peer.
    pub fn flow(&mut self, peer: u64) -> Flow {
        self.ask(&Order::Flow { peer }, |report| match report {
            Report::Flow(flow) => Some(*flow),
            _ => None,
        })
    }

    /// The state of the process.
    pub fn resources(&mut self) -> Resources {
        self.ask(&Order::Resources, |report| match report {
            Report::Resources(resources) => Some(resources.clone()),
            _ => None,
        })
    }

    /// Entries of its address table.
    pub fn peers(&mut self) -> usize {
        self.ask(&Order::Peers, |report| match report {
            Report::Peers(peers) => Some(*peers),
            _ => None,
        })
    }

    /// Everything it has said that nobody has waited for.
    pub fn said(&mut self) -> Vec<Report> {
        self.kept.extend(self.reports.try_iter());
        self.kept.drain(..).collect()
    }

    /// Fails if a session was reported lost.
    pub fn expect_no_loss(&mut self) {
        self.kept.extend(self.reports.try_iter());
        for report in &self.kept {
            assert!(!matches!(report, Report::Lost { .. }), "{}: {}", self.name, clip(report));
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the process is there");
    }

    /// Kills it as SIGKILL does and reads what it had said before.
    pub fn kill(&mut self) -> Vec<Report> {
        self.end();
        // The reader ends with the pipe: this does not wait for longer than what is in it takes.
        while let Ok(report) = self.reports.recv_timeout(SOON) {
            self.kept.push_back(report);
        }
        self.kept.drain(..).collect()
    }

    fn end(&mut self) {
        // It may have ended by itself; `wait` collects it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn tally(report: &Report) -> Option<Vec<Session>> {
    match report {
        Report::Tally(sessions) => Some(sessions.clone()),
        _ => None,
    }
}

/// The beginning of a text that may be megabytes long.
fn clip(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.chars().take(300).collect()
}
