//! Counts the instructions of denrei's own work on a small message, so that growth does not go unnoticed.
//!
//! Inputs → outputs: the program `exchange` of denrei-proto under callgrind, run with two counts →
//! instructions per 64-byte message sent and received, the difference divided by the messages, so
//! that start and end of the program cancel out; system calls are not part of it. Compared with the
//! figure in `benches/instructions.toml`.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Exchanges of the shorter run: past the opening of the session and the search for the path's MTU.
const FEW: u64 = 2_000;
/// Exchanges of the longer run; under valgrind it takes about a second.
const MANY: u64 = 12_000;
/// An exchange is a message there and one back.
const MESSAGES_PER_EXCHANGE: u64 = 2;
/// Growth that passes, as a share: compilers and allocators move the figure by less.
const TOLERANCE: f64 = 0.02;
/// The figure compared with, from the directory of this package.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/instructions.toml");
/// What stands above the figure.
const HEADER: &str = "\
# Instructions that denrei's core takes for one 64-byte message, sent and received, without system
# calls: crates/proto/src/bin/exchange.rs under callgrind. `cargo xtask instructions` fails when it
# has grown by more than 2 %.
#
# To accept a new figure: cargo xtask instructions --accept, and say in the commit what it bought.
#
# Figures hold under valgrind only. It emulates a processor of its own (without AVX-512), so the
# CRC takes another path than outside; and only for this architecture and the pinned compiler.
";

/// Arguments of `cargo xtask instructions`.
#[derive(Args)]
pub struct InstructionsArgs {
    /// Write the figure measured now to benches/instructions.toml.
    #[arg(long)]
    accept: bool,
    /// Further configuration of the cargo that builds what is measured.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The content of `benches/instructions.toml`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    arch: String,
    instructions_per_message: f64,
}

/// Measures and compares, or accepts.
pub fn run(arguments: &InstructionsArgs) -> Result<ExitCode> {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        skip("valgrind is not installed (apt-get install valgrind)")?;
        return Ok(ExitCode::SUCCESS);
    }
    let program = build(arguments.config.as_deref())?;
    let spent = count(&program, MANY)?.checked_sub(count(&program, FEW)?);
    let spent = spent.context("more exchanges took fewer instructions: the program does not exchange")?;
    let per_message = spent as f64 / ((MANY - FEW) * MESSAGES_PER_EXCHANGE) as f64;
    let measured = Record { arch: std::env::consts::ARCH.into(), instructions_per_message: per_message };
    if arguments.accept {
        write_record(&measured)?;
        crate::say!("accepted: {per_message:.1} instructions per 64-byte message sent and received");
        return Ok(ExitCode::SUCCESS);
    }
    let text = std::fs::read_to_string(RECORD).context("no figure to compare with: run with --accept")?;
    let record: Record = toml::from_str(&text).context("benches/instructions.toml cannot be read")?;
    if record.arch != measured.arch {
        skip(&format!("the figure holds for {}, this is {}", record.arch, measured.arch))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (passed, verdict) = compare(record.instructions_per_message, per_message);
    crate::say!("instructions per 64-byte message sent and received: {verdict}");
    let (word, passes, failures) = if passed { ("ok", 1, 0) } else { ("FAILED", 0, 1) };
    crate::say!(
        "test result: {word}. {passes} passed; {failures} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether `measured` may pass, and the words for it.
fn compare(recorded: f64, measured: f64) -> (bool, String) {
    let growth = measured / recorded - 1.0;
    let figures = format!("{measured:.1}, recorded {recorded:.1}, {:+.2} %", growth * 100.0);
    if growth > TOLERANCE {
        let advice = "that is more than 2 %: make it cheaper, or accept it with --accept and say why";
        return (false, format!("{figures}; {advice}"));
    }
    if growth < -TOLERANCE {
        return (true, format!("{figures}; keep the gain with --accept"));
    }
    (true, figures)
}

/// Builds the program; where it is.
fn build(config: Option<&Path>) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "--package", "denrei-proto", "--bin", "exchange"])
        .args(config.iter().flat_map(|file| [OsStr::new("--config"), file.as_os_str()]))
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the program exchange does not build");
    executable(&String::from_utf8(output.stdout)?)
}

/// The program among cargo's messages.
fn executable(messages: &str) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    messages
        .filter_map(|message| message.executable)
        .next_back()
        .context("cargo did not say where the program is")
}

/// Instructions of a run with so many exchanges.
fn count(program: &Path, exchanges: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .arg(exchanges.to_string())
        .output()
        .context("cannot run valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind failed ({}): {said}", output.status);
    }
    collected(&said).with_context(|| format!("callgrind reports no count: {said}"))
}

/// The count among what callgrind says.
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}

fn write_record(record: &Record) -> Result<()> {
    let rounded = (record.instructions_per_message * 10.0).round() / 10.0;
    let record = Record { arch: record.arch.clone(), instructions_per_message: rounded };
    let text = format!("{HEADER}\n{}", toml::to_string(&record)?);
    std::fs::write(RECORD, text).with_context(|| format!("cannot write {RECORD}"))
}

/// Says loudly that nothing was measured.
fn skip(reason: &str) -> Result<()> {
    let line = format!("SKIPPED: instructions: {reason}");
    crate::say!("{line}");
    if let Some(log) = std::env::var_os("DENREI_SKIP_LOG") {
        let mut log = OpenOptions::new().append(true).create(true).open(log)?;
        writeln!(log, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_two_percent_fails() {
        assert!(compare(1000.0, 1019.0).0 && compare(1000.0, 900.0).0);
        let (passed, words) = compare(1000.0, 1021.0);
        assert!(!passed && words.contains("+2.10 %") && words.contains("--accept"), "{words}");
    }

    #[test]
    fn the_count_is_found_in_what_callgrind_says() {
        let said = "==7== Events    : Ir\n==7== Collected : 119585911\n==7== \n";
        assert_eq!(collected(said), Some(119_585_911));
        assert_eq!(collected("==7== killed"), None);
    }

    #[test]
    fn the_program_is_found_among_cargos_messages() {
        let messages =
            "{\"reason\":\"a\",\"executable\":null}\n{\"executable\":\"/x/exchange\"}\n{\"success\":true}";
        assert_eq!(executable(messages).unwrap(), Path::new("/x/exchange"));
        assert!(executable("").is_err());
    }

    #[test]
    fn the_committed_figure_can_be_read() {
        let record: Record = toml::from_str(&std::fs::read_to_string(RECORD).unwrap()).unwrap();
        assert!(record.instructions_per_message > 0.0);
    }
}
