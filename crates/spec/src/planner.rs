//! What every request builder shares while a file is read: the workspace, the files, and the preparations so far.

use crate::document::Document;
use crate::error::{Error, Problem};
use crate::fields::Checker;
use crate::files::Files;
use crate::plan::{Collection, Preparation, Preparations, Registration, Request};
use crate::scope::Scope;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where a specification stands.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub scope: &'a Scope,
    /// Relative paths count from here: the folder of the YAML file.
    pub folder: &'a Path,
    pub files: &'a dyn Files,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("scope", self.scope).field("folder", &self.folder).finish()
    }
}

pub(crate) struct Planner<'a> {
    pub scope: &'a Scope,
    pub files: &'a dyn Files,
    pub preparations: Preparations,
    /// The component files that are being read, the outermost first.
    pub open: Vec<PathBuf>,
}

/// What a text that names an asset means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// An id or a URI, to be sent as it is.
    Given(String),
    /// The newest version of this name.
    Latest(String),
    /// Nothing that begins with `azureml:`; a path, or another form of its place.
    Other,
}

impl<'a> Planner<'a> {
    pub fn new(context: &Context<'a>) -> Self {
        Self {
            scope: context.scope,
            files: context.files,
            preparations: Preparations::default(),
            open: Vec::new(),
        }
    }

    /// The request, unless something was found to be wrong.
    pub fn finish(
        self,
        problems: Vec<Problem>,
        name: String,
        version: Option<String>,
        body: Value,
    ) -> Result<Request, Error> {
        if !problems.is_empty() {
            return Err(Error::Problems(problems));
        }
        Ok(Request { name, version, body, preparations: self.preparations.into_list() })
    }

    /// The id of code that is on the server, or of what will be uploaded.
    pub fn code(
        &mut self,
        checker: &mut Checker<'_>,
        place: &str,
        code: &str,
        includes: &[String],
    ) -> Option<String> {
        match code_reference(code, self.scope) {
            Ok(Some(id)) => Some(id),
            Ok(None) => {
                let path = checker.below(code.strip_prefix("file:").unwrap_or(code));
                let includes = includes.iter().map(|include| checker.below(include)).collect();
                self.upload(checker, place, path, |path| Preparation::Code { path, includes })
            }
            Err(message) => {
                checker.problem(place, message);
                None
            }
        }
    }

    /// The URI of local data, once it is in the default datastore.
    pub fn data(&mut self, checker: &mut Checker<'_>, place: &str, local: &str) -> Option<String> {
        let local = local.strip_prefix("file://").or_else(|| local.strip_prefix("file:")).unwrap_or(local);
        let path = checker.below(local);
        let below = self.upload(checker, place, path, |path| Preparation::Data { path })?;
        Some(format!("azureml://datastores/workspaceblobstore/paths/{below}"))
    }

    /// The URL of a build context, once it is uploaded.
    pub fn build_context(&mut self, checker: &mut Checker<'_>, place: &str, local: &str) -> Option<String> {
        let path = checker.below(local.strip_prefix("file:").unwrap_or(local));
        self.upload(checker, place, path, |path| Preparation::Context { path })
    }

    fn upload(
        &mut self,
        checker: &mut Checker<'_>,
        place: &str,
        path: PathBuf,
        preparation: impl FnOnce(PathBuf) -> Preparation,
    ) -> Option<String> {
        if self.files.exists(&path) {
            return Some(self.preparations.need(preparation(path)));
        }
        let message = format!(
            "{} does not exist; relative paths count from the folder of the YAML file",
            path.display()
        );
        checker.problem(place, message);
        None
    }

    /// The id of the newest version of a name, once it is looked up.
    pub fn latest(&mut self, collection: Collection, name: &str) -> String {
        self.preparations.need(Preparation::Latest { collection, name: name.to_owned() })
    }

    pub fn register(&mut self, registration: Registration) -> String {
        self.preparations.need(Preparation::Register(registration))
    }

    /// Reads `azureml:NAME:VERSION`, `azureml:NAME@latest`, ids and URIs.
    pub fn reference(
        &self,
        checker: &mut Checker<'_>,
        place: &str,
        reference: &str,
        collection: Collection,
    ) -> Option<Reference> {
        match asset_reference(reference, collection, self.scope) {
            Ok(reference) => Some(reference),
            Err(message) => {
                checker.problem(place, message);
                None
            }
        }
    }

    /// The ARM id of a compute that is named as people name one; `local` is for the caller to see to.
    pub fn compute_id(&self, compute: &str) -> String {
        let name = compute.strip_prefix("azureml:").unwrap_or(compute);
        if name.starts_with('/') || name.contains("${{") {
            return name.to_owned();
        }
        format!("{}/computes/{name}", self.scope.workspace_id())
    }

    /// Reads a YAML file that the document names.
    pub fn read_file(
        &self,
        checker: &mut Checker<'_>,
        place: &str,
        reference: &str,
    ) -> Option<(PathBuf, Document)> {
        let path = checker.below(reference.strip_prefix("file:").unwrap_or(reference));
        let text = match self.files.read(&path) {
            Ok(text) => text,
            Err(error) => {
                checker.problem(place, format!("cannot read {}: {error}", path.display()));
                return None;
            }
        };
        match Document::parse(&text) {
            Ok(document) => Some((path, document)),
            Err(Error::Problems(problems)) => {
                let file = path.display().to_string();
                let named =
                    problems.into_iter().map(|problem| Problem { file: Some(file.clone()), ..problem });
                checker.problems.extend(named);
                None
            }
            Err(error) => {
                checker.problem(place, format!("{}: {error}", path.display()));
                None
            }
        }
    }
}

/// Whether a text is the name of a YAML file.
pub(crate) fn is_file(reference: &str) -> bool {
    let lower = reference.to_lowercase();
    reference.starts_with("file:") || lower.ends_with(".yml") || lower.ends_with(".yaml")
}

fn asset_reference(reference: &str, collection: Collection, scope: &Scope) -> Result<Reference, String> {
    let reference = reference.trim();
    if reference.starts_with("azureml://") {
        return Ok(Reference::Given(reference.to_owned()));
    }
    let Some(name) = reference.strip_prefix("azureml:") else { return Ok(Reference::Other) };
    if name.starts_with('/') {
        return Ok(Reference::Given(name.to_owned()));
    }
    if let Some((name, label)) = name.split_once('@') {
        if label != "latest" || name.is_empty() {
            return Err(format!("`{label}` is not a label; the only one is @latest"));
        }
        return Ok(Reference::Latest(name.to_owned()));
    }
    match name.split_once(':') {
        Some((name, version)) if !name.is_empty() && !version.is_empty() => Ok(Reference::Given(format!(
            "{}/{}/{name}/versions/{version}",
            scope.workspace_id(),
            collection.plural()
        ))),
        _ => {
            Err(format!("`{reference}` names no version; write azureml:NAME:VERSION or azureml:NAME@latest"))
        }
    }
}

/// The id of code that is on the server already; `None` for a local path.
fn code_reference(code: &str, scope: &Scope) -> Result<Option<String>, String> {
    if let Some(rest) = code.strip_prefix("azureml:") {
        if rest.starts_with('/') && !rest.starts_with("//") {
            return Ok(Some(rest.to_owned()));
        }
        return match rest.split_once(':') {
            Some((name, version)) if !rest.starts_with("//") => {
                Ok(Some(format!("{}/codes/{name}/versions/{version}", scope.workspace_id())))
            }
            _ => Err(format!(
                "`{code}` is not code that can be named; write azureml:NAME:VERSION or a local path"
            )),
        };
    }
    if code.starts_with("git+") || (code.contains("://") && !code.starts_with("file:")) {
        return Err("code from a URL is not supported; clone it and give the local folder".to_owned());
    }
    Ok(None)
}
