//! Why a job waits, in the queue or for others: a view, computed on demand from a published state. Never empty for a queued job.

use crate::budget;
use crate::cluster::{Cluster, Cut, Tier};
use crate::ids::JobId;
use crate::job::{Job, JobState, Need};
use crate::location;
use crate::mix;
use crate::node::NodeState;
use crate::plan::node_cut;
use crate::state::State;
use crate::window;

/// A queue is counted no further than this: the answer is asked for often and read by people.
const AHEAD_COUNTED_MAX: usize = 1_000;

/// Every reason at once, most binding first, in whole sentences. Empty if the job is not queued.
pub fn queue_reasons(state: &State, id: JobId) -> Vec<String> {
    let Some(job) = state.jobs.get(&id) else { return Vec::new() };
    if job.state == JobState::Waiting {
        return waiting_reasons(state, id);
    }
    let JobState::Queued { reason: came_back, .. } = &job.state else { return Vec::new() };
    let Some(cluster) = state.clusters.get(&job.cluster) else { return vec!["Its compute is gone.".into()] };
    let mut reasons = Vec::new();
    if state.draining.is_some() {
        reasons.push("The server is being stopped; it will be placed when the server is back.".into());
    }
    if let Some(why) = came_back {
        reasons.push(format!("Its last attempt did not count: {why}."));
    }
    let ahead = cluster.queue.iter().take_while(|key| key.job != id).take(AHEAD_COUNTED_MAX + 1).count();
    if ahead > AHEAD_COUNTED_MAX {
        reasons.push(format!(
            "More than {AHEAD_COUNTED_MAX} jobs are ahead of it on compute '{}'.",
            cluster.name
        ));
    } else if ahead > 0 {
        reasons.push(format!("{ahead} {} ahead of it on compute '{}'.", jobs_are(ahead), cluster.name));
    }
    reasons.extend(tier_reason(cluster, job));
    if job.nodes > 1 {
        let idle = cluster.idle.len();
        reasons.push(if job.nodes > cluster.declared.max {
            format!(
                "It needs {} nodes at once and max_instances of compute '{}' is {}; raise it.",
                job.nodes, cluster.name, cluster.declared.max
            )
        } else {
            format!("It needs {} nodes at once and {idle} of compute '{}' are free.", job.nodes, cluster.name)
        });
    }
    for cut in budget::all_bars(state, cluster, job, state.now) {
        told(state, cluster, &cut, &mut reasons);
    }
    reasons.extend(
        node_reasons(state, cluster, job.need)
            .into_iter()
            .filter(|r| !reasons.contains(r))
            .collect::<Vec<_>>(),
    );
    if reasons.is_empty() {
        reasons.push("It is about to be placed.".into());
    }
    reasons
}

/// What a member of a family still waits for.
fn waiting_reasons(state: &State, id: JobId) -> Vec<String> {
    let on = state.waits.get(&id).map(|wait| wait.on.iter()).into_iter().flatten();
    let name = |id: &JobId| match state.jobs.get(id) {
        Some(job) => Some(job.name.clone()),
        None => state.families.get(id).map(|family| family.name.clone()),
    };
    let names: Vec<_> = on.filter_map(name).map(|name| format!("'{name}'")).collect();
    let around = state.waits.get(&id).map(|wait| wait.family);
    let around = around.filter(|family| state.waits.contains_key(family)).and_then(|id| name(&id));
    match (names.as_slice(), around) {
        ([], Some(family)) => {
            vec![format!("It is part of '{family}', which waits for other steps to complete.")]
        }
        ([], None) => vec!["It is about to be queued.".into()],
        ([one], _) => vec![format!("It waits for step {one} to complete.")],
        (several, _) => vec![format!("It waits for steps {} to complete.", several.join(", "))],
    }
}

/// That it waits for nodes of one tier, where there are two, and how many of those there may be.
fn tier_reason(cluster: &Cluster, job: &Job) -> Option<String> {
    cluster.mix.as_ref()?;
    let tier = job.tier()?;
    let (dedicated, low) = mix::maximums(cluster, cluster.scale);
    let name = &cluster.name;
    Some(match tier {
        Tier::Dedicated if job.fell_back() => format!(
            "Its nodes were taken back {} times, so it goes on on dedicated nodes only; compute '{name}' has at most {dedicated}.",
            job.attempts_preempted
        ),
        Tier::Dedicated => {
            format!("It takes dedicated nodes only (job_tier); compute '{name}' has at most {dedicated}.")
        }
        Tier::LowPriority => {
            format!("It takes low-priority nodes only (job_tier); compute '{name}' has at most {low}.")
        }
    })
}

/// Nodes that take nobody: those that are not heard of, and those that somebody keeps work from.
pub fn take_nobody(state: &State, cluster: &Cluster) -> Vec<String> {
    if cluster.unheard == 0 {
        return Vec::new();
    }
    let free = || state.nodes_of(cluster).filter(|node| node.is_live() && node.attempts.is_empty());
    let silent = free().filter(|node| node.silent && node.cordon.is_none()).count();
    let mut out = Vec::new();
    match silent {
        0 => {}
        1 => out.push("1 of its nodes has not been heard of for a while; nothing is placed on it.".into()),
        n => {
            out.push(format!(
                "{n} of its nodes have not been heard of for a while; nothing is placed on them."
            ));
        }
    }
    let mut cordoned = free().filter_map(|node| Some((node, node.cordon.as_ref()?)));
    if let Some((node, cordon)) = cordoned.next() {
        let more = match cordoned.count() {
            0 => String::new(),
            n => format!(", and so are {n} more"),
        };
        out.push(format!(
            "Its node n-{} is cordoned ({}){more}: nothing new comes onto it; 'neap node uncordon n-{} --cluster {}' lets work on it again.",
            node.id, cordon.reason, node.id, cluster.name
        ));
    }
    out
}

fn node_reasons(state: &State, cluster: &Cluster, need: Need) -> Vec<String> {
    let mut reasons = Vec::new();
    let coming = state
        .nodes_of(cluster)
        .filter(|n| {
            matches!(
                n.state,
                NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. }
            )
        })
        .count();
    if let Some(cut) =
        window::cut(cluster, cluster, cluster.scale.max.max(1)).filter(|_| cluster.live >= cluster.scale.max)
    {
        let wanted = cluster.cuts.iter().find(|cut| matches!(cut, Cut::Window { .. }));
        reasons.push(wanted.unwrap_or(&cut).sentence());
    } else if cluster.scale.max == 0 {
        reasons.push(format!("max_instances of compute '{}' is 0; raise it.", cluster.name));
    } else if cluster.live >= cluster.scale.max && cluster.busy >= cluster.live {
        let busy = match need {
            Need::Whole => "busy",
            Need::Share(_) => "full",
        };
        let which = match cluster.live {
            1 => format!("The only node of compute '{}' is {busy}", cluster.name),
            n => format!("All {n} nodes of compute '{}' are {busy}", cluster.name),
        };
        reasons.push(format!("{which} and max_instances is {}.", cluster.scale.max));
    } else if coming > 0 {
        reasons.push(format!("{coming} {} starting.", if coming == 1 { "node is" } else { "nodes are" }));
    }
    reasons.extend(take_nobody(state, cluster));
    for cut in &cluster.cuts {
        if !matches!(cut, Cut::Maximum { .. } | Cut::Window { .. }) {
            told(state, cluster, cut, &mut reasons);
        }
        // The planner stops at the first budget that has not the money.
        if let Cut::Budget { budget, nodes, .. } = cut {
            let is_another = |cut: &Cut| !matches!(cut, Cut::Budget { budget: other, .. } if other == budget);
            for other in budget::nodes_cuts(state, cluster, *nodes, state.now).filter(is_another) {
                told(state, cluster, &other, &mut reasons);
            }
        }
    }
    if !cluster.old.is_empty() {
        reasons.push(format!(
            "Its nodes are being replaced one by one: {} of an older definition {} left.",
            cluster.old.len(),
            if cluster.old.len() == 1 { "is" } else { "are" }
        ));
    }
    if let Some(why) = &cluster.boot.last_reason
        && cluster.boot.failures > 0
    {
        reasons.push(format!("The last node did not start: {why}."));
    }
    if coming == 0
        && cluster.live < cluster.scale.max
        && cluster.cuts.is_empty()
        && let Some(cut) = mix::parts(cluster).iter().find_map(|part| node_cut(state, part))
    {
        told(state, cluster, &cut, &mut reasons);
    }
    reasons
}

/// A cut's sentence; of a budget how it stands, of a location which other one has room.
fn told(state: &State, cluster: &Cluster, cut: &Cut, reasons: &mut Vec<String>) {
    reasons.push(cut.sentence());
    if let Cut::Location { .. } = cut {
        let there = location::elsewhere_words(state, cluster.workspace, &cluster.location, &cluster.shape, 1);
        reasons.push(there.trim_start().to_owned());
    }
    if let Cut::Budget { budget, .. } = cut {
        reasons.extend(budget::figures_words(state, *budget));
    }
}

fn jobs_are(count: usize) -> &'static str {
    if count == 1 { "job is" } else { "jobs are" }
}
