//! Who may reach a service: whoever shows a bearer token, as everywhere; or a browser, by a cookie for this one service.
//!
//! The cookie is had by a link that works once and for a minute, and that only a caller with a token is given. No bearer token
//! is ever in a URL, and the service sees neither token nor cookie.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use neap_core::state::Workspace;
use neap_core::{Code, Refusal};
use neap_storage::sas::SasKey;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::place::Place;
use super::{Found, place_of};
use crate::app::{App, internal};
use crate::ask::Ask;
use crate::{audience, limits, reply};

/// Where a link has its ticket.
pub(super) const TICKET: &str = "neap-ticket";
pub(super) const COOKIE: &str = "neap-service";

/// How somebody was let in.
#[derive(Debug)]
pub(super) struct Entry {
    /// The `Authorization` header is for this server and not for the service.
    pub by_bearer: bool,
    /// A fresh cookie for a browser whose old one is getting old.
    pub renewed: Option<HeaderValue>,
}

/// Links that nobody has followed yet.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<BTreeMap<[u8; 32], Ticket>>);

#[derive(Debug)]
struct Ticket {
    path: String,
    actor: String,
    until_s: i64,
}

impl Links {
    fn keep(&self, name: &str, ticket: Ticket, now_s: i64) -> bool {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, ticket| ticket.until_s > now_s);
        let room = links.len() < limits::SERVICE_LINKS_MAX;
        if room {
            links.insert(hash(name), ticket);
        }
        room
    }

    /// Whoever comes first has it.
    fn take(&self, name: &str, path: &str, now_s: i64) -> Option<String> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = links.remove(&hash(name))?;
        (ticket.path == path && ticket.until_s > now_s).then_some(ticket.actor)
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// `POST …/jobs/{j}/services/{s}/link?node=0`: a link for a browser.
pub(crate) fn link(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    job: &str,
    service: &str,
) -> Result<Response, Refusal> {
    let node = match ask.query.get("node") {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            Refusal::because(Code::BadArgument, format!("'{text}' is not the index of a node."))
        })?,
    };
    let place = place_of(workspace, job, node, service);
    Found::find(app, &place)?;
    let name = neap_identity::random_bytes::<32>().map_err(|e| internal(e.to_string()))?;
    let name = URL_SAFE_NO_PAD.encode(name);
    let now_s = app.now_s();
    let until_s = now_s + limits::SERVICE_LINK_S;
    let ticket = Ticket { path: place.path(), actor: ask.caller.actor.clone(), until_s };
    if !app.memory.links.keep(&name, ticket, now_s) {
        return Err(Refusal::because(
            Code::TooManyRequests,
            format!(
                "{} links were asked for within {} s and not followed; try again in a minute.",
                limits::SERVICE_LINKS_MAX,
                limits::SERVICE_LINK_S
            ),
        ));
    }
    let url = format!("{}{}?{TICKET}={name}", ask.base, place.path());
    Ok(reply::ok(&json!({"url": url, "expiresInSeconds": limits::SERVICE_LINK_S})))
}

/// A browser follows a link: it gets a cookie, and an address without the ticket.
pub(super) fn follow(app: &App, place: &Place, ticket: &str) -> Result<Response, Refusal> {
    let path = place.path();
    let now_s = app.now_s();
    let actor = app.memory.links.take(ticket, &path, now_s).ok_or_else(|| {
        Refusal::because(
            Code::AuthorizationFailed,
            format!(
                "This link was followed before, or is older than {} s: `neap job open-service` makes another.",
                limits::SERVICE_LINK_S
            ),
        )
    })?;
    let mut response = reply::empty(StatusCode::SEE_OTHER);
    reply::set(&mut response, "location", &path);
    reply::set(&mut response, "cache-control", "no-store");
    reply::set(&mut response, "referrer-policy", "no-referrer");
    if let Some(cookie) = cookie(&app.sas, &path, &actor, now_s) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Lets the caller in, or says why not.
pub(super) fn check(app: &App, place: &Place, request: &Request, base: &str) -> Result<Entry, Refusal> {
    let headers = request.headers();
    let (path, now_s) = (place.path(), app.now_s());
    let shown = cookies(headers).find_map(|(name, value)| (name == COOKIE).then_some(value));
    if let Some((actor, left_s)) = shown.and_then(|value| read_cookie(&app.sas, &path, value, now_s)) {
        own_pages_only(headers, base)?;
        let old = left_s < limits::SERVICE_COOKIE_S / 2;
        let renewed = if old { cookie(&app.sas, &path, &actor, now_s) } else { None };
        let by_bearer = audience::authenticate(app, headers, base).is_ok();
        return Ok(Entry { by_bearer, renewed });
    }
    audience::authenticate(app, headers, base)
        .map(|_| Entry { by_bearer: true, renewed: None })
        .map_err(|refusal| match (shown, headers.contains_key(header::AUTHORIZATION)) {
            (Some(_), false) => Refusal::because(
                Code::AuthorizationFailed,
                format!(
                    "The cookie is for another service or too old: `neap job open-service --name {} --service {}` makes a new link.",
                    place.job, place.service
                ),
            ),
            _ => refusal,
        })
}

/// Whether the request shows a cookie that opens this service.
pub(super) fn shows_cookie(app: &App, place: &Place, headers: &HeaderMap) -> bool {
    let shown = cookies(headers).find_map(|(name, value)| (name == COOKIE).then_some(value));
    shown.is_some_and(|value| read_cookie(&app.sas, &place.path(), value, app.now_s()).is_some())
}

/// A cookie comes with whatever a page asks for; a page from elsewhere may ask for nothing.
fn own_pages_only(headers: &HeaderMap, base: &str) -> Result<(), Refusal> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    if origin.to_str().is_ok_and(|origin| origin.eq_ignore_ascii_case(base)) {
        return Ok(());
    }
    Err(Refusal::because(
        Code::AuthorizationFailed,
        "The request comes from a page of another site, which may not use this service's cookie.",
    ))
}

/// Every cookie of a request.
pub(super) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers
        .get_all(header::COOKIE)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
}

fn cookie(key: &SasKey, path: &str, actor: &str, now_s: i64) -> Option<HeaderValue> {
    let seconds = limits::SERVICE_COOKIE_S;
    let (until_s, name) = (now_s + seconds, URL_SAFE_NO_PAD.encode(actor));
    let signature = signature(key, path, until_s, &name);
    let text = format!(
        "{COOKIE}={until_s}.{name}.{signature}; Path={path}; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax"
    );
    HeaderValue::from_str(&text).ok()
}

/// Whose cookie it is, and for how many seconds it still holds.
fn read_cookie(key: &SasKey, path: &str, value: &str, now_s: i64) -> Option<(String, i64)> {
    let mut parts = value.splitn(3, '.');
    let until_s: i64 = parts.next()?.parse().ok()?;
    let (name, shown) = (parts.next()?, parts.next()?);
    // Hashes are compared, so that how long it takes tells nothing about the signature.
    let right = hash(shown) == hash(&signature(key, path, until_s, name));
    let actor = String::from_utf8(URL_SAFE_NO_PAD.decode(name).ok()?).ok()?;
    (right && until_s > now_s).then_some((actor, until_s - now_s))
}

fn signature(key: &SasKey, path: &str, until_s: i64, name: &str) -> String {
    key.secret_for(&format!("cookie of a service\n{path}\n{until_s}\n{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SasKey {
        SasKey::new(&[7; 32])
    }

    fn value(cookie: &HeaderValue) -> String {
        let text = cookie.to_str().unwrap();
        text.split(';').next().unwrap().split_once('=').unwrap().1.to_owned()
    }

    #[test]
    fn a_cookie_opens_one_service_for_a_while() {
        let made = value(&cookie(&key(), "/services/1/j/0/s/", "me", 1_000).unwrap());
        let read = |path: &str, value: &str, now_s| read_cookie(&key(), path, value, now_s);
        assert_eq!(read("/services/1/j/0/s/", &made, 1_600), Some(("me".into(), 3_000)));
        assert_eq!(read("/services/1/j/0/other/", &made, 1_600), None);
        assert_eq!(read("/services/1/j/0/s/", &made, 4_600), None, "too old");
        assert_eq!(read("/services/1/j/0/s/", &made.replacen("4600", "9600", 1), 1_600), None, "prolonged");
        for broken in ["", "x", "4600", "4600.bWU", "4600.bWU.x"] {
            assert_eq!(read("/services/1/j/0/s/", broken, 1_600), None, "{broken}");
        }
    }

    #[test]
    fn a_link_works_once() {
        let links = Links::default();
        let ticket = |until_s| Ticket { path: "/p/".into(), actor: "me".into(), until_s };
        assert!(links.keep("a", ticket(60), 0));
        assert!(links.keep("b", ticket(60), 0));
        assert!(links.keep("c", ticket(60), 0));
        assert_eq!(links.take("a", "/p/", 59).as_deref(), Some("me"));
        assert_eq!(links.take("a", "/p/", 59), None, "once");
        assert_eq!(links.take("b", "/q/", 59), None, "for another place");
        assert_eq!(links.take("b", "/p/", 59), None, "and that was it");
        assert_eq!(links.take("c", "/p/", 60), None, "too late");
        for n in 0..limits::SERVICE_LINKS_MAX {
            assert!(links.keep(&n.to_string(), ticket(60), 0));
        }
        assert!(!links.keep("more", ticket(60), 59), "memory is bounded");
        assert!(links.keep("more", ticket(120), 60), "old ones make room");
    }

    #[test]
    fn pages_from_elsewhere_are_not_served() {
        let mut headers = HeaderMap::new();
        assert!(own_pages_only(&headers, "https://h:1").is_ok());
        for (origin, fine) in [("https://h:1", true), ("https://h:2", false), ("null", false)] {
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            assert_eq!(own_pages_only(&headers, "https://h:1").is_ok(), fine, "{origin}");
        }
    }

    #[test]
    fn cookies_are_found_in_any_header() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; b=2=3"));
        headers.append(header::COOKIE, HeaderValue::from_static("c=4"));
        assert_eq!(cookies(&headers).collect::<Vec<_>>(), [("a", "1"), ("b", "2=3"), ("c", "4")]);
    }
}
