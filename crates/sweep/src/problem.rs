//! One thing that is wrong with a sweep, with the place where it is written.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// As the job writes it: `searchSpace.lr`, `limits.maxTotalTrials`.
    pub at: String,
    /// What is expected there, in words.
    pub says: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.at, self.says)
    }
}

/// Problems are collected, so that all of them are told at once.
#[derive(Debug, Default)]
pub(crate) struct Problems(pub Vec<Problem>);

impl Problems {
    pub fn add(&mut self, at: &str, says: impl Into<String>) {
        self.0.push(Problem { at: at.to_owned(), says: says.into() });
    }
}
