//! What a process that ended has left behind, and another one goes on with.

use super::*;

#[test]
fn what_was_begun_is_resumed_and_verified_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let size = u64::from(PIECE_BYTES) * 3;
    let data: Vec<u8> = (0..size).map(|n| (n / 5) as u8).collect();
    let entries = vec![entry(None, "f", file(size))];
    let digest = [*hash(&data).as_bytes()];
    let part = |n: usize| &data[n * PIECE_BYTES as usize..(n + 1) * PIECE_BYTES as usize];
    {
        let (mut reception, offer) = begin(dir.path(), entries.clone()).unwrap();
        reception.piece(&piece(&offer, 1, part(0), &[])).unwrap();
        reception.piece(&piece(&offer, 3, part(2), &digest)).unwrap();
        // And the process dies.
    }
    let manifest = Manifest { nonce: [0; 16], entries };
    let offer = offer(&manifest, &manifest.encode());
    let mut reception = Reception::new(offer, into(dir.path()), "").unwrap();
    let wanted =
        Message::Want { cast: short(&offer.id), ordered: false, name: "".into(), ranges: vec![(2, 1)] };
    assert_eq!(reception.want(), wanted, "the manifest is known, and two pieces are here");
    assert_eq!(reception.resumed_and_new_bytes().0, u64::from(PIECE_BYTES) * 2);
    reception.piece(&piece(&offer, 2, part(1), &[])).unwrap();
    assert!(reception.is_complete());
    reception.finish().unwrap();
    reception.forget().unwrap();
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), data);
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["f"], "nothing else remains");
}

#[test]
fn what_was_kept_and_is_damaged_on_disk_is_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let entries = vec![entry(None, "a", file(4)), entry(None, "b", file(u64::from(PIECE_BYTES)))];
    let manifest = Manifest { nonce: [0; 16], entries: entries.clone() };
    let body: Vec<u8> = b"good".iter().copied().chain(vec![7; PIECE_BYTES as usize]).collect();
    let first = &body[..PIECE_BYTES as usize];
    {
        let (mut reception, offer) = begin(dir.path(), entries).unwrap();
        reception.piece(&piece(&offer, 1, first, &[*hash(b"good").as_bytes()])).unwrap();
    }
    let staging = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(staging.join("tree/a"), "evil").unwrap();
    let offer = offer(&manifest, &manifest.encode());
    let mut reception = Reception::new(offer, into(dir.path()), "").unwrap();
    assert!(matches!(reception.want(), Message::Want { ranges, .. } if ranges == [(1, 2)]));
    reception.piece(&piece(&offer, 1, first, &[*hash(b"good").as_bytes()])).unwrap();
    let digest = *hash(&vec![7; PIECE_BYTES as usize]).as_bytes();
    reception.piece(&piece(&offer, 2, &body[PIECE_BYTES as usize..], &[digest])).unwrap();
    assert!(reception.is_complete());
    reception.finish().unwrap();
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"good");
}

/// A process that died between the last rename and the end of its state has told nobody: the next one looks whether
/// what it was through with is there.
#[test]
fn what_was_put_into_place_and_is_not_there_any_more_comes_again() {
    let taken: [fn(&Path); 4] = [
        |_| {},
        |d| std::fs::remove_dir_all(d).unwrap(),
        // Its size and its time are those that were sent.
        |d| {
            let file = std::fs::File::options().write(true).open(d.join("f")).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"z", 0).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        },
        |d| {
            std::fs::remove_file(d.join("f")).unwrap();
            std::os::unix::fs::symlink("g", d.join("f")).unwrap();
        },
    ];
    for (which, take) in taken.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let entries = vec![
            entry(None, "d", Kind::Directory),
            entry(Some(0), "f", file(1)),
            entry(Some(0), "g", file(1)),
            entry(None, "h", Kind::File { size: 0, extents: Vec::new() }),
        ];
        let digests = [*hash(b"x").as_bytes(), *hash(b"y").as_bytes()];
        let manifest = Manifest { nonce: [0; 16], entries: entries.clone() };
        let (mut reception, offer) = begin(dir.path(), entries).unwrap();
        reception.piece(&piece(&offer, 1, b"xy", &digests)).unwrap();
        assert!(reception.is_complete());
        let staging = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        std::fs::write(staging.join("tree/h"), "").unwrap();
        std::fs::write(staging.join("publishing"), "").unwrap();
        drop(reception);
        let d = dir.path().join("d");
        std::fs::rename(staging.join("tree/d"), &d).unwrap();
        take(&d);
        let again = self::offer(&manifest, &manifest.encode());
        assert_eq!(again.id, offer.id);
        let mut reception = Reception::new(again, into(dir.path()), "").unwrap();
        assert_eq!(reception.is_complete(), which == 0, "{which}");
        assert_eq!(reception.resumed_and_new_bytes(), (if which == 0 { 2 } else { 0 }, 0), "{which}");
        if which > 0 {
            assert!(
                matches!(reception.want(), Message::Want { ranges, .. } if ranges == [(1, 1)]),
                "{which}"
            );
            reception.piece(&piece(&offer, 1, b"xy", &digests)).unwrap();
        }
        assert!(reception.is_complete(), "{which}");
        reception.finish().unwrap();
        reception.forget().unwrap();
        assert_eq!(std::fs::read(d.join("f")).unwrap(), b"x", "{which}");
        assert_eq!(std::fs::read(d.join("g")).unwrap(), b"y", "{which}");
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "{which}: d and h");
    }
}

/// A reception of a file with `x` that puts it into its place, and does so once more, as the sender was not told.
fn finished_again(dir: &Path, entries: Vec<Entry>) -> Reception {
    let (mut reception, offer) = begin(dir, entries).unwrap();
    reception.piece(&piece(&offer, 1, b"x", &[*hash(b"x").as_bytes()])).unwrap();
    reception.finish().unwrap();
    drop(reception);
    let mut reception = Reception::new(offer, into(dir), "").unwrap();
    assert!(reception.is_complete(), "the sender was not told");
    reception.finish().unwrap();
    reception
}

/// Who dies before the sender is told, or while the state is removed, in which the last is the note that all is in its
/// place, does not begin anew.
#[test]
fn the_note_that_all_is_in_its_place_outlives_what_else_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = Manifest { nonce: [0; 16], entries: vec![entry(None, "f", file(1))] };
    let reception = finished_again(dir.path(), manifest.entries.clone());
    let mut names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let staging = names.find(|path| !path.ends_with("f")).unwrap();
    // What cannot be removed ends it there.
    std::fs::remove_file(staging.join("manifest")).unwrap();
    std::fs::create_dir(staging.join("manifest")).unwrap();
    assert!(reception.forget().unwrap_err().to_string().contains("cannot remove "));
    std::fs::remove_dir(staging.join("manifest")).unwrap();
    drop(reception);
    let (mut reception, _) = begin(dir.path(), manifest.entries).unwrap();
    assert!(reception.is_complete(), "nothing of the body is needed");
    reception.finish().unwrap();
    reception.forget().unwrap();
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["f"]);
}

/// It was taken for missing, all was received anew, and what is in a directory that is closed by then could not be.
#[test]
#[cfg(target_os = "linux")]
fn what_its_own_user_may_not_read_is_verified_where_it_is() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let _nobody = Nobody::become_it();
    let mut entries = vec![entry(None, "d", Kind::Directory), entry(Some(0), "f", file(1))];
    (entries[0].mode, entries[1].mode) = (0o555, 0o040);
    finished_again(dir.path(), entries).forget().unwrap();
    assert_eq!(dir.path().join("d/f").metadata().unwrap().mode() & 0o777, 0o040);
}

/// In a directory that others may write to, too, somebody could say of anything that it was verified.
#[test]
fn state_that_another_user_has_made_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let entries = vec![entry(None, "f", file(1))];
    let id = *hash(&Manifest { nonce: [0; 16], entries: entries.clone() }.encode()).as_bytes();
    let name: String = id[..8].iter().map(|octet| format!("{octet:02x}")).collect();
    let state = dir.path().join(format!(".denrei-cast-{name}"));
    std::fs::create_dir_all(state.join("tree")).unwrap();
    std::fs::write(state.join("tree/f"), "z").unwrap();
    std::fs::write(state.join("publishing"), "").unwrap();
    if let Err(error) = std::os::unix::fs::chown(&state, Some(65_534), None) {
        return eprintln!("SKIPPED state_that_another_user_has_made_is_not_gone_on_with: {error}");
    }
    let error = begin(dir.path(), entries).unwrap_err().to_string();
    assert!(error.contains(&name) && error.contains("belongs to another user"), "{error}");
    assert!(!dir.path().join("f").exists());
}

/// A process that dies while it puts things into their places: what is moved stays, what is not follows.
#[test]
fn putting_into_place_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let entries = vec![entry(None, "a", file(1)), entry(None, "b", file(1))];
    let manifest = Manifest { nonce: [0; 16], entries: entries.clone() };
    let digests = [*hash(b"x").as_bytes(), *hash(b"y").as_bytes()];
    {
        let (mut reception, offer) = begin(dir.path(), entries).unwrap();
        reception.piece(&piece(&offer, 1, b"xy", &digests)).unwrap();
        assert!(reception.is_complete());
    }
    let staging = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(staging.join("publishing"), "").unwrap();
    std::fs::rename(staging.join("tree/a"), dir.path().join("a")).unwrap();
    let offer = offer(&manifest, &manifest.encode());
    let mut reception = Reception::new(offer, into(dir.path()), "").unwrap();
    assert!(reception.is_complete());
    reception.finish().unwrap();
    reception.forget().unwrap();
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"x");
    assert_eq!(std::fs::read(dir.path().join("b")).unwrap(), b"y");
    assert!(!staging.exists());
}

/// By who cleans up, for one. It came to its place full of zeros, and the reception was complete.
#[test]
fn a_file_that_is_removed_while_it_is_put_together_is_not_taken_for_whole() {
    let dir = tempfile::tempdir().unwrap();
    let data = vec![7; PIECE_BYTES as usize * 2];
    let (first, second) = data.split_at(PIECE_BYTES as usize);
    let entries = || vec![entry(None, "f", file(data.len() as u64))];
    let (mut reception, offer) = begin(dir.path(), entries()).unwrap();
    reception.piece(&piece(&offer, 1, first, &[])).unwrap();
    let state = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(state.join("tree/f")).unwrap();
    reception.piece(&piece(&offer, 2, second, &[*hash(&data).as_bytes()])).unwrap();
    let error = reception.finish().unwrap_err().to_string();
    assert!(error.contains("tree/f") && error.contains("No such file"), "{error}");
    assert!(!dir.path().join("f").exists());
    drop(reception);
    // What is not there comes again.
    let (mut reception, offer) = begin(dir.path(), entries()).unwrap();
    assert!(!reception.is_complete());
    reception.piece(&piece(&offer, 1, first, &[])).unwrap();
    reception.piece(&piece(&offer, 2, second, &[*hash(&data).as_bytes()])).unwrap();
    reception.finish().unwrap();
    assert!(std::fs::read(dir.path().join("f")).unwrap() == data);
}

/// The digest went on over what had been written to a file that was not there any more.
#[test]
fn a_file_that_is_removed_while_another_is_written_is_verified_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (vec![7; PIECE_BYTES as usize * 2], vec![9; PIECE_BYTES as usize * 2]);
    let entries = vec![entry(None, "a", file(a.len() as u64)), entry(None, "b", file(b.len() as u64))];
    let (mut reception, offer) = begin(dir.path(), entries).unwrap();
    let half = PIECE_BYTES as usize;
    let last = |data: &[u8]| [*hash(data).as_bytes()];
    reception.piece(&piece(&offer, 1, &a[..half], &[])).unwrap();
    reception.piece(&piece(&offer, 4, &b[half..], &last(&b))).unwrap();
    let state = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(state.join("tree/a")).unwrap();
    let again = reception.piece(&piece(&offer, 2, &a[half..], &last(&a))).unwrap();
    assert!(matches!(&again, Some(Message::Want { ranges, .. }) if ranges[0] == (1, 2)), "{again:?}");
}
