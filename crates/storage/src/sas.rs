//! Signed URLs: a query that gives whoever holds it some permissions on a container, a directory or a
//! blob until a time. It looks like Azure's, so that Azure's clients carry it; it is signed with this
//! installation's key over fields of our own choosing, and nothing else opens it.

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::SAS_LIFETIME_S_MAX;

/// The version of Azure's format that the query looks like.
const VERSION: &str = "2023-11-03";
/// What stays as it is in a query value.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Something that a signed URL may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Read content and properties.
    Read,
    /// Append.
    Add,
    /// Make new blobs.
    Create,
    /// Write and overwrite.
    Write,
    /// Delete.
    Delete,
    /// List names.
    List,
}

impl Permission {
    /// All of them, in the order in which a query writes them.
    pub const ALL: [Self; 6] = [Self::Read, Self::Add, Self::Create, Self::Write, Self::Delete, Self::List];

    fn letter(self) -> char {
        match self {
            Self::Read => 'r',
            Self::Add => 'a',
            Self::Create => 'c',
            Self::Write => 'w',
            Self::Delete => 'd',
            Self::List => 'l',
        }
    }
}

/// What a signed URL reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every blob of the container.
    Container,
    /// Every blob whose name begins with this and a slash.
    Directory(String),
    /// One blob.
    Blob(String),
}

/// What a signed URL gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The account.
    pub account: String,
    /// The container.
    pub container: String,
    /// How much of the container.
    pub scope: Scope,
    /// What may be done.
    pub permissions: Vec<Permission>,
    /// From when, unix seconds; at once where there is none.
    pub starts_s: Option<i64>,
    /// Until when, unix seconds.
    pub expires_s: i64,
}

/// Why a signed URL does not open something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The query has no signature at all.
    #[error("the request is not signed")]
    NotSigned,
    /// The signature is not ours, or not for this resource.
    #[error("the signature does not fit this resource; ask for a new URL")]
    Signature,
    /// A field is missing or not readable.
    #[error("the signed query is incomplete; ask for a new URL")]
    Malformed,
    /// It has ended.
    #[error("the signed URL has expired; ask for a new one")]
    Expired,
    /// It has not begun.
    #[error("the signed URL is not valid yet; check the clock of this machine")]
    NotYet,
    /// It is for other operations.
    #[error("the signed URL does not allow this operation")]
    Permission,
}

/// The key that signs. It is never shown.
#[derive(Clone)]
pub struct SasKey(hmac::Key);

impl std::fmt::Debug for SasKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SasKey(hidden)")
    }
}

/// The fields of a query, as they are written in it.
#[derive(Default)]
struct Fields<'a> {
    sv: &'a str,
    st: &'a str,
    se: &'a str,
    sr: &'a str,
    sp: &'a str,
    sdd: &'a str,
}

impl Fields<'_> {
    /// What is signed. Each field ends with a line feed, which no field may contain except the
    /// resource, which therefore comes last.
    fn to_sign(&self, resource: &str) -> String {
        let Self { sv, st, se, sr, sp, sdd } = self;
        format!("neap-sas-1\n{sv}\n{st}\n{se}\n{sr}\n{sp}\n{sdd}\n{resource}")
    }
}

impl SasKey {
    /// From the bytes of the installation's key file.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// A secret for those who are to share it: the same for the same purpose, and of no use for another. It signs nothing.
    #[must_use]
    pub fn secret_for(&self, purpose: &str) -> String {
        let mac = hmac::sign(&self.0, format!("neap-secret-1\n{purpose}").as_bytes());
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(mac)
    }

    /// The query (without `?`) that carries this grant. A grant for longer than a year is cut to that.
    #[must_use]
    pub fn sign(&self, grant: &Grant, now_s: i64) -> String {
        let expires_s = grant.expires_s.min(now_s.saturating_add(SAS_LIFETIME_S_MAX));
        let (st, se) = (grant.starts_s.map(time_text), time_text(expires_s));
        let sp: String =
            Permission::ALL.iter().filter(|p| grant.permissions.contains(p)).map(|p| p.letter()).collect();
        let (sr, depth, inside) = match &grant.scope {
            Scope::Container => ("c", None, ""),
            Scope::Directory(path) => match path.trim_matches('/') {
                "" => ("c", None, ""),
                path => ("d", Some(path.split('/').count().to_string()), path),
            },
            Scope::Blob(name) => ("b", None, name.as_str()),
        };
        let fields = Fields {
            sv: VERSION,
            st: st.as_deref().unwrap_or_default(),
            se: &se,
            sr,
            sp: &sp,
            sdd: depth.as_deref().unwrap_or_default(),
        };
        let text = fields.to_sign(&resource(&grant.account, &grant.container, inside));
        let signature = STANDARD.encode(hmac::sign(&self.0, text.as_bytes()));
        let named = [
            ("sv", fields.sv),
            ("st", fields.st),
            ("se", fields.se),
            ("sr", fields.sr),
            ("sp", fields.sp),
            ("sdd", fields.sdd),
            ("sig", &signature),
        ];
        let pairs = named.iter().filter(|(_, value)| !value.is_empty());
        let parts: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, QUERY))).collect();
        parts.join("&")
    }

    /// Whether the query opens this blob (or, for a listing, this prefix) for one of the operations.
    ///
    /// `query` is decoded. For an operation on the container itself `name` is empty.
    pub fn check<'a>(
        &self,
        query: impl IntoIterator<Item = (&'a str, &'a str)>,
        account: &str,
        container: &str,
        name: &str,
        any_of: &[Permission],
        now_s: i64,
    ) -> Result<(), Refusal> {
        let (mut fields, mut signature) = (Fields::default(), None);
        for (key, value) in query {
            match key {
                "sv" => fields.sv = value,
                "st" => fields.st = value,
                "se" => fields.se = value,
                "sr" => fields.sr = value,
                "sp" => fields.sp = value,
                "sdd" => fields.sdd = value,
                "sig" => signature = Some(value),
                _ => {}
            }
        }
        let signature = signature.ok_or(Refusal::NotSigned)?;
        let signature = STANDARD.decode(signature).map_err(|_| Refusal::Signature)?;
        let inside = match fields.sr {
            "c" => "",
            "b" => name,
            "d" => {
                let depth: usize = fields.sdd.parse().map_err(|_| Refusal::Malformed)?;
                directory_of(name, depth).ok_or(Refusal::Signature)?
            }
            _ => return Err(Refusal::Malformed),
        };
        let text = fields.to_sign(&resource(account, container, inside));
        // Compares in constant time.
        hmac::verify(&self.0, text.as_bytes(), &signature).map_err(|_| Refusal::Signature)?;
        let end: Timestamp = fields.se.parse().map_err(|_| Refusal::Malformed)?;
        if end.as_second() <= now_s {
            return Err(Refusal::Expired);
        }
        if !fields.st.is_empty() {
            let start: Timestamp = fields.st.parse().map_err(|_| Refusal::Malformed)?;
            if start.as_second() > now_s {
                return Err(Refusal::NotYet);
            }
        }
        let allowed = any_of.iter().any(|p| {
            // A blob's own URL says nothing about its neighbours' names.
            fields.sp.contains(p.letter()) && !(fields.sr == "b" && *p == Permission::List)
        });
        if allowed { Ok(()) } else { Err(Refusal::Permission) }
    }
}

fn resource(account: &str, container: &str, inside: &str) -> String {
    format!("/blob/{account}/{container}/{inside}")
}

/// The first `depth` segments of a name that goes on below them.
fn directory_of(name: &str, depth: usize) -> Option<&str> {
    let slash = name.match_indices('/').nth(depth.checked_sub(1)?)?.0;
    Some(&name[..slash])
}

fn time_text(unix_s: i64) -> String {
    let time = Timestamp::from_second(unix_s).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn grant(scope: Scope, permissions: &[Permission]) -> Grant {
        Grant {
            account: "neapst1".into(),
            container: "cont".into(),
            scope,
            permissions: permissions.to_vec(),
            starts_s: None,
            expires_s: NOW + 60,
        }
    }

    fn decode(query: &str) -> Vec<(String, String)> {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap();
            let value = percent_encoding::percent_decode_str(value).decode_utf8().unwrap();
            (name.to_owned(), value.into_owned())
        };
        query.split('&').map(pair).collect()
    }

    fn check(
        query: &[(String, String)],
        container: &str,
        name: &str,
        p: Permission,
        now_s: i64,
    ) -> Result<(), Refusal> {
        let pairs = query.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        SasKey::new(b"key").check(pairs, "neapst1", container, name, &[p], now_s)
    }

    #[test]
    fn each_scope_opens_what_it_names_and_nothing_else() {
        use Permission::{Delete, List, Read};
        let directory = Scope::Directory("runs/a".into());
        let blob = Scope::Blob("runs/a/log.txt".into());
        for (scope, name, permission, expected) in [
            (Scope::Container, "x", Read, Ok(())),
            (Scope::Container, "", List, Ok(())),
            (Scope::Container, "x", Delete, Err(Refusal::Permission)),
            (directory.clone(), "runs/a/x/y", Read, Ok(())),
            (directory.clone(), "runs/a/", List, Ok(())),
            (directory.clone(), "runs/a", List, Err(Refusal::Signature)),
            (directory.clone(), "runs/ab/x", Read, Err(Refusal::Signature)),
            (directory.clone(), "runs", Read, Err(Refusal::Signature)),
            (directory, "", List, Err(Refusal::Signature)),
            (blob.clone(), "runs/a/log.txt", Read, Ok(())),
            (blob.clone(), "runs/a/log.txt", List, Err(Refusal::Permission)),
            (blob.clone(), "runs/a/log.txt2", Read, Err(Refusal::Signature)),
            (blob, "", List, Err(Refusal::Signature)),
        ] {
            let query = decode(&SasKey::new(b"key").sign(&grant(scope.clone(), &[Read, List]), NOW));
            assert_eq!(check(&query, "cont", name, permission, NOW), expected, "{scope:?} {name:?}");
            assert!(check(&query, "other", name, permission, NOW).is_err());
        }
    }

    #[test]
    fn times_are_kept() {
        let mut limited = grant(Scope::Container, &[Permission::Read]);
        limited.starts_s = Some(NOW);
        let query = decode(&SasKey::new(b"key").sign(&limited, NOW));
        let at = |now_s| check(&query, "cont", "x", Permission::Read, now_s);
        assert_eq!(at(NOW - 1), Err(Refusal::NotYet));
        assert_eq!(at(NOW), Ok(()));
        assert_eq!(at(NOW + 60), Err(Refusal::Expired));
        limited.expires_s = i64::MAX;
        let query = decode(&SasKey::new(b"key").sign(&limited, NOW));
        let late = check(&query, "cont", "x", Permission::Read, NOW + SAS_LIFETIME_S_MAX);
        assert_eq!(late, Err(Refusal::Expired));
    }

    #[test]
    fn tampering_with_any_field_is_noticed() {
        let query = decode(&SasKey::new(b"key").sign(&grant(Scope::Container, &[Permission::Read]), NOW));
        assert_eq!(check(&query, "cont", "x", Permission::Read, NOW), Ok(()));
        for (field, value) in [
            ("sp", "racwdl"),
            ("se", "2999-01-01T00:00:00Z"),
            ("sr", "b"),
            ("sv", "2020-01-01"),
            ("sig", "AAAA"),
            ("sig", "not base64"),
        ] {
            let mut touched = query.clone();
            for pair in &mut touched {
                if pair.0 == field {
                    pair.1 = value.to_owned();
                }
            }
            assert!(check(&touched, "cont", "x", Permission::Read, NOW).is_err(), "{field}");
        }
        let other = SasKey::new(b"other").sign(&grant(Scope::Container, &[Permission::Read]), NOW);
        assert_eq!(check(&decode(&other), "cont", "x", Permission::Read, NOW), Err(Refusal::Signature));
        assert_eq!(check(&[], "cont", "x", Permission::Read, NOW), Err(Refusal::NotSigned));
    }
}
