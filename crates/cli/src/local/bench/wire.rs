//! One keep-alive HTTPS connection, one request at a time, with as little work as can be: the program that measures
//! shares the machine with what it measures. HTTP/1.1 as any client speaks it; it knows no resource.

use super::clock;
use super::interrupt::Interrupt;
use crate::client::segment;
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// How often a wait looks whether it should end.
const LOOK_UP: Duration = Duration::from_millis(250);
/// A server that says nothing for this long is not measured any further.
const PATIENCE: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 16 * 1024;
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Where a server is and how to be let in. Cheap to clone: every connection has one.
#[derive(Clone)]
pub struct Address {
    authority: String,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    token: Arc<str>,
    interrupt: Interrupt,
}

// The token stays out of every debug print.
impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Address {
    /// Gets a token, which lasts longer than any benchmark.
    pub fn of(connection: &Connection, interrupt: &Interrupt) -> Outcome<Self> {
        let authority = connection.url.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| Failure::failed(format!("'{host}' is not the name of a server: {error}")))?;
        let mut address =
            Self { authority, name, tls: tls(connection)?, token: "".into(), interrupt: interrupt.clone() };
        let mut wire = Wire::open(&address)?;
        let path = format!("/msi/token?api-version=2019-08-01&resource={}", segment(&connection.url));
        wire.extra = format!("X-IDENTITY-HEADER: {}\r\n", connection.identity_secret);
        let answer = wire.get(&path)?;
        address.token = answer["access_token"]
            .as_str()
            .ok_or_else(|| Failure::failed("the token endpoint answered without a token"))?
            .into();
        Ok(address)
    }

    /// The same server, for requests that an interrupt does not stop.
    pub fn undisturbed(&self) -> Self {
        Self { interrupt: Interrupt::never(), ..self.clone() }
    }

    pub fn port(&self) -> &str {
        self.authority.rsplit(':').next().unwrap_or_default()
    }
}

fn tls(connection: &Connection) -> Outcome<Arc<ClientConfig>> {
    let bundle = &connection.ca_bundle;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(bundle).map_err(|error| {
        Failure::failed(format!("cannot read the CA bundle {}: {error}", bundle.display()))
    })?;
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::failed(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
pub struct Wire {
    address: Address,
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// A header line that only the token's request has.
    extra: String,
    /// What was read and not used: `unread[used..]`.
    unread: Vec<u8>,
    used: usize,
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    body: BodyLength,
    closes: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum BodyLength {
    Known(usize),
    Chunked,
}

/// Why a request came to nothing.
enum Lost {
    /// The connection was gone before a byte was answered: a fresh one may serve.
    Stale(std::io::Error),
    For(Failure),
}

impl Wire {
    pub fn open(address: &Address) -> Outcome<Self> {
        let stream = connect(address)?;
        Ok(Self { address: address.clone(), stream, extra: String::new(), unread: Vec::new(), used: 0 })
    }

    pub fn get(&mut self, path: &str) -> Outcome<Value> {
        self.json("GET", path, &[])
    }

    pub fn put(&mut self, path: &str, body: &Value) -> Outcome<Value> {
        self.json("PUT", path, body.to_string().as_bytes())
    }

    pub fn delete(&mut self, path: &str) -> Outcome<()> {
        self.send("DELETE", path, &[], &mut |_| {}).map(drop)
    }

    /// A PUT whose answer is looked at no further than its status.
    pub fn put_bytes(&mut self, path: &str, body: &[u8]) -> Outcome<()> {
        self.send("PUT", path, body, &mut |_| {})
    }

    /// A GET whose body is heard as it comes.
    pub fn follow(&mut self, path: &str, heard: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        self.send("GET", path, &[], heard)
    }

    fn json(&mut self, method: &str, path: &str, body: &[u8]) -> Outcome<Value> {
        let mut text = Vec::new();
        self.send(method, path, body, &mut |piece| text.extend_from_slice(piece))?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&text)
            .map_err(|error| Failure::failed(format!("the server's answer is not JSON: {error}")))
    }

    /// Every request here may be sent twice: the second would find what the first has done.
    fn send(&mut self, method: &str, path: &str, body: &[u8], heard: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        match self.exchange(method, path, body, heard) {
            Ok(()) => Ok(()),
            Err(Lost::For(failure)) => Err(failure),
            Err(Lost::Stale(_)) => {
                self.reconnect()?;
                self.exchange(method, path, body, heard).map_err(|lost| match lost {
                    Lost::For(failure) => failure,
                    Lost::Stale(error) => unreachable_because(&self.address, &error),
                })
            }
        }
    }

    fn reconnect(&mut self) -> Outcome<()> {
        self.stream = connect(&self.address)?;
        self.unread.clear();
        self.used = 0;
        Ok(())
    }

    fn exchange(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        heard: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Lost> {
        let Address { authority, token, .. } = &self.address;
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\n{}", self.extra);
        if !token.is_empty() {
            request.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if method == "PUT" {
            request
                .push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).and_then(|()| self.stream.flush()).map_err(Lost::Stale)?;

        let head = self.head()?;
        let mut refusal = Vec::new();
        let refused = !(200..300).contains(&head.status);
        let mut sink = |piece: &[u8]| if refused { refusal.extend_from_slice(piece) } else { heard(piece) };
        match head.body {
            BodyLength::Known(bytes) => self.piece(bytes, &mut sink)?,
            BodyLength::Chunked => self.chunks(&mut sink)?,
        }
        if head.closes {
            self.reconnect().map_err(Lost::For)?;
        }
        if refused {
            let raw = String::from_utf8_lossy(&refusal);
            let value = serde_json::from_str(&raw).unwrap_or(Value::Null);
            return Err(Lost::For(Failure::from_answer(head.status, &value, &raw)));
        }
        Ok(())
    }

    fn head(&mut self) -> Result<Head, Lost> {
        loop {
            let unread = &self.unread[self.used..];
            if let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = read_head(&String::from_utf8_lossy(&unread[..end]))
                    .map_err(|what| Lost::For(Failure::failed(format!("the server's answer {what}"))))?;
                self.used += end + 4;
                return Ok(head);
            }
            if unread.len() > HEAD_BYTES_MAX {
                return Err(Lost::For(Failure::failed("the server's answer has an endless head")));
            }
            let first = unread.is_empty();
            self.fill().map_err(|lost| match lost {
                Lost::Stale(error) if !first => Lost::For(unreachable_because(&self.address, &error)),
                lost => lost,
            })?;
        }
    }

    /// The next `bytes` bytes of the body.
    fn piece(&mut self, bytes: usize, sink: &mut dyn FnMut(&[u8])) -> Result<(), Lost> {
        let mut left = bytes;
        while left > 0 {
            if self.used == self.unread.len() {
                self.fill_body()?;
            }
            let here = left.min(self.unread.len() - self.used);
            sink(&self.unread[self.used..self.used + here]);
            self.used += here;
            left -= here;
        }
        Ok(())
    }

    fn chunks(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<(), Lost> {
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let bytes = usize::from_str_radix(digits, 16).map_err(|_| {
                Lost::For(Failure::failed("the server's answer has a chunk without a length"))
            })?;
            self.piece(bytes, sink)?;
            self.line()?;
            if bytes == 0 {
                return Ok(());
            }
        }
    }

    fn line(&mut self) -> Result<String, Lost> {
        loop {
            let unread = &self.unread[self.used..];
            if let Some(end) = unread.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&unread[..end]).into_owned();
                self.used += end + 2;
                return Ok(line);
            }
            self.fill_body()?;
        }
    }

    fn fill_body(&mut self) -> Result<(), Lost> {
        self.fill().map_err(|lost| match lost {
            Lost::Stale(error) => Lost::For(unreachable_because(&self.address, &error)),
            lost => lost,
        })
    }

    /// Reads what there is, waiting for the first byte.
    fn fill(&mut self) -> Result<(), Lost> {
        if self.used == self.unread.len() {
            self.unread.clear();
            self.used = 0;
        }
        let begun = clock::now();
        let at = self.unread.len();
        self.unread.resize(at + READ_BYTES, 0);
        let outcome = loop {
            match self.stream.read(&mut self.unread[at..]) {
                Ok(0) => break Err(Lost::Stale(ErrorKind::UnexpectedEof.into())),
                Ok(read) => break Ok(read),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    if let Err(failure) = self.address.interrupt.check() {
                        break Err(Lost::For(failure));
                    }
                    if begun.elapsed() > PATIENCE {
                        let seconds = PATIENCE.as_secs();
                        break Err(Lost::For(Failure::failed(format!("no answer for {seconds} s"))));
                    }
                }
                Err(error) => break Err(Lost::Stale(error)),
            }
        };
        self.unread.truncate(at + outcome.as_ref().map_or(0, |read| *read));
        outcome.map(drop)
    }
}

fn connect(address: &Address) -> Outcome<StreamOwned<ClientConnection, TcpStream>> {
    address.interrupt.check()?;
    let lost = |error: &std::io::Error| unreachable_because(address, error);
    let tcp = TcpStream::connect(&address.authority).map_err(|error| lost(&error))?;
    tcp.set_nodelay(true).map_err(|error| lost(&error))?;
    let session = ClientConnection::new(address.tls.clone(), address.name.clone())
        .map_err(|error| Failure::failed(format!("TLS cannot be set up: {error}")))?;
    tcp.set_read_timeout(Some(LOOK_UP)).map_err(|error| lost(&error))?;
    let mut stream = StreamOwned::new(session, tcp);
    let begun = clock::now();
    // The handshake at once: it is no part of a request's time.
    while stream.conn.is_handshaking() {
        match stream.conn.complete_io(&mut stream.sock) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) && begun.elapsed() < PATIENCE => address.interrupt.check()?,
            Err(error) => return Err(lost(&error)),
        }
    }
    Ok(stream)
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn unreachable_because(address: &Address, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("the server at https://{} is lost: {error}", address.authority))
}

fn read_head(text: &str) -> Result<Head, &'static str> {
    let mut lines = text.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|code| code.parse().ok())
        .ok_or("has no status")?;
    let (mut length, mut chunked, mut closes) = (None, false, false);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().ok();
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            closes = value.eq_ignore_ascii_case("close");
        }
    }
    let body = match (chunked, length) {
        (true, _) => BodyLength::Chunked,
        (false, Some(bytes)) => BodyLength::Known(bytes),
        (false, None) if status == 204 || status == 304 => BodyLength::Known(0),
        (false, None) => return Err("does not say how long it is"),
    };
    Ok(Head { status, body, closes })
}

#[cfg(test)]
mod tests {
    use super::{BodyLength, Head, read_head};

    #[test]
    fn heads() {
        let head = |status, body, closes| Ok(Head { status, body, closes });
        for (text, expected) in [
            ("HTTP/1.1 201 Created\r\nContent-Length: 12", head(201, BodyLength::Known(12), false)),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked", head(200, BodyLength::Chunked, false)),
            ("HTTP/1.1 204 No Content\r\nconnection: close", head(204, BodyLength::Known(0), true)),
            ("HTTP/1.1 200 OK", Err("does not say how long it is")),
            ("nonsense", Err("has no status")),
        ] {
            assert_eq!(read_head(text), expected, "{text}");
        }
    }
}
