//! The server's own log: for people by default, one JSON object per line with `NEAP_LOG_FORMAT=json`. Lines that are
//! written on behalf of a request carry its `request_id` and `correlation_id`.

use std::fmt;
use std::io::IsTerminal;

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
    let filter = EnvFilter::new(std::env::var(FILTER).unwrap_or_else(|_| FILTER_DEFAULT.to_owned()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Told on stderr too, by a macro that panics when that fails: a full disk would end whoever logs.
        .log_internal_errors(false);
    match std::env::var(FORMAT).unwrap_or_default().as_str() {
        "" | "text" => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        "json" => builder.with_ansi(false).fmt_fields(JsonFields).event_format(JsonLines).init(),
        other => return Err(format!("{FORMAT} is 'text' or 'json', not '{other}'")),
    }
    Ok(())
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
