//! `cargo xtask sim`: many seeds on all cores.
//!
//! Inputs → outputs: a range of seeds → exit status 0 and what the faults did, or the first
//! failures with the command that reproduces each, and exit status 1.

use anyhow::anyhow;
use clap::Args;
use denrei_sim::FaultCounts;
use denrei_sim::oracle::Totals;
use denrei_sim::scenario::{self, Failure, Subject, Summary};
use std::any::Any;
use std::cell::RefCell;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// How often progress is told on a terminal.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// How often it is told in a log, where each time is a line.
const LOG_PROGRESS_EVERY: Duration = Duration::from_secs(30);

/// So many of the seeds that took longest to settle are named.
const LATE_SEEDS: usize = 5;

#[derive(Args)]
pub struct SimArgs {
    /// Groups: their openers, members and faults; without it sessions alone. A seed names another run then
    #[arg(long)]
    groups: bool,
    /// How many seeds to run
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Run this seed alone
    #[arg(long, conflicts_with_all = ["seeds", "start"])]
    seed: Option<u64>,
    /// Print what each seed did, or the operations of a single one
    #[arg(long)]
    verbose: bool,
    /// With --seed: print every datagram, event and timeout, of the shortest failing operations if it fails
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Give up after so many failures
    #[arg(long, default_value_t = 10)]
    failures: usize,
    /// Threads; all cores if not given
    #[arg(long)]
    jobs: Option<usize>,
}

impl SimArgs {
    fn subject(&self) -> Subject {
        if self.groups { Subject::Groups } else { Subject::Sessions }
    }
}

/// What all seeds did together.
#[derive(Default)]
struct Sum {
    counts: FaultCounts,
    totals: Totals,
    happenings: u64,
    virtual_time: Duration,
    slowest: (Duration, u64),
    /// Those that took longest to settle on their own clock, longest first.
    late: Vec<(Duration, u64)>,
    failures: Vec<Failure>,
}

impl Sum {
    fn add(&mut self, seed: u64, took: Duration, result: Result<Summary, Failure>) {
        match result {
            Err(failure) => self.failures.push(failure),
            Ok(summary) => {
                self.counts += summary.counts;
                self.totals += summary.totals;
                self.happenings += summary.happenings;
                self.virtual_time += summary.virtual_time;
                self.late.push((summary.settling, seed));
                self.late.sort_unstable_by(|one, other| other.cmp(one));
                self.late.truncate(LATE_SEEDS);
            }
        }
        self.slowest = self.slowest.max((took, seed));
    }
}

pub fn run(arguments: &SimArgs) -> anyhow::Result<ExitCode> {
    keep_panics_quiet();
    match arguments.seed {
        Some(seed) => Ok(run_one(seed, arguments)),
        None => run_many(arguments),
    }
}

fn run_one(seed: u64, arguments: &SimArgs) -> ExitCode {
    if arguments.verbose {
        let (setup, ops) = arguments.subject().generate(seed);
        crate::say!("{setup}operations ({}):", ops.len());
        for (number, op) in ops.iter().enumerate() {
            crate::say!("  {number:3}. {op}");
        }
    }
    let result = arguments.subject().run_seed(seed);
    if arguments.trace {
        let (setup, ops) = match &result {
            Ok(_) => arguments.subject().generate(seed),
            Err(failure) => (failure.setup.as_ref().clone(), failure.ops.clone()),
        };
        // Its result is the one that follows.
        let _ = scenario::run_traced(&setup, &ops, Some(|line| crate::say!("{line}")));
    }
    match result {
        Ok(summary) => {
            crate::say!("seed {seed}: ok\n{summary:#?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            crate::say!("{failure}{}", last_panic());
            ExitCode::FAILURE
        }
    }
}

fn run_many(arguments: &SimArgs) -> anyhow::Result<ExitCode> {
    let jobs = match arguments.jobs {
        Some(jobs) => jobs.max(1),
        None => std::thread::available_parallelism()?.get(),
    };
    let began = Instant::now();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..jobs).map(|_| scope.spawn(|| work(arguments, &next, &done, &sum))).collect();
        tell_progress(arguments.seeds, &done, &workers, &sum);
        let ends: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
        ends.into_iter().try_for_each(|end| end.map_err(|panic| anyhow!("a thread died: {}", words(&*panic))))
    })?;
    let sum = sum.into_inner().expect("no worker panics while it holds the lock");
    Ok(report(&sum, done.into_inner(), began.elapsed()))
}

fn work(arguments: &SimArgs, next: &AtomicU64, done: &AtomicU64, sum: &Mutex<Sum>) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= arguments.seeds {
            return;
        }
        let seed = arguments.start.wrapping_add(number);
        let began = Instant::now();
        let result = arguments.subject().run_seed(seed);
        let took = began.elapsed();
        if let Err(failure) = &result {
            crate::say!("\n{failure}{}\n", last_panic());
        } else if let (Ok(summary), true) = (&result, arguments.verbose) {
            crate::say!("seed {seed}: digest {:016x}, {took:.1?}, {:?}", summary.digest, summary.totals);
        }
        let mut sum = sum.lock().expect("no worker panics while it holds the lock");
        sum.add(seed, took, result);
        done.fetch_add(1, Ordering::Relaxed);
        if sum.failures.len() >= arguments.failures.max(1) {
            // Hands out no more seeds.
            next.store(arguments.seeds, Ordering::Relaxed);
        }
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("it did not say why")
}

fn tell_progress(seeds: u64, done: &AtomicU64, workers: &[ScopedJoinHandle<'_, ()>], sum: &Mutex<Sum>) {
    let terminal = std::io::stderr().is_terminal();
    let every = if terminal { PROGRESS_EVERY } else { LOG_PROGRESS_EVERY };
    let began = Instant::now();
    let mut told = began;
    while !workers.iter().all(ScopedJoinHandle::is_finished) {
        // Short, so that a quick run is not held up.
        std::thread::sleep(Duration::from_millis(20));
        if told.elapsed() < every {
            continue;
        }
        told = Instant::now();
        let done = done.load(Ordering::Relaxed);
        let failures = sum.lock().map_or(0, |sum| sum.failures.len());
        let per_s = done as f64 / began.elapsed().as_secs_f64();
        let (before, after) = if terminal { ("\r", "   ") } else { ("", "\n") };
        eprint!("{before}{done} of {seeds} seeds, {per_s:.0}/s, {failures} failed{after}");
        let _ = std::io::stderr().flush();
    }
    if terminal {
        eprintln!();
    }
}

fn report(sum: &Sum, done: u64, took: Duration) -> ExitCode {
    let totals = &sum.totals;
    crate::say!(
        "{} messages sent, {} received ({:.1} GB), {} reported unacknowledged; {} sides of sessions, {} lost; \
         {} happenings in {:.0} s of virtual time; slowest seed {} with {:.0?}",
        totals.sent,
        totals.received,
        totals.received_bytes as f64 / 1e9,
        totals.unacknowledged,
        totals.sessions,
        totals.lost_sessions,
        sum.happenings,
        sum.virtual_time.as_secs_f64(),
        sum.slowest.1,
        sum.slowest.0,
    );
    if totals.groups > 0 {
        crate::say!(
            "{} groups opened, {} memberships, {} members departed; {} messages to groups, {} received",
            totals.groups,
            totals.memberships,
            totals.departed,
            totals.group_sent,
            totals.group_received,
        );
    }
    let late: Vec<_> =
        sum.late.iter().map(|(took, seed)| format!("{:.1} s (seed {seed})", took.as_secs_f64())).collect();
    crate::say!("longest to settle in the healed network: {}", late.join(", "));
    let faults: Vec<_> = sum.counts.entries().map(|(name, count)| format!("{name} {count}")).collect();
    crate::say!("faults: {}", faults.join(", "));
    for failure in &sum.failures {
        crate::say!("failed: seed {}: {}", failure.seed, failure.what.lines().next().unwrap_or_default());
    }
    let failed = sum.failures.len();
    crate::say!("{done} seeds, {failed} failed, {:.1} s", took.as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The core's panics are failures of a seed, told with it: shrinking would print hundreds.
fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|panic| {
        LAST_PANIC.with(|last| *last.borrow_mut() = Some(panic.to_string()));
    }));
}

fn last_panic() -> String {
    LAST_PANIC
        .with(|last| last.borrow_mut().take())
        .map_or_else(String::new, |panic| format!("\nlast panic: {panic}"))
}
