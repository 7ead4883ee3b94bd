//! Each cluster: nodes and cores by state, its queue, its health, what became of its jobs and how long things took.

use std::sync::Arc;

use neap_control::instruments::{Counter, Family as Instruments, Histogram};
use neap_control::metrics::ClusterMetrics;
use neap_control::node_gpus::GpuState;
use neap_core::health::{Figures, Health, NodeCount};
use neap_core::job::{JobState, Phase};

use super::exposition::{Exposition, Kind, Labels};
use crate::app::App;
use crate::neap::health;

/// One cluster as everything below sees it.
struct Row {
    workspace: Arc<str>,
    cluster: Arc<str>,
    figures: Figures,
    health: Health,
    /// By Azure's status, of those that have an attempt.
    active: [(&'static str, u64); 3],
    counted: Arc<ClusterMetrics>,
    /// GPUs that jobs have.
    gpus: Vec<GpuState>,
}

impl Row {
    fn labels(&self) -> [(&str, &str); 2] {
        [("workspace", &self.workspace), ("cluster", &self.cluster)]
    }

    fn with<'a>(&'a self, key: &'a str, value: &'a str) -> [(&'a str, &'a str); 3] {
        let [workspace, cluster] = self.labels();
        [workspace, cluster, (key, value)]
    }
}

pub(crate) fn write(out: &mut Exposition, app: &App) {
    let rows = rows(app);
    nodes(out, &rows);
    gpus(out, &rows);
    queue_and_jobs(out, &rows);
    health_of(out, &rows);
    counters(out, &rows);
    times(out, &rows);
}

fn rows(app: &App) -> Vec<Row> {
    let (state, now) = (app.state(), app.now());
    let metrics = app.control.metrics();
    let closed = app.control.ledger_closed();
    let found = state.clusters.values().filter_map(|cluster| {
        let counted = metrics.cluster(cluster.id)?;
        let (figures, health) = health::read(app, &state, cluster, closed.as_deref(), now);
        let mut active = [("Preparing", 0), ("Running", 0), ("Finalizing", 0)];
        for job in cluster.active.iter().filter_map(|id| state.jobs.get(id)) {
            if let JobState::Active(attempt) = &job.state {
                let slot = match attempt.phase {
                    Phase::Assigned => 0,
                    Phase::Running => 1,
                    Phase::Finalizing => 2,
                };
                active[slot].1 += 1;
            }
        }
        let workspace =
            state.workspaces.get(&cluster.workspace).map_or_else(|| "".into(), |w| w.name.clone());
        let gpus = cluster.nodes.iter().flat_map(|node| app.control.gpus().of(*node));
        let gpus = gpus.filter(|gpu| gpu.attempt.is_some()).collect();
        Some(Row { workspace, cluster: cluster.name.clone(), figures, health, active, counted, gpus })
    });
    found.collect()
}

fn gauge(out: &mut Exposition, rows: &[Row], name: &'static str, help: &str, value: impl Fn(&Row) -> u64) {
    let mut family = out.family(name, Kind::Gauge, help);
    for row in rows {
        family.sample(&row.labels(), value(row));
    }
}

/// As the driver says; clusters of whose GPUs nothing is said have no sample.
fn gpus(out: &mut Exposition, rows: &[Row]) {
    let help = "Of the GPUs that jobs have, the part of the time in which they worked, as the driver says.";
    let mut family = out.family("neap_gpu_utilization_ratio", Kind::Gauge, help);
    for row in rows {
        let seen: Vec<u64> = row.gpus.iter().filter_map(|gpu| gpu.utilization).map(u64::from).collect();
        if let Some(mean) = seen.iter().sum::<u64>().checked_div(seen.len() as u64) {
            family.parts(&row.labels(), mean, 100);
        }
    }
    let mut family =
        out.family("neap_gpu_memory_used_bytes", Kind::Gauge, "Memory in use on the GPUs that jobs have.");
    for row in rows {
        let seen: Vec<u64> = row.gpus.iter().filter_map(|gpu| gpu.memory_used_mb).collect();
        if !seen.is_empty() {
            family.sample(&row.labels(), seen.iter().sum::<u64>() << 20);
        }
    }
}

fn nodes(out: &mut Exposition, rows: &[Row]) {
    let mut by_state = |name, help: &str, per_unit, value: fn(&NodeCount) -> u64| {
        let mut family = out.family(name, Kind::Gauge, help);
        for row in rows {
            for (state, count) in &row.figures.nodes {
                family.parts(&row.with("state", state), value(count), per_unit);
            }
        }
    };
    by_state("neap_nodes", "Nodes by state.", 1, |count| u64::from(count.nodes));
    by_state("neap_cores", "Cores of the nodes' size, by state.", 1_000, |count| count.cpus_milli);
    by_state("neap_gpus", "GPUs of the nodes' size, by state.", 1, |count| count.gpus);
    gauge(out, rows, "neap_nodes_silent", "Nodes that have not been heard of for a while.", |r| {
        u64::from(r.figures.silent)
    });
    gauge(
        out,
        rows,
        "neap_nodes_idle_overdue",
        "Nodes idle for longer than the idle time and not needed for the minimum.",
        |r| u64::from(r.figures.overdue_idle),
    );
    gauge(out, rows, "neap_cluster_target_nodes", "How many nodes there should be.", |r| {
        u64::from(r.figures.target)
    });
    gauge(out, rows, "neap_cluster_min_nodes", "The cluster's minimum.", |r| u64::from(r.figures.min));
    gauge(out, rows, "neap_cluster_max_nodes", "The cluster's maximum.", |r| u64::from(r.figures.max));
    gauge(out, rows, "neap_node_boot_failures", "Nodes in a row that did not start.", |r| {
        u64::from(r.figures.boot_failures)
    });
    let mut family = out.family(
        "neap_cluster_cut",
        Kind::Gauge,
        "1 for each reason that keeps the target below what the work asks for.",
    );
    for row in rows {
        for cut in &row.figures.cuts {
            family.sample(&row.with("reason", cut), 1);
        }
    }
}

fn queue_and_jobs(out: &mut Exposition, rows: &[Row]) {
    gauge(out, rows, "neap_queue_depth", "Jobs that wait.", |r| r.figures.queued);
    let mut family = out.family(
        "neap_queue_oldest_wait_seconds",
        Kind::Gauge,
        "How long the job that waits longest has waited; 0 when none waits.",
    );
    for row in rows {
        family.parts(&row.labels(), row.figures.oldest_wait_ms, 1_000);
    }
    let mut family = out.family("neap_jobs_active", Kind::Gauge, "Jobs that have an attempt, by status.");
    for row in rows {
        for (status, count) in &row.active {
            family.sample(&row.with("status", status), *count);
        }
    }
    gauge(
        out,
        rows,
        "neap_job_system_failures",
        "Jobs in a row that failed through no fault of their own.",
        |r| r.counted.system_failures.get(),
    );
}

fn health_of(out: &mut Exposition, rows: &[Row]) {
    gauge(out, rows, "neap_cluster_health", "0 healthy, 1 degraded, 2 failing.", |r| {
        r.health.verdict.level()
    });
    let mut family = out.family(
        "neap_cluster_health_signal",
        Kind::Gauge,
        "The verdict of each signal behind a cluster's health: 0 healthy, 1 degraded, 2 failing.",
    );
    for row in rows {
        for signal in &row.health.signals {
            family.sample(&row.with("signal", signal.name), signal.verdict.level());
        }
    }
}

fn counters(out: &mut Exposition, rows: &[Row]) {
    let mut plain = |name, help: &str, value: fn(&ClusterMetrics) -> &Counter| {
        let mut family = out.family(name, Kind::Counter, help);
        for row in rows {
            family.sample(&row.labels(), value(&row.counted).get());
        }
    };
    plain("neap_jobs_submitted_total", "Jobs that were submitted.", |c| &c.jobs_submitted);
    plain(
        "neap_jobs_requeued_total",
        "Attempts that did not count: their jobs went back to the queue.",
        |c| &c.jobs_requeued,
    );
    plain("neap_jobs_preempted_total", "Attempts whose node was taken back.", |c| &c.jobs_preempted);
    plain("neap_nodes_preempted_total", "Nodes that were taken back.", |c| &c.nodes_preempted);
    plain("neap_provisioning_failures_total", "Nodes that did not start.", |c| &c.boot_failures);
    plain("neap_node_silences_total", "Times that a node fell silent.", |c| &c.nodes_silenced);
    let mut by_word =
        |name, help: &str, label, words: fn(&ClusterMetrics) -> &Instruments<&'static str, Counter>| {
            let mut family = out.family(name, Kind::Counter, help);
            for row in rows {
                for (word, count) in words(&row.counted).all() {
                    family.sample(&row.with(label, word), count.get());
                }
            }
        };
    by_word("neap_jobs_ended_total", "Jobs that ended, by status.", "status", |c| &c.jobs_ended);
    by_word("neap_target_cuts_total", "Decisions on the target that were cut, by reason.", "reason", |c| {
        &c.target_cuts
    });
    by_word("neap_nodes_requested_total", "Nodes that were asked for, by reason.", "reason", |c| {
        &c.nodes_requested
    });
    by_word("neap_nodes_left_total", "Nodes that were let go or lost, by reason.", "reason", |c| {
        &c.nodes_left
    });
}

fn times(out: &mut Exposition, rows: &[Row]) {
    let mut each = |name, help: &str, of: fn(&ClusterMetrics) -> &Histogram| {
        let mut family = out.family(name, Kind::Histogram, help);
        for row in rows {
            let labels: Labels<'_> = &row.labels();
            family.histogram(labels, &of(&row.counted).snapshot());
        }
    };
    each(
        "neap_autoscale_delay_seconds",
        "From a job's submission to the moment its new node was ready.",
        |c| &c.autoscale_delay,
    );
    each("neap_queue_wait_seconds", "How long jobs waited before each placement.", |c| &c.queue_wait);
    each("neap_node_boot_seconds", "From the wish for a node to its readiness.", |c| &c.node_boot);
    each("neap_attempt_staging_seconds", "From a placement to the moment its process runs.", |c| {
        &c.attempt_staging
    });
    each("neap_attempt_run_seconds", "How long attempts ran.", |c| &c.attempt_run);
}
