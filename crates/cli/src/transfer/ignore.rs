//! `.amlignore` and `.gitignore`: which files of a folder are not uploaded. The patterns that people write, not all of
//! git's rules: one file, at the top of the folder.

use std::path::Path;

/// Left out whatever the files say: they are never part of the work.
const NEVER: &[&str] = &[".git", "__pycache__", ".ipynb_checkpoints", ".ipynb_aml_checkpoints", ".amlignore"];

#[derive(Debug, Default)]
pub struct IgnoreRules {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    pattern: Vec<String>,
    keep: bool,
    only_folders: bool,
}

impl IgnoreRules {
    /// `.amlignore` if there is one, else `.gitignore`, as the Azure client chooses.
    pub fn of_folder(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join(".amlignore"))
            .or_else(|_| std::fs::read_to_string(folder.join(".gitignore")));
        text.map(|text| Self::parse(&text)).unwrap_or_default()
    }

    pub fn parse(text: &str) -> Self {
        Self { rules: text.lines().filter_map(Rule::parse).collect() }
    }

    /// Whether the entry at `path` (relative, `/` between names) is left out; the last rule that matches decides.
    pub fn excludes(&self, path: &str, is_folder: bool) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        if NEVER.contains(&name) {
            return true;
        }
        let segments: Vec<&str> = path.split('/').collect();
        self.rules
            .iter()
            .rev()
            .find(|rule| (is_folder || !rule.only_folders) && matches_path(&rule.pattern, &segments))
            .is_some_and(|rule| !rule.keep)
    }
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (line, keep) = line.strip_prefix('!').map_or((line, false), |rest| (rest, true));
        let (line, only_folders) = line.strip_suffix('/').map_or((line, false), |rest| (rest, true));
        let anchored = line.contains('/');
        let mut pattern: Vec<String> = line.trim_start_matches('/').split('/').map(str::to_owned).collect();
        if !anchored {
            // A name alone is looked for at every depth.
            pattern.insert(0, "**".to_owned());
        }
        Some(Self { pattern, keep, only_folders })
    }
}

fn matches_path(pattern: &[String], path: &[&str]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((first, rest)) if first == "**" => {
            if rest.is_empty() {
                return !path.is_empty();
            }
            (0..=path.len()).any(|skip| matches_path(rest, &path[skip..]))
        }
        Some((first, rest)) => match path.split_first() {
            Some((name, below)) => {
                matches_name(first.as_bytes(), name.as_bytes()) && matches_path(rest, below)
            }
            None => false,
        },
    }
}

/// `*`, `?` and `[a-z]` within one name.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            matches_name(&pattern[1..], name) || (!name.is_empty() && matches_name(pattern, &name[1..]))
        }
        (Some(b'['), Some(letter)) => {
            let Some(end) = pattern.iter().skip(2).position(|byte| *byte == b']').map(|at| at + 2) else {
                return *letter == b'[' && matches_name(&pattern[1..], &name[1..]);
            };
            in_class(&pattern[1..end], *letter) && matches_name(&pattern[end + 1..], &name[1..])
        }
        (Some(b'?'), Some(_)) => matches_name(&pattern[1..], &name[1..]),
        (Some(b'\\'), Some(letter)) if pattern.len() > 1 => {
            pattern[1] == *letter && matches_name(&pattern[2..], &name[1..])
        }
        (Some(wanted), Some(letter)) => wanted == letter && matches_name(&pattern[1..], &name[1..]),
        _ => false,
    }
}

fn in_class(class: &[u8], letter: u8) -> bool {
    let (class, negated) = match class.first() {
        Some(b'!' | b'^') => (&class[1..], true),
        _ => (class, false),
    };
    let mut found = false;
    let mut at = 0;
    while at < class.len() {
        if at + 2 < class.len() && class[at + 1] == b'-' {
            found |= (class[at]..=class[at + 2]).contains(&letter);
            at += 3;
        } else {
            found |= class[at] == letter;
            at += 1;
        }
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::IgnoreRules;

    #[test]
    fn patterns_mean_what_people_expect() {
        let rules = IgnoreRules::parse(
            "# data\n*.csv\n!keep.csv\n/top.txt\nbuild/\ndocs/**/draft\nx[0-9].log\na/b\n",
        );
        for (path, folder, excluded) in [
            ("a.csv", false, true),
            ("deep/er/a.csv", false, true),
            ("keep.csv", false, false),
            ("top.txt", false, true),
            ("sub/top.txt", false, false),
            ("build", true, true),
            ("build", false, false),
            ("sub/build", true, true),
            ("docs/a/b/draft", false, true),
            ("docs/draft", false, true),
            ("x7.log", false, true),
            ("xy.log", false, false),
            ("a/b", false, true),
            ("z/a/b", false, false),
            (".git", true, true),
            ("src/__pycache__", true, true),
            ("train.py", false, false),
        ] {
            assert_eq!(rules.excludes(path, folder), excluded, "{path}");
        }
    }
}
