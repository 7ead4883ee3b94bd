//! Services of jobs (ssh, Jupyter, TensorBoard, VS Code, whatever a job listens on), reached through this server:
//! `/services/{workspace}/{job}/{node}/{service}/…`.
//!
//! HTTP requests, WebSockets among them, are passed on (`proxy.rs`); whoever asks for the upgrade `neap-stream` gets the bytes
//! themselves, which is how ssh comes through. Who may is said in `access.rs`. This face never speaks to an agent: control
//! hands it a stream.

mod access;
mod list;
mod place;
mod proxy;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use neap_control::services::{ServiceStream, StreamError};
use neap_control::{ServiceState, ServiceStatus};
use neap_core::documents::{JobDocument, ServiceKind};
use neap_core::job::Phase;
use neap_core::state::Workspace;
use neap_core::{AttemptId, Code, NodeId, Refusal};
use neap_ledger::JobRow;

use crate::app::App;
use crate::ask::{self, Query};
use crate::{arm, reply};
pub(crate) use access::{Links, link};
pub(crate) use list::{instances, shown};
use place::Place;

pub(crate) async fn answer(app: &App, request: Request) -> Response {
    serve(app, request).await.unwrap_or_else(|refusal| arm::errors::refuse(&refusal))
}

async fn serve(app: &App, mut request: Request) -> Result<Response, Refusal> {
    let base = ask::base_url(request.uri(), request.headers(), &app.base_url);
    let Some((place, rest)) = Place::parse(request.uri().path()) else {
        return Err(Refusal::because(
            Code::ResourceNotFound,
            "A service is at /services/{workspace}/{job}/{node}/{service}/; `neap job show-services` says where.",
        ));
    };
    let rest = rest.map(str::to_owned);
    let query = Query::parse(request.uri().query().unwrap_or(""));
    if let Some(ticket) = query.get(access::TICKET)
        && request.method() == Method::GET
        && rest.as_deref() == Some("")
    {
        return access::follow(app, &place, ticket);
    }
    let entry = access::check(app, &place, &request, &base)?;
    let service = Found::find(app, &place)?;
    if wants_stream(&request) {
        let upgrade = hyper::upgrade::on(&mut request);
        let stream = service.open(app).await?;
        return Ok(proxy::pass_bytes(upgrade, stream));
    }
    let Some(rest) = rest else {
        // Relative links of its pages count from the folder.
        let mut response = reply::empty(StatusCode::PERMANENT_REDIRECT);
        reply::set(&mut response, "location", &place.path());
        return Ok(response);
    };
    if matches!(service.kind, ServiceKind::Ssh { .. }) {
        return Err(Refusal::because(
            Code::BadArgument,
            format!(
                "The service '{}' speaks ssh and not HTTP: `neap job connect-ssh --name {} --node-index {}`.",
                place.service, place.job, place.node
            ),
        ));
    }
    let whole_path = service.state.as_ref().is_some_and(|state| state.whole_path);
    let stream = service.open(app).await?;
    let path = if whole_path { None } else { Some(format!("/{rest}")) };
    let route = proxy::Route { place: &place, base: &base, path, bearer_is_ours: entry.by_bearer };
    let mut response = proxy::forward(request, &route, stream).await?;
    if let Some(cookie) = entry.renewed {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Whether the request shows a cookie that opens the service it asks for.
pub(crate) fn shows_cookie(app: &App, path: &str, headers: &HeaderMap) -> bool {
    Place::parse(path).is_some_and(|(place, _)| access::shows_cookie(app, &place, headers))
}

fn wants_stream(request: &Request) -> bool {
    request
        .headers()
        .get(header::UPGRADE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.eq_ignore_ascii_case(proxy::STREAM))
}

/// A service of a job that runs.
struct Found {
    name: String,
    kind: ServiceKind,
    attempt: AttemptId,
    node: NodeId,
    state: Option<ServiceState>,
}

impl Found {
    fn find(app: &App, place: &Place) -> Result<Self, Refusal> {
        let row = place.job_row(app)?;
        let document: JobDocument = app.document(&row.document)?;
        let Some(service) = document.services_on(place.node).remove(&place.service) else {
            return Err(Refusal::because(
                Code::ResourceNotFound,
                format!(
                    "The job {} has no service '{}' on node {}; `neap job show-services --name {0}` lists them.",
                    place.job, place.service, place.node
                ),
            ));
        };
        let Some((attempt, node)) = running_on(app, &row, place.node) else {
            return Err(unreachable(
                place,
                &format!("the job does not run there; it is {}", row.status.word()),
            ));
        };
        let told = app.control.services().of(attempt, node);
        let state = told.and_then(|all| all.into_iter().find(|state| state.name == place.service));
        match &state {
            Some(ServiceState { status: ServiceStatus::Failed, message, .. }) => {
                return Err(unreachable(place, message.as_deref().unwrap_or("it failed")));
            }
            Some(_) => {}
            None => return Err(unreachable(place, "its node has not told of it yet")),
        }
        Ok(Self { name: place.service.clone(), kind: service.what, attempt, node, state })
    }

    async fn open(&self, app: &App) -> Result<ServiceStream, Refusal> {
        app.control.services().open(self.attempt, self.node, &self.name).await.map_err(|error| {
            let code = match error {
                StreamError::TooMany => Code::TooManyRequests,
                StreamError::NotConnected | StreamError::Refused(_) | StreamError::Late => {
                    Code::ServiceNotReachable
                }
            };
            Refusal::because(code, format!("The service '{}' cannot be reached: {error}.", self.name))
        })
    }
}

fn unreachable(place: &Place, why: &str) -> Refusal {
    Refusal::because(
        Code::ServiceNotReachable,
        format!("The service '{}' cannot be reached: {}.", place.service, why.trim_end_matches('.')),
    )
}

/// The attempt of a job that runs on its node of this index.
fn running_on(app: &App, row: &JobRow, index: u32) -> Option<(AttemptId, NodeId)> {
    let state = app.state();
    let attempt = state.jobs.get(&row.id)?.attempt()?;
    let node = attempt.nodes().nth(index as usize)?;
    let running = attempt.phase_on(node) == Some(Phase::Running);
    running.then_some((AttemptId { job: row.id, number: attempt.number }, node))
}

fn place_of(workspace: &Workspace, job: &str, node: u32, service: &str) -> Place {
    Place { workspace: workspace.id, job: job.into(), node, service: service.into() }
}
