//! A job's data before it runs: inputs are fetched, room is made for outputs, and each gets the path that the job
//! sees. What of it is stored afterwards is for `finalize.rs`.
//!
//! Every mode is served by a copy on the node's disk. What a job is given read-only stays the agent's own, so that
//! the job's user cannot change it; where both are the same user it can, and only its copy changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use futures_util::{StreamExt, TryStreamExt};
use neap_protocol::{AttemptSpec, BlobFolder, Exit, FailureClass, How, Input, Keep, Output};
use rustix::fs::Stat;

use crate::blobs::Blobs;
use crate::command::Places;
use crate::environment::cache::Cache;
use crate::limits::TABLE_BYTES_MAX;
use crate::mltable;
use crate::node::Node;
use crate::prepare::Layout;
use crate::session::prepare_failed;
use crate::tree::{Tree, relative};

const FETCHES_AT_ONCE: usize = 8;
/// Where all data lies, below `work`.
pub(crate) const ROOM: &str = "cap/data-capability/wd";
pub(crate) const ROOM_TOP: &str = "cap/";

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
    pub(crate) fn of_file(file: &std::fs::File) -> io::Result<Self> {
        Ok(Self::read(&rustix::fs::fstat(file)?))
    }

    pub(crate) fn read(found: &Stat) -> Self {
        Self {
            bytes: u64::try_from(found.st_size).unwrap_or(0),
            inode: found.st_ino,
            modified: (found.st_mtime, i64::try_from(found.st_mtime_nsec).unwrap_or(0)),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
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
    layout.make_room().map_err(system)?;
    let keeper = Keeper::new(layout, how);
    keeper.make_folder(&below).map_err(system)?;
    let file = file_name(at, name);
    let mut content = Content::default();
    let (seal, mark) = keeper
        .fetch(&node.blobs()?, at, "", &format!("{below}/{file}"))
        .await
        .map_err(|e| unreadable(name, &e))?;
    content.add(file, &seal, mark.bytes);
    layout.contents.borrow_mut().insert(format!("provenance.input.{name}"), content.told());
    if how == How::ReadWrite {
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
    layout.make_room().map_err(system)?;
    let keeper = Keeper::new(layout, how);
    keeper.make_folder(&below).map_err(system)?;
    let failed = |e: String| unreadable(name, &e);
    if let Some(own) = own {
        let own = relative(own).map_err(|e| failed(e.to_string()))?;
        below = format!("{below}/{own}");
        keeper.make_folder(&below).map_err(system)?;
    }
    let blobs = node.blobs()?;
    let mut names = blobs.list(at).await.map_err(failed)?;
    if names.is_empty() {
        return Err(failed(format!("there is nothing at {}", at.prefix)));
    }
    if how == How::Evaluated {
        names = evaluate(&blobs, at, names).await.map_err(failed)?;
    }
    let (brought, content) = fetch_all(&blobs, at, &below, names, &keeper).await.map_err(failed)?;
    layout.contents.borrow_mut().insert(format!("provenance.input.{name}"), content.told());
    if how == How::ReadWrite {
        layout.brought.borrow_mut().insert(below.clone(), brought);
    }
    Ok(layout.seen.join(below).display().to_string())
}

/// The names that the table of the folder stands for. It is not among them, unless it says so.
async fn evaluate(blobs: &Blobs, at: &BlobFolder, names: Vec<String>) -> Result<Vec<String>, String> {
    let table = blobs.fetch_bytes(at, mltable::FILE, TABLE_BYTES_MAX).await?;
    let text = String::from_utf8(table).map_err(|e| format!("reading its {}: {e}", mltable::FILE))?;
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
    let (brought, _) = fetch_all(&blobs, at, &below, names, &keeper).await.map_err(failed)?;
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
    let keeper = Keeper::new(layout, How::ReadWrite);
    let (_, mark) = keeper.fetch(&node.blobs()?, at, "", &format!("{below}/{file}")).await.map_err(failed)?;
    layout.brought.borrow_mut().entry(below).or_default().insert(file.to_owned(), mark);
    Ok(())
}

/// Fetches a folder that the job has under no name of its own; `what` it is, for people.
pub(crate) async fn fetch_named(
    blobs: &Blobs,
    from: &BlobFolder,
    (tree, below): (&Tree, &str),
    what: &str,
) -> Result<Content, Exit> {
    let failed = |e: String| prepare_failed(FailureClass::InputData, format!("{what}: {e}"));
    let names = blobs.list(from).await.map_err(failed)?;
    if names.is_empty() {
        return Err(failed(format!("there is nothing at {}", from.prefix)));
    }
    let keeper = Keeper { tree: tree.clone(), folder_mode: 0o700 };
    fetch_all(blobs, from, below, names, &keeper).await.map(|(_, content)| content).map_err(failed)
}

/// Whose the fetched files are, which says who may change them.
struct Keeper {
    tree: Tree,
    folder_mode: u32,
}

impl Keeper {
    fn new(layout: &Layout, how: How) -> Self {
        if how == How::ReadOnly && layout.keeper.user().is_some() {
            Self { tree: layout.keeper.clone(), folder_mode: 0o755 }
        } else {
            Self { tree: layout.work_tree.clone(), folder_mode: 0o700 }
        }
    }

    fn make_folder(&self, below: &str) -> io::Result<()> {
        self.tree.make_folders(below, self.folder_mode)
    }

    /// Fetches `{prefix}{name}` into a new file. What names its content comes back, and what the file is known by.
    async fn fetch(
        &self,
        blobs: &Blobs,
        from: &BlobFolder,
        name: &str,
        below: &str,
    ) -> Result<(String, Mark), String> {
        let file = self.tree.create(below, 0o644).map_err(|e| e.to_string())?;
        let (seal, file) = blobs.fetch(from, name, file).await?;
        Ok((seal, Mark::of_file(&file).map_err(|e| e.to_string())?))
    }
}

/// Fetches what the names say: files, and folders where a name ends with a slash.
async fn fetch_all(
    blobs: &Blobs,
    from: &BlobFolder,
    into: &str,
    names: Vec<String>,
    keeper: &Keeper,
) -> Result<(BTreeMap<String, Mark>, Content), String> {
    let mut files: Vec<(String, String)> = Vec::with_capacity(names.len());
    let mut made = BTreeSet::new();
    for name in names {
        let path = relative(&format!("{into}/{name}")).map_err(|e| e.to_string())?;
        let is_folder = name.is_empty() || name.ends_with('/');
        let folder =
            if is_folder { path.as_str() } else { path.rsplit_once('/').map_or("", |(folder, _)| folder) };
        if made.insert(folder.to_owned()) {
            keeper.make_folder(folder).map_err(|e| e.to_string())?;
        }
        if !is_folder {
            files.push((name, path));
        }
    }
    let fetched: BTreeMap<String, (String, Mark)> = futures_util::stream::iter(files)
        .map(|(name, path)| async move {
            keeper.fetch(blobs, from, &name, &path).await.map(|fetched| (name, fetched))
        })
        .buffer_unordered(FETCHES_AT_ONCE)
        .try_collect::<BTreeMap<_, _>>()
        .await?;
    let mut content = Content::default();
    for (name, (seal, mark)) in &fetched {
        content.add(name, seal, mark.bytes);
    }
    Ok((fetched.into_iter().map(|(name, (_, mark))| (name, mark)).collect(), content))
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
