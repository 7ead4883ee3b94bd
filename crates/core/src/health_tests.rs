//! A small world that is well, then ill in one way after the other.

use std::sync::Arc;

use super::*;
use crate::cluster::{Scale, Shape, Tier};
use crate::event::{
    ClusterCreated, ClusterTarget, JobSubmitted, NodeReady, NodeRequested, NodeSilent, NodeUnusable,
    WorkspaceCreated,
};
use crate::ids::{ClusterId, DocHash, JobId, NodeId, WorkspaceId};
use crate::job::Need;
use crate::units::{Capacity, MicroUsd};
use crate::{Draft, Event};

const DOCUMENT: DocHash = DocHash([0; 32]);
const NOMINAL: Capacity = Capacity { cpus_milli: 4_000, memory_mb: 14_000, gpus: 0 };

fn world(events: &[(u64, Event)]) -> State {
    let mut draft = Draft::new(State::default());
    let workspace = WorkspaceCreated {
        id: WorkspaceId(1),
        subscription: "s".into(),
        group: "g".into(),
        name: "w".into(),
        location: "westus".into(),
        document: DOCUMENT,
    };
    draft.emit(Millis(0), workspace);
    let cluster = ClusterCreated {
        id: ClusterId(1),
        workspace: WorkspaceId(1),
        name: "cpu".into(),
        location: "westus".into(),
        shape: Shape {
            size: "STANDARD_DS3_V2".into(),
            family: "standardDSv2Family".into(),
            nominal: NOMINAL,
            tier: Tier::Dedicated,
            price: MicroUsd(0),
        },
        network: None,
        scale: Scale { min: 0, max: 4, idle_ms: 120_000 },
        floor: None,
        document: DOCUMENT,
        reference: None,
    };
    draft.emit(Millis(0), cluster);
    for (at, event) in events {
        draft.emit(Millis(*at), event.clone());
    }
    draft.state
}

fn requested(id: u64) -> Event {
    let reason: Arc<str> = "1 job waits".into();
    NodeRequested {
        lease: None,
        id: NodeId(id),
        cluster: ClusterId(1),
        nominal: NOMINAL,
        shape: None,
        cause: None,
        deadline: Millis(60_000),
        reason,
    }
    .into()
}

fn ready(id: u64) -> Event {
    NodeReady { id: NodeId(id), actual: NOMINAL, isolation: "pid".into() }.into()
}

fn unusable_node(id: u64) -> Event {
    NodeUnusable {
        id: NodeId(id),
        deadline: Millis(900_000),
        reason: "no room".into(),
        retry_at: Some(Millis(9_000)),
    }
    .into()
}

fn submitted(id: u64, priority: u8) -> Event {
    JobSubmitted {
        tags: vec![],
        id: JobId(id),
        workspace: WorkspaceId(1),
        cluster: ClusterId(1),
        name: format!("j{id}").into(),
        owner: "me".into(),
        priority,
        need: Need::Whole,
        nodes: 1,
        family: None,
        after: Vec::new(),
        work: None,
        timeout_ms: None,
        retry: None,
        like: None,
        tier: Default::default(),
        document: DOCUMENT,
        meta: DOCUMENT,
    }
    .into()
}

fn cut(cuts: Vec<Cut>) -> Event {
    ClusterTarget { id: ClusterId(1), target: 0, demand: 2, cuts }.into()
}

#[track_caller]
fn check(events: &[(u64, Event)], now: u64, seen: Seen<'_>, expect: Verdict, worst: &str) {
    let state = world(events);
    let cluster = &state.clusters[&ClusterId(1)];
    let figures = Figures::of(&state, cluster, Millis(now));
    let health = of(&state, cluster, &figures, seen, Thresholds { queue_delay_ms: 10_000 });
    assert_eq!(health.verdict, expect, "{health:#?}");
    let first = &health.signals[0];
    if expect != Verdict::Healthy {
        assert_eq!(first.name, worst, "{health:#?}");
    }
    assert!(health.signals.iter().all(|s| s.says.ends_with(['.', ' '])), "{health:#?}");
}

#[test]
fn each_signal_alone_makes_the_verdict() {
    let well = Seen::default();
    check(&[], 5, well, Verdict::Healthy, "");
    check(&[(0, requested(1)), (5, ready(1))], 100_000, well, Verdict::Healthy, "");
    check(
        &[],
        5,
        Seen { ledger_closed: Some("the disk is full"), ..well },
        Verdict::Failing,
        "ledger_writable",
    );
    check(&[], 5, Seen { system_failures: 1, ..well }, Verdict::Degraded, "system_failures");
    check(&[], 5, Seen { system_failures: 3, ..well }, Verdict::Failing, "system_failures");
    check(&[(0, submitted(1, 50))], 9_999, well, Verdict::Healthy, "");
    check(&[(0, submitted(1, 50))], 10_000, well, Verdict::Degraded, "oldest_wait");
    check(&[(0, submitted(1, 50))], 60_000, well, Verdict::Failing, "oldest_wait");
    check(&[(0, requested(1)), (5, unusable_node(1))], 10, well, Verdict::Degraded, "boot_failures");
    let silent = NodeSilent { id: NodeId(1) }.into();
    let two = [(0, requested(1)), (0, requested(2)), (5, ready(1)), (5, ready(2)), (6, silent)];
    check(&two, 10, well, Verdict::Degraded, "silent_nodes");
    check(&[two[0].clone(), two[2].clone(), two[4].clone()], 10, well, Verdict::Failing, "silent_nodes");
    check(
        &[(0, cut(vec![Cut::ProviderNodes { in_use: 1, max: 1 }]))],
        10,
        well,
        Verdict::Degraded,
        "provider_limit",
    );
    check(&[(0, cut(vec![Cut::Maximum { wanted: 9, max: 4 }]))], 10, well, Verdict::Healthy, "");
    check(&[(0, requested(1)), (5, ready(1))], 180_006, well, Verdict::Degraded, "overdue_idle");
}

#[test]
fn the_oldest_wait_is_found_behind_every_priority() {
    let events = [(7, submitted(1, 10)), (3, submitted(2, 50)), (5, submitted(3, 50)), (9, submitted(4, 90))];
    let state = world(&events);
    let figures = Figures::of(&state, &state.clusters[&ClusterId(1)], Millis(103));
    assert_eq!((figures.queued, figures.oldest_wait_ms), (4, 100));
}

#[test]
fn every_state_is_counted_also_with_none() {
    let state = world(&[(0, requested(1)), (0, requested(2)), (5, ready(1))]);
    let figures = Figures::of(&state, &state.clusters[&ClusterId(1)], Millis(10));
    let words: Vec<_> = NODE_WORDS.iter().map(|word| figures.in_state(word)).collect();
    assert_eq!(words, [1, 0, 0, 1, 0, 0, 0]);
    assert_eq!(figures.nodes["idle"].cpus_milli, 4_000);
    assert_eq!(figures.nodes.len(), NODE_WORDS.len());
}
