//! The endpoints as Azure's clients call them.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use neap_identity::{IdentitySecret, Issuer};
use serde_json::Value;
use tower::ServiceExt;

use super::{Holder, TokenFace, router};

const NOW: i64 = 1_800_000_000;

type Headers<'a> = &'a [(&'a str, &'a str)];

fn face() -> TokenFace {
    let folder = tempfile::tempdir().unwrap();
    TokenFace {
        issuer: Arc::new(Issuer::open(&folder.path().join("jwt.key")).unwrap()),
        secret: Arc::new(IdentitySecret::generate().unwrap()),
        holder: Holder { tenant_id: "t-1".into(), object_id: "o-1".into(), name: "owner".into() },
        base_url: "https://127.0.0.1:8443/".into(),
        now_s: Arc::new(|| NOW),
    }
}

async fn send(face: &TokenFace, method: &str, path: &str, headers: Headers<'_>) -> (StatusCode, Value) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    let response = router(face.clone()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn each_protocol_gives_a_token_for_exactly_what_was_asked() {
    let face = face();
    let secret = face.secret.reveal();
    let app = "/msi/token?api-version=2019-08-01&resource=https%3A%2F%2Fml.azure.local";
    let old = "/msi/token?resource=https://ml.azure.local&api-version=2017-09-01";
    let imds = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fml.azure.local";
    let cases: [(&str, Headers<'_>); 3] = [
        (app, &[("x-identity-header", secret)]),
        (old, &[("secret", secret)]),
        (imds, &[("metadata", "true"), ("x-identity-header", secret)]),
    ];
    for (path, headers) in cases {
        let (status, body) = send(&face, "GET", path, headers).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        let claims = face.issuer.verify(body["access_token"].as_str().unwrap(), NOW).unwrap();
        assert_eq!((claims.aud.as_str(), claims.tid.as_str()), ("https://ml.azure.local", "t-1"));
        assert_eq!((claims.oid.as_str(), claims.sub.as_str()), ("o-1", "o-1"));
        assert_eq!(claims.iss, "https://127.0.0.1:8443/t-1/v2.0");
        assert_eq!(body["expires_on"], (NOW + 3_600).to_string());
        assert_eq!((&body["expires_in"], &body["token_type"]), (&"3600".into(), &"Bearer".into()));
        assert_eq!(body["resource"], "https://ml.azure.local");
    }
}

#[tokio::test]
async fn without_the_secret_there_is_no_token() {
    let face = face();
    let secret = face.secret.reveal();
    let wrong = IdentitySecret::generate().unwrap();
    let path = "/msi/token?resource=x";
    let cases: [(&str, Headers<'_>, u16, &str); 6] = [
        (path, &[], 401, "unauthorized"),
        (path, &[("x-identity-header", "")], 401, "unauthorized"),
        (path, &[("x-identity-header", wrong.reveal())], 401, "unauthorized"),
        ("/metadata/identity/oauth2/token?resource=x", &[("metadata", "true")], 401, "unauthorized"),
        ("/metadata/identity/oauth2/token?resource=x", &[("secret", secret)], 400, "invalid_request"),
        ("/msi/token", &[("secret", secret)], 400, "invalid_request"),
    ];
    for (path, headers, status, error) in cases {
        let (found, body) = send(&face, "GET", path, headers).await;
        assert_eq!((found.as_u16(), &body["error"]), (status, &error.into()), "{path}");
        assert!(body["error_description"].as_str().unwrap().ends_with('.'));
        assert!(body.get("access_token").is_none());
    }
}

#[tokio::test]
async fn discovery_names_the_issuer_of_the_tokens_and_its_keys() {
    let face = face();
    for path in ["/t-1/v2.0/.well-known/openid-configuration", "/adfs/.well-known/openid-configuration"] {
        let (status, body) = send(&face, "GET", path, &[]).await;
        assert_eq!((status, &body["issuer"]), (StatusCode::OK, &face.issuer_url().into()));
        assert!(body["authorization_endpoint"].is_string() && body["token_endpoint"].is_string());
        let keys =
            body["jwks_uri"].as_str().unwrap().strip_prefix("https://127.0.0.1:8443").unwrap().to_owned();
        for path in [keys.as_str(), "/discovery/keys"] {
            let (_, set) = send(&face, "GET", path, &[]).await;
            assert_eq!(set, face.issuer.key_set());
        }
    }
}

#[tokio::test]
async fn other_grants_are_refused_with_what_to_use_instead() {
    for path in ["/t-1/oauth2/v2.0/token", "/adfs/oauth2/token"] {
        let (status, body) = send(&face(), "POST", path, &[]).await;
        assert_eq!((status.as_u16(), &body["error"]), (401, &"invalid_client".into()));
        assert!(body["error_description"].as_str().unwrap().contains("neap env"));
    }
}
