//! What runs beside attempts, as their agents tell it, and streams to it.
//!
//! A stream is asked for over the agent's connection; the agent connects to the service and dials the server once more for
//! these bytes alone, so that a slow reader holds up nobody else. Nothing here is in the log: a server that was started
//! again hears it all again, and streams are opened anew. Who may open one is the faces' question.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use neap_core::{AttemptId, NodeId, State};
use neap_protocol::{Down, STREAM_NAME_BYTES, Secret, ServiceState, encode_message};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::sessions::Sessions;
use crate::{conversation, limits};

/// Bytes both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A stream to a service. It ends when the service, its attempt or its node does.
pub struct ServiceStream {
    inner: Box<dyn Duplex>,
    _place: OwnedSemaphorePermit,
}

impl std::fmt::Debug for ServiceStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceStream").finish_non_exhaustive()
    }
}

/// Why there is no stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error("{} streams to services are open, which is as many as there may be", limits::SERVICE_STREAMS_MAX)]
    TooMany,
    #[error("its node is not connected at the moment")]
    NotConnected,
    #[error("{0}")]
    Refused(String),
    #[error("its node did not answer within {} s", limits::SERVICE_STREAM_S)]
    Late,
}

/// Who waits for a stream, and which node it is to come from.
struct Waiting {
    node: NodeId,
    answer: oneshot::Sender<Result<Box<dyn Duplex>, String>>,
}

pub struct Services {
    told: Mutex<BTreeMap<(AttemptId, NodeId), Vec<ServiceState>>>,
    waiting: Mutex<BTreeMap<String, Waiting>>,
    places: Arc<Semaphore>,
    sessions: OnceLock<Weak<Sessions>>,
}

impl Default for Services {
    fn default() -> Self {
        Self {
            told: Mutex::default(),
            waiting: Mutex::default(),
            places: Arc::new(Semaphore::new(limits::SERVICE_STREAMS_MAX)),
            sessions: OnceLock::new(),
        }
    }
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Services {
    /// How agents are reached.
    pub(crate) fn through(&self, sessions: &Arc<Sessions>) {
        let _ = self.sessions.set(Arc::downgrade(sessions));
    }

    /// How an attempt's services on one of its nodes are; `None` where that was not told.
    pub fn of(&self, attempt: AttemptId, node: NodeId) -> Option<Vec<ServiceState>> {
        lock(&self.told).get(&(attempt, node)).cloned()
    }

    /// An agent told how they are. What it says of an attempt that is not its own counts for nothing.
    pub(crate) fn tell(&self, node: NodeId, attempt: AttemptId, states: Vec<ServiceState>, state: &State) {
        let mut told = lock(&self.told);
        told.retain(|(attempt, node), _| is_held(state, *attempt, *node));
        if is_held(state, attempt, node) {
            let states = states.into_iter().take(limits::SERVICES_TOLD_MAX).collect();
            told.insert((attempt, node), states);
        }
    }

    /// Opens a stream to a service of an attempt on this node.
    pub async fn open(
        &self,
        attempt: AttemptId,
        node: NodeId,
        service: &str,
    ) -> Result<ServiceStream, StreamError> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| StreamError::TooMany)?;
        let name = neap_identity::random_guid().map_err(|e| StreamError::Refused(e.to_string()))?;
        let sessions = self.sessions.get().and_then(Weak::upgrade).ok_or(StreamError::NotConnected)?;
        let (answer, arrival) = oneshot::channel();
        lock(&self.waiting).insert(name.clone(), Waiting { node, answer });
        // Whatever becomes of this call, nobody waits for the stream afterwards.
        let _waiting = WaitsFor { services: self, name: &name };
        let order = Down::OpenStream {
            stream: Secret::new(&name),
            attempt: conversation::wire(attempt),
            service: service.to_owned(),
        };
        let mut frame = Vec::new();
        encode_message(&order, &mut frame);
        let link = sessions.roster().link(node).ok_or(StreamError::NotConnected)?;
        link.try_send(frame).map_err(|_| StreamError::NotConnected)?;
        drop(sessions);
        let patience = Duration::from_secs(limits::SERVICE_STREAM_S);
        match tokio::time::timeout(patience, arrival).await {
            Ok(Ok(Ok(inner))) => Ok(ServiceStream { inner, _place: place }),
            Ok(Ok(Err(reason))) => Err(StreamError::Refused(reason)),
            Ok(Err(_)) => Err(StreamError::NotConnected),
            Err(_) => Err(StreamError::Late),
        }
    }

    /// The stream does not come.
    pub(crate) fn failed(&self, node: NodeId, stream: &str, reason: String) {
        if let Some(waiting) = self.take(node, stream) {
            let _ = waiting.answer.send(Err(reason));
        }
    }

    /// A node has dialled with a stream: it says which, and whoever asked for it has it from then on.
    pub(crate) async fn arrived<S: Duplex + 'static>(&self, node: NodeId, mut stream: S) {
        let mut name = [0; STREAM_NAME_BYTES];
        let reading = stream.read_exact(&mut name);
        let read = tokio::time::timeout(Duration::from_secs(limits::SERVICE_STREAM_S), reading).await;
        let waiting = match (read, std::str::from_utf8(&name)) {
            (Ok(Ok(_)), Ok(name)) => self.take(node, name),
            _ => None,
        };
        match waiting {
            Some(waiting) => drop(waiting.answer.send(Ok(Box::new(stream)))),
            None => tracing::debug!(%node, "a stream came that nobody waits for"),
        }
    }

    fn take(&self, node: NodeId, stream: &str) -> Option<Waiting> {
        let mut waiting = lock(&self.waiting);
        // Known to the node that was told of it, and of use to it alone.
        if waiting.get(stream)?.node != node {
            return None;
        }
        waiting.remove(stream)
    }
}

struct WaitsFor<'a> {
    services: &'a Services,
    name: &'a str,
}

impl Drop for WaitsFor<'_> {
    fn drop(&mut self) {
        lock(&self.services.waiting).remove(self.name);
    }
}

fn is_held(state: &State, attempt: AttemptId, node: NodeId) -> bool {
    state
        .jobs
        .get(&attempt.job)
        .and_then(|job| job.attempt())
        .is_some_and(|current| current.number == attempt.number && current.phase_on(node).is_some())
}

impl AsyncRead for ServiceStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for ServiceStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    fn waits(services: &Services, name: &str) -> oneshot::Receiver<Result<Box<dyn Duplex>, String>> {
        let (answer, arrival) = oneshot::channel();
        lock(&services.waiting).insert(name.into(), Waiting { node: NodeId(7), answer });
        arrival
    }

    #[tokio::test]
    async fn a_stream_reaches_whoever_waits_for_it_once() {
        let name = "01234567-89ab-4cde-8f01-23456789abcd";
        let services = Services::default();
        let mut arrival = waits(&services, name);
        let dial = async |node: u64| {
            let (mut near, far) = tokio::io::duplex(1024);
            near.write_all(name.as_bytes()).await.unwrap();
            near.write_all(b"hello").await.unwrap();
            services.arrived(NodeId(node), far).await;
            near
        };
        drop(dial(8).await);
        assert!(arrival.try_recv().is_err(), "another node's stream is not it");
        let near = dial(7).await;
        let mut stream = arrival.await.unwrap().unwrap();
        let mut read = [0; 5];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
        drop(near);
        assert!(lock(&services.waiting).is_empty());
        drop(dial(7).await);
    }

    #[tokio::test]
    async fn a_node_that_cannot_open_says_why() {
        let services = Services::default();
        let arrival = waits(&services, "x");
        services.failed(NodeId(8), "x", "no".into());
        services.failed(NodeId(7), "x", "nothing listens on port 9".into());
        assert_eq!(arrival.await.unwrap().err().as_deref(), Some("nothing listens on port 9"));
    }
}
