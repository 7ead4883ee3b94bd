//! `MLTable` files, as far as they say which files a table is made of. Transformations are the job's to do.

use serde::Deserialize;

/// The file's name in its folder.
pub(crate) const FILE: &str = "MLTable";
/// Paths of one table.
const PARTS_MAX: usize = 1_000;
/// Bytes of names that are compared with pieces of patterns, for one table: a second or two.
const LOOKS_MAX: usize = 1_000_000_000;

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
    if table.paths.len() > PARTS_MAX {
        return Err(format!(
            "its {FILE} file names {} paths; at most {PARTS_MAX} are taken",
            table.paths.len()
        ));
    }
    let mut wanted = vec![false; names.len()];
    let mut looks = LOOKS_MAX;
    for part in &table.paths {
        let (kind, path) = match part {
            Part::File(path) => ("file", path),
            Part::Folder(path) => ("folder", path),
            Part::Pattern(path) => ("pattern", path),
        };
        let below = relative(path)?;
        let pattern = pieces(below.as_bytes());
        let each = if matches!(part, Part::Pattern(_)) { pattern.len().saturating_add(1) } else { 1 };
        let mut found = false;
        for (name, wanted) in names.iter().zip(&mut wanted) {
            looks = looks.checked_sub(each.saturating_mul(name.len().saturating_add(1))).ok_or_else(|| {
                format!("its {FILE} file has so many and so long patterns for {} files that they are not looked for; name folders", names.len())
            })?;
            let is_named = match part {
                Part::File(_) => *name == below,
                Part::Folder(_) => {
                    below.is_empty() || name.strip_prefix(&below).is_some_and(|rest| rest.starts_with('/'))
                }
                Part::Pattern(_) => fits(&pattern, name.as_bytes()),
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

/// A pattern in pieces. `*` and `?` stay within a folder, `**` does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Byte(u8),
    /// `?`
    One,
    /// `*`
    Within,
    /// `**` at the end
    Rest,
    /// `**/`: nothing, or folders.
    Folders,
}

fn pieces(pattern: &[u8]) -> Vec<Piece> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((first, after)) = rest.split_first() {
        let (piece, after) = match (first, after) {
            (b'*', [b'*', b'/', after @ ..]) => (Piece::Folders, after),
            (b'*', [b'*']) => (Piece::Rest, &after[1..]),
            (b'*', after) => (Piece::Within, after),
            (b'?', after) => (Piece::One, after),
            (byte, after) => (Piece::Byte(*byte), after),
        };
        out.push(piece);
        rest = after;
    }
    out
}

/// Looks at each pair of a piece and a byte once: a pattern with many stars must not take for ever.
fn fits(pattern: &[Piece], name: &[u8]) -> bool {
    // Whether the pieces from here on fit the name from a place on, for each place.
    let mut fits = vec![false; name.len() + 1];
    fits[name.len()] = true;
    for piece in pattern.iter().rev() {
        let after = fits.clone();
        // The next folder begins at a place where what follows `**/` fits.
        let mut below = false;
        for at in (0..=name.len()).rev() {
            let here = name.get(at).copied();
            fits[at] = match piece {
                Piece::Byte(byte) => here == Some(*byte) && after[at + 1],
                Piece::One => here.is_some_and(|c| c != b'/') && after[at + 1],
                Piece::Within => after[at] || (here.is_some_and(|c| c != b'/') && fits[at + 1]),
                Piece::Rest => true,
                Piece::Folders => {
                    below |= here == Some(b'/') && after[at + 1];
                    after[at] || below
                }
            };
        }
    }
    fits[0]
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

    #[test]
    fn patterns() {
        let check = |pattern: &str, name: &str, expect: bool| {
            assert_eq!(fits(&pieces(pattern.as_bytes()), name.as_bytes()), expect, "{pattern} {name}");
        };
        for (pattern, name, expect) in [
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("*", "abc", true),
            ("*", "a/b", false),
            ("**", "a/b/c", true),
            ("**/*.csv", "a.csv", true),
            ("**/*.csv", "x/y/a.csv", true),
            ("x/**/a", "x/a", true),
            ("x/**/a", "x/y/z/a", true),
            ("x/**/a", "xx/a", false),
            ("**/x/**", "a/x/b", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXc", false),
            ("", "", true),
            ("", "a", false),
        ] {
            check(pattern, name, expect);
        }
    }

    #[test]
    fn stars_do_not_multiply() {
        let name = "a".repeat(1_000);
        let pattern = "*a".repeat(400) + "b";
        let table = |pattern: &str| format!("paths:\n  - pattern: '{pattern}'\n");
        assert!(select(&table(&pattern), vec![name.clone()]).unwrap_err().contains("there is none"));
        assert!(select(&table(&("**/".repeat(300) + "b")), vec!["x/".repeat(400)]).is_err());
        let many = (0..20_000).map(|n| format!("{name}{n}")).collect();
        assert!(select(&table(&pattern), many).unwrap_err().contains("not looked for"));
        let parts = "  - file: a\n".repeat(PARTS_MAX + 1);
        assert!(select(&format!("paths:\n{parts}"), vec!["a".into()]).unwrap_err().contains("1001 paths"));
    }
}
