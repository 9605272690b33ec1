//! What each side of a benchmark does once the two are connected.
//!
//! Inputs → outputs: a [`Link`] and a [`Job`] → a [`Report`]. Side 0 sends first and decides when it
//! is done; side 1 goes on until it is told to stop.

mod arrivals;
mod gather;
mod mesh;
mod pace;
mod pingpong;
mod stream;
mod tally;

pub use gather::run as run_gather;
pub use mesh::run as run_mesh;
pub use pace::PaceEndpoint;
pub use pingpong::warmup_for;
pub use stream::due_ns;

use crate::bench::control::{Bench, Job, Report};
use crate::bench::limits::Until;
use crate::bench::transport::Link;
use anyhow::{Result, bail};
use hdrhistogram::Histogram;

/// Does this side's part of a benchmark between two.
pub fn run(link: &mut dyn Link, job: &Job, until: &Until<'_>) -> Result<Report> {
    match (job.bench, job.index) {
        (Bench::Pingpong, 0) => pingpong::ask(link, job, until),
        (Bench::Pingpong, _) => pingpong::answer(link, job, until),
        (Bench::Stream | Bench::Burst, 0) => stream::send(link, job),
        (Bench::Stream | Bench::Burst, _) => stream::receive(link, job, until),
        (Bench::Mesh | Bench::Gather | Bench::Rate, _) => {
            bail!("{} is not a benchmark between two", job.bench.name())
        }
    }
}

/// A histogram of latencies: 1 ns … 1 h, three digits.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are constants that fit")
}
