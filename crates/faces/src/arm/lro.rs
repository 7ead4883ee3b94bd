//! Long-running operations. Their names are made from ids in the log, so that an operation's URL holds across
//! restarts: what is gone from the state has succeeded, what is still there goes on.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::{ClusterId, Code, JobId, Refusal, State, WorkspaceId};
use serde_json::json;

use super::paths::NAMESPACE;
use crate::app::App;
use crate::ask::Ask;
use crate::reply;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Over as soon as it is answered; some clients read the resource well only at the end of an operation.
    PutCluster(ClusterId),
    DeleteCluster(ClusterId),
    DeleteWorkspace(WorkspaceId),
    CancelJob(JobId),
}

impl Operation {
    fn name(self) -> String {
        match self {
            Self::PutCluster(id) => format!("put-cluster-{id}"),
            Self::DeleteCluster(id) => super::paths::cluster_deletion(id),
            Self::DeleteWorkspace(id) => format!("delete-workspace-{id}"),
            Self::CancelJob(id) => format!("cancel-job-{id}"),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let (kind, id) = name.rsplit_once('-')?;
        let id: u64 = id.parse().ok()?;
        match kind {
            "put-cluster" => Some(Self::PutCluster(ClusterId(id))),
            "delete-cluster" => Some(Self::DeleteCluster(ClusterId(id))),
            "delete-workspace" => Some(Self::DeleteWorkspace(WorkspaceId(id))),
            "cancel-job" => Some(Self::CancelJob(JobId(id))),
            _ => None,
        }
    }

    /// Whether it still goes on; `None` if there never was such a thing.
    fn goes_on(self, state: &State) -> Option<bool> {
        match self {
            Self::PutCluster(id) => (id.0 > 0 && id < state.next.cluster).then_some(false),
            Self::DeleteCluster(id) => {
                (id.0 > 0 && id < state.next.cluster).then(|| state.clusters.contains_key(&id))
            }
            Self::DeleteWorkspace(id) => {
                (id.0 > 0 && id < state.next.workspace).then(|| state.workspaces.contains_key(&id))
            }
            Self::CancelJob(id) => (id.0 > 0 && id < state.next.job).then(|| state.is_alive(id)),
        }
    }
}

/// `202 Accepted` with the places to ask how it goes.
pub(crate) fn accepted(ask: &Ask, subscription: &str, location: &str, operation: Operation) -> Response {
    let mut response = reply::empty(StatusCode::ACCEPTED);
    track(&mut response, ask, subscription, location, operation);
    reply::set(
        &mut response,
        "location",
        &url(ask, subscription, location, "computeOperationsResults", operation),
    );
    response
}

/// Says where to ask how an operation goes, on an answer that has a body of its own.
pub(crate) fn track(
    response: &mut Response,
    ask: &Ask,
    subscription: &str,
    location: &str,
    operation: Operation,
) {
    let status = url(ask, subscription, location, "computeOperationsStatus", operation);
    reply::set(response, "azure-asyncoperation", &status);
    reply::poll_again(response);
}

fn url(ask: &Ask, subscription: &str, location: &str, kind: &str, operation: Operation) -> String {
    let (base, name) = (&ask.base, operation.name());
    format!(
        "{base}/subscriptions/{subscription}/providers/{NAMESPACE}/locations/{location}/{kind}/{name}?api-version=2023-10-01"
    )
}

/// What `Azure-AsyncOperation` points at.
pub(crate) fn status(app: &App, ask: &Ask, name: &str) -> Result<Response, Refusal> {
    let goes_on = find(app, name)?;
    let id = format!("/{}", ask.segments.join("/"));
    if goes_on {
        let mut response = reply::ok(&json!({"id": id, "name": name, "status": "InProgress"}));
        reply::poll_again(&mut response);
        return Ok(response);
    }
    Ok(reply::ok(&json!({"id": id, "name": name, "status": "Succeeded", "percentComplete": 100.0})))
}

/// What `Location` points at.
pub(crate) fn result(app: &App, name: &str) -> Result<Response, Refusal> {
    if find(app, name)? {
        let mut response = reply::json(StatusCode::ACCEPTED, &json!({}));
        reply::poll_again(&mut response);
        return Ok(response);
    }
    Ok(reply::empty(StatusCode::OK))
}

fn find(app: &App, name: &str) -> Result<bool, Refusal> {
    Operation::parse(name)
        .and_then(|operation| operation.goes_on(&app.state()))
        .ok_or_else(|| Refusal::because(Code::OperationNotFound, format!("There is no operation '{name}'.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_the_operation() {
        for operation in [
            Operation::PutCluster(ClusterId(3)),
            Operation::DeleteCluster(ClusterId(7)),
            Operation::DeleteWorkspace(WorkspaceId(1)),
            Operation::CancelJob(JobId(99)),
        ] {
            assert_eq!(Operation::parse(&operation.name()), Some(operation));
        }
        for bad in ["", "delete-cluster", "delete-cluster-x", "drop-cluster-1", "7"] {
            assert_eq!(Operation::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_never_was_is_not_found() {
        let state = State::default();
        assert_eq!(Operation::DeleteCluster(ClusterId(1)).goes_on(&state), None);
        assert_eq!(Operation::DeleteCluster(ClusterId(0)).goes_on(&state), None);
    }
}
