//! Whether the code and the inputs of a job are there, as far as that can be known without asking another machine: in
//! the server's own store and on its disk. The rest is found out when an attempt fetches it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use neap_core::documents::{BlobPath, InputDocument, JobDocument};
use neap_core::{Problem, Refusal};
use neap_storage::{BlobAddress, ListQuery, Store, foreign};

use super::data::Shape;
use crate::app::{App, internal};
use crate::arm::errors::bad;

/// What is at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct There {
    file: bool,
    folder: bool,
}

/// A problem for every input that is not there, or is not what the job says.
pub(super) async fn missing(app: &App, document: &JobDocument) -> Result<Vec<Problem>, Refusal> {
    let near = near_inputs(document, app.drafts.uploads());
    if near.is_empty() {
        return Ok(Vec::new());
    }
    let store = Arc::clone(&app.store);
    match tokio::task::spawn_blocking(move || look(&store, &near)).await {
        Ok(found) => found.map_err(crate::workspace_files::storage),
        Err(e) => Err(internal(format!("A storage call did not come to an end: {e}."))),
    }
}

/// The same for one job among others that make some of its inputs, at these places. It blocks.
pub(super) fn missing_among(
    app: &App,
    document: &JobDocument,
    made: &[BlobPath],
) -> Result<Vec<Problem>, Refusal> {
    let made: Vec<BlobPath> = made.iter().chain(app.drafts.uploads()).cloned().collect();
    look(&app.store, &near_inputs(document, &made)).map_err(crate::workspace_files::storage)
}

/// The name of an input, or nothing for the code; what it should be, and where.
type Near = (Option<String>, Shape, BlobPath);

fn near_inputs(document: &JobDocument, made: &[BlobPath]) -> Vec<Near> {
    let will_be = |at: &BlobPath| {
        made.iter().any(|made| {
            let below = made.path.trim_end_matches('/');
            let rest = at.path.strip_prefix(below);
            made.container == at.container
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let look_at = |(name, input): (&String, &InputDocument)| {
        let shape = match input {
            InputDocument::Literal { .. } => return None,
            InputDocument::File { .. } => Shape::File,
            InputDocument::Folder { .. } => Shape::Folder,
            InputDocument::Any { .. } => Shape::Any,
        };
        let at = input.at()?;
        let is_near = !foreign::is_foreign(&at.container) || at.container == foreign::FILE;
        (is_near && !will_be(at)).then(|| (Some(name.clone()), shape, at.clone()))
    };
    let code = document.code.iter().map(|at| (None, Shape::Folder, at.clone()));
    code.chain(document.inputs.iter().filter_map(look_at)).collect()
}

fn look(store: &Store, inputs: &[Near]) -> neap_storage::Result<Vec<Problem>> {
    let problem = |(name, shape, at): &Near| {
        let there = if at.container == foreign::FILE { on_disk(at) } else { in_store(store, at)? };
        Ok(match name {
            Some(name) => told(name, *shape, at, there),
            None if there.folder => None,
            None => Some(bad(
                format!(
                    "There is nothing at '{}', where the job's code should be; upload it first.",
                    at.path
                ),
                "properties.codeId",
            )),
        })
    };
    inputs.iter().filter_map(|input| problem(input).transpose()).collect()
}

fn told(name: &str, shape: Shape, at: &BlobPath, there: There) -> Option<Problem> {
    let path = at.path.trim_end_matches('/');
    let message = match (shape, there) {
        (Shape::File, There { file: true, .. }) | (Shape::Folder, There { folder: true, .. }) => return None,
        (Shape::Any, There { file, folder }) if file || folder => return None,
        (Shape::File, There { folder: true, .. }) => {
            format!("The input '{name}' is a file (uri_file), and '{path}' is a folder; say uri_folder.")
        }
        (Shape::Folder, There { file: true, .. }) => {
            format!("The input '{name}' is a folder, and '{path}' is a file; say uri_file.")
        }
        _ => format!("There is nothing at '{path}', where the input '{name}' should be."),
    };
    Some(bad(message, &format!("properties.inputs.{name}.uri")))
}

fn on_disk(at: &BlobPath) -> There {
    let path: PathBuf = Path::new("/").join(&at.path);
    std::fs::metadata(path)
        .map_or(There::default(), |found| There { file: found.is_file(), folder: found.is_dir() })
}

fn in_store(store: &Store, at: &BlobPath) -> neap_storage::Result<There> {
    let path = at.path.trim_end_matches('/');
    let file = match BlobAddress::new(at.account.as_str(), at.container.as_str(), path) {
        Ok(address) => match store.properties(&address) {
            Ok(_) => true,
            Err(neap_storage::Error::BlobNotFound(_) | neap_storage::Error::ContainerNotFound { .. }) => {
                false
            }
            Err(error) => return Err(error),
        },
        // The whole container.
        Err(_) => false,
    };
    let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
    let query = ListQuery { prefix, results_max: Some(1), ..ListQuery::default() };
    let folder = match store.list(&at.account, &at.container, &query) {
        Ok(page) => !page.entries.is_empty(),
        Err(neap_storage::Error::ContainerNotFound { .. }) => false,
        Err(error) => return Err(error),
    };
    Ok(There { file, folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_told() {
        let at = BlobPath { account: "neapst1".into(), container: "c".into(), path: "a/b/".into() };
        let (none, file, folder) =
            (There::default(), There { file: true, folder: false }, There { file: false, folder: true });
        let say = |shape, there| told("x", shape, &at, there).map(|p| p.message);
        for (shape, there) in
            [(Shape::File, file), (Shape::Folder, folder), (Shape::Any, file), (Shape::Any, folder)]
        {
            assert_eq!(say(shape, there), None);
        }
        assert!(say(Shape::File, folder).unwrap().contains("say uri_folder"));
        assert!(say(Shape::Folder, file).unwrap().contains("say uri_file"));
        for shape in [Shape::File, Shape::Folder, Shape::Any] {
            assert!(say(shape, none).unwrap().contains("nothing at 'a/b'"));
        }
    }

    #[test]
    fn what_another_step_makes_is_not_looked_for() {
        let at = |path: &str| BlobPath { account: "a".into(), container: "c".into(), path: path.into() };
        let input =
            |path: &str| InputDocument::Folder { at: at(path), how: neap_core::documents::Delivery::Copy };
        let inputs = [("made", "p/o/"), ("inside", "p/o/x/"), ("beside", "p/other/")];
        let document = JobDocument {
            inputs: inputs.iter().map(|(name, path)| ((*name).to_owned(), input(path))).collect(),
            ..JobDocument::default()
        };
        let names = |made: &[BlobPath]| {
            near_inputs(&document, made).into_iter().filter_map(|(name, ..)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[at("p/o/")]), ["beside"]);
        assert_eq!(names(&[]), ["beside", "inside", "made"]);
    }
}
