//! Spans to a collector: OTLP over HTTP as JSON, to where the standard variables say. In the background, in batches;
//! a collector that is slow or away costs spans, which are counted, and nothing else.

use std::time::Duration;

use neap_control::Handle;
use neap_control::trace::{Attribute, Span, SpanKind, hex};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::outgoing;

/// Spans of one request.
const BATCH_SPANS_MAX: usize = 512;
/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_millis(500);
/// A batch is offered so often, with these pauses between.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// What the end of the server waits for the last batch.
const FLUSH: Duration = Duration::from_secs(2);

/// Where spans go, from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    url: String,
    headers: HeaderMap,
    service: String,
}

impl Collector {
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` as it is, or `OTEL_EXPORTER_OTLP_ENDPOINT` with the usual path.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let set = |name: &str| variable(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        if set("OTEL_SDK_DISABLED").is_some_and(|v| v.eq_ignore_ascii_case("true")) {
            return None;
        }
        let url = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| {
            set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| format!("{}/v1/traces", base.trim_end_matches('/')))
        })?;
        let mut headers = HeaderMap::new();
        let listed = set("OTEL_EXPORTER_OTLP_TRACES_HEADERS").or_else(|| set("OTEL_EXPORTER_OTLP_HEADERS"));
        for pair in listed.as_deref().unwrap_or("").split(',') {
            let Some((name, value)) = pair.split_once('=') else { continue };
            if let (Ok(name), Ok(mut value)) =
                (name.trim().parse::<HeaderName>(), HeaderValue::from_str(value.trim()))
            {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        Some(Self { url, headers, service: set("OTEL_SERVICE_NAME").unwrap_or_else(|| "neap".into()) })
    }
}

/// A running exporter.
#[derive(Debug)]
pub struct Exporter {
    finish: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Exporter {
    pub fn start(
        collector: Collector,
        client: reqwest::Client,
        handle: Handle,
        resource: Vec<(&'static str, String)>,
    ) -> Option<Self> {
        let spans = handle.tracer().enable()?;
        let (finish, finished) = oneshot::channel();
        let task = tokio::spawn(Export { collector, client, handle, resource }.run(spans, finished));
        Some(Self { finish, task })
    }

    /// Sends what is there, within bounds.
    pub async fn finish(self) {
        let _ = self.finish.send(());
        let _ = tokio::time::timeout(FLUSH, self.task).await;
    }
}

struct Export {
    collector: Collector,
    client: reqwest::Client,
    handle: Handle,
    resource: Vec<(&'static str, String)>,
}

impl Export {
    async fn run(self, mut spans: mpsc::Receiver<Span>, mut finished: oneshot::Receiver<()>) {
        let mut ending = false;
        while !ending {
            let mut batch = Vec::new();
            tokio::select! {
                Some(span) = spans.recv() => batch.push(span),
                _ = &mut finished => ending = true,
            }
            if !ending {
                tokio::select! {
                    () = tokio::time::sleep(GATHER) => {}
                    _ = &mut finished => ending = true,
                }
            }
            while let Ok(span) = spans.try_recv() {
                batch.push(span);
            }
            for part in batch.chunks(BATCH_SPANS_MAX) {
                self.send(part, ending).await;
            }
        }
    }

    async fn send(&self, spans: &[Span], last: bool) {
        let body = body(&self.collector.service, &self.resource, spans).to_string();
        let pauses = if last { &[][..] } else { &PAUSES[..] };
        let mut tries = pauses.iter();
        loop {
            match self.post(body.clone()).await {
                Ok(()) => return self.handle.metrics().spans_exported.add(spans.len() as u64),
                Err(problem) => match tries.next() {
                    Some(pause) => tokio::time::sleep(*pause).await,
                    None => {
                        tracing::warn!(spans = spans.len(), problem, "the trace collector took no spans");
                        return self.handle.tracer().dropped.add(spans.len() as u64);
                    }
                },
            }
        }
    }

    async fn post(&self, body: String) -> Result<(), String> {
        let request = self
            .client
            .post(&self.collector.url)
            .headers(self.collector.headers.clone())
            .header("content-type", "application/json")
            .body(body);
        let status = request.send().await.map_err(outgoing::why)?.status();
        if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
    }
}

/// One request in OTLP's JSON: ids in hex, times and integers as text.
fn body(service: &str, resource: &[(&'static str, String)], spans: &[Span]) -> Value {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let mut about = vec![text("service.name", service)];
    about.extend(resource.iter().map(|(key, value)| text(key, value)));
    json!({"resourceSpans": [{
        "resource": {"attributes": about},
        "scopeSpans": [{
            "scope": {"name": "neap", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    }]})
}

fn span(span: &Span) -> Value {
    let attributes: Vec<Value> = span
        .attributes
        .iter()
        .map(|(key, value)| match value {
            Attribute::Text(text) => json!({"key": key, "value": {"stringValue": text}}),
            Attribute::Number(number) => json!({"key": key, "value": {"intValue": number.to_string()}}),
        })
        .collect();
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    let mut out = json!({
        "traceId": hex(&span.context.trace),
        "spanId": hex(&span.context.span),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": span.start_unix_ns.to_string(),
        "endTimeUnixNano": span.end_unix_ns.to_string(),
        "attributes": attributes,
        "status": span.error.as_ref().map_or_else(|| json!({}), |why| json!({"code": 2, "message": why})),
    });
    if let Some(parent) = &span.parent {
        out["parentSpanId"] = json!(hex(parent));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_control::trace::TraceContext;

    fn from(pairs: &[(&str, &str)]) -> Option<Collector> {
        Collector::from_environment(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_standard_variables_say_where() {
        assert_eq!(from(&[]), None);
        assert_eq!(from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), None);
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");
        assert_eq!(from(&[base]).unwrap().url, "http://c:4318/v1/traces");
        assert_eq!(from(&[base, ("OTEL_SDK_DISABLED", "true")]), None);
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/x");
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k1, b = c,nonsense");
        let all = from(&[base, own, headers, ("OTEL_SERVICE_NAME", "n2")]).unwrap();
        assert_eq!((all.url.as_str(), all.service.as_str(), all.headers.len()), ("http://c/x", "n2", 2));
        assert!(!format!("{all:?}").contains("k1"), "headers hold keys");
    }

    #[test]
    fn a_span_as_it_travels() {
        let sent = Span {
            context: TraceContext { trace: [1; 16], span: [2; 8] },
            parent: Some([3; 8]),
            name: "attempt".into(),
            kind: SpanKind::Internal,
            start_unix_ns: 5,
            end_unix_ns: 9,
            attributes: vec![("neap.node", "n-1".into()), ("neap.attempt", 2_u64.into())],
            error: Some("UserError".into()),
        };
        let body = body("neap", &[("service.version", "1".into())], &[sent]);
        let span = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "01010101010101010101010101010101");
        assert_eq!(span["parentSpanId"], "0303030303030303");
        assert_eq!((&span["startTimeUnixNano"], &span["kind"]), (&json!("5"), &json!(1)));
        assert_eq!(span["attributes"][1]["value"]["intValue"], "2");
        assert_eq!(span["status"], json!({"code": 2, "message": "UserError"}));
    }
}
