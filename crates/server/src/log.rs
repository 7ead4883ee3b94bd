//! The server's own log: for people by default, one JSON object per line with `NEAP_LOG_FORMAT=json`. Lines that are
//! written on behalf of a request carry its `request_id` and `correlation_id`.

use std::fmt;
use std::io::IsTerminal;

use neap_core::visible;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

const FILTER: &str = "NEAP_LOG";
const FORMAT: &str = "NEAP_LOG_FORMAT";
/// One line per request is left out unless asked for.
const FILTER_DEFAULT: &str = "info,neap::access=off";

/// Sets the log of this process up, as the environment says.
pub fn install() -> Result<(), String> {
    let is_terminal = std::io::stderr().is_terminal();
    let filter = EnvFilter::new(std::env::var(FILTER).unwrap_or_else(|_| FILTER_DEFAULT.to_owned()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || OneLine { to: std::io::stderr(), keeps_colours: is_terminal })
        // Told on stderr too, by a macro that panics when that fails: a full disk would end whoever logs.
        .log_internal_errors(false);
    match std::env::var(FORMAT).unwrap_or_default().as_str() {
        "" | "text" => builder.with_ansi(is_terminal).init(),
        "json" => builder.with_ansi(false).fmt_fields(JsonFields).event_format(JsonLines).init(),
        other => return Err(format!("{FORMAT} is 'text' or 'json', not '{other}'")),
    }
    Ok(())
}

/// Writes each event as one line. Names and errors in it come from others; what would begin a line of its own, or steer the
/// terminal of whoever reads the log, is escaped. The subscriber hands over an event in one call, and has escaped ESC in
/// values before it added colours of its own.
struct OneLine<W> {
    to: W,
    keeps_colours: bool,
}

impl<W: std::io::Write> std::io::Write for OneLine<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let (line, end) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (&*text, ""),
        };
        let line = if self.keeps_colours {
            line.split('\u{1b}').map(visible::line).collect::<Vec<_>>().join("\u{1b}")
        } else {
            visible::line(line).into_owned()
        };
        self.to.write_all(line.as_bytes())?;
        self.to.write_all(end.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// Fields of spans, kept as the inside of a JSON object.
#[derive(Debug)]
struct JsonFields;

impl<'writer> FormatFields<'writer> for JsonFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut collected = Collected::default();
        fields.record(&mut collected);
        write!(writer, "{}", Value::Object(collected.0))
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        let mut collected = Collected(object(&current.fields));
        fields.record(&mut collected);
        current.fields = Value::Object(collected.0).to_string();
        Ok(())
    }
}

fn object(text: &str) -> Map<String, Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[derive(Debug)]
struct JsonLines;

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        line.insert("timestamp".into(), neap_control::clock::wall().rfc3339().into());
        line.insert("level".into(), event.metadata().level().as_str().into());
        line.insert("target".into(), event.metadata().target().into());
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<FormattedFields<JsonFields>>() {
                line.extend(object(&fields.fields));
            }
        }
        let mut collected = Collected(line);
        event.record(&mut collected);
        writeln!(writer, "{}", Value::Object(collected.0))
    }
}

#[derive(Debug, Default)]
struct Collected(Map<String, Value>);

impl Collected {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Collected {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || OneLine { to: writer.clone(), keeps_colours: false })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(error = %"a\n2026-01-01 INFO forged\u{1b}[2J\u{202e}", "could not");
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("\\nforged") || text.contains("\\n2026"), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("\\u202e"), "{text}");
    }

    #[test]
    fn a_line_is_json_and_names_the_request() {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .fmt_fields(JsonFields)
            .event_format(JsonLines)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("request", request_id = "r-1", late = tracing::field::Empty);
            span.record("late", 7);
            let _in = span.enter();
            tracing::warn!(status = 503, error = %"a \"quoted\"\nthing", "could not");
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&Value::from("WARN"), &Value::from("could not")));
        assert_eq!((&line["request_id"], &line["late"]), (&Value::from("r-1"), &Value::from(7)));
        assert_eq!(
            (&line["status"], &line["error"]),
            (&Value::from(503), &Value::from("a \"quoted\"\nthing"))
        );
        assert!(line["timestamp"].as_str().is_some_and(|at| at.ends_with('Z')));
    }
}
