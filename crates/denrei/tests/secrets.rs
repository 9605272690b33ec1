//! What stays in memory of a Node's secrets when it is gone.
#![cfg(target_os = "linux")]

use denrei::{Config, Node, key_file};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The complement of the cluster key's octets, and that of the identity's: the octets themselves are for the code
/// under test to bring into memory.
const SECRETS: [u8; 2] = [0x35, 0x6b];

fn octet(base: u8, at: usize) -> u8 {
    base.wrapping_add(at as u8 * 7)
}

/// A file of the secret whose complement begins with `base`.
fn secret_file(dir: &Path, label: &str, base: u8) -> PathBuf {
    let digits: String = (0..32).map(|at| format!("{:02x}", !octet(base, at))).collect();
    let path = dir.join(label);
    key_file::write_new(&path, &format!("{label} {digits}\n")).unwrap();
    path
}

/// Where in this process a secret is: addresses, and what the memory is for.
fn copies(base: u8) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (begin, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let address = |digits| u64::from_str_radix(digits, 16).unwrap();
        let mut content = vec![0; (address(end) - address(begin)) as usize];
        let read = memory.read_at(&mut content, address(begin)).unwrap_or(0);
        let windows = content[..read].windows(32).enumerate();
        let hits =
            windows.filter(|(_, window)| window.iter().enumerate().all(|(at, is)| !is == octet(base, at)));
        found.extend(hits.map(|(at, _)| format!("{:x} in {line}", address(begin) + at as u64)));
    }
    found
}

fn config(key: &Path, identity: &Path) -> Config {
    let identity = key_file::read_identity(identity).unwrap();
    let allowed = vec![identity.public()];
    let cluster_key = Some(key_file::read_cluster_key(key).unwrap());
    Config { cluster_key, identity: Some(identity), allowed, ..Config::default() }
}

#[test]
fn a_node_that_is_gone_leaves_no_copy_of_its_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let key = secret_file(dir.path(), "denrei-cluster-key-v1", SECRETS[0]);
    let identity = secret_file(dir.path(), "denrei-identity-v1", SECRETS[1]);
    let config = || config(&key, &identity);
    let kept = config();
    assert!(SECRETS.iter().all(|base| !copies(*base).is_empty()), "what is there is found");
    drop(kept);
    let [one, other] = [(); 2].map(|()| Node::bind("127.0.0.1:0", config()).unwrap());
    let peer = one.connect(other.local_addr()).unwrap();
    one.send(denrei::ChannelId { peer, channel: 0 }, "hello").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| one.recv_timeout(Duration::from_secs(1)));
        assert!(other.recv_timeout(Duration::from_secs(10)).unwrap().is_some());
    });
    drop((one, other));
    for base in SECRETS {
        let copies = copies(base);
        assert!(copies.is_empty(), "{copies:#?}");
    }
}
