//! The store on a real folder.

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;

use super::*;
use crate::{BlockKind, BlockRef, ListEntry, ListQuery, PACKED_ROWS_AT_ONCE};

struct Room {
    folder: tempfile::TempDir,
    store: Store,
}

fn room() -> Room {
    room_packing(PACKED_BYTES_MAX)
}

/// A store whose packed blobs have at most so many bytes; with 0 there are none.
fn room_packing(packed_bytes_max: u64) -> Room {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_packing(folder.path(), packed_bytes_max).unwrap();
    store.create_container("neapst1", "cont").unwrap();
    Room { folder, store }
}

fn blob(name: &str) -> BlobAddress {
    BlobAddress::new("neapst1", "cont", name).unwrap()
}

impl Room {
    fn put(&self, name: &str, text: &str) -> BlobProperties {
        self.store.put_bytes(&blob(name), text.as_bytes(), Headers::default(), &Condition::default()).unwrap()
    }

    fn append(&self, name: &str, text: &str) {
        let length = self.store.properties(&blob(name)).map_or(0, |now| now.length);
        self.store.append_at(&blob(name), length, text.as_bytes()).unwrap();
    }

    /// Makes a blob with a file of its own, or a packed one.
    fn put_or_append(&self, name: &str, put: bool) {
        if put {
            self.put(name, "");
        } else {
            self.append(name, "x");
        }
    }

    /// Whether the blob stands among the packed ones.
    fn is_packed(&self, name: &str) -> bool {
        let path = self.store.blob_path(&blob(name)).unwrap();
        matches!(self.store.find(&blob(name), &path).unwrap(), Some(Found::Packed(_)))
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8(self.store.read(&blob(name), 0, 1 << 20).unwrap()).unwrap()
    }

    fn names(&self, query: &ListQuery) -> Vec<String> {
        let mut query = query.clone();
        let mut names = Vec::new();
        loop {
            let page = self.store.list("neapst1", "cont", &query).unwrap();
            names.extend(page.entries.iter().map(|entry| match entry {
                ListEntry::Blob { name, .. } => name.clone(),
                ListEntry::Prefix(name) => format!("[{name}]"),
            }));
            match page.next_marker {
                Some(marker) => query.marker = Some(marker),
                None => return names,
            }
        }
    }
}

#[test]
fn what_was_put_is_read_with_its_properties() {
    let room = room();
    let headers = Headers {
        content_type: Some("text/plain".into()),
        content_md5: Some([7; 16]),
        metadata: [("name".to_owned(), "v".to_owned())].into(),
        ..Headers::default()
    };
    let put = room.store.put_bytes(&blob("a/b"), b"hello", headers.clone(), &Condition::default()).unwrap();
    assert_eq!(room.store.properties(&blob("a/b")).unwrap(), put);
    assert_eq!((put.length, &put.headers), (5, &headers));
    assert_eq!(room.text("a/b"), "hello");
    assert_eq!(room.store.read(&blob("a/b"), 3, 100).unwrap(), b"lo");
    assert_eq!(room.store.read(&blob("a/b"), 9, 100).unwrap(), b"");
}

#[test]
fn the_etag_changes_with_content_and_metadata_and_not_by_itself() {
    let room = room();
    let mut seen = vec![room.put("a", "same").etag];
    seen.push(room.put("a", "same").etag);
    let metadata = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let changed = room.store.set_metadata(&blob("a"), metadata.clone(), &Condition::default()).unwrap();
    assert_eq!(changed.headers.metadata, metadata);
    seen.push(changed.etag.clone());
    assert_eq!(room.store.properties(&blob("a")).unwrap(), changed);
    room.store.append_at(&blob("a"), 4, b"!").unwrap();
    let grown = room.store.properties(&blob("a")).unwrap();
    assert_eq!(grown.headers.metadata, metadata, "kept by an append");
    seen.push(grown.etag);
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

#[test]
fn a_packed_blob_is_like_any_other() {
    let room = room();
    room.append("a", "one");
    let first = room.store.properties(&blob("a")).unwrap();
    assert_eq!((first.length, &first.headers), (3, &Headers::default()));
    assert_eq!(room.store.properties(&blob("a")).unwrap(), first);
    let listed = room.store.list("neapst1", "cont", &ListQuery::default()).unwrap().entries;
    assert_eq!(listed, [ListEntry::Blob { name: "a".to_owned(), properties: first.clone() }]);
    let open = room.store.open_blob(&blob("a")).unwrap();
    room.append("a", " two");
    assert!(room.is_packed("a"));
    assert_eq!(open.properties, first);
    assert_eq!(std::io::read_to_string(open.file).unwrap(), "one", "as it was when it was opened");
    assert_eq!(room.store.read(&blob("a"), 4, 2).unwrap(), b"tw");
    assert_eq!(room.store.read(&blob("a"), 9, 2).unwrap(), b"");
    room.store.delete(&blob("a"), &Condition::default()).unwrap();
    assert!(matches!(room.store.properties(&blob("a")), Err(Error::BlobNotFound(_))));
    room.append("a", "one");
    assert_ne!(room.store.properties(&blob("a")).unwrap().etag, first.etag, "made anew");
}

#[test]
fn conditions_hold_for_packed_blobs() {
    let room = room();
    room.append("a", "one");
    let when = |etag: String| Condition { if_match: Some(etag), if_none_match: None };
    let stale = when(room.store.properties(&blob("a")).unwrap().etag);
    room.append("a", " two");
    let put = |condition: &Condition| room.store.put_bytes(&blob("a"), b"s", Headers::default(), condition);
    assert!(matches!(room.store.delete(&blob("a"), &stale), Err(Error::ConditionNotMet(_))));
    assert!(matches!(put(&stale), Err(Error::ConditionNotMet(_))));
    assert!(matches!(put(&Condition::absent()), Err(Error::BlobExists(_))));
    let set = room.store.set_metadata(&blob("a"), BTreeMap::new(), &stale);
    assert!(matches!(set, Err(Error::ConditionNotMet(_))));
    assert_eq!((room.text("a").as_str(), room.is_packed("a")), ("one two", true), "nothing was changed");
    let now = when(room.store.properties(&blob("a")).unwrap().etag);
    let done = put(&now).unwrap();
    assert_eq!(room.store.properties(&blob("a")).unwrap(), done);
    assert_eq!((room.text("a").as_str(), room.is_packed("a")), ("s", false));
}

#[test]
fn metadata_gives_a_packed_blob_a_file() {
    let room = room();
    room.append("a", "one");
    let metadata = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let set = room.store.set_metadata(&blob("a"), metadata.clone(), &Condition::default()).unwrap();
    assert_eq!((set.length, &set.headers.metadata), (3, &metadata));
    assert_eq!(room.store.properties(&blob("a")).unwrap(), set);
    assert_eq!((room.text("a").as_str(), room.is_packed("a")), ("one", false));
}

#[test]
fn a_small_blob_makes_no_files() {
    let room = room();
    let most = "x".repeat(usize::try_from(PACKED_BYTES_MAX).unwrap());
    room.append("a/b/c", &most);
    let container = room.folder.path().join("neapst1/cont");
    assert_eq!(fs::read_dir(&container).unwrap().count(), 0);
    room.append("a/b/c", "y");
    assert!(container.join("a@d/b@d/c@b").is_file());
    assert_eq!(room.text("a/b/c"), format!("{most}y"));
    room.append("large", &format!("{most}y"));
    assert!(!room.is_packed("large"));
    room.put("put", "x");
    room.append("put", "y");
    assert!(!room.is_packed("put"), "what has a file grows there");
}

#[test]
fn packed_blobs_go_with_their_container() {
    let room = room();
    room.store.create_container("neapst1", "other").unwrap();
    room.store.create_container("neapst2", "cont").unwrap();
    let other = BlobAddress::new("neapst1", "other", "a").unwrap();
    let another = BlobAddress::new("neapst2", "cont", "a").unwrap();
    for address in [&other, &another] {
        room.store.append_at(address, 0, b"x").unwrap();
    }
    // More than go at a time.
    for n in 0..=PACKED_ROWS_AT_ONCE {
        room.append(&n.to_string(), "x");
    }
    assert_eq!(room.names(&ListQuery::default()).len(), usize::from(PACKED_ROWS_AT_ONCE) + 1);
    room.store.delete_container("neapst1", "cont").unwrap();
    room.store.create_container("neapst1", "cont").unwrap();
    assert_eq!(room.names(&ListQuery::default()), [""; 0]);
    assert!(matches!(room.store.properties(&blob("0")), Err(Error::BlobNotFound(_))));
    assert_eq!(room.store.read(&other, 0, 9).unwrap(), b"x");
    room.store.delete_account("neapst1").unwrap();
    assert!(matches!(room.store.properties(&other), Err(Error::ContainerNotFound { .. })));
    assert_eq!(room.store.read(&another, 0, 9).unwrap(), b"x");
}

#[test]
fn a_large_group_of_packed_blobs_is_one_line() {
    let room = room();
    for n in 0..=PACKED_ROWS_AT_ONCE {
        room.append(&format!("many/{n}"), "x");
    }
    room.append("a", "x");
    room.append("z", "x");
    let query = ListQuery { delimiter: Some("/".into()), results_max: Some(2), ..ListQuery::default() };
    assert_eq!(room.names(&query), ["a", "[many/]", "z"]);
}

#[test]
fn a_checksum_is_forgotten_when_the_bytes_are_others() {
    let room = room();
    let headers = Headers { content_md5: Some([7; 16]), ..Headers::default() };
    room.store.put_bytes(&blob("a"), b"x", headers, &Condition::default()).unwrap();
    room.store.append_at(&blob("a"), 1, b"y").unwrap();
    let now = room.store.properties(&blob("a")).unwrap();
    assert_eq!(now.headers.content_md5, None);
}

#[test]
fn conditions() {
    let room = room();
    let etag = room.put("a", "1").etag;
    let check = |if_match: Option<&str>, if_none_match: Option<&str>, name: &str| {
        let condition = Condition {
            if_match: if_match.map(str::to_owned),
            if_none_match: if_none_match.map(str::to_owned),
        };
        let found = room.store.properties(&blob(name)).ok();
        condition.check(&blob(name), found.as_ref())
    };
    let quoted = format!("\"{etag}\"");
    assert!(check(Some(&etag), None, "a").is_ok());
    assert!(check(Some(&quoted), None, "a").is_ok());
    assert!(check(Some("*"), None, "a").is_ok());
    assert!(check(None, Some("\"0x0\""), "a").is_ok());
    assert!(check(None, Some("*"), "absent").is_ok());
    let exists = check(None, Some("*"), "a");
    assert!(matches!(exists, Err(Error::BlobExists(_))));
    for failed in
        [check(Some("\"0x0\""), None, "a"), check(Some("*"), None, "absent"), check(None, Some(&quoted), "a")]
    {
        assert!(matches!(failed, Err(Error::ConditionNotMet(_))));
    }
    let again = room.store.put_bytes(&blob("a"), b"2", Headers::default(), &Condition::absent());
    assert!(matches!(again, Err(Error::BlobExists(_))));
    assert_eq!(room.text("a"), "1");
}

#[test]
fn what_is_missing_is_named() {
    let room = room();
    let elsewhere = BlobAddress::new("neapst1", "other", "a").unwrap();
    let missing = room.store.properties(&blob("a"));
    assert!(matches!(missing, Err(Error::BlobNotFound(_))));
    let none = Condition::default();
    for result in [
        room.store.properties(&elsewhere).map(drop),
        room.store.put_bytes(&elsewhere, b"", Headers::default(), &none).map(drop),
        room.store.append_at(&elsewhere, 0, b"x").map(drop),
        room.store.list("neapst1", "other", &ListQuery::default()).map(drop),
        room.store.stage_block(&elsewhere, "QUE=", room.store.begin_block(&elsewhere).unwrap()),
    ] {
        assert!(matches!(result, Err(Error::ContainerNotFound { .. })), "{result:?}");
    }
}

#[test]
fn deleting_takes_empty_folders_along_and_nothing_more() {
    let room = room();
    room.put("a/b/c", "1");
    room.put("a/x", "2");
    room.put("a", "3");
    room.store.delete(&blob("a/b/c"), &Condition::default()).unwrap();
    assert_eq!(room.names(&ListQuery::default()), ["a", "a/x"]);
    room.store.delete(&blob("a/x"), &Condition::default()).unwrap();
    room.store.delete(&blob("a"), &Condition::default()).unwrap();
    let again = room.store.delete(&blob("a"), &Condition::default());
    assert!(matches!(again, Err(Error::BlobNotFound(_))));
    let left = fs::read_dir(room.folder.path().join("neapst1/cont")).unwrap();
    assert_eq!(left.count(), 0);
    room.put("z", "1");
    room.store.delete_account("neapst1").unwrap();
    room.store.delete_account("neapst1").unwrap();
    assert!(!room.store.container_exists("neapst1", "cont").unwrap());
}

#[test]
fn appends_repeat_safely_and_gaps_are_told() {
    for packed_bytes_max in [0, 3, PACKED_BYTES_MAX] {
        appends_repeat_safely(&room_packing(packed_bytes_max));
    }
}

fn appends_repeat_safely(room: &Room) {
    for (offset, bytes, length, text) in [
        (0, "abc", 3, "abc"),
        (0, "abc", 3, "abc"),
        (1, "bcd", 4, "abcd"),
        (4, "", 4, "abcd"),
        (2, "c", 4, "abcd"),
    ] {
        let now = room.store.append_at(&blob("log"), offset, bytes.as_bytes()).unwrap();
        assert_eq!((now, room.text("log").as_str()), (length, text));
    }
    let error = room.store.append_at(&blob("log"), 9, b"x").unwrap_err();
    assert!(matches!(error, Error::Gap { have_bytes: 4, .. }));
}

#[test]
fn blocks_are_put_together_in_the_order_of_the_list() {
    let room = room();
    let id = |text: &str| STANDARD.encode(text);
    for (name, text) in [("b1", "one "), ("b2", "two "), ("b3", "three ")] {
        let mut upload = room.store.begin_block(&blob("big")).unwrap();
        upload.write(text.as_bytes()).unwrap();
        room.store.stage_block(&blob("big"), &id(name), upload).unwrap();
    }
    let block = |name: &str, kind| BlockRef { kind, id: id(name) };
    let commit = |blocks: &[BlockRef]| {
        room.store.commit_blocks(&blob("big"), blocks, Headers::default(), &Condition::default())
    };
    let unknown = commit(&[block("b1", BlockKind::Latest), block("b9", BlockKind::Latest)]);
    assert!(matches!(unknown, Err(Error::UnknownBlock { .. })));
    assert!(room.store.properties(&blob("big")).is_err());
    let list =
        [block("b3", BlockKind::Latest), block("b1", BlockKind::Uncommitted), block("b1", BlockKind::Latest)];
    assert_eq!(commit(&list).unwrap().length, 14);
    assert_eq!(room.text("big"), "three one one ");
    assert!(matches!(commit(&list), Err(Error::UnknownBlock { .. })), "used up");
    let committed = commit(&[block("b1", BlockKind::Committed)]);
    assert!(matches!(committed, Err(Error::UnknownBlock { .. })));
    let bad = room.store.stage_block(&blob("big"), "../..", room.store.begin_block(&blob("big")).unwrap());
    assert!(matches!(bad, Err(Error::BadInput { .. })));
    assert_eq!(room.names(&ListQuery::default()), ["big"], "blocks are not listed");
}

#[test]
fn blocks_that_were_never_used_are_swept() {
    let room = room();
    let upload = room.store.begin_block(&blob("big")).unwrap();
    room.store.stage_block(&blob("big"), "QUE=", upload).unwrap();
    assert_eq!(room.store.sweep_blocks("neapst1", "cont", 0).unwrap(), 0);
    assert_eq!(room.store.sweep_blocks("neapst1", "cont", i64::MAX).unwrap(), 1);
    assert_eq!(room.store.sweep_blocks("neapst1", "cont", i64::MAX).unwrap(), 0);
}

#[test]
fn unfinished_uploads_leave_nothing() {
    let room = room();
    let mut upload = room.store.begin_upload(&blob("half")).unwrap();
    upload.write(b"half").unwrap();
    let kept = || fs::read_dir(room.folder.path().join("@tmp")).unwrap().count();
    assert_eq!(kept(), 1);
    drop(upload);
    assert_eq!(kept(), 0);
    fs::write(room.folder.path().join("@tmp/77"), "left by a crash").unwrap();
    drop(room.store);
    drop(Store::open(room.folder.path()).unwrap());
    assert_eq!(kept(), 0);
}

#[test]
fn an_upload_beyond_its_limit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut upload = Upload::create(folder.path().join("u"), 4, None).unwrap();
    upload.write(b"1234").unwrap();
    assert!(matches!(upload.write(b"5"), Err(Error::TooLarge { .. })));
}

#[test]
fn links_are_never_followed() {
    let room = room();
    room.put("real/secret", "x");
    let container = room.folder.path().join("neapst1/cont");
    std::os::unix::fs::symlink(container.join("real@d"), container.join("link@d")).unwrap();
    std::os::unix::fs::symlink(container.join("real@d/secret@b"), container.join("file@b")).unwrap();
    for name in ["link/secret", "file"] {
        let read = room.store.properties(&blob(name));
        assert!(matches!(read, Err(Error::Link { .. })), "{name} {read:?}");
        let written = room.store.put_bytes(&blob(name), b"", Headers::default(), &Condition::default());
        assert!(matches!(written, Err(Error::Link { .. })), "{name}");
    }
    assert_eq!(room.names(&ListQuery::default()), ["real/secret"]);
}

#[test]
fn metadata_has_rules_and_a_limit() {
    let room = room();
    room.put("a", "");
    let set = |name: &str, value: String| {
        let metadata = BTreeMap::from([(name.to_owned(), value)]);
        room.store.set_metadata(&blob("a"), metadata, &Condition::default())
    };
    assert!(set("ok_1", String::new()).is_ok());
    assert!(matches!(set("1a", String::new()), Err(Error::BadName { .. })));
    assert!(matches!(set("a b", String::new()), Err(Error::BadName { .. })));
    assert!(matches!(set("a", "x".repeat(9_000)), Err(Error::TooLarge { .. })));
}

#[tokio::test]
async fn a_follower_wakes_for_growth_and_is_forgotten_when_dropped() {
    for packed_bytes_max in [0, 2, PACKED_BYTES_MAX] {
        a_follower_wakes(&room_packing(packed_bytes_max)).await;
    }
}

async fn a_follower_wakes(room: &Room) {
    room.store.append_at(&blob("log"), 0, b"ab").unwrap();
    let mut follower = room.store.watch(&blob("log")).unwrap();
    let second = room.store.watch(&blob("log")).unwrap();
    assert_eq!((follower.length(), second.length()), (2, 2));
    assert_eq!(follower.grown(0).await, 2);
    room.store.append_at(&blob("log"), 2, b"c").unwrap();
    assert_eq!(follower.grown(2).await, 3);
    drop(follower);
    assert_eq!(room.store.followed().count(), 1);
    drop(second);
    assert_eq!(room.store.followed().count(), 0);
}

#[test]
fn listing_orders_by_full_name_with_prefix_delimiter_and_pages() {
    let room = room();
    let long = "m".repeat(300);
    let mut names = vec![
        "a".to_owned(),
        "a-b".into(),
        "a/".into(),
        "a/b".into(),
        "a/b/c".into(),
        "a0".into(),
        "b/x".into(),
        "b//y".into(),
        "../up".into(),
        "é".into(),
        "Z".into(),
        long.clone(),
        format!("{long}/x"),
        format!("{}-", &long[..200]),
        format!("{}/q", &long[..200]),
        long[..200].to_owned(),
    ];
    for (at, name) in names.iter().enumerate() {
        room.put_or_append(name, at % 2 == 0);
    }
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    for results_max in [None, Some(1), Some(3)] {
        let all = ListQuery { results_max, ..ListQuery::default() };
        assert_eq!(room.names(&all), names, "{results_max:?}");
        let slash = |prefix: &str| {
            room.names(&ListQuery {
                prefix: prefix.to_owned(),
                delimiter: Some("/".into()),
                results_max,
                marker: None,
            })
        };
        assert_eq!(slash("a"), ["a", "a-b", "[a/]", "a0"]);
        assert_eq!(slash("a/"), ["a/", "a/b", "[a/b/]"]);
        assert_eq!(slash("b/"), ["[b//]", "b/x"]);
        assert_eq!(slash("nothing"), [""; 0]);
        let dash = room.names(&ListQuery {
            prefix: "a".into(),
            delimiter: Some("-".into()),
            results_max,
            marker: None,
        });
        assert_eq!(dash, ["a", "[a-]", "a/", "a/b", "a/b/c", "a0"]);
    }
    let bad = ListQuery { marker: Some("!".into()), ..ListQuery::default() };
    assert!(matches!(room.store.list("neapst1", "cont", &bad), Err(Error::BadInput { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_listing_is_what_a_sorted_list_would_say(
        names in prop::collection::btree_set("[ab/.-]{1,6}", 1..12),
        prefix in "[ab/]{0,2}",
        results_max in 1_usize..4,
        slash in any::<bool>(),
        packed in any::<u16>(),
    ) {
        let room = room();
        for (at, name) in names.iter().enumerate() {
            room.put_or_append(name, packed >> at & 1 == 0);
        }
        let mut expected: Vec<String> = Vec::new();
        for name in names.iter().filter(|name| name.starts_with(&prefix)) {
            let cut = name[prefix.len()..].find('/').filter(|_| slash);
            let line = match cut {
                Some(at) => format!("[{}]", &name[..prefix.len() + at + 1]),
                None => name.clone(),
            };
            if expected.last() != Some(&line) {
                expected.push(line);
            }
        }
        let query = ListQuery {
            prefix,
            delimiter: slash.then(|| "/".to_owned()),
            results_max: Some(results_max),
            marker: None,
        };
        prop_assert_eq!(room.names(&query), expected);
    }
}
