//! The book in `docs`: its programs run, its links lead somewhere, its lists are complete.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../examples/group.rs"]
mod group;
#[path = "../examples/hello.rs"]
mod hello;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The book's pages, of which decisions are none.
fn pages() -> Vec<(PathBuf, String)> {
    let files = fs::read_dir(docs()).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    assert!(pages.len() > 10, "{pages:?}");
    pages.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// What stands between `open` and `close` in a text, each time.
fn between<'a>(text: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).filter_map(move |rest| rest.split(close).next())
}

#[test]
fn the_tutorials_programs_run() {
    hello::main().unwrap();
    group::main().unwrap();
}

#[test]
fn links_and_includes_lead_to_files() {
    for (page, text) in pages() {
        let outside = |link: &&str| !link.starts_with("http") && !link.starts_with('#') && !link.is_empty();
        for link in between(&text, "](", ')').filter(outside) {
            let target = link.split('#').next().unwrap_or(link);
            assert!(docs().join(target).exists(), "{}: {link}", page.display());
        }
        for include in between(&text, "{{#include ", '}') {
            let mut parts = include.split(':');
            let included = fs::read_to_string(docs().join(parts.next().unwrap()));
            let included = included.unwrap_or_else(|error| panic!("{}: {include}: {error}", page.display()));
            // A range of lines has to be in the file.
            for line in parts.filter_map(|line| line.parse::<usize>().ok()) {
                assert!(line <= included.lines().count(), "{}: {include}", page.display());
            }
        }
    }
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    for (page, _) in pages() {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("]({name})")),
            "{name} is not in SUMMARY.md"
        );
    }
}

#[test]
fn every_setting_is_in_the_reference() {
    let reference = fs::read_to_string(docs().join("settings.md")).unwrap();
    let nodes = denrei::SETTINGS.iter().map(|setting| (setting.name, setting.values));
    let groups = denrei::GROUP_SETTINGS.iter().map(|setting| (setting.name, setting.values));
    for (name, values) in nodes.chain(groups) {
        let row = format!("| `{name}` | {} |", values.replace('|', "\\|"));
        assert!(reference.contains(&row), "docs/settings.md lacks: {row}");
    }
}
