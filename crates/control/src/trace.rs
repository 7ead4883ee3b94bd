//! Spans of work, for whoever wants to export them. Nothing is recorded until somebody does; recording never blocks,
//! and what the exporter cannot keep up with is dropped and counted.
//!
//! A request carries its context through the task that serves it, so that the commit of its command and, later, the
//! attempts of the job it submitted are found in the same trace.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Mutex, OnceLock, PoisonError};

use neap_core::{AttemptId, JobId, Millis, NodeId};
use tokio::sync::mpsc;

use crate::instruments::Counter;
use crate::{clock, limits};

/// Which trace, and which span of it, work belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: [u8; 16],
    pub span: [u8; 8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal,
    Server,
    Client,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    Text(String),
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub context: TraceContext,
    pub parent: Option<[u8; 8]>,
    pub name: String,
    pub kind: SpanKind,
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    pub attributes: Vec<(&'static str, Attribute)>,
    /// Why it counts as failed.
    pub error: Option<String>,
}

#[derive(Debug, Default)]
pub struct Tracer {
    out: OnceLock<mpsc::Sender<Span>>,
    pub dropped: Counter,
    submissions: Mutex<Submissions>,
}

/// Which request submitted a job; the oldest are forgotten.
#[derive(Debug, Default)]
struct Submissions {
    order: VecDeque<JobId>,
    known: BTreeMap<JobId, TraceContext>,
}

/// A span that has begun. It is recorded when it ends, and forgotten if it does not.
#[derive(Clone, Debug)]
pub struct Begun {
    context: TraceContext,
    parent: Option<[u8; 8]>,
    start_unix_ns: u64,
}

tokio::task_local! {
    static CURRENT: TraceContext;
}

impl Tracer {
    /// From now on spans are recorded. `None` if they already are.
    pub fn enable(&self) -> Option<mpsc::Receiver<Span>> {
        let (out, spans) = mpsc::channel(limits::SPANS_MAX);
        self.out.set(out).ok().map(|()| spans)
    }

    pub fn is_enabled(&self) -> bool {
        self.out.get().is_some()
    }

    /// A span under the one this task works for, or at the head of a trace of its own. `None` when nobody listens.
    pub fn begin(&self) -> Option<Begun> {
        self.is_enabled().then(|| Begun::under(CURRENT.try_with(|current| *current).ok()))?
    }

    /// A span under what a caller said in its `traceparent` header. A caller that does not sample is not sampled.
    pub fn begin_under(&self, traceparent: Option<&str>) -> Option<Begun> {
        if !self.is_enabled() {
            return None;
        }
        match traceparent.map(parse_traceparent) {
            Some(Some((_, false))) => None,
            Some(Some((parent, true))) => Begun::under(Some(parent)),
            None | Some(None) => Begun::under(None),
        }
    }

    pub fn end(
        &self,
        begun: &Begun,
        name: &str,
        kind: SpanKind,
        attributes: Vec<(&'static str, Attribute)>,
        error: Option<String>,
    ) {
        self.record(Span {
            context: begun.context,
            parent: begun.parent,
            name: name.to_owned(),
            kind,
            start_unix_ns: begun.start_unix_ns,
            end_unix_ns: clock::wall_ns(),
            attributes,
            error,
        });
    }

    /// The job's attempts belong to the trace of its submission.
    pub fn submitted(&self, job: JobId, context: TraceContext) {
        let mut submissions = self.submissions.lock().unwrap_or_else(PoisonError::into_inner);
        submissions.known.insert(job, context);
        submissions.order.push_back(job);
        if submissions.order.len() > limits::TRACED_JOBS_MAX
            && let Some(oldest) = submissions.order.pop_front()
        {
            submissions.known.remove(&oldest);
        }
    }

    /// An attempt is over, from its placement to its end.
    pub fn attempt(
        &self,
        id: AttemptId,
        node: NodeId,
        (began, ended): (Millis, Millis),
        failed: Option<&str>,
    ) {
        if !self.is_enabled() {
            return;
        }
        let parent =
            self.submissions.lock().unwrap_or_else(PoisonError::into_inner).known.get(&id.job).copied();
        let Some(begun) = Begun::under(parent) else { return };
        self.record(Span {
            context: begun.context,
            parent: begun.parent,
            name: "attempt".into(),
            kind: SpanKind::Internal,
            start_unix_ns: began.0.saturating_mul(1_000_000),
            end_unix_ns: ended.0.saturating_mul(1_000_000),
            attributes: vec![
                ("neap.job.id", id.job.0.into()),
                ("neap.attempt", u64::from(id.number).into()),
                ("neap.node", format!("n-{node}").as_str().into()),
            ],
            error: failed.map(str::to_owned),
        });
    }

    fn record(&self, span: Span) {
        if let Some(out) = self.out.get()
            && out.try_send(span).is_err()
        {
            self.dropped.inc();
        }
    }
}

impl Begun {
    fn under(parent: Option<TraceContext>) -> Option<Self> {
        let span = neap_identity::random_bytes::<8>().ok()?;
        let trace = match parent {
            Some(parent) => parent.trace,
            None => neap_identity::random_bytes::<16>().ok()?,
        };
        Some(Self {
            context: TraceContext { trace, span },
            parent: parent.map(|p| p.span),
            start_unix_ns: clock::wall_ns(),
        })
    }

    pub fn context(&self) -> TraceContext {
        self.context
    }

    /// What is awaited within belongs to this span.
    pub async fn around<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.context, work).await
    }
}

/// W3C trace context: `00-{32 hex}-{16 hex}-{2 hex}`. The flag says whether the caller records.
fn parse_traceparent(text: &str) -> Option<(TraceContext, bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if version.len() != 2 || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let context = TraceContext { trace: from_hex(trace)?, span: from_hex(span)? };
    let [flags] = from_hex::<1>(flags)?;
    let real = context.trace != [0; 16] && context.span != [0; 8];
    real.then_some((context, flags & 1 == 1))
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = text.as_bytes();
    if bytes.len() != 2 * N || !bytes.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b)) {
        return None;
    }
    let digit = |b: u8| (b as char).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut out = [0; N];
    for (slot, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        *slot = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

/// Ids as they travel.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_callers_context_is_taken_up_or_left() {
        let check = |text: &str, expect: Option<bool>| {
            assert_eq!(parse_traceparent(text).map(|(_, sampled)| sampled), expect, "{text}");
        };
        check(PARENT, Some(true));
        check(&PARENT.replace("-01", "-00"), Some(false));
        check(&PARENT.replace("00-4b", "ff-4b"), None);
        check(&format!("{PARENT}-more"), None);
        check("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None);
        check(&PARENT.to_uppercase(), None);
        check("", None);
    }

    #[test]
    fn nothing_is_recorded_before_somebody_listens() {
        let tracer = Tracer::default();
        assert!(tracer.begin().is_none() && tracer.begin_under(Some(PARENT)).is_none());
        let _spans = tracer.enable().unwrap();
        assert!(tracer.enable().is_none(), "one exporter");
        assert!(
            tracer.begin_under(Some(&PARENT.replace("-01", "-00"))).is_none(),
            "the caller does not record"
        );
    }

    #[tokio::test]
    async fn work_within_a_span_is_its_child_and_so_are_the_attempts_of_a_job() {
        let tracer = Tracer::default();
        let mut spans = tracer.enable().unwrap();
        let request = tracer.begin_under(Some(PARENT)).unwrap();
        request
            .around(async {
                let command = tracer.begin().unwrap();
                tracer.end(&command, "command", SpanKind::Internal, Vec::new(), None);
            })
            .await;
        tracer.submitted(JobId(7), request.context());
        tracer.attempt(AttemptId { job: JobId(7), number: 1 }, NodeId(2), (Millis(5), Millis(9)), Some("x"));
        let (command, attempt) = (spans.recv().await.unwrap(), spans.recv().await.unwrap());
        for span in [&command, &attempt] {
            assert_eq!(hex(&span.context.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
            assert_eq!(span.parent, Some(request.context().span));
        }
        assert_eq!((attempt.start_unix_ns, attempt.end_unix_ns), (5_000_000, 9_000_000));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let tracer = Tracer::default();
        let _spans = tracer.enable().unwrap();
        let begun = tracer.begin().unwrap();
        for _ in 0..limits::SPANS_MAX + 3 {
            tracer.end(&begun, "x", SpanKind::Internal, Vec::new(), None);
        }
        assert_eq!(tracer.dropped.get(), 3);
    }
}
