//! `MLTable` files, as far as they say which files a table is made of. Transformations are the job's to do.

use serde::Deserialize;

/// The file's name in its folder.
pub(crate) const FILE: &str = "MLTable";

#[derive(Debug, Deserialize)]
struct Table {
    #[serde(default)]
    paths: Vec<Part>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    File(String),
    Folder(String),
    Pattern(String),
}

/// Those of `names` that the table's text names. It is an error if it names something that is not below its folder, or
/// a file that is not there.
pub(crate) fn select(text: &str, names: Vec<String>) -> Result<Vec<String>, String> {
    let table: Table =
        serde_saphyr::from_str(text).map_err(|e| format!("its {FILE} file cannot be read: {e}"))?;
    let mut wanted = vec![false; names.len()];
    for part in &table.paths {
        let (kind, path) = match part {
            Part::File(path) => ("file", path),
            Part::Folder(path) => ("folder", path),
            Part::Pattern(path) => ("pattern", path),
        };
        let below = relative(path)?;
        let mut found = false;
        for (name, wanted) in names.iter().zip(&mut wanted) {
            let is_named = match part {
                Part::File(_) => *name == below,
                Part::Folder(_) => {
                    below.is_empty() || name.strip_prefix(&below).is_some_and(|rest| rest.starts_with('/'))
                }
                Part::Pattern(_) => fits(below.as_bytes(), name.as_bytes()),
            };
            *wanted |= is_named;
            found |= is_named;
        }
        if !found {
            return Err(format!("its {FILE} file names the {kind} '{path}', and there is none"));
        }
    }
    Ok(names.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(name, _)| name).collect())
}

fn relative(path: &str) -> Result<String, String> {
    if path.contains("://") || path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(format!(
            "its {FILE} file names '{path}'; with eval_mount and eval_download only what lies beside that file can be named"
        ));
    }
    Ok(path.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/"))
}

/// `*` and `?` stay within a folder, `**` does not.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => name.is_empty(),
        [b'*', b'*', b'/', rest @ ..] => {
            fits(rest, name)
                || name.iter().enumerate().any(|(at, c)| *c == b'/' && fits(rest, &name[at + 1..]))
        }
        [b'*', b'*'] => true,
        [b'*', rest @ ..] => {
            let folder = name.iter().position(|c| *c == b'/').unwrap_or(name.len());
            (0..=folder).any(|at| fits(rest, &name[at..]))
        }
        [b'?', rest @ ..] => name.first().is_some_and(|c| *c != b'/') && fits(rest, &name[1..]),
        [c, rest @ ..] => name.first() == Some(c) && fits(rest, &name[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_files() {
        let names = || ["MLTable", "a.csv", "b.csv", "sub/c.csv", "sub/d.txt"].map(str::to_owned).to_vec();
        let check = |paths: &str, expect: Result<&[&str], &str>| {
            let got = select(
                &format!(
                    "type: mltable\npaths:\n{paths}\ntransformations:\n  - read_delimited:\n      delimiter: ','\n"
                ),
                names(),
            );
            match (got, expect) {
                (Ok(got), Ok(expect)) => assert_eq!(got, expect, "{paths}"),
                (Err(got), Err(expect)) => assert!(got.contains(expect), "{paths}: {got}"),
                (got, _) => panic!("{paths}: {got:?}"),
            }
        };
        check("  - file: ./a.csv", Ok(&["a.csv"]));
        check("  - folder: ./sub", Ok(&["sub/c.csv", "sub/d.txt"]));
        check("  - pattern: ./*.csv", Ok(&["a.csv", "b.csv"]));
        check("  - pattern: ./**/*.csv", Ok(&["a.csv", "b.csv", "sub/c.csv"]));
        check("  - file: b.csv\n  - file: sub/d.txt", Ok(&["b.csv", "sub/d.txt"]));
        check("  - file: ./no.csv", Err("names the file './no.csv'"));
        check("  - file: https://example.com/a.csv", Err("lies beside"));
        check("  - folder: ../other", Err("lies beside"));
        assert!(select("paths: 3", names()).is_err());
    }
}
