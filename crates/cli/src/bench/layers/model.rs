//! What more cores than there are would do: a model, held against what was measured.
//!
//! Inputs → outputs: times per PDU of 1–4 layers in one thread, and of 2 in two → times for a core each.
//!
//! Assumptions: every layer costs the same, `layer`; the user costs `user` on top, in the top layer's
//! thread; both follow from the straight line through the run-to-completion times. A pair of queues
//! between two threads costs each of them `hand_over`, which follows from two layers in two threads.
//! The slowest thread sets the pace (L8). Not in it: memory bandwidth, cores that share a cache, and
//! layers that do not keep each other busy (small credit).

/// Costs per PDU, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    pub user: f64,
    pub layer: f64,
    pub hand_over: f64,
}

impl Model {
    /// From the times of 1, 2, … layers in one thread, and of two in two threads.
    pub fn fit(together: &[f64], two_in_two: f64) -> Option<Self> {
        let count = together.len() as f64;
        if together.len() < 2 {
            return None;
        }
        let mean_x = (count + 1.0) / 2.0;
        let mean_y = together.iter().sum::<f64>() / count;
        let centred = together.iter().enumerate().map(|(index, y)| (index as f64 + 1.0 - mean_x, y - mean_y));
        let (above, below) = centred.fold((0.0, 0.0), |sum, (x, y)| (sum.0 + x * y, sum.1 + x * x));
        let layer = (above / below).max(0.0);
        let user = (mean_y - layer * mean_x).max(0.0);
        Some(Self { user, layer, hand_over: (two_in_two - user - layer).max(0.0) })
    }

    /// Time per PDU of groups of layers in a thread and on a core each.
    pub fn predict(&self, groups: &[usize]) -> f64 {
        let last = groups.len() - 1;
        let time = |(index, layers): (usize, &usize)| {
            let neighbours = usize::from(index > 0) + usize::from(index < last);
            let user = if index == 0 { self.user } else { 0.0 };
            user + *layers as f64 * self.layer + neighbours as f64 * self.hand_over
        };
        groups.iter().enumerate().map(time).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_found_and_the_slowest_thread_sets_the_pace() {
        let model = Model::fit(&[50.0, 80.0, 110.0, 140.0], 62.0).unwrap();
        assert!((model.user - 20.0).abs() < 1e-9 && (model.layer - 30.0).abs() < 1e-9);
        assert!((model.hand_over - 12.0).abs() < 1e-9);
        assert!((model.predict(&[4]) - 140.0).abs() < 1e-9);
        assert!((model.predict(&[2, 2]) - 92.0).abs() < 1e-9);
        assert!((model.predict(&[1, 1, 1, 1]) - 62.0).abs() < 1e-9);
        assert_eq!(Model::fit(&[50.0], 60.0), None);
    }
}
