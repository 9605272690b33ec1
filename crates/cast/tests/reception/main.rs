//! What a receiver takes, without a network: hostile senders first (nothing outside of the receiving directory
//! is touched), then interruptions and damage.

mod resumed;

use blake3::hash;
use denrei_cast::manifest::{Entry, Extent, Kind, Manifest};
use denrei_cast::message::{Message, Offer, PIECE_BYTES, Piece, short};
use denrei_cast::{Busy, CastError, Destination, Reception};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn entry(parent: Option<u32>, name: &str, kind: Kind) -> Entry {
    // Whoever is not root looks only into directories that may be searched.
    let mode = if kind == Kind::Directory { 0o755 } else { 0o644 };
    Entry { parent, name: name.into(), mode, mtime_ns: 0, kind }
}

fn file(len: u64) -> Kind {
    Kind::File { size: len, extents: vec![Extent { offset: 0, len }] }
}

fn offer(manifest: &Manifest, encoded: &[u8]) -> Offer {
    Offer {
        id: *hash(encoded).as_bytes(),
        group: "239.1.2.3:7118".parse().unwrap(),
        piece_bytes: PIECE_BYTES,
        manifest_bytes: encoded.len() as u64,
        body_bytes: manifest.totals().2,
    }
}

fn into(path: &Path) -> Destination {
    Destination::Directory { path: path.into(), sync: false }
}

fn piece(offer: &Offer, number: u32, data: &[u8], digests: &[[u8; 32]]) -> Piece {
    let (data, digests) = (data.to_vec().into(), digests.to_vec());
    Piece { cast: short(&offer.id), number, last: false, digests, data }
}

/// Offers a manifest, and sends it: how far that gets.
fn begin(path: &Path, entries: Vec<Entry>) -> Result<(Reception, Offer), CastError> {
    let manifest = Manifest { nonce: [0; 16], entries };
    let encoded = manifest.encode();
    let offer = offer(&manifest, &encoded);
    let mut reception = Reception::new(offer, into(path), "test")?;
    reception.piece(&piece(&offer, 0, &encoded, &[]))?;
    Ok((reception, offer))
}

fn receive(path: &Path, entries: Vec<Entry>, data: &[u8]) -> Result<(), CastError> {
    let (mut reception, offer) = begin(path, entries)?;
    if !data.is_empty() {
        reception.piece(&piece(&offer, 1, data, &[*hash(data).as_bytes()]))?;
    }
    assert!(reception.is_complete());
    reception.finish().map(drop)
}

#[test]
fn names_that_lead_out_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("into");
    std::fs::create_dir(&path).unwrap();
    let link = |target: &str| Kind::Symlink { target: target.into() };
    let cases = [
        vec![entry(None, "../x", file(1))],
        vec![entry(None, "/tmp/denrei-cast-x", file(1))],
        vec![entry(None, "..", Kind::Directory), entry(Some(0), "x", file(1))],
        vec![entry(None, "d", Kind::Directory), entry(Some(0), "l", link("../../.."))],
        vec![entry(None, "d", Kind::Directory), entry(Some(0), "l", link("/etc"))],
    ];
    for entries in cases {
        let error = receive(&path, entries.clone(), b"x").unwrap_err();
        assert!(matches!(error, CastError::Manifest(_)), "{entries:?}: {error}");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "{entries:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// What a manifest alone cannot do, two casts could: the first brings a link, the second goes
/// through it.
#[test]
fn a_link_that_is_there_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, outside) = (dir.path().join("into"), dir.path().join("outside"));
    std::fs::create_dir(&path).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink("../outside", path.join("d")).unwrap();
    let entries = vec![entry(None, "d", Kind::Directory), entry(Some(0), "x", file(1))];
    let error = receive(&path, entries, b"x").unwrap_err().to_string();
    assert!(error.contains("into/d") && error.contains("not followed"), "{error}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    // A file of a link's name takes the link's place; what it points to stays as it is.
    std::fs::write(outside.join("f"), "before").unwrap();
    std::os::unix::fs::symlink("../outside/f", path.join("f")).unwrap();
    receive(&path, vec![entry(None, "f", file(5))], b"after").unwrap();
    assert_eq!(std::fs::read_to_string(outside.join("f")).unwrap(), "before");
    assert_eq!(std::fs::read_to_string(path.join("f")).unwrap(), "after");
    assert!(!path.join("f").is_symlink());
}

/// Where others may write to the directory, too: a cast's name is no secret.
#[test]
fn links_that_are_there_instead_of_the_state_are_not_followed() {
    let manifest = Manifest { nonce: [0; 16], entries: vec![entry(None, "f", file(1))] };
    let id = *hash(&manifest.encode()).as_bytes();
    let name: String = id[..8].iter().map(|octet| format!("{octet:02x}")).collect();
    for at in ["", "/manifest", "/tree", "/journal-262144", "/digests", "/publishing"] {
        let dir = tempfile::tempdir().unwrap();
        let (path, outside) = (dir.path().join("into"), dir.path().join("outside"));
        std::fs::create_dir(&path).unwrap();
        let state = format!("{}/.denrei-cast-{name}", path.display());
        if !at.is_empty() {
            std::fs::create_dir(&state).unwrap();
        }
        if ["", "/tree"].contains(&at) {
            std::fs::create_dir(&outside).unwrap();
        } else {
            std::fs::write(&outside, "stays").unwrap();
        }
        std::os::unix::fs::symlink(&outside, format!("{state}{at}")).unwrap();
        let error = receive(&path, manifest.entries.clone(), b"x").unwrap_err().to_string();
        assert!(error.contains(&name), "{at}: {error}");
        assert!(!path.join("f").exists(), "{at}");
        match outside.is_dir() {
            true => assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{at}"),
            false => assert_eq!(std::fs::read_to_string(&outside).unwrap(), "stays", "{at}"),
        }
    }
}

#[test]
fn what_was_not_sent_so_is_asked_for_again_and_then_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut reception, offer) = begin(dir.path(), vec![entry(None, "f", file(4))]).unwrap();
    let digest = *hash(b"good").as_bytes();
    let again = reception.piece(&piece(&offer, 1, b"evil", &[digest])).unwrap();
    assert!(matches!(again, Some(Message::Want { ranges, .. }) if ranges == [(1, 1)]));
    assert!(!reception.is_complete() && !dir.path().join("f").exists());
    let error = reception.piece(&piece(&offer, 1, b"evil", &[digest])).unwrap_err();
    assert!(matches!(error, CastError::Damaged { .. }), "{error}");
    assert!(!dir.path().join("f").exists());
}

/// Names are the sender's, and what is said of them comes to the receiver's terminal.
#[test]
fn names_that_could_steer_a_terminal_are_shown_as_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let name = "f\x1b]0;owned\x07\n";
    let (mut reception, offer) = begin(dir.path(), vec![entry(None, name, file(4))]).unwrap();
    let evil = piece(&offer, 1, b"evil", &[[0; 32]]);
    reception.piece(&evil).unwrap();
    let damaged = reception.piece(&evil).unwrap_err().to_string();
    std::fs::create_dir(dir.path().join(name)).unwrap();
    let in_the_way = begin(dir.path(), vec![entry(None, name, file(5))]).unwrap_err().to_string();
    for error in [damaged, in_the_way] {
        assert!(error.contains("f\u{fffd}]0;owned") && !error.contains(char::is_control), "{error:?}");
    }
}

#[test]
fn offers_and_pieces_out_of_bounds_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = Manifest { nonce: [0; 16], entries: vec![entry(None, "f", file(4))] };
    let encoded = manifest.encode();
    let good = offer(&manifest, &encoded);
    let group = "10.0.0.1:5".parse().unwrap();
    for wrong in [
        Offer { piece_bytes: 1, ..good },
        Offer { piece_bytes: u32::MAX, ..good },
        Offer { manifest_bytes: 0, ..good },
        Offer { manifest_bytes: u64::MAX, ..good },
        Offer { body_bytes: u64::MAX - 1, ..good },
        Offer { group, ..good },
    ] {
        assert!(Reception::new(wrong, into(dir.path()), "").is_err(), "{wrong:?}");
    }
    // What goes with a piece of the manifest would be kept with it.
    let mut reception = Reception::new(good, into(dir.path()), "").unwrap();
    assert!(reception.piece(&piece(&good, 0, &encoded, &[[0; 32]])).is_err());
    let other = Offer { id: [1; 32], ..good };
    let mut reception = Reception::new(other, into(dir.path()), "").unwrap();
    let error = reception.piece(&piece(&other, 0, &encoded, &[])).unwrap_err();
    assert!(error.to_string().contains("not the one that was offered"), "{error}");
    let (mut reception, good) = begin(dir.path(), manifest.entries.clone()).unwrap();
    for wrong in [
        piece(&good, 1, b"longer than four", &[[0; 32]]),
        piece(&good, 1, b"good", &[]),
        piece(&good, 9, b"good", &[]),
        piece(&good, u32::MAX, b"", &[]),
    ] {
        assert!(reception.piece(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn while_what_is_here_is_verified_somebody_is_told_that_this_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = Manifest {
        nonce: [0; 16],
        entries: vec![entry(None, "a", file(4)), entry(None, "b", file(1 << 20))],
    };
    let body = [&b"good"[..], &[7; 1 << 20]].concat();
    let first = &body[..PIECE_BYTES as usize];
    {
        let (mut reception, offer) = begin(dir.path(), manifest.entries.clone()).unwrap();
        reception.piece(&piece(&offer, 1, first, &[*hash(b"good").as_bytes()])).unwrap();
    }
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let teller = std::sync::Arc::clone(&told);
    let busy = Busy::new(move |bytes| teller.lock().unwrap().push(bytes));
    let offer = offer(&manifest, &manifest.encode());
    let _reception = Reception::telling(offer, into(dir.path()), "", busy).unwrap();
    assert_eq!(*told.lock().unwrap(), [u64::from(PIECE_BYTES)]);
}

/// A piece may hold 262,144 files, and a slow disk takes minutes for all that it has not written yet.
#[test]
fn while_many_files_are_written_and_put_into_place_somebody_is_told_that_this_goes_on() {
    for sync in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let entries: Vec<Entry> = (0..100).map(|n| entry(None, &format!("f{n}"), file(1))).collect();
        let manifest = Manifest { nonce: [0; 16], entries };
        let encoded = manifest.encode();
        let offer = offer(&manifest, &encoded);
        let told = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let teller = std::sync::Arc::clone(&told);
        let count = std::sync::atomic::Ordering::SeqCst;
        let busy = Busy::new(move |_| {
            teller.fetch_add(1, count);
        });
        let destination = Destination::Directory { path: dir.path().into(), sync };
        let mut reception = Reception::telling(offer, destination, "", busy).unwrap();
        reception.piece(&piece(&offer, 0, &encoded, &[])).unwrap();
        let before = told.load(count);
        reception.piece(&piece(&offer, 1, &[7; 100], &[*hash(&[7]).as_bytes(); 100])).unwrap();
        assert!(reception.is_complete());
        let written = told.load(count);
        assert!(written >= before + 100, "{written} after {before}");
        reception.finish().unwrap();
        assert!(told.load(count) >= written + 200, "{} after {written}", told.load(count));
    }
}

#[test]
fn a_directory_that_is_there_is_added_to_and_the_rest_of_it_stays() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::write(dir.path().join("d/old"), "stays").unwrap();
    std::fs::write(dir.path().join("d/new"), "is replaced").unwrap();
    let entries = vec![entry(None, "d", Kind::Directory), entry(Some(0), "new", file(3))];
    receive(dir.path(), entries, b"new").unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("d/old")).unwrap(), "stays");
    assert_eq!(std::fs::read_to_string(dir.path().join("d/new")).unwrap(), "new");
    // A directory does not give way to a file, and that is said before anything is sent.
    let error = begin(dir.path(), vec![entry(None, "d", file(3))]).unwrap_err().to_string();
    assert!(error.contains("is a directory") && error.contains("move it away"), "{error}");
}

#[test]
fn files_directories_and_links_have_the_times_they_were_sent_with() {
    let dir = tempfile::tempdir().unwrap();
    let link = Kind::Symlink { target: "f".into() };
    let mut entries =
        vec![entry(None, "d", Kind::Directory), entry(Some(0), "f", file(1)), entry(Some(0), "l", link)];
    let times = [1_000_000_001, 2_000_000_000_000_000_002, -3];
    entries.iter_mut().zip(times).for_each(|(entry, time)| entry.mtime_ns = time);
    receive(dir.path(), entries, b"x").unwrap();
    for (name, time) in ["d", "d/f", "d/l"].into_iter().zip(times) {
        let meta = dir.path().join(name).symlink_metadata().unwrap();
        assert_eq!(meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), time, "{name}");
    }
}

/// A manifest may say them; a host that cannot keep them keeps the nearest that it can.
#[test]
fn the_first_and_the_last_time_that_can_be_said_are_taken() {
    for time in [i64::MIN, i64::MAX] {
        let dir = tempfile::tempdir().unwrap();
        let link = Kind::Symlink { target: "f".into() };
        let mut entries =
            vec![entry(None, "d", Kind::Directory), entry(Some(0), "f", file(1)), entry(Some(0), "l", link)];
        entries.iter_mut().for_each(|entry| entry.mtime_ns = time);
        receive(dir.path(), entries, b"x").unwrap();
        let of = |name| dir.path().join(name).symlink_metadata().unwrap().mtime();
        assert_eq!((of("d/l"), of("d")), (of("d/f"), of("d/f")));
    }
}

/// Has this thread use files as somebody whom permissions stop; without effect for others than root.
#[cfg(target_os = "linux")]
struct Nobody(nix::unistd::Uid);

#[cfg(target_os = "linux")]
impl Nobody {
    fn become_it() -> Self {
        Self(nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534)))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Nobody {
    fn drop(&mut self) {
        nix::unistd::setfsuid(self.0);
    }
}

/// Permissions are set before things are put into their places, and who dies in between goes on all the same.
#[test]
#[cfg(target_os = "linux")]
fn what_is_put_together_may_have_its_permissions_already() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let _nobody = Nobody::become_it();
    let mut entries =
        vec![entry(None, "f", file(4)), entry(None, "empty", Kind::File { size: 0, extents: vec![] })];
    entries.iter_mut().for_each(|entry| entry.mode = 0o004);
    let manifest = Manifest { nonce: [0; 16], entries: entries.clone() };
    {
        let (mut reception, offer) = begin(dir.path(), entries).unwrap();
        reception.piece(&piece(&offer, 1, b"good", &[*hash(b"good").as_bytes()])).unwrap();
        assert!(reception.is_complete());
    }
    let staging = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(staging.join("tree/empty"), "").unwrap();
    for name in ["f", "empty"] {
        std::fs::set_permissions(staging.join("tree").join(name), PermissionsExt::from_mode(0o004)).unwrap();
    }
    let offer = offer(&manifest, &manifest.encode());
    let mut reception = Reception::new(offer, into(dir.path()), "").unwrap();
    assert!(reception.is_complete());
    reception.finish().unwrap();
    let meta = dir.path().join("f").metadata().unwrap();
    assert_eq!((meta.len(), meta.mode() & 0o777), (4, 0o004));
}

/// Who dies while directories get their permissions, or after that, is stopped by none of those.
#[test]
#[cfg(target_os = "linux")]
fn directories_that_have_their_permissions_already_are_gone_through_again() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    set(dir.path(), 0o777);
    let _nobody = Nobody::become_it();
    let mut entries = vec![entry(None, "d", Kind::Directory), entry(Some(0), "e", Kind::Directory)];
    (entries[0].mode, entries[1].mode) = (0o300, 0);
    let manifest = Manifest { nonce: [0; 16], entries: entries.clone() };
    drop(begin(dir.path(), entries).unwrap());
    let staging = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(staging.join("publishing"), "").unwrap();
    // They were there before, and what is in them was put there.
    std::fs::create_dir_all(dir.path().join("d/e")).unwrap();
    set(&dir.path().join("d/e"), 0);
    set(&dir.path().join("d"), 0);
    Reception::new(offer(&manifest, &manifest.encode()), into(dir.path()), "").unwrap().finish().unwrap();
    assert_eq!(dir.path().join("d").metadata().unwrap().mode() & 0o777, 0o300);
    assert_eq!(dir.path().join("d/e").metadata().unwrap().mode() & 0o777, 0);
}

/// A file system that does not tell `F` from `f` has one file for both.
#[test]
fn two_names_that_are_one_file_are_not_taken_for_two() {
    let dir = tempfile::tempdir().unwrap();
    let (mut reception, offer) =
        begin(dir.path(), vec![entry(None, "F", file(1)), entry(None, "f", file(1))]).unwrap();
    reception.piece(&piece(&offer, 1, b"xy", &[*hash(b"x").as_bytes(), *hash(b"y").as_bytes()])).unwrap();
    let tree = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path().join("tree");
    std::fs::remove_file(tree.join("F")).unwrap();
    std::fs::hard_link(tree.join("f"), tree.join("F")).unwrap();
    let error = reception.finish().unwrap_err().to_string();
    assert!(error.contains("tree/f ") && error.contains("two names"), "{error}");
    assert!(!dir.path().join("f").exists() && !dir.path().join("F").exists());
}

/// A damaged file is sent again with the parts of others that its pieces hold.
#[test]
fn what_is_verified_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = PIECE_BYTES as usize;
    let entries = vec![entry(None, "a", file(3 * bytes as u64 / 2)), entry(None, "b", file(bytes as u64))];
    let body: Vec<u8> = (0..bytes * 5 / 2).map(|n| (n / 9) as u8).collect();
    let (a, b) = body.split_at(bytes * 3 / 2);
    let digests = [*hash(a).as_bytes(), *hash(b).as_bytes()];
    let (mut reception, offer) = begin(dir.path(), entries).unwrap();
    let good = |number: usize, digests: &[_]| {
        piece(&offer, number as u32, &body[(number - 1) * bytes..body.len().min(number * bytes)], digests)
    };
    reception.piece(&good(2, &digests[..1])).unwrap();
    reception.piece(&good(3, &digests[1..])).unwrap();
    let again = reception.piece(&piece(&offer, 1, &vec![1; bytes], &[])).unwrap();
    assert!(matches!(again, Some(Message::Want { ranges, .. }) if ranges == [(1, 2)]));
    reception.piece(&good(1, &[])).unwrap();
    let mut other = body[bytes..2 * bytes].to_vec();
    other[bytes / 2..].fill(1);
    reception.piece(&piece(&offer, 2, &other, &digests[..1])).unwrap();
    assert!(reception.is_complete());
    reception.finish().unwrap();
    assert!(std::fs::read(dir.path().join("a")).unwrap() == a);
    assert!(std::fs::read(dir.path().join("b")).unwrap() == b);
}

/// Said before anything is sent, not once all of it is here.
#[test]
#[cfg(target_os = "linux")]
fn a_directory_that_cannot_be_written_to_is_named_at_once() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let _nobody = Nobody::become_it();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::set_permissions(dir.path().join("d"), PermissionsExt::from_mode(0o555)).unwrap();
    let entries = vec![entry(None, "d", Kind::Directory), entry(Some(0), "f", file(1))];
    let error = begin(dir.path(), entries).unwrap_err().to_string();
    assert!(error.contains("/d is there and ") && error.contains("written"), "{error}");
    // Nothing is to be made in it.
    receive(dir.path(), vec![entry(None, "d", Kind::Directory)], b"").unwrap();
}
