//! Running `ip`, `tc` and `nft`.
//!
//! Inputs → outputs: arguments, or lines for a batch → what the tool printed, or why it refused.

use crate::LabError;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

/// Runs `tool` and returns what it printed.
pub(crate) fn run<S: AsRef<OsStr>>(tool: &'static str, args: &[S]) -> Result<String, LabError> {
    let output = Command::new(tool)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| cannot_run(tool, error))?;
    let words: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
    checked(format!("{tool} {}", words.join(" ")), output)
}

/// Runs `tool` with `args` and feeds it `input`.
pub(crate) fn feed(tool: &'static str, args: &[&str], input: &str) -> Result<String, LabError> {
    let mut child = Command::new(tool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_run(tool, error))?;
    // A tool that refuses early closes its input: what it says then is better than "broken pipe".
    let fed = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|source| LabError::Run { tool, source })?;
    let said = checked(format!("{tool} {} <<< {input:?}", args.join(" ")), output)?;
    fed.map_err(|source| LabError::Run { tool, source })?;
    Ok(said)
}

fn checked(command: String, output: Output) -> Result<String, LabError> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Refused { command, stderr })
}

fn cannot_run(tool: &'static str, source: io::Error) -> LabError {
    if source.kind() != io::ErrorKind::NotFound {
        return LabError::Run { tool, source };
    }
    let package = if tool == "nft" { "nftables" } else { "iproute2" };
    LabError::MissingTool { tool, package }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_named_with_its_package() {
        let error = cannot_run("nft", io::ErrorKind::NotFound.into());
        assert_eq!(
            error.to_string(),
            "`nft` is not installed: install the package nftables (apt-get install nftables)"
        );
    }

    #[test]
    fn a_refusal_carries_the_command_and_what_the_tool_said() {
        let error = run("sh", &["-c", "echo no >&2; exit 1"]).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c echo no >&2; exit 1` failed: no");
    }
}
