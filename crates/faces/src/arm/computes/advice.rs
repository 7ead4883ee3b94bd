//! Good practice that a cluster's definition does not follow, said where it is shown and created. Nothing is refused for it.

use neap_core::cluster::{Cluster, Tier};
use neap_core::gpus;
use neap_core::retired::retired;
use neap_core::state::{State, Workspace};

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
    if cluster.shape.tier == Tier::LowPriority {
        out.push(
            "Low priority: a node can be taken back while a job runs on it, and the job then runs again elsewhere. What it writes \
             to the folder in AZUREML_CHECKPOINT_DIR is there again; what is not there is lost (docs/low-priority.md)."
                .into(),
        );
    }
    let kept = cluster.declared.min;
    if kept > 0 {
        let day = cluster.shape.price.0 * HOURS_PER_DAY * u64::from(kept);
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

#[cfg(test)]
mod tests {
    use super::*;
    use neap_core::cluster::{BootHealth, ClusterPhase, Scale, Shape};
    use neap_core::{Capacity, ClusterId, DocHash, MicroUsd, Millis, WorkspaceId};

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
}
