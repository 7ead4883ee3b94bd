//! The server as a whole: ledger, commands, provider, agents, invariants, traces and alerts.

use neap_control::instruments::{Counter, Family as Instruments};

use super::exposition::{Exposition, Kind};
use crate::app::App;

pub(crate) fn write(out: &mut Exposition, app: &App) {
    let metrics = app.control.metrics();
    let state = app.state();
    out.family("neap_build_info", Kind::Gauge, "Always 1; the labels say which Neap this is.")
        .sample(&[("version", &app.server.version)], 1);
    out.single(
        "neap_draining",
        Kind::Gauge,
        "1 while the server is being stopped.",
        u64::from(state.draining.is_some()),
    );
    out.single("neap_workspaces", Kind::Gauge, "Workspaces.", state.workspaces.len() as u64);
    out.single("neap_clusters", Kind::Gauge, "Clusters.", state.clusters.len() as u64);

    let writable = u64::from(app.control.ledger_closed().is_none());
    out.single(
        "neap_ledger_writable",
        Kind::Gauge,
        "0 when nothing can be recorded: damage, or a full disk.",
        writable,
    );
    out.single(
        "neap_ledger_events",
        Kind::Gauge,
        "The number of the last event.",
        *app.control.changes().borrow(),
    );
    out.family("neap_ledger_commit_duration_seconds", Kind::Histogram, "Time of one durable commit.")
        .histogram(&[], &metrics.commit_seconds.snapshot());
    out.family("neap_ledger_commit_events", Kind::Histogram, "Events in one commit.")
        .histogram(&[], &metrics.commit_events.snapshot());
    by_word(
        out,
        "neap_ledger_commit_failures_total",
        "Commits that failed; nothing of them happened.",
        "reason",
        &metrics.commit_failures,
    );
    by_word(out, "neap_events_total", "Decisions, as recorded events.", "kind", &metrics.events);
    out.single(
        "neap_commands_accepted_total",
        Kind::Counter,
        "Commands that were decided.",
        metrics.commands_accepted.get(),
    );
    let mut refused = out.family("neap_commands_refused_total", Kind::Counter, "Commands that were refused.");
    for (code, count) in metrics.commands_refused.all() {
        refused.sample(&[("code", code.name())], count.get());
    }

    let calls = metrics.provider.all();
    let mut family = out.family(
        "neap_provider_call_duration_seconds",
        Kind::Histogram,
        "Time of one call to the provider.",
    );
    for (call, member) in &calls {
        family.histogram(&[("call", call)], &member.seconds.snapshot());
    }
    let mut family =
        out.family("neap_provider_errors_total", Kind::Counter, "Calls to the provider that failed.");
    for (call, member) in &calls {
        family.sample(&[("call", call)], member.errors.get());
    }
    out.single(
        "neap_lease_renewals_total",
        Kind::Counter,
        "Renewals of nodes' leases.",
        metrics.lease_renewals.get(),
    );
    out.single(
        "neap_agent_sessions",
        Kind::Gauge,
        "Agents that are connected.",
        metrics.agent_sessions.get(),
    );
    out.single(
        "neap_agent_sessions_opened_total",
        Kind::Counter,
        "Connections of agents.",
        metrics.agent_sessions_opened.get(),
    );

    out.single(
        "neap_invariant_checks_total",
        Kind::Counter,
        "Checks of the invariants on the published state.",
        metrics.invariant_checks.get(),
    );
    let mut family = out.family(
        "neap_invariant_violations",
        Kind::Gauge,
        "Violations found by the last check. Always 0, or Neap has a fault.",
    );
    for (invariant, gauge) in metrics.invariant_violations.all() {
        family.sample(&[("invariant", invariant)], gauge.get());
    }
    out.single(
        "neap_http_requests_limited_total",
        Kind::Counter,
        "Requests turned away because there were too many; they are in no other count.",
        metrics.requests_limited.get(),
    );
    out.single(
        "neap_connections_limited_total",
        Kind::Counter,
        "Connections refused or closed because there were too many.",
        metrics.connections_limited.get(),
    );
    out.single(
        "neap_trace_spans_exported_total",
        Kind::Counter,
        "Spans that a collector took.",
        metrics.spans_exported.get(),
    );
    out.single(
        "neap_trace_spans_dropped_total",
        Kind::Counter,
        "Spans that no collector took in time.",
        app.control.tracer().dropped.get(),
    );
    out.single(
        "neap_alerts_firing",
        Kind::Gauge,
        "Alerts that fire, as told to the webhook.",
        metrics.alerts_firing.get(),
    );
    by_word(
        out,
        "neap_alert_notices_total",
        "Notices to the webhook, by what became of them.",
        "result",
        &metrics.alert_notices,
    );
    out.single(
        "neap_metrics_left_out_total",
        Kind::Counter,
        "Clusters that are not counted because there are too many.",
        metrics.clusters.left_out(),
    );
}

fn by_word(
    out: &mut Exposition,
    name: &'static str,
    help: &str,
    label: &str,
    counters: &Instruments<&'static str, Counter>,
) {
    let mut family = out.family(name, Kind::Counter, help);
    for (word, count) in counters.all() {
        family.sample(&[(label, word)], count.get());
    }
}
