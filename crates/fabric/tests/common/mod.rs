//! What the tests with other programs share.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The provider that cargo has built beside this test, under the name that libfabric looks for.
pub fn provider(into: &Path) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let beside = here.ancestors().skip(1).map(|directory| directory.join("libdenrei_fi.so"));
    let built =
        beside.take(2).find(|path| path.is_file()).expect("cargo builds the library before its tests");
    std::fs::copy(built, into.join("libdenrei-fi.so")).unwrap();
    into.to_owned()
}

/// Where the programs' sources are.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// A command that ends after so many seconds, with only the provider's own settings.
pub fn limited(seconds: u32, program: &Path, provider: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &seconds.to_string()]).arg(program);
    command.env("FI_PROVIDER_PATH", provider).env("FI_PROVIDER", "denrei");
    command.env_remove("DENREI_KEY_FILE").env_remove("FI_DENREI_INSECURE");
    command
}

/// The program ended well.
pub fn assert_good(what: &str, output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{text}\n{errors}", output.status);
}
