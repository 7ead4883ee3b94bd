//! Names to paths and back. A blob's name is any text with slashes; its path is below its container
//! whatever the name says, and no two names share a path.
//!
//! Each segment of a name becomes one path component: the segment with every byte outside of
//! `A-Z a-z 0-9 . _ -` and of non-ASCII letters written `%XX`, then an ending that says what it is:
//! `@d` a folder, `@b` a blob's bytes, `@m` a blob's properties, `@c` a folder in which a segment
//! too long for one file name goes on. `@` itself is always escaped, so an ending cannot be forged,
//! and `.`, `..` and the empty segment are ordinary file names (`..@d`).

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Error, FILE_NAME_BYTES_MAX, NAME_CHARS_MAX, PATH_BYTES_MAX, Result};

/// A blob's full address. Made only by [`BlobAddress::new`], so its parts keep the rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobAddress {
    account: String,
    container: String,
    name: String,
}

impl BlobAddress {
    /// Checks the three names.
    pub fn new(
        account: impl Into<String>,
        container: impl Into<String>,
        name: impl Into<String>,
    ) -> Result<Self> {
        let address = Self { account: account.into(), container: container.into(), name: name.into() };
        check_account(&address.account)?;
        check_container(&address.container)?;
        let bad = |why| bad("blob", &address.name, why);
        if address.name.is_empty() {
            return Err(bad("it is empty"));
        }
        if address.name.chars().count() > NAME_CHARS_MAX {
            return Err(bad("it has more than 1024 characters"));
        }
        if path_of(&address.name).as_os_str().len() > PATH_BYTES_MAX {
            return Err(bad("it is too long for the file system, once written as a path"));
        }
        Ok(address)
    }

    /// The storage account.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The container.
    #[must_use]
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The blob's name in its container.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for BlobAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.account, self.container, self.name)
    }
}

fn bad(what: &'static str, name: &str, why: &'static str) -> Error {
    Error::BadName { what, name: name.chars().take(80).collect(), why }
}

/// An account name: 3 to 24 lower-case letters and digits.
pub(crate) fn check_account(name: &str) -> Result<()> {
    let fits =
        (3..=24).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if fits {
        return Ok(());
    }
    let why = "it must be 3 to 24 lower-case letters and digits";
    Err(bad("storage account", name, why))
}

/// A container name: 3 to 63 lower-case letters, digits and single hyphens between them.
pub(crate) fn check_container(name: &str) -> Result<()> {
    let fits = (3..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    if fits {
        return Ok(());
    }
    let why = "it must be 3 to 63 lower-case letters, digits and single hyphens between them";
    Err(bad("container", name, why))
}

/// What a path component stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A folder of names that share a segment.
    Folder,
    /// A blob's bytes.
    Bytes,
    /// A blob's properties.
    Properties,
    /// A folder in which a long segment goes on.
    Longer,
}

impl Part {
    fn ending(self) -> &'static str {
        match self {
            Self::Folder => "@d",
            Self::Bytes => "@b",
            Self::Properties => "@m",
            Self::Longer => "@c",
        }
    }
}

/// The path of a blob's bytes, below its container.
pub(crate) fn path_of(name: &str) -> PathBuf {
    let mut path = PathBuf::new();
    let mut segments = name.split('/').peekable();
    while let Some(segment) = segments.next() {
        let part = if segments.peek().is_some() { Part::Folder } else { Part::Bytes };
        push_segment(&mut path, segment, part);
    }
    path
}

/// The path of a blob's properties, from the path of its bytes.
pub(crate) fn properties_path(bytes_path: &Path) -> PathBuf {
    let name = bytes_path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(Part::Bytes.ending()).unwrap_or(&name);
    bytes_path.with_file_name(format!("{stem}{}", Part::Properties.ending()))
}

fn push_segment(path: &mut PathBuf, segment: &str, part: Part) {
    let mut file = String::new();
    for c in segment.chars() {
        let mut escaped = String::new();
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') || !c.is_ascii() {
            escaped.push(c);
        } else {
            escaped = format!("%{:02X}", u32::from(c));
        }
        if file.len() + escaped.len() > FILE_NAME_BYTES_MAX {
            file.push_str(Part::Longer.ending());
            path.push(&file);
            file.clear();
        }
        file.push_str(&escaped);
    }
    file.push_str(part.ending());
    path.push(file);
}

/// What a file name of the store stands for, with its piece of the segment; `None` for anything else.
pub(crate) fn read_component(file: &str) -> Option<(String, Part)> {
    let (escaped, ending) = file.rsplit_once('@')?;
    let part = match ending {
        "d" => Part::Folder,
        "b" => Part::Bytes,
        "m" => Part::Properties,
        "c" => Part::Longer,
        _ => return None,
    };
    let mut piece = String::new();
    let mut rest = escaped;
    while let Some((before, after)) = rest.split_once('%') {
        piece.push_str(before);
        let (code, after) = after.split_at_checked(2)?;
        piece.push(char::from(u8::from_str_radix(code, 16).ok()?));
        rest = after;
    }
    piece.push_str(rest);
    Some((piece, part))
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    fn read_back(path: &Path) -> String {
        let mut name = String::new();
        for component in path.components() {
            let Component::Normal(file) = component else {
                panic!("{} leaves its place", path.display());
            };
            assert!(file.len() <= FILE_NAME_BYTES_MAX + 2);
            let (piece, part) = read_component(file.to_str().unwrap()).unwrap();
            name.push_str(&piece);
            if part == Part::Folder {
                name.push('/');
            }
        }
        name
    }

    #[test]
    fn difficult_names_stay_inside_and_apart() {
        let long = "x".repeat(1_000);
        let names = [
            "a",
            "a/",
            "a/b",
            "a//b",
            "/a",
            "/",
            "//",
            ".",
            "..",
            "../../etc/passwd",
            "a/../b",
            "a@b",
            "a@d",
            "a@d/b",
            "@b",
            "%40",
            "%",
            "a%2Fb",
            "a b",
            "a\\b",
            "ä/ö",
            "é",
            "e\u{301}",
            "A",
            "line\nbreak",
            "a\0b",
            &long,
        ];
        let mut paths: Vec<PathBuf> = names.iter().map(|name| path_of(name)).collect();
        for (name, path) in names.iter().zip(&paths) {
            assert_eq!(read_back(path), *name);
        }
        let count = paths.len();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), count);
    }

    #[test]
    fn a_file_never_stands_where_a_folder_must_be() {
        let names = ["a", "a/b", "a/b/c", &"x".repeat(200), &"x".repeat(201)];
        let files: Vec<PathBuf> = names.iter().map(|name| path_of(name)).collect();
        for file in &files {
            let above = files.iter().any(|other| other != file && other.starts_with(file));
            assert!(!above, "{}", file.display());
        }
    }

    #[test]
    fn names_that_break_a_rule_are_refused() {
        let long = "x".repeat(NAME_CHARS_MAX + 1);
        let wide = "\u{10FFFF}".repeat(NAME_CHARS_MAX);
        for (account, container, name) in [
            ("..", "cont", "a"),
            ("acct/x", "cont", "a"),
            ("ACCT", "cont", "a"),
            ("acct", "..", "a"),
            ("acct", "a/b", "a"),
            ("acct", "-ab", "a"),
            ("acct", "a--b", "a"),
            ("acct", "@tmp", "a"),
            ("acct", "cont", ""),
            ("acct", "cont", &long),
            ("acct", "cont", &wide),
        ] {
            let address = BlobAddress::new(account, container, name);
            assert!(matches!(address, Err(Error::BadName { .. })), "{account} {container}");
        }
        assert!(BlobAddress::new("neapst1", "azureml-blobstore-1", "a").is_ok());
    }

    proptest! {
        #[test]
        fn any_name_comes_back(name in "\\PC{1,300}|[a-z/@%.]{1,300}") {
            prop_assert_eq!(read_back(&path_of(&name)), name);
        }
    }
}
