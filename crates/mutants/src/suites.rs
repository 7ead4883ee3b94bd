//! Runs the tests against one mutant, until something notices.
//!
//! A run is bounded in processor time, which other work on the machine does not use up, and in memory: a mutant that
//! turns round and round or eats everything is caught by that.

use std::process::{Command, Stdio};

use crate::compile::{Kind, Program};
use crate::{Error, RunArgs, Suite};

/// Processor seconds of one program, many times what it needs.
const CPU_SECONDS_MAX: u32 = 60;
/// For a program that waits without turning round.
const WALL_SECONDS_MAX: u32 = 900;
const MEMORY_KB_MAX: u32 = 4_000_000;
/// What `timeout` ends with when it had to act.
const TIMED_OUT: i32 = 124;

/// One program with its arguments, and how it says that all is well.
#[derive(Clone, Debug)]
pub struct Check {
    pub suite: Suite,
    program: Program,
    args: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Survived,
    Caught { suite: Suite, by: String },
    TimedOut { suite: Suite },
}

/// The checks in the order they are run, the quick ones of each suite first.
pub fn checks(programs: &[Program], args: &RunArgs) -> Vec<Check> {
    let mut checks = Vec::new();
    for suite in &args.tests {
        let mut programs: Vec<&Program> = programs.iter().filter(|p| p.package == suite.package()).collect();
        programs.sort_by_key(|program| (program.name == "properties", program.kind == Kind::Example));
        checks.extend(programs.into_iter().filter_map(|program| {
            let args = arguments(*suite, program, args.worlds)?;
            Some(Check { suite: *suite, program: program.clone(), args })
        }));
    }
    checks
}

/// `None` for what says nothing about a mutant.
fn arguments(suite: Suite, program: &Program, worlds: u64) -> Option<Vec<String>> {
    let words: &[&str] = match (suite, program.kind, program.name.as_str()) {
        (Suite::Core, Kind::Test, _) | (Suite::Sim, Kind::Test, "neap_sim") => &[],
        // The ten thousand worlds of the whole test are too many for each mutant: the example runs some of them.
        (Suite::Sim, Kind::Test, "seeds") => &["seeds_that_once_failed", "the_same_seed"],
        (Suite::Sim, Kind::Example, "seeds") => {
            return Some(vec!["1".into(), worlds.to_string(), "400".into()]);
        }
        _ => return None,
    };
    Some(words.iter().map(|word| (*word).to_owned()).collect())
}

impl Check {
    /// What noticed the mutant, or `None` if nothing did.
    fn run(&self, mutant: Option<u32>) -> Result<Option<Verdict>, Error> {
        let limits = format!("ulimit -t {CPU_SECONDS_MAX}; ulimit -v {MEMORY_KB_MAX}; exec \"$@\"");
        let mut command = Command::new("timeout");
        command
            .args([&WALL_SECONDS_MAX.to_string(), "sh", "-c", &limits, "sh"])
            .arg(&self.program.path)
            .args(&self.args)
            .current_dir(&self.program.folder)
            .env_remove("NEAP_MUTANT")
            // The same random cases each time, and no search for smaller ones.
            .env("PROPTEST_RNG_SEED", "1")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        if let Some(id) = mutant {
            command.env("NEAP_MUTANT", id.to_string());
        }
        let output = command.output().map_err(Error::program("timeout"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let well = output.status.success() && (self.program.kind == Kind::Test || text.contains(", 0 bad,"));
        Ok(if well {
            None
        } else if was_ended(output.status) {
            Some(Verdict::TimedOut { suite: self.suite })
        } else {
            let by = first_failure(&text).unwrap_or(&self.program.name).to_owned();
            Some(Verdict::Caught { suite: self.suite, by })
        })
    }
}

/// By its limits. (A process that used up its processor time is ended by a signal, which `timeout` passes on.)
fn was_ended(status: std::process::ExitStatus) -> bool {
    const SIGKILL: i32 = 9;
    const SIGXCPU: i32 = 24;
    matches!(status.code(), Some(TIMED_OUT))
        || [SIGKILL, SIGXCPU].into_iter().any(|signal| {
            status.code() == Some(128 + signal)
                || std::os::unix::process::ExitStatusExt::signal(&status) == Some(signal)
        })
}

/// The first test that libtest calls failed, or the first bad world.
fn first_failure(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        line.strip_prefix("test ")
            .and_then(|line| line.strip_suffix(" ... FAILED"))
            .or_else(|| line.starts_with("seed ").then_some(line))
    })
}

pub fn judge(checks: &[Check], mutant: Option<u32>) -> Result<Verdict, Error> {
    for check in checks {
        if let Some(verdict) = check.run(mutant)? {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Survived)
}
