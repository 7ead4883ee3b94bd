//! A folder of this machine as a store. Nothing outside of it is reached, wherever its links point.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt;
use md5::{Digest, Md5};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};

use super::{Content, Entry, Error, Listing, Pieces, Result};

/// Files on their way in. They are not listed.
const INCOMING: &str = ".neap-incoming-";
const PIECE_BYTES: u64 = 1024 * 1024;

#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn open_root(&self) -> Result<OwnedFd> {
        rustix::fs::open(&self.root, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| failed(&self.root.display().to_string(), e.into()))
    }

    pub(super) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        entries_max: usize,
    ) -> Result<Listing> {
        let (this, prefix) = (self.clone(), prefix.to_owned());
        let after = after.map(str::to_owned);
        blocking(move || this.list_now(&prefix, after.as_deref(), entries_max)).await
    }

    fn list_now(&self, prefix: &str, after: Option<&str>, entries_max: usize) -> Result<Listing> {
        let root = self.open_root()?;
        let within = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        check(within)?;
        let mut found = Vec::new();
        match open(&root, within, OFlags::DIRECTORY) {
            Ok(folder) => {
                let start = if within.is_empty() { String::new() } else { format!("{within}/") };
                walk(&root, folder, &start, &mut found).map_err(|e| failed(within, e))?;
            }
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(failed(within, e)),
        }
        found.retain(|entry| {
            entry.name.starts_with(prefix) && after.is_none_or(|after| entry.name.as_str() > after)
        });
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let more = found.len() > entries_max;
        found.truncate(entries_max);
        let next = more.then(|| found.last().map(|entry| entry.name.clone())).flatten();
        Ok(Listing { entries: found, next })
    }

    fn open_file(&self, name: &str) -> Result<(File, Entry)> {
        check(name)?;
        let file = open(&self.open_root()?, name, OFlags::NONBLOCK).map_err(|e| failed(name, e))?;
        let file = File::from(file);
        let entry = file.metadata().map_err(|e| failed(name, e))?;
        if !entry.is_file() {
            return Err(Error::NotFound(name.to_owned()));
        }
        Ok((file, entry_of(name, &entry)))
    }

    pub(super) async fn head(&self, name: &str) -> Result<Entry> {
        let (this, name) = (self.clone(), name.to_owned());
        blocking(move || this.open_file(&name).map(|(_, entry)| entry)).await
    }

    pub(super) async fn get(&self, name: &str, range: Option<(u64, Option<u64>)>) -> Result<Content> {
        let (this, owned) = (self.clone(), name.to_owned());
        let (file, entry) = blocking(move || this.open_file(&owned)).await?;
        let (start, length) = range.unwrap_or((0, None));
        if range.is_some() && start >= entry.bytes {
            return Err(Error::Range(name.to_owned()));
        }
        let left = entry.bytes - start;
        let length = length.map_or(left, |length| length.min(left));
        let state = (Arc::new(file), start, start + length, name.to_owned());
        let pieces = futures_util::stream::try_unfold(state, |(file, at, end, name)| async move {
            if at >= end {
                return Ok(None);
            }
            let (open, wanted) = (file.clone(), (end - at).min(PIECE_BYTES));
            let piece = blocking(move || {
                let mut piece = vec![0; usize::try_from(wanted).unwrap_or(0)];
                open.read_exact_at(&mut piece, at).map_err(|e| failed("an open file", e))?;
                Ok(bytes::Bytes::from(piece))
            });
            let piece = piece.await?;
            let next = at + piece.len() as u64;
            Ok(Some((piece, (file, next, end, name))))
        });
        Ok(Content { entry, start, length: Some(length), pieces: pieces.boxed() })
    }

    pub(super) async fn put(&self, name: &str, mut pieces: Pieces, md5: Option<[u8; 16]>) -> Result<Entry> {
        let is_folder = name.ends_with('/') || name.is_empty();
        let path = name.trim_end_matches('/').to_owned();
        if is_folder {
            let this = self.clone();
            let folder = path.clone();
            blocking(move || this.make_folders(&folder).map(drop)).await?;
            return Ok(Entry { name: name.to_owned(), bytes: 0, modified_ms: 0, etag: String::new() });
        }
        let this = self.clone();
        let mut incoming = blocking(move || this.begin(&path)).await?;
        let mut sum = Md5::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            sum.update(&piece);
            incoming = blocking(move || {
                incoming.file.write_all(&piece).map_err(|e| failed(&incoming.name, e))?;
                Ok(incoming)
            })
            .await?;
        }
        let came: [u8; 16] = sum.finalize().into();
        if md5.is_some_and(|announced| announced != came) {
            return Err(Error::Md5(name.to_owned()));
        }
        let name = name.to_owned();
        blocking(move || incoming.finish(&name)).await
    }

    /// Opens the folder of this path, making what is missing of it.
    fn make_folders(&self, path: &str) -> Result<OwnedFd> {
        check(path)?;
        let mut folder = self.open_root()?;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            match rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(failed(path, e.into())),
            }
            folder = open(&folder, part, OFlags::DIRECTORY).map_err(|e| failed(path, e))?;
        }
        Ok(folder)
    }

    fn begin(&self, path: &str) -> Result<Incoming> {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        if file.is_empty() || file.starts_with(INCOMING) {
            return Err(Error::BadName(path.to_owned()));
        }
        let folder = self.make_folders(folder)?;
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| failed(path, e.into()))?;
        let name = format!("{INCOMING}{:016x}", u64::from_le_bytes(random));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(&folder, &name, flags, Mode::from_raw_mode(0o644));
        let opened = opened.map_err(|e| failed(path, e.into()))?;
        Ok(Incoming { folder, name, target: file.to_owned(), file: File::from(opened), kept: false })
    }

    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        let (this, name) = (self.clone(), name.to_owned());
        blocking(move || {
            check(&name)?;
            let (folder, file) = name.rsplit_once('/').unwrap_or(("", &name));
            let folder = open(&this.open_root()?, folder, OFlags::DIRECTORY).map_err(|e| failed(&name, e))?;
            rustix::fs::unlinkat(&folder, file, AtFlags::empty()).map_err(|e| failed(&name, e.into()))
        })
        .await
    }
}

/// A file on its way in: it goes away again unless it is finished.
struct Incoming {
    folder: OwnedFd,
    name: String,
    target: String,
    file: File,
    kept: bool,
}

impl Incoming {
    fn finish(mut self, name: &str) -> Result<Entry> {
        self.file.sync_all().map_err(|e| failed(name, e))?;
        let entry = entry_of(name, &self.file.metadata().map_err(|e| failed(name, e))?);
        rustix::fs::renameat(&self.folder, &self.name, &self.folder, &self.target)
            .map_err(|e| failed(name, e.into()))?;
        self.kept = true;
        rustix::fs::fsync(&self.folder).map_err(|e| failed(name, e.into()))?;
        Ok(entry)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.kept {
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

fn open(root: &OwnedFd, below: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let below = if below.is_empty() { "." } else { below };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, below, flags | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

fn check(name: &str) -> Result<()> {
    let bad = name.starts_with('/')
        || name.split('/').any(|part| part == ".." || part == ".")
        || name.contains('\0');
    if bad { Err(Error::BadName(name.to_owned())) } else { Ok(()) }
}

/// Links to folders are not walked through, so a walk always ends.
fn walk(root: &OwnedFd, folder: OwnedFd, prefix: &str, found: &mut Vec<Entry>) -> io::Result<()> {
    let mut is_empty = true;
    let folder_entry = File::from(folder.try_clone()?).metadata()?;
    for entry in rustix::fs::Dir::new(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." || name.starts_with(INCOMING) {
            continue;
        }
        is_empty = false;
        let name = format!("{prefix}{name}");
        let kind = rustix::fs::statat(root, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        match rustix::fs::FileType::from_raw_mode(kind.st_mode) {
            rustix::fs::FileType::Directory => match open(root, &name, OFlags::DIRECTORY) {
                Ok(below) => walk(root, below, &format!("{name}/"), found)?,
                Err(e) if is_missing(&e) => {}
                Err(e) => return Err(e),
            },
            rustix::fs::FileType::RegularFile | rustix::fs::FileType::Symlink => {
                // A link that leads out, or nowhere, is as good as not there.
                let Ok(file) = open(root, &name, OFlags::NONBLOCK) else { continue };
                let file = File::from(file).metadata()?;
                if file.is_file() {
                    found.push(entry_of(&name, &file));
                }
            }
            _ => {}
        }
    }
    if is_empty {
        found.push(Entry { bytes: 0, ..entry_of(prefix, &folder_entry) });
    }
    Ok(())
}

fn entry_of(name: &str, found: &std::fs::Metadata) -> Entry {
    // Whoever owns a file may set any time on it.
    let modified_ms = found.mtime().saturating_mul(1_000).saturating_add(found.mtime_nsec() / 1_000_000);
    let etag = format!(
        "{:x}-{:x}-{:x}",
        found.ino(),
        found.len(),
        i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec())
    );
    Entry { name: name.to_owned(), bytes: found.len(), modified_ms, etag }
}

fn is_missing(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn failed(name: &str, e: io::Error) -> Error {
    match e.kind() {
        _ if is_missing(&e) => Error::NotFound(name.to_owned()),
        io::ErrorKind::PermissionDenied => Error::Denied(name.to_owned()),
        // What `openat2` says of a link that leads out.
        _ if e.raw_os_error() == Some(rustix::io::Errno::XDEV.raw_os_error()) => {
            Error::Denied(name.to_owned())
        }
        _ => Error::Failed(format!("'{name}': {e}")),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => Err(Error::Failed(format!("a call of the file system did not come to an end: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::{TryStreamExt, stream};

    fn pieces(parts: &'static [&'static str]) -> Pieces {
        stream::iter(parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes())))).boxed()
    }

    async fn read(folder: &Folder, name: &str, range: Option<(u64, Option<u64>)>) -> String {
        let content = folder.get(name, range).await.unwrap();
        let all: Vec<Bytes> = content.pieces.try_collect().await.unwrap();
        String::from_utf8(all.concat()).unwrap()
    }

    #[tokio::test]
    async fn files_are_stored_listed_read_and_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        folder.put("a/b/c.txt", pieces(&["hel", "lo"]), None).await.unwrap();
        folder.put("a/x.txt", pieces(&["x"]), None).await.unwrap();
        folder.put("a/empty/", pieces(&[]), None).await.unwrap();
        assert_eq!(read(&folder, "a/b/c.txt", None).await, "hello");
        assert_eq!(read(&folder, "a/b/c.txt", Some((1, Some(3)))).await, "ell");
        assert!(matches!(folder.get("a/b/c.txt", Some((5, None))).await, Err(Error::Range(_))));
        let names = |listing: &Listing| listing.entries.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
        let all = folder.list("a/", None, 10).await.unwrap();
        assert_eq!(names(&all), ["a/b/c.txt", "a/empty/", "a/x.txt"]);
        let page = folder.list("a/", None, 2).await.unwrap();
        assert_eq!(
            (names(&page), page.next.as_deref()),
            (vec!["a/b/c.txt".into(), "a/empty/".into()], Some("a/empty/"))
        );
        assert_eq!(names(&folder.list("a/", Some("a/empty/"), 2).await.unwrap()), ["a/x.txt"]);
        assert_eq!(names(&folder.list("none/", None, 2).await.unwrap()), Vec::<String>::new());
        folder.delete("a/x.txt").await.unwrap();
        assert!(matches!(folder.head("a/x.txt").await, Err(Error::NotFound(_))));
    }

    #[tokio::test]
    async fn a_file_is_whole_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        let wrong = folder.put("f", pieces(&["hello"]), Some([0; 16])).await;
        assert!(matches!(wrong, Err(Error::Md5(_))));
        let cut = stream::iter([Ok(Bytes::from_static(b"he")), Err(Error::CutOff("f".into()))]).boxed();
        assert!(folder.put("f", cut, None).await.is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left of either");
    }

    #[tokio::test]
    async fn nothing_outside_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("in");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        std::fs::write(inside.join("real"), "r").unwrap();
        for (link, to) in [("up", "../secret"), ("abs", "/etc/passwd"), ("good", "real"), ("loop", ".")] {
            std::os::unix::fs::symlink(to, inside.join(link)).unwrap();
        }
        let folder = Folder::new(inside);
        let names: Vec<String> =
            folder.list("", None, 9).await.unwrap().entries.into_iter().map(|e| e.name).collect();
        assert_eq!(names, ["good", "real"]);
        for name in ["up", "abs", "../secret", "/etc/passwd", "loop/../../secret"] {
            assert!(folder.get(name, None).await.is_err(), "{name}");
            assert!(folder.put(&format!("{name}/x"), pieces(&["x"]), None).await.is_err(), "{name}");
        }
        assert_eq!(read(&folder, "good", None).await, "r");
    }
}
