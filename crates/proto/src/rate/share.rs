//! Who gets how much of what there is: weighted max-min fairness (R10, R13).
//!
//! Inputs → outputs: a capacity, and what each wants with its weight → a share each. Source: R13;
//! Bertsekas and Gallager, *Data Networks*, §6.5.2 (progressive filling). Nobody's share can grow
//! but at the cost of somebody who has less for its weight; what one does not want the others have.

use core::cmp::Ordering;

/// Who is not held back may use that much more than it does, in 1/4.
const HEADROOM: u64 = 5;

/// One who wants a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Relative to the others', at least 1.
    pub weight: u32,
    /// Most that it can use, in the unit of the capacity; `None`: all there is.
    pub most: Option<u64>,
}

impl Want {
    /// Of one that uses `lately` of the unit of the capacity, and would use more if it is held back.
    pub fn of(weight: u32, lately: u64, held_back: bool) -> Self {
        Self { weight, most: (!held_back).then(|| lately.saturating_mul(HEADROOM) / 4) }
    }

    /// Compares what two want for their weight, without rounding.
    fn compare(&self, other: &Self) -> Ordering {
        let scaled = |most: u64, weight: u32| most as u128 * weight.max(1) as u128;
        match (self.most, other.most) {
            (Some(one), Some(two)) => scaled(one, other.weight).cmp(&scaled(two, self.weight)),
            (one, two) => one.is_none().cmp(&two.is_none()),
        }
    }
}

/// The shares of `capacity`, in the order of `wants`. Together they are never more than `capacity`,
/// and less only if nobody wants the rest, or by rounding: one unit each at most.
pub fn max_min(capacity: u64, wants: &[Want]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|&one, &two| wants[one].compare(&wants[two]));
    let mut shares = vec![0; wants.len()];
    let mut left = capacity as u128;
    let mut weights: u128 = wants.iter().map(|want| want.weight.max(1) as u128).sum();
    for at in order {
        let weight = wants[at].weight.max(1) as u128;
        let fair = left * weight / weights;
        let share = wants[at].most.map_or(fair, |most| fair.min(most as u128));
        shares[at] = u64::try_from(share).unwrap_or(u64::MAX);
        left -= share;
        weights -= weight;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Option<u64> = None;

    #[test]
    fn shares_computed_by_hand() {
        /// Capacity, wants as weight and most, shares.
        type Row<'a> = (u64, &'a [(u32, Option<u64>)], &'a [u64]);
        let table: &[Row<'_>] = &[
            (100, &[], &[]),
            (100, &[(1, ALL)], &[100]),
            (100, &[(1, Some(30))], &[30]),
            (100, &[(1, ALL), (1, ALL), (2, ALL)], &[25, 25, 50]),
            // What the first does not want the others have.
            (100, &[(1, Some(10)), (1, ALL), (1, ALL)], &[10, 45, 45]),
            (100, &[(1, Some(40)), (1, Some(20)), (1, Some(90))], &[40, 20, 40]),
            // More for its weight: 60 of 3 is less than 30 of 1.
            (90, &[(1, Some(30)), (3, Some(60))], &[30, 60]),
            (80, &[(1, Some(30)), (3, Some(60))], &[20, 60]),
            (0, &[(1, ALL), (1, Some(5))], &[0, 0]),
            (u64::MAX, &[(u32::MAX, ALL), (u32::MAX, Some(1))], &[u64::MAX - 1, 1]),
        ];
        for (capacity, wants, expected) in table {
            let wants: Vec<Want> = wants.iter().map(|&(weight, most)| Want { weight, most }).collect();
            assert_eq!(max_min(*capacity, &wants), *expected, "{capacity} for {wants:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_left_that_somebody_wants_and_nobody_has_more_for_its_weight_than_one_who_lacks(
            capacity in 0u64..10_000_000,
            wants in prop::collection::vec((1u32..10_000, prop::option::of(0u64..2_000_000)), 1..60),
        ) {
            let wants: Vec<Want> = wants.into_iter().map(|(weight, most)| Want { weight, most }).collect();
            let shares = max_min(capacity, &wants);
            let sum: u64 = shares.iter().sum();
            prop_assert!(sum <= capacity);
            let lacks = |at: usize| wants[at].most.is_none_or(|most| shares[at] < most);
            let anybody_lacks = (0..wants.len()).any(lacks);
            prop_assert!(!anybody_lacks || capacity - sum <= wants.len() as u64, "{} left", capacity - sum);
            for (at, want) in wants.iter().enumerate() {
                prop_assert!(want.most.is_none_or(|most| shares[at] <= most));
                for other in (0..wants.len()).filter(|&other| lacks(other)) {
                    // One unit of rounding for each who was served before.
                    let (units, weight) = (wants.len() as u64, want.weight as f64);
                    let mine = shares[at].saturating_sub(units) as f64 / weight;
                    let lacking = (shares[other] + units) as f64 / wants[other].weight as f64;
                    prop_assert!(mine <= lacking + 1e-9, "{at} has {mine}, {other} only {lacking}");
                }
            }
        }

        #[test]
        fn the_order_does_not_matter(
            capacity in 0u64..1_000_000,
            wants in prop::collection::vec((1u32..100, prop::option::of(0u64..100_000)), 1..20),
        ) {
            let wants: Vec<Want> = wants.into_iter().map(|(weight, most)| Want { weight, most }).collect();
            let shares = max_min(capacity, &wants);
            let reversed: Vec<Want> = wants.iter().rev().copied().collect();
            let mut other = max_min(capacity, &reversed);
            other.reverse();
            for (one, two) in shares.iter().zip(other) {
                prop_assert!(one.abs_diff(two) <= wants.len() as u64);
            }
        }
    }
}
