//! From the files of an input to mini-batches. Pure: the same files make the same mini-batches, in the same order.

use std::collections::BTreeMap;

use crate::limits::FILES_MAX;
use crate::settings::By;

/// A file of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its path below the input, with `/`.
    pub name: String,
    pub size: u64,
}

/// The files of each mini-batch, by name.
///
/// # Errors
/// What is wrong with the input, as a sentence for the user.
pub fn batches(mut files: Vec<FileEntry>, by: &By) -> Result<Vec<Vec<String>>, String> {
    if files.is_empty() {
        return Err("The input has no files, so there is nothing to do.".into());
    }
    if files.len() > FILES_MAX {
        return Err(format!("The input has {} files; {FILES_MAX} is the limit.", files.len()));
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files.dedup_by(|a, b| a.name == b.name);
    match by {
        By::Files(count) => {
            let count = usize::try_from(*count).unwrap_or(usize::MAX).max(1);
            Ok(files.chunks(count).map(|part| part.iter().map(|file| file.name.clone()).collect()).collect())
        }
        By::Bytes(limit) => Ok(by_size(files, *limit)),
        By::Keys(keys) => by_keys(files, keys),
    }
}

/// Files in order until the size is reached; a file is never split, so one that is larger stands alone.
fn by_size(files: Vec<FileEntry>, limit: u64) -> Vec<Vec<String>> {
    let mut out: Vec<Vec<String>> = Vec::new();
    let mut filled = 0_u64;
    for file in files {
        match out.last_mut() {
            Some(batch) if filled.saturating_add(file.size) <= limit => {
                filled += file.size;
                batch.push(file.name);
            }
            _ => {
                filled = file.size;
                out.push(vec![file.name]);
            }
        }
    }
    out
}

/// Files whose keys have the same values are together. A key's value is in a folder named `key=value`; where no folder is
/// named so, the first key is the first folder's name, the second the second's.
fn by_keys(files: Vec<FileEntry>, keys: &[String]) -> Result<Vec<Vec<String>>, String> {
    let named = files.iter().any(|file| folders(&file.name).any(|folder| folder.contains('=')));
    let mut out: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for file in files {
        let values: Option<Vec<String>> = if named {
            keys.iter().map(|key| value_of(&file.name, key)).collect()
        } else {
            let folders: Vec<String> = folders(&file.name).take(keys.len()).map(String::from).collect();
            (folders.len() == keys.len()).then_some(folders)
        };
        let Some(values) = values else {
            return Err(format!(
                "The file '{}' of the input lies in no folder for each of the partition keys {}.",
                file.name,
                keys.join(", ")
            ));
        };
        out.entry(values).or_default().push(file.name);
    }
    Ok(out.into_values().collect())
}

fn folders(name: &str) -> impl Iterator<Item = &str> {
    name.rsplit_once('/').map_or("", |(folders, _)| folders).split('/').filter(|part| !part.is_empty())
}

fn value_of(name: &str, key: &str) -> Option<String> {
    folders(name).find_map(|folder| folder.strip_prefix(key)?.strip_prefix('=')).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, u64)], by: &By, expect: Result<&[&[&str]], &str>) {
        let files =
            files.iter().map(|(name, size)| FileEntry { name: (*name).into(), size: *size }).collect();
        let expect = expect
            .map(|batches| batches.iter().map(|b| b.iter().map(|n| String::from(*n)).collect()).collect())
            .map_err(String::from);
        let got: Result<Vec<Vec<String>>, String> = batches(files, by);
        assert_eq!(got, expect, "{by:?}");
    }

    #[test]
    fn files_become_mini_batches() {
        let five = [("e", 9), ("a", 4), ("b", 4), ("c", 4), ("d", 20)];
        check(&five, &By::Files(2), Ok(&[&["a", "b"], &["c", "d"], &["e"]]));
        check(&five, &By::Files(1), Ok(&[&["a"], &["b"], &["c"], &["d"], &["e"]]));
        check(&five, &By::Files(9), Ok(&[&["a", "b", "c", "d", "e"]]));
        check(&five, &By::Bytes(8), Ok(&[&["a", "b"], &["c"], &["d"], &["e"]]));
        check(&[("a", 0), ("b", 0)], &By::Bytes(1), Ok(&[&["a", "b"]]));
        check(&[("a", 1), ("a", 1)], &By::Files(1), Ok(&[&["a"]]));
        check(&[], &By::Files(1), Err("The input has no files, so there is nothing to do."));
    }

    #[test]
    fn partition_keys_are_folders() {
        let keys = By::Keys(vec!["year".into(), "kind".into()]);
        let named = [
            ("year=1/kind=x/b", 1),
            ("kind=x/year=1/deep/a", 1),
            ("year=2/kind=x/c", 1),
            ("year=1/kind=y/d", 1),
        ];
        check(
            &named,
            &keys,
            Ok(&[&["kind=x/year=1/deep/a", "year=1/kind=x/b"], &["year=1/kind=y/d"], &["year=2/kind=x/c"]]),
        );
        check(
            &[("1/x/a", 1), ("1/x/deep/b", 1), ("1/y/c", 1)],
            &keys,
            Ok(&[&["1/x/a", "1/x/deep/b"], &["1/y/c"]]),
        );
        check(
            &[("1/x/a", 1), ("1/b", 1)],
            &keys,
            Err("The file '1/b' of the input lies in no folder for each of the partition keys year, kind."),
        );
        check(
            &[("year=1/a", 1)],
            &keys,
            Err(
                "The file 'year=1/a' of the input lies in no folder for each of the partition keys year, kind.",
            ),
        );
    }
}
