//! The committed header is what cbindgen makes of the sources.

use std::path::Path;

#[test]
fn the_header_is_in_step_with_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = root.join("include/denrei/denrei.h");
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    // Not lib.rs, through which it would find suci and mtcp, whose headers are written by hand.
    let files = [
        "error",
        "config",
        "node",
        "send",
        "queue",
        "recv",
        "incoming",
        "event",
        "flow",
        "counters",
        "steer",
        "group",
        "group_event",
        "group_state",
        "membership",
        "collective",
        "cast_state",
        "cast",
        "relay",
        "version",
    ];
    for entry in std::fs::read_dir(root.join("src")).unwrap() {
        let path = entry.unwrap().path();
        let calls = path.is_file() && std::fs::read_to_string(&path).unwrap().contains("no_mangle");
        let named = files.iter().any(|file| path.file_stem().unwrap() == *file);
        assert!(named || !calls, "{} has calls that no header declares", path.display());
    }
    for file in files {
        builder = builder.with_src(root.join(format!("src/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = tidy(&String::from_utf8(made).unwrap());
    if std::env::var_os("DENREI_WRITE_HEADER").is_some() {
        std::fs::write(&header, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&header).unwrap();
    assert!(
        committed == made,
        "{} is out of step: DENREI_WRITE_HEADER=1 cargo test -p denrei-capi --test header",
        header.display()
    );
}

/// Takes out what rustdoc wants and C does not: the headings over safety contracts.
fn tidy(header: &str) -> String {
    let lines: Vec<&str> = header.lines().filter(|line| line.trim() != "* # Safety").collect();
    lines.join("\n") + "\n"
}
