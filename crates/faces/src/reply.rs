//! Answers: JSON with a status, and the headers that every answer carries.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::Value;

use crate::limits;

pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    json_text(status, body.to_string())
}

/// JSON that is written already.
pub(crate) fn json_text(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}

pub(crate) fn ok(body: &Value) -> Response {
    json(StatusCode::OK, body)
}

pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

pub(crate) fn text(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // Logs are a job's own words: no browser takes them for a page.
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Sets a header whose value we made; one that cannot be a header value is left out.
pub(crate) fn set(response: &mut Response, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}

/// "Ask again soon": clients take `Retry-After: 0` for 30 s, so the millisecond header is used instead.
pub(crate) fn poll_again(response: &mut Response) {
    set(response, "x-ms-retry-after-ms", limits::POLL_AGAIN_MS);
}
