//! A YAML file and its overrides, read once and planned twice: without a workspace, so that what is wrong is said before
//! any server is asked, and with it.

use crate::failure::{Failure, Outcome};
use neap_spec::{Context, Document, Error, Files, Request, Scope};
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
                Document::parse(&text).map_err(|error| named(Some(file), error))?
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

    /// Says what is wrong, without a server.
    pub fn check(&self, build: impl Fn(&Document, &Context<'_>) -> Result<Request, Error>) -> Outcome<()> {
        let nowhere =
            Scope { subscription_id: String::new(), resource_group: String::new(), workspace: String::new() };
        self.plan(&nowhere, build).map(|_| ())
    }

    pub fn plan(
        &self,
        scope: &Scope,
        build: impl Fn(&Document, &Context<'_>) -> Result<Request, Error>,
    ) -> Outcome<Request> {
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let context = Context { scope, folder, files: &Disk };
        build(&self.document, &context).map_err(|error| named(self.file.as_deref(), error))
    }
}

fn named(file: Option<&Path>, error: Error) -> Failure {
    let mut failure = Failure::from(error);
    if let Some(file) = file {
        failure.message = format!("{}: {}", file.display(), failure.message);
    }
    failure
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
