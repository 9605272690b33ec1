//! Standard output, which may end before the command does: `denrei bench … | head -1`; and standard error, which
//! may not take anything.
//!
//! That ends the command without a word, as it ends other programs. It unwinds rather than being killed by the signal,
//! so that processes and namespaces that were made are cleaned up, and a child that died does not take the command along.
//!
//! Inputs → outputs: lines → standard output, or the end of the command and its exit status.

#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

/// The exit status when nobody reads any more: what shells show for a program that SIGPIPE ended.
const NOBODY_READS: u8 = 141;

/// What the command unwinds with when a line cannot be written.
struct Unwritable(io::Error);

/// Prints a line, like `println!`, where that may also be the end of the command; see [`ending_with_its_reader`].
#[macro_export]
macro_rules! say {
    ($($line:tt)*) => { $crate::line(format_args!($($line)*)) };
}

/// Prints a line on standard error, like `eprintln!`, where it is no matter if nobody hears it: the exit status
/// says the same.
#[macro_export]
macro_rules! tell {
    ($($line:tt)*) => { $crate::aside(&format!("{}\n", format_args!($($line)*))) };
}

/// Writes `text` to standard error as it stands, if that takes it.
pub fn aside(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes `line` and an end of line to standard output; unwinds if that is not possible.
pub fn line(line: fmt::Arguments<'_>) {
    text(&format!("{line}\n"));
}

/// Writes `text` to standard output as it stands; unwinds if that is not possible.
pub fn text(text: &str) {
    write(text).unwrap_or_else(|error| unwritable(error));
}

/// Writes `text` to standard output as it stands.
///
/// # Errors
/// Standard output takes nothing any more; see [`end`].
pub fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

/// Ends the command because standard output failed with `error`.
pub fn unwritable(error: io::Error) -> ! {
    resume_unwind(Box::new(Unwritable(error)))
}

/// An error and what it came from. A cause whose words are in those before is not said again: many errors of the
/// library say in their own what the system's error says.
pub fn in_words(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |words, cause| {
        if words.is_empty() {
            cause
        } else if words.contains(&cause) {
            words
        } else {
            format!("{words}: {cause}")
        }
    })
}

/// The exit status of the command `name`, whose standard output failed with `error`; which it says, unless nobody
/// reads any more.
pub fn end(name: &str, error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return NOBODY_READS;
    }
    tell!("{name}: standard output cannot be written: {error}");
    3
}

/// What `run` returns, or the end of the command `name`, whose output cannot be written.
pub fn ending_with_its_reader(name: &str, run: impl FnOnce() -> ExitCode) -> ExitCode {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|cause| match cause.downcast::<Unwritable>() {
        Ok(unwritable) => ExitCode::from(end(name, &unwritable.0)),
        Err(panic) => resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let missing = anyhow::anyhow!("not found").context("cannot open x: not found").context("side 0");
        assert_eq!(in_words(&missing), "side 0: cannot open x: not found");
        assert_eq!(in_words(&anyhow::anyhow!("a").context("b")), "b: a");
    }
}
