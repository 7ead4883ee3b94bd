//! Signed URLs: a query that gives whoever holds it some permissions on a container, a directory or a
//! blob until a time. It looks like Azure's, so that Azure's clients carry it; it is signed with this
//! installation's key over fields of our own choosing, and nothing else opens it.
//!
//! A grant may be bound to one attempt of a job ([`Bound`]): the query names the attempt, the signature covers the name,
//! and the caller of [`SasKey::check`] must ask whether that attempt still lives. A grant that also names a node has no
//! end of its own. It opens nothing without that node's current pass ([`SasKey::pass`]), which lasts minutes and which
//! the server renews with the node's lease.

use aws_lc_rs::hmac;
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::SAS_LIFETIME_S_MAX;
use crate::foreign::WEB_QUERY;

/// The version of Azure's format that the query looks like.
const VERSION: &str = "2023-11-03";
/// The query field that names the attempt: `JOB.ATTEMPT`, or `JOB.ATTEMPT.NODE`.
const ATTEMPT: &str = "neap-attempt";
/// The query field that carries a node's pass: `EXPIRES.MAC`.
pub const PASS: &str = "neap-pass";
/// Everything in a query that says what it opens; each at most once.
const FIELDS: [&str; 10] = ["sv", "st", "se", "sr", "sp", "sdd", ATTEMPT, WEB_QUERY, PASS, "sig"];
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
    /// Until when, unix seconds. Not used where `bound` names a node: the node's pass decides there.
    pub expires_s: i64,
    /// The attempt that this grant is for, if it is for one.
    pub bound: Option<Bound>,
    /// The query of the web address behind a name in `~http` or `~https`.
    pub web_query: Option<String>,
}

/// The attempt that a grant is for. The grant is worth nothing once that attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The job's number.
    pub job: u64,
    /// The attempt's number.
    pub attempt: u32,
    /// The node whose agent holds the grant. The grant then needs that node's pass.
    pub node: Option<u64>,
}

impl Bound {
    fn text(self) -> String {
        let Self { job, attempt, node } = self;
        node.map_or_else(|| format!("{job}.{attempt}"), |node| format!("{job}.{attempt}.{node}"))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (job, attempt) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let node = parts.next().map(str::parse).transpose().ok()?;
        parts.next().is_none().then_some(Self { job, attempt, node })
    }
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
    /// The pass of its node is missing, is not ours, or has ended.
    #[error(
        "the pass beside the attempt's URL is missing or has expired; the node's next lease renewal brings a new one"
    )]
    Pass,
    /// The attempt that it was made for has ended.
    #[error("the attempt that the signed URL was made for is over")]
    AttemptOver,
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
    attempt: &'a str,
    web_query: &'a str,
}

impl Fields<'_> {
    /// What is signed. Each part is written with its length, so no two different grants give the same text.
    fn to_sign(&self, account: &str, container: &str, inside: &str) -> String {
        let Self { sv, st, se, sr, sp, sdd, attempt, web_query } = self;
        let parts = [*sv, st, se, sr, sp, sdd, attempt, web_query, account, container, inside];
        let mut text = String::from("neap-sas-2");
        for part in parts {
            text.push_str(&format!("\n{}:{part}", part.len()));
        }
        text
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
        URL_SAFE_NO_PAD.encode(mac)
    }

    /// The query (without `?`) that carries this grant. A grant for longer than a year is cut to that.
    #[must_use]
    pub fn sign(&self, grant: &Grant, now_s: i64) -> String {
        let expires_s = grant.expires_s.min(now_s.saturating_add(SAS_LIFETIME_S_MAX));
        let st = grant.starts_s.map(time_text);
        let se = if grant.needs_pass() { String::new() } else { time_text(expires_s) };
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
        let attempt = grant.bound.map(Bound::text);
        let fields = Fields {
            sv: VERSION,
            st: st.as_deref().unwrap_or_default(),
            se: &se,
            sr,
            sp: &sp,
            sdd: depth.as_deref().unwrap_or_default(),
            attempt: attempt.as_deref().unwrap_or_default(),
            web_query: grant.web_query.as_deref().unwrap_or_default(),
        };
        let text = fields.to_sign(&grant.account, &grant.container, inside);
        let signature = STANDARD.encode(hmac::sign(&self.0, text.as_bytes()));
        let named = [
            ("sv", fields.sv),
            ("st", fields.st),
            ("se", fields.se),
            ("sr", fields.sr),
            ("sp", fields.sp),
            ("sdd", fields.sdd),
            (ATTEMPT, fields.attempt),
            (WEB_QUERY, fields.web_query),
            ("sig", &signature),
        ];
        let pairs = named.iter().filter(|(_, value)| !value.is_empty());
        let parts: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, QUERY))).collect();
        parts.join("&")
    }

    /// A node's pass: with it the grants of the node's attempts open what they name, until `expires_s`. It opens nothing
    /// by itself. It stands in a query as it is, under the name [`PASS`].
    #[must_use]
    pub fn pass(&self, node: u64, expires_s: i64) -> String {
        let mac = hmac::sign(&self.0, pass_text(node, expires_s).as_bytes());
        format!("{expires_s}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    fn check_pass(&self, pass: &str, node: u64, now_s: i64) -> Result<(), Refusal> {
        let (expires, mac) = pass.split_once('.').ok_or(Refusal::Pass)?;
        let expires_s: i64 = expires.parse().map_err(|_| Refusal::Pass)?;
        let mac = URL_SAFE_NO_PAD.decode(mac).map_err(|_| Refusal::Pass)?;
        // Compares in constant time.
        hmac::verify(&self.0, pass_text(node, expires_s).as_bytes(), &mac).map_err(|_| Refusal::Pass)?;
        if expires_s > now_s { Ok(()) } else { Err(Refusal::Pass) }
    }

    /// Whether the query opens this blob (or, for a listing, this prefix) for one of the operations.
    ///
    /// `query` is decoded. For an operation on the container itself `name` is empty.
    ///
    /// Gives the attempt that the grant is bound to. The caller must refuse the request ([`Refusal::AttemptOver`]) where
    /// that attempt does not live any more.
    pub fn check<'a>(
        &self,
        query: impl IntoIterator<Item = (&'a str, &'a str)>,
        account: &str,
        container: &str,
        name: &str,
        any_of: &[Permission],
        now_s: i64,
    ) -> Result<Option<Bound>, Refusal> {
        let mut values = [None; FIELDS.len()];
        for (key, value) in query {
            let found = FIELDS.iter().zip(&mut values).find(|(name, _)| **name == key);
            // Whoever reads the query later may take the first of two: there is only the one that was signed.
            if found.is_some_and(|(_, slot)| slot.replace(value).is_some()) {
                return Err(Refusal::Malformed);
            }
        }
        let [.., signature] = values;
        let signature = signature.ok_or(Refusal::NotSigned)?;
        let [sv, st, se, sr, sp, sdd, attempt, web_query, pass, _] = values.map(Option::unwrap_or_default);
        let fields = Fields { sv, st, se, sr, sp, sdd, attempt, web_query };
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
        let text = fields.to_sign(account, container, inside);
        // Compares in constant time.
        hmac::verify(&self.0, text.as_bytes(), &signature).map_err(|_| Refusal::Signature)?;
        let bound = match fields.attempt {
            "" => None,
            text => Some(Bound::parse(text).ok_or(Refusal::Malformed)?),
        };
        match bound.and_then(|bound| bound.node) {
            Some(node) => self.check_pass(pass, node, now_s)?,
            None => {
                let end: Timestamp = fields.se.parse().map_err(|_| Refusal::Malformed)?;
                if end.as_second() <= now_s {
                    return Err(Refusal::Expired);
                }
            }
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
        if allowed { Ok(bound) } else { Err(Refusal::Permission) }
    }
}

impl Grant {
    fn needs_pass(&self) -> bool {
        self.bound.is_some_and(|bound| bound.node.is_some())
    }
}

fn pass_text(node: u64, expires_s: i64) -> String {
    format!("neap-pass-1\n{node}\n{expires_s}")
}

/// The first `depth` segments of a name that goes on below them.
///
/// `.` and `..` are ordinary names in our own store, but stores elsewhere may resolve them: a name with one of them is in
/// no directory.
fn directory_of(name: &str, depth: usize) -> Option<&str> {
    if name.split('/').any(|segment| matches!(segment, "." | "..")) {
        return None;
    }
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
            bound: None,
            web_query: None,
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
        SasKey::new(b"key").check(pairs, "neapst1", container, name, &[p], now_s).map(drop)
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
            (directory.clone(), "", List, Err(Refusal::Signature)),
            (directory.clone(), "runs/a/../b/x", Read, Err(Refusal::Signature)),
            (directory.clone(), "runs/a/./x", Read, Err(Refusal::Signature)),
            (directory.clone(), "runs/a%2fx", Read, Err(Refusal::Signature)),
            (directory.clone(), "runs//a/x", Read, Err(Refusal::Signature)),
            (directory, "RUNS/a/x", Read, Err(Refusal::Signature)),
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

    #[test]
    fn no_two_grants_are_signed_over_the_same_text() {
        let of = |account: &str, container: &str, inside: &str, attempt: &str, web_query: &str| {
            Fields { attempt, web_query, sr: "b", ..Fields::default() }.to_sign(account, container, inside)
        };
        let plain = of("a", "b", "c/d", "", "");
        for other in [
            of("a", "b/c", "d", "", ""),
            of("a/b", "c", "d", "", ""),
            of("a", "b\n3:c/d", "", "", ""),
            of("a", "b", "c/d", "1.1", ""),
            of("a", "b", "c/d", "", "1.1"),
        ] {
            assert_ne!(plain, other);
        }
    }

    const BOUND: Bound = Bound { job: 7, attempt: 2, node: Some(5) };

    fn bound_query(pass: Option<&str>) -> Vec<(String, String)> {
        let grant = Grant { bound: Some(BOUND), ..grant(Scope::Container, &[Permission::Read]) };
        let mut query = decode(&SasKey::new(b"key").sign(&grant, NOW));
        query.extend(pass.map(|pass| (PASS.to_owned(), pass.to_owned())));
        query
    }

    #[test]
    fn the_grant_of_an_attempt_opens_with_its_nodes_pass_and_as_long_as_that_lasts() {
        let key = SasKey::new(b"key");
        let pass = key.pass(5, NOW + 60);
        let of_another_node = key.pass(6, NOW + 60);
        let of_another_key = SasKey::new(b"other").pass(5, NOW + 60);
        let longer = pass.replace(&(NOW + 60).to_string(), &(NOW + 600).to_string());
        for (pass, at, expected) in [
            (Some(pass.as_str()), NOW, Ok(())),
            (Some(&pass), NOW + 59, Ok(())),
            (Some(&pass), NOW + 60, Err(Refusal::Pass)),
            (None, NOW, Err(Refusal::Pass)),
            (Some(""), NOW, Err(Refusal::Pass)),
            (Some("1"), NOW, Err(Refusal::Pass)),
            (Some(&of_another_node), NOW, Err(Refusal::Pass)),
            (Some(&of_another_key), NOW, Err(Refusal::Pass)),
            (Some(&longer), NOW, Err(Refusal::Pass)),
        ] {
            assert_eq!(check(&bound_query(pass), "cont", "x", Permission::Read, at), expected, "{pass:?}");
        }
        assert!(!bound_query(None).iter().any(|(name, _)| name == "se"), "it has no end of its own");
    }

    #[test]
    fn the_grant_says_which_attempt_it_is_for_and_nobody_can_change_that() {
        let key = SasKey::new(b"key");
        let pass = key.pass(5, NOW + 60);
        let bound = |query: &[(String, String)]| {
            let pairs = query.iter().map(|(k, v)| (k.as_str(), v.as_str()));
            key.check(pairs, "neapst1", "cont", "x", &[Permission::Read], NOW)
        };
        let query = bound_query(Some(&pass));
        assert_eq!(bound(&query), Ok(Some(BOUND)));
        for other in ["7.3.5", "8.2.5", "7.2", "7.2.6", ""] {
            let mut touched = query.clone();
            touched
                .iter_mut()
                .filter(|(name, _)| name == ATTEMPT)
                .for_each(|(_, value)| other.clone_into(value));
            assert_eq!(bound(&touched), Err(Refusal::Signature), "{other}");
        }
        let without: Vec<_> = query.iter().filter(|(name, _)| name != ATTEMPT).cloned().collect();
        assert_eq!(bound(&without), Err(Refusal::Signature));
        // Bound to an attempt alone, it ends by its own time.
        let alone = Bound { node: None, ..BOUND };
        let grant = Grant { bound: Some(alone), ..grant(Scope::Container, &[Permission::Read]) };
        assert_eq!(bound(&decode(&key.sign(&grant, NOW))), Ok(Some(alone)));
        for text in ["", "1", "1.x", "1.2.3.4", "1.2.", "-1.2"] {
            assert_eq!(Bound::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_query_of_a_web_address_is_signed_too() {
        let grant = Grant {
            web_query: Some("version=1&x=ä".into()),
            ..grant(Scope::Blob("host/data.csv".into()), &[Permission::Read])
        };
        let query = decode(&SasKey::new(b"key").sign(&grant, NOW));
        assert_eq!(check(&query, "cont", "host/data.csv", Permission::Read, NOW), Ok(()));
        let mut touched = query.clone();
        touched
            .iter_mut()
            .filter(|(name, _)| name == WEB_QUERY)
            .for_each(|(_, value)| *value = "admin=1".into());
        assert_eq!(check(&touched, "cont", "host/data.csv", Permission::Read, NOW), Err(Refusal::Signature));
    }

    #[test]
    fn a_query_says_everything_once() {
        let grant =
            Grant { web_query: Some("version=1".into()), ..grant(Scope::Container, &[Permission::Read]) };
        let query = decode(&SasKey::new(b"key").sign(&grant, NOW));
        assert_eq!(check(&query, "cont", "x", Permission::Read, NOW), Ok(()));
        for name in [WEB_QUERY, "se", "sp", "sig"] {
            for value in ["", "other"] {
                let again = (name.to_owned(), value.to_owned());
                let before: Vec<_> = std::iter::once(again.clone()).chain(query.clone()).collect();
                let after: Vec<_> = query.iter().cloned().chain([again]).collect();
                for twice in [before, after] {
                    let refused = check(&twice, "cont", "x", Permission::Read, NOW);
                    assert_eq!(refused, Err(Refusal::Malformed), "{name} {value:?}");
                }
            }
        }
    }
}
