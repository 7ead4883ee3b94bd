//! What a crash leaves at each moment, and readers that look on while a blob moves.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{Condition, Headers, ListQuery};

const PACKED_MAX: u64 = 8;

struct Room {
    folder: tempfile::TempDir,
    store: Store,
}

fn blob(name: &str) -> BlobAddress {
    BlobAddress::new("neapst1", "cont", name).unwrap()
}

fn room() -> Room {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_packing(folder.path(), PACKED_MAX).unwrap();
    store.create_container("neapst1", "cont").unwrap();
    Room { folder, store }
}

impl Room {
    /// The store as a process finds it that starts after this one was killed: what is in the files now.
    fn killed(&self) -> Room {
        let folder = tempfile::tempdir().unwrap();
        copy(self.folder.path(), folder.path());
        let store = Store::open_packing(folder.path(), PACKED_MAX).unwrap();
        Room { folder, store }
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.store.read(&blob(name), 0, 100) {
            Ok(bytes) => Some(String::from_utf8(bytes).unwrap()),
            Err(Error::BlobNotFound(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn names(&self) -> Vec<String> {
        let page = self.store.list("neapst1", "cont", &ListQuery::default()).unwrap();
        page.entries.iter().map(|entry| entry.name().to_owned()).collect()
    }

    fn has_row(&self, name: &str) -> bool {
        self.store.packed().length(&blob(name)).unwrap().is_some()
    }

    /// Puts a file in the blob's place without removing its row.
    fn file(&self, name: &str, text: &str) {
        let path = self.store.blob_path(&blob(name)).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_killed_process_loses_no_append() {
    let room = room();
    for (at, text) in ["1", "12", "12345678", "123456789", "1234567890"].iter().enumerate() {
        room.store.append_at(&blob("log"), 0, text.as_bytes()).unwrap();
        let after = room.killed();
        assert_eq!(after.text("log").as_deref(), Some(*text));
        assert_eq!(after.has_row("log"), at < 3, "{text}");
        assert_eq!(after.names(), ["log"]);
    }
}

#[test]
fn killed_before_a_blob_has_its_file_it_is_still_packed() {
    let room = room();
    room.store.append_at(&blob("log"), 0, b"12345678").unwrap();
    fs::write(room.folder.path().join("@tmp/0"), "12345").unwrap();
    let after = room.killed();
    assert_eq!(after.text("log").as_deref(), Some("12345678"));
    assert_eq!(fs::read_dir(after.folder.path().join("@tmp")).unwrap().count(), 0);
    after.store.append_at(&blob("log"), 8, b"9").unwrap();
    assert_eq!((after.text("log").as_deref(), after.has_row("log")), (Some("123456789"), false));
}

/// Moved out (the file is longer, or as long), or put anew (it may be shorter), and killed before the row went.
#[test]
fn killed_between_file_and_row_the_file_counts() {
    for file in ["123456789", "12345678", "new", ""] {
        let room = room();
        room.store.append_at(&blob("a/log"), 0, b"12345678").unwrap();
        room.file("a/log", file);

        let after = room.killed();
        assert!(after.has_row("a/log"));
        assert_eq!(after.text("a/log").as_deref(), Some(file));
        assert_eq!(after.store.properties(&blob("a/log")).unwrap().length, file.len() as u64);
        assert_eq!(after.names(), ["a/log"], "once");
        let page = after.store.list("neapst1", "cont", &ListQuery::default()).unwrap();
        let crate::ListEntry::Blob { properties, .. } = &page.entries[0] else { panic!("a blob") };
        assert_eq!(*properties, after.store.properties(&blob("a/log")).unwrap());

        let grown = room.killed();
        grown.store.append_at(&blob("a/log"), file.len() as u64, b"!").unwrap();
        assert_eq!(grown.text("a/log"), Some(format!("{file}!")));
        assert!(!grown.has_row("a/log"), "an append tidies up");

        let put = room.killed();
        put.store.put_bytes(&blob("a/log"), b"put", Headers::default(), &Condition::default()).unwrap();
        assert_eq!((put.text("a/log").as_deref(), put.has_row("a/log")), (Some("put"), false));

        let deleted = room.killed();
        deleted.store.delete(&blob("a/log"), &Condition::default()).unwrap();
        assert_eq!((deleted.text("a/log"), deleted.has_row("a/log")), (None, false));
        assert_eq!(deleted.names(), [""; 0]);
    }
}

#[test]
fn killed_while_a_container_is_removed_the_next_start_finishes_it() {
    let room = room();
    room.store.create_container("neapst1", "stays").unwrap();
    let stays = BlobAddress::new("neapst1", "stays", "log").unwrap();
    for address in [&blob("log"), &stays] {
        room.store.append_at(address, 0, b"x").unwrap();
    }
    fs::rename(room.folder.path().join("neapst1/cont"), room.folder.path().join("@tmp/0")).unwrap();
    let after = room.killed();
    assert!(!after.has_row("log"));
    let read = after.store.read(&blob("log"), 0, 9);
    assert!(matches!(read, Err(Error::ContainerNotFound { .. })), "{read:?}");
    assert_eq!(after.store.read(&stays, 0, 9).unwrap(), b"x");
}

#[test]
fn properties_of_a_blob_that_is_gone_are_not_taken_over() {
    let room = room();
    room.file("log", "");
    room.store.set_metadata(&blob("log"), [("k".into(), "v".into())].into(), &Condition::default()).unwrap();
    fs::remove_file(room.store.blob_path(&blob("log")).unwrap()).unwrap();
    let after = room.killed();
    after.store.append_at(&blob("log"), 0, b"1").unwrap();
    after.store.append_at(&blob("log"), 1, b"23456789").unwrap();
    assert_eq!(after.store.properties(&blob("log")).unwrap().headers, Headers::default());
}

/// A blob that is there all the time is never missed, and never becomes shorter, wherever its bytes are just then.
#[test]
fn readers_look_on_while_blobs_move_out() {
    let room = room();
    let (store, done) = (&room.store, AtomicBool::new(false));
    let names: Vec<String> = (0..40).map(|n| format!("a/{n}/log")).collect();
    for name in &names {
        store.append_at(&blob(name), 0, b"x").unwrap();
    }
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for (name, length) in names.iter().flat_map(|name| (1..12).map(move |length| (name, length))) {
                store.append_at(&blob(name), length, b"x").unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        threads.spawn(|| {
            let mut lengths = vec![1; names.len()];
            while !done.load(Ordering::Relaxed) {
                for (name, length) in names.iter().zip(&mut lengths) {
                    let open = store.open_blob(&blob(name)).unwrap();
                    // A file may have grown since its length was taken; it has never less than that.
                    let bytes = std::io::copy(&mut &open.file, &mut std::io::sink()).unwrap();
                    assert!(bytes >= open.properties.length, "{name}");
                    assert!(open.properties.length >= *length, "{name}");
                    *length = open.properties.length;
                }
            }
        });
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(room.names().len(), names.len());
            }
        });
    });
    for name in &names {
        assert_eq!(store.properties(&blob(name)).unwrap().length, 12);
    }
}
