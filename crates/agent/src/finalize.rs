//! After an attempt has run: its `./outputs`, `./logs`, named outputs and writable inputs are stored.
//!
//! The files were written by the job and the agent may be root: nothing is read that does not lie in the
//! job's own folder, wherever its links point. Nothing to store costs no request.
//!
//! A file appears under its name when all of it is there and its MD5 has been compared, and not before. The folder is
//! whole when the job has ended: the report of that is sent when everything is stored, and only then does the log say
//! `Completed`, register what is to be registered, and let others read it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::{StreamExt, TryStreamExt};
use neap_protocol::{AttemptSpec, BlobFolder, How, Input, Output};

use crate::data::{self, Mark, file_name};
use crate::disk;
use crate::limits::OUTPUT_ENTRIES_MAX;
use crate::node::Node;
use crate::prepare::{Layout, WORKING};
use crate::tree::Entry;

const STORES_AT_ONCE: usize = 8;

/// One thing that is to be done at the stores.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Store {
    to: Rc<BlobFolder>,
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
    for name in ["outputs", "logs"] {
        let to = Rc::new(spec.artifacts.clone());
        let mut walk = Walk { layout, to, before: &none, found: &mut found };
        walk.folder(&format!("{WORKING}/{name}"), &format!("{name}/"), false)?;
    }
    let data = |place: &str, to: &BlobFolder, found: &mut Vec<Store>| {
        let before = brought.get(place).unwrap_or(&none);
        let to = Rc::new(to.clone());
        Walk { layout, to: to.clone(), before, found }.folder(place, "", brought.get(place).is_none())?;
        let gone = before.keys().filter(|name| layout.work_tree.stat(&format!("{place}/{name}")).is_none());
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
    let path = format!("{place}/{name}");
    let Some(mark) = layout.work_tree.stat(&path).map(|stat| Mark::read(&stat)) else { return false };
    if before.and_then(|before| before.get(name)) != Some(&mark) {
        let what = What::File(PathBuf::from(path));
        found.push(Store { to: Rc::new(to.clone()), name: String::new(), what });
    }
    true
}

/// A walk through a folder that is stored below `to`.
struct Walk<'a> {
    layout: &'a Layout,
    to: Rc<BlobFolder>,
    /// What was there before the job, by name: unchanged, it is not stored again.
    before: &'a BTreeMap<String, Mark>,
    found: &'a mut Vec<Store>,
}

impl Walk<'_> {
    /// Everything in a folder below `work`; nothing, where the job has removed it or put a link in its place.
    fn folder(&mut self, place: &str, prefix: &str, mark_empty: bool) -> Result<(), String> {
        let left = OUTPUT_ENTRIES_MAX.saturating_sub(self.found.len());
        let named = |path: &Path| {
            let below = path.strip_prefix(place).unwrap_or(path);
            format!("{prefix}{}", below.to_string_lossy())
        };
        let walked = self.layout.work_tree.walk(place, left, |entry| {
            let (path, mark) = match entry {
                Entry::Folder { path, empty } => {
                    let is_top = path == Path::new(place);
                    if empty && (!is_top || mark_empty) {
                        let mut name = named(path);
                        if !is_top {
                            name.push('/');
                        }
                        self.found.push(Store { to: self.to.clone(), name, what: What::EmptyFolder });
                    }
                    return Ok(());
                }
                Entry::File { path, stat } => (path, Some(Mark::read(stat))),
                Entry::Link { path } | Entry::Other { path } => (path, None),
            };
            let name = named(path);
            if mark.is_none() || self.before.get(&name) != mark.as_ref() {
                let what = What::File(path.to_owned());
                self.found.push(Store { to: self.to.clone(), name, what });
            }
            Ok(())
        });
        walked.map_err(|e| format!("reading what the job has left in {place}: {e}"))
    }
}

/// Refuses what is longer than the attempt may store, before anything of it is stored.
pub(crate) fn check_lengths(spec: &AttemptSpec, layout: &Layout, stores: &[Store]) -> Result<(), String> {
    if spec.disk.bytes_max == 0 {
        return Ok(());
    }
    let lengths = stores.iter().filter_map(|store| match &store.what {
        // What cannot be opened is not stored either.
        What::File(path) => {
            layout.work_tree.read_through_links(path).ok()??.metadata().ok().map(|found| found.len())
        }
        What::EmptyFolder | What::Delete => None,
    });
    disk::check_lengths(spec.disk, lengths)
}

/// Stores them. Links that lead out of the job's folder, sockets and the like are named and left out.
pub(crate) async fn store(node: &Node, layout: &Layout, stores: Vec<Store>) -> Result<(), String> {
    let blobs = node.blobs_or_error()?;
    let (blobs, work) = (&blobs, &layout.work_tree);
    futures_util::stream::iter(stores)
        .map(|store| async move {
            let path = match &store.what {
                What::EmptyFolder => return blobs.store_empty_folder(&store.to, &store.name).await,
                What::Delete => return blobs.delete(&store.to, &store.name).await,
                What::File(path) => path,
            };
            match work.read_through_links(path) {
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
