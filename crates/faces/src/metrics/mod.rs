//! `GET /metrics`: everything that is counted, in the Prometheus text format.
//!
//! Names of clusters and owners of jobs are not for everybody: it is answered to a bearer token of this installation,
//! or to the metrics token, which opens nothing else, or to anyone where the configuration says so.

mod budgets;
mod clusters;
mod exposition;
pub(crate) mod http;
mod process;
mod quotas;
mod server;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::Response;
use neap_core::{Code, Refusal};

use crate::app::App;
use crate::{arm, audience, reply};
use exposition::Exposition;
use http::HttpMetrics;

pub(crate) fn answer(
    app: &App,
    http: &HttpMetrics,
    method: &Method,
    headers: &HeaderMap,
    base: &str,
) -> Response {
    if method != Method::GET {
        let message = format!("{method} is not possible on /metrics; it takes GET.");
        return arm::errors::refuse(&Refusal::because(Code::MethodNotAllowed, message));
    }
    if let Err(refusal) = admit(app, headers, base) {
        return arm::errors::refuse(&refusal);
    }
    let mut response = reply::text(text(app, http));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(exposition::CONTENT_TYPE));
    response
}

/// Whether the request shows the metrics token.
pub(crate) fn shows_token(app: &App, headers: &HeaderMap) -> bool {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = shown.and_then(|value| value.split_once(' ')).map(|(_, token)| token.trim());
    match (&app.observability.metrics_token, bearer) {
        (Some(token), Some(bearer)) => token.matches(bearer),
        _ => false,
    }
}

fn admit(app: &App, headers: &HeaderMap, base: &str) -> Result<(), Refusal> {
    if app.observability.metrics_open || shows_token(app, headers) {
        return Ok(());
    }
    audience::authenticate(app, headers, base).map(|_| ())
}

fn text(app: &App, http: &HttpMetrics) -> String {
    let mut out = Exposition::default();
    server::write(&mut out, app);
    clusters::write(&mut out, app);
    budgets::write(&mut out, app);
    quotas::write(&mut out, app);
    http.write(&mut out);
    process::write(&mut out, app.server.started.0);
    out.into_text()
}
