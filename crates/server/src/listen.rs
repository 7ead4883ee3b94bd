//! The one port: agents and HTTP clients are told apart by the protocol they ask for in the handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use neap_control::Sessions;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::tls::Tls;

/// A client that does not finish its handshake is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Front {
    pub tls: Tls,
    pub router: Router,
    pub sessions: Arc<Sessions>,
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
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(front.clone().connection(stream));
                }
                Err(error) => {
                    // Out of descriptors, as a rule: give the others time to end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        match tokio::time::timeout(HANDSHAKE, self.handshake(stream)).await {
            Ok(Ok((stream, Caller::Agent))) => {
                let certified = certified(&stream);
                self.sessions.clone().serve(stream, certified).await;
            }
            Ok(Ok((stream, Caller::Stream))) => {
                let certified = certified(&stream);
                self.sessions.clone().take_stream(stream, certified).await;
            }
            Ok(Ok((stream, Caller::Http))) => self.http(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn handshake(&self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, Caller)> {
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
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

    async fn http(&self, stream: TlsStream<TcpStream>) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
        builder.http2().timer(TokioTimer::new());
        let service = TowerToHyperService::new(self.router.clone());
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let mut closing = self.closing.clone();
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = closed(&mut closing) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "an HTTP connection ended");
        }
    }
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
