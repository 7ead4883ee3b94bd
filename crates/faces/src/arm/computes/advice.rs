//! Good practice that a cluster's definition does not follow, said where it is shown and created. Nothing is refused for it.

use neap_core::cluster::{Cluster, Shape, Tier};
use neap_core::gpus;
use neap_core::retired::retired;
use neap_core::state::{State, Workspace};
use neap_core::{MicroUsd, Millis};

use crate::limits::ADVICE_JOBS_MIN;

const HOURS_PER_DAY: u64 = 24;

pub(super) fn advice(state: &State, workspace: &Workspace, cluster: &Cluster) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(machine) = state.settings.provider.machine {
        out.extend(gpus::warning(&cluster.shape.size, cluster.shape.nominal.gpus, machine.gpus));
    }
    if let Some(retired) = retired(&cluster.shape.size) {
        out.push(retired.sentence(&cluster.shape.size));
    }
    if cluster.location != workspace.location {
        out.push(format!(
            "The compute is in {} and its workspace in {}: its jobs read and write their data across; {}.",
            cluster.location,
            workspace.location,
            state.settings.apart(&cluster.location, &workspace.location)
        ));
    }
    let floor = cluster.mix.as_ref().map_or(0, |mix| mix.floor.nodes);
    if cluster.shape.tier == Tier::LowPriority && floor > 0 && floor >= cluster.declared.max {
        out.push(format!(
            "dedicated_instances and max_instances are both {floor}: there is no room for low-priority nodes, and jobs that ask \
             for that tier are refused."
        ));
    } else if cluster.shape.tier == Tier::LowPriority {
        let which = match floor {
            0 => "Low priority: ".to_owned(),
            n => format!("Low priority beyond {n} dedicated: "),
        };
        out.push(
            which + "a node can be taken back while a job runs on it, and the job then runs again elsewhere. What it writes \
             to the folder in AZUREML_CHECKPOINT_DIR is there again; what is not there is lost (docs/low-priority.md).",
        );
    }
    let kept = cluster.declared.min;
    if kept > 0 {
        let dedicated = cluster.mix.as_ref().map_or(0, |mix| mix.floor.nodes.min(kept));
        let price = |tier: &Shape, nodes: u32| tier.price.0 * HOURS_PER_DAY * u64::from(nodes);
        let floor = cluster.mix.as_ref().map_or(0, |mix| price(&mix.floor.shape, dedicated));
        let day = floor + price(&cluster.shape, kept - dedicated);
        let nodes = if kept == 1 { "one node is".to_owned() } else { format!("{kept} nodes are") };
        let cost = if day == 0 {
            String::new()
        } else {
            format!(", {}.{:02} USD a day", day / 1_000_000, day % 1_000_000 / 10_000)
        };
        out.push(format!(
            "min_instances is {kept}: {nodes} kept also when nothing runs{cost}. 0 costs nothing then."
        ));
    }
    out
}

/// How a cluster's idle time goes with how often its jobs come. `jobs` has when each was submitted and ended, newest first.
pub(super) fn idle_advice(
    idle_ms: u64,
    price: MicroUsd,
    jobs: &[(Millis, Option<Millis>)],
) -> Option<String> {
    if jobs.len() < ADVICE_JOBS_MIN {
        return None;
    }
    // From the end of whatever ran to the next that came: so long nodes had nothing to do.
    let mut gaps = Vec::new();
    let mut last_end: Option<Millis> = None;
    for (submitted, ended) in jobs.iter().rev() {
        if let Some(end) = last_end.filter(|end| *end < *submitted) {
            gaps.push(submitted.since(end));
        }
        last_end = last_end.max(*ended);
    }
    if gaps.len() < ADVICE_JOBS_MIN / 2 {
        return None;
    }
    gaps.sort_unstable();
    let median = gaps.get(gaps.len() / 2).copied().unwrap_or(0);
    let missed = gaps.iter().filter(|gap| **gap > idle_ms).count();
    let (idle_s, median_s) = (idle_ms / 1_000, median / 1_000);
    if idle_ms >= IDLE_LONG_MS && idle_ms > median.saturating_mul(IDLE_TIMES_GAP) {
        return Some(format!(
            "idle_time_before_scale_down is {idle_s} s and half of the last {} jobs come within {median_s} s of the last end; {} s would serve them as well and let nodes go sooner.",
            jobs.len(),
            (median_s * 2).max(60)
        ));
    }
    // Most jobs find no node, and a wait of that length would not cost much.
    if missed * 2 > gaps.len() && median <= WORTH_WAITING_MS {
        let cost = price.0.saturating_mul(median) / 3_600_000;
        let money = if cost == 0 {
            String::new()
        } else {
            format!(", for about {}.{:04} USD a time", cost / 1_000_000, cost % 1_000_000 / 100)
        };
        return Some(format!(
            "idle_time_before_scale_down is {idle_s} s and {missed} of the last {} jobs came later than that after the last end: each waited for a new node. {} s would keep a node for half of them{money}.",
            jobs.len(),
            median_s + 1
        ));
    }
    None
}

/// An idle time below this is never called long.
const IDLE_LONG_MS: u64 = 600_000;
/// So many times as long as jobs keep nodes waiting is too long.
const IDLE_TIMES_GAP: u64 = 10;
/// Nobody keeps a node longer than this for the next job.
const WORTH_WAITING_MS: u64 = 1_800_000;

#[cfg(test)]
mod tests {
    use super::*;
    use neap_core::cluster::{BootHealth, ClusterPhase, Scale};
    use neap_core::{Capacity, ClusterId, DocHash, WorkspaceId};

    fn advised(size: &str, location: &str, min: u32) -> Vec<String> {
        let workspace = Workspace {
            id: WorkspaceId(1),
            subscription: "s".into(),
            group: "g".into(),
            name: "w".into(),
            location: "westus".into(),
            document: DocHash([0; 32]),
            created: Millis(0),
            modified: Millis(0),
            deleting: false,
        };
        let cluster = Cluster {
            id: ClusterId(1),
            workspace: WorkspaceId(1),
            name: "c".into(),
            location: location.into(),
            shape: Shape {
                size: size.into(),
                family: "f".into(),
                nominal: Capacity::default(),
                tier: Tier::Dedicated,
                price: MicroUsd(293_000),
            },
            network: None,
            scale: Scale { min, max: 4, idle_ms: 0 },
            declared: Scale { min, max: 4, idle_ms: 0 },
            windows: Default::default(),
            scheduled: Default::default(),
            make: "".into(),
            old: Default::default(),
            mix: None,
            revision: 1,
            document: DocHash([0; 32]),
            created: Millis(0),
            modified: Millis(0),
            phase: ClusterPhase::Live,
            target: 0,
            target_since: Millis(0),
            cuts: Vec::new(),
            boot: BootHealth::default(),
            nodes: Default::default(),
            live: 0,
            busy: 0,
            unheard: 0,
            idle: Default::default(),
            open: Default::default(),
            done: Default::default(),
            lanes: Default::default(),
            shares: Default::default(),
            shares_at: Default::default(),
            queue: Default::default(),
            waiting: Default::default(),
            active: Default::default(),
        };
        let mut state = State::default();
        let mut settings = neap_core::settings::Settings::default();
        settings.provider.machine = Some(Capacity { gpus: 1, ..Capacity::default() });
        state.settings = settings;
        advice(&state, &workspace, &cluster)
    }

    #[test]
    fn good_practice_is_not_commented_on() {
        assert_eq!(advised("STANDARD_DS3_V2", "westus", 0), Vec::<String>::new());
    }

    #[test]
    fn everything_at_once() {
        let advice = advised("STANDARD_NC6", "eastus", 2);
        assert_eq!(advice.len(), 3);
        assert!(
            advice[0].contains("retired on 2023-08-31; use for example Standard_NC4as_T4_v3"),
            "{advice:?}"
        );
        assert!(advice[1].starts_with("The compute is in eastus and its workspace in westus"), "{advice:?}");
        assert!(advice[2].contains("2 nodes are kept also when nothing runs, 14.06 USD a day"), "{advice:?}");
    }

    /// Jobs of a minute each, one every `every` seconds, newest first.
    fn jobs(count: u64, every: u64) -> Vec<(Millis, Option<Millis>)> {
        let job = |at: u64| (Millis(at * every * 1_000), Some(Millis((at * every + 60) * 1_000)));
        (0..count).rev().map(job).collect()
    }

    #[test]
    fn an_idle_time_is_held_against_how_often_jobs_come() {
        let advice = |idle_s: u64, jobs: &[(Millis, Option<Millis>)]| {
            idle_advice(idle_s * 1_000, MicroUsd(360_000), jobs)
        };
        assert_eq!(advice(120, &jobs(9, 300)), None, "too few say nothing");
        assert_eq!(advice(300, &jobs(20, 120)), None, "they find a node");
        let early = advice(120, &jobs(20, 360)).expect("they come five minutes after the last end");
        assert_eq!(
            early,
            "idle_time_before_scale_down is 120 s and 19 of the last 20 jobs came later than that after the last end: each waited for a new node. 301 s would keep a node for half of them, for about 0.0300 USD a time."
        );
        let late = advice(7_200, &jobs(20, 120)).expect("two hours for a gap of a minute");
        assert_eq!(
            late,
            "idle_time_before_scale_down is 7200 s and half of the last 20 jobs come within 60 s of the last end; 120 s would serve them as well and let nodes go sooner."
        );
        assert_eq!(advice(120, &jobs(20, 86_400)), None, "nobody keeps a node for a day");
        assert_eq!(advice(0, &jobs(20, 50)), None, "they overlap");
    }
}
