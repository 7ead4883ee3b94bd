//! HTTPS to the server: tokens, requests, errors, pages and long-running operations. It knows no resource.

use crate::connection::Connection;
use crate::distrust;
use crate::failure::{Exit, Failure, Outcome};
use crate::terminal::Terminal;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const API_VERSION: &str = "2024-10-01";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that restarts is waited for this long by whoever already waits for an operation.
pub const RESTART_PATIENCE: Duration = Duration::from_secs(30);
const POLL_PAUSE_DEFAULT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    connection: Connection,
    token: Mutex<Option<String>>,
    terminal: Terminal,
    change_reference: Option<String>,
}

/// An answer whose body was read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Client {
    /// `change_reference` goes with every request: why changes are made.
    pub fn new(
        connection: Connection,
        terminal: Terminal,
        change_reference: Option<String>,
    ) -> Outcome<Self> {
        let http = Self::speaker(&connection, &[b"h2", b"http/1.1"])?;
        Ok(Self { http, connection, token: Mutex::new(None), terminal, change_reference })
    }

    /// A client that trusts the server's CA and offers these protocols.
    fn speaker(connection: &Connection, protocols: &[&[u8]]) -> Outcome<reqwest::Client> {
        let mut roots = rustls::RootCertStore::empty();
        let bundle = &connection.ca_bundle;
        let certificates = CertificateDer::pem_file_iter(bundle).map_err(|error| {
            Failure::failed(format!("cannot read the CA bundle {}: {error}", bundle.display()))
                .hint("start the server once with 'neap up --detach'; it writes the bundle")
        })?;
        roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        if roots.is_empty() {
            return Err(Failure::failed(format!("{} holds no certificate", bundle.display())));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::failed(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("neap-cli/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&connection.url) {
            builder = builder.no_proxy();
        }
        builder.build().map_err(|error| Failure::failed(format!("the HTTP client cannot start: {error}")))
    }

    /// A request that becomes bytes both ways.
    pub async fn upgrade(&self, path: &str, protocol: &str) -> Outcome<reqwest::Upgraded> {
        // Only the older HTTP can be left for something else.
        let http = Self::speaker(&self.connection, &[b"http/1.1"])?;
        let request = http
            .get(self.url(path))
            .bearer_auth(self.token(false).await?)
            .header(reqwest::header::CONNECTION, "upgrade")
            .header(reqwest::header::UPGRADE, protocol);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refusal(response).await);
        }
        response.upgrade().await.map_err(|error| self.unreachable(&error))
    }

    /// A request without a token, to an absolute URL: blobs carry their own signature.
    pub fn bare(&self, method: Method, url: &str) -> RequestBuilder {
        self.http.request(method, url)
    }

    /// Sends a bare request; a refusal of the server is a failure.
    pub async fn send_bare(&self, request: RequestBuilder) -> Outcome<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }

    pub async fn get(&self, path: &str) -> Outcome<Value> {
        Ok(self.call(Method::GET, path, None).await?.body)
    }

    /// `None` if what the path names does not exist.
    pub async fn find(&self, path: &str) -> Outcome<Option<Value>> {
        match self.get(path).await {
            Ok(value) => Ok(Some(value)),
            Err(failure) if failure.exit == Exit::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Outcome<Answer> {
        self.whole(self.request(method, path, body, &[]).await?).await
    }

    /// A call with headers of its own.
    pub async fn call_with(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Outcome<Answer> {
        self.whole(self.request(method, path, Some(body), headers).await?).await
    }

    async fn whole(&self, response: Response) -> Outcome<Answer> {
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes)
                .map_err(|error| Failure::failed(format!("the server's answer is not JSON: {error}")))?
        };
        Ok(Answer { status, headers, body })
    }

    /// The response itself, for bodies that are read as they come.
    pub async fn open(&self, method: Method, path: &str, body: Option<&Value>) -> Outcome<Response> {
        self.request(method, path, body, &[]).await
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Outcome<Response> {
        let url = self.url(path);
        for fresh in [false, true] {
            let token = self.token(fresh).await?;
            let mut request = self.http.request(method.clone(), &url).bearer_auth(token);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(reference) = &self.change_reference {
                request = request.header("x-neap-change-reference", reference);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            let response = request.send().await.map_err(|error| self.unreachable(&error))?;
            self.terminal.debug(|| format!("{method} {url} -> {}", response.status()));
            if response.status() == StatusCode::UNAUTHORIZED && !fresh {
                continue;
            }
            return if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) };
        }
        Err(Failure::failed("the server does not accept its own token"))
    }

    /// The values of a list and of its following pages, up to `limit`.
    pub async fn list(&self, path: &str, limit: Option<usize>) -> Outcome<Vec<Value>> {
        let mut values = Vec::new();
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            let mut page = self.get(&path).await?;
            if let Some(Value::Array(items)) = page.get_mut("value").map(Value::take) {
                values.extend(items);
            }
            if limit.is_some_and(|limit| values.len() >= limit) {
                values.truncate(limit.unwrap_or_default());
                break;
            }
            next = page
                .get("nextLink")
                .and_then(Value::as_str)
                .filter(|link| !link.is_empty())
                .map(str::to_owned);
        }
        Ok(values)
    }

    /// Waits until the operation that `first` began has ended, as ARM clients do.
    pub async fn wait(&self, first: &Answer) -> Outcome<()> {
        let header =
            |name: &str| first.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (url, by_status) = match (header("azure-asyncoperation"), header("location")) {
            (Some(url), _) => (url, true),
            (None, Some(url)) => (url, false),
            (None, None) => return Ok(()),
        };
        let mut patience = RESTART_PATIENCE;
        loop {
            let answer = match self.call(Method::GET, &url, None).await {
                Ok(answer) => answer,
                Err(failure) if failure.exit == Exit::Unreachable && !patience.is_zero() => {
                    patience = patience.saturating_sub(POLL_PAUSE_DEFAULT);
                    tokio::time::sleep(POLL_PAUSE_DEFAULT).await;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            patience = RESTART_PATIENCE;
            let ended = if by_status {
                operation_ended(&answer.body)?
            } else {
                answer.status != StatusCode::ACCEPTED
            };
            if ended {
                return Ok(());
            }
            tokio::time::sleep(pause(&answer.headers)).await;
        }
    }

    async fn token(&self, fresh: bool) -> Outcome<String> {
        if !fresh && let Some(token) = self.token.lock().ok().and_then(|token| token.clone()) {
            return Ok(token);
        }
        let request = self
            .http
            .get(self.connection.token_url())
            .query(&[("api-version", "2019-08-01"), ("resource", self.connection.url.as_str())])
            .header("X-IDENTITY-HEADER", &self.connection.identity_secret)
            .header("Metadata", "true");
        let answer: Value =
            self.send_bare(request).await?.json().await.map_err(|error| {
                Failure::failed(format!("the token endpoint's answer is not JSON: {error}"))
            })?;
        let token = answer
            .get("access_token")
            .and_then(Value::as_str)
            .ok_or_else(|| Failure::failed("the token endpoint answered without a token"))?
            .to_owned();
        if let Ok(mut kept) = self.token.lock() {
            *kept = Some(token.clone());
        }
        Ok(token)
    }

    /// A path of the server, or a link it gave, as a URL of the server we were told to use: the token goes nowhere else.
    fn url(&self, path: &str) -> String {
        let path = match path.split_once("://") {
            Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
            None => path,
        };
        let own =
            path.starts_with("/neap/") || path.starts_with("/services/") || path.contains("api-version=");
        let version = match (own, path.contains('?')) {
            (true, _) => String::new(),
            (false, true) => format!("&api-version={API_VERSION}"),
            (false, false) => format!("?api-version={API_VERSION}"),
        };
        format!("{}{path}{version}", self.connection.url)
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let mut causes = String::new();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            causes = cause.to_string();
            source = cause.source();
        }
        let url = &self.connection.url;
        let failure =
            Failure::new(Exit::Unreachable, format!("cannot reach the Neap server at {url}: {causes}"));
        match distrust::explain(&causes, url, &self.connection.ca_bundle) {
            Some(distrust) => Failure::new(Exit::Unreachable, distrust.message).hint(distrust.hint),
            None => failure.hint("start it with 'neap up --detach'"),
        }
    }
}

async fn refusal(response: Response) -> Failure {
    let status = response.status().as_u16();
    let raw = response.text().await.unwrap_or_default();
    let body = serde_json::from_str(&raw).unwrap_or(Value::Null);
    Failure::from_answer(status, &body, &raw)
}

fn operation_ended(body: &Value) -> Outcome<bool> {
    let status = body.get("status").and_then(Value::as_str).unwrap_or_default();
    match status.to_lowercase().as_str() {
        "succeeded" => Ok(true),
        "failed" | "canceled" => {
            if body.get("error").is_some_and(Value::is_object) {
                return Err(Failure::from_answer(409, body, ""));
            }
            Err(Failure::failed(format!("the operation ended as {status}")))
        }
        _ => Ok(false),
    }
}

fn pause(headers: &HeaderMap) -> Duration {
    let number =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    number("x-ms-retry-after-ms")
        .or_else(|| number("retry-after-ms"))
        .or_else(|| number("retry-after").map(|seconds| seconds.saturating_mul(1000)))
        .map_or(POLL_PAUSE_DEFAULT, |ms| Duration::from_millis(ms.clamp(50, 10_000)))
}

fn is_loopback(url: &str) -> bool {
    let host = url.split("://").nth(1).unwrap_or(url);
    host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
}

/// One segment of a path, escaped.
pub fn segment(text: &str) -> String {
    const KEEP: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    percent_encoding::utf8_percent_encode(text, KEEP).to_string()
}
