//! Secret documents at rest: AES-256-GCM under one key of the installation. The document's name is
//! bound to its content, so that one document cannot be put in another's place.

use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::{Error, Result, files, random_bytes};

/// First byte of a sealed document: the format.
const FORMAT: u8 = 1;

/// Seals and opens secret documents.
pub struct Vault {
    key: LessSafeKey,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vault(hidden)")
    }
}

impl Vault {
    /// Opens the vault whose key is in this file, or makes the key.
    pub fn open(key_file: &Path) -> Result<Self> {
        let key = files::open_or_create_key(key_file)?;
        let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|e| Error::crypto("use the vault's key", e))?;
        Ok(Self { key: LessSafeKey::new(key) })
    }

    /// Opens the vault whose key is in this file; none where there is no such file.
    pub fn open_existing(key_file: &Path) -> Result<Option<Self>> {
        if key_file.exists() { Self::open(key_file).map(Some) } else { Ok(None) }
    }

    /// Encrypts a document under its name. Twice the same text gives two different results.
    pub fn seal(&self, name: &str, text: &[u8]) -> Result<Vec<u8>> {
        let nonce = random_bytes::<NONCE_LEN>()?;
        let mut body = text.to_vec();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut body,
            )
            .map_err(|e| Error::crypto("encrypt a secret document", e))?;
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + body.len());
        sealed.push(FORMAT);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&body);
        Ok(sealed)
    }

    /// Encrypts a document under its name, as text for a JSON document.
    pub fn encode(&self, name: &str, text: &[u8]) -> Result<String> {
        Ok(STANDARD.encode(self.seal(name, text)?))
    }

    /// Decrypts what [`Self::encode`] made.
    pub fn decode(&self, name: &str, sealed: &str) -> Result<Vec<u8>> {
        let sealed = STANDARD.decode(sealed).map_err(|_| Error::Sealed { name: name.to_owned() })?;
        self.open_document(name, &sealed)
    }

    /// Decrypts a document that was sealed under this name.
    pub fn open_document(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>> {
        let refused = || Error::Sealed { name: name.to_owned() };
        let [FORMAT, rest @ ..] = sealed else {
            return Err(refused());
        };
        let (nonce, body) = rest.split_at_checked(NONCE_LEN).ok_or_else(refused)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| refused())?;
        let mut body = body.to_vec();
        let length = self
            .key
            .open_in_place(nonce, Aad::from(name.as_bytes()), &mut body)
            .map_err(|_| refused())?
            .len();
        body.truncate(length);
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_and_what_was_touched_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let vault = Vault::open(&folder.path().join("vault.key")).unwrap();
        let sealed = vault.seal("cluster/1/ssh", b"hunter2").unwrap();
        assert_ne!(sealed, vault.seal("cluster/1/ssh", b"hunter2").unwrap());
        let again = Vault::open(&folder.path().join("vault.key")).unwrap();
        assert_eq!(again.open_document("cluster/1/ssh", &sealed).unwrap(), b"hunter2");
        assert!(again.open_document("cluster/2/ssh", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut touched = sealed.clone();
            touched[at] ^= 1;
            assert!(vault.open_document("cluster/1/ssh", &touched).is_err());
            assert!(vault.open_document("cluster/1/ssh", &sealed[..at]).is_err());
        }
        let other = Vault::open(&folder.path().join("other.key")).unwrap();
        assert!(other.open_document("cluster/1/ssh", &sealed).is_err());
    }
}
