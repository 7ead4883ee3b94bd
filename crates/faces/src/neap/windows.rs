//! `computes/NAME/schedules`: windows on a cluster's scale, as people write them. When each is open is the calendar's to
//! say; what is in force is the core's.

use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use neap_calendar as calendar;
use neap_core::cluster::Cluster;
use neap_core::command::{FillWindow, PutWindow};
use neap_core::documents::WindowDocument;
use neap_core::limits::WINDOW_SPANS_KEPT;
use neap_core::state::Workspace;
use neap_core::window::{Span, Window, next_change};
use neap_core::{Code, Command, Millis, Refusal};
use serde_json::{Map, Value, json};

use crate::app::{self, App};
use crate::arm::errors;
use crate::ask::{Ask, Caller};
use crate::fields::Fields;
use crate::reply;

/// What says when it is open.
const TIMES: &[&str] = &["start", "end", "duration", "time_zone", "not_on", "also_on"];
/// What says what is so while it is open.
const BOUNDS: &[&str] = &["min", "max", "running", "enabled"];
/// What is answered and may come back.
const ANSWERED: &[&str] =
    &["name", "compute", "open", "next_change", "spans", "by", "created", "modified", "description"];
/// Spans that an answer shows.
const SPANS_SHOWN: usize = 5;
/// Where there are few spans, further ones are looked for so long before what is known ends.
const REFILL_AHEAD_MS: u64 = 35 * 24 * 3_600 * 1_000;

pub(crate) async fn answer(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    compute: &str,
    rest: &[&str],
) -> Result<Response, Refusal> {
    let state = app.state();
    let cluster =
        state.cluster(workspace.id, compute).ok_or_else(|| errors::not_found("Compute", compute))?;
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let value: Result<Vec<Value>, Refusal> =
                cluster.windows.values().map(|window| shown(app, cluster, window)).collect();
            Ok(reply::ok(&json!({"value": value?, "in_force": in_force(cluster, app.now())})))
        }
        ("GET", [name]) => Ok(reply::ok(&shown(app, cluster, find(cluster, name)?)?)),
        ("PUT", [name]) => {
            let new = !cluster.windows.contains_key(&*name.to_lowercase());
            put(app, ask, cluster, name, &ask.json()?).await?;
            one(app, workspace, compute, name, if new { StatusCode::CREATED } else { StatusCode::OK })
        }
        ("POST", [name, verb @ ("enable" | "disable")]) => {
            let window = find(cluster, name)?;
            let mut body = definition(app, window)?;
            body["enabled"] = json!(*verb == "enable");
            put(app, ask, cluster, name, &body).await?;
            one(app, workspace, compute, name, StatusCode::OK)
        }
        ("DELETE", [name]) => {
            let command = Command::DeleteWindow { cluster: cluster.id, name: (*name).into() };
            app.submit(&ask.caller, command, Vec::new()).await?;
            Ok(reply::empty(StatusCode::OK))
        }
        (_, [] | [_]) => Err(errors::method_not_allowed(ask, "GET, PUT and DELETE")),
        _ => Err(errors::no_such_path(ask)),
    }
}

fn one(
    app: &App,
    workspace: &Workspace,
    compute: &str,
    name: &str,
    status: StatusCode,
) -> Result<Response, Refusal> {
    let state = app.state();
    let cluster =
        state.cluster(workspace.id, compute).ok_or_else(|| errors::not_found("Compute", compute))?;
    Ok(reply::json(status, &shown(app, cluster, find(cluster, name)?)?))
}

fn find<'a>(cluster: &'a Cluster, name: &str) -> Result<&'a Window, Refusal> {
    cluster.windows.get(&*name.to_lowercase()).map(AsRef::as_ref).ok_or_else(|| {
        let message = format!(
            "Compute '{}' has no schedule '{name}'; 'neap compute schedule list {}' shows those it has.",
            cluster.name, cluster.name
        );
        Refusal::because(Code::ResourceNotFound, message)
    })
}

async fn put(app: &App, ask: &Ask, cluster: &Cluster, name: &str, body: &Value) -> Result<(), Refusal> {
    let mut problems = Vec::new();
    let fields = Fields::of(Some(body), "", &mut problems);
    fields.only(&[TIMES, BOUNDS].concat(), ANSWERED, "a schedule", &mut problems);
    let (min, max) = (fields.integer("min", &mut problems), fields.integer("max", &mut problems));
    let enabled = fields.flag("enabled", &mut problems).unwrap_or(true);
    let stops = match fields.text("running", &mut problems) {
        None | Some("finish") => false,
        Some("stop") => true,
        Some(other) => {
            let message = format!(
                "'running' is finish (what runs is left to end) or stop (it is stopped and waits), not '{other}'."
            );
            problems.push(errors::bad(message, "running"));
            false
        }
    };
    let asked: Map<String, Value> = TIMES
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), body.get(*key).filter(|value| !value.is_null())?.clone())))
        .collect();
    let asked = Value::Object(asked);
    let (spans, refill_at, zone) = match calendar::Window::read(&asked) {
        Ok(window) => {
            let (spans, refill_at) = spans(&window, app.now());
            (spans, refill_at, window.zone.name().to_owned())
        }
        Err(found) => {
            problems.extend(found.into_iter().map(|problem| errors::bad(problem.says, &problem.at)));
            (Vec::new(), None, String::new())
        }
    };
    let document = app::document(&WindowDocument { asked })?;
    let command = Command::PutWindow(PutWindow {
        cluster: cluster.id,
        name: name.into(),
        enabled,
        min,
        max,
        stops,
        zone: zone.into(),
        spans,
        refill_at,
        document: document.hash,
        by: ask.caller.actor.as_str().into(),
        problems,
    });
    app.submit(&ask.caller, command, vec![document]).await.map(drop)
}

/// The calendar's answer, and when to ask it again.
fn spans(window: &calendar::Window, now: Millis) -> (Vec<Span>, Option<Millis>) {
    let Some(instant) = i64::try_from(now.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()) else {
        return (Vec::new(), None);
    };
    let ahead = window.ahead(instant, WINDOW_SPANS_KEPT);
    let span = |stretch: &calendar::Stretch| {
        // Where one that is open touches the next and the next, the last that was looked at is not its end.
        let goes_on = stretch.from <= instant && stretch.until >= ahead.known_until;
        Some(Span {
            from: millis(stretch.from)?,
            until: if goes_on { Span::NEVER } else { millis(stretch.until)? },
            offsets: (window.offset_minutes(stretch.from), window.offset_minutes(stretch.until)),
        })
    };
    let spans: Vec<Span> = ahead.stretches.iter().filter_map(span).collect();
    let refill_at = if spans.len() == WINDOW_SPANS_KEPT {
        spans.get(WINDOW_SPANS_KEPT / 2).map(|span| span.until)
    } else {
        millis(ahead.known_until).map(|at| Millis(at.0.saturating_sub(REFILL_AHEAD_MS)).max(now.plus(1)))
    };
    (spans, refill_at)
}

fn millis(at: Timestamp) -> Option<Millis> {
    u64::try_from(at.as_millisecond()).ok().map(Millis)
}

/// Works out further spans of windows whose known ones run out. False if it has to be tried again.
pub(crate) async fn refill(app: &App, caller: &Caller) -> bool {
    let (state, now) = (app.state(), app.now());
    let mut done = true;
    for cluster in state.clusters.values().filter(|c| !c.windows.is_empty() && !c.is_deleting()) {
        let due =
            |window: &&std::sync::Arc<Window>| window.enabled && window.refill_at.is_some_and(|at| at <= now);
        for window in cluster.windows.values().filter(due) {
            if let Err(refusal) = refill_one(app, caller, cluster, window, now).await {
                tracing::warn!(compute = %cluster.name, schedule = %window.name, %refusal, "a compute's schedule cannot be worked out further now; it is tried again");
                done = false;
            }
        }
    }
    done
}

async fn refill_one(
    app: &App,
    caller: &Caller,
    cluster: &Cluster,
    window: &Window,
    now: Millis,
) -> Result<(), Refusal> {
    let document: WindowDocument = app.document(&window.document)?;
    // It was read when it was put; one that was erased is never open again.
    let (spans, refill_at) = match calendar::Window::read(&document.asked) {
        Ok(read) => spans(&read, now),
        Err(_) => (Vec::new(), None),
    };
    let command = Command::FillWindow(FillWindow {
        cluster: cluster.id,
        name: window.name.clone(),
        document: window.document,
        spans,
        refill_at,
    });
    match app.submit(caller, command, Vec::new()).await {
        // Deleted in the meantime.
        Err(refusal) if refusal.code() == Code::ResourceNotFound => Ok(()),
        filled => filled.map(drop),
    }
}

/// A definition as it can be put again.
fn definition(app: &App, window: &Window) -> Result<Value, Refusal> {
    let document: WindowDocument = app.document(&window.document)?;
    let mut shown = document.asked;
    if !shown.is_object() {
        shown = json!({});
    }
    shown["enabled"] = json!(window.enabled);
    shown["min"] = json!(window.min);
    shown["max"] = json!(window.max);
    shown["running"] = json!(if window.stops { "stop" } else { "finish" });
    Ok(shown)
}

fn shown(app: &App, cluster: &Cluster, window: &Window) -> Result<Value, Refusal> {
    let now = app.now();
    let mut shown = definition(app, window)?;
    shown["name"] = json!(window.name);
    shown["compute"] = json!(cluster.name);
    shown["time_zone"] = json!(window.zone);
    shown["open"] = json!(window.is_open(now));
    shown["next_change"] = window.next(now).map_or(Value::Null, |(at, opens, clock)| {
        json!({"at": at.rfc3339(), "clock": clock, "does": if opens { "opens" } else { "closes" }})
    });
    let ahead = window.spans.iter().filter(|span| span.until > now).take(SPANS_SHOWN);
    shown["spans"] = ahead
        .map(|span| json!({"from": span.from.rfc3339(), "until": span.end().map(Millis::rfc3339)}))
        .collect();
    shown["by"] = json!(window.by);
    shown["created"] = json!(window.created.rfc3339());
    shown["modified"] = json!(window.modified.rfc3339());
    Ok(shown)
}

/// Minimum and maximum now, by which schedule, and the next change.
pub(crate) fn in_force(cluster: &Cluster, now: Millis) -> Value {
    let next = next_change(cluster.declared, &cluster.windows, now);
    json!({
        "min": cluster.scale.min,
        "max": cluster.scale.max,
        "min_by": cluster.scheduled.min_by,
        "max_by": cluster.scheduled.max_by,
        "next_change": next.map(|change| {
            json!({"at": change.at.rfc3339(), "clock": change.clock, "min": change.min, "max": change.max})
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_kept_ahead_and_asked_for_again_in_time() {
        let read = |asked: Value| calendar::Window::read(&asked).unwrap();
        let now = Millis(1_794_816_000_000);
        let nights = read(json!({"start": "0 20 * * *", "end": "0 7 * * *", "time_zone": "Europe/Berlin"}));
        let (spans_ahead, refill_at) = spans(&nights, now);
        assert_eq!(spans_ahead.len(), WINDOW_SPANS_KEPT);
        assert_eq!(spans_ahead[0].offsets, (60, 60));
        assert_eq!(refill_at, Some(spans_ahead[WINDOW_SPANS_KEPT / 2].until));
        let rare = read(json!({"start": "0 0 29 2 *", "duration": "1d"}));
        let (spans_ahead, refill_at) = spans(&rare, now);
        assert_eq!(spans_ahead, vec![]);
        assert!(refill_at.is_some_and(|at| at > now));
    }

    #[test]
    fn one_that_is_always_open_has_no_end() {
        let now = Millis(1_794_816_000_000);
        for start in ["0 * * * *", "* * * * *"] {
            let always = calendar::Window::read(&json!({"start": start, "duration": "1h"})).unwrap();
            let (spans_ahead, refill_at) = spans(&always, now);
            assert_eq!(spans_ahead.iter().map(Span::end).collect::<Vec<_>>(), [None], "{start}");
            assert!(refill_at.is_some_and(|at| at > now), "{start}");
        }
        // A long one that is open has its end.
        let long = calendar::Window::read(&json!({"start": "0 0 1 11 *", "duration": "20d"})).unwrap();
        assert!(spans(&long, now).0[0].end().is_some());
    }
}
