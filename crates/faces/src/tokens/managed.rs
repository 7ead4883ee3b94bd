//! The managed-identity endpoints. Both hand out the same token; they differ in how the secret is shown.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use neap_identity::Claims;
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::{TOKEN_TTL_S, TokenFace, refuse};

/// Longest audience that is put into a token.
const RESOURCE_BYTES_MAX: usize = 2_048;

/// `GET /msi/token`
pub(super) async fn app_service(
    State(face): State<TokenFace>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    token(&face, query.as_deref().unwrap_or(""), &headers)
}

/// `GET /metadata/identity/oauth2/token`
pub(super) async fn instance_metadata(
    State(face): State<TokenFace>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    // The header keeps pages in a browser from asking: they cannot set it across origins.
    if !headers.get("metadata").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true")) {
        let why = "The header 'Metadata: true' is missing.";
        return refuse(StatusCode::BAD_REQUEST, "invalid_request", why);
    }
    token(&face, query.as_deref().unwrap_or(""), &headers)
}

fn token(face: &TokenFace, query: &str, headers: &HeaderMap) -> Response {
    match shown(headers) {
        Some(secret) if face.secret.matches(secret) => {}
        Some(_) => {
            let why = "The identity secret is not this server's. Take IDENTITY_HEADER from `neap env`; it changes when the data folder does.";
            return refuse(StatusCode::UNAUTHORIZED, "unauthorized", why);
        }
        None => {
            let why = "The identity secret is missing: send it in the header X-IDENTITY-HEADER (or 'secret'). `neap env` sets it for Azure's clients.";
            return refuse(StatusCode::UNAUTHORIZED, "unauthorized", why);
        }
    }
    let Some(resource) = resource_of(query) else {
        let why = "The query must name the resource for which the token is, at most 2048 bytes of it.";
        return refuse(StatusCode::BAD_REQUEST, "invalid_request", why);
    };
    let now_s = (face.now_s)();
    let claims = Claims {
        iss: face.issuer_url(),
        // Exactly as asked: clients compare it.
        aud: resource.clone(),
        sub: face.holder.object_id.clone(),
        oid: face.holder.object_id.clone(),
        tid: face.holder.tenant_id.clone(),
        name: Some(face.holder.name.clone()),
        ..Claims::default()
    };
    let token = match face.issuer.issue(claims, TOKEN_TTL_S, now_s) {
        Ok(token) => token,
        Err(e) => {
            tracing::error!("could not sign a token: {e}");
            let why = "The token could not be signed; the server's log says why.";
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "server_error", why);
        }
    };
    let mut response = axum::Json(json!({
        "access_token": token,
        "expires_on": (now_s + TOKEN_TTL_S).to_string(),
        "expires_in": TOKEN_TTL_S.to_string(),
        "resource": resource,
        "token_type": "Bearer",
    }))
    .into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The identity secret as the request shows it.
pub(super) fn shown(headers: &HeaderMap) -> Option<&str> {
    ["x-identity-header", "secret"].iter().find_map(|name| headers.get(*name)?.to_str().ok())
}

fn resource_of(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("resource="))?;
    let value = percent_decode_str(value).decode_utf8().ok()?;
    (!value.is_empty() && value.len() <= RESOURCE_BYTES_MAX).then(|| value.into_owned())
}
