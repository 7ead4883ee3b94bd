//! Token endpoints: how a client without a Microsoft login gets a token of this server. They speak the
//! managed-identity protocols of App Service (2019-08-01 and 2017-09-01) and of the instance metadata service,
//! and OpenID discovery so that others can check the tokens.
//!
//! Whoever asks shows the installation's identity secret. No other grant is offered, and no password is taken.

mod discovery;
mod managed;
mod mounted;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use neap_identity::{IdentitySecret, Issuer};
use serde_json::json;

/// How long a token is good.
pub(crate) const TOKEN_TTL_S: i64 = 3_600;

/// Whose tokens these are.
#[derive(Clone, Debug)]
pub struct Holder {
    pub tenant_id: String,
    pub object_id: String,
    /// A name for people; it becomes the actor in the log.
    pub name: String,
}

/// What this face needs.
#[derive(Clone)]
pub struct TokenFace {
    pub issuer: Arc<Issuer>,
    pub secret: Arc<IdentitySecret>,
    pub holder: Holder,
    /// `https://HOST:PORT`, under which the tokens' issuer is found.
    pub base_url: String,
    /// The time, in unix seconds.
    pub now_s: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl std::fmt::Debug for TokenFace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFace").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl TokenFace {
    /// The issuer that the tokens name; its OpenID configuration is below this URL.
    pub(crate) fn issuer_url(&self) -> String {
        format!("{}/{}/v2.0", self.base_url.trim_end_matches('/'), self.holder.tenant_id)
    }
}

/// The paths at which the identity secret is shown for a token.
const SECRET_PATHS: [&str; 2] = ["/msi/token", "/metadata/identity/oauth2/token"];

/// Whether a request shows the identity secret where it is asked for.
pub(crate) fn shows_secret(secret: &IdentitySecret, path: &str, headers: &HeaderMap) -> bool {
    SECRET_PATHS.contains(&path) && managed::shown(headers).is_some_and(|shown| secret.matches(shown))
}

/// The token endpoints.
pub fn router(face: impl Into<TokenFace>) -> Router {
    Router::new()
        .route("/msi/token", get(managed::app_service))
        .route("/metadata/identity/oauth2/token", get(managed::instance_metadata))
        .route("/{tenant}/.well-known/openid-configuration", get(discovery::configuration))
        .route("/{tenant}/v2.0/.well-known/openid-configuration", get(discovery::configuration))
        .route("/{tenant}/discovery/v2.0/keys", get(discovery::keys))
        .route("/discovery/keys", get(discovery::keys))
        .route("/{tenant}/oauth2/v2.0/token", post(discovery::no_grant))
        .route("/{tenant}/oauth2/token", post(discovery::no_grant))
        .with_state(face.into())
}

/// A refusal as OAuth writes it.
fn refuse(status: StatusCode, error: &str, description: &str) -> Response {
    (status, axum::Json(json!({"error": error, "error_description": description}))).into_response()
}

#[cfg(test)]
mod tests;
