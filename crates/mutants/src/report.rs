//! What came of it: a table for people, JSON for programs.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde_json::{Value, json};

use crate::run::Mutant;
use crate::suites::Verdict;
use crate::{RunArgs, Suite};

#[derive(Debug)]
pub struct Tried {
    pub mutant: Mutant,
    pub verdict: Verdict,
}

#[derive(Debug)]
pub struct Report<'a> {
    pub args: &'a RunArgs,
    /// Everything that could be mutated, and how much of it does not compile.
    pub sites: usize,
    pub refused: usize,
    pub tried: Vec<Tried>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Survived => write!(f, "SURVIVED"),
            Self::Caught { suite, by } => write!(f, "caught by {}: {by}", suite.word()),
            Self::TimedOut { suite } => write!(f, "caught by {}: it did not end", suite.word()),
        }
    }
}

impl Report<'_> {
    fn survivors(&self) -> impl Iterator<Item = &Mutant> {
        self.tried.iter().filter(|t| t.verdict == Verdict::Survived).map(|t| &t.mutant)
    }

    fn caught(&self) -> usize {
        self.tried.len() - self.survivors().count()
    }

    fn caught_by(&self, suite: Suite) -> usize {
        let by = |verdict: &Verdict| match verdict {
            Verdict::Survived => false,
            Verdict::Caught { suite: by, .. } | Verdict::TimedOut { suite: by } => *by == suite,
        };
        self.tried.iter().filter(|t| by(&t.verdict)).count()
    }

    fn timed_out(&self) -> usize {
        self.tried.iter().filter(|t| matches!(t.verdict, Verdict::TimedOut { .. })).count()
    }

    pub fn is_enough(&self) -> bool {
        self.caught() * 100 >= self.args.at_least * self.tried.len()
    }

    fn percent(&self) -> f64 {
        self.caught() as f64 * 100.0 / self.tried.len().max(1) as f64
    }

    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut group = |title: &str, key: &dyn Fn(&Mutant) -> String| {
            let mut rows: BTreeMap<String, (usize, usize)> = BTreeMap::new();
            for tried in &self.tried {
                let row = rows.entry(key(&tried.mutant)).or_default();
                row.0 += 1;
                row.1 += usize::from(tried.verdict != Verdict::Survived);
            }
            let _ = writeln!(out, "{title:<40} {:>7} {:>7} {:>8}", "mutants", "caught", "survived");
            for (name, (all, caught)) in rows {
                let _ = writeln!(out, "{name:<40} {all:>7} {caught:>7} {:>8}", all - caught);
            }
            out.push('\n');
        };
        group("file", &|mutant| mutant.file.display().to_string());
        group("operator", &|mutant| mutant.site.operator.to_owned());
        for mutant in self.survivors() {
            let (file, line) = (mutant.file.display(), mutant.site.line);
            let _ = writeln!(out, "survived: {} {file}:{line} {}", mutant.id, mutant.site.operator);
            let _ = writeln!(out, "    {}\n  → {}", mutant.original, mutant.mutated());
        }
        let suites: Vec<String> =
            self.args.tests.iter().map(|s| format!("{} by {}", self.caught_by(*s), s.word())).collect();
        let origin = if self.args.only.is_empty() {
            format!("Drawn with seed {}", self.args.seed)
        } else {
            String::from("Chosen by number")
        };
        let _ = writeln!(
            out,
            "{} of {} caught, {:.1} % ({}; {} did not end). {} from {} mutants that compile; {} do not.",
            self.caught(),
            self.tried.len(),
            self.percent(),
            suites.join(", "),
            self.timed_out(),
            origin,
            self.sites - self.refused,
            self.refused,
        );
        out
    }

    pub fn json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let by_suite: BTreeMap<&str, usize> =
            self.args.tests.iter().map(|suite| (suite.word(), self.caught_by(*suite))).collect();
        let mutants: Vec<Value> = self.tried.iter().map(Tried::json).collect();
        serde_json::to_vec_pretty(&json!({
            "seed": self.args.seed,
            "sample": self.tried.len(),
            "sites": self.sites,
            "not_compiling": self.refused,
            "worlds": self.args.worlds,
            "caught": self.caught(),
            "caught_by": by_suite,
            "did_not_end": self.timed_out(),
            "caught_percent": self.percent(),
            "mutants": mutants,
        }))
    }
}

impl Tried {
    fn json(&self) -> Value {
        let (suite, by) = match &self.verdict {
            Verdict::Survived => (None, None),
            Verdict::Caught { suite, by } => (Some(suite.word()), Some(by.as_str())),
            Verdict::TimedOut { suite } => (Some(suite.word()), Some("it did not end")),
        };
        json!({
            "id": self.mutant.id,
            "file": self.mutant.file.display().to_string(),
            "line": self.mutant.site.line,
            "operator": self.mutant.site.operator,
            "original": self.mutant.original,
            "mutated": self.mutant.mutated(),
            "caught": self.verdict != Verdict::Survived,
            "suite": suite,
            "by": by,
        })
    }
}
