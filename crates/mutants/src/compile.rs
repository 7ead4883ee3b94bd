//! Builds the mutated copy. A mutant that rustc refuses is left out, and the build is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::run::Mutant;
use crate::tree::Checkout;
use crate::weave::{self, Mark, Numbered};
use crate::{Error, Suite};

/// A test program of the copy.
#[derive(Clone, Debug)]
pub struct Program {
    pub package: String,
    pub name: String,
    pub kind: Kind,
    pub path: PathBuf,
    /// Cargo runs tests in their package's folder; some read files beside it.
    pub folder: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Test,
    Example,
}

#[derive(Debug)]
pub struct Built {
    pub programs: Vec<Program>,
    /// Mutants that do not compile.
    pub refused: BTreeSet<u32>,
}

/// What was refused the last time, for the same sources: a build that is repeated has nothing to find out.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Memory {
    sources: u64,
    refused: BTreeSet<u32>,
}

pub fn build(
    checkout: &Checkout,
    sources: &[(PathBuf, String)],
    mutants: &[Mutant],
    suites: &[Suite],
) -> Result<Built, Error> {
    checkout.copy()?;
    let memory_path = checkout.folder().join("refused.json");
    let mut hasher = DefaultHasher::new();
    (sources, mutants.len()).hash(&mut hasher);
    let sources_hash = hasher.finish();
    let mut refused = std::fs::read(&memory_path)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Memory>(&bytes).ok())
        .filter(|memory| memory.sources == sources_hash)
        .map(|memory| memory.refused)
        .unwrap_or_default();
    loop {
        let marks = write_woven(checkout, sources, mutants, &refused)?;
        // Only the core can be at fault, and a check of it alone is quick.
        let output = cargo(checkout, &["check", "-p", "neap-core"])?;
        if output.success {
            break;
        }
        let blamed: BTreeSet<u32> = output
            .errors
            .iter()
            .flat_map(|error| marks.get(&error.file).map(|marks| weave::blame(marks, &error.spans)))
            .flatten()
            .collect();
        eprintln!("{} mutants do not compile and are left out", blamed.len());
        if blamed.is_empty() {
            return Err(Error::Build(output.text()));
        }
        refused.extend(blamed);
    }
    let memory = Memory { sources: sources_hash, refused: refused.clone() };
    std::fs::write(&memory_path, serde_json::to_vec(&memory)?).map_err(Error::file(memory_path))?;

    let mut args = vec!["test", "--no-run"];
    for suite in suites {
        args.extend(["-p", suite.package()]);
    }
    let output = cargo(checkout, &args)?;
    if output.success {
        Ok(Built { programs: output.programs, refused })
    } else {
        Err(Error::Build(output.text()))
    }
}

fn write_woven(
    checkout: &Checkout,
    sources: &[(PathBuf, String)],
    mutants: &[Mutant],
    refused: &BTreeSet<u32>,
) -> Result<BTreeMap<PathBuf, Vec<Mark>>, Error> {
    let mut marks = BTreeMap::new();
    for (path, source) in sources {
        let sites: Vec<Numbered<'_>> = mutants
            .iter()
            .filter(|mutant| mutant.file == *path && !refused.contains(&mutant.id))
            .map(|mutant| Numbered { id: mutant.id, site: &mutant.site })
            .collect();
        let woven = weave::weave(source, &sites);
        checkout.write(path, woven.text.as_bytes())?;
        marks.insert(path.clone(), woven.marks);
    }
    Ok(marks)
}

struct Output {
    success: bool,
    errors: Vec<CompileError>,
    programs: Vec<Program>,
    /// What cargo said besides.
    stderr: String,
}

impl Output {
    fn text(&self) -> String {
        let errors: Vec<&str> = self.errors.iter().map(|error| error.rendered.as_str()).collect();
        if errors.is_empty() { self.stderr.clone() } else { errors.join("\n") }
    }
}

struct CompileError {
    file: PathBuf,
    /// The primary ones first.
    spans: Vec<Range<usize>>,
    rendered: String,
}

fn cargo(checkout: &Checkout, args: &[&str]) -> Result<Output, Error> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(checkout.tree())
        .args(args)
        .args(["--locked", "--message-format=json"])
        .env("CARGO_TARGET_DIR", checkout.folder().join("target"))
        .stdin(Stdio::null())
        .output()
        .map_err(Error::program("cargo"))?;
    let mut result = Output {
        success: output.status.success(),
        errors: Vec::new(),
        programs: Vec::new(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match serde_json::from_str::<Message>(line) {
            Ok(Message::Diagnostic { message }) if message.level == "error" => {
                result.errors.extend(message.into_error());
            }
            Ok(Message::Artifact { manifest_path, target, profile, executable: Some(path) }) => {
                result.programs.extend(program(&manifest_path, target, profile.test, path));
            }
            _ => {}
        }
    }
    Ok(result)
}

fn program(manifest: &Path, target: Target, test: bool, path: PathBuf) -> Option<Program> {
    let kind = match (test, target.kind.first().map(String::as_str)) {
        (true, _) => Kind::Test,
        (false, Some("example")) => Kind::Example,
        (false, _) => return None,
    };
    let folder = manifest.parent()?.to_path_buf();
    let package = format!("neap-{}", folder.file_name()?.to_str()?);
    Some(Program { package, name: target.name, kind, path, folder })
}

/// Of cargo's messages, what is read here.
#[derive(Deserialize)]
#[serde(tag = "reason")]
enum Message {
    #[serde(rename = "compiler-message")]
    Diagnostic { message: Diagnostic },
    #[serde(rename = "compiler-artifact")]
    Artifact { manifest_path: PathBuf, target: Target, profile: Profile, executable: Option<PathBuf> },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    #[serde(default)]
    rendered: Option<String>,
    #[serde(default)]
    spans: Vec<DiagnosticSpan>,
}

#[derive(Deserialize)]
struct DiagnosticSpan {
    file_name: PathBuf,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

impl Diagnostic {
    /// `None` for the summary at the end, which names no place.
    fn into_error(mut self) -> Option<CompileError> {
        self.spans.sort_by_key(|span| !span.is_primary);
        let file = self.spans.first()?.file_name.clone();
        let spans = self.spans.iter().filter(|span| span.file_name == file);
        Some(CompileError {
            spans: spans.map(|span| span.byte_start..span.byte_end).collect(),
            rendered: self.rendered.unwrap_or_default(),
            file,
        })
    }
}
