//! Files that hold keys: their text, who may read them, how they are made.
//!
//! Inputs → outputs: 32 secret octets ↔ one line of text; a path → the octets, or an error that says
//! what to do. A line is a label with a version, a space, and 64 hexadecimal digits:
//!
//! ```text
//! denrei-cluster-key-v1 6f1c…      a cluster key: secret, the same on every node
//! denrei-identity-v1 02ab…         one node's identity: secret, of that node alone
//! denrei-public-identity-v1 93d0…  its public half: what allow-lists are made of
//! ```
//!
//! Empty lines and lines that begin with `#` are skipped; a secret file holds one key and nothing
//! else. As ssh does, a secret that others may read is refused, not used with a warning: a warning
//! is not seen on a cluster.

use denrei_proto::seal::{ClusterKey, Identity, PublicIdentity, SECRET_BYTES, SecretOctets};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;
use zeroize::Zeroizing;

/// Longest file of one secret, bytes: the line, and room for a comment.
const MAX_SECRET_FILE_BYTES: u64 = 4 * 1024;

/// Longest allow-list, bytes: 10,000 identities with a comment each.
const MAX_LIST_FILE_BYTES: u64 = 4 << 20;

/// Permissions of secret files: the owner reads and writes, nobody else does anything.
#[cfg(unix)]
const SECRET_MODE: u32 = 0o600;

/// What a line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ClusterKey,
    Identity,
    PublicIdentity,
}

impl Kind {
    const ALL: [Self; 3] = [Self::ClusterKey, Self::Identity, Self::PublicIdentity];

    fn label(self) -> &'static str {
        match self {
            Self::ClusterKey => "denrei-cluster-key-v1",
            Self::Identity => "denrei-identity-v1",
            Self::PublicIdentity => "denrei-public-identity-v1",
        }
    }

    /// The command that makes one.
    fn made_by(self) -> &'static str {
        match self {
            Self::ClusterKey => "denrei keygen --out FILE",
            Self::Identity => "denrei keygen --identity --out FILE",
            Self::PublicIdentity => "denrei keygen --public FILE",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterKey => "cluster key",
            Self::Identity => "secret identity",
            Self::PublicIdentity => "public identity",
        })
    }
}

/// Reads the cluster key that `denrei keygen` wrote.
///
/// # Errors
/// If others can read the file, or it holds something else; both say what to do.
pub fn read_cluster_key(path: &Path) -> Result<ClusterKey, KeyFileError> {
    read_secret(Kind::ClusterKey, path).map(|key| ClusterKey::copy_of(&key))
}

/// Reads the secret identity that `denrei keygen --identity` wrote.
///
/// # Errors
/// As [`read_cluster_key`].
pub fn read_identity(path: &Path) -> Result<Identity, KeyFileError> {
    read_secret(Kind::Identity, path).map(|key| Identity::copy_of(&key))
}

/// Reads an allow-list: one public identity a line.
///
/// # Errors
/// If a line holds something else.
pub fn read_allow_list(path: &Path) -> Result<Vec<PublicIdentity>, KeyFileError> {
    let keys = read_list(Kind::PublicIdentity, path)?;
    Ok(keys.into_iter().map(PublicIdentity::from_bytes).collect())
}

/// The line that a file with this cluster key holds.
pub fn cluster_key_line(key: &ClusterKey) -> Zeroizing<String> {
    line(Kind::ClusterKey, key.as_bytes())
}

/// The line that a file with this identity holds.
pub fn identity_line(identity: &Identity) -> Zeroizing<String> {
    line(Kind::Identity, identity.as_bytes())
}

/// The line that stands for a peer in an allow-list.
pub fn public_identity_line(identity: &PublicIdentity) -> String {
    line(Kind::PublicIdentity, identity.as_bytes()).to_string()
}

/// Why a key file was not used, or not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The system refuses it.
    #[error("cannot {doing} the key file {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others than its owner may read or write it.
    #[error(
        "{path} can be read by others (mode {mode:04o}), so it is no secret: run `chmod 600 {path}`, and if it may \
         have been read, make a new one"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is a directory, a FIFO or something else that is not read as a file.
    #[error("{path} is not a file: name one that holds what `denrei keygen` made")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// What it holds is not what was looked for.
    #[error("{path} is malformed, line {line}: {problem}; a {expected} is one line that `{made_by}` writes")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it. Never holds any of its octets.
        problem: String,
        /// What was looked for.
        expected: String,
        /// What makes one.
        made_by: &'static str,
    },
    /// It would be overwritten.
    #[error(
        "{path} exists, and a key that is overwritten is lost: name another file, or remove that one first"
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// The line that holds a key.
fn line(kind: Kind, key: &[u8; SECRET_BYTES]) -> Zeroizing<String> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let label = kind.label();
    // Of the right size at once: growing would leave copies behind.
    let mut text = Zeroizing::new(String::with_capacity(label.len() + 2 + 2 * SECRET_BYTES));
    text.push_str(label);
    text.push(' ');
    for octet in key {
        text.push(char::from(DIGITS[usize::from(octet >> 4)]));
        text.push(char::from(DIGITS[usize::from(octet & 0xf)]));
    }
    text.push('\n');
    text
}

/// Reads the one secret of a file.
fn read_secret(kind: Kind, path: &Path) -> Result<SecretOctets, KeyFileError> {
    let text = read(path, true)?;
    let mut keys = keys(kind, path, &text)?;
    match keys.len() {
        1 => Ok(keys.remove(0)),
        0 => Err(malformed(kind, path, 1, "the file is empty".into())),
        _ => Err(malformed(kind, path, 2, "there is more than one key".into())),
    }
}

/// Reads a list of public keys; anybody may read those.
fn read_list(kind: Kind, path: &Path) -> Result<Vec<[u8; SECRET_BYTES]>, KeyFileError> {
    let text = read(path, false)?;
    Ok(keys(kind, path, &text)?.iter().map(|key| **key).collect())
}

/// Writes a secret, one of the lines above, into a file that is not there yet, readable by its owner alone.
///
/// # Errors
/// If the file exists, whatever it holds, or the system refuses.
pub fn write_new(path: &Path, text: &str) -> Result<(), KeyFileError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, SECRET_MODE);
    let mut file = options.open(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.into() },
        _ => io_error("make", path, source),
    })?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|source| {
        // Half a key would be refused by whoever loads it, and stand in the way of the next try.
        let _ = std::fs::remove_file(path);
        io_error("write", path, source)
    })
}

fn read(path: &Path, secret: bool) -> Result<Zeroizing<String>, KeyFileError> {
    let about = std::fs::metadata(path).map_err(|source| io_error("open", path, source))?;
    // Opening a FIFO would wait for a writer; a pipe that this process was given has one.
    if !about.is_file() && (about.is_dir() || !is_given(path)) {
        return Err(KeyFileError::NotAFile { path: path.into() });
    }
    let file = File::open(path).map_err(|source| io_error("open", path, source))?;
    // Of the file that was opened, not of what the path names by now.
    let about = file.metadata().map_err(|source| io_error("look at", path, source))?;
    if secret {
        check_mode(path, &about)?;
    }
    let limit = if secret { MAX_SECRET_FILE_BYTES } else { MAX_LIST_FILE_BYTES };
    let mut text = Zeroizing::new(String::with_capacity(about.len().min(limit) as usize + 1));
    file.take(limit + 1).read_to_string(&mut text).map_err(|source| io_error("read", path, source))?;
    if text.len() as u64 > limit {
        let source = io::Error::new(io::ErrorKind::InvalidData, format!("it is longer than {limit} bytes"));
        return Err(io_error("read", path, source));
    }
    Ok(text)
}

/// Whether a path names what this process has open already, such as the pipe of a shell's `<(...)`.
fn is_given(path: &Path) -> bool {
    path == Path::new("/dev/stdin") || path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd")
}

#[cfg(unix)]
fn check_mode(path: &Path, about: &std::fs::Metadata) -> Result<(), KeyFileError> {
    use std::os::unix::fs::MetadataExt;
    let mode = about.mode() & 0o777;
    if mode & !0o700 != 0 { Err(KeyFileError::Exposed { path: path.into(), mode }) } else { Ok(()) }
}

#[cfg(not(unix))]
fn check_mode(_: &Path, _: &std::fs::Metadata) -> Result<(), KeyFileError> {
    Ok(())
}

fn keys(kind: Kind, path: &Path, text: &str) -> Result<Vec<SecretOctets>, KeyFileError> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| parse(kind, line).map_err(|problem| malformed(kind, path, number, problem)))
        .collect()
}

/// A line's key, or what is wrong with the line.
fn parse(kind: Kind, line: &str) -> Result<SecretOctets, String> {
    let (label, digits) = line.split_once(' ').ok_or("this is no key")?;
    if label != kind.label() {
        let other = Kind::ALL.into_iter().find(|other| other.label() == label);
        return Err(match other {
            Some(other) => format!("this is a {other}"),
            None if label.starts_with("denrei-") => "this version of denrei does not know such keys".into(),
            None => "this is no key".into(),
        });
    }
    let digits = digits.trim().as_bytes();
    if digits.len() != 2 * SECRET_BYTES {
        return Err(format!("there are {} digits, not {}", digits.len(), 2 * SECRET_BYTES));
    }
    let mut key = SecretOctets::default();
    for (octet, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16).ok_or("not all digits are hexadecimal");
        *octet = (value(pair[0])? << 4 | value(pair[1])?) as u8;
    }
    if key.iter().all(|octet| *octet == 0) {
        return Err("the key is all zeros".into());
    }
    Ok(key)
}

fn malformed(kind: Kind, path: &Path, line: usize, problem: String) -> KeyFileError {
    KeyFileError::Malformed {
        path: path.into(),
        line,
        problem,
        expected: kind.to_string(),
        made_by: kind.made_by(),
    }
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> KeyFileError {
    KeyFileError::Io { doing, path: path.into(), source }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn in_file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        write_new(&path, text).unwrap();
        (dir, path)
    }

    fn refusal(text: &str) -> String {
        let (_dir, path) = in_file(text);
        read_secret(Kind::ClusterKey, &path).unwrap_err().to_string()
    }

    #[test]
    fn a_key_survives_its_file() {
        let key = std::array::from_fn(|at| at as u8 * 7 + 1);
        for kind in Kind::ALL {
            let text = line(kind, &key);
            assert_eq!(text.lines().count(), 1);
            for text in
                [text.to_string(), format!("# node 7\n\n{}", *text), text.to_uppercase().to_lowercase()]
            {
                let (_dir, path) = in_file(&text);
                assert_eq!(*read_secret(kind, &path).unwrap(), key);
            }
        }
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let (_dir, path) = in_file(&line(Kind::ClusterKey, &[1; 32]));
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601, 0o777] {
            set(mode);
            let error = read_secret(Kind::ClusterKey, &path).unwrap_err().to_string();
            assert!(error.contains(&format!("chmod 600 {}", path.display())), "{error}");
        }
        for mode in [0o600, 0o400, 0o700] {
            set(mode);
            read_secret(Kind::ClusterKey, &path).unwrap();
        }
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [fifo.as_path(), dir.path(), Path::new("/dev/zero")] {
            let error = read_cluster_key(path).unwrap_err();
            assert!(matches!(error, KeyFileError::NotAFile { .. }), "{error}");
            assert!(matches!(read_allow_list(path), Err(KeyFileError::NotAFile { .. })));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_key_comes_through_a_pipe_of_this_process() {
        use std::os::fd::AsRawFd;
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(line(Kind::ClusterKey, &[1; 32]).as_bytes()).unwrap();
        drop(writer);
        let key = read_cluster_key(Path::new(&format!("/dev/fd/{}", reader.as_raw_fd()))).unwrap();
        assert_eq!(key.as_bytes(), &[1; 32]);
    }

    #[test]
    fn nothing_is_overwritten() {
        let (_dir, path) = in_file("precious");
        let error = write_new(&path, "new").unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_key_is_named() {
        let good = line(Kind::ClusterKey, &[0xab; 32]).to_string();
        let cases = [
            (String::new(), "empty"),
            ("hello".into(), "this is no key"),
            (good[..40].into(), "there are 18 digits, not 64"),
            (good.replace("ab", "xy"), "not all digits are hexadecimal"),
            (good.replace("v1", "v9"), "does not know such keys"),
            (good.replace("ab", "00"), "all zeros"),
            (good.repeat(2), "more than one key"),
            (line(Kind::Identity, &[1; 32]).to_string(), "this is a secret identity"),
        ];
        for (text, expected) in cases {
            let error = refusal(&text);
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("denrei keygen --out FILE"), "{error}");
            assert!(!error.contains("abab"), "an error repeats the secret: {error}");
        }
        assert!(refusal(&"#".repeat(5000)).contains("longer than 4096 bytes"));
    }

    #[test]
    fn lists_of_public_keys_may_be_read_by_all() {
        let text = format!(
            "# two\n{}{}",
            *line(Kind::PublicIdentity, &[1; 32]),
            *line(Kind::PublicIdentity, &[2; 32])
        );
        let (_dir, path) = in_file(&text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_list(Kind::PublicIdentity, &path).unwrap(), [[1; 32], [2; 32]]);
        let error = read_list(Kind::Identity, &path).unwrap_err().to_string();
        assert!(error.contains("line 2: this is a public identity"), "{error}");
    }
}
