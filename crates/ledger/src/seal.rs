//! Documents as they lie in the database: sealed with the installation's key, or in the clear as releases before 0.2 wrote them.
//!
//! A sealed row has an empty salt. Salt and body are encrypted together, because a hash with a readable salt would let
//! anyone with the file try likely values of a password. The hash that events name is still the hash of the plain
//! body, so the chain does not depend on the key.

use std::fmt::Debug;
use std::sync::Arc;

use neap_core::DocHash;

use crate::error::Error;

/// Length of a document's salt.
pub(crate) const SALT_BYTES: usize = 16;

/// Encrypts documents. The ledger does not know the key or the cipher.
pub trait Seal: Debug + Send + Sync {
    /// Encrypts a text and binds it to its name.
    fn seal(&self, name: &str, text: &[u8]) -> Result<Vec<u8>, String>;

    /// Decrypts what was sealed under this name.
    fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, String>;
}

/// A ledger without a seal writes documents in the clear.
pub(crate) type Sealing = Option<Arc<dyn Seal>>;

/// The name that a document is sealed under.
fn name_of(hash: &DocHash) -> String {
    format!("ledger/document/{hash}")
}

/// The columns `salt` and `body` of a document.
pub(crate) fn to_row(
    seal: &Sealing,
    hash: &DocHash,
    salt: &[u8; SALT_BYTES],
    body: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let Some(seal) = seal else { return Ok((salt.to_vec(), body.to_vec())) };
    let mut text = Vec::with_capacity(SALT_BYTES + body.len());
    text.extend_from_slice(salt);
    text.extend_from_slice(body);
    let sealed =
        seal.seal(&name_of(hash), &text).map_err(|detail| Error::Seal { document: *hash, detail })?;
    Ok((Vec::new(), sealed))
}

/// Salt and body from the columns of a document.
pub(crate) fn from_row(
    seal: &Sealing,
    hash: &DocHash,
    salt: Vec<u8>,
    body: Vec<u8>,
) -> Result<(Vec<u8>, Vec<u8>), Error> {
    if !salt.is_empty() {
        return Ok((salt, body));
    }
    let refused = |detail: String| Error::Seal { document: *hash, detail };
    let seal = seal.as_ref().ok_or_else(|| refused("the ledger was opened without a key".into()))?;
    let mut text = seal.open(&name_of(hash), &body).map_err(refused)?;
    if text.len() < SALT_BYTES {
        return Err(refused("it is shorter than a salt".into()));
    }
    let body = text.split_off(SALT_BYTES);
    Ok((text, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns each byte around; refuses a text that was sealed under another name.
    #[derive(Debug)]
    struct Turned;

    impl Seal for Turned {
        fn seal(&self, name: &str, text: &[u8]) -> Result<Vec<u8>, String> {
            Ok([name.as_bytes(), b"|", text].concat().iter().map(|b| !b).collect())
        }

        fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, String> {
            let text: Vec<u8> = sealed.iter().map(|b| !b).collect();
            let prefix = [name.as_bytes(), b"|"].concat();
            text.strip_prefix(prefix.as_slice()).map(<[u8]>::to_vec).ok_or_else(|| "another name".into())
        }
    }

    #[test]
    fn a_sealed_row_opens_under_its_own_hash_only() {
        let seal: Sealing = Some(Arc::new(Turned));
        let (salt, body) = ([7; SALT_BYTES], b"PASSWORD=hunter2".as_slice());
        let hash = DocHash::of(&salt, body);
        let (stored_salt, stored) = to_row(&seal, &hash, &salt, body).unwrap();
        assert!(stored_salt.is_empty());
        assert!(!stored.windows(7).any(|part| part == b"hunter2"));
        let opened = from_row(&seal, &hash, stored_salt.clone(), stored.clone()).unwrap();
        assert_eq!(opened, (salt.to_vec(), body.to_vec()));
        assert!(from_row(&seal, &DocHash([0; 32]), stored_salt.clone(), stored.clone()).is_err());
        assert!(from_row(&None, &hash, stored_salt, stored).is_err());
    }

    #[test]
    fn rows_of_older_releases_need_no_key() {
        let (salt, body) = ([7; SALT_BYTES], b"body".as_slice());
        let hash = DocHash::of(&salt, body);
        let (stored_salt, stored) = to_row(&None, &hash, &salt, body).unwrap();
        for seal in [None, Some(Arc::new(Turned) as Arc<dyn Seal>)] {
            let opened = from_row(&seal, &hash, stored_salt.clone(), stored.clone()).unwrap();
            assert_eq!(opened.1, body);
        }
    }
}
