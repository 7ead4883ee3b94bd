//! What a random world may do next, and the commands and reports that it is made of.

use std::sync::Arc;

use neap_core::cluster::Tier;
use neap_core::command::{AttemptNews, NewMember, NewMemberKind, Report, SubmitFamily, SubmitJob};
use neap_core::family::FamilyKind;
use neap_core::job::{Exit, Need, Retry};
use neap_core::mix::TierChoice;
use neap_core::settings::Settings;
use neap_core::{Capacity, DocHash, NodeId, WorkspaceId};
use proptest::prelude::*;

pub const DOCUMENT: DocHash = DocHash([0; 32]);

/// What the random world does next. Small numbers choose among what exists.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    PutCluster {
        which: u8,
        min: u8,
        max: u8,
        idle_s: u8,
        /// Of the second and third cluster, whose nodes are low priority.
        dedicated: u8,
    },
    DeleteCluster {
        which: u8,
    },
    Submit {
        cluster: u8,
        share: bool,
        timeout: bool,
        priority: u8,
        tier: u8,
    },
    SubmitGang {
        cluster: u8,
        nodes: u8,
        timeout: bool,
        tier: u8,
    },
    /// Each bit of `shape` decides something about a step.
    SubmitFamily {
        steps: u8,
        shape: u64,
        go_on: bool,
        timeout: bool,
    },
    Drive {
        family: u8,
        close: bool,
    },
    DeleteWorkspace,
    Cancel {
        job: u8,
    },
    NodeNews {
        node: u8,
        news: u8,
    },
    AttemptNews {
        node: u8,
        number: u8,
        news: u8,
    },
    StaleNews {
        job: u8,
        attempt: u8,
        node: u8,
    },
    Evict {
        node: u8,
    },
    Cordon {
        node: u8,
        how: u8,
    },
    Quota {
        cores: u8,
    },
    Lock {
        on: bool,
    },
    /// Nine jobs at a time are no limit.
    Allow {
        jobs: u8,
        each: bool,
    },
    /// Within the next minutes.
    PutWindow {
        which: u8,
        name: u8,
        min: Option<u8>,
        max: u8,
        from_s: u8,
        lasts_s: u8,
        stops: bool,
    },
    DeleteWindow {
        which: u8,
        name: u8,
    },
    /// Another size, or another login.
    Remake {
        which: u8,
        size: u8,
    },
    PutBudget {
        which: u8,
        scope: u8,
        amount: u64,
        day: bool,
    },
    DeleteBudget {
        which: u8,
    },
    Drain,
    Restart,
    Wait {
        ms: u32,
    },
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8, 0..3u8, 0..5u8, 0..20u8, 0..5u8).prop_map(|(which, min, max, idle_s, dedicated)| Step::PutCluster { which, min, max, idle_s, dedicated }),
        1 => (0..3u8).prop_map(|which| Step::DeleteCluster { which }),
        8 => (0..3u8, any::<bool>(), any::<bool>(), 0..3u8, 0..6u8)
            .prop_map(|(cluster, share, timeout, priority, tier)| Step::Submit { cluster, share, timeout, priority, tier }),
        4 => (0..3u8, 0..5u8, any::<bool>(), 0..6u8).prop_map(|(cluster, nodes, timeout, tier)| Step::SubmitGang { cluster, nodes, timeout, tier }),
        4 => (0..8u8, any::<u64>(), any::<bool>(), any::<bool>())
            .prop_map(|(steps, shape, go_on, timeout)| Step::SubmitFamily { steps, shape, go_on, timeout }),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(family, close)| Step::Drive { family, close }),
        2 => any::<u8>().prop_map(|job| Step::Cancel { job }),
        10 => (any::<u8>(), 0..8u8).prop_map(|(node, news)| Step::NodeNews { node, news }),
        12 => (any::<u8>(), 1..5u8, 0..10u8).prop_map(|(node, number, news)| Step::AttemptNews { node, number, news }),
        2 => (any::<u8>(), 1..4u8, any::<u8>()).prop_map(|(job, attempt, node)| Step::StaleNews { job, attempt, node }),
        2 => any::<u8>().prop_map(|node| Step::Evict { node }),
        1 => (any::<u8>(), 0..3u8).prop_map(|(node, how)| Step::Cordon { node, how }),
        2 => (0..3u8, 0..2u8, prop::option::of(0..3u8), 0..4u8, (0..90u8, 1..200u8), any::<bool>())
            .prop_map(|(which, name, min, max, (from_s, lasts_s), stops)| Step::PutWindow { which, name, min, max, from_s, lasts_s, stops }),
        1 => (0..3u8, 0..2u8).prop_map(|(which, name)| Step::DeleteWindow { which, name }),
        2 => (0..3u8, 0..4u8).prop_map(|(which, size)| Step::Remake { which, size }),
        3 => (0..4u8, 0..6u8, 1..120_000u64, any::<bool>())
            .prop_map(|(which, scope, amount, day)| Step::PutBudget { which, scope, amount, day }),
        1 => (0..4u8).prop_map(|which| Step::DeleteBudget { which }),
        1 => Just(Step::Drain),
        1 => Just(Step::Restart),
        1 => (0..24u8).prop_map(|luck| if luck == 0 { Step::DeleteWorkspace } else { Step::Restart }),
        6 => (1..200_000u32).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// Without families, and with limits and locks.
pub fn step_of_jobs() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8, 0..3u8, 0..5u8, 0..20u8, 0..5u8).prop_map(|(which, min, max, idle_s, dedicated)| Step::PutCluster { which, min, max, idle_s, dedicated }),
        10 => (0..3u8, any::<bool>(), any::<bool>(), 0..3u8, 0..6u8)
            .prop_map(|(cluster, share, timeout, priority, tier)| Step::Submit { cluster, share, timeout, priority, tier }),
        4 => (0..3u8, 0..5u8, any::<bool>(), 0..6u8).prop_map(|(cluster, nodes, timeout, tier)| Step::SubmitGang { cluster, nodes, timeout, tier }),
        1 => any::<u8>().prop_map(|job| Step::Cancel { job }),
        10 => (any::<u8>(), 0..8u8).prop_map(|(node, news)| Step::NodeNews { node, news }),
        8 => (any::<u8>(), 1..5u8, 0..10u8).prop_map(|(node, number, news)| Step::AttemptNews { node, number, news }),
        2 => any::<u8>().prop_map(|node| Step::Evict { node }),
        1 => (any::<u8>(), 0..3u8).prop_map(|(node, how)| Step::Cordon { node, how }),
        2 => (0..3u8, 0..2u8, prop::option::of(0..3u8), 0..4u8, (0..90u8, 1..200u8), any::<bool>())
            .prop_map(|(which, name, min, max, (from_s, lasts_s), stops)| Step::PutWindow { which, name, min, max, from_s, lasts_s, stops }),
        1 => (0..3u8, 0..2u8).prop_map(|(which, name)| Step::DeleteWindow { which, name }),
        2 => (0..3u8, 0..4u8).prop_map(|(which, size)| Step::Remake { which, size }),
        2 => (0..8u8).prop_map(|cores| Step::Quota { cores }),
        1 => any::<bool>().prop_map(|on| Step::Lock { on }),
        2 => (0..10u8, any::<bool>()).prop_map(|(jobs, each)| Step::Allow { jobs, each }),
        2 => (0..4u8, 0..6u8, 1..200_000u64, any::<bool>())
            .prop_map(|(which, scope, amount, day)| Step::PutBudget { which, scope, amount, day }),
        1 => (0..4u8).prop_map(|which| Step::DeleteBudget { which }),
        1 => (0..24u8).prop_map(|luck| if luck == 0 { Step::Drain } else { Step::Restart }),
        3 => (1..20_000u32).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// A few tries for whatever it may end with.
pub fn retry() -> Arc<Retry> {
    Arc::new(Retry { exit_codes: vec![1, 137], max: 2, node_lost: Some(1), preempted: None })
}

/// On a whole node.
pub fn job(name: &str, cluster: u8) -> SubmitJob {
    SubmitJob {
        workspace: WorkspaceId(1),
        name: name.into(),
        cluster: cluster_name(cluster),
        owner: "me".into(),
        priority: 1,
        need: Need::Whole,
        nodes: 1,
        family: None,
        tags: vec![],
        timeout_ms: None,
        retry: Some(retry()),
        like: None,
        tier: Default::default(),
        document: DOCUMENT,
        meta: DOCUMENT,
        problems: vec![],
    }
}

/// One that is refused where there are no such nodes, among others.
pub fn tier(pick: u8) -> TierChoice {
    match pick {
        0 => TierChoice { only: Some(Tier::Dedicated), dedicated_after: None },
        1 => TierChoice { only: Some(Tier::LowPriority), dedicated_after: None },
        2 => TierChoice { only: None, dedicated_after: Some(1) },
        _ => TierChoice::default(),
    }
}

pub fn cluster_name(which: u8) -> Arc<str> {
    format!("cluster-{}", (b'a' + which) as char).into()
}

/// Any shape: some of these are refused.
pub fn family(name: &str, steps: u8, shape: u64, go_on: bool, timeout: bool) -> SubmitFamily {
    let timeout_ms = timeout.then_some(60_000);
    let of_kind = |kind| NewMemberKind::Family { kind, timeout_ms };
    let root = match shape % 5 {
        0 => FamilyKind::Driven,
        _ => FamilyKind::Steps { go_on },
    };
    let member = |name: String, family: usize, after: Vec<usize>, what: NewMemberKind| NewMember {
        tags: vec![],
        name: name.into(),
        family,
        after,
        what,
        document: DOCUMENT,
        meta: DOCUMENT,
    };
    let mut members = vec![member(name.into(), 0, vec![], of_kind(root))];
    let mut dice = shape;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    for at in 1..=usize::from(steps) {
        let what = match roll(8) {
            0 => of_kind(FamilyKind::Driven),
            1 | 2 => of_kind(FamilyKind::Steps { go_on }),
            _ => NewMemberKind::Job {
                cluster: cluster_name(roll(3) as u8),
                priority: roll(3) as u8,
                need: Need::Whole,
                nodes: 1 + u32::from(roll(4) == 0),
                timeout_ms: None,
                retry: (roll(2) == 0).then(retry),
                like: None,
                tier: Default::default(),
                work: None,
                reused: roll(6) == 0,
            },
        };
        // Mostly a family that comes before it, and what comes before it.
        let families: Vec<usize> = (0..at)
            .filter(|at| {
                matches!(members[*at].what, NewMemberKind::Family { kind: FamilyKind::Steps { .. }, .. })
            })
            .collect();
        let family = families.get(roll(families.len().max(1) as u64) as usize).copied().unwrap_or(0);
        let after = (1..at).filter(|_| roll(4) == 0).collect();
        members.push(member(format!("{name}-{at}"), family, after, what));
    }
    SubmitFamily { workspace: WorkspaceId(1), owner: "me".into(), members, problems: vec![] }
}

pub fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.provider.nodes_max = 6;
    settings
}

pub fn node_news(node: NodeId, pick: u8) -> Report {
    let actual = Capacity { cpus_milli: 2000, memory_mb: 4000, gpus: 0 };
    match pick {
        0 => Report::NodeCreating { node },
        1 => Report::NodePreparing { node },
        3 => Report::NodeSilent { node },
        4 => Report::NodeHeard { node },
        5 => Report::NodeGone { node, reason: "it went".into() },
        6 => Report::NodeFailed { node, reason: "no room".into() },
        _ => Report::NodeReady { node, actual, isolation: "".into() },
    }
}

pub fn attempt_news(pick: u8) -> AttemptNews {
    let message: Arc<str> = "no".into();
    match pick {
        0 => AttemptNews::Started { facts: Default::default() },
        1 => AttemptNews::Finalizing,
        2 => AttemptNews::Ended { exit: Exit::Success },
        3 => AttemptNews::Ended { exit: Exit::Code { code: 1 } },
        4 => AttemptNews::Ended { exit: Exit::LeaseLost },
        5 => AttemptNews::Ended { exit: Exit::Stopped },
        6 => {
            AttemptNews::Ended { exit: Exit::PrepareFailed { class: neap_core::job::Class::System, message } }
        }
        7 => AttemptNews::Ended { exit: Exit::OutOfMemory { limit_mb: 1 } },
        8 => AttemptNews::Ended { exit: Exit::Timeout },
        _ => AttemptNews::Ended { exit: Exit::FinalizeFailed { message } },
    }
}
