//! What people see while a cast is under way: bars on a terminal, nothing elsewhere.

use denrei_cast::{MemberProgress, ReceiveProgress, SendProgress, State, named};
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::net::SocketAddr;
use std::time::Duration;

/// Receivers that get a line of their own: more do not fit on a screen. Those furthest behind do.
const MAX_LINES: usize = 16;

/// A size for people.
pub fn bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

/// A time for people.
pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// A receiver, by its address and, once that is known, what it calls itself.
pub fn who(addr: SocketAddr, name: &str) -> String {
    let addr = named(addr);
    if name.is_empty() { addr } else { format!("{addr} {name}") }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let known = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {msg}";
    let unknown = "{spinner} {bytes} {bytes_per_sec} {msg}";
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), known),
        None => (ProgressBar::new_spinner(), unknown),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style)
}

/// The sender's: what the slowest has, and a line for each receiver.
pub struct SendBars {
    all: MultiProgress,
    main: Option<ProgressBar>,
    lines: Vec<ProgressBar>,
}

impl SendBars {
    /// `hidden` shows nothing.
    pub fn new(hidden: bool) -> Self {
        let all = MultiProgress::new();
        if hidden {
            all.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self { all, main: None, lines: Vec::new() }
    }

    /// Shows how it goes.
    pub fn show(&mut self, progress: &SendProgress) {
        let main = self.main.get_or_insert_with(|| self.all.add(bar(progress.total_bytes)));
        let taking =
            |member: &&MemberProgress| !matches!(member.state, State::Failed { .. } | State::Absent { .. });
        let most = progress.members.iter().filter(taking).map(held(progress)).max().unwrap_or(0);
        main.set_position(most);
        let through = progress.members.iter().filter(|member| matches!(member.state, State::Complete { .. }));
        main.set_message(format!("{} of {} receivers complete", through.count(), progress.members.len()));
        let mut members: Vec<&MemberProgress> = progress.members.iter().collect();
        members.sort_by_key(|member| held(progress)(member));
        while self.lines.len() < members.len().min(MAX_LINES) {
            let style =
                ProgressStyle::with_template("  {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            self.lines.push(self.all.add(ProgressBar::new_spinner().with_style(style)));
        }
        for (line, member) in self.lines.iter().zip(members) {
            line.set_message(line_of(member, held(progress)(member), most));
        }
    }

    /// Takes everything off the screen.
    pub fn clear(&self) {
        // Not a terminal any more: nothing to clear.
        let _ = self.all.clear();
    }
}

/// What a member has: everything once it is complete, though its last word of progress was earlier.
fn held(progress: &SendProgress) -> impl Fn(&MemberProgress) -> u64 {
    let total = progress.total_bytes;
    move |member| match member.state {
        State::Complete { .. } => total.unwrap_or(member.bytes),
        _ => member.bytes,
    }
}

fn line_of(member: &MemberProgress, held: u64, most: u64) -> String {
    let state = match &member.state {
        State::Absent { why: None } => "not there yet".to_owned(),
        State::Absent { why: Some(why) } => format!("vanished: {why}"),
        State::Invited => "has been asked".to_owned(),
        State::Receiving => format!("{}, {} behind", HumanBytes(held), HumanBytes(most.saturating_sub(held))),
        State::Complete { .. } => "complete".to_owned(),
        State::Failed { text, .. } => format!("failed: {text}"),
    };
    format!("{}: {state}", who(member.addr, &member.name))
}

/// The receiver's.
pub struct RecvBar {
    hidden: bool,
    bar: Option<ProgressBar>,
}

impl RecvBar {
    /// `hidden` shows nothing.
    pub fn new(hidden: bool) -> Self {
        Self { hidden, bar: None }
    }

    /// Shows how it goes.
    pub fn show(&mut self, progress: &ReceiveProgress) {
        let Some(sender) = progress.sender else { return };
        let hidden = self.hidden;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = bar(progress.total_bytes);
            if hidden {
                bar.set_draw_target(ProgressDrawTarget::hidden());
            }
            bar.with_message(format!("from {}", named(sender)))
        });
        bar.set_position(progress.bytes);
    }

    /// Takes it off the screen.
    pub fn clear(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_behind_a_receiver_is() {
        let addr = "10.0.0.1:7117".parse().unwrap();
        let member = |state| MemberProgress { addr, name: "one".into(), bytes: 1024, state };
        let line = line_of(&member(State::Receiving), 1024, 3072);
        assert_eq!(line, "10.0.0.1:7117 one: 1.00 KiB, 2.00 KiB behind");
        let absent = MemberProgress { name: String::new(), ..member(State::Absent { why: None }) };
        assert_eq!(line_of(&absent, 0, 3072), "10.0.0.1:7117: not there yet");
        let failed = State::Failed { text: "no room".into(), code: None };
        assert!(line_of(&member(failed), 0, 9).ends_with("failed: no room"));
    }
}
