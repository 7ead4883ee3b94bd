//! Run tokens: what a job's own process shows to the tracking endpoint. They are JSON Web Tokens like the owner's, but
//! signed with a key of their own (HS256: a thousand attempts a second each get one), so that no other endpoint can
//! take one for an access token, whatever it says.

use std::path::Path;

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::{Error, Result, TOKEN_BYTES_MAX, files};

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT","kid":"neap-run"}"#;

/// Whom a run token speaks for: one attempt of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClaim {
    /// The job's name.
    pub sub: String,
    /// The workspace's id: the only one that it opens.
    pub workspace: u64,
    /// The job's id.
    pub job: u64,
    /// The attempt's number: the token dies with it.
    pub attempt: u32,
    /// Ends at, unix seconds.
    pub exp: i64,
}

/// Makes and checks run tokens with the server's key.
pub struct RunTokens {
    key: hmac::Key,
    header: String,
}

impl std::fmt::Debug for RunTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunTokens(hidden)")
    }
}

impl RunTokens {
    /// Opens the key in this file, or makes it.
    pub fn open(key_file: &Path) -> Result<Self> {
        let key = files::open_or_create_key(key_file)?;
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), header: URL_SAFE_NO_PAD.encode(HEADER) })
    }

    pub fn issue(&self, claim: &RunClaim) -> Result<String> {
        let body = serde_json::to_vec(claim).map_err(|e| Error::crypto("write a run token's claims", e))?;
        let mut token = format!("{}.{}", self.header, URL_SAFE_NO_PAD.encode(body));
        let mac = hmac::sign(&self.key, token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(mac.as_ref(), &mut token);
        Ok(token)
    }

    /// Whether this looks like one of these tokens; nothing is checked yet.
    #[must_use]
    pub fn is_one(&self, token: &str) -> bool {
        token.split('.').next() == Some(&self.header)
    }

    /// What the token says, if it is ours and has not ended. Whether its attempt still runs is the caller's to ask.
    pub fn verify(&self, token: &str, now_s: i64) -> Result<RunClaim> {
        let refused = |reason| Error::Token { reason };
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refused("it is too long"));
        }
        let (signed, mac) = token.rsplit_once('.').ok_or_else(|| refused("it is not a JSON Web Token"))?;
        let (header, body) = signed.split_once('.').ok_or_else(|| refused("it is not a JSON Web Token"))?;
        if header != self.header {
            return Err(refused("it is not a run token"));
        }
        let mac = URL_SAFE_NO_PAD.decode(mac).map_err(|_| refused("its signature is not readable"))?;
        hmac::verify(&self.key, signed.as_bytes(), &mac)
            .map_err(|_| refused("its signature does not fit"))?;
        let claim: RunClaim = URL_SAFE_NO_PAD
            .decode(body)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| refused("its claims are not readable"))?;
        if claim.exp <= now_s {
            return Err(refused("it has expired"));
        }
        Ok(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> RunClaim {
        RunClaim { sub: "job_1".into(), workspace: 1, job: 7, attempt: 2, exp: 1_060 }
    }

    #[test]
    fn a_token_says_its_attempt_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = RunTokens::open(&folder.path().join("a.key")).unwrap();
        let token = tokens.issue(&claim()).unwrap();
        assert!(tokens.is_one(&token) && token.split('.').count() == 3);
        let again = RunTokens::open(&folder.path().join("a.key")).unwrap();
        assert_eq!(again.verify(&token, 1_059).unwrap(), claim());
        assert!(again.verify(&token, 1_060).is_err(), "expired");
        let other = RunTokens::open(&folder.path().join("b.key")).unwrap();
        assert!(other.verify(&token, 1_000).is_err(), "another key");
    }

    #[test]
    fn every_changed_character_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = RunTokens::open(&folder.path().join("a.key")).unwrap();
        let token = tokens.issue(&claim()).unwrap();
        for at in 0..token.len() {
            let mut touched = token.clone().into_bytes();
            touched[at] = if touched[at] == b'A' { b'B' } else { b'A' };
            let touched = String::from_utf8(touched).unwrap();
            assert!(tokens.verify(&touched, 1_000).is_err() || touched == token, "at {at}");
        }
        for text in ["", "a.b", "..", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(tokens.verify(text, 1_000).is_err(), "{text}");
        }
    }
}
