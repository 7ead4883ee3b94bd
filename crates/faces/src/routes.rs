//! The one entrance: names the request, finds its face, authenticates, and writes the access log.
//!
//! Paths are not a table of axum routes: Azure's are matched without regard to case and with doubled slashes, so
//! each face matches on normalised segments. What no face here knows goes to the token and blob routers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use neap_control::clock::Stopwatch;
use neap_control::trace::SpanKind;
use neap_core::{Code, Refusal};
use tower::ServiceExt;
use tracing::Instrument;

use crate::app::App;
use crate::ask::{self, Ask, Caller, Query};
use crate::metrics::http::{self, HttpMetrics};
use crate::{arm, audience, history, limits, metrics, mlflow, neap, parallel, past, reply, services};

struct Entrance {
    app: App,
    others: Router,
    http: HttpMetrics,
}

/// Every face of this server on one router.
pub fn router(app: App) -> Router {
    // Workspaces that were made before this server had faces have no containers yet.
    for workspace in app.state().workspaces.values() {
        if let Err(error) = crate::workspace_files::prepare(&app.store, workspace.id) {
            tracing::error!(workspace = %workspace.name, %error, "the workspace's storage could not be made");
        }
    }
    let others =
        Router::new().merge(crate::tokens::router(app.clone())).merge(crate::blob::router(app.clone()));
    Router::new().fallback(enter).with_state(Arc::new(Entrance { app, others, http: HttpMetrics::default() }))
}

async fn enter(State(entrance): State<Arc<Entrance>>, request: Request) -> Response {
    let app = &entrance.app;
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let client_id = header_text(request.headers(), "x-ms-client-request-id");
    let correlation = header_text(request.headers(), "x-ms-correlation-request-id");
    let request_id =
        neap_identity::random_guid().unwrap_or_else(|_| String::from("00000000-0000-4000-8000-000000000000"));

    let correlation = correlation.as_deref().unwrap_or(&request_id);
    let face = http::face_word(&path);
    let watch = Stopwatch::start();
    let tracer = app.control.tracer();
    let trace = tracer.begin_under(header_text(request.headers(), "traceparent").as_deref());
    // Every line that is logged on behalf of this request names it.
    let named =
        tracing::info_span!(target: "neap::request", "request", request_id, correlation_id = correlation);
    entrance.http.in_flight.inc();
    let routed = route(&entrance, request).instrument(named);
    let mut response = match &trace {
        Some(trace) => trace.around(routed).await,
        None => routed.await,
    };
    entrance.http.in_flight.dec();
    let status = response.status().as_u16();
    entrance.http.answered(face, method.as_str(), status, watch.elapsed_us());
    if let Some(trace) = &trace {
        let attributes = vec![
            ("http.request.method", method.as_str().into()),
            ("url.path", path.as_str().into()),
            ("http.response.status_code", u64::from(status).into()),
            ("neap.face", face.into()),
            ("neap.request_id", request_id.as_str().into()),
        ];
        let error = (status >= 500).then(|| status.to_string());
        tracer.end(trace, &format!("{method} {face}"), SpanKind::Server, attributes, error);
    }

    reply::set(&mut response, "x-ms-request-id", &request_id);
    reply::set(&mut response, "x-ms-correlation-request-id", correlation);
    if let Some(client_id) = client_id {
        reply::set(&mut response, "x-ms-client-request-id", &client_id);
    }
    // The query is left out: it may carry signatures.
    tracing::info!(
        target: "neap::access",
        %method,
        path,
        face,
        status,
        took_us = watch.elapsed_us(),
        request_id,
        correlation_id = correlation,
    );
    response
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(String::from)
}

/// Some of the resource manager's paths are asked for under this as well: clients find it by discovery.
const MANAGEMENT: (&str, &str) = ("mferp", "managementfrontend");

/// Segments of a path; what may stand before those of the resource manager is left out.
fn segments_of(path: &str, face: Face) -> Vec<String> {
    let plain = ask::segments(path, 2);
    let skip = match plain.as_slice() {
        [first, second, ..] if (first.as_str(), second.as_str()) == MANAGEMENT => 2,
        _ => return ask::segments(path, face.prefix()),
    };
    plain.into_iter().skip(skip).collect()
}

/// The faces, told apart by the first segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Face {
    Arm,
    History,
    Neap,
    Metrics,
    Mlflow,
    /// Workers of parallel jobs.
    Parallel,
    /// Services of jobs.
    Services,
    /// Tokens and blobs.
    Others,
}

impl Face {
    pub(crate) fn of(path: &str) -> Self {
        let mut words = path.split('/').filter(|part| !part.is_empty()).map(str::to_ascii_lowercase);
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match (first.as_str(), second.as_str()) {
            ("neap", "v1") if words.next().as_deref() == Some("parallel") => Self::Parallel,
            ("subscriptions" | "providers" | "tenants", _) | ("metadata", "endpoints") | MANAGEMENT => {
                Self::Arm
            }
            ("discovery", "") | ("history" | "data", "v1.0") => Self::History,
            ("neap", "v1" | "logs") => Self::Neap,
            ("metrics", "") => Self::Metrics,
            ("mlflow", "v1.0") => Self::Mlflow,
            ("services", _) => Self::Services,
            _ => Self::Others,
        }
    }

    /// Segments before the keyword-name alternation begins.
    const fn prefix(self) -> usize {
        match self {
            Self::History | Self::Neap => 2,
            Self::Arm | Self::Metrics | Self::Mlflow | Self::Parallel | Self::Services | Self::Others => 0,
        }
    }
}

async fn route(entrance: &Entrance, request: Request) -> Response {
    let face = Face::of(request.uri().path());
    if face == Face::Others {
        return match entrance.others.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
    }
    let app = &entrance.app;
    if face == Face::Mlflow {
        return mlflow::answer(app, &entrance.others, request).await;
    }
    if face == Face::Parallel {
        return parallel::answer(app, request).await;
    }
    if face == Face::Services {
        return services::answer(app, request).await;
    }
    let (parts, body) = request.into_parts();
    let base = ask::base_url(&parts.uri, &parts.headers, &app.base_url);
    if face == Face::Metrics {
        return metrics::answer(app, &entrance.http, &parts.method, &parts.headers, &base);
    }
    let segments = segments_of(parts.uri.path(), face);
    // The credential comes first: nothing of a stranger's body is read, and what is open to strangers takes none.
    let (caller, body) = if is_open(&segments) {
        (Caller { actor: String::new() }, Bytes::new())
    } else {
        let caller = match audience::authenticate(app, &parts.headers, &base) {
            Ok(caller) => caller,
            Err(refusal) => return arm::errors::refuse(&refusal),
        };
        match axum::body::to_bytes(body, limits::BODY_BYTES_MAX).await {
            Ok(body) => (caller, body),
            Err(e) => {
                let message = format!(
                    "The request body could not be read, or has more than {} bytes: {e}.",
                    limits::BODY_BYTES_MAX
                );
                return arm::errors::refuse(&Refusal::because(Code::DocumentTooLarge, message));
            }
        }
    };
    let mut headers = parts.headers;
    headers.remove(axum::http::header::AUTHORIZATION);
    let ask = Ask {
        method: parts.method,
        segments,
        query: Query::parse(parts.uri.query().unwrap_or("")),
        headers,
        base,
        caller,
        body,
    };
    let past = match past::asked(app, &ask).await {
        Ok(past) => past,
        Err(refusal) => return arm::errors::refuse(&refusal),
    };
    let app = past.as_ref().unwrap_or(app);
    let answered = match face {
        Face::Arm => arm::answer(app, &ask).await,
        Face::History => history::answer(app, &ask).await,
        Face::Neap => neap::answer(app, &ask).await,
        Face::Metrics | Face::Mlflow | Face::Parallel | Face::Services | Face::Others => {
            Err(arm::errors::no_such_path(&ask))
        }
    };
    answered.unwrap_or_else(|refusal| arm::errors::refuse(&refusal))
}

/// What is read before there is a token, or carries its own signature.
fn is_open(segments: &[String]) -> bool {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    matches!(words.as_slice(), ["metadata", _] | ["discovery"] | ["neap", "logs", ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faces_are_told_apart_by_their_first_segments() {
        for (path, expect) in [
            ("/subscriptions", Face::Arm),
            ("//Subscriptions/x", Face::Arm),
            ("//metadata/endpoints", Face::Arm),
            ("/metadata/identity/oauth2/token", Face::Others),
            ("/mferp/managementfrontend/subscriptions/s", Face::Arm),
            ("/mferp/x", Face::Others),
            ("/discovery", Face::History),
            ("/discovery/keys", Face::Others),
            ("/history/v1.0/subscriptions/s", Face::History),
            ("/data/v1.0/subscriptions/s", Face::History),
            ("/data/other", Face::Others),
            ("/neap/v1/status", Face::Neap),
            ("/neap/v1/parallel/next", Face::Parallel),
            ("/neap/logs/neapst1/3", Face::Neap),
            ("/neapst1.blob.core.windows.net/azureml/x", Face::Others),
            ("/msi/token", Face::Others),
            ("/metrics", Face::Metrics),
            ("/metrics/x", Face::Others),
            ("/mlflow/v1.0/subscriptions/s", Face::Mlflow),
            ("/mlflow/x", Face::Others),
            ("/services/1/j/0/s/", Face::Services),
        ] {
            assert_eq!(Face::of(path), expect, "{path}");
        }
    }

    #[test]
    fn the_resource_manager_has_a_second_address() {
        let plain = segments_of("/Subscriptions/S/resourceGroups/G", Face::Arm);
        assert_eq!(plain, ["subscriptions", "S", "resourcegroups", "G"]);
        let other = segments_of("/mferp/managementfrontend//Subscriptions/S/resourceGroups/G", Face::Arm);
        assert_eq!(other, plain);
    }

    #[test]
    fn only_these_are_open() {
        let open = |path: &str, skip| is_open(&ask::segments(path, skip));
        assert!(open("/metadata/endpoints", 0));
        assert!(open("/discovery", 2));
        assert!(open("/neap/logs/neapst1/3", 2));
        assert!(!open("/neap/v1/status", 2));
        assert!(!open("/subscriptions", 0));
    }
}
