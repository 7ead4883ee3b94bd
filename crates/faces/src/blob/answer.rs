//! Answers: Azure's headers on every one, Azure's error body on the bad ones. What went wrong inside is
//! written to the server's log and not to the client.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use neap_storage::sas::Refusal;
use neap_storage::{BlobProperties, Error};

use super::{BlobFace, xml};

/// The service version named where the client names none.
const VERSION: &str = "2023-11-03";

/// A document of this origin can run nothing, load nothing, send no form, and is in no frame.
const NO_PAGE: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// A request that was not done.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Length of the blob, for a range outside of it.
    length: Option<u64>,
}

impl Failure {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), length: None }
    }

    pub fn internal() -> Self {
        let message = "The server could not do this; its log says why. Try again.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    pub fn unsupported(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "UnsupportedOperation", message)
    }

    pub fn no_such_path() -> Self {
        let message = "There is nothing at this path. Blobs are under /{account}/{container}/{blob}, with accounts that begin with neapst.";
        Self::new(StatusCode::NOT_FOUND, "ResourceNotFound", message)
    }

    pub fn bad_uri() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "InvalidUri",
            "The URL is not UTF-8 once its escapes are resolved.",
        )
    }

    pub fn climbing_name() -> Self {
        let message = "A name in a store elsewhere cannot have '.' or '..' as a segment.";
        Self::new(StatusCode::BAD_REQUEST, "InvalidResourceName", message)
    }

    pub fn bad_header(name: &str, why: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "InvalidHeaderValue",
            format!("The header {name} is not valid: {why}."),
        )
    }

    pub fn not_authenticated() -> Self {
        let message = "The request carries neither a signed query nor a bearer token. Ask the datastore for its secrets, or `eval \"$(neap env)\"` for a token.";
        Self::new(StatusCode::UNAUTHORIZED, "NoAuthenticationInformation", message)
    }

    pub fn bad_token() -> Self {
        let message = "The Authorization header was not accepted: it must be a bearer token of this server, for https://storage.azure.com or for the server itself. Account keys are not offered.";
        Self::new(StatusCode::FORBIDDEN, "AuthenticationFailed", message)
    }

    pub fn signed_only() -> Self {
        let message = "An address elsewhere is read only with the URL that this server signed for a job that names it. Fetch it directly, or make it an input of a job.";
        Self::new(StatusCode::FORBIDDEN, "AuthorizationFailure", message)
    }

    pub fn refused(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Permission => "AuthorizationPermissionMismatch",
            // The agent asks again once its lease was renewed.
            Refusal::Pass => "AttemptUrlExpired",
            Refusal::AttemptOver => "AttemptOver",
            Refusal::NotSigned
            | Refusal::Signature
            | Refusal::Malformed
            | Refusal::Expired
            | Refusal::NotYet => "AuthenticationFailed",
        };
        Self::new(StatusCode::FORBIDDEN, code, format!("Access was refused: {refusal}."))
    }

    /// The same failure for a reader whose copy is still good.
    pub fn for_reader(self) -> Self {
        let unchanged = matches!(self.code, "ConditionNotMet" | "BlobAlreadyExists");
        if unchanged {
            Self { status: StatusCode::NOT_MODIFIED, code: "ConditionNotMet", ..self }
        } else {
            self
        }
    }

    fn respond(self) -> Response {
        let mut body = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><Error>");
        xml::element(&mut body, "Code", self.code);
        xml::element(&mut body, "Message", &self.message);
        body.push_str("</Error>");
        // A 304 has no body.
        let body = if self.status == StatusCode::NOT_MODIFIED { Body::empty() } else { Body::from(body) };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        headers.insert("x-ms-error-code", HeaderValue::from_static(self.code));
        if let Some(length) = self.length {
            set(headers, header::CONTENT_RANGE, &format!("bytes */{length}"));
        }
        response
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, code) = match &error {
            Error::ContainerNotFound { .. } => (StatusCode::NOT_FOUND, "ContainerNotFound"),
            Error::BlobNotFound(_) => (StatusCode::NOT_FOUND, "BlobNotFound"),
            Error::BlobExists(_) => (StatusCode::CONFLICT, "BlobAlreadyExists"),
            Error::ConditionNotMet(_) => (StatusCode::PRECONDITION_FAILED, "ConditionNotMet"),
            Error::BadName { what: "metadata name", .. } => (StatusCode::BAD_REQUEST, "InvalidMetadata"),
            Error::BadName { .. } => (StatusCode::BAD_REQUEST, "InvalidResourceName"),
            Error::Gap { .. } => (StatusCode::CONFLICT, "AppendPositionConditionNotMet"),
            Error::UnknownBlock { .. } => (StatusCode::BAD_REQUEST, "InvalidBlockList"),
            Error::Md5Mismatch(_) => (StatusCode::BAD_REQUEST, "Md5Mismatch"),
            Error::TooLarge { what: "the metadata", .. } => (StatusCode::BAD_REQUEST, "MetadataTooLarge"),
            Error::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "RequestBodyTooLarge"),
            Error::RangeNotSatisfiable { .. } => (StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange"),
            Error::BadInput { .. } => (StatusCode::BAD_REQUEST, "InvalidInput"),
            Error::DiskFull { .. } => {
                tracing::error!("{error}");
                let message =
                    "The server's disk is full; nothing of this request was kept. Tell its operator.";
                return Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", message);
            }
            // Not 507: clients try that again, and nothing changes by itself.
            Error::AccountFull { .. } => (StatusCode::CONFLICT, "WorkspaceQuotaExceeded"),
            Error::Link { .. } | Error::Io { .. } => {
                tracing::error!("{error}");
                return Self::internal();
            }
        };
        let length = match &error {
            Error::RangeNotSatisfiable { length, .. } => Some(*length),
            _ => None,
        };
        Self { length, ..Self::new(status, code, error.to_string()) }
    }
}

/// What every answer carries, taken from the request before it is served.
pub(super) struct Stamp {
    version: HeaderValue,
    client_id: Option<HeaderValue>,
    date: String,
}

impl Stamp {
    pub fn of(face: &BlobFace, headers: &HeaderMap) -> Self {
        Self {
            version: headers.get("x-ms-version").cloned().unwrap_or(HeaderValue::from_static(VERSION)),
            client_id: headers.get("x-ms-client-request-id").cloned(),
            date: http_date((face.now_s)()),
        }
    }

    pub fn finish(self, answered: Result<Response, Failure>) -> Response {
        let mut response = answered.unwrap_or_else(Failure::respond);
        let headers = response.headers_mut();
        headers.insert("x-ms-version", self.version);
        // Whatever a job stored, no browser takes it for a page of this server.
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(NO_PAGE));
        if let Some(id) = self.client_id {
            headers.insert("x-ms-client-request-id", id);
        }
        set(headers, header::DATE, &self.date);
        if let Ok(id) = neap_identity::random_guid() {
            set(headers, HeaderName::from_static("x-ms-request-id"), &id);
        }
        response
    }
}

/// Sets a header whose value is ours; one that no header may have is left out.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

pub(super) fn http_date(unix_s: i64) -> String {
    let time = Timestamp::from_second(unix_s).unwrap_or(Timestamp::UNIX_EPOCH);
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default()
}

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// An answer to a write: the blob as it is now.
pub(super) fn written(status: StatusCode, properties: &BlobProperties) -> Response {
    let mut response = empty(status);
    identify(response.headers_mut(), properties);
    response
}

/// ETag and last change.
pub(super) fn identify(headers: &mut HeaderMap, properties: &BlobProperties) {
    set(headers, header::ETAG, &format!("\"{}\"", properties.etag));
    set(headers, header::LAST_MODIFIED, &http_date(properties.last_modified_ms.div_euclid(1_000)));
}

/// Everything that is known of a blob.
pub(super) fn describe(headers: &mut HeaderMap, properties: &BlobProperties, whole: bool) {
    identify(headers, properties);
    let stated = &properties.headers;
    let content_type = stated.content_type.as_deref().unwrap_or("application/octet-stream");
    set(headers, header::CONTENT_TYPE, content_type);
    if let Some(encoding) = &stated.content_encoding {
        set(headers, header::CONTENT_ENCODING, encoding);
    }
    if let Some(md5) = stated.content_md5 {
        // Content-MD5 is of what is sent; the checksum of the whole goes by another name with a part.
        let name = if whole { "content-md5" } else { "x-ms-blob-content-md5" };
        set(headers, HeaderName::from_static(name), &STANDARD.encode(md5));
    }
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert("x-ms-blob-type", HeaderValue::from_static("BlockBlob"));
    for (name, value) in &stated.metadata {
        if let Ok(name) = HeaderName::try_from(format!("x-ms-meta-{name}")) {
            set(headers, name, value);
        }
    }
}
