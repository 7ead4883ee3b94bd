//! What is in a folder (or a single file), in a fixed order, and one hash of all of it.

use super::ignore::IgnoreRules;
use crate::failure::{Failure, Outcome};
use crate::names::hex;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A snapshot has limits, so that a wrong path (a home folder) is noticed and not uploaded.
const FILES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 64;

#[derive(Debug)]
pub struct SnapshotFile {
    /// Relative to the snapshot, `/` between names.
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
}

#[derive(Debug)]
pub struct Snapshot {
    /// The name of the folder or file itself.
    pub name: String,
    pub is_file: bool,
    /// In order of their names.
    pub files: Vec<SnapshotFile>,
    /// SHA-256 over names, lengths and contents.
    pub hash: String,
}

impl Snapshot {
    pub fn of(path: &Path) -> Outcome<Self> {
        Self::with(path, &[])
    }

    /// A snapshot with further files and folders laid at its top, each under its own name. A name that is there
    /// already is refused: one of the two would be lost.
    pub fn with(path: &Path, includes: &[PathBuf]) -> Outcome<Self> {
        // The real path has a name even where `.` was written.
        let path = path.canonicalize().map_err(|error| Failure::file("read", path, &error))?;
        let metadata = path.metadata().map_err(|error| Failure::file("read", &path, &error))?;
        let name = path.file_name().map_or_else(|| "root".into(), |name| name.to_string_lossy()).into_owned();
        let mut files = Vec::new();
        if metadata.is_file() {
            files.push(SnapshotFile { name: name.clone(), path: path.clone(), bytes: metadata.len() });
        } else {
            let rules = IgnoreRules::of_folder(&path);
            collect(&path, "", &rules, 0, &mut files)?;
        }
        for include in includes {
            let laid = Self::of(include)?;
            for file in laid.files {
                let name = if laid.is_file { file.name } else { format!("{}/{}", laid.name, file.name) };
                if files.iter().any(|known| known.name == name) {
                    return Err(Failure::usage(format!(
                        "{} would hide the file {name} of the code folder",
                        include.display()
                    ))
                    .hint("rename one of them, or leave it out of additional_includes"));
                }
                files.push(SnapshotFile { name, ..file });
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        if files.is_empty() {
            return Err(Failure::usage(format!("{} holds no file to upload", path.display()))
                .hint("an empty folder cannot be uploaded; see also its .amlignore or .gitignore"));
        }
        let hash = hash(&files)?;
        let is_file = metadata.is_file() && includes.is_empty();
        Ok(Self { name, is_file, files, hash })
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

fn collect(
    folder: &Path,
    prefix: &str,
    rules: &IgnoreRules,
    depth: usize,
    files: &mut Vec<SnapshotFile>,
) -> Outcome<()> {
    if depth > DEPTH_MAX {
        return Err(Failure::usage(format!(
            "{} is nested deeper than {DEPTH_MAX} folders",
            folder.display()
        ))
        .hint("a link may lead back to a folder above it"));
    }
    let entries = std::fs::read_dir(folder).map_err(|error| Failure::file("read", folder, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| Failure::file("read", folder, &error))?;
        let path = entry.path();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // Links are followed: what they lead to is what the code will read.
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) => {
                if rules.excludes(&name, false) {
                    continue;
                }
                return Err(Failure::file("read", &path, &error)
                    .hint("a link that leads nowhere can be named in .amlignore"));
            }
        };
        if rules.excludes(&name, metadata.is_dir()) {
            continue;
        }
        if metadata.is_dir() {
            collect(&path, &format!("{name}/"), rules, depth + 1, files)?;
        } else if metadata.is_file() {
            if files.len() == FILES_MAX {
                return Err(Failure::usage(format!("there are more than {FILES_MAX} files to upload"))
                    .hint("name what is not needed in .amlignore, or give a smaller folder"));
            }
            files.push(SnapshotFile { name, path, bytes: metadata.len() });
        }
    }
    Ok(())
}

fn hash(files: &[SnapshotFile]) -> Outcome<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    for file in files {
        hasher.update((file.name.len() as u64).to_be_bytes());
        hasher.update(file.name.as_bytes());
        hasher.update(file.bytes.to_be_bytes());
        let mut source =
            std::fs::File::open(&file.path).map_err(|error| Failure::file("read", &file.path, &error))?;
        loop {
            let count =
                source.read(&mut buffer).map_err(|error| Failure::file("read", &file.path, &error))?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
        }
    }
    Ok(hex(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::Snapshot;

    #[test]
    fn a_snapshot_is_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let code = folder.path().join("src");
        std::fs::create_dir_all(code.join("pkg/__pycache__")).unwrap();
        for (name, text) in [
            ("train.py", "1"),
            ("pkg/a.py", "2"),
            ("pkg/__pycache__/a.pyc", "x"),
            ("b.csv", "3"),
            (".gitignore", "*.csv"),
        ] {
            std::fs::write(code.join(name), text).unwrap();
        }
        let first = Snapshot::of(&code).unwrap();
        let names: Vec<&str> = first.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!((first.name.as_str(), names), ("src", vec![".gitignore", "pkg/a.py", "train.py"]));
        assert_eq!(Snapshot::of(&code).unwrap().hash, first.hash);
        std::fs::write(code.join("train.py"), "2").unwrap();
        assert_ne!(Snapshot::of(&code).unwrap().hash, first.hash);
        let file = Snapshot::of(&code.join("train.py")).unwrap();
        assert!(file.is_file && file.files.len() == 1);
        let more = folder.path().join("more");
        std::fs::create_dir_all(&more).unwrap();
        std::fs::write(more.join("x.py"), "x").unwrap();
        let laid = Snapshot::with(&code, &[more.clone(), more.join("x.py")]).unwrap();
        let names: Vec<&str> = laid.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, [".gitignore", "more/x.py", "pkg/a.py", "train.py", "x.py"]);
        assert!(Snapshot::with(&code, &[code.join("train.py")]).is_err(), "one would hide the other");
        assert!(Snapshot::of(&code.join("nowhere")).is_err());
    }
}
