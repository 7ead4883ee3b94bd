//! Authentication: a bearer token that this installation signed, meant for this service.
//!
//! Verified tokens are remembered by hash until they expire. Roles are not judged here.

use axum::http::{HeaderMap, header};
use neap_core::{Code, Refusal};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::ask::Caller;

/// Audiences under which Azure's clients ask for tokens, whatever the server's own name is.
const KNOWN_AUDIENCES: &[&str] = &[
    "management.azure.com",
    "management.core.windows.net",
    "ml.azure.com",
    "ml.azure.local",
    "storage.azure.com",
    "neap",
];

pub(crate) fn authenticate(app: &App, headers: &HeaderMap, base: &str) -> Result<Caller, Refusal> {
    let refused = |why: &str| Refusal::because(Code::AuthenticationFailed, why.to_owned());
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        })
        .ok_or_else(|| refused("Authentication failed: the 'Authorization' header with a bearer token is missing. `eval \"$(neap env)\"` gives a shell what clients need."))?;
    let now_s = app.now_s();
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    if let Some(caller) = app.memory.verified(&hash, now_s) {
        return Ok(caller);
    }
    let claims =
        app.issuer.verify(token, now_s).map_err(|e| refused(&format!("Authentication failed: {e}.")))?;
    if !is_for_us(&claims.aud, base, &app.base_url) {
        return Err(refused(&format!(
            "Authentication failed: the token is for the audience '{}' and not for this server. Ask for one with resource '{base}'.",
            claims.aud
        )));
    }
    let actor = claims
        .name
        .filter(|name| !name.is_empty())
        .or(Some(claims.oid).filter(|oid| !oid.is_empty()))
        .unwrap_or(claims.sub);
    let caller = Caller { actor };
    app.memory.remember_verified(hash, claims.exp, caller.clone(), now_s);
    Ok(caller)
}

/// A token for another service must not open this one.
fn is_for_us(audience: &str, base: &str, configured: &str) -> bool {
    let host = |url: &str| {
        url.trim_start_matches("https://")
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_ascii_lowercase()
    };
    let wanted = host(audience);
    wanted == host(base) || wanted == host(configured) || KNOWN_AUDIENCES.contains(&wanted.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audiences() {
        let check = |audience: &str, expect: bool| {
            assert_eq!(
                is_for_us(audience, "https://localhost:8443", "https://127.0.0.1:8443"),
                expect,
                "{audience}"
            );
        };
        check("https://127.0.0.1:8443", true);
        check("https://127.0.0.1:8443/", true);
        check("https://localhost:8443/", true);
        check("https://management.azure.com", true);
        check("https://management.core.windows.net/", true);
        check("https://ml.azure.local", true);
        check("https://vault.example.com", false);
        check("", false);
        check("https://127.0.0.1:9443", false);
    }
}
