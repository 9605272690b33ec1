//! Writes the seeds of the fuzzing corpora: `cargo run -p denrei-fuzzing --example seed_corpus`.
//!
//! Inputs → outputs: the golden vectors → one file each in `fuzz/corpus/decode`. Names say what a
//! seed is; what libFuzzer adds is named by hash.

use serde_json::Value;
use std::path::{Path, PathBuf};

fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

/// A file name made of the words of `name`.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

fn write(directory: &Path, name: &str, data: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join(slug(name)), data)
}

fn main() -> std::io::Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in ["frames", "packets", "refused"] {
        let text = std::fs::read_to_string(root.join(format!("spec/vectors/{file}.json")))?;
        let vectors: Value = serde_json::from_str(&text).expect("the vectors are JSON");
        for list in ["frames", "packets"] {
            for vector in vectors[list].as_array().into_iter().flatten() {
                let field =
                    |key: &str| vector[key].as_str().expect("vectors have a name and octets").to_owned();
                let name = format!("{file} {}", field("name"));
                write(&root.join("fuzz/corpus/decode"), &name, &hex(&field("hex")))?;
            }
        }
    }
    Ok(())
}
