//! `denrei keygen` as its users run it, and what loads its files.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn denrei(args: &[&str], stdout: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_denrei"));
    for name in ["DENREI_KEY_FILE", "DENREI_IDENTITY_FILE", "DENREI_ALLOW_FILE"] {
        command.env_remove(name);
    }
    let child = command.args(args).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_redirected_key_is_readable_by_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.key");
    let file = File::create(&path).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
    let output = denrei(&["keygen", "--out", "-"], file.into());
    assert!(output.status.success() && !Path::new("-").exists(), "{}", stderr(&output));
    assert!(stderr(&output).contains("--key-file"), "{}", stderr(&output));
    assert_eq!(mode(&path), 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("denrei-cluster-key-v1 ") && text.lines().count() == 1);
    // `>>` would leave a file with two keys.
    let append = OpenOptions::new().append(true).open(&path).unwrap();
    let output = denrei(&["keygen"], append.into());
    assert!(!output.status.success());
    assert!(stderr(&output).contains("not empty"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_key_that_nobody_gets_is_not_taken_for_made() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = denrei(&["keygen"], full.into());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    for args in ["keygen", "keygen --identity", "keygen --out -"] {
        let script = format!("exec \"$0\" {args} >&-");
        let output = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_denrei")]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{args}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("standard output is closed") && said.contains("--out FILE"), "{args}: {said}");
        assert_eq!(said.lines().count(), 1, "{args}: nor is there an identity: {said}");
    }
    // Who says so may want none.
    let script = "exec \"$0\" keygen >/dev/null";
    assert!(
        Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_denrei")]).status().unwrap().success()
    );
}

#[test]
fn a_key_file_is_never_overwritten_and_no_two_are_equal() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [dir.path().join("a"), dir.path().join("b")];
    let texts = paths.clone().map(|path| {
        let args = ["keygen", "--out", path.to_str().unwrap()];
        let output = denrei(&args, Stdio::piped());
        assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
        assert_eq!(mode(&path), 0o600);
        fs::read_to_string(&path).unwrap()
    });
    assert_ne!(texts[0], texts[1]);
    let output = denrei(&["keygen", "-o", paths[0].to_str().unwrap()], Stdio::piped());
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("exists"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&paths[0]).unwrap(), texts[0]);
}

#[test]
fn an_identity_prints_its_public_half() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.identity");
    let path = path.to_str().unwrap();
    let output = denrei(&["keygen", "--identity", "--out", path], Stdio::piped());
    let public = String::from_utf8(output.stdout).unwrap();
    assert!(public.starts_with("denrei-public-identity-v1 "), "{public}");
    assert!(fs::read_to_string(path).unwrap().starts_with("denrei-identity-v1 "));
    let again = denrei(&["keygen", "--public", path], Stdio::piped());
    assert_eq!(String::from_utf8(again.stdout).unwrap(), public);
    let piped = denrei(&["keygen", "--identity"], Stdio::piped());
    assert!(String::from_utf8_lossy(&piped.stdout).starts_with("denrei-identity-v1 "));
    assert!(stderr(&piped).starts_with("denrei-public-identity-v1 "));
}

#[test]
fn a_benchmark_measures_with_the_key_that_the_environment_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.key");
    assert!(denrei(&["keygen", "-o", path.to_str().unwrap()], Stdio::piped()).status.success());
    let measure = |path: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_denrei"));
        command.args(["bench", "pingpong", "--sizes=64", "--iters=50", "--repeat=1", "--json"]);
        command.arg("--transports=denrei").env("DENREI_KEY_FILE", path).output().unwrap()
    };
    let output = measure(&path);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(lines.contains(r#""denrei""#) && lines.contains(r#""denrei-sealed""#), "{lines}");
    let output = measure(Path::new("/nonexist"));
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("/nonexist"), "{}", stderr(&output));
}

#[test]
fn who_is_told_to_go_without_a_key_reads_none_of_the_environments() {
    let relay = |option: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_denrei"));
        command.args(["relay", "--route=127.0.0.1:0=127.0.0.1:9", option]);
        for name in ["DENREI_KEY_FILE", "DENREI_IDENTITY_FILE", "DENREI_ALLOW_FILE"] {
            command.env(name, "/no/such/file");
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let refused = relay("--max-pairs=1").wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(3));
    let said = stderr(&refused);
    assert!(said.contains("/no/such/file") && said.contains("DENREI_KEY_FILE names"), "{said}");
    let mut plain = relay("--insecure");
    let mut line = String::new();
    BufReader::new(plain.stdout.take().unwrap()).read_line(&mut line).unwrap();
    plain.kill().unwrap();
    let ended = plain.wait_with_output().unwrap();
    assert!(line.starts_with("relaying 127.0.0.1:"), "{line}{}", stderr(&ended));
}

#[test]
fn each_secret_comes_from_the_first_place_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let [key, identity, allowed] = ["key", "identity", "allowed"].map(place);
    assert!(denrei(&["keygen", "--out", &key], Stdio::null()).status.success());
    let public = denrei(&["keygen", "--identity", "--out", &identity], Stdio::piped());
    fs::write(&allowed, &public.stdout).unwrap();
    let mut relay = Command::new(env!("CARGO_BIN_EXE_denrei"));
    relay.args(["relay", "--route=127.0.0.1:0=127.0.0.1:9", "--allow-file", &allowed]);
    relay.env("DENREI_KEY_FILE", &key).stdout(Stdio::piped()).stderr(Stdio::piped());
    let refused = relay.env_remove("DENREI_IDENTITY_FILE").output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("identity"), "{}", stderr(&refused));
    let mut relay = relay.env("DENREI_IDENTITY_FILE", &identity).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(relay.stdout.take().unwrap()).read_line(&mut line).unwrap();
    relay.kill().unwrap();
    let ended = relay.wait_with_output().unwrap();
    assert!(line.starts_with("relaying 127.0.0.1:"), "{line}{}", stderr(&ended));
}
