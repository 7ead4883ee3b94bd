//! Who stands at the door: which credential a request shows, verified from its method, address and headers alone.
//!
//! The server's limits go by it, before anything of the body is read and before any state is looked at. It lets nobody in:
//! each face still checks the credential itself, and says in its own words what is wrong with it.

use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::ask::{self, Query};
use crate::routes::Face;
use crate::{audience, blob, metrics, services, tokens, workspace_files};

/// What a request has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No credential, or not a good one.
    Stranger,
    /// A token of this installation, its secret, the metrics token, or a cookie for a service.
    Owner,
    /// The identity secret, where tokens are issued for it.
    Secret,
    /// A signed URL or a job's own token. Nodes and jobs have these; the number tells one credential from another.
    Attempt(u64),
}

/// The standing of a request.
pub fn standing(app: &App, request: &Parts) -> Standing {
    let (uri, headers) = (&request.uri, &request.headers);
    let face = Face::of(uri.path());
    let is_owner = || audience::authenticate(app, headers, &app.base_url).is_ok();
    let owner_if = |good: bool| if good { Standing::Owner } else { Standing::Stranger };
    match face {
        Face::Others if tokens::shows_secret(&app.secret, uri.path(), headers) => Standing::Secret,
        Face::Others if blob::is_signed(&app.sas, app.now_s(), &request.method, uri, headers) => {
            Standing::Attempt(number(signature(uri)))
        }
        Face::Neap if is_signed_log(app, uri) => Standing::Attempt(number(signature(uri))),
        Face::Mlflow | Face::Parallel => match run_token(app, headers) {
            Some(token) => Standing::Attempt(number(token)),
            None => owner_if(shows_password(app, headers) || is_owner()),
        },
        Face::Metrics => owner_if(metrics::shows_token(app, headers) || is_owner()),
        Face::Services => owner_if(services::shows_cookie(app, uri.path(), headers) || is_owner()),
        Face::Others | Face::Neap | Face::Arm | Face::History => owner_if(is_owner()),
    }
}

/// Whether the body of such a request is held in memory as a whole, and not passed on as it comes.
pub fn buffers_body(uri: &Uri) -> bool {
    match Face::of(uri.path()) {
        Face::Others => blob::buffers_body(uri),
        Face::Mlflow => !uri.path().contains("/mlflow-artifacts/"),
        Face::Services => false,
        Face::Arm | Face::History | Face::Neap | Face::Metrics | Face::Parallel => true,
    }
}

fn is_signed_log(app: &App, uri: &Uri) -> bool {
    let segments = ask::segments(uri.path(), 2);
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let ["neap", "logs", account, job] = words.as_slice() else { return false };
    let query = Query::parse(uri.query().unwrap_or(""));
    job.parse().is_ok_and(|job| workspace_files::check_log_url(app, &query, account, job).is_ok())
}

fn credential<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let (named, credential) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    named.eq_ignore_ascii_case(scheme).then_some(credential.trim())
}

fn run_token<'a>(app: &App, headers: &'a HeaderMap) -> Option<&'a str> {
    let token = credential(headers, "bearer").filter(|token| app.run_tokens.is_one(token))?;
    app.run_tokens.verify(token, app.now_s()).is_ok().then_some(token)
}

fn shows_password(app: &App, headers: &HeaderMap) -> bool {
    let text = credential(headers, "basic").and_then(|text| STANDARD.decode(text).ok());
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    text.as_deref()
        .and_then(|text| text.split_once(':'))
        .is_some_and(|(_, password)| app.secret.matches(password))
}

fn signature(uri: &Uri) -> &str {
    uri.query().unwrap_or("").split('&').find_map(|pair| pair.strip_prefix("sig=")).unwrap_or("")
}

fn number(credential: &str) -> u64 {
    let digest = Sha256::digest(credential.as_bytes());
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}
