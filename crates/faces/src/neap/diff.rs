//! `computes/{name}/diff?from=&to=`: what is different about a cluster between two times: definition, nodes, jobs, spend.
//!
//! Both sides are made from the log alone; without `to` the other side is now.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::Response;
use neap_core::cluster::Cluster;
use neap_core::documents::ClusterDocument;
use neap_core::job::Status;
use neap_core::state::Workspace;
use neap_core::{Code, JobId, Millis, Refusal};
use serde_json::{Value, json};

use super::cost;
use crate::app::{App, unreadable};
use crate::arm::{computes, errors};
use crate::ask::Ask;
use crate::{limits, past, reply};

/// A cluster at one time.
struct Side {
    at: Millis,
    cluster: Option<Arc<Cluster>>,
    definition: Vec<(&'static str, Value)>,
    nodes: BTreeMap<String, &'static str>,
    /// Those that have not ended.
    jobs: BTreeMap<JobId, (Arc<str>, Status)>,
}

impl Side {
    fn read(app: &App, workspace: &Workspace, name: &str) -> Result<Self, Refusal> {
        let state = app.state();
        let cluster = state.cluster(workspace.id, name).cloned();
        let mut side = Self {
            at: app.now(),
            cluster,
            definition: Vec::new(),
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
        };
        let Some(cluster) = &side.cluster else { return Ok(side) };
        let document: ClusterDocument = app.document(&cluster.document)?;
        side.definition = computes::definition(cluster, &document);
        side.nodes = state.nodes_of(cluster).map(|node| (format!("n-{}", node.id), node.word())).collect();
        let here = state.jobs.values().filter(|job| job.cluster == cluster.id);
        side.jobs = here.map(|job| (job.id, (job.name.clone(), job.status()))).collect();
        Ok(side)
    }

    fn count(&self, is: impl Fn(Status) -> bool) -> usize {
        self.jobs.values().filter(|(_, status)| is(*status)).count()
    }
}

/// What differs, and how.
#[derive(Default)]
struct Changes {
    rows: Vec<Value>,
    left_out: usize,
}

impl Changes {
    fn add(&mut self, what: impl Into<String>, from: Value, to: Value) {
        if from == to {
            return;
        }
        if self.rows.len() < limits::DIFF_ROWS_MAX {
            let row = [("what", Value::String(what.into())), ("from", from), ("to", to)];
            self.rows.push(row.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        } else {
            self.left_out += 1;
        }
    }
}

pub(crate) async fn get(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let Some(from) = ask.query.get("from") else {
        return Err(Refusal::because(
            Code::BadArgument,
            "'from' is missing: a time such as 2026-11-01T00:00:00Z.",
        ));
    };
    let before = past::at(app, "from", from).await;
    let after = match ask.query.get("to") {
        Some(to) => past::at(app, "to", to).await,
        None => Ok(app.clone()),
    };
    let (before, after) = match (before, after) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(from), Err(to)) => {
            return Err(Refusal { problems: from.problems.into_iter().chain(to.problems).collect() });
        }
        (Err(one), Ok(_)) | (Ok(_), Err(one)) => return Err(one),
    };
    let (a, b) = (Side::read(&before, workspace, name)?, Side::read(&after, workspace, name)?);
    if a.at > b.at {
        return Err(Refusal::because(Code::BadArgument, "'from' is after 'to'."));
    }
    let Some(cluster) = b.cluster.as_ref().or(a.cluster.as_ref()) else {
        return Err(errors::not_found("Compute", name));
    };
    let mut changes = Changes::default();
    let there = |side: &Side| {
        side.cluster.as_ref().map_or(Value::Null, |cluster| json!(format!("id {}", cluster.id)))
    };
    changes.add("cluster", there(&a), there(&b));
    definition(&mut changes, &a, &b);
    nodes(&mut changes, &a, &b);
    jobs(&mut changes, &after, &a, &b)?;
    let spent =
        |app: &App, side: &Side| cost::spent(app, workspace, cluster.id, side.at).map(|usd| json!(usd));
    changes.add("spend_usd", spent(&before, &a)?, spent(&after, &b)?);
    Ok(reply::ok(&json!({
        "cluster": cluster.name, "from": a.at.rfc3339(), "to": b.at.rfc3339(),
        "changes": changes.rows, "left_out": changes.left_out,
    })))
}

fn definition(changes: &mut Changes, a: &Side, b: &Side) {
    let of = |side: &Side, field: &str| {
        side.definition
            .iter()
            .find(|(name, _)| *name == field)
            .map_or(Value::Null, |(_, value)| value.clone())
    };
    let fields = if b.definition.is_empty() { &a.definition } else { &b.definition };
    for (field, _) in fields {
        changes.add(*field, of(a, field), of(b, field));
    }
}

fn nodes(changes: &mut Changes, a: &Side, b: &Side) {
    changes.add("nodes", json!(a.nodes.len()), json!(b.nodes.len()));
    let mut names: Vec<&String> = a.nodes.keys().chain(b.nodes.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        changes.add(format!("node {name}"), json!(a.nodes.get(name)), json!(b.nodes.get(name)));
    }
}

/// Jobs that wait, those that have a node, and what became of each.
fn jobs(changes: &mut Changes, after: &App, a: &Side, b: &Side) -> Result<(), Refusal> {
    let waits = |status| matches!(status, Status::Queued | Status::NotStarted);
    changes.add("jobs waiting", json!(a.count(waits)), json!(b.count(waits)));
    let has_node = |status| !waits(status);
    changes.add("jobs active", json!(a.count(has_node)), json!(b.count(has_node)));
    let mut all: BTreeMap<JobId, &Arc<str>> = BTreeMap::new();
    all.extend(a.jobs.iter().chain(&b.jobs).map(|(id, (name, _))| (*id, name)));
    for (id, name) in all {
        let then = a.jobs.get(&id).map_or(Value::Null, |(_, status)| json!(status.word()));
        let now = match b.jobs.get(&id) {
            Some((_, status)) => json!(status.word()),
            // It has ended, and the tables say how.
            None => after
                .control
                .reader()
                .job_by_id(id)
                .map_err(unreadable)?
                .map_or(Value::Null, |row| json!(row.status.word())),
        };
        changes.add(format!("job {name}"), then, now);
    }
    Ok(())
}
