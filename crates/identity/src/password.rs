//! Password hashes: PBKDF2 with HMAC-SHA256 and a salt of their own. The password itself is never kept.

use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};

use crate::{PASSWORD_ITERATIONS, PASSWORD_ITERATIONS_MAX, Result, random_bytes};

const NAME: &str = "pbkdf2-sha256";
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// A stored password hash: `$pbkdf2-sha256$<iterations>$<salt>$<hash>`.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

impl PasswordHash {
    /// Hashes a password with a new salt. Deliberately slow: keep it off the threads that serve.
    pub fn make(password: &str) -> Result<Self> {
        let salt = random_bytes::<SALT_BYTES>()?;
        let mut hash = [0_u8; HASH_BYTES];
        let iterations = NonZeroU32::new(PASSWORD_ITERATIONS).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut hash);
        Ok(Self(format!(
            "${NAME}${iterations}${}${}",
            STANDARD_NO_PAD.encode(salt),
            STANDARD_NO_PAD.encode(hash)
        )))
    }

    /// A hash as it was stored. Its form is checked when a password is verified.
    #[must_use]
    pub fn from_stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text to store.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the password. A hash that cannot be read matches nothing.
    #[must_use]
    pub fn verify(&self, password: &str) -> bool {
        self.try_verify(password).unwrap_or(false)
    }

    fn try_verify(&self, password: &str) -> Option<bool> {
        let mut parts = self.0.strip_prefix('$')?.split('$');
        if parts.next()? != NAME {
            return None;
        }
        let iterations: NonZeroU32 = parts.next()?.parse().ok()?;
        if iterations.get() > PASSWORD_ITERATIONS_MAX {
            return None;
        }
        let salt = STANDARD_NO_PAD.decode(parts.next()?).ok()?;
        let hash = STANDARD_NO_PAD.decode(parts.next()?).ok()?;
        if hash.len() != HASH_BYTES || parts.next().is_some() {
            return None;
        }
        Some(
            pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &hash).is_ok(),
        )
    }
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_verifies() {
        let hash = PasswordHash::make("correct horse").unwrap();
        assert!(PasswordHash::from_stored(hash.as_str()).verify("correct horse"));
        assert!(!hash.verify("correct horsf"));
        assert!(!hash.verify(""));
        assert_ne!(hash, PasswordHash::make("correct horse").unwrap());
    }

    #[test]
    fn a_stored_text_that_is_no_hash_matches_nothing() {
        for text in [
            "",
            "plain",
            "$pbkdf2-sha256$0$$",
            "$pbkdf2-sha256$4000000000$AAAA$AAAA",
            "$pbkdf2-sha256$1$AAAA$",
            "$md5$1$AAAA$AAAA",
        ] {
            assert!(!PasswordHash::from_stored(text).verify(""), "{text:?}");
        }
    }
}
