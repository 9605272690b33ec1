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
fn corpus_of_handle_datagram() {
    replay("handle_datagram");
}

#[test]
fn corpus_of_operations() {
    replay("operations");
}

#[test]
fn corpus_of_insider() {
    replay("insider");
}

#[test]
fn corpus_of_outsider() {
    replay("outsider");
}

/// Blind inputs of the stateful targets, the same ones every time: where the corpus knows what was
/// once interesting, these walk where nobody has been led.
#[test]
fn random_inputs() {
    const INPUTS: u64 = 1500;
    for name in ["handle_datagram", "insider", "operations", "outsider"] {
        let (_, body) = denrei_fuzzing::TARGETS.iter().find(|target| target.0 == name).expect("a target");
        for seed in 0..INPUTS {
            let data = random_octets(seed, 600);
            let outcome = std::panic::catch_unwind(|| body(&data));
            assert!(outcome.is_ok(), "{name} fails on random_octets({seed}, 600); the panic is above");
        }
    }
}

/// xorshift64* (Vigna 2016): octets that look random and depend on `seed` alone.
fn random_octets(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
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
