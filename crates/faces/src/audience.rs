//! Authentication: a bearer token that this installation signed, meant for this service.
//!
//! Which audiences mean this service is said by the configuration, never by the request: a token that its holder showed to
//! somebody else must not open this server because the request names that somebody as its host. Verified tokens are
//! remembered by hash until they expire. Roles are not judged here.

use std::collections::BTreeSet;

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

/// The audiences that mean this server, beside its own URL and those of Azure's clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audiences(BTreeSet<String>);

impl Audiences {
    /// From URLs or `host:port` pairs.
    pub fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self(names.into_iter().map(|name| authority(name.as_ref())).collect())
    }

    /// Whether a token for this audience is for this server, whose own URL is `own`.
    fn include(&self, audience: &str, own: &str) -> bool {
        let wanted = authority(audience);
        !wanted.is_empty()
            && (wanted == authority(own)
                || self.0.contains(&wanted)
                || KNOWN_AUDIENCES.contains(&wanted.as_str()))
    }
}

/// `HOST:PORT` of a URL in lower case, without the port that `https` has anyway.
fn authority(url: &str) -> String {
    let name = url
        .trim_start_matches("https://")
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .to_ascii_lowercase();
    name.strip_suffix(":443").map(str::to_owned).unwrap_or(name)
}

/// Who shows this bearer token. `base` is how the client addresses the server: it is put into the refusal and decides nothing.
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
    if !app.audiences.include(&claims.aud, &app.base_url) {
        // The address that the client uses is no good where the configuration does not know it.
        let known = app.audiences.include(base, &app.base_url);
        let hint = if known {
            ""
        } else {
            " If clients reach this server under another name, add it to `audiences` in config.yaml."
        };
        return Err(refused(&format!(
            "Authentication failed: the token is for the audience '{}' and not for this server. Ask for one with resource '{}'.{hint}",
            claims.aud,
            if known { base } else { &app.base_url }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audiences() {
        let configured = Audiences::new(["https://localhost:8443", "neap.example.com:443"]);
        for (audience, expect) in [
            ("https://127.0.0.1:8443", true),
            ("https://127.0.0.1:8443/", true),
            ("https://localhost:8443/", true),
            ("https://NEAP.example.com", true),
            ("https://management.azure.com", true),
            ("https://management.core.windows.net/", true),
            ("https://ml.azure.local", true),
            ("https://vault.example.com", false),
            ("", false),
            ("https://127.0.0.1:9443", false),
            ("https://neap.example.com:8443", false),
        ] {
            assert_eq!(configured.include(audience, "https://127.0.0.1:8443"), expect, "{audience}");
        }
        assert!(!Audiences::default().include("https://localhost:8443", "https://127.0.0.1:8443"));
    }
}
