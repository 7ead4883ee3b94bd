//! The two commands, from sources to verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::report::{Report, Tried};
use crate::sites::{self, Change, Site};
use crate::suites::{self, Verdict};
use crate::tree::Checkout;
use crate::{Error, RunArgs, compile, sample};

/// A site of the whole list, with its number.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub id: u32,
    pub file: PathBuf,
    pub site: Site,
    pub original: String,
}

impl Mutant {
    /// What stands there instead, on one line.
    pub fn mutated(&self) -> String {
        match &self.site.change {
            Change::Instead(text) => one_line(text),
            Change::Skip => String::from("(nothing)"),
        }
    }
}

/// Every mutant of every subject: files by name, sites in the order of the text, numbered from 1.
fn enumerate(sources: &[(PathBuf, String)]) -> Result<Vec<Mutant>, Error> {
    let mut mutants = Vec::new();
    for (path, source) in sources {
        let found = sites::find(source).map_err(|source| Error::Syntax { path: path.clone(), source })?;
        for site in found {
            let original = one_line(&source[site.range.clone()]);
            let id = u32::try_from(mutants.len() + 1).unwrap_or(u32::MAX - 1);
            mutants.push(Mutant { id, file: path.clone(), site, original });
        }
    }
    Ok(mutants)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn list() -> Result<(), Error> {
    let mutants = enumerate(&Checkout::here()?.subjects()?)?;
    for mutant in &mutants {
        let (file, line) = (mutant.file.display(), mutant.site.line);
        println!(
            "{:>5} {file}:{line} {}: {} → {}",
            mutant.id,
            mutant.site.operator,
            mutant.original,
            mutant.mutated()
        );
    }
    Ok(())
}

/// True if enough was caught.
pub fn run(args: &RunArgs) -> Result<bool, Error> {
    let checkout = Checkout::here()?;
    let sources = checkout.subjects()?;
    let mutants = enumerate(&sources)?;
    eprintln!("{} mutants in {} files; building", mutants.len(), sources.len());
    let built = compile::build(&checkout, &sources, &mutants, &args.tests)?;
    let compiling: Vec<Mutant> = mutants.iter().filter(|m| !built.refused.contains(&m.id)).cloned().collect();
    eprintln!("{} compile, {} do not", compiling.len(), built.refused.len());
    if args.build_only {
        return Ok(true);
    }
    let chosen = if args.only.is_empty() {
        sample::draw(&compiling, args.sample, args.seed)
    } else {
        let only: BTreeSet<u32> = args.only.iter().copied().collect();
        compiling.iter().filter(|mutant| only.contains(&mutant.id)).cloned().collect()
    };

    let checks = suites::checks(&built.programs, args);
    match suites::judge(&checks, None)? {
        Verdict::Survived => {}
        failure => return Err(Error::Baseline(failure.to_string())),
    }
    let verdicts = try_each(&chosen, &checks, args.jobs)?;
    let tried = chosen.into_iter().zip(verdicts).map(|(mutant, verdict)| Tried { mutant, verdict }).collect();
    let report = Report { args, sites: mutants.len(), refused: built.refused.len(), tried };
    let path = checkout.folder().join("report.json");
    std::fs::write(&path, report.json()?).map_err(Error::file(&path))?;
    print!("{}", report.table());
    Ok(report.is_enough())
}

/// The verdicts in the order of `chosen`, told on stderr as they come.
fn try_each(chosen: &[Mutant], checks: &[suites::Check], jobs: usize) -> Result<Vec<Verdict>, Error> {
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| -> Result<(), Error> {
        let workers: Vec<_> = (0..jobs.max(1))
            .map(|_| {
                scope.spawn(|| -> Result<(), Error> {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(mutant) = chosen.get(at) else { return Ok(()) };
                        let verdict = suites::judge(checks, Some(mutant.id))?;
                        let (file, line) = (mutant.file.display(), mutant.site.line);
                        eprintln!("[{:>3}/{}] {} {file}:{line} {verdict}", at + 1, chosen.len(), mutant.id);
                        verdicts
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner)
                            .insert(at, verdict);
                    }
                })
            })
            .collect();
        for worker in workers {
            match worker.join() {
                Ok(outcome) => outcome?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })?;
    Ok(verdicts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_values().collect())
}
