//! What a request is about, what it wants, and whether it may.

use axum::http::{HeaderMap, Method, Uri, header};
use neap_storage::foreign::{self, is_foreign};
use neap_storage::sas::Refusal;
use neap_storage::{BlobAddress, Bound, Permission, SasKey};
use percent_encoding::percent_decode_str;

use super::BlobFace;
use super::answer::Failure;
use crate::workspace_files;

/// Accounts of this server begin so; it tells their paths from all others.
const ACCOUNT_PREFIX: &str = "neapst";
const HOST_SUFFIX: &str = ".blob.core.windows.net";

/// The account, container and blob of a request, with its decoded query.
#[derive(Debug)]
pub(super) struct Target {
    pub account: String,
    pub container: String,
    /// Empty for the container itself.
    pub blob: String,
    query: Vec<(String, String)>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Properties,
    Get,
    Put,
    PutBlock,
    PutBlockList,
    SetMetadata,
    Delete,
    List,
    ContainerProperties,
    CreateContainer,
}

/// How far an authorised request may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    /// The signed query allows new blobs only.
    pub new_only: bool,
    /// The attempt that the signed query is for. A write asks again, before it appears, whether the attempt lives.
    pub bound: Option<Bound>,
}

impl Access {
    const FULL: Self = Self { new_only: false, bound: None };
}

impl Operation {
    pub fn of(method: &Method, target: &Target, headers: &HeaderMap) -> Result<Self, Failure> {
        let (comp, restype) = (target.get("comp"), target.get("restype"));
        if headers.contains_key("x-ms-copy-source") {
            return Err(Failure::unsupported(
                "Copying from another blob is not offered; download and upload it.",
            ));
        }
        match (method.as_str(), target.blob.is_empty(), comp, restype) {
            ("HEAD", false, None | Some("metadata"), None) | ("GET", false, Some("metadata"), None) => {
                Ok(Self::Properties)
            }
            ("GET", false, None, None) => Ok(Self::Get),
            ("PUT", false, None, None) => match headers.get("x-ms-blob-type").map(|kind| kind.as_bytes()) {
                None | Some(b"BlockBlob") => Ok(Self::Put),
                Some(_) => Err(Failure::unsupported("Only blobs of the type BlockBlob are offered.")),
            },
            ("PUT", false, Some("block"), None) => Ok(Self::PutBlock),
            ("PUT", false, Some("blocklist"), None) => Ok(Self::PutBlockList),
            ("PUT", false, Some("metadata"), None) => Ok(Self::SetMetadata),
            ("DELETE", false, None, None) => Ok(Self::Delete),
            ("GET", true, Some("list"), Some("container")) => Ok(Self::List),
            ("GET" | "HEAD", true, None, Some("container")) => Ok(Self::ContainerProperties),
            ("PUT", true, None, Some("container")) => Ok(Self::CreateContainer),
            _ => Err(Failure::unsupported(
                "This operation of Azure Blob Storage is not offered here. Offered are: blobs put whole or in blocks, read, listed, deleted, and their metadata.",
            )),
        }
    }

    fn changes(self) -> bool {
        match self {
            Self::Put
            | Self::PutBlock
            | Self::PutBlockList
            | Self::SetMetadata
            | Self::Delete
            | Self::CreateContainer => true,
            Self::Properties | Self::Get | Self::List | Self::ContainerProperties => false,
        }
    }

    fn needs(self) -> &'static [Permission] {
        match self {
            Self::Properties | Self::Get => &[Permission::Read],
            Self::Put | Self::PutBlock | Self::PutBlockList | Self::SetMetadata => &[Permission::Write],
            Self::Delete => &[Permission::Delete],
            Self::List => &[Permission::List],
            Self::ContainerProperties => &[Permission::Read, Permission::List],
            Self::CreateContainer => &[Permission::Create, Permission::Write],
        }
    }
}

/// A job's log lies in the folder of the job's files. The server alone writes it: not the attempt, and not its node.
fn is_log(container: &str, blob: &str) -> bool {
    container == workspace_files::ARTIFACT_CONTAINER
        && blob.split('/').nth(2) == Some(workspace_files::LOG_FOLDER)
        && blob.starts_with(workspace_files::RUN_FOLDERS)
}

impl Target {
    pub fn of(uri: &Uri) -> Result<Self, Failure> {
        let path = uri.path().trim_start_matches('/');
        let (account, rest) = path.split_once('/').unwrap_or((path, ""));
        let account = account.strip_suffix(HOST_SUFFIX).unwrap_or(account);
        if !account.starts_with(ACCOUNT_PREFIX) {
            return Err(Failure::no_such_path());
        }
        // An account name given with a slash at its end leaves the host's rest in a segment of its own.
        let rest = match rest.split_once('/') {
            Some((HOST_SUFFIX, rest)) => rest,
            _ => rest,
        };
        let (container, blob) = rest.split_once('/').unwrap_or((rest, ""));
        let decode = |text: &str| {
            percent_decode_str(text)
                .decode_utf8()
                .map(|text| text.into_owned())
                .map_err(|_| Failure::bad_uri())
        };
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decode(name)?, decode(value)?))
        };
        let query = uri.query().unwrap_or("").split('&').filter(|part| !part.is_empty());
        let target = Self {
            account: account.to_owned(),
            container: decode(container)?,
            blob: decode(blob)?,
            query: query.map(pair).collect::<Result<_, Failure>>()?,
        };
        if is_foreign(&target.container) {
            // Our own store takes these for ordinary names; a store elsewhere may resolve them.
            let names = [Some(target.blob.as_str()), target.get("prefix")];
            let climbs = |name: &str| name.split('/').any(|segment| matches!(segment, "." | ".."));
            if names.into_iter().flatten().any(climbs) {
                return Err(Failure::climbing_name());
            }
        }
        Ok(target)
    }

    /// A query value; an empty one counts as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub fn address(&self) -> Result<BlobAddress, Failure> {
        Ok(BlobAddress::new(self.account.as_str(), self.container.as_str(), self.blob.as_str())?)
    }

    /// Whether the query is signed for this operation.
    pub fn is_signed(&self, sas: &SasKey, operation: Operation, now_s: i64) -> bool {
        let name = if operation == Operation::List { self.get("prefix").unwrap_or("") } else { &self.blob };
        let signed = |needs: &[Permission]| {
            let query = self.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            sas.check(query, &self.account, &self.container, name, needs, now_s).is_ok()
        };
        signed(operation.needs())
            || (operation.needs() == [Permission::Write] && signed(&[Permission::Create]))
    }

    /// Lets the request in, or says why not. Nothing of the store was touched before.
    pub fn authorize(
        &self,
        face: &BlobFace,
        operation: Operation,
        headers: &HeaderMap,
        uri: &Uri,
    ) -> Result<Access, Failure> {
        let now_s = (face.now_s)();
        let name = if operation == Operation::List { self.get("prefix").unwrap_or("") } else { &self.blob };
        let signed = |needs: &[Permission]| {
            let query = self.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            face.sas.check(query, &self.account, &self.container, name, needs, now_s)
        };
        let only_new = operation.needs() == [Permission::Write] && operation != Operation::SetMetadata;
        let checked = match signed(operation.needs()) {
            Err(Refusal::Permission) if only_new => {
                signed(&[Permission::Create]).map(|bound| Access { new_only: true, bound })
            }
            checked => checked.map(|bound| Access { bound, ..Access::FULL }),
        };
        match checked {
            Ok(access) => {
                face.refuse_the_dead(access.bound)?;
                if access.bound.is_some() && operation.changes() && is_log(&self.container, &self.blob) {
                    return Err(Failure::refused(Refusal::Permission));
                }
                return Ok(access);
            }
            Err(Refusal::NotSigned) => {}
            Err(refusal) => return Err(Failure::refused(refusal)),
        }
        if !headers.contains_key(header::AUTHORIZATION) {
            return Err(Failure::not_authenticated());
        }
        if foreign::is_any_host(&self.container) {
            return Err(Failure::signed_only());
        }
        if (face.bearer)(headers, uri) { Ok(Access::FULL) } else { Err(Failure::bad_token()) }
    }
}
