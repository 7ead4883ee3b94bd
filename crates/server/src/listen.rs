//! The one port: agents and HTTP clients are told apart by the protocol they ask for in the handshake.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use neap_control::{Sessions, clock};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::limits;
use crate::tls::Tls;
use crate::visitors::{Party, Patience, Visit, Visitors};
use crate::wire::{Held, Wire};

#[derive(Debug)]
pub struct Front {
    pub tls: Tls,
    pub router: Router,
    pub sessions: Arc<Sessions>,
    pub visitors: Arc<Visitors>,
    /// How long a connection is kept open for another request.
    pub idle: Duration,
    /// Becomes true when no more requests are taken.
    pub closing: watch::Receiver<bool>,
}

/// The port of the last life is tried first where any would do.
pub async fn bind(wanted: SocketAddr, last_port: Option<u16>) -> io::Result<TcpListener> {
    if let (0, Some(port)) = (wanted.port(), last_port)
        && let Ok(listener) = TcpListener::bind(SocketAddr::new(wanted.ip(), port)).await
    {
        return Ok(listener);
    }
    TcpListener::bind(wanted).await
}

impl Front {
    pub async fn serve(self, listener: TcpListener) {
        let front = Arc::new(self);
        let mut closing = front.closing.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = closed(&mut closing) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // No room: closed at once, without a handshake.
                    let Some(visit) = front.visitors.admit(peer.ip()) else { continue };
                    prepare(&stream);
                    tokio::spawn(front.clone().connection(stream, visit));
                }
                Err(error) => {
                    // Out of descriptors, as a rule: give the others time to end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, visit: Arc<Visit>) {
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(limits::HANDSHAKE, self.handshake(stream, &visit)) => shaken,
            () = stays_a_stranger(&visit) => return,
        };
        match shaken {
            Ok(Ok((stream, Caller::Agent))) => self.agent(stream, visit).await,
            Ok(Ok((stream, Caller::Stream))) => {
                let Some(node) = certified(&stream) else { return };
                if visit.becomes(Party::Node(node)) {
                    // Counted for as long as the stream is open, whoever has it by then.
                    let stream = Wire::new(stream, visit);
                    self.sessions.clone().take_stream(stream, Some(node)).await;
                }
            }
            Ok(Ok((stream, Caller::Http))) => self.http(stream, visit).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn agent(&self, stream: TlsStream<TcpStream>, visit: Arc<Visit>) {
        let node = certified(&stream);
        if let Some(node) = node
            && !visit.becomes(Party::Node(node))
        {
            return;
        }
        let joining = visit.clone();
        let on_accepted = Box::new(move |node| {
            // Where the node has too many connections already, this one is told to leave.
            let _ = joining.becomes(Party::Node(node));
        });
        tokio::select! {
            () = self.sessions.clone().serve(stream, node, on_accepted) => {}
            () = stays_a_stranger(&visit) => tracing::debug!(node, "an agent's connection is closed"),
        }
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        visit: &Visit,
    ) -> io::Result<(TlsStream<TcpStream>, Caller)> {
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        visit.has_spoken();
        let asks_for = |wanted: &[u8]| {
            start.client_hello().alpn().is_some_and(|mut names| names.any(|name| name == wanted))
        };
        let (caller, config) = if asks_for(neap_protocol::ALPN) {
            (Caller::Agent, &self.tls.agents)
        } else if asks_for(neap_protocol::STREAM_ALPN) {
            (Caller::Stream, &self.tls.agents)
        } else {
            (Caller::Http, &self.tls.http)
        };
        Ok((start.into_stream(config.clone()).await?, caller))
    }

    async fn http(&self, stream: TlsStream<TcpStream>, visit: Arc<Visit>) {
        let builder = self.protocols();
        let service = service_of(self.router.clone(), visit.clone());
        let io = TokioIo::new(Wire::new(stream, visit.clone()));
        let connection = builder.serve_connection_with_upgrades(io, service);
        tokio::pin!(connection);
        let mut closing = self.closing.clone();
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = closed(&mut closing) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            over = outstays(&visit) => {
                tracing::debug!(?over, "an HTTP connection is closed");
                // One that has shown a credential is not cut off in the middle of an answer.
                connection.as_mut().graceful_shutdown();
                let goodbye =
                    if over == Patience::Idle { limits::GOODBYE } else { limits::STRANGERS_GOODBYE };
                match tokio::time::timeout(goodbye, connection).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "an HTTP connection ended");
        }
    }

    /// HTTP/1 and HTTP/2, with a bound on everything that a client can make the server hold.
    fn protocols(&self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.idle)
            .max_buf_size(limits::HTTP1_BUFFER_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits::HTTP2_STREAMS_MAX)
            .max_header_list_size(limits::HTTP2_HEADER_BYTES_MAX)
            .initial_connection_window_size(limits::HTTP2_CONNECTION_WINDOW_BYTES)
            .initial_stream_window_size(limits::HTTP2_STREAM_WINDOW_BYTES)
            .max_send_buf_size(limits::HTTP2_SEND_BUFFER_BYTES)
            .max_pending_accept_reset_streams(limits::HTTP2_RESET_STREAMS_MAX)
            .max_local_error_reset_streams(limits::HTTP2_ERRORS_MAX);
        builder
    }
}

/// The router, told which connection each request came over; the connection is busy until the answer's last byte.
fn service_of(
    router: Router,
    visit: Arc<Visit>,
) -> impl Service<Request<Incoming>, Response = Response<Held>, Error = Infallible, Future: Send> + Clone {
    let router = TowerToHyperService::new(router);
    service_fn(move |mut request: Request<Incoming>| {
        let answering = visit.answering();
        request.extensions_mut().insert(visit.clone());
        let answer = router.call(request);
        async move { Ok(answer.await?.map(|body| Held::new(body, answering))) }
    })
}

/// Resolves when the connection is to end: it has shown no credential in time, it is idle, or it makes room.
async fn outstays(visit: &Visit) -> Patience {
    loop {
        match visit.patience(clock::steady()) {
            Patience::Wait(wait) => tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = visit.left() => return Patience::Nameless,
            },
            over => return over,
        }
    }
}

/// Resolves when a connection that has shown no credential is to end.
async fn stays_a_stranger(visit: &Visit) {
    loop {
        match visit.patience(clock::steady()) {
            Patience::Nameless => return,
            Patience::Idle => return visit.left().await,
            Patience::Wait(wait) => tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = visit.left() => return,
            },
        }
    }
}

/// Small messages go at once, and a peer that has vanished is noticed.
fn prepare(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, limits::KEEPALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, limits::KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(stream, limits::KEEPALIVE_PROBES);
}

/// Who is at the other end, by the protocol asked for.
#[derive(Clone, Copy)]
enum Caller {
    Agent,
    /// An agent, with the bytes of one service of a job.
    Stream,
    Http,
}

/// The node that the client certificate names.
fn certified(stream: &TlsStream<TcpStream>) -> Option<u64> {
    let chain = stream.get_ref().1.peer_certificates()?;
    neap_identity::node_of(chain.first()?)
}

/// Resolves when no more requests are taken.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}
