//! The book in `docs`: its programs run, its links lead somewhere, its lists are complete.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../examples/group.rs"]
mod group;
#[path = "../../examples/hello.rs"]
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

/// A page with what it includes in its place.
fn expanded(page: &Path, text: &str) -> String {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{#include ") {
        let (include, after) = after.split_once("}}").unwrap();
        let mut parts = include.split(':');
        let included = fs::read_to_string(docs().join(parts.next().unwrap()));
        let included = included.unwrap_or_else(|error| panic!("{}: {include}: {error}", page.display()));
        // A range of lines has to be in the file.
        for line in parts.filter_map(|line| line.parse::<usize>().ok()) {
            assert!(line <= included.lines().count(), "{}: {include}", page.display());
        }
        whole.push_str(before);
        whole.push_str(&included);
        rest = after;
    }
    whole + rest
}

#[test]
fn links_and_includes_lead_to_files_and_pages() {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    for (page, text) in pages() {
        let outside = |link: &&str| !link.starts_with("http") && !link.starts_with('#') && !link.is_empty();
        let text = expanded(&page, &text);
        // What is between backquotes is no link.
        let text: String = text.split('`').step_by(2).collect();
        for link in between(&text, "](", ')').filter(outside) {
            let target = link.split('#').next().unwrap_or(link);
            assert!(docs().join(target).exists(), "{}: {link}", page.display());
            let is_page = !target.ends_with(".md") || summary.contains(&format!("]({target})"));
            assert!(is_page, "{}: {link} is no page of the book: put it into SUMMARY.md", page.display());
        }
    }
}

#[test]
fn every_call_is_beside_its_counterparts() {
    let table = fs::read_to_string(docs().join("calls.md")).unwrap();
    let rooms = ["node.rs", "node", "group.rs", "collective.rs", "relay/mod.rs"];
    let mut files: Vec<PathBuf> =
        rooms.iter().map(|room| docs().join("../crates/denrei/src").join(room)).collect();
    files.extend(
        ["settings.rs", "sender.rs", "receiver.rs"].map(|file| docs().join("../crates/cast/src").join(file)),
    );
    let mut calls = 0;
    while let Some(file) = files.pop() {
        if file.is_dir() {
            files.extend(fs::read_dir(file).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for kind in ["\n    pub fn ", "\n    pub async fn "] {
            for name in between(&text, kind, '(') {
                let name = name.split('<').next().unwrap();
                assert!(
                    table.contains(&format!("`{name}`")),
                    "docs/calls.md lacks {name} of {}",
                    file.display()
                );
                calls += 1;
            }
        }
    }
    assert!(calls > 80, "{calls} calls");
}

/// mdBook itself builds it without a word of warning, where it is installed.
#[test]
fn mdbook_builds_it() {
    let built = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("mdbook");
    let command = command.arg("build").arg(docs()).arg("--dest-dir").arg(built.path());
    let Ok(output) = command.output() else {
        println!("SKIPPED mdbook: it is not installed; links, includes and the summary are checked without");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("WARN") && !said.contains("ERROR"), "{said}");
    for (page, _) in pages() {
        let name = page.file_stem().unwrap().to_str().unwrap();
        let name = if name == "README" { "index" } else { name };
        let made = built.path().join(format!("{name}.html"));
        assert!(name == "SUMMARY" || made.is_file(), "{}", made.display());
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

/// The default in a setting's row of the reference, whose last column has to be `values`.
fn default_of<'a>(reference: &'a str, name: &str, values: &str) -> &'a str {
    let (begin, end) = (format!("| `{name}` | "), format!(" | {} |", values.replace('|', "\\|")));
    let mut rows = reference.lines().filter_map(|row| row.strip_prefix(&begin)?.strip_suffix(&end));
    let default = rows.next().unwrap_or_else(|| panic!("docs/settings.md lacks: {begin}...{end}"));
    default.trim_matches('`')
}

#[test]
fn every_setting_is_in_the_reference_with_its_default_and_range() {
    let reference = fs::read_to_string(docs().join("settings.md")).unwrap();
    let (of_nodes, of_groups) = reference.split_once("## Of a group").unwrap();
    for setting in denrei::SETTINGS {
        let (mut config, usual) = (denrei::Config::default(), denrei::Config::default());
        let default = default_of(of_nodes, setting.name, setting.values);
        let result = config.set(setting.name, if default == "none" { "" } else { default });
        // There is no text for these.
        let is_unsaid = ["pipeline", "key_file", "identity_file", "allow_file"].contains(&setting.name);
        assert!(result.is_ok() || (is_unsaid && default == "none"), "{}: {default}", setting.name);
        assert_eq!(format!("{config:?}"), format!("{usual:?}"), "{} is not {default}", setting.name);
    }
    for setting in denrei::GROUP_SETTINGS {
        let mut options = denrei::GroupOptions::default();
        let default = default_of(of_groups, setting.name, setting.values);
        denrei::set_group_option(&mut options, setting.name, default).unwrap();
        assert_eq!(options, denrei::GroupOptions::default(), "{} is not {default}", setting.name);
    }
}

/// Those that its crates take from the workspace.
#[test]
fn every_dependency_has_its_line() {
    let manifest = fs::read_to_string(docs().join("../Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("[workspace.dependencies]\n").unwrap();
    let (section, _) = rest.split_once("\n[").unwrap();
    let names = section.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let table = fs::read_to_string(docs().join("adr/0006-dependencies.md")).unwrap();
    let crates = table.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let named: Vec<&str> = crates.flat_map(|names| names.split(|letter| !is_name(letter))).collect();
    let ours = |name: &&str| *name == "denrei" || name.starts_with("denrei-");
    let missing: Vec<&str> =
        names.filter(|name| !ours(name) && !named.contains(name) && !name.is_empty()).collect();
    assert!(named.len() > 40 && missing.is_empty(), "docs/adr/0006-dependencies.md lacks {missing:?}");
}

#[test]
fn decisions_are_in_the_summary_under_their_titles() {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    for file in fs::read_dir(docs().join("adr")).unwrap().map(|entry| entry.unwrap().path()) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let title = text.lines().next().unwrap().trim_start_matches("# ");
        if let Some(number) = name.split('-').next().and_then(|number| number.parse::<u32>().ok()) {
            assert!(title.starts_with(&format!("{number}. ")), "{name}: {title}");
            assert!(
                summary.contains(&format!("- [{title}](adr/{name})")),
                "SUMMARY.md lacks {name}: {title}"
            );
        }
    }
}
