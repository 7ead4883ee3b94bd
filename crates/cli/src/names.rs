//! Names that the client makes up: of jobs without one, and of code snapshots.

use crate::failure::{Failure, Outcome};
use sha2::{Digest, Sha256};

const QUALITIES: &[&str] = &[
    "ample", "brisk", "calm", "clear", "deep", "eager", "fair", "full", "gentle", "high", "keen", "low",
    "mild", "quick", "rising", "salty", "slack", "steady", "swift", "wide",
];
const THINGS: &[&str] = &[
    "anchor", "bay", "beacon", "buoy", "cove", "current", "ebb", "estuary", "gull", "harbour", "kelp",
    "lagoon", "mooring", "pier", "reef", "shoal", "sound", "strand", "swell", "tide",
];

/// A job name such as `brisk_tide_4k2m9x7qpz`.
pub fn job_name() -> Outcome<String> {
    const LETTERS: &[u8] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let random = random::<12>()?;
    let mut name = format!(
        "{}_{}_",
        QUALITIES[usize::from(random[0]) % QUALITIES.len()],
        THINGS[usize::from(random[1]) % THINGS.len()]
    );
    name.extend(random[2..].iter().map(|byte| char::from(LETTERS[usize::from(byte & 31)])));
    Ok(name)
}

/// A random (version 4) UUID.
pub fn uuid() -> Outcome<String> {
    let mut bytes = random::<16>()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex(&bytes);
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

/// A UUID made of the content that it names: the same content has the same one.
pub fn content_uuid(content: &[u8]) -> String {
    let hex = hex(&Sha256::digest(content));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32])
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn random<const N: usize>() -> Outcome<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed(format!("the system gives no random numbers: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_have_their_forms() {
        let name = super::job_name().unwrap();
        assert_eq!(name.split('_').count(), 3, "{name}");
        let uuid = super::uuid().unwrap();
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"), "{uuid}");
        assert_eq!(super::content_uuid(b"x"), super::content_uuid(b"x"));
        assert_ne!(super::content_uuid(b"x"), super::content_uuid(b"y"));
    }
}
