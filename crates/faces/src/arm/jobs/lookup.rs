//! What other resources look up by the rules that jobs have: registered models and components, and where a model lies.

use neap_core::documents::BlobPath;
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use serde_json::Value;

use super::data::{self, Asked, Shape};
use super::references::{LedgerShelf, registered};
use crate::app::App;

/// `properties` of the model that an id names, or the problem with the id.
pub(crate) fn model(
    app: &App,
    workspace: &Workspace,
    id: &str,
    place: &str,
) -> Result<Result<Value, Problem>, Refusal> {
    asset(app, workspace, id, ("models", "model"), place)
}

/// The `componentSpec` that an id names, or the problem with the id.
pub(crate) fn component(
    app: &App,
    workspace: &Workspace,
    id: &str,
    place: &str,
) -> Result<Result<Value, Problem>, Refusal> {
    let found = asset(app, workspace, id, ("components", "component"), place)?;
    Ok(found.map(|mut properties| properties["componentSpec"].take()))
}

/// Where the files of a model lie.
pub(crate) fn place_of_model(
    app: &App,
    workspace: &Workspace,
    id: &str,
    place: &str,
) -> Result<Result<BlobPath, Problem>, Refusal> {
    let asked = Asked { uri: id, shape: Shape::Any, model: true, place };
    let found = data::input(&LedgerShelf { app, workspace }, workspace, asked)?;
    Ok(found.map(|found| found.at))
}

fn asset(
    app: &App,
    workspace: &Workspace,
    id: &str,
    kind: (&str, &str),
    place: &str,
) -> Result<Result<Value, Problem>, Refusal> {
    let found =
        registered(&LedgerShelf { app, workspace }, workspace, id, kind, Code::ResourceNotFound, place)?;
    // The whole answer is that of a bad request, not of a missing endpoint.
    Ok(found.map_err(|problem| Problem { code: Code::BadArgument, ..problem }))
}
