//! `rundata`: which outputs a run has, for `download`.

use axum::response::Response;
use neap_core::state::Workspace;
use neap_core::{Code, Refusal};
use serde_json::json;

use super::runs;
use crate::app::App;
use crate::arm::find_job;
use crate::ask::Ask;
use crate::reply;

pub(crate) fn post(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let run =
        body["runId"].as_str().ok_or_else(|| Refusal::because(Code::BadArgument, "'runId' is missing."))?;
    let row = find_job(app, workspace, run)?;
    Ok(reply::ok(&json!({
        "runMetadata": runs::answer(app, workspace, &row)?,
        "runDefinition": null,
        "jobSpecification": null,
        "systemSettings": null,
    })))
}
