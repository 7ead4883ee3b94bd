//! The identity secret: what a client shows to the token endpoint instead of a password
//! (`IDENTITY_HEADER` of Azure's App Service protocol). It is never logged and never compared byte by byte.

use std::path::Path;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{KEY_BYTES, Result, files, random_bytes};

/// A secret of 32 random bytes, written as base64url.
#[derive(Clone)]
pub struct IdentitySecret(String);

impl IdentitySecret {
    /// Reads the secret from its file, or makes both.
    pub fn open(path: &Path) -> Result<Self> {
        const WHAT: &str = "an identity secret (43 base64url characters)";
        if let Some(text) = files::read_text(path, WHAT)? {
            let text = text.trim();
            let whole = URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == KEY_BYTES);
            return if whole {
                Ok(Self(text.to_owned()))
            } else {
                Err(files::damaged(path, WHAT, "it has another form"))
            };
        }
        if let Some(folder) = path.parent() {
            files::make_private_folder(folder)?;
        }
        let text = URL_SAFE_NO_PAD.encode(random_bytes::<KEY_BYTES>()?);
        files::write_private(path, text.as_bytes())?;
        Ok(Self(text))
    }

    /// A new secret that is kept nowhere; for one attempt's token endpoint.
    pub fn generate() -> Result<Self> {
        Ok(Self(URL_SAFE_NO_PAD.encode(random_bytes::<KEY_BYTES>()?)))
    }

    /// The secret itself, for the client file that is made for its owner.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether the presented text is the secret. Takes the same time for every text of that length.
    #[must_use]
    pub fn matches(&self, presented: &str) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), presented.as_bytes()).is_ok()
    }
}

impl std::fmt::Debug for IdentitySecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdentitySecret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_survives_reopening_and_only_itself_matches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let secret = IdentitySecret::open(&path).unwrap();
        let again = IdentitySecret::open(&path).unwrap();
        assert!(again.matches(secret.reveal()));
        for wrong in ["", "x", &secret.reveal()[1..]] {
            assert!(!secret.matches(wrong), "{wrong:?}");
        }
        assert!(!secret.matches(IdentitySecret::generate().unwrap().reveal()));
        assert!(!format!("{secret:?}").contains(secret.reveal()));
        std::fs::write(&path, "cut").unwrap();
        assert!(IdentitySecret::open(&path).is_err());
    }
}
