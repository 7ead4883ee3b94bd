//! A job's data before it runs: inputs are fetched, room is made for outputs, and each gets the path that the job
//! sees. What of it is stored afterwards is for `finalize.rs`.
//!
//! Every mode is served by a copy on the node's disk. What a job is given read-only stays the agent's own, so that
//! the job's user cannot change it; where both are the same user it can, and only its copy changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt};
use neap_protocol::{AttemptSpec, BlobFolder, Exit, FailureClass, How, Input, Keep, Output};

use crate::blobs::{Blobs, place_below};
use crate::command::Places;
use crate::environment::cache::Cache;
use crate::folder::make_owned;
use crate::mltable;
use crate::node::Node;
use crate::prepare::Layout;
use crate::session::prepare_failed;

const FETCHES_AT_ONCE: usize = 8;
/// Where all data lies, below `work`.
const ROOM: &str = "cap/data-capability/wd";

/// Per folder below `work`: the files that were fetched into it, by their names below it.
pub(crate) type Brought = BTreeMap<String, BTreeMap<String, Mark>>;

/// What tells a file that the job changed from one that it left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    bytes: u64,
    inode: u64,
    modified: (i64, i64),
}

impl Mark {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let found = path.symlink_metadata()?;
        Ok(Self::read(&found))
    }

    pub(crate) fn of_file(file: &std::fs::File) -> io::Result<Self> {
        Ok(Self::read(&file.metadata()?))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(found: &std::fs::Metadata) -> Self {
        Self { bytes: found.len(), inode: found.ino(), modified: (found.mtime(), found.mtime_nsec()) }
    }
}

pub(crate) fn input_place(name: &str) -> String {
    format!("{ROOM}/INPUT_{name}")
}

pub(crate) fn output_place(name: &str) -> String {
    format!("{ROOM}/OUTPUT_{name}")
}

/// What a file is called in the folder of its input or output.
pub(crate) fn file_name<'a>(at: &'a BlobFolder, name: &'a str) -> &'a str {
    at.prefix.rsplit('/').next().filter(|file| !file.is_empty()).unwrap_or(name)
}

/// Brings inputs and makes room for outputs; gives the paths as the job sees them.
pub(crate) async fn bring(node: &Node, spec: &AttemptSpec, layout: &Layout) -> Result<Places, Exit> {
    let mut places = Places::default();
    for (name, input) in &spec.inputs {
        let place = match input {
            Input::Literal { value } => value.clone(),
            Input::File { at, how } => bring_file(node, layout, name, at, *how).await?,
            Input::Folder { at, how } => bring_folder(node, layout, name, at, None, *how).await?,
            Input::Any { at, below, how } => {
                let is_file = node.blobs()?.is_blob(at).await;
                if is_file.map_err(|e| unreadable(name, &e))? {
                    bring_file(node, layout, name, at, *how).await?
                } else {
                    // Under its own name, as a file is: scripts of Azure ML look for a model by it.
                    let own = below.prefix.trim_end_matches('/').rsplit('/').next();
                    let own = own.filter(|own| !own.is_empty() && *how != How::ReadWrite);
                    bring_folder(node, layout, name, below, own, *how).await?
                }
            }
        };
        places.inputs.insert(name.clone(), place);
    }
    for (name, output) in &spec.outputs {
        let below = output_place(name);
        let place = match output {
            Output::Direct { value } => value.clone(),
            Output::Folder { at, keep } => {
                layout.make(&below).map_err(system)?;
                bring_existing_folder(node, layout, name, at, *keep).await?;
                layout.seen.join(&below).display().to_string()
            }
            Output::File { at, keep } => {
                layout.make(&below).map_err(system)?;
                bring_existing_file(node, layout, name, at, *keep).await?;
                layout.seen.join(&below).join(file_name(at, name)).display().to_string()
            }
        };
        places.outputs.insert(name.clone(), place);
    }
    Ok(places)
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn system(e: io::Error) -> Exit {
    prepare_failed(FailureClass::System, e.to_string())
}

fn unreadable(input: &str, why: &str) -> Exit {
    prepare_failed(FailureClass::InputData, format!("input {input}: {why}"))
}

async fn bring_file(
    node: &Node,
    layout: &Layout,
    name: &str,
    at: &BlobFolder,
    how: How,
) -> Result<String, Exit> {
    let below = input_place(name);
    layout.make(ROOM).map_err(system)?;
    let keeper = Keeper::new(layout, how);
    let folder = layout.work.join(&below);
    keeper.make_folder(&folder).map_err(system)?;
    let file = file_name(at, name);
    let into = place_below(&folder, file).map_err(|e| unreadable(name, &e))?;
    let seal = node.blobs()?.fetch(at, "", &into).await.map_err(|e| unreadable(name, &e))?;
    keeper.keep(&into).map_err(system)?;
    let mut content = Content::default();
    content.add(file, &seal, Mark::of(&into).map_err(system)?.bytes);
    layout.contents.borrow_mut().insert(format!("provenance.input.{name}"), content.told());
    if how == How::ReadWrite {
        let mark = Mark::of(&into).map_err(system)?;
        layout.brought.borrow_mut().entry(below.clone()).or_default().insert(file.to_owned(), mark);
    }
    Ok(layout.seen.join(below).join(file).display().to_string())
}

async fn bring_folder(
    node: &Node,
    layout: &Layout,
    name: &str,
    at: &BlobFolder,
    own: Option<&str>,
    how: How,
) -> Result<String, Exit> {
    let mut below = input_place(name);
    layout.make(ROOM).map_err(system)?;
    let keeper = Keeper::new(layout, how);
    let mut folder = layout.work.join(&below);
    keeper.make_folder(&folder).map_err(system)?;
    if let Some(own) = own {
        folder = place_below(&folder, own).map_err(|e| unreadable(name, &e))?;
        keeper.make_folder(&folder).map_err(system)?;
        below = format!("{below}/{own}");
    }
    let blobs = node.blobs()?;
    let failed = |e: String| unreadable(name, &e);
    let mut names = blobs.list(at).await.map_err(failed)?;
    if names.is_empty() {
        return Err(failed(format!("there is nothing at {}", at.prefix)));
    }
    if how == How::Evaluated {
        names = evaluate(&blobs, at, &folder, names).await.map_err(failed)?;
    }
    let (brought, content) = fetch_all(&blobs, at, &folder, names, keeper).await.map_err(failed)?;
    layout.contents.borrow_mut().insert(format!("provenance.input.{name}"), content.told());
    if how == How::ReadWrite {
        layout.brought.borrow_mut().insert(below.clone(), brought);
    }
    Ok(layout.seen.join(below).display().to_string())
}

/// The names that the table of the folder stands for.
async fn evaluate(
    blobs: &Blobs,
    at: &BlobFolder,
    folder: &Path,
    names: Vec<String>,
) -> Result<Vec<String>, String> {
    let table = folder.join(mltable::FILE);
    blobs.fetch(at, mltable::FILE, &table).await?;
    let text = std::fs::read_to_string(&table).map_err(|e| format!("reading its {}: {e}", mltable::FILE))?;
    // It is not among what it names, unless it says so.
    std::fs::remove_file(&table).map_err(|e| e.to_string())?;
    mltable::select(&text, names)
}

async fn bring_existing_folder(
    node: &Node,
    layout: &Layout,
    name: &str,
    at: &BlobFolder,
    keep: Keep,
) -> Result<(), Exit> {
    if !keep.existing {
        return Ok(());
    }
    let failed = |e: String| prepare_failed(FailureClass::System, format!("output {name}: {e}"));
    let (blobs, below) = (node.blobs()?, output_place(name));
    let names = blobs.list(at).await.map_err(failed)?;
    let keeper = Keeper::new(layout, How::ReadWrite);
    let (brought, _) =
        fetch_all(&blobs, at, &layout.work.join(&below), names, keeper).await.map_err(failed)?;
    layout.brought.borrow_mut().insert(below, brought);
    Ok(())
}

async fn bring_existing_file(
    node: &Node,
    layout: &Layout,
    name: &str,
    at: &BlobFolder,
    keep: Keep,
) -> Result<(), Exit> {
    let failed = |e: String| prepare_failed(FailureClass::System, format!("output {name}: {e}"));
    if !keep.existing || !node.blobs()?.is_blob(at).await.map_err(failed)? {
        return Ok(());
    }
    let (below, file) = (output_place(name), file_name(at, name));
    let into = place_below(&layout.work.join(&below), file).map_err(failed)?;
    node.blobs()?.fetch(at, "", &into).await.map_err(failed)?;
    Keeper::new(layout, How::ReadWrite).keep(&into).map_err(system)?;
    let mark = Mark::of(&into).map_err(system)?;
    layout.brought.borrow_mut().entry(below).or_default().insert(file.to_owned(), mark);
    Ok(())
}

/// Fetches a folder that the job has under no name of its own; `what` it is, for people.
pub(crate) async fn fetch_named(
    blobs: &Blobs,
    from: &BlobFolder,
    into: &Path,
    owner: Option<u32>,
    what: &str,
) -> Result<Content, Exit> {
    let failed = |e: String| prepare_failed(FailureClass::InputData, format!("{what}: {e}"));
    let names = blobs.list(from).await.map_err(failed)?;
    if names.is_empty() {
        return Err(failed(format!("there is nothing at {}", from.prefix)));
    }
    let keeper = Keeper { owner, read_only: false };
    fetch_all(blobs, from, into, names, keeper).await.map(|(_, content)| content).map_err(failed)
}

/// Whose the fetched files are.
#[derive(Clone, Copy)]
struct Keeper {
    owner: Option<u32>,
    read_only: bool,
}

impl Keeper {
    fn new(layout: &Layout, how: How) -> Self {
        Self { owner: layout.owner, read_only: how == How::ReadOnly && layout.owner.is_some() }
    }

    fn make_folder(self, path: &Path) -> io::Result<()> {
        if !self.read_only {
            return make_owned(path, self.owner);
        }
        make_owned(path, None)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o755))
    }

    fn keep(self, file: &Path) -> io::Result<()> {
        if self.read_only {
            return std::fs::set_permissions(file, Permissions::from_mode(0o644));
        }
        self.owner.map_or(Ok(()), |owner| chown(file, Some(owner), Some(owner)))
    }
}

/// Fetches what the names say: files, and folders where a name ends with a slash.
async fn fetch_all(
    blobs: &Blobs,
    from: &BlobFolder,
    into: &Path,
    names: Vec<String>,
    keeper: Keeper,
) -> Result<(BTreeMap<String, Mark>, Content), String> {
    let mut files: Vec<(String, PathBuf)> = Vec::with_capacity(names.len());
    let mut made = BTreeSet::new();
    for name in names {
        let path = place_below(into, &name)?;
        let is_folder = name.is_empty() || name.ends_with('/');
        let folders = if is_folder { Some(path.as_path()) } else { path.parent() };
        let mut folder = into.to_owned();
        for part in folders.and_then(|f| f.strip_prefix(into).ok()).into_iter().flat_map(Path::components) {
            folder.push(part);
            if made.insert(folder.clone()) {
                keeper.make_folder(&folder).map_err(|e| e.to_string())?;
            }
        }
        if !is_folder {
            files.push((name, path));
        }
    }
    let fetched: BTreeMap<String, (Mark, String)> = futures_util::stream::iter(files)
        .map(|(name, path)| async move {
            let seal = blobs.fetch(from, &name, &path).await?;
            keeper
                .keep(&path)
                .and_then(|()| Mark::of(&path))
                .map(|mark| (name, (mark, seal)))
                .map_err(|e| e.to_string())
        })
        .buffer_unordered(FETCHES_AT_ONCE)
        .try_collect::<BTreeMap<_, _>>()
        .await?;
    let mut content = Content::default();
    for (name, (mark, seal)) in &fetched {
        content.add(name, seal, mark.bytes);
    }
    Ok((fetched.into_iter().map(|(name, (mark, _))| (name, mark)).collect(), content))
}

/// What was fetched, by the names of its files and what the store says their content is.
#[derive(Debug, Default)]
pub(crate) struct Content {
    parts: Vec<String>,
    bytes: u64,
}

impl Content {
    fn add(&mut self, name: &str, seal: &str, bytes: u64) {
        self.parts.extend([name.to_owned(), seal.to_owned()]);
        self.bytes += bytes;
    }

    /// The same for the same files: `DIGEST FILES BYTES`.
    pub(crate) fn told(&self) -> String {
        let digest = Cache::digest(self.parts.iter().map(|part| part.as_bytes()));
        format!("{digest} {} {}", self.parts.len() / 2, self.bytes)
    }
}
