//! The copy of the workspace that the mutants live in, below `target/mutants`. The checkout is only read.
//!
//! A file that is already as it should be is not written again, so that cargo need not build it again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// What is mutated: files, and folders with everything in them.
const SUBJECTS: [&str; 4] =
    ["crates/core/src/decide", "crates/core/src/apply.rs", "crates/core/src/apply", "crates/core/src/plan"];
const CORE: &str = "crates/core/src/lib.rs";
const MUTANT: &str = "crates/core/src/mutant.rs";

/// What the woven code asks.
const MUTANT_TEXT: &str = r#"//! Which mutant is there while this process runs.

use std::sync::OnceLock;

static CHOSEN: OnceLock<u32> = OnceLock::new();

pub fn is(id: u32) -> bool {
    *CHOSEN.get_or_init(|| std::env::var("NEAP_MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(u32::MAX)) == id
}
"#;

#[derive(Debug)]
pub struct Checkout {
    root: PathBuf,
    /// Every file that git knows or would add, relative to the root.
    files: BTreeSet<PathBuf>,
}

impl Checkout {
    pub fn here() -> Result<Self, Error> {
        let root = PathBuf::from(git(Path::new("."), &["rev-parse", "--show-toplevel"])?.trim_end());
        let listed = git(&root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let files: BTreeSet<PathBuf> = listed
            .split_terminator('\0')
            .map(PathBuf::from)
            .filter(|path| root.join(path).is_file())
            .collect();
        if !files.contains(Path::new(CORE)) {
            return Err(Error::Checkout(format!("{} has no {CORE}", root.display())));
        }
        Ok(Self { root, files })
    }

    /// Where everything of mutation testing is kept.
    pub fn folder(&self) -> PathBuf {
        self.root.join("target/mutants")
    }

    pub fn tree(&self) -> PathBuf {
        self.folder().join("tree")
    }

    /// The sources to mutate, with their text, in a stable order.
    pub fn subjects(&self) -> Result<Vec<(PathBuf, String)>, Error> {
        self.files
            .iter()
            .filter(|path| SUBJECTS.iter().any(|subject| path.starts_with(subject)))
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .map(|path| {
                let whole = self.root.join(path);
                Ok((path.clone(), fs::read_to_string(&whole).map_err(Error::file(whole))?))
            })
            .collect()
    }

    /// Brings the copy up to date; what is mutated is written by [`Self::write`].
    pub fn copy(&self) -> Result<(), Error> {
        let subjects: BTreeSet<PathBuf> = self.subjects()?.into_iter().map(|(path, _)| path).collect();
        for path in self.files.iter().filter(|path| !subjects.contains(*path)) {
            let from = self.root.join(path);
            let mut bytes = fs::read(&from).map_err(Error::file(from))?;
            if path == Path::new(CORE) {
                // Woven code has brackets and branches that no one would write.
                bytes.splice(0..0, *b"#![allow(warnings, clippy::all)]\n");
                bytes.extend_from_slice(b"\npub mod mutant;\n");
            }
            self.write(path, &bytes)?;
        }
        self.write(Path::new(MUTANT), MUTANT_TEXT.as_bytes())?;
        self.remove_strays(&self.tree())
    }

    /// Writes one file of the copy, unless it says this already.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let to = self.tree().join(path);
        if fs::read(&to).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(Error::file(folder))?;
        }
        fs::write(&to, bytes).map_err(Error::file(to))
    }

    /// Takes away what the checkout no longer has.
    fn remove_strays(&self, folder: &Path) -> Result<(), Error> {
        for entry in fs::read_dir(folder).map_err(Error::file(folder))? {
            let path = entry.map_err(Error::file(folder))?.path();
            let tree = self.tree();
            let relative = path.strip_prefix(&tree).unwrap_or(&path);
            if path.is_dir() {
                self.remove_strays(&path)?;
            } else if !self.files.contains(relative) && relative != Path::new(MUTANT) {
                fs::remove_file(&path).map_err(Error::file(path))?;
            }
        }
        Ok(())
    }
}

fn git(folder: &Path, args: &[&str]) -> Result<String, Error> {
    let output =
        Command::new("git").current_dir(folder).args(args).output().map_err(Error::program("git"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Error::Checkout(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}
