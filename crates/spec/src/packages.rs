//! A conda file or pip requirements, read into what pip is to install. Pure text; it runs nothing.
//!
//! Without conda, a conda package is installed from PyPI under the name that the table in `data/` gives it. A package
//! that is not in the table is refused by name: guessing could install something else. The server asks it when a job is
//! submitted, and the node when it installs.

use serde::Deserialize;

const TABLE: &str = include_str!("../data/conda-to-pypi.csv");

/// What an environment asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `3.10`, as far as it was written.
    pub python: Option<String>,
    /// Lines of a requirements file.
    pub requirements: Vec<String>,
    /// Conda packages that nothing on PyPI is known for, as they were written.
    pub unknown: Vec<String>,
    /// What is left out, and why.
    pub notes: Vec<String>,
    /// It is a conda file, for whoever has conda.
    pub conda: bool,
}

#[derive(Deserialize)]
struct CondaFile {
    #[serde(default)]
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Dependency {
    Conda(String),
    Pip { pip: Option<Vec<String>> },
}

/// Reads a specification; the error says what is wrong with it, all at once.
pub fn read(text: &str) -> Result<Wanted, String> {
    let conda = text.lines().any(|line| {
        ["dependencies", "channels", "name"]
            .iter()
            .any(|key| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':')))
    });
    let mut wanted = Wanted { conda, ..Wanted::default() };
    let mut refused = Vec::new();
    if conda {
        let file: CondaFile = serde_saphyr::from_str(text)
            .map_err(|e| format!("The conda file cannot be read: {}", first_line(&e.to_string())))?;
        for dependency in file.dependencies {
            match dependency {
                Dependency::Conda(written) => conda_package(&written, &mut wanted, &mut refused),
                Dependency::Pip { pip } => {
                    for line in pip.into_iter().flatten() {
                        requirement(&line, &mut wanted, &mut refused);
                    }
                }
            }
        }
    } else {
        for line in text.lines() {
            requirement(line, &mut wanted, &mut refused);
        }
    }
    if refused.is_empty() { Ok(wanted) } else { Err(refused.join(" ")) }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

/// One line of a requirements file. What refers to a file beside it cannot be had: only the text came.
fn requirement(line: &str, wanted: &mut Wanted, refused: &mut Vec<String>) {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return;
    }
    let word = line.split([' ', '=']).next().unwrap_or(line);
    let beside = ["-r", "--requirement", "-c", "--constraint", "-e", "--editable"].contains(&word)
        || line.starts_with(['.', '/'])
        || line.starts_with("-r")
        || line.starts_with("file:");
    if beside {
        refused.push(format!(
            "'{line}' refers to a file that is not part of the environment; write its packages out."
        ));
    } else {
        wanted.requirements.push(line.to_owned());
    }
}

fn conda_package(written: &str, wanted: &mut Wanted, refused: &mut Vec<String>) {
    let text = written.rsplit("::").next().unwrap_or(written).trim();
    let end = text.find(['=', '<', '>', '!', '~', ' ', '[']).unwrap_or(text.len());
    let (name, rest) = (text[..end].trim().to_ascii_lowercase(), text[end..].trim());
    let Some(version) = version(rest) else {
        refused.push(format!(
            "'{written}' cannot be read; write name=version, or name with ==, <, >, <=, >=, !=."
        ));
        return;
    };
    if name == "python" {
        // A range is left to the interpreter that is there.
        wanted.python = version
            .strip_prefix("==")
            .or_else(|| version.strip_prefix("~="))
            .filter(|asked| !asked.contains(','))
            .map(|asked| asked.split('.').filter(|part| *part != "*").take(2).collect::<Vec<_>>().join("."));
        return;
    }
    let row = TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.splitn(3, ',').collect::<Vec<_>>())
        .find(|row| row.first() == Some(&name.as_str()));
    match row.as_deref() {
        Some([_, "", why]) => wanted.notes.push(format!("{name} is left out: {why}")),
        Some([_, pypi, _]) => wanted.requirements.push(format!("{pypi}{version}")),
        Some(_) | None => wanted.unknown.push(written.to_owned()),
    }
}

/// A conda version as pip writes it; none if it cannot be said there. `=1.2` means 1.2 and what begins with it.
fn version(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    if text.contains(['[', '|', '(']) {
        return None;
    }
    let mut parts = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let operator_end = part.find(|c: char| !"=<>!~ ".contains(c)).unwrap_or(part.len());
        let (operator, value) = (part[..operator_end].trim(), part[operator_end..].trim());
        // `1.2=py39_0` names a build, which wheels have in another form.
        let value = value.split(['=', ' ']).next().unwrap_or(value);
        if value.is_empty() {
            return None;
        }
        let fuzzy = |value: &str| format!("=={}.*", value.trim_end_matches(".*").trim_end_matches('*'));
        parts.push(match operator {
            "" | "=" if value == "*" => continue,
            "" | "=" => fuzzy(value),
            "==" | ">=" | "<=" | "<" | ">" | "!=" | "~=" => format!("{operator}{value}"),
            _ => return None,
        });
    }
    Some(parts.join(","))
}

#[cfg(test)]
#[path = "packages_tests.rs"]
mod tests;
