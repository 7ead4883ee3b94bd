//! The store against a sorted map: any sequence of operations, with restarts among them, and with a limit
//! for packed blobs that most of them pass.

use proptest::prelude::*;

use super::*;
use crate::{ListEntry, ListQuery};

const PACKED_MAX: u64 = 6;
const NAMES: [&str; 10] = ["a", "a-", "a/", "a/b", "a/b/c", "a0", "b//x", "a\0", "é", "é/\u{10FFFF}"];
const PREFIXES: [&str; 6] = ["", "a", "a/", "a/b", "b", "é"];

#[derive(Clone, Debug)]
enum Step {
    Put { name: &'static str, length: usize },
    Append { name: &'static str, length: usize },
    SetMetadata { name: &'static str, value: String },
    Delete { name: &'static str },
    Read { name: &'static str, offset: u64, length_max: usize },
    List { prefix: &'static str, delimiter: Option<&'static str>, results_max: usize },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        2 => (name(), 0..9_usize).prop_map(|(name, length)| Step::Put { name, length }),
        8 => (name(), 0..9_usize).prop_map(|(name, length)| Step::Append { name, length }),
        1 => (name(), "[a-c]").prop_map(|(name, value)| Step::SetMetadata { name, value }),
        3 => name().prop_map(|name| Step::Delete { name }),
        3 => (name(), 0..9_u64, 0..9_usize)
            .prop_map(|(name, offset, length_max)| Step::Read { name, offset, length_max }),
        3 => (
            prop::sample::select(&PREFIXES[..]),
            prop::option::of(prop::sample::select(&["/", "-", "/b"][..])),
            1..5_usize,
        )
            .prop_map(|(prefix, delimiter, results_max)| Step::List { prefix, delimiter, results_max }),
        1 => Just(Step::Restart),
    ]
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Blob {
    bytes: Vec<u8>,
    metadata: BTreeMap<String, String>,
}

struct World {
    folder: tempfile::TempDir,
    /// None only during a restart.
    store: Option<Store>,
    model: BTreeMap<String, Blob>,
    /// Told apart by their values.
    bytes_made: u8,
}

fn blob(name: &str) -> BlobAddress {
    BlobAddress::new("neapst1", "cont", name).unwrap()
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut world = Self { folder, store: None, model: BTreeMap::new(), bytes_made: 0 };
        world.restart();
        world.store().create_container("neapst1", "cont").unwrap();
        world
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn restart(&mut self) {
        self.store = None;
        self.store = Some(Store::open_packing(self.folder.path(), PACKED_MAX).unwrap());
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut next = || {
            self.bytes_made = self.bytes_made.wrapping_add(1);
            self.bytes_made
        };
        (0..length).map(|_| next()).collect()
    }

    fn step(&mut self, step: &Step) {
        let any = Condition::default();
        match step {
            Step::Put { name, length } => {
                let bytes = self.bytes(*length);
                self.store().put_bytes(&blob(name), &bytes, Headers::default(), &any).unwrap();
                self.model.insert((*name).to_owned(), Blob { bytes, metadata: BTreeMap::new() });
            }
            Step::Append { name, length } => {
                let bytes = self.bytes(*length);
                let known = self.model.get(*name).map_or(0, |blob| blob.bytes.len());
                let now = self.store().append_at(&blob(name), known as u64, &bytes).unwrap();
                assert_eq!(now, (known + length) as u64);
                if *length > 0 {
                    self.model.entry((*name).to_owned()).or_default().bytes.extend(bytes);
                }
            }
            Step::SetMetadata { name, value } => {
                let metadata = BTreeMap::from([("k".to_owned(), value.clone())]);
                let set = self.store().set_metadata(&blob(name), metadata.clone(), &any);
                assert_eq!(set.is_ok(), self.model.contains_key(*name), "{set:?}");
                if let Some(blob) = self.model.get_mut(*name) {
                    blob.metadata = metadata;
                }
            }
            Step::Delete { name } => {
                let deleted = self.store().delete(&blob(name), &any);
                assert_eq!(deleted.is_ok(), self.model.remove(*name).is_some(), "{deleted:?}");
            }
            Step::Read { name, offset, length_max } => {
                let read = self.store().read(&blob(name), *offset, *length_max).ok();
                let expected = self.model.get(*name).map(|blob| {
                    let from = usize::try_from(*offset).unwrap().min(blob.bytes.len());
                    blob.bytes[from..].iter().take(*length_max).copied().collect()
                });
                assert_eq!(read, expected);
            }
            Step::List { prefix, delimiter, results_max } => self.list(prefix, *delimiter, *results_max),
            Step::Restart => self.restart(),
        }
    }

    fn list(&self, prefix: &str, delimiter: Option<&str>, results_max: usize) {
        let mut expected: Vec<(String, Option<usize>)> = Vec::new();
        for (name, blob) in self.model.iter().filter(|(name, _)| name.starts_with(prefix)) {
            let cut = delimiter.and_then(|d| Some(prefix.len() + name[prefix.len()..].find(d)? + d.len()));
            let line = match cut {
                Some(cut) => (name[..cut].to_owned(), None),
                None => (name.clone(), Some(blob.bytes.len())),
            };
            if expected.last() != Some(&line) {
                expected.push(line);
            }
        }
        let mut query = ListQuery {
            prefix: prefix.to_owned(),
            delimiter: delimiter.map(str::to_owned),
            results_max: Some(results_max),
            marker: None,
        };
        let mut listed = Vec::new();
        loop {
            let page = self.store().list("neapst1", "cont", &query).unwrap();
            assert!(page.entries.len() <= results_max);
            listed.extend(page.entries.into_iter().map(|entry| match entry {
                ListEntry::Blob { name, properties } => (name, usize::try_from(properties.length).ok()),
                ListEntry::Prefix(name) => (name, None),
            }));
            query.marker = page.next_marker;
            if query.marker.is_none() {
                break;
            }
        }
        assert_eq!(listed, expected);
    }

    /// Every blob has the bytes and metadata that it should, and there is no other.
    fn check(&self) {
        for name in NAMES {
            let found = self.store().open_blob(&blob(name)).ok().map(|open| {
                let mut bytes = vec![0; usize::try_from(open.properties.length).unwrap()];
                open.file.read_exact_at(&mut bytes, 0).unwrap();
                assert_eq!(self.store().properties(&blob(name)).unwrap(), open.properties);
                Blob { bytes, metadata: open.properties.headers.metadata }
            });
            assert_eq!(found.as_ref(), self.model.get(name), "{name:?}");
        }
        self.list("", None, 100);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_store_is_a_sorted_map(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.restart();
        world.check();
    }
}
