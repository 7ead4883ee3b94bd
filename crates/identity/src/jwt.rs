//! Access tokens: JSON Web Tokens signed with RS256, the algorithm that identity federation of the
//! big clouds asks for. One key, one algorithm: a token whose header is not exactly the one this key
//! writes is refused before anything in it is read. Audiences and roles are the caller's to judge.

use std::path::Path;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, Result, TOKEN_BYTES_MAX, TOKEN_NOT_BEFORE_LEEWAY_S, files};

/// What a token says about its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Who issued it: the URL whose OpenID configuration names the keys.
    pub iss: String,
    /// For whom it is, exactly as it was asked for.
    pub aud: String,
    /// Who holds it.
    pub sub: String,
    /// The holder's object id.
    #[serde(default)]
    pub oid: String,
    /// The tenant.
    #[serde(default)]
    pub tid: String,
    /// Issued at, unix seconds. Written by [`Issuer::issue`].
    #[serde(default)]
    pub iat: i64,
    /// Not before, unix seconds. Written by [`Issuer::issue`].
    #[serde(default)]
    pub nbf: i64,
    /// Ends at, unix seconds. Written by [`Issuer::issue`].
    pub exp: i64,
    /// Roles that come with the token itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Signs tokens with the installation's key and checks its own.
pub struct Issuer {
    pair: KeyPair,
    public: ParsedPublicKey,
    /// The first part of every token of this key, and of no other.
    header: String,
    kid: String,
    modulus: Vec<u8>,
    exponent: Vec<u8>,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer").field("kid", &self.kid).finish()
    }
}

impl Issuer {
    /// Opens the signing key in this file (PKCS#8 PEM, 0600), or makes it (RSA, 2048 bits).
    pub fn open(key_file: &Path) -> Result<Self> {
        const WHAT: &str = "an RSA private key in PKCS#8 PEM form";
        let pair = if let Some(pem) = files::read(key_file)? {
            let der =
                PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|e| files::damaged(key_file, WHAT, e))?;
            KeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|e| files::damaged(key_file, WHAT, e))?
        } else {
            if let Some(folder) = key_file.parent() {
                files::make_private_folder(folder)?;
            }
            let pair = KeyPair::generate(KeySize::Rsa2048)
                .map_err(|e| Error::crypto("make a token signing key", e))?;
            let der: Pkcs8V1Der<'_> =
                pair.as_der().map_err(|e| Error::crypto("write a token signing key", e))?;
            files::write_private(key_file, pem("PRIVATE KEY", der.as_ref()).as_bytes())?;
            pair
        };
        Self::of(pair)
    }

    fn of(pair: KeyPair) -> Result<Self> {
        let public_der = pair.public_key().as_ref();
        let (modulus, exponent) = public_numbers(public_der)
            .ok_or_else(|| Error::crypto("read the token key's public half", "unknown form"))?;
        let public = ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public_der)
            .map_err(|e| Error::crypto("use the token key's public half", e))?;
        let kid = URL_SAFE_NO_PAD.encode(&Sha256::digest(public_der)[..12]);
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"RS256","typ":"JWT","kid":"{kid}"}}"#));
        Ok(Self { pair, public, header, kid, modulus, exponent })
    }

    /// The key's name in tokens and in the key set.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// A token with these claims, good from `now_s` for `ttl_s`. The times in `claims` are overwritten.
    pub fn issue(&self, mut claims: Claims, ttl_s: i64, now_s: i64) -> Result<String> {
        claims.iat = now_s;
        claims.nbf = now_s;
        claims.exp = now_s.saturating_add(ttl_s);
        let body = serde_json::to_vec(&claims).map_err(|e| Error::crypto("write a token's claims", e))?;
        let mut token = format!("{}.{}", self.header, URL_SAFE_NO_PAD.encode(body));
        let mut signature = vec![0_u8; self.pair.public_modulus_len()];
        self.pair
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), token.as_bytes(), &mut signature)
            .map_err(|e| Error::crypto("sign a token", e))?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    /// The claims of a token that this key signed and that holds at `now_s`.
    ///
    /// # Guarantees
    /// The signature is checked before the claims are read; only RS256 with this key is accepted.
    /// # Assumptions
    /// The caller compares `aud` (and `iss`, where it matters) with what it serves.
    pub fn verify(&self, token: &str, now_s: i64) -> Result<Claims> {
        let refused = |reason| Error::Token { reason };
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refused("it is too long"));
        }
        let (signed, signature) =
            token.rsplit_once('.').ok_or_else(|| refused("it is not a JSON Web Token"))?;
        let (header, body) = signed.split_once('.').ok_or_else(|| refused("it is not a JSON Web Token"))?;
        if header != self.header {
            return Err(refused("it was not issued by this server"));
        }
        let signature =
            URL_SAFE_NO_PAD.decode(signature).map_err(|_| refused("its signature is not readable"))?;
        self.public
            .verify_sig(signed.as_bytes(), &signature)
            .map_err(|_| refused("its signature does not fit"))?;
        let claims: Claims = URL_SAFE_NO_PAD
            .decode(body)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or_else(|| refused("its claims are not readable"))?;
        if claims.exp <= now_s {
            return Err(refused("it has expired"));
        }
        if claims.nbf > now_s.saturating_add(TOKEN_NOT_BEFORE_LEEWAY_S) {
            return Err(refused("it is not valid yet"));
        }
        Ok(claims)
    }

    /// The public key as a JSON Web Key Set, for OpenID discovery.
    #[must_use]
    pub fn key_set(&self) -> serde_json::Value {
        serde_json::json!({"keys": [{
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid,
            "n": URL_SAFE_NO_PAD.encode(&self.modulus),
            "e": URL_SAFE_NO_PAD.encode(&self.exponent),
        }]})
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

/// Modulus and exponent out of a DER `RSAPublicKey`, without leading zeros.
fn public_numbers(der: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (sequence, rest) = der_element(der, 0x30)?;
    let (modulus, tail) = der_element(sequence, 0x02)?;
    let (exponent, end) = der_element(tail, 0x02)?;
    (rest.is_empty() && end.is_empty()).then(|| (unpadded(modulus), unpadded(exponent)))
}

fn unpadded(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

/// The content of the element with this tag at the start, and what follows it.
fn der_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    if first < 0x80 {
        return rest.split_at_checked(usize::from(first));
    }
    let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
    if length.len() > 4 {
        return None;
    }
    let length = length.iter().fold(0_usize, |n, byte| n << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            iss: "https://127.0.0.1:8443/t/v2.0".into(),
            aud: "https://ml.azure.local".into(),
            sub: "someone".into(),
            oid: "0-1".into(),
            tid: "t".into(),
            roles: vec!["Owner".into()],
            name: Some("Some One".into()),
            ..Claims::default()
        }
    }

    #[test]
    fn a_token_holds_from_issue_to_expiry_also_after_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jwt.key");
        let token = Issuer::open(&path).unwrap().issue(claims(), 3_600, 1_000).unwrap();
        let issuer = Issuer::open(&path).unwrap();
        let read = issuer.verify(&token, 1_000).unwrap();
        assert_eq!((read.iat, read.nbf, read.exp), (1_000, 1_000, 4_600));
        assert_eq!((&read.aud, &read.roles), (&claims().aud, &claims().roles));
        assert!(issuer.verify(&token, 4_599).is_ok());
        assert!(issuer.verify(&token, 4_600).is_err(), "expired");
        assert!(issuer.verify(&token, 939).is_err(), "not yet valid");
        assert_eq!(token.split('.').count(), 3);
    }

    #[test]
    fn tampering_other_algorithms_and_other_keys_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let issuer = Issuer::open(&folder.path().join("a.key")).unwrap();
        let other = Issuer::open(&folder.path().join("b.key")).unwrap();
        let token = issuer.issue(claims(), 3_600, 1_000).unwrap();
        assert!(other.verify(&token, 1_000).is_err());
        let parts: Vec<_> = token.split('.').collect();
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
        let hmac = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
        let richer = URL_SAFE_NO_PAD.encode(r#"{"iss":"x","aud":"y","sub":"admin","exp":99999999999}"#);
        for forged in [
            String::new(),
            "a.b".into(),
            "..".into(),
            format!("{none}.{}.", parts[1]),
            format!("{hmac}.{}.{}", parts[1], parts[2]),
            format!("{}.{richer}.{}", parts[0], parts[2]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{token}.x"),
            "x".repeat(TOKEN_BYTES_MAX + 1),
        ] {
            assert!(issuer.verify(&forged, 1_000).is_err(), "{forged}");
        }
        // Every twentieth character, so that all three parts are touched.
        for at in (0..token.len()).step_by(20) {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let touched = String::from_utf8(bytes).unwrap();
            assert!(issuer.verify(&touched, 1_000).is_err(), "at {at}");
        }
    }

    #[test]
    fn the_key_set_holds_the_public_half_only() {
        let folder = tempfile::tempdir().unwrap();
        let issuer = Issuer::open(&folder.path().join("a.key")).unwrap();
        let set = issuer.key_set();
        let key = &set["keys"][0];
        assert_eq!(key["kid"], issuer.kid());
        assert_eq!(key["e"], "AQAB");
        let n = URL_SAFE_NO_PAD.decode(key["n"].as_str().unwrap()).unwrap();
        assert_eq!(n.len(), 256);
        assert_eq!(key.as_object().unwrap().len(), 6);
    }

    #[test]
    fn a_damaged_key_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jwt.key");
        std::fs::write(&path, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
        let error = Issuer::open(&path).unwrap_err().to_string();
        assert!(error.contains("jwt.key"), "{error}");
    }
}
