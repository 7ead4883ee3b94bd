//! Refusals as MLflow writes them: `{"error_code": …, "message": …}`.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::{Code, Refusal};
use neap_tracking::Error;
use serde_json::json;

use crate::reply;

#[derive(Debug)]
pub(super) struct Fault {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Fault {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_PARAMETER_VALUE", message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "RESOURCE_DOES_NOT_EXIST", message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", message)
    }

    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", message)
    }

    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "PERMISSION_DENIED", message)
    }

    /// 501 is not tried again by clients, and some ask it as a question.
    pub fn not_offered(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NOT_IMPLEMENTED", message)
    }

    pub fn no_endpoint(method: &str, path: &str) -> Self {
        let message = format!(
            "Neap's MLflow endpoint has nothing at {method} {path}; docs/mlflow.md lists what it has."
        );
        Self::new(StatusCode::NOT_FOUND, "ENDPOINT_NOT_FOUND", message)
    }

    pub fn answer(&self) -> Response {
        if self.status.is_server_error() && self.status != StatusCode::NOT_IMPLEMENTED {
            tracing::warn!(
                code = self.code,
                message = self.message,
                "a tracking request could not be served"
            );
        }
        let mut response =
            reply::json(self.status, &json!({"error_code": self.code, "message": self.message}));
        if self.status == StatusCode::UNAUTHORIZED {
            reply::set(&mut response, "www-authenticate", "Bearer realm=\"neap\"");
        }
        response
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Invalid(_) => Self::invalid(message),
            Error::NotFound(_) => Self::not_found(message),
            Error::Exists(_) => Self::new(StatusCode::BAD_REQUEST, "RESOURCE_ALREADY_EXISTS", message),
            Error::Limit(_) => Self::new(StatusCode::BAD_REQUEST, "RESOURCE_LIMIT_EXCEEDED", message),
            ref full if full.is_disk_full() => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "TEMPORARILY_UNAVAILABLE", message)
            }
            Error::Database { .. } | Error::Sql(_) | Error::File { .. } | Error::Newer { .. } => {
                Self::internal(message)
            }
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let messages: Vec<_> = refusal.problems.iter().map(|problem| problem.message.as_str()).collect();
        let message = messages.join(" ");
        match refusal.code() {
            Code::AuthenticationFailed => Self::unauthenticated(message),
            Code::AuthorizationFailed => Self::denied(message),
            code => match code.http_status() {
                404 => Self::not_found(message),
                400..=499 => Self::invalid(message),
                503 => Self::new(StatusCode::SERVICE_UNAVAILABLE, "TEMPORARILY_UNAVAILABLE", message),
                _ => Self::internal(message),
            },
        }
    }
}
