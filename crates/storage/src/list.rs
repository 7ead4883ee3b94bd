//! Listing a container: by the bytes of the full names, as Azure orders them, with prefix, delimiter
//! and pages. Only the folders that can hold wanted names are read, and the packed blobs are merged in.

use std::fs;
use std::io::ErrorKind;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::vec;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::names::{Part, properties_path, read_component};
use crate::properties::gather;
use crate::{BlobProperties, Error, LIST_RESULTS_MAX, PACKED_ROWS_AT_ONCE, Result, Store};

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Only names that begin with this.
    pub prefix: String,
    /// Names that have this after the prefix are listed once, cut behind it.
    pub delimiter: Option<String>,
    /// Where the page before this one said to go on.
    pub marker: Option<String>,
    /// Most entries of this page; [`LIST_RESULTS_MAX`] where none is given.
    pub results_max: Option<usize>,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListEntry {
    /// A blob.
    Blob {
        /// Its full name.
        name: String,
        /// What is known of it.
        properties: BlobProperties,
    },
    /// All blobs whose names begin so.
    Prefix(String),
}

impl ListEntry {
    /// The full name or the common beginning.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Blob { name, .. } | Self::Prefix(name) => name,
        }
    }
}

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// In order.
    pub entries: Vec<ListEntry>,
    /// What to ask with for the next page; none on the last.
    pub next_marker: Option<String>,
}

impl Store {
    /// Lists a container.
    pub fn list(&self, account: &str, container: &str, query: &ListQuery) -> Result<ListPage> {
        if !self.container_exists(account, container)? {
            return Err(Error::ContainerNotFound {
                account: account.to_owned(),
                container: container.to_owned(),
            });
        }
        let start = match query.marker.as_deref().filter(|marker| !marker.is_empty()) {
            None => String::new(),
            Some(marker) => read_marker(marker)?,
        };
        let wanted = Wanted { query, start };
        let room = query.results_max.map_or(LIST_RESULTS_MAX, |max| max.clamp(1, LIST_RESULTS_MAX));
        // Before the folders: a blob that gets a file of its own meanwhile may be met twice, which is
        // noticed, and is never missed. One line more than there is room for says that there are more.
        let packed = self.packed_lines(account, container, &wanted, room + 1)?;
        let mut walk =
            Walk { wanted, room, packed: packed.into_iter().peekable(), page: ListPage::default() };
        if walk.folder(&self.container_path(account, container)?, "")? {
            walk.add_packed(|_| true);
        }
        Ok(walk.page)
    }

    /// The first lines that a listing of the packed blobs alone would have.
    fn packed_lines(
        &self,
        account: &str,
        container: &str,
        wanted: &Wanted<'_>,
        lines_max: usize,
    ) -> Result<Vec<ListEntry>> {
        let prefix = wanted.query.prefix.as_str();
        let mut from = prefix.max(&wanted.start).to_owned();
        let mut lines = Vec::new();
        loop {
            let rows = self.packed().page(account, container, &from)?;
            let is_last = rows.len() < usize::from(PACKED_ROWS_AT_ONCE);
            for (name, properties) in rows {
                if !name.starts_with(prefix) || lines.len() >= lines_max {
                    return Ok(lines);
                }
                if name < from {
                    continue;
                }
                let Some(group) = wanted.group_of(&name) else {
                    from = format!("{name}\0");
                    lines.push(ListEntry::Blob { name, properties });
                    continue;
                };
                // However many share the beginning, they are one line.
                let Some(after) = first_after_all_with(&group) else { return Ok(lines) };
                from = after;
                if group >= wanted.start {
                    lines.push(ListEntry::Prefix(group));
                }
            }
            if is_last {
                return Ok(lines);
            }
        }
    }
}

/// The first name after all that begin so; none if there can be no such name.
fn first_after_all_with(beginning: &str) -> Option<String> {
    let mut chars: Vec<char> = beginning.chars().collect();
    while let Some(last) = chars.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

fn read_marker(marker: &str) -> Result<String> {
    URL_SAFE_NO_PAD.decode(marker).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
        Error::BadInput {
            what: "the marker",
            text: marker.chars().take(80).collect(),
            why: "it must be one that an earlier page gave",
        }
    })
}

/// What of the names is wanted on this page.
struct Wanted<'a> {
    query: &'a ListQuery,
    /// Names before this one were on earlier pages.
    start: String,
}

impl Wanted<'_> {
    /// Whether names that begin so can have the prefix and stand at or after the start.
    fn may_hold(&self, beginning: &str) -> bool {
        let prefix = &self.query.prefix;
        let fits = beginning.starts_with(prefix.as_str()) || prefix.starts_with(beginning);
        let late_enough = self.start.starts_with(beginning) || beginning >= self.start.as_str();
        fits && late_enough
    }

    /// The common beginning under which this name is listed, if there is one.
    fn group_of(&self, name: &str) -> Option<String> {
        let delimiter = self.query.delimiter.as_deref().filter(|d| !d.is_empty())?;
        let rest = name.strip_prefix(self.query.prefix.as_str())?;
        let end = rest.find(delimiter)? + delimiter.len();
        Some(format!("{}{}", self.query.prefix, &rest[..end]))
    }
}

struct Walk<'a> {
    wanted: Wanted<'a>,
    room: usize,
    /// Lines of the packed blobs that are not on the page yet.
    packed: Peekable<vec::IntoIter<ListEntry>>,
    page: ListPage,
}

/// A blob or a folder of names, with its full name; a folder's ends with a slash.
struct Item {
    name: String,
    path: PathBuf,
    is_folder: bool,
}

impl Walk<'_> {
    /// False when the page is full.
    fn folder(&mut self, folder: &Path, base: &str) -> Result<bool> {
        let mut items = Vec::new();
        self.read_folder(folder, base, &mut items)?;
        items.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        for item in items {
            let more = if let Some(group) = self.wanted.group_of(&item.name) {
                self.add_group(&item, group)?
            } else if item.is_folder {
                self.folder(&item.path, &item.name)?
            } else {
                self.add_blob(item)?
            };
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Collects what of this folder can be wanted. A segment that goes on in a folder of its own is
    /// taken in here, because its continuations stand between the other names.
    fn read_folder(&self, folder: &Path, base: &str, items: &mut Vec<Item>) -> Result<()> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            // Deleted meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Error::io("list", folder)(e)),
        };
        for entry in entries {
            let entry = entry.map_err(Error::io("list", folder))?;
            let Some((piece, part)) = entry.file_name().to_str().and_then(read_component) else {
                continue;
            };
            let kind = entry.file_type().map_err(Error::io("list", folder))?;
            let mut name = format!("{base}{piece}");
            let is_folder = match part {
                Part::Properties => continue,
                Part::Bytes if kind.is_file() => false,
                Part::Folder if kind.is_dir() => {
                    name.push('/');
                    true
                }
                Part::Longer if kind.is_dir() => {
                    if self.wanted.may_hold(&name) {
                        self.read_folder(&entry.path(), &name, items)?;
                    }
                    continue;
                }
                // A link, or something that does not belong here.
                Part::Bytes | Part::Folder | Part::Longer => continue,
            };
            let wanted = if is_folder {
                self.wanted.may_hold(&name)
            } else {
                name.starts_with(&self.wanted.query.prefix)
                    && (name.as_bytes() >= self.wanted.start.as_bytes()
                        || self.wanted.group_of(&name).is_some())
            };
            if wanted {
                let path = entry.path();
                items.push(Item { name, path, is_folder });
            }
        }
        Ok(())
    }

    /// Takes the next packed lines onto the page, as far as they are `due`. False when it is full.
    fn add_packed(&mut self, due: impl Fn(&str) -> bool) -> bool {
        while let Some(line) = self.packed.next_if(|line| due(line.name())) {
            if !self.add(line) {
                return false;
            }
        }
        true
    }

    fn add_group(&mut self, item: &Item, group: String) -> Result<bool> {
        if !self.add_packed(|name| name <= group.as_str()) {
            return Ok(false);
        }
        let known = self.page.entries.last().is_some_and(|last| last.name() == group);
        if known || group.as_bytes() < self.wanted.start.as_bytes() {
            return Ok(true);
        }
        if item.is_folder && !holds_blobs(&item.path)? {
            return Ok(true);
        }
        Ok(self.add(ListEntry::Prefix(group)))
    }

    fn add_blob(&mut self, item: Item) -> Result<bool> {
        if !self.add_packed(|name| name < item.name.as_str()) {
            return Ok(false);
        }
        // A blob that is there twice is the file (`place.rs`).
        self.packed.next_if(|line| line.name() == item.name);
        if self.page.entries.len() >= self.room {
            self.page.next_marker = Some(URL_SAFE_NO_PAD.encode(&item.name));
            return Ok(false);
        }
        let meta = match fs::symlink_metadata(&item.path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
            Err(e) => return Err(Error::io("read", &item.path)(e)),
        };
        Ok(self.add(ListEntry::Blob {
            properties: gather(&meta, &properties_path(&item.path)),
            name: item.name,
        }))
    }

    fn add(&mut self, entry: ListEntry) -> bool {
        if self.page.entries.len() >= self.room {
            self.page.next_marker = Some(URL_SAFE_NO_PAD.encode(entry.name()));
            return false;
        }
        self.page.entries.push(entry);
        true
    }
}

/// Whether there is any blob below. Empty folders are taken away with their last blob, but a crash
/// may leave one.
fn holds_blobs(folder: &Path) -> Result<bool> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(Error::io("list", folder)(e)),
    };
    for entry in entries {
        let entry = entry.map_err(Error::io("list", folder))?;
        let part = entry.file_name().to_str().and_then(read_component);
        match part.map(|(_, part)| part) {
            Some(Part::Bytes) => return Ok(true),
            Some(Part::Folder | Part::Longer) if holds_blobs(&entry.path())? => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}
