//! After an attempt has run: its `./outputs`, `./logs`, named outputs and writable inputs are stored.
//!
//! The files were written by the job and the agent may be root: nothing is read that does not lie in the
//! job's own folder, wherever its links point. Nothing to store costs no request.
//!
//! A file appears under its name when all of it is there and its MD5 has been compared, and not before. The folder is
//! whole when the job has ended: the report of that is sent when everything is stored, and only then does the log say
//! `Completed`, register what is to be registered, and let others read it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt};
use neap_protocol::{AttemptSpec, BlobFolder, How, Input, Output};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::data::{self, Mark, file_name};
use crate::disk;
use crate::node::Node;
use crate::prepare::Layout;

const STORES_AT_ONCE: usize = 8;

/// One thing that is to be done at the stores.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Store {
    to: BlobFolder,
    name: String,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    /// Its path below the attempt's `work`.
    File(PathBuf),
    EmptyFolder,
    /// The job deleted it.
    Delete,
}

/// Everything that is to be stored. Reads folders, sends nothing. `succeeded` is whether the job says that it did its
/// work: then an output that must be there is missed.
pub(crate) fn find(spec: &AttemptSpec, layout: &Layout, succeeded: bool) -> Result<Vec<Store>, String> {
    let mut found = Vec::new();
    let brought = layout.brought.borrow();
    let none = BTreeMap::new();
    let failed = |e: std::io::Error| e.to_string();
    for name in ["outputs", "logs"] {
        let mut walk = Walk { layout, to: &spec.artifacts, before: &none, found: &mut found };
        walk.folder(&layout.working().join(name), &format!("{name}/"), false).map_err(failed)?;
    }
    let data = |place: &str, to: &BlobFolder, found: &mut Vec<Store>| {
        let before = brought.get(place).unwrap_or(&none);
        let folder = layout.work.join(place);
        Walk { layout, to, before, found }
            .folder(&folder, "", brought.get(place).is_none())
            .map_err(failed)?;
        let gone = before.keys().filter(|name| folder.join(name).symlink_metadata().is_err());
        found.extend(gone.map(|name| Store { to: to.clone(), name: name.clone(), what: What::Delete }));
        Ok::<_, String>(())
    };
    for (name, output) in &spec.outputs {
        let place = data::output_place(name);
        match output {
            Output::Direct { .. } => {}
            Output::Folder { at, .. } => data(&place, at, &mut found)?,
            Output::File { at, keep } => {
                let there = file(layout, &place, file_name(at, name), at, brought.get(&place), &mut found);
                if keep.required && succeeded && !there {
                    return Err(format!(
                        "the job has not written the file of its output '{name}', which is to be registered"
                    ));
                }
            }
        }
    }
    for (name, input) in &spec.inputs {
        let place = data::input_place(name);
        match input {
            Input::File { at, how: How::ReadWrite } => {
                file(layout, &place, file_name(at, name), at, brought.get(&place), &mut found);
            }
            Input::Folder { at, how: How::ReadWrite } => data(&place, at, &mut found)?,
            Input::Any { at, below, how: How::ReadWrite } => {
                // One that is a file was brought under its own name and nothing else was.
                let own = file_name(at, name);
                if brought.get(&place).is_some_and(|b| b.len() == 1 && b.contains_key(own)) {
                    file(layout, &place, own, at, brought.get(&place), &mut found);
                } else {
                    data(&place, below, &mut found)?;
                }
            }
            Input::Literal { .. } | Input::File { .. } | Input::Folder { .. } | Input::Any { .. } => {}
        }
    }
    Ok(found)
}

/// One file, if it is there; whether it is.
fn file(
    layout: &Layout,
    place: &str,
    name: &str,
    to: &BlobFolder,
    before: Option<&BTreeMap<String, Mark>>,
    found: &mut Vec<Store>,
) -> bool {
    let path = layout.work.join(place).join(name);
    let Ok(mark) = Mark::of(&path) else { return false };
    if before.and_then(|before| before.get(name)) != Some(&mark) {
        let path = PathBuf::from(place).join(name);
        found.push(Store { to: to.clone(), name: String::new(), what: What::File(path) });
    }
    true
}

/// A walk through a folder that is stored below `to`.
struct Walk<'a> {
    layout: &'a Layout,
    to: &'a BlobFolder,
    /// What was there before the job, by name: unchanged, it is not stored again.
    before: &'a BTreeMap<String, Mark>,
    found: &'a mut Vec<Store>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, prefix: &str, mark_empty: bool) -> std::io::Result<()> {
        // The job may have removed it, or put a link in its place, which is not followed.
        if !folder.symlink_metadata().is_ok_and(|kind| kind.is_dir()) {
            return Ok(());
        }
        let mut is_empty = true;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            is_empty = false;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                self.folder(&path, &format!("{name}/"), true)?;
            } else if self
                .before
                .get(&name)
                .is_none_or(|before| Mark::of(&path).ok().as_ref() != Some(before))
            {
                let path = path.strip_prefix(&self.layout.work).unwrap_or(&path).to_owned();
                self.found.push(Store { to: self.to.clone(), name, what: What::File(path) });
            }
        }
        if is_empty && mark_empty {
            let what = What::EmptyFolder;
            self.found.push(Store { to: self.to.clone(), name: prefix.to_owned(), what });
        }
        Ok(())
    }
}

/// Refuses what is longer than the attempt may store, before anything of it is stored.
pub(crate) fn check_lengths(spec: &AttemptSpec, layout: &Layout, stores: &[Store]) -> Result<(), String> {
    if spec.disk.bytes_max == 0 {
        return Ok(());
    }
    let root = open_work(layout)?;
    let lengths = stores.iter().filter_map(|store| match &store.what {
        // What cannot be opened is not stored either.
        What::File(path) => open_below(&root, path).ok()??.metadata().ok().map(|found| found.len()),
        What::EmptyFolder | What::Delete => None,
    });
    disk::check_lengths(spec.disk, lengths)
}

fn open_work(layout: &Layout) -> Result<std::os::fd::OwnedFd, String> {
    rustix::fs::open(&layout.work, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| format!("opening {}: {e}", layout.work.display()))
}

/// Stores them. Links that lead out of the job's folder, sockets and the like are named and left out.
pub(crate) async fn store(node: &Node, layout: &Layout, stores: Vec<Store>) -> Result<(), String> {
    let blobs = node.blobs_or_error()?;
    let root = open_work(layout)?;
    let (blobs, root) = (&blobs, &root);
    futures_util::stream::iter(stores)
        .map(|store| async move {
            let path = match &store.what {
                What::EmptyFolder => return blobs.store_empty_folder(&store.to, &store.name).await,
                What::Delete => return blobs.delete(&store.to, &store.name).await,
                What::File(path) => path,
            };
            match open_below(root, path) {
                Ok(Some(file)) => blobs.store(&store.to, &store.name, file).await,
                Ok(None) => {
                    crate::boot_log::line(&format!("not stored, not a plain file: {}", path.display()));
                    Ok(())
                }
                Err(e) => {
                    crate::boot_log::line(&format!("not stored: {}: {e}", path.display()));
                    Ok(())
                }
            }
        })
        .buffer_unordered(STORES_AT_ONCE)
        .try_collect::<()>()
        .await
}

pub(crate) fn open_below(root: &std::os::fd::OwnedFd, path: &Path) -> std::io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?);
    Ok(file.metadata()?.is_file().then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("work");
        std::fs::create_dir_all(inside.join("a")).unwrap();
        std::fs::write(inside.join("a/real"), "r").unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        for (link, to) in [("a/good", "real"), ("a/up", "../../secret"), ("a/absolute", "/etc/passwd")] {
            std::os::unix::fs::symlink(to, inside.join(link)).unwrap();
        }
        let root = rustix::fs::open(&inside, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let opens = |path: &str| open_below(&root, Path::new(path)).is_ok_and(|file| file.is_some());
        let expect =
            [("a/real", true), ("a/good", true), ("a/up", false), ("a/absolute", false), ("a", false)];
        assert_eq!(expect.map(|(path, _)| (path, opens(path))), expect);
    }
}
