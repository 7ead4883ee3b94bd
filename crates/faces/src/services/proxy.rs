//! One request, passed on to a service and back, byte by byte: bodies are never held here, and whoever reads slowly is waited
//! for. A request that the service upgrades (WebSockets) becomes bytes both ways.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version, header};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use neap_control::services::ServiceStream;
use neap_core::{Code, Refusal};
use tokio::io::copy_bidirectional;

use super::access::{COOKIE, cookies};
use super::place::Place;
use crate::reply;

/// The upgrade that gives the bytes themselves.
pub(super) const STREAM: &str = "neap-stream";

/// Headers that are about one connection and not about the request.
const HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// From whom and to where.
pub(super) struct Route<'a> {
    pub place: &'a Place,
    /// `https://HOST:PORT` as the client sees us.
    pub base: &'a str,
    /// The path as the service is to see it; `None`: as it came.
    pub path: Option<String>,
    pub bearer_is_ours: bool,
}

/// Becomes bytes both ways when the client's side is ready.
pub(super) fn pass_bytes(upgrade: OnUpgrade, mut stream: ServiceStream) -> Response {
    tokio::spawn(async move {
        let Ok(client) = upgrade.await else { return };
        let mut client = TokioIo::new(client);
        // However it ends, both sides see it.
        let _ = copy_bidirectional(&mut client, &mut stream).await;
    });
    let mut response = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
    reply::set(&mut response, "connection", "upgrade");
    reply::set(&mut response, "upgrade", STREAM);
    response
}

pub(super) async fn forward(
    mut request: Request,
    route: &Route<'_>,
    stream: ServiceStream,
) -> Result<Response, Refusal> {
    let failed = |e: hyper::Error| {
        Refusal::because(
            Code::ServiceNotReachable,
            format!("The service '{}' does not speak HTTP, or ended: {e}.", route.place.service),
        )
    };
    let upgrade = is_upgrade(request.headers()).then(|| hyper::upgrade::on(&mut request));
    let (mut parts, body) = request.into_parts();
    let wanted = upgrade.as_ref().and_then(|_| parts.headers.get(header::UPGRADE).cloned());
    parts.uri = target(&parts.uri, route);
    parts.version = Version::HTTP_11;
    parts.extensions = axum::http::Extensions::new();
    request_headers(&mut parts.headers, route);
    if let Some(wanted) = &wanted {
        set_upgrade(&mut parts.headers, wanted.clone());
    }
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // It ends with the answer, or when nobody wants the rest of that.
    tokio::spawn(connection.with_upgrades());
    let mut answered = sender.send_request(Request::from_parts(parts, body)).await.map_err(failed)?;
    let switched = match (answered.status(), upgrade) {
        (StatusCode::SWITCHING_PROTOCOLS, Some(client)) => {
            let protocol = answered.headers().get(header::UPGRADE).cloned();
            let service = hyper::upgrade::on(&mut answered);
            tokio::spawn(async move {
                let (Ok(client), Ok(service)) = (client.await, service.await) else { return };
                let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(service)).await;
            });
            Some(protocol.or(wanted).unwrap_or_else(|| HeaderValue::from_static("websocket")))
        }
        (StatusCode::SWITCHING_PROTOCOLS, None) => {
            return Err(Refusal::because(
                Code::ServiceNotReachable,
                format!("The service '{}' changed the protocol without being asked to.", route.place.service),
            ));
        }
        _ => None,
    };
    let mut response = answered.map(Body::new);
    response.extensions_mut().clear();
    response_headers(response.headers_mut(), route);
    if let Some(protocol) = switched {
        set_upgrade(response.headers_mut(), protocol);
    }
    Ok(response)
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
        && headers
            .get_all(header::CONNECTION)
            .into_iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

fn target(uri: &Uri, route: &Route<'_>) -> Uri {
    let path = route.path.as_deref().unwrap_or_else(|| uri.path());
    let text = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    text.parse().unwrap_or_else(|_| Uri::from_static("/"))
}

fn without_hops(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|word| word.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP {
        headers.remove(*name);
    }
}

/// What the service is shown: the caller's headers, less what opened the door.
fn request_headers(headers: &mut HeaderMap, route: &Route<'_>) {
    without_hops(headers);
    headers.remove(header::EXPECT);
    if route.bearer_is_ours {
        headers.remove(header::AUTHORIZATION);
    }
    let kept: Vec<String> = cookies(headers)
        .filter(|(name, _)| *name != COOKIE)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    headers.remove(header::COOKIE);
    let host = route.base.trim_start_matches("https://");
    let prefix = route.place.path();
    for (name, value) in [
        (header::COOKIE, kept.join("; ")),
        (header::HOST, host.to_owned()),
        (HeaderName::from_static("x-forwarded-host"), host.to_owned()),
        (HeaderName::from_static("x-forwarded-proto"), "https".to_owned()),
        (HeaderName::from_static("x-forwarded-prefix"), prefix.trim_end_matches('/').to_owned()),
    ] {
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_str(&value)) {
            headers.insert(name, value);
        }
    }
}

/// What the client is shown: what the service says of itself, at the place where it is shown.
fn response_headers(headers: &mut HeaderMap, route: &Route<'_>) {
    without_hops(headers);
    let moved =
        headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).map(|to| location(to, route));
    if let Some(Ok(moved)) = moved.as_deref().map(HeaderValue::from_str) {
        headers.insert(header::LOCATION, moved);
    }
    let cookies: Vec<HeaderValue> = headers
        .get_all(header::SET_COOKIE)
        .into_iter()
        .filter_map(|value| HeaderValue::from_str(&set_cookie(value.to_str().ok()?, route)?).ok())
        .collect();
    headers.remove(header::SET_COOKIE);
    for cookie in cookies {
        headers.append(header::SET_COOKIE, cookie);
    }
}

/// A path of the service's own, as the client reaches it.
fn shown(path: &str, route: &Route<'_>) -> String {
    let prefix = route.place.path();
    if path.starts_with(&prefix) || path == prefix.trim_end_matches('/') {
        return path.to_owned();
    }
    format!("{prefix}{}", path.trim_start_matches('/'))
}

fn location(to: &str, route: &Route<'_>) -> String {
    let host = route.base.trim_start_matches("https://");
    let own = ["https://", "http://"]
        .into_iter()
        .find_map(|scheme| to.strip_prefix(scheme)?.strip_prefix(host))
        .filter(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
    match own {
        Some(rest) => shown(if rest.starts_with('/') { rest } else { "/" }, route),
        None if to.starts_with('/') && !to.starts_with("//") => shown(to, route),
        None => to.to_owned(),
    }
}

/// A service's cookie goes to that service and nowhere else; it cannot set ours.
fn set_cookie(text: &str, route: &Route<'_>) -> Option<String> {
    let mut parts = text.split(';');
    let pair = parts.next()?.trim();
    if pair.split('=').next()?.trim() == COOKIE {
        return None;
    }
    let mut path = route.place.path();
    let mut out = pair.to_owned();
    for part in parts.map(str::trim) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if name.eq_ignore_ascii_case("path") {
            path = shown(value, route);
        } else if !name.eq_ignore_ascii_case("domain") {
            out += "; ";
            out += part;
        }
    }
    Some(format!("{out}; Path={path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_core::WorkspaceId;

    fn place() -> Place {
        Place { workspace: WorkspaceId(1), job: "j".into(), node: 0, service: "s".into() }
    }

    fn route(place: &Place) -> Route<'_> {
        Route { place, base: "https://h:8443", path: Some("/a".into()), bearer_is_ours: true }
    }

    #[test]
    fn places_are_translated() {
        let place = place();
        let route = route(&place);
        for (to, expect) in [
            ("/login", "/services/1/j/0/s/login"),
            ("/services/1/j/0/s/tree", "/services/1/j/0/s/tree"),
            ("login?x=1", "login?x=1"),
            ("http://h:8443/login", "/services/1/j/0/s/login"),
            ("https://h:8443", "/services/1/j/0/s/"),
            ("https://h:84431/x", "https://h:84431/x"),
            ("https://elsewhere/x", "https://elsewhere/x"),
            ("//elsewhere/x", "//elsewhere/x"),
        ] {
            assert_eq!(location(to, &route), expect, "{to}");
        }
    }

    #[test]
    fn a_services_cookies_stay_with_it() {
        let place = place();
        let route = route(&place);
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(set_cookie(text, &route).as_deref(), expect, "{text}");
        };
        check("a=1", Some("a=1; Path=/services/1/j/0/s/"));
        check("a=1; Path=/; Domain=h; HttpOnly", Some("a=1; HttpOnly; Path=/services/1/j/0/s/"));
        check("a=1; path=/x", Some("a=1; Path=/services/1/j/0/s/x"));
        check("neap-service=evil; Path=/", None);
    }

    #[test]
    fn the_service_does_not_see_what_opened_the_door() {
        let place = place();
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("cookie", "neap-service=1.2.3; own=4"),
            ("connection", "keep-alive, x-odd"),
            ("x-odd", "1"),
            ("x-kept", "2"),
            ("host", "evil"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        request_headers(&mut headers, &route(&place));
        let shown: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        let mut shown: Vec<String> =
            shown.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        shown.sort();
        assert_eq!(
            shown,
            [
                "cookie: own=4",
                "host: h:8443",
                "x-forwarded-host: h:8443",
                "x-forwarded-prefix: /services/1/j/0/s",
                "x-forwarded-proto: https",
                "x-kept: 2"
            ]
        );
    }

    #[test]
    fn upgrades_are_recognised() {
        let mut headers = HeaderMap::new();
        assert!(!is_upgrade(&headers));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        assert!(!is_upgrade(&headers));
        headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        assert!(is_upgrade(&headers));
    }
}
