//! No room: the batch is refused in words, nothing acknowledged is lost, reading goes on, and so does writing later.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use neap_core::{DocHash, Millis};
use neap_ledger::{Batch, Document, Error, Ledger, Options, VerifyOptions, verify};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::story::{Story, WORKSPACE, open};

/// Submits jobs until there is no room; returns the story as it was acknowledged.
fn fill(ledger: &mut Ledger, mut story: Story) -> Story {
    loop {
        let before = story.state.clone();
        story.submit();
        story.batch.documents.push(Document::new(vec![7; 20_000]).unwrap());
        let batch = std::mem::take(&mut story.batch);
        match ledger.append(story.now(), &batch) {
            Ok(_) => {}
            Err(Error::Full { .. }) => {
                story.state = before;
                return story;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn reads_work(ledger: &Ledger, story: &Story) {
    let rows = ledger.reader().jobs(WORKSPACE, &Default::default(), None, 10_000).unwrap();
    assert_eq!(rows.len(), story.state.jobs.len());
    assert!(ledger.reader().document(&story.erasable[0]).unwrap().is_some());
    assert_eq!(ledger.read_only(), None);
}

#[test]
fn at_the_largest_number_of_pages() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened =
        Ledger::open(dir.path(), Options { pages_max: Some(200), ..Options::default() }).unwrap();
    let mut story = fill(&mut opened.ledger, Story::begin());
    let head = opened.ledger.head();
    reads_work(&opened.ledger, &story);
    // Refused again, and again without harm.
    let large = Batch { documents: vec![Document::new(vec![1; 100_000]).unwrap()], ..Batch::default() };
    for _ in 0..3 {
        assert!(matches!(opened.ledger.append(Millis(1), &large), Err(Error::Full { .. })));
        assert_eq!(opened.ledger.head(), head);
    }
    drop(opened);

    let mut again = open(dir.path());
    assert_eq!(again.head, head);
    assert!(again.state == story.state);
    story.submit();
    story.commit(&mut again.ledger);
    assert!(verify(dir.path(), VerifyOptions { replay: true }, |_| {}).unwrap().is_clean());
}

/// A file system of a few megabytes, gone with the value.
struct Small {
    at: PathBuf,
    _dir: tempfile::TempDir,
}

impl Small {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("small");
        fs::create_dir(&at).unwrap();
        mount("tmpfs", &at, "tmpfs", MountFlags::empty(), Some(c"size=6m")).ok()?;
        Some(Self { at, _dir: dir })
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

#[test]
#[allow(clippy::print_stderr)] // A test that cannot run here says so.
fn on_a_full_disk_until_there_is_room() {
    let Some(small) = Small::mount() else {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    };
    let dir = small.at.join("ledger");
    let mut opened = Ledger::open(&dir, Options::default()).unwrap();
    let mut story = Story::begin();
    story.submit();
    story.commit(&mut opened.ledger);
    let ballast = small.at.join("ballast");
    write_until(&ballast, 2 << 20);
    let mut story = fill(&mut opened.ledger, story);
    let head = opened.ledger.head();
    reads_work(&opened.ledger, &story);
    assert!(matches!(
        opened.ledger.write_snapshot(&story.state, head).and_then(|()| opened.ledger.wait_for_snapshot()),
        Ok(()) | Err(Error::Full { .. })
    ));

    fs::remove_file(&ballast).unwrap();
    story.submit();
    story.commit(&mut opened.ledger);
    assert_eq!(opened.ledger.head().seq, head.seq + 1);
    drop(opened);
    let again = open(&dir);
    assert!(again.state == story.state);
    assert_eq!(again.ledger.reader().document(&DocHash([0; 32])).unwrap(), None);
    assert!(verify(&dir, VerifyOptions { replay: true }, |_| {}).unwrap().is_clean());
}

fn write_until(path: &Path, bytes: usize) {
    fs::File::create(path).unwrap().write_all(&vec![0; bytes]).unwrap();
}
