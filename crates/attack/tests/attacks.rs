//! All attacks, in short, on a Node in network namespaces. Need root.

use denrei_attack::{ATTACKS, Attack, Effort, Wiring};
use denrei_netlab::LabError;
use std::path::Path;

/// The program that plays the honest processes.
const PROGRAM: &str = env!("CARGO_BIN_EXE_attack");

/// Why an attack cannot be tried here, if that is so.
fn reason_to_skip(error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref::<LabError>()? {
        error @ (LabError::NotRoot | LabError::MissingTool { .. }) => Some(error.to_string()),
        error => error.to_string().contains("not permitted").then(|| error.to_string()),
    }
}

/// Tries all attacks from one place, one after the other.
fn try_all(test: &str, wiring: Wiring) {
    let mut broken = Vec::new();
    for attack in ATTACKS.iter().filter(|attack| attack.wiring == wiring) {
        match denrei_attack::run(attack, Effort::Short, Path::new(PROGRAM), 1) {
            Ok(outcome) => {
                println!("{outcome}");
                if !outcome.held {
                    broken.push(outcome);
                }
            }
            Err(error) => match reason_to_skip(&error) {
                Some(reason) => return println!("SKIPPED {test}: {reason}"),
                None => panic!("{}: {error:#}", attack.name),
            },
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn no_attack_from_beside_the_path_achieves_anything() {
    try_all("no_attack_from_beside_the_path_achieves_anything", Wiring::Direct);
}

#[test]
fn no_attack_from_upon_the_path_achieves_anything() {
    try_all("no_attack_from_upon_the_path_achieves_anything", Wiring::Relayed);
}

#[test]
fn every_attack_has_a_name_of_its_own() {
    let mut names: Vec<_> = ATTACKS.iter().map(|attack: &Attack| attack.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ATTACKS.len());
}

#[test]
fn an_attack_that_there_is_not_is_a_wrong_command_line() {
    let output = std::process::Command::new(PROGRAM).args(["run", "nonexist"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no attack nonexist") && said.contains("attack list"), "{said}");
}

#[test]
fn a_list_that_nobody_reads_ends_without_a_word() {
    let (nobody, closed) = std::io::pipe().unwrap();
    drop(nobody);
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_attack")).arg("list").stdout(closed).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(141) && said.is_empty(), "{:?} {said}", output.status);
}
