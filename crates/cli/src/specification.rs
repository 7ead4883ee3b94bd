//! A YAML file and its overrides, read once and planned twice: without a workspace, so that what is wrong is said before
//! any server is asked, and with it.

use crate::failure::{Failure, Outcome};
use neap_spec::{Context, Document, Error, Files, Mended, Problem, Request, Scope, mended};
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Specification {
    /// `None` where flags alone make the specification.
    file: Option<PathBuf>,
    pub document: Document,
}

impl Specification {
    /// A file, with `--set` laid over it. `flags` win over the file, `--set` wins over both.
    pub fn load(file: Option<&Path>, flags: &[(&str, Option<Value>)], set: &[String]) -> Outcome<Self> {
        let document = match file {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
                Document::parse(&text).map_err(|error| Failure::from(error).of_file(Some(file)))?
            }
            None => Document::from_value(Value::Object(serde_json::Map::new())),
        };
        Self::of_document(file, document, flags, set)
    }

    /// A definition that was fetched, with changes.
    pub fn of_value(value: Value, flags: &[(&str, Option<Value>)], set: &[String]) -> Outcome<Self> {
        Self::of_document(None, Document::from_value(value), flags, set)
    }

    fn of_document(
        file: Option<&Path>,
        mut document: Document,
        flags: &[(&str, Option<Value>)],
        set: &[String],
    ) -> Outcome<Self> {
        for (path, value) in flags {
            if let Some(value) = value {
                document.set(path, value.clone())?;
            }
        }
        for assignment in set {
            document.set_assignment(assignment, false)?;
        }
        Ok(Self { file: file.map(Path::to_owned), document })
    }

    /// The text at a key of the specification.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.document.value.get(key).and_then(Value::as_str)
    }

    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// A place for checks that do not depend on the place.
    pub fn nowhere() -> Scope {
        Scope { subscription_id: String::new(), resource_group: String::new(), workspace: String::new() }
    }

    /// Says what is wrong, without a server.
    pub fn check(&self, build: impl Fn(&Document, &Context<'_>) -> Result<Request, Error>) -> Outcome<()> {
        self.plan(&Self::nowhere(), build).map(|_| ())
    }

    pub fn plan(
        &self,
        scope: &Scope,
        build: impl Fn(&Document, &Context<'_>) -> Result<Request, Error>,
    ) -> Outcome<Request> {
        self.built(scope, build).map_err(|error| Failure::from(error).of_file(self.file()))
    }

    pub fn built(
        &self,
        scope: &Scope,
        build: impl Fn(&Document, &Context<'_>) -> Result<Request, Error>,
    ) -> Result<Request, Error> {
        build(&self.document, &self.context(scope))
    }

    /// What can be built of it without these problems.
    pub fn mended(
        &self,
        scope: &Scope,
        problems: Vec<Problem>,
        build: impl Fn(&Document, &Context<'_>) -> Result<Request, Error>,
    ) -> Option<Mended<Request>> {
        let stand_ins = [("command", "true")];
        mended(&self.document, problems, &stand_ins, |document| build(document, &self.context(scope)))
    }

    fn context<'a>(&'a self, scope: &'a Scope) -> Context<'a> {
        let folder = self.file().and_then(Path::parent).unwrap_or(Path::new(""));
        Context { scope, folder, files: &Disk }
    }
}

/// The disk of this machine.
struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}
