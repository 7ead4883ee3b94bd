//! A trace: recorded work of a GPU cluster, one job a line. `docs/trace-format.md` describes the file.
//!
//! Reading finds every problem at once, up to a bound, each with its line and column.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use neap_core::Capacity;
use neap_core::job::Need;

use super::course::Course;
use super::scene::{OWNER, Task};

/// Jobs of one trace.
pub const JOBS_MAX: usize = 2_000_000;
/// Problems that are told of one file.
pub const PROBLEMS_MAX: usize = 20;
/// A job of more GPUs is surely a mistake.
pub const GPUS_MAX: u32 = 65_536;
pub const CPUS_MAX: u32 = 1_000_000;
/// Ten years: what is longer is surely in another unit.
pub const DURATION_S_MAX: u64 = 3_653 * 24 * 3_600;
/// The year 2255, counted from 1970.
pub const SUBMIT_S_MAX: u64 = 9_000_000_000;

/// What a job without GPUs takes if the trace does not say.
const CPUS_MILLI_DEFAULT: u32 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In order of submission; the first comes at 0.
    pub jobs: Vec<TraceJob>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    pub submit_ms: u64,
    pub run_ms: u64,
    pub gpus: u32,
    /// What it asks for beside GPUs, if the trace says so.
    pub cpus_milli: Option<u32>,
    pub user: Arc<str>,
}

/// Something wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub line: usize,
    /// The name of the column, or what stands in for it.
    pub column: String,
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Submit,
    Duration,
    Gpus,
    Cpus,
    User,
}

impl Column {
    const ALL: [Self; 5] = [Self::Submit, Self::Duration, Self::Gpus, Self::Cpus, Self::User];

    const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit_s",
            Self::Duration => "duration_s",
            Self::Gpus => "gpus",
            Self::Cpus => "cpus",
            Self::User => "user",
        }
    }

    const fn is_required(self) -> bool {
        matches!(self, Self::Submit | Self::Duration | Self::Gpus)
    }
}

impl Trace {
    /// Jobs in any order, with times from any beginning.
    pub fn new(mut jobs: Vec<TraceJob>) -> Self {
        jobs.sort_by_key(|job| job.submit_ms);
        let first = jobs.first().map_or(0, |job| job.submit_ms);
        for job in &mut jobs {
            job.submit_ms -= first;
        }
        Self { jobs }
    }

    pub fn read(text: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let Some((number, heading)) = lines.next() else {
            return Err(vec![problem(1, "submit_s", "the file has no heading and no jobs")]);
        };
        let heading = Heading::read(number, heading, &mut problems);
        let mut jobs = Vec::new();
        if problems.is_empty() {
            for (number, line) in lines {
                jobs.extend(heading.job(number, line, &mut problems));
                if jobs.len() > JOBS_MAX {
                    problems.push(problem(number, "submit_s", format!("more than {JOBS_MAX} jobs")));
                }
                if problems.len() >= PROBLEMS_MAX {
                    problems.truncate(PROBLEMS_MAX);
                    break;
                }
            }
        }
        if jobs.is_empty() && problems.is_empty() {
            problems.push(problem(number, "submit_s", "there are no jobs below the heading"));
        }
        if problems.is_empty() { Ok(Self::new(jobs)) } else { Err(problems) }
    }

    /// The file that reads as this.
    pub fn write(&self) -> String {
        let mut text = String::from("submit_s,duration_s,gpus,cpus,user\n");
        for job in &self.jobs {
            let cpus = job.cpus_milli.map_or_else(String::new, thousandths_of);
            let (submit, run) = (thousandths_of(job.submit_ms), thousandths_of(job.run_ms));
            let _ = writeln!(text, "{submit},{run},{},{cpus},{}", job.gpus, job.user);
        }
        text
    }

    /// The work on nodes of this capacity. A job that is wider than a node becomes as many tasks of a whole node each.
    pub fn on(&self, pool: &str, node: Capacity) -> Work {
        let (pool, mut tasks, mut parts): (Arc<str>, _, _) = (pool.into(), Vec::new(), Vec::new());
        for job in &self.jobs {
            let (need, count) = job.need(node);
            parts.push(count);
            let task = Task {
                pool: pool.clone(),
                owner: job.user.clone(),
                submit_ms: job.submit_ms,
                run_ms: job.run_ms,
                need,
                priority: 1,
                nodes: 1,
                timeout_ms: None,
                like: None,
            };
            tasks.extend(std::iter::repeat_n(task, count));
        }
        Work { tasks, parts }
    }

    /// GPUs times the time that they are held.
    pub fn gpu_ms(&self) -> u128 {
        self.jobs.iter().map(|job| u128::from(job.gpus) * u128::from(job.run_ms)).sum()
    }
}

/// A trace's jobs as tasks.
#[derive(Clone, Debug)]
pub struct Work {
    pub tasks: Vec<Task>,
    /// How many tasks each job became.
    parts: Vec<usize>,
}

impl Work {
    /// How long jobs waited: each until the last of its tasks was placed.
    pub fn waits_ms<'a>(&'a self, course: &'a Course) -> impl Iterator<Item = u64> + 'a {
        let mut spans = course.spans.iter();
        self.parts.iter().map(move |count| {
            spans.by_ref().take(*count).map(|span| span.waited_ms()).max().unwrap_or_default()
        })
    }
}

impl TraceJob {
    /// What one task of it needs, and how many there are.
    fn need(&self, node: Capacity) -> (Need, usize) {
        if node.gpus > 0 && self.gpus >= node.gpus {
            return (Need::Whole, self.gpus.div_ceil(node.gpus) as usize);
        }
        // Without word of its cores, those that belong to its GPUs.
        let cpus_milli = match self.cpus_milli {
            Some(cpus_milli) => cpus_milli,
            None if self.gpus == 0 => CPUS_MILLI_DEFAULT,
            None => node.cpus_milli / node.gpus.max(1) * self.gpus,
        };
        let cpus_milli = cpus_milli.clamp(neap_core::limits::SHARE_CPUS_MILLI_MIN, node.cpus_milli);
        (Need::Share(Capacity { cpus_milli, memory_mb: 0, gpus: self.gpus }), 1)
    }
}

/// Which field is which.
#[derive(Debug)]
struct Heading(Vec<Option<Column>>);

impl Heading {
    fn read(line: usize, text: &str, problems: &mut Vec<Problem>) -> Self {
        let column = |name: &str| Column::ALL.into_iter().find(|column| column.name() == name.trim());
        let fields: Vec<Option<Column>> = text.split(',').map(column).collect();
        for column in Column::ALL {
            match fields.iter().filter(|field| **field == Some(column)).count() {
                0 if column.is_required() => {
                    problems.push(problem(line, column.name(), "the heading has no such column"));
                }
                0 | 1 => {}
                _ => problems.push(problem(line, column.name(), "the heading has it more than once")),
            }
        }
        Self(fields)
    }

    /// `None` if something is wrong with it.
    fn job(&self, line: usize, text: &str, problems: &mut Vec<Problem>) -> Option<TraceJob> {
        let before = problems.len();
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if fields.len() != self.0.len() {
            let what = format!("there are {} fields and the heading has {}", fields.len(), self.0.len());
            problems.push(problem(line, &format!("{}", fields.len().min(self.0.len()) + 1), what));
            return None;
        }
        let field = |column: Column| {
            let at = self.0.iter().position(|field| *field == Some(column))?;
            fields.get(at).copied()
        };
        let mut number = |column: Column, most: u64| -> Option<u64> {
            let text = field(column)?;
            if text.is_empty() && !column.is_required() {
                return None;
            }
            match thousandths(text) {
                Some(value) if value <= most.saturating_mul(1_000) => return Some(value),
                Some(_) => problems.push(problem(line, column.name(), format!("{text} is more than {most}"))),
                None => {
                    let what = format!("'{text}' is not a number of 0 or more");
                    problems.push(problem(line, column.name(), what));
                }
            }
            None
        };
        let submit_ms = number(Column::Submit, SUBMIT_S_MAX);
        let run_ms = number(Column::Duration, DURATION_S_MAX);
        let gpus = number(Column::Gpus, GPUS_MAX.into());
        let cpus = number(Column::Cpus, CPUS_MAX.into());
        let user = field(Column::User).filter(|user| !user.is_empty()).unwrap_or(OWNER);
        if problems.len() > before {
            return None;
        }
        Some(TraceJob {
            submit_ms: submit_ms?,
            run_ms: run_ms?,
            // A part of a GPU is a whole one here.
            gpus: u32::try_from(gpus?.div_ceil(1_000)).ok()?,
            cpus_milli: cpus.and_then(|milli| u32::try_from(milli).ok()),
            user: user.into(),
        })
    }
}

fn problem(line: usize, column: &str, what: impl Into<String>) -> Problem {
    Problem { line, column: column.into(), what: what.into() }
}

/// A plain decimal number in thousandths, exactly; further decimals are cut off.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(decimals) {
        return None;
    }
    let milli = format!("{decimals:0<3}")[..3].parse::<u64>().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(milli)
}

fn thousandths_of(milli: impl Into<u64>) -> String {
    let milli = milli.into();
    match (milli / 1_000, milli % 1_000) {
        (whole, 0) => whole.to_string(),
        (whole, rest) => format!("{whole}.{rest:03}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(submit_ms: u64, run_ms: u64, gpus: u32, cpus_milli: Option<u32>, user: &str) -> TraceJob {
        TraceJob { submit_ms, run_ms, gpus, cpus_milli, user: user.into() }
    }

    #[test]
    fn columns_come_in_any_order_and_time_from_any_beginning() {
        let text = "# a comment\n\nuser, gpus,vc,submit_s,duration_s\nann,2,x,1600000010.5,60\n,0.5,y,1600000000,1.2509\n";
        let expected =
            Trace { jobs: vec![job(0, 1_250, 1, None, OWNER), job(10_500, 60_000, 2, None, "ann")] };
        assert_eq!(Trace::read(text), Ok(expected));
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let trace = Trace::new(vec![job(0, 5, 1, Some(1_500), "a"), job(7_000, 0, 16, None, "b")]);
        assert_eq!(Trace::read(&trace.write()), Ok(trace));
    }

    #[test]
    fn every_problem_is_named_by_line_and_column() {
        for (text, expected) in [
            ("", vec!["line 1, column submit_s: the file has no heading and no jobs"]),
            (
                "submit_s,gpus,gpus\n1,2,3\n",
                vec![
                    "line 1, column duration_s: the heading has no such column",
                    "line 1, column gpus: the heading has it more than once",
                ],
            ),
            (
                "submit_s,duration_s,gpus,cpus\n1,x,-1,\n2,3\n4,5,70000,1e3\n",
                vec![
                    "line 2, column duration_s: 'x' is not a number of 0 or more",
                    "line 2, column gpus: '-1' is not a number of 0 or more",
                    "line 3, column 3: there are 2 fields and the heading has 4",
                    "line 4, column gpus: 70000 is more than 65536",
                    "line 4, column cpus: '1e3' is not a number of 0 or more",
                ],
            ),
            (
                "submit_s,duration_s,gpus\n",
                vec!["line 1, column submit_s: there are no jobs below the heading"],
            ),
        ] {
            let found: Vec<String> = Trace::read(text).unwrap_err().iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn no_more_than_so_many_problems_are_told() {
        let text = format!("submit_s,duration_s,gpus\n{}", "a,b,c\n".repeat(100));
        assert_eq!(Trace::read(&text).unwrap_err().len(), PROBLEMS_MAX);
    }

    #[test]
    fn a_job_takes_its_part_of_a_node_or_whole_ones() {
        let node = Capacity { cpus_milli: 40_000, memory_mb: 1, gpus: 8 };
        let share = |cpus_milli, gpus| Need::Share(Capacity { cpus_milli, memory_mb: 0, gpus });
        for (gpus, cpus_milli, expected) in [
            (0, None, (share(1_000, 0), 1)),
            (0, Some(64_000), (share(40_000, 0), 1)),
            (1, None, (share(5_000, 1), 1)),
            (3, Some(2_000), (share(2_000, 3), 1)),
            (8, None, (Need::Whole, 1)),
            (17, None, (Need::Whole, 3)),
        ] {
            assert_eq!(job(0, 1, gpus, cpus_milli, "a").need(node), expected, "{gpus} GPUs");
        }
    }
}
