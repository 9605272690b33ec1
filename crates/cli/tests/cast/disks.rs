//! Receivers' file systems that number what is in them in their own way.

use crate::sides::{Side, group, places, recv, send};
use std::fs;
use std::process::Command;

/// As a live system's: an overlay whose layers are of two file systems, 400 directories of which have been looked at.
const LAYERED: &str = r#"mount -t tmpfs none "$0" && cd "$0" && mkdir lower upper into && mount -t tmpfs none lower &&
    seq 400 | sed s,^,lower/d, | xargs mkdir && mount -t tmpfs none upper && mkdir upper/u upper/w &&
    mount -t overlay -o xino=off,lowerdir=lower,upperdir=upper/u,workdir=upper/w none into && ls -l into >/dev/null &&
    exec "$@""#;

/// Its directories and its files are numbered apart: a file was taken for another name of a directory.
#[test]
fn a_file_that_has_a_directory_s_number_on_another_device_is_not_taken_for_it() {
    const NAME: &str = "a_file_that_has_a_directory_s_number_on_another_device_is_not_taken_for_it";
    let (group, into, from) = (group(), places(1), tempfile::tempdir().unwrap());
    let mounted = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", LAYERED]).arg(into[0].path()).arg(program);
        command
    };
    if !mounted("true").output().is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED {NAME}: mounting layers needs root, and a system that has them");
    }
    let top = from.path().join("top");
    fs::create_dir(&top).unwrap();
    (0..20).for_each(|n| fs::create_dir(top.join(format!("d{n}"))).unwrap());
    (0..600).for_each(|n| fs::write(top.join(format!("f{n}")), "x").unwrap());
    let receiver = recv(&into[0].path().join("into"), &group);
    let mut layered = mounted(env!("CARGO_BIN_EXE_denrei"));
    let (side, addr) = Side::receiver(layered.args(receiver.get_args()).args(["--bind", "127.0.0.1:0"]));
    let (status, report) = Side::start(send(&[&top], &group).args(["--members", &addr])).json();
    assert_eq!(status, Some(0), "{report}");
    assert_eq!(side.json().0, Some(0));
}
