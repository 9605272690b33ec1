//! Makes a failing list of operations short: delta debugging (Zeller and Hildebrandt 2002) by
//! leaving out ever smaller stretches for as long as the rest still fails.

use super::generate::Setup;
use super::ops::TimedOp;
use super::{Failure, Subject, run_ops};
use core::time::Duration;

/// Runs spent on one failure. A list of 90 operations needs some 200.
const MAX_RUNS: usize = 500;

pub(super) fn shrink(
    subject: Subject,
    seed: u64,
    setup: Setup,
    mut ops: Vec<TimedOp>,
    mut what: String,
) -> Failure {
    let mut runs = 0;
    let mut stretch = ops.len().div_ceil(2);
    while stretch > 0 && runs < MAX_RUNS {
        let before = ops.len();
        let mut at = 0;
        while at < ops.len() && runs < MAX_RUNS {
            let shorter = without(&ops, at, stretch);
            runs += 1;
            match run_ops(&setup, &shorter) {
                Err(still) => (ops, what) = (shorter, still),
                Ok(_) => at += stretch,
            }
        }
        if stretch == 1 && ops.len() == before {
            break;
        }
        stretch = if stretch == 1 { 1 } else { stretch.div_ceil(2) };
    }
    Failure { subject, seed, what, setup: Box::new(setup), ops }
}

/// `ops` without `count` of them from `at` on; the time they took is kept.
fn without(ops: &[TimedOp], at: usize, count: usize) -> Vec<TimedOp> {
    let end = (at + count).min(ops.len());
    let mut rest = [&ops[..at], &ops[end..]].concat();
    let saved: Duration = ops[at..end].iter().map(|op| op.after).sum();
    if let Some(next) = rest.get_mut(at) {
        next.after += saved;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::super::ops::TestOp;
    use super::*;

    #[test]
    fn leaving_out_keeps_the_time() {
        let op = |ms| TimedOp { after: Duration::from_millis(ms), op: TestOp::Heal };
        let ops = [op(1), op(2), op(3), op(4)];
        assert_eq!(without(&ops, 1, 2), [op(1), op(9)]);
        assert_eq!(without(&ops, 3, 5), [op(1), op(2), op(3)]);
    }
}
