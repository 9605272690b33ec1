//! What an attack did, and what it cost.

use serde::Serialize;

/// Longest time without a message that is no stall, ms: many probe timeouts, far below a failure
/// timeout.
pub const STALL_MS: u64 = 3_000;

/// What an attack tried.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// Datagrams or sessions that were meant to do harm.
    pub attempts: u64,
    /// What else was seen, for people.
    pub notes: Vec<String>,
    /// What did not hold, beyond what every attack is checked for.
    pub failures: Vec<String>,
}

impl Tried {
    /// Counts attempts.
    pub fn add(&mut self, attempts: usize) {
        self.attempts += attempts as u64;
    }

    /// Says something.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Says what did not hold, unless it did.
    pub fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(otherwise());
        }
    }
}

/// What came of an attack: the fields of a line of `--json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Its name.
    pub attack: &'static str,
    /// What it tries.
    pub summary: &'static str,
    /// Whether all that had to hold did.
    pub held: bool,
    /// Datagrams or sessions that were meant to do harm.
    pub attempts: u64,
    /// Messages that the victim's application took and nobody honest had sent.
    pub delivered: u64,
    /// Honest sessions lost.
    pub lost: u64,
    /// Whether the honest transfer stood still.
    pub stalled: bool,
    /// Longest time between two of its messages, ms.
    pub longest_gap_ms: u64,
    /// Messages of the honest transfer, each checked to the byte.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long the attack lasted, ms.
    pub millis: u64,
    /// The victim's resident memory before, bytes.
    pub rss_before_bytes: u64,
    /// The most it had, bytes.
    pub rss_peak_bytes: u64,
    /// CPU time the victim used meanwhile, ms.
    pub cpu_ms: u64,
    /// What it would have used for the honest transfer alone, ms.
    pub cpu_honest_ms: u64,
    /// The victim's own counters.
    pub counters: String,
    /// What else was seen.
    pub notes: Vec<String>,
    /// What did not hold.
    pub failures: Vec<String>,
}

impl Outcome {
    /// The outcome of an attack that broke something.
    pub fn failed(failure: String) -> Self {
        Self { failures: vec![failure], ..Self::default() }
    }

    /// Adds what was found to what is wrong, and decides by that whether everything held.
    pub fn judged(mut self, most_memory_bytes: u64) -> Self {
        self.stalled = self.longest_gap_ms > STALL_MS;
        let grown = self.rss_peak_bytes.saturating_sub(self.rss_before_bytes);
        let judgements = [
            (self.delivered > 0, format!("{} messages were delivered", self.delivered)),
            (self.lost > 0, format!("{} honest sessions were lost", self.lost)),
            (self.stalled, format!("nothing arrived for {} ms", self.longest_gap_ms)),
            (grown > most_memory_bytes, format!("memory grew by {} KiB", grown >> 10)),
            (self.attempts == 0, "nothing was tried".to_owned()),
        ];
        self.failures.extend(judgements.into_iter().filter_map(|(broken, why)| broken.then_some(why)));
        self.held = self.failures.is_empty();
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.held { "held" } else { "BROKEN" };
        writeln!(f, "{}: {verdict}", self.attack)?;
        writeln!(f, "  tried: {}", self.summary)?;
        writeln!(f, "  {} attempts in {} ms; {} delivered", self.attempts, self.millis, self.delivered)?;
        writeln!(
            f,
            "  honest transfer: {} messages, {} KiB, all checked; {} sessions lost; longest gap {} ms",
            self.messages,
            self.bytes >> 10,
            self.lost,
            self.longest_gap_ms
        )?;
        writeln!(
            f,
            "  victim: memory {} KiB before, at most {} since; CPU {} ms, where so long a transfer alone takes about {}",
            self.rss_before_bytes >> 10,
            self.rss_peak_bytes >> 10,
            self.cpu_ms,
            self.cpu_honest_ms
        )?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        for failure in &self.failures {
            writeln!(f, "  FAILED: {failure}")?;
        }
        Ok(())
    }
}
