//! Join tokens: how a node that has nothing yet proves that this server asked for it. A token names
//! one node, ends soon, and is good for one use; the use is remembered by the caller in [`UsedNonces`].

use std::collections::BTreeMap;
use std::path::Path;

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{Error, JOIN_TOKEN_BYTES_MAX, Result, USED_NONCES_MAX, files, random_bytes};

const PREFIX: &str = "neapjoin1.";
const NONCE_BYTES: usize = 16;
/// node id, expiry, nonce.
const BODY_BYTES: usize = 8 + 8 + NONCE_BYTES;
const MAC_BYTES: usize = 32;

/// What a valid join token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinClaim {
    /// The node that may join.
    pub node: u64,
    /// What makes this token unlike any other.
    pub nonce: [u8; NONCE_BYTES],
    /// When the token ends, unix seconds.
    pub expires_s: i64,
}

/// Makes and checks join tokens with the server's key.
pub struct JoinTokens {
    key: hmac::Key,
}

impl std::fmt::Debug for JoinTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinTokens(hidden)")
    }
}

impl JoinTokens {
    /// Opens the key in this file, or makes it.
    pub fn open(key_file: &Path) -> Result<Self> {
        let key = files::open_or_create_key(key_file)?;
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key) })
    }

    /// A token with which this node may join once, until `now_s + ttl_s`.
    pub fn issue(&self, node: u64, now_s: i64, ttl_s: i64) -> Result<String> {
        let mut token = Vec::with_capacity(BODY_BYTES + MAC_BYTES);
        token.extend_from_slice(&node.to_be_bytes());
        token.extend_from_slice(&now_s.saturating_add(ttl_s).to_be_bytes());
        token.extend_from_slice(&random_bytes::<NONCE_BYTES>()?);
        let mac = hmac::sign(&self.key, &token);
        token.extend_from_slice(mac.as_ref());
        Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(token)))
    }

    /// What the token says, if it is ours and has not ended.
    pub fn verify(&self, token: &str, now_s: i64) -> Result<JoinClaim> {
        let refused = |reason| Error::Token { reason };
        if token.len() > JOIN_TOKEN_BYTES_MAX {
            return Err(refused("it is too long for a join token"));
        }
        let bytes = token
            .strip_prefix(PREFIX)
            .and_then(|text| URL_SAFE_NO_PAD.decode(text).ok())
            .filter(|bytes| bytes.len() == BODY_BYTES + MAC_BYTES)
            .ok_or_else(|| refused("it is not a join token"))?;
        let (body, mac) = bytes.split_at(BODY_BYTES);
        hmac::verify(&self.key, body, mac).map_err(|_| refused("it was not issued by this server"))?;
        let claim = read(body).ok_or_else(|| refused("it is not a join token"))?;
        if claim.expires_s <= now_s {
            return Err(refused("it has expired"));
        }
        Ok(claim)
    }
}

fn read(body: &[u8]) -> Option<JoinClaim> {
    let (node, rest) = body.split_first_chunk::<8>()?;
    let (expires, rest) = rest.split_first_chunk::<8>()?;
    Some(JoinClaim {
        node: u64::from_be_bytes(*node),
        expires_s: i64::from_be_bytes(*expires),
        nonce: rest.try_into().ok()?,
    })
}

/// The nonces of tokens that were used and have not expired: what makes a token good for one use.
///
/// Bounded: it forgets a nonce when its token has ended anyway, and refuses rather than forget one earlier.
#[derive(Debug, Default)]
pub struct UsedNonces {
    ends: BTreeMap<[u8; NONCE_BYTES], i64>,
}

impl UsedNonces {
    /// Nothing was used yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the claim's token as used. The second use of a token is an error.
    pub fn redeem(&mut self, claim: &JoinClaim, now_s: i64) -> Result<()> {
        if self.ends.contains_key(&claim.nonce) {
            return Err(Error::Token { reason: "it was used before" });
        }
        if self.ends.len() >= USED_NONCES_MAX {
            self.ends.retain(|_, end| *end > now_s);
        }
        if self.ends.len() >= USED_NONCES_MAX {
            return Err(Error::TooManyNonces { max: USED_NONCES_MAX });
        }
        self.ends.insert(claim.nonce, claim.expires_s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(folder: &tempfile::TempDir, name: &str) -> JoinTokens {
        JoinTokens::open(&folder.path().join(name)).unwrap()
    }

    #[test]
    fn a_token_says_its_node_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let issuing = tokens(&folder, "a.key");
        let token = issuing.issue(7, 1_000, 60).unwrap();
        let claim = tokens(&folder, "a.key").verify(&token, 1_059).unwrap();
        assert_eq!((claim.node, claim.expires_s), (7, 1_060));
        assert!(issuing.verify(&token, 1_060).is_err());
        assert!(tokens(&folder, "b.key").verify(&token, 1_000).is_err());
    }

    #[test]
    fn every_changed_character_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = tokens(&folder, "a.key");
        let token = tokens.issue(7, 1_000, 60).unwrap();
        for at in 0..token.len() {
            let mut touched = token.clone().into_bytes();
            touched[at] = if touched[at] == b'A' { b'B' } else { b'A' };
            let touched = String::from_utf8(touched).unwrap();
            assert!(tokens.verify(&touched, 1_000).is_err(), "at {at}");
        }
        for text in ["", "neapjoin1.", &"x".repeat(10_000)] {
            assert!(tokens.verify(text, 1_000).is_err());
        }
    }

    #[test]
    fn a_token_is_redeemed_once_and_the_memory_is_bounded() {
        let claim = |n: u32, expires_s| JoinClaim {
            node: 1,
            nonce: {
                let mut nonce = [0; NONCE_BYTES];
                nonce[..4].copy_from_slice(&n.to_be_bytes());
                nonce
            },
            expires_s,
        };
        let mut used = UsedNonces::new();
        used.redeem(&claim(0, 10), 0).unwrap();
        assert!(used.redeem(&claim(0, 10), 0).is_err());
        for n in 1..u32::try_from(USED_NONCES_MAX).unwrap() {
            used.redeem(&claim(n, 10), 0).unwrap();
        }
        let next = claim(u32::MAX, 100);
        assert!(matches!(used.redeem(&next, 9), Err(Error::TooManyNonces { .. })));
        used.redeem(&next, 10).unwrap();
        assert_eq!(used.ends.len(), 1);
    }
}
