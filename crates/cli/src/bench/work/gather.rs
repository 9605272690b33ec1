//! Gather (S12): all send to one at once. Two parts over the same connections:
//!
//! * *rounds*: the receiver asks all senders for one message each and waits for all of them: how
//!   long a gather takes, as a program sees it that cannot go on before;
//! * *stream*: it asks for many messages each, which the senders send one after the other: goodput,
//!   and how fairly it is shared.
//!
//! Inputs → outputs: a [`StarLink`] and a [`Job`] → a [`Report`] per process. Member 0 receives.
//! Orders and greetings are messages of eight octets over the same transport.

use super::latencies;
use crate::bench::clock::{Meter, now_ns};
use crate::bench::control::{Answer, GatherReport, Job, PacketReport, Report};
use crate::bench::limits::Until;
use crate::bench::result::quantile;
use crate::bench::transport::{PATIENCE, StarEndpoint, StarLink};
use crate::orders::answer;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use std::net::SocketAddr;

/// Share of a run's time that its rounds may take.
const ROUNDS_SHARE: u64 = 8;

/// What the stream shall last, if it is as fast as a short one before it, nanoseconds.
const STREAM_NS: u64 = 300_000_000;

/// Fewest rounds, however long they take: their 99th percentile is their longest.
const LEAST_ROUNDS: u64 = 5;

/// Messages of each sender in the stream that are enough for fairness: with fewer, who is first
/// would count as unfair.
const ENOUGH_STREAM: u64 = 20;

/// Fewest messages of each sender in the stream, where these are large.
const LEAST_STREAM: u64 = 5;

/// Bytes of a stream that is not to last long: about two seconds at 1 Gb/s.
const SHORT_STREAM_BYTES: u64 = 256 << 20;

/// Most messages of each sender in the stream that finds out how fast it is.
const TRIAL_STREAM: u64 = 500;

/// Most messages of each sender in the stream.
const MOST_STREAM: u64 = 50_000;

/// Round trips with a single sender before the rounds.
const IDLE_TRIPS: u64 = 15;

/// Does a member's part, reports, and stays until all are done.
pub fn run(
    endpoint: Box<dyn StarEndpoint>,
    addresses: &[SocketAddr],
    job: &Job,
    until: &Until<'_>,
) -> Result<()> {
    let mut link = endpoint.connect(addresses)?;
    let report = if job.index == 0 {
        Receiver { link: link.as_mut(), job, until, senders: job.members - 1 }.run()?
    } else {
        obey(link.as_mut(), job, until)?
    };
    answer(&Answer::Report(Box::new(report)))?;
    while until.reached()?.is_none() {
        // Who was told to stop before this side was has gone: not a fault any more.
        if link.recv().is_err() {
            std::thread::sleep(PATIENCE);
        }
    }
    Ok(())
}

/// What the receiver asks a sender for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// A message of eight octets.
    Small,
    /// So many messages of the job's size.
    Messages(u64),
    /// Nothing more.
    End,
}

impl Request {
    fn to_bytes(self) -> Bytes {
        let number = match self {
            Self::End => 0,
            Self::Small => u64::MAX,
            Self::Messages(count) => count,
        };
        Bytes::copy_from_slice(&number.to_le_bytes())
    }

    fn from_number(number: u64) -> Self {
        match number {
            0 => Self::End,
            u64::MAX => Self::Small,
            count => Self::Messages(count),
        }
    }
}

/// A sender: sends what it is asked for.
fn obey(link: &mut dyn StarLink, job: &Job, until: &Until<'_>) -> Result<Report> {
    let message = Bytes::from(vec![0x5a; job.size]);
    let small = Request::Small.to_bytes();
    let mut report = Report::default();
    let mut packets = PacketReport::default();
    link.send(0, &small)?;
    let meter = Meter::start();
    loop {
        let Some(arrival) = link.recv()? else {
            until.check()?;
            continue;
        };
        if arrival.bytes != small.len() {
            bail!("an order of {} octets came, not of {}", arrival.bytes, small.len());
        }
        if report.messages == 1 {
            packets.first = link.packets();
        }
        match Request::from_number(arrival.number) {
            Request::Small => link.send(0, &small)?,
            Request::Messages(count) => {
                for _ in 0..count {
                    link.send(0, &message)?;
                }
                report.messages += count;
            }
            Request::End => break,
        }
    }
    packets.all = link.packets();
    report.cpu_ns = meter.cpu_ns();
    report.retransmitted = Some(packets.all.retransmitted);
    report.packets = Some(packets);
    Ok(report)
}

/// The receiver of a gather.
struct Receiver<'a> {
    link: &'a mut dyn StarLink,
    job: &'a Job,
    until: &'a Until<'a>,
    senders: usize,
}

impl Receiver<'_> {
    fn run(mut self) -> Result<Report> {
        // The greetings.
        self.take(self.senders as u64, 8, |_| ())?;
        let idle_ns = self.idle_trip_ns()?;
        let meter = Meter::start();
        let mut report = Report { start_ns: meter.start_ns, ..Report::default() };
        let median_ns = self.rounds(&mut report)?;
        let (gather, messages) = self.stream_long_enough(median_ns)?;
        report.messages += messages;
        report.gather = Some(GatherReport { idle_ns, ..gather });
        (report.end_ns, report.cpu_ns) = (now_ns(), meter.cpu_ns());
        self.ask_all(Request::End)?;
        Ok(report)
    }

    /// Median round trip with one sender alone.
    fn idle_trip_ns(&mut self) -> Result<u64> {
        let request = Request::Small.to_bytes();
        let mut trips = Vec::new();
        for _ in 0..IDLE_TRIPS {
            let start_ns = now_ns();
            self.link.send(0, &request)?;
            self.take(1, 8, |_| ())?;
            trips.push(now_ns() - start_ns);
        }
        trips.sort_unstable();
        quantile(&trips, 0.5).context("no round trip was measured")
    }

    /// Gathers one message of each, again and again; the median of what that took.
    fn rounds(&mut self, report: &mut Report) -> Result<u64> {
        let size = self.job.size;
        // The first round finds its way: windows, credit, the path's size.
        self.ask_all(Request::Messages(1))?;
        self.take(self.senders as u64, size, |_| ())?;
        let mut took = latencies();
        let end_ns = now_ns() + self.job.send_ms * 1_000_000 / ROUNDS_SHARE;
        for round in 0..self.job.iters {
            let start_ns = now_ns();
            if round >= LEAST_ROUNDS && start_ns > end_ns {
                break;
            }
            self.ask_all(Request::Messages(1))?;
            self.take(self.senders as u64, size, |_| ())?;
            took.saturating_record(now_ns() - start_ns);
        }
        report.messages = (took.len() + 1) * self.senders as u64;
        report.p50_ns = Some(took.value_at_quantile(0.5));
        report.p99_ns = Some(took.value_at_quantile(0.99));
        Ok(took.value_at_quantile(0.5))
    }

    /// Gathers so many of each that it lasts [`STREAM_NS`]; and how many were gathered until it was known how many
    /// that are, too.
    fn stream_long_enough(&mut self, round_ns: u64) -> Result<(GatherReport, u64)> {
        let round_bytes = (self.senders * self.job.size) as u64;
        let least = (SHORT_STREAM_BYTES / round_bytes).clamp(LEAST_STREAM, ENOUGH_STREAM);
        // A short one first: in rounds, small messages take much longer each.
        let trial = self.stream((STREAM_NS / round_ns.max(1)).clamp(least, TRIAL_STREAM))?;
        let tried = trial.stream_messages;
        if trial.stream_ns >= STREAM_NS {
            return Ok((trial, tried));
        }
        let each = tried / self.senders as u64 * STREAM_NS / trial.stream_ns.max(1);
        let stream = self.stream(each.clamp(least, MOST_STREAM))?;
        let all = tried + stream.stream_messages;
        Ok((stream, all))
    }

    /// Gathers many of each.
    fn stream(&mut self, each: u64) -> Result<GatherReport> {
        let mut arrived = vec![0u64; self.senders];
        let mut when_first_was_done = None;
        let start_ns = now_ns();
        self.ask_all(Request::Messages(each))?;
        self.take(each * self.senders as u64, self.job.size, |lane| {
            arrived[lane] += 1;
            if arrived[lane] == each && when_first_was_done.is_none() {
                when_first_was_done = Some(jain(&arrived));
            }
        })?;
        Ok(GatherReport {
            idle_ns: 0,
            stream_messages: each * self.senders as u64,
            stream_ns: now_ns() - start_ns,
            jain: when_first_was_done.context("no sender sent all it was asked for")?,
        })
    }

    fn ask_all(&mut self, request: Request) -> Result<()> {
        let request = request.to_bytes();
        (0..self.senders).try_for_each(|lane| self.link.send(lane, &request))
    }

    /// Takes so many messages, all of `size` octets.
    fn take(&mut self, messages: u64, size: usize, mut each: impl FnMut(usize)) -> Result<()> {
        let mut taken = 0;
        while taken < messages {
            match self.link.recv()? {
                Some(arrival) if arrival.bytes == size => {
                    each(arrival.lane);
                    taken += 1;
                }
                Some(arrival) => bail!("a message of {} octets came, not of {size}", arrival.bytes),
                None => self
                    .until
                    .check()
                    .with_context(|| format!("{taken} of {messages} messages have arrived"))?,
            }
        }
        Ok(())
    }
}

/// Jain, Chiu, Hawe 1984: (Σx)² / (n Σx²).
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::control::Bench;
    use crate::bench::control::PacketCounts;
    use crate::bench::transport::Arrival;
    use crate::orders::Orders;

    #[test]
    fn requests_survive_the_way() {
        for request in [Request::Small, Request::Messages(1), Request::Messages(77), Request::End] {
            let arrival = Arrival::new(0, &request.to_bytes());
            assert_eq!(Request::from_number(arrival.number), request);
        }
    }

    #[test]
    fn one_who_gets_nothing_shows() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[6, 0]), 0.5);
    }

    /// Senders that have what they are asked for.
    struct Prompt {
        size: usize,
        owed: std::collections::VecDeque<Arrival>,
        messages: u64,
    }

    impl StarLink for Prompt {
        fn send(&mut self, lane: usize, message: &Bytes) -> Result<()> {
            let (count, bytes) = match Request::from_number(Arrival::new(lane, message).number) {
                Request::Small => (1, 8),
                Request::Messages(count) => (count, self.size),
                Request::End => (0, 0),
            };
            self.owed.extend((0..count).map(|_| Arrival { lane, bytes, number: 0 }));
            self.messages += if bytes == self.size { count } else { 0 };
            Ok(())
        }

        fn recv(&mut self) -> Result<Option<Arrival>> {
            Ok(self.owed.pop_front())
        }

        fn packets(&self) -> PacketCounts {
            PacketCounts::default()
        }
    }

    #[test]
    fn what_was_gathered_to_find_out_how_fast_it_goes_counts_too() {
        let job = Job::of_a_test(Bench::Gather, 1 << 20, 10);
        let orders = Orders::silent();
        let until = Until::stop(&orders, &job);
        let (small, senders) = (Arrival { lane: 0, bytes: 8, number: 0 }, 2);
        let mut link = Prompt { size: job.size, owed: vec![small; senders].into(), messages: 0 };
        let report = Receiver { link: &mut link, job: &job, until: &until, senders }.run().unwrap();
        assert_eq!(report.messages, link.messages);
    }
}
