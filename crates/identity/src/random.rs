//! Random bytes and names from the operating system's source, which is never seeded; and names that follow from words.

use aws_lc_rs::rand;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// `N` random bytes.
pub fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0_u8; N];
    rand::fill(&mut bytes).map_err(|e| Error::crypto("draw random bytes", e))?;
    Ok(bytes)
}

/// A random (version 4) GUID in lower case.
pub fn random_guid() -> Result<String> {
    Ok(guid(random_bytes::<16>()?, 0x40))
}

/// A GUID that is always the same for the same words: principals, workspace and experiment ids.
#[must_use]
pub fn derived_guid(words: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for word in words {
        hasher.update(word.as_bytes());
        hasher.update([0]);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    guid(bytes, 0x50)
}

fn guid(mut b: [u8; 16], version: u8) -> String {
    b[6] = (b[6] & 0x0f) | version;
    b[8] = (b[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (i, byte) in b.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        text.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_have_the_known_shape_and_differ() {
        let (a, b) = (random_guid().unwrap(), random_guid().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.len(), 36);
        assert_eq!(a.as_bytes()[14], b'4');
        assert!(matches!(a.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    }

    #[test]
    fn derived_guids_hold_still() {
        assert_eq!(derived_guid(&["a", "1"]), derived_guid(&["a", "1"]));
        assert_ne!(derived_guid(&["a", "1"]), derived_guid(&["a1", ""]));
        assert_eq!(derived_guid(&["a"]).len(), 36);
        assert_eq!(derived_guid(&["a"]).as_bytes()[14], b'5');
    }
}
