//! Where tables are shown that change: in place on a terminal, one after the other elsewhere and on one that
//! knows no such thing (`TERM=dumb`).
//!
//! Inputs → outputs: tables, and the signals of a terminal → what it shows. Whoever stops or ends the command has the
//! terminal back as it was.

use super::tables::Tables;
use crate::cmd::signals::{Ending, Signal};
use anyhow::Result;
use console::Term;
use denrei_output::{say, unwritable, write};
use nix::errno::Errno;
use nix::unistd::{getpgrp, getsid};
use signal_hook::consts::{SIGCONT, SIGQUIT, SIGTSTP, SIGWINCH};
use std::io;
use std::time::{Duration, Instant};

/// A screen beside the one that the shell writes on, which comes back when it is left.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// From the first cell of the screen.
const HOME: &str = "\x1b[H";
/// What was there before behind the end of a line, and below the last.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Standard output.
pub struct Screen {
    terminal: Option<Term>,
    ending: Ending,
}

impl Screen {
    pub fn open() -> Result<Self> {
        let is_dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
        let terminal = Some(Term::stdout()).filter(|terminal| terminal.is_term() && !is_dumb);
        let signals = if terminal.is_some() { terminal_signals() } else { Vec::new() };
        let screen = Self { terminal, ending: Ending::watch_and(&signals)? };
        screen.switch(ENTER);
        Ok(screen)
    }

    /// Shows as much of them as there is room for, and again whenever that changes, for so long.
    pub fn show(&self, tables: &Tables, time: Duration) {
        let Some(terminal) = &self.terminal else {
            say!("{}", tables.whole());
            if let Some(signal) = self.ending.wait(time) {
                signal.end_process();
            }
            return;
        };
        let until = Instant::now() + time;
        loop {
            draw(terminal, tables).unwrap_or_else(|error| end_without_terminal(error));
            match self.ending.wait(until.saturating_duration_since(Instant::now())) {
                Some(signal) => self.heed(signal),
                None => return,
            }
        }
    }

    /// What is shown by now is shown anew behind it.
    fn heed(&self, signal: Signal) {
        match signal.number() {
            SIGWINCH | SIGCONT => {}
            SIGTSTP => {
                self.switch(LEAVE);
                signal.stop_process();
                self.switch(ENTER);
            }
            _ => {
                self.switch(LEAVE);
                signal.end_process();
            }
        }
    }

    /// A terminal that takes this no more takes the tables no more either, and that is said where they are shown.
    fn switch(&self, to: &str) {
        if self.terminal.is_some() {
            let _ = write(to);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.switch(LEAVE);
    }
}

/// The signal may come later than the first error, or to a shell alone that does not hand it on.
fn end_without_terminal(error: io::Error) -> ! {
    if error.raw_os_error() == Some(Errno::EIO as i32) {
        Signal::HANGUP.end_process();
    }
    unwritable(error)
}

fn draw(terminal: &Term, tables: &Tables) -> io::Result<()> {
    let (rows, columns) = terminal.size();
    let fitting = tables.fitting(rows.into());
    let lines = fitting.lines().take(rows.into());
    let cut = lines.map(|line| console::truncate_str(line, columns.into(), "…") + CLEAR_LINE);
    write(&format!("{HOME}{}{CLEAR_BELOW}", cut.collect::<Vec<_>>().join("\n")))
}

/// Those that a terminal sends beside those that end a process. Where nobody would continue the command, in the
/// group that a session began with, the system lets nobody stop it by a key.
fn terminal_signals() -> Vec<i32> {
    let can_be_continued = getsid(None).is_ok_and(|session| session != getpgrp());
    [SIGWINCH, SIGCONT, SIGQUIT].into_iter().chain(can_be_continued.then_some(SIGTSTP)).collect()
}
