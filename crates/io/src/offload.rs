//! On which paths segmentation offload works.
//!
//! Inputs → outputs: trains that offload took or refused → whether the next one tries. What refuses may have a cause
//! that passes (an address that was away for a moment, another interface), and the kernel does not tell which: so
//! a path that refused tries again, seldom.

use std::net::IpAddr;

/// Paths remembered as refusing offload; with more, it is switched off for all.
const MAX_DISABLED_PATHS: usize = 32;

/// Trains that go segment by segment after a refusal, twice as many after each that follows: a try is a call that fails.
const FIRST_PAUSE: u32 = 1 << 10;
const LONGEST_PAUSE: u32 = 1 << 20;

/// Trains that still go segment by segment, of so many.
#[derive(Debug)]
struct Pause {
    left: u32,
    of: u32,
}

impl Pause {
    fn first() -> Self {
        Self { left: FIRST_PAUSE, of: FIRST_PAUSE }
    }

    /// It refused again.
    fn renew(&mut self) {
        self.of = (2 * self.of).min(LONGEST_PAUSE);
        self.left = self.of;
    }

    /// Whether a train of those goes segment by segment.
    fn takes_one(&mut self) -> bool {
        let takes = self.left > 0;
        self.left = self.left.saturating_sub(1);
        takes
    }
}

/// What is known of all paths.
#[derive(Debug)]
pub(crate) struct GsoPaths {
    announced: bool,
    off: Vec<(IpAddr, Pause)>,
    /// Since more paths refused than are remembered.
    all_off: Option<Pause>,
}

impl GsoPaths {
    pub(crate) fn new(announced: bool) -> Self {
        Self { announced, off: Vec::new(), all_off: None }
    }

    pub(crate) fn enabled(&self) -> bool {
        self.announced && self.all_off.as_ref().is_none_or(|pause| pause.left == 0)
    }

    pub(crate) fn disabled_paths(&self) -> usize {
        self.off.len()
    }

    pub(crate) fn works_to(&self, ip: IpAddr) -> bool {
        self.enabled() && !self.off.iter().any(|(path, _)| *path == ip)
    }

    /// Whether a train to `ip` goes by offload, perhaps to see whether that works again.
    pub(crate) fn is_worth_a_try(&mut self, ip: IpAddr) -> bool {
        if !self.announced || self.all_off.as_mut().is_some_and(Pause::takes_one) {
            return false;
        }
        let path = self.off.iter_mut().find(|(path, _)| *path == ip);
        !path.is_some_and(|(_, pause)| pause.takes_one())
    }

    /// Offload took a train to `ip`.
    pub(crate) fn enable(&mut self, ip: IpAddr) {
        if !self.off.is_empty() {
            self.off.retain(|(path, _)| *path != ip);
        }
    }

    /// Switches offload off for `ip`, or for all once the table is full, until it is tried again.
    pub(crate) fn disable(&mut self, ip: IpAddr) {
        if let Some((_, pause)) = self.off.iter_mut().find(|(path, _)| *path == ip) {
            pause.renew();
        } else if self.off.len() < MAX_DISABLED_PATHS {
            self.off.push((ip, Pause::first()));
        } else if let Some(pause) = &mut self.all_off {
            pause.renew();
        } else {
            self.all_off = Some(Pause::first());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, last as u8])
    }

    /// Trains to `ip` until one goes by offload.
    fn trains_until_a_try(paths: &mut GsoPaths, ip: IpAddr) -> u32 {
        (0..).find(|_| paths.is_worth_a_try(ip)).unwrap()
    }

    #[test]
    fn offload_is_switched_off_path_by_path_and_then_for_all() {
        let mut paths = GsoPaths::new(true);
        for last in 0..MAX_DISABLED_PATHS {
            assert!(paths.works_to(ip(last)));
            paths.disable(ip(last));
            assert!(!paths.works_to(ip(last)));
        }
        assert!(paths.enabled() && paths.works_to(ip(200)));
        paths.disable(ip(200));
        assert!(!paths.enabled() && !paths.works_to(ip(201)));
        assert_eq!(paths.disabled_paths(), MAX_DISABLED_PATHS);
        assert_eq!(trains_until_a_try(&mut paths, ip(201)), FIRST_PAUSE);
        assert!(paths.enabled() && paths.works_to(ip(201)) && !paths.works_to(ip(0)));
        paths.disable(ip(201));
        assert_eq!(trains_until_a_try(&mut paths, ip(201)), 2 * FIRST_PAUSE);
    }

    #[test]
    fn what_refused_is_tried_again_seldom_and_used_once_it_works() {
        let mut paths = GsoPaths::new(true);
        let mut pause = FIRST_PAUSE;
        for _ in 0..15 {
            paths.disable(ip(1));
            assert_eq!(trains_until_a_try(&mut paths, ip(1)), pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        paths.enable(ip(1));
        assert!(paths.works_to(ip(1)) && paths.is_worth_a_try(ip(1)));
        assert_eq!(paths.disabled_paths(), 0);
        paths.disable(ip(1));
        assert_eq!(trains_until_a_try(&mut paths, ip(1)), FIRST_PAUSE);
        assert!(!GsoPaths::new(false).is_worth_a_try(ip(1)));
    }
}
