//! Every file of the fuzzing corpora through the bodies of the fuzz targets.

use std::path::PathBuf;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable directory").path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("a readable file"))).collect()
}

fn replay(name: &str) {
    let (_, body) = denrei_fuzzing::TARGETS.iter().find(|target| target.0 == name).expect("a target");
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "fuzz/corpus/{name} holds seeds");
    for (path, data) in &corpus {
        let outcome = std::panic::catch_unwind(|| body(data));
        assert!(outcome.is_ok(), "{} fails; the panic is above", path.display());
    }
}

#[test]
fn corpus_of_decode() {
    replay("decode");
}

#[test]
fn every_corpus_has_a_target() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for entry in std::fs::read_dir(directory).expect("fuzz/corpus exists") {
        let name = entry.expect("a readable directory").file_name();
        let known = denrei_fuzzing::TARGETS.iter().any(|target| *target.0 == *name);
        assert!(known, "fuzz/corpus/{} belongs to no target", name.display());
    }
}
