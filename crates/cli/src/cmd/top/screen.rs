//! Where tables are shown that change: in place on a terminal, one after the other elsewhere and on one that
//! knows no such thing (`TERM=dumb`).

use super::tables::Tables;
use console::Term;
use denrei_output::{say, text, unwritable};

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
}

impl Screen {
    pub fn open() -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
        let terminal = Some(Term::stdout()).filter(|terminal| terminal.is_term() && !is_dumb);
        if terminal.is_some() {
            text(ENTER);
        }
        Self { terminal }
    }

    /// Shows as much of them as there is room for.
    pub fn show(&self, tables: &Tables) {
        let Some(terminal) = &self.terminal else { return say!("{}", tables.whole()) };
        let (rows, columns) = terminal.size();
        let fitting = tables.fitting(rows.into());
        let lines = fitting.lines().take(rows.into());
        let cut = lines.map(|line| console::truncate_str(line, columns.into(), "…") + CLEAR_LINE);
        text(&format!("{HOME}{}{CLEAR_BELOW}", cut.collect::<Vec<_>>().join("\n")));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal.is_some() {
            denrei_output::write(LEAVE).unwrap_or_else(|error| {
                if !std::thread::panicking() {
                    unwritable(error);
                }
            });
        }
    }
}
