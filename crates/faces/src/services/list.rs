//! The services of a job as clients are told of them: by the run history, and beside the job itself.

use axum::response::Response;
use neap_control::{ServiceState, ServiceStatus};
use neap_core::documents::{JobDocument, ServiceDocument, ServiceKind};
use neap_core::state::Workspace;
use neap_core::{Code, Refusal};
use neap_ledger::JobRow;
use serde_json::{Map, Value, json};

use super::{place_of, running_on};
use crate::app::App;
use crate::arm::find_job;
use crate::ask::Ask;
use crate::reply;

/// `GET …/runs/{run}/serviceinstances/{node}`.
pub(crate) fn instances(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    run: &str,
    node: &str,
) -> Result<Response, Refusal> {
    let row = find_job(app, workspace, run)?;
    let node: u32 = node
        .parse()
        .map_err(|_| Refusal::because(Code::BadArgument, format!("'{node}' is not the index of a node.")))?;
    let document: JobDocument = app.document(&row.document)?;
    let mut all = Map::new();
    for (name, service) in told(app, &row, &document, node) {
        let endpoint = service.endpoint(&ask.base, workspace, &row.name, node, &name);
        let error = service
            .error()
            .map(|message| json!({"error": {"code": Code::ServiceNotReachable.name(), "message": message}}));
        let mut properties = Map::new();
        if let Some(state) = &service.state {
            for (key, value) in [("user", &state.user), ("hostKey", &state.host_key)] {
                properties.extend(value.clone().map(|value| (key.to_owned(), Value::String(value))));
            }
        }
        all.insert(
            name,
            json!({"type": word(&service.asked.what), "port": service.port(), "status": service.status,
                   "error": error, "endpoint": endpoint, "properties": properties}),
        );
    }
    Ok(reply::ok(&json!({"instances": all})))
}

/// Adds to the services of a job's answer where they are and how.
pub(crate) fn shown(
    app: &App,
    base: &str,
    workspace: &Workspace,
    row: &JobRow,
    document: &JobDocument,
    services: &mut Map<String, Value>,
) {
    // The first node that a service is on speaks for it.
    let mut ranks: Vec<u32> = vec![0];
    ranks.extend(document.services.values().filter_map(|service| match service.nodes {
        neap_core::documents::ServiceNodes::One(index) if index > 0 => Some(index),
        _ => None,
    }));
    ranks.dedup();
    for rank in ranks {
        for (name, service) in told(app, row, document, rank) {
            let entry = services.entry(name.clone()).or_insert_with(|| json!({}));
            let Some(entry) = entry.as_object_mut() else { continue };
            entry.insert("jobServiceType".into(), word(&service.asked.what).into());
            entry.insert("endpoint".into(), json!(service.endpoint(base, workspace, &row.name, rank, &name)));
            entry.insert("status".into(), service.status.into());
            entry.insert("errorMessage".into(), json!(service.error()));
        }
    }
}

/// A service, and how it is.
struct Told {
    asked: ServiceDocument,
    status: &'static str,
    state: Option<ServiceState>,
}

impl Told {
    fn port(&self) -> Option<u16> {
        self.state.as_ref().map_or(self.asked.port, |state| state.port)
    }

    fn error(&self) -> Option<&str> {
        self.state.as_ref().and_then(|state| state.message.as_deref())
    }

    /// Where it is, while it is somewhere.
    fn endpoint(
        &self,
        base: &str,
        workspace: &Workspace,
        job: &str,
        node: u32,
        name: &str,
    ) -> Option<String> {
        let there = self.state.as_ref().is_some_and(|state| state.status != ServiceStatus::Failed);
        there.then(|| format!("{base}{}", place_of(workspace, job, node, name).path()))
    }
}

fn told(app: &App, row: &JobRow, document: &JobDocument, node: u32) -> Vec<(String, Told)> {
    let asked = document.services_on(node);
    if asked.is_empty() {
        return Vec::new();
    }
    let states = running_on(app, row, node)
        .map(|(attempt, node)| app.control.services().of(attempt, node).unwrap_or_default());
    asked
        .into_iter()
        .map(|(name, asked)| {
            let state = states.iter().flatten().find(|state| state.name == name).cloned();
            let status = match (&state, &states) {
                (Some(state), _) => match state.status {
                    ServiceStatus::Starting => "Starting",
                    ServiceStatus::Running => "Running",
                    ServiceStatus::Failed => "Failed",
                },
                (None, Some(_)) => "Starting",
                (None, None) if row.status.is_final() => "Stopped",
                (None, None) => "NotStarted",
            };
            (name, Told { asked, status, state })
        })
        .collect()
}

/// As the wire has it.
fn word(kind: &ServiceKind) -> &'static str {
    match kind {
        ServiceKind::Ssh { .. } => "SSH",
        ServiceKind::TensorBoard { .. } => "TensorBoard",
        ServiceKind::JupyterLab => "JupyterLab",
        ServiceKind::VsCode => "VSCode",
        ServiceKind::Custom => "Custom",
        ServiceKind::RayDashboard => "RayDashboard",
    }
}
