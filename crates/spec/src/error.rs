//! What is wrong with a specification: every problem, with its place.

use std::fmt;

/// One thing to correct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, where it is another than the one that was given.
    pub file: Option<String>,
    /// Where in the document, as `a.b[0]`; empty for the document itself.
    pub path: String,
    /// The line of the file, where the problem is in the file and not in an override.
    pub line: Option<u32>,
    pub message: String,
    pub flaw: Flaw,
}

/// What is wrong at a place: what stands there, or that anything does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The key is not one that may be there; perhaps it is this one misspelt.
    Key { meant: Option<String> },
    /// The value cannot be what it is, or is missing.
    Value,
}

impl Problem {
    /// A problem that has a path and no line.
    pub(crate) fn at(path: &str, message: impl Into<String>) -> Self {
        Self { file: None, path: path.to_owned(), line: None, message: message.into(), flaw: Flaw::Value }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not YAML; the message says where.
    #[error("this is not valid YAML: {0}")]
    NotYaml(String),
    /// The YAML is readable, and these things in it are wrong.
    #[error("{}", summary(.0))]
    Problems(Vec<Problem>),
    /// The file asks for something that Neap does not do; one sentence says what to use instead.
    #[error("{0}")]
    NotSupported(String),
}

fn summary(problems: &[Problem]) -> String {
    let mut text = match problems.len() {
        1 => "1 problem in the specification:".to_owned(),
        n => format!("{n} problems in the specification:"),
    };
    for problem in problems {
        text.push_str("\n  - ");
        text.push_str(&problem.to_string());
    }
    text
}
