//! A long past for a server: events as a year of jobs would have left them, written straight into a ledger that no
//! server uses. The snapshots lie as they would: the last one is nearly as far back as they ever are.

use super::clock;
use super::installation::Bench;
use crate::failure::{Failure, Outcome};
use neap_core::documents::{JobDocument, JobMeta};
use neap_core::event::{
    AttemptFinalizing, AttemptStarted, JobEnded, JobPlaced, JobSubmitted, NodeCreating, NodeGone,
    NodeLeaving, NodePreparing, NodeReady, NodeRequested,
};
use neap_core::job::{AttemptFacts, Exit, Need, Outcome as JobOutcome};
use neap_core::{ClusterId, DocHash, Event, JobId, Millis, NodeId, State, WorkspaceId, apply, meter};
use neap_ledger::{Batch, Document, Entry, Ledger, Options, limits};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

const BATCH_EVENTS: usize = 1_000;
/// Jobs that a node has done when it goes.
const JOBS_PER_NODE: u64 = 500;
/// One job in so many still waits at the end, on the cluster that may have no nodes.
const WAITING_ONE_IN: u64 = 100;
/// Left for what the starts themselves write before the next snapshot is due.
const TAIL_MARGIN: u64 = 1_000;

/// What was written.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    pub events: u64,
    pub events_per_second: f64,
    /// Events after the last snapshot: what a start has to apply again.
    pub after_snapshot: u64,
}

/// Adds events to the ledger of a data folder until it has `total`. The clusters of these names must be there.
pub fn write(bench: &Bench<'_>, data: &Path, total: u64, runs: &str, waits: &str) -> Outcome<Written> {
    let options =
        Options { lock: Some(data.join("neap.lock")), check_older_chain: false, ..Options::default() };
    let opened = Ledger::open(&data.join("ledger"), options).map_err(|error| failed(&error))?;
    let mut ledger = opened.ledger;
    let cluster = |name: &str| {
        opened
            .state
            .clusters
            .values()
            .find(|cluster| *cluster.name == *name)
            .map(|cluster| (cluster.workspace, cluster.id))
            .ok_or_else(|| Failure::failed(format!("the cluster {name} is not in the ledger")))
    };
    let (workspace, runs) = cluster(runs)?;
    let (_, waits) = cluster(waits)?;
    let already = opened.head.seq;
    let mut past = Past::new(opened.state, workspace, runs, waits)?;
    // The last snapshot lies so far back that none becomes due while the server is started a few times.
    let last_snapshot = total.saturating_sub(limits::SNAPSHOT_EVERY_EVENTS - TAIL_MARGIN);
    let mut snapshot = 0;
    let begun = clock::now();
    while ledger.head().seq < total {
        bench.interrupt.check()?;
        let room = usize::try_from(total - ledger.head().seq).unwrap_or(BATCH_EVENTS).min(BATCH_EVENTS);
        let batch = past.batch(room)?;
        let head = ledger.append(past.now, &batch).map_err(|error| failed(&error))?;
        let passed_last = head.seq >= last_snapshot && snapshot < last_snapshot;
        if passed_last || (ledger.snapshot_due() && head.seq < last_snapshot) {
            snapshot = head.seq;
            ledger.write_snapshot(&past.state, head).map_err(|error| failed(&error))?;
        }
    }
    ledger.wait_for_snapshot().map_err(|error| failed(&error))?;
    let events = ledger.head().seq;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Written {
        events,
        events_per_second: (events - already) as f64 / seconds.max(f64::MIN_POSITIVE),
        after_snapshot: events - snapshot,
    })
}

fn failed(error: &neap_ledger::Error) -> Failure {
    Failure::failed(format!("the ledger could not be filled: {error}"))
}

/// Jobs one after the other, each with its own documents, on nodes that come and go.
struct Past {
    state: State,
    now: Millis,
    workspace: WorkspaceId,
    runs: ClusterId,
    waits: ClusterId,
    jobs: u64,
    node: Option<NodeId>,
    /// What happens next, last first.
    coming: Vec<Event>,
    document: Vec<u8>,
    meta: Vec<u8>,
    actor: Arc<str>,
}

impl Past {
    fn new(state: State, workspace: WorkspaceId, runs: ClusterId, waits: ClusterId) -> Outcome<Self> {
        let document = JobDocument {
            command: "python train.py --epochs ${{inputs.epochs}} --rate 0.01".into(),
            experiment: "neap-bench".into(),
            image: Some("ubuntu:24.04".into()),
            asked: json!({
                "jobType": "Command",
                "command": "python train.py --epochs ${{inputs.epochs}} --rate 0.01",
                "experimentName": "neap-bench",
                "inputs": {"epochs": {"jobInputType": "literal", "value": "10"}},
            }),
            ..JobDocument::default()
        };
        let text = |value: serde_json::Result<Vec<u8>>| {
            value.map_err(|error| Failure::failed(format!("a document cannot be written: {error}")))
        };
        Ok(Self {
            now: state.now,
            state,
            workspace,
            runs,
            waits,
            jobs: 0,
            node: None,
            coming: Vec::new(),
            document: text(serde_json::to_vec(&document))?,
            meta: text(serde_json::to_vec(&JobMeta::default()))?,
            actor: "bench".into(),
        })
    }

    fn batch(&mut self, events: usize) -> Outcome<Batch> {
        self.now = self.now.max(Millis(clock::wall_ms() as u64));
        let mut batch = Batch::default();
        while batch.entries.len() < events {
            if self.coming.is_empty() {
                self.think_of_more(&mut batch)?;
            }
            let Some(event) = self.coming.pop() else { break };
            let postings = meter::postings(&self.state, self.now, &event);
            apply::apply(&mut self.state, self.now, &event);
            batch.entries.push(Entry { at: self.now, actor: self.actor.clone(), event, postings });
        }
        Ok(batch)
    }

    fn think_of_more(&mut self, batch: &mut Batch) -> Outcome<()> {
        let deadline = self.now.plus(60_000);
        let id = self.state.next.job;
        self.jobs += 1;
        let mut events = Vec::new();
        if self.jobs.is_multiple_of(WAITING_ONE_IN) {
            events.push(self.submitted(id, self.waits, batch)?);
            self.coming = events;
            return Ok(());
        }
        if self.jobs % JOBS_PER_NODE == 1
            && let Some(node) = self.node.take()
        {
            events.push(NodeLeaving { id: node, deadline, reason: "idle for 120 s".into() }.into());
            events.push(NodeGone { id: node, reason: "it ended".into() }.into());
        }
        events.push(self.submitted(id, self.runs, batch)?);
        let node = match self.node {
            Some(node) => node,
            None => {
                let node = self.state.next.node;
                events.extend(self.boot(node, deadline));
                self.node = Some(node);
                node
            }
        };
        events.push(JobPlaced { id, attempt: 1, node, others: Vec::new(), until: None }.into());
        let facts: AttemptFacts =
            [("neap.isolation".to_owned(), "pid, mount, cgroup".to_owned())].into_iter().collect();
        events.push(AttemptStarted { id, attempt: 1, report: 1, run_deadline: None, facts }.into());
        events.push(AttemptFinalizing { id, attempt: 1, report: 2 }.into());
        let outcome = JobOutcome::completed();
        events.push(JobEnded { id, attempt: Some(1), exit: Some(Exit::Success), outcome }.into());
        events.reverse();
        self.coming = events;
        Ok(())
    }

    fn boot(&self, id: NodeId, deadline: Millis) -> Vec<Event> {
        let nominal = self.state.clusters.get(&self.runs).map(|c| c.shape.nominal).unwrap_or_default();
        let reason = "1 job waits".into();
        vec![
            NodeRequested {
                id,
                cluster: self.runs,
                nominal,
                shape: None,
                cause: None,
                deadline,
                reason,
                lease: None,
            }
            .into(),
            NodeCreating { id, deadline }.into(),
            NodePreparing { id, deadline }.into(),
            NodeReady { id, actual: nominal, isolation: "pid, mount, cgroup".into() }.into(),
        ]
    }

    fn submitted(&self, id: JobId, cluster: ClusterId, batch: &mut Batch) -> Outcome<Event> {
        let mut keep = |body: &[u8]| -> Outcome<DocHash> {
            let document = Document::new(body.to_vec()).map_err(|error| failed(&error))?;
            let hash = document.hash;
            batch.documents.push(document);
            Ok(hash)
        };
        Ok(JobSubmitted {
            tags: vec![],
            id,
            workspace: self.workspace,
            cluster,
            name: format!("past-{id}").into(),
            owner: "bench".into(),
            priority: 2,
            need: Need::Whole,
            nodes: 1,
            family: None,
            after: Vec::new(),
            work: None,
            timeout_ms: None,
            retry: None,
            like: None,
            tier: Default::default(),
            document: keep(&self.document)?,
            meta: keep(&self.meta)?,
        }
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_core::cluster::{Scale, Shape, Tier};
    use neap_core::event::ClusterCreated;
    use neap_core::{Capacity, MicroUsd, invariants};

    fn cluster(state: &mut State, id: u64, max: u32) -> ClusterId {
        let nominal = Capacity { cpus_milli: 2_000, memory_mb: 8_192, gpus: 0 };
        let created = ClusterCreated {
            id: ClusterId(id),
            workspace: WorkspaceId(1),
            name: format!("c-{id}").into(),
            location: "eastus".into(),
            shape: Shape {
                size: "STANDARD_D2_V3".into(),
                family: "standardDv3Family".into(),
                nominal,
                tier: Tier::Dedicated,
                price: MicroUsd(1),
            },
            network: None,
            scale: Scale { min: 0, max, idle_ms: 0 },
            floor: None,
            document: DocHash([1; 32]),
            reference: None,
        };
        apply::apply(state, Millis(1), &created.into());
        ClusterId(id)
    }

    #[test]
    fn the_past_keeps_every_promise() {
        let mut state = State::default();
        let (runs, waits) = (cluster(&mut state, 1, 1), cluster(&mut state, 2, 0));
        let mut past = Past::new(state, WorkspaceId(1), runs, waits).unwrap();
        // Long enough for nodes to come and go.
        for _ in 0..JOBS_PER_NODE * 3 {
            let batch = past.batch(5).unwrap();
            assert_eq!(batch.entries.len(), 5);
            assert_eq!(invariants::check_unplanned(&past.state), []);
        }
        assert!(past.state.next.node > NodeId(2));
        let waiting = past.state.clusters[&waits].queue.len() as u64;
        assert_eq!(past.jobs / WAITING_ONE_IN, waiting);
    }
}
