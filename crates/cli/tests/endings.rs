//! How the command ends where nobody hears what it says.

use std::fs::File;
use std::process::{Command, Stdio};

fn denrei() -> Command {
    Command::new(env!("CARGO_BIN_EXE_denrei"))
}

#[test]
fn the_exit_status_is_the_same_where_standard_error_cannot_be_written() {
    let place = tempfile::tempdir().unwrap();
    let plan = place.path().join("bad.toml");
    std::fs::write(&plan, "name = 'bad'\n[axes]\nhosts = 1\n").unwrap();
    let secret = place.path().join("secret");
    for (args, status) in [
        (&["sim", plan.to_str().unwrap()][..], 2),
        (&["sim", "/no/such/plan"], 3),
        (&["bench", "stream", "--sizes", "3"], 2),
        (&["keygen", "--out", secret.to_str().unwrap()], 0),
    ] {
        let (nobody, closed) = std::io::pipe().unwrap();
        drop(nobody);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let heard = denrei().args(args).output().unwrap();
        let ends = [Stdio::from(closed), full.into()].map(|stderr| {
            let _ = std::fs::remove_file(&secret);
            denrei().args(args).stderr(stderr).stdout(Stdio::null()).status().unwrap().code()
        });
        assert_eq!(ends, [heard.status.code(); 2], "{args:?}");
        assert_eq!(ends[0], Some(status), "{args:?}: {}", String::from_utf8_lossy(&heard.stderr));
    }
}
