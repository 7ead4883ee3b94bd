//! The body of a request, watched: it must make progress, and bodies that are held in memory share a budget.
//!
//! Only time in which the server waits for the client counts. What went wrong is told in the answer, whatever the handler made
//! of a body that broke off.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use neap_control::clock;
use neap_core::{Code, Millis, Refusal};
use tokio::time::Sleep;

use crate::limits::{BODY_BYTES_PER_S_MIN, BODY_STALL};

/// Bytes of bodies that are held in memory at the same time.
#[derive(Debug)]
pub struct Budget {
    max: u64,
    held: AtomicU64,
}

impl Budget {
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, held: AtomicU64::new(0) })
    }
}

/// What one request holds of a budget, and what went wrong with its body.
#[derive(Debug)]
pub struct Fate {
    /// None: its body is passed on as it comes.
    budget: Option<Arc<Budget>>,
    taken: AtomicU64,
    wrong: Mutex<Option<Refusal>>,
}

impl Fate {
    pub fn new(budget: Option<Arc<Budget>>) -> Arc<Self> {
        Arc::new(Self { budget, taken: AtomicU64::new(0), wrong: Mutex::new(None) })
    }

    /// Why the body was not taken to its end.
    pub fn wrong(&self) -> Option<Refusal> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn fail(&self, code: Code, message: String) -> axum::Error {
        let error = axum::Error::new(io::Error::other(message.clone()));
        *self.wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(Refusal::because(code, message));
        error
    }

    fn take(&self, bytes: u64) -> Result<(), axum::Error> {
        let Some(budget) = &self.budget else { return Ok(()) };
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        let held = budget.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if held <= budget.max {
            return Ok(());
        }
        Err(self.fail(
            Code::TooManyRequests,
            format!(
                "The bodies of all requests that are being read have more than {} bytes together, which is what limits.body_bytes_in_flight allows. Send the request again after 1 s.",
                budget.max
            ),
        ))
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.held.fetch_sub(self.taken.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
pub struct Paced {
    inner: Body,
    fate: Arc<Fate>,
    pace: Pace,
    waiting: Option<(Millis, Pin<Box<Sleep>>)>,
}

impl Paced {
    pub fn new(inner: Body, fate: Arc<Fate>) -> Self {
        Self { inner, fate, pace: Pace::default(), waiting: None }
    }
}

/// How long the server has waited for this body, and for how much.
#[derive(Debug, Default)]
struct Pace {
    waited_ms: u64,
    bytes: u64,
}

impl Pace {
    /// How long the next bytes may be waited for: never longer than a body may stand still, and less where it has been slow.
    fn patience(&self) -> Duration {
        let earned_ms = self.bytes.saturating_mul(1000) / BODY_BYTES_PER_S_MIN;
        let allowed_ms = millis(BODY_STALL).saturating_add(earned_ms).saturating_sub(self.waited_ms);
        Duration::from_millis(allowed_ms).min(BODY_STALL)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl hyper::body::Body for Paced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some((since, _)) = this.waiting.take() {
                    this.pace.waited_ms += clock::steady().since(since);
                }
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                this.pace.bytes = this.pace.bytes.saturating_add(bytes);
                match this.fate.take(bytes) {
                    Ok(()) => Poll::Ready(Some(Ok(frame))),
                    Err(error) => Poll::Ready(Some(Err(error))),
                }
            }
            Poll::Ready(other) => Poll::Ready(other),
            Poll::Pending => {
                let patience = this.pace.patience();
                let (_, sleep) = this
                    .waiting
                    .get_or_insert_with(|| (clock::steady(), Box::pin(tokio::time::sleep(patience))));
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                let error = this.fate.fail(
                    Code::RequestTimeout,
                    format!(
                        "The body of the request came too slowly: {} bytes, then nothing for a while. A body may stand still for {} s and must bring {BODY_BYTES_PER_S_MIN} bytes a second. Send the request again.",
                        this.pace.bytes,
                        BODY_STALL.as_secs()
                    ),
                );
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_body_may_go_on_and_one_that_stands_still_may_not() {
        let at = |bytes, waited_ms| Pace { waited_ms, bytes }.patience();
        for (bytes, waited_ms, expect_ms) in [
            (0, 0, 20_000),
            (1, 19_000, 1_000),
            (1, 21_000, 0),
            // 200 MB at 100 kB a second.
            (100_000_000, 1_000_000, 20_000),
            (200_000_000, 2_000_000, 20_000),
            // A byte now and then.
            (1_000, 20_000, 244),
        ] {
            assert_eq!(at(bytes, waited_ms), Duration::from_millis(expect_ms), "{bytes} in {waited_ms} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_ends() {
        let fate = Fate::new(None);
        let still = futures_util::stream::pending::<Result<Bytes, io::Error>>();
        let body = Body::new(Paced::new(Body::from_stream(still), fate.clone()));
        assert!(axum::body::to_bytes(body, 10).await.is_err());
        assert_eq!(fate.wrong().map(|refusal| refusal.code()), Some(Code::RequestTimeout));
    }

    #[tokio::test]
    async fn bodies_in_memory_share_a_budget() {
        let budget = Budget::new(10);
        let read = async |bytes: usize| {
            let fate = Fate::new(Some(budget.clone()));
            let body = Body::new(Paced::new(Body::from(vec![0; bytes]), fate.clone()));
            (axum::body::to_bytes(body, 100).await.is_ok(), fate)
        };
        let (first, held) = read(8).await;
        let (second, refused) = read(3).await;
        assert!(first && !second);
        assert_eq!(refused.wrong().map(|refusal| refusal.code()), Some(Code::TooManyRequests));
        drop((held, refused));
        assert!(read(10).await.0, "what is answered makes room");
    }
}
