//! OpenID discovery: where the keys are that sign this server's tokens; and the grant that is not offered.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::{TokenFace, refuse};

/// The same document for every tenant name: there is one issuer.
pub(super) async fn configuration(State(face): State<TokenFace>) -> Json<Value> {
    let base = face.base_url.trim_end_matches('/');
    let tenant = &face.holder.tenant_id;
    Json(json!({
        "issuer": face.issuer_url(),
        "token_endpoint": format!("{base}/{tenant}/oauth2/v2.0/token"),
        "authorization_endpoint": format!("{base}/{tenant}/oauth2/v2.0/authorize"),
        "jwks_uri": format!("{base}/{tenant}/discovery/v2.0/keys"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "claims_supported": ["iss", "aud", "sub", "oid", "tid", "name", "roles", "iat", "nbf", "exp"],
    }))
}

pub(super) async fn keys(State(face): State<TokenFace>) -> Json<Value> {
    Json(face.issuer.key_set())
}

/// Client secrets and federated tokens are not taken.
pub(super) async fn no_grant() -> Response {
    let why = "This server takes no client secrets and no federated tokens. Use the managed-identity endpoint instead: `eval \"$(neap env)\"` sets IDENTITY_ENDPOINT and IDENTITY_HEADER, and DefaultAzureCredential finds them; unset AZURE_CLIENT_SECRET and AZURE_FEDERATED_TOKEN_FILE.";
    refuse(StatusCode::UNAUTHORIZED, "invalid_client", why)
}
