//! The database by itself.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn blob(name: &str) -> BlobAddress {
    BlobAddress::new("neapst1", "cont", name).unwrap()
}

#[test]
fn any_bytes_under_any_name_come_back_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=255).collect();
    for name in ["a", "a\0b", "é/ß", "\u{10FFFF}"] {
        let packed = Packed::open(folder.path()).unwrap();
        assert!(!packed.grow(&blob(name), &bytes).unwrap(), "not there yet");
        assert!(!packed.insert(&blob(name), &bytes, || false).unwrap());
        assert!(packed.insert(&blob(name), &bytes[..7], || true).unwrap());
        assert!(packed.grow(&blob(name), &bytes[7..]).unwrap());
        drop(packed);
        let packed = Packed::open(folder.path()).unwrap();
        let found = packed.blob(&blob(name)).unwrap().unwrap();
        assert_eq!((found.properties.length, &found.body), (256, &bytes), "{name:?}");
        assert_eq!(packed.length(&blob(name)).unwrap(), Some(256));
        assert_eq!(packed.last_byte(&blob(name)).unwrap(), Some(255));
        assert_eq!(packed.page("neapst1", "cont", name).unwrap()[0].0, name);
    }
    let packed = Packed::open(folder.path()).unwrap();
    packed.remove(&blob("a")).unwrap();
    packed.remove(&blob("a")).unwrap();
    assert!(packed.blob(&blob("a")).unwrap().is_none());
    assert!(packed.blob(&blob("a\0b")).unwrap().is_some());
}

#[test]
fn the_time_is_now_in_milliseconds() {
    let folder = tempfile::tempdir().unwrap();
    let packed = Packed::open(folder.path()).unwrap();
    packed.insert(&blob("a"), b"x", || true).unwrap();
    let said_ms = packed.properties(&blob("a")).unwrap().unwrap().last_modified_ms;
    let beside = folder.path().join("beside");
    std::fs::write(&beside, "").unwrap();
    let modified = std::fs::metadata(&beside).unwrap().modified().unwrap();
    let file_ms = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert!(file_ms.abs_diff(u128::try_from(said_ms).unwrap()) < 60_000, "{said_ms} beside {file_ms}");
}

#[test]
fn only_the_owner_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let packed = Packed::open(folder.path()).unwrap();
    packed.insert(&blob("a"), b"x", || true).unwrap();
    for file in ["packed.db", "packed.db-wal"] {
        let mode = std::fs::metadata(folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[test]
fn a_newer_schema_and_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    drop(Packed::open(folder.path()).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 9).unwrap();
    let error = Packed::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("schema version 9") && error.contains("packed.db"), "{error}");
    std::fs::write(&path, "no database at all".repeat(99)).unwrap();
    let error = Packed::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("packed.db"), "{error}");
}

#[test]
fn a_full_disk_changes_nothing_and_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let packed = Packed::open(folder.path()).unwrap();
    packed.insert(&blob("a"), b"x", || true).unwrap();
    let pages_max = |pages: u32| {
        packed.lock().pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
    };
    // Fewer than there are means: not one more.
    pages_max(1);
    let large = vec![b'y'; 16 * 1_024];
    let full = [packed.grow(&blob("a"), &large), packed.insert(&blob("b"), &large, || true)];
    assert!(full.iter().all(|said| matches!(said, Err(Error::DiskFull { .. }))), "{full:?}");
    assert_eq!(packed.blob(&blob("a")).unwrap().unwrap().body, b"x");
    assert_eq!(packed.length(&blob("b")).unwrap(), None);
    pages_max(1_000);
    assert!(packed.grow(&blob("a"), &large).unwrap());
    assert_eq!(packed.length(&blob("a")).unwrap(), Some(1 + large.len() as u64));
}
