//! How planning grows: nodes × queued jobs, a full plan, one change replanned, and memory.
//!
//! `cargo run --release -p neap-core --example plan_rate -- 10000 1000000`

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an example that measures and prints")]

use std::time::Instant;

use neap_core::command::{AttemptNews, PutCluster, PutWorkspace, Report, SubmitJob};
use neap_core::decide::decide;
use neap_core::job::{Exit, Need};
use neap_core::plan::{Dirty, plan_into};
use neap_core::settings::Settings;
use neap_core::{Capacity, ClusterId, Command, DocHash, Draft, Millis, NodeId, State, WorkspaceId};

fn main() {
    let mut sizes = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let (nodes, jobs) = (sizes.next().unwrap_or(1_000), sizes.next().unwrap_or(100_000));
    let document = DocHash([0; 32]);
    let mut settings = Settings::default();
    settings.provider.nodes_max = u32::MAX;
    let mut now = Millis(1);
    let mut state = run(State::default(), Command::Start { release: "x".into(), settings }, now);
    state = run(
        state,
        Command::PutGroup { subscription: "s".into(), name: "g".into(), location: "westus".into(), document },
        now,
    );
    let put = PutWorkspace {
        subscription: "s".into(),
        group: "g".into(),
        name: "ws".into(),
        location: Some("westus".into()),
        document,
        problems: vec![],
    };
    state = run(state, Command::PutWorkspace(put), now);
    let put = PutCluster {
        workspace: WorkspaceId(1),
        name: "big-one".into(),
        location: None,
        size: None,
        tier: None,
        min: Some(nodes as i64),
        max: Some(nodes as i64),
        idle_ms: None,
        document,
        problems: vec![],
    };
    state = run(state, Command::PutCluster(put), now);
    let (wanted, mut dirty) = plan_all(&state, now);
    state = wanted;
    let began = Instant::now();
    for i in 0..jobs {
        let submit = SubmitJob {
            workspace: WorkspaceId(1),
            name: format!("job-{i}").into(),
            cluster: "big-one".into(),
            owner: "me".into(),
            priority: 1,
            need: Need::Whole,
            timeout_ms: None,
            document,
            meta: document,
            problems: vec![],
        };
        state = run(state, Command::SubmitJob(submit), now);
    }
    println!(
        "submit {jobs} jobs: {:?}, {:.1} µs each",
        began.elapsed(),
        began.elapsed().as_secs_f64() * 1e6 / jobs as f64
    );
    now = now.plus(1);
    let actual = Capacity { cpus_milli: 1, memory_mb: 1, gpus: 0 };
    for id in state.nodes.keys().copied().collect::<Vec<_>>() {
        state =
            run(state, Command::Report(Report::NodeReady { node: id, actual, isolation: "".into() }), now);
    }
    dirty.clusters.insert(ClusterId(1));
    let began = Instant::now();
    let (planned, _) = plan_all(&state, now);
    println!("full plan, {} placements: {:?}", planned.clusters[&ClusterId(1)].active.len(), began.elapsed());
    state = planned;

    let attempt = state.nodes[&NodeId(1)].attempts[0];
    let news = AttemptNews::Ended { exit: Exit::Success };
    let ended = Command::Report(Report::Attempt { node: NodeId(1), attempt, number: 1, news });
    let began = Instant::now();
    let mut draft = Draft::new(state.clone());
    for event in decide(&state, ended, now).expect("the report is taken in") {
        draft.emit(now, event);
    }
    let mut dirty = Dirty { timers_seen: now, ..Dirty::default() };
    plan_into(&mut draft, &mut dirty, now);
    println!("one job ends, replanned ({} events): {:?}", draft.events.len(), began.elapsed());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|l| l.starts_with("VmRSS")).unwrap_or_default());
}

fn run(state: State, command: Command, now: Millis) -> State {
    let mut draft = Draft::new(state);
    for event in decide(&draft.state, command, now).expect("the command is accepted") {
        draft.emit(now, event);
    }
    draft.state
}

fn plan_all(state: &State, now: Millis) -> (State, Dirty) {
    let mut draft = Draft::new(state.clone());
    let mut dirty = Dirty::all(state);
    while plan_into(&mut draft, &mut dirty, now) == Some(now) {}
    (draft.state, dirty)
}
