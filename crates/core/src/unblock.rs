//! What keeps one waiting job from starting, and the least that would let it: a view, with the planner's own gates.
//!
//! A constraint is lifted for this job alone, against what the last plan left. It *binds* if lifting all others does not
//! start the job. An *unblocking set* starts the job, and nothing less of it does. There are at most two: to wait one's
//! turn with every limit in the way gone, or to be the first and to have only those limits gone that are in the way then.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::allowance::Gate;
use crate::budget;
use crate::cluster::{Cluster, Cut};
use crate::ids::JobId;
use crate::job::{Job, JobState, Need};
use crate::location;
use crate::lock;
use crate::mix;
use crate::node::NodeState;
use crate::plan::{Packing, counted, has_room, provider_nodes_ever, yields};
use crate::queue::Order;
use crate::quota;
use crate::state::State;
use crate::units::{Capacity, Millis, many, more_nodes_are, nodes_are};
use crate::whatif;
use crate::window;

/// Unblocking sets that are told.
const ALTERNATIVES_MAX: usize = 3;
/// Where more nodes than this would be asked for, nothing is tried out.
const TRIED_NODES_MAX: u32 = 64;

/// Jobs ahead are counted no further than this, so that a long queue is explained as quickly as a shorter one.
const AHEAD_COUNTED_MAX: usize = 50_000;

/// One thing that is in the way. The kinds come in the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Draining,
    Lock,
    Allowance,
    QueueOrder,
    Window,
    Maximum,
    Rolling,
    Quota,
    Budget,
    Provider,
    /// What its location has is used up.
    Location,
    BootBackoff,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    pub kind: Kind,
    /// What it is, and what would lift it.
    pub sentence: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Everything that is in the way.
    pub constraints: Vec<Constraint>,
    /// Those that every unblocking set has.
    pub binding: BTreeSet<Kind>,
    pub unblocking: Vec<BTreeSet<Kind>>,
    /// Its place in the order, from 1.
    pub position: usize,
    /// Nodes that are on their way, if that is all it waits for.
    pub nodes_coming: u32,
}

/// `None` unless the job is in a queue.
pub fn unblock(state: &State, id: JobId, now: Millis) -> Option<Verdict> {
    let job = state.jobs.get(&id).filter(|job| matches!(job.state, JobState::Queued { .. }))?;
    let cluster = state.clusters.get(&job.cluster)?;
    // Where it may have nodes of either tier, each is a way of its own.
    let parts = mix::parts_for(cluster, job);
    let mut ways: Vec<(BTreeSet<Kind>, Way)> = Vec::new();
    let mut unblocking: Vec<BTreeSet<Kind>> = Vec::new();
    let mut ahead = Ahead::none();
    for (_, part) in &parts {
        let (in_turn, before) = Way::in_turn(state, cluster, part, job, now);
        let as_first = Way::as_first(state, cluster, part, job, now);
        let kinds = |way: &Way| -> BTreeSet<Kind> { way.blocked.iter().map(|c| c.kind).collect() };
        let (waits, first) = (kinds(&in_turn), kinds(&as_first));
        unblocking.push(waits.clone());
        // What the other part takes meanwhile may be in the way, too.
        if before.jobs > 0 && (cluster.mix.is_some() || !waits.is_subset(&first)) {
            let mut jumps = first;
            jumps.insert(Kind::QueueOrder);
            unblocking.push(jumps);
        }
        ways.extend([(kinds(&in_turn), in_turn), (kinds(&as_first), as_first)]);
        ahead = Ahead { nodes: ahead.nodes.max(before.nodes), ..before };
    }
    // Some get by with less: one that is certain to end may go before others, a share may fit beside what runs. Where
    // that can be tried out in good time, the planner says.
    if ahead.nodes <= TRIED_NODES_MAX {
        let all: BTreeSet<Kind> = unblocking.iter().flatten().copied().collect();
        unblocking = least(state, id, &all, now);
    }
    let told: BTreeSet<Kind> = unblocking.iter().flatten().copied().collect();
    // Each kind in the words of a way that is open once a set is lifted, if there is one.
    ways.sort_by_key(|(kinds, _)| !unblocking.iter().any(|set| kinds.is_subset(set)));
    let mut constraints: Vec<Constraint> = Vec::new();
    for constraint in ways.into_iter().flat_map(|(_, way)| whole(way.blocked)) {
        if told.contains(&constraint.kind) && constraints.iter().all(|other| other.kind != constraint.kind) {
            constraints.push(constraint);
        }
    }
    if told.contains(&Kind::QueueOrder) {
        constraints.push(order(cluster, &ahead));
    }
    // Nothing of its own is in the way: others go first.
    let lets_others = parts.iter().find_map(|(_, part)| yields(state, part));
    if let Some(cut) = lets_others.filter(|_| !told.contains(&Kind::Provider)) {
        constraints.push(Constraint { kind: Kind::Provider, sentence: cut.sentence() });
    }
    constraints.sort_by_key(|constraint| constraint.kind);
    let mut sets = unblocking.iter().cloned();
    let binding = sets.next().map_or_else(BTreeSet::new, |first| sets.fold(first, |both, set| &both & &set));
    Some(Verdict {
        constraints,
        binding,
        unblocking,
        position: ahead.jobs + 1,
        nodes_coming: coming(state, cluster),
    })
}

/// The smallest parts of a set that start the job: the small ones are tried first, and none that has another in it.
fn least(state: &State, id: JobId, all: &BTreeSet<Kind>, now: Millis) -> Vec<BTreeSet<Kind>> {
    let all: Vec<Kind> = all.iter().copied().collect();
    let part = |bits: u32| -> BTreeSet<Kind> {
        all.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).map(|(_, kind)| *kind).collect()
    };
    let mut parts: Vec<BTreeSet<Kind>> = (0..1u32 << all.len()).map(part).collect();
    parts.sort_by_key(BTreeSet::len);
    let mut found: Vec<BTreeSet<Kind>> = Vec::new();
    for set in parts {
        let is_new = found.iter().all(|less| !less.is_subset(&set));
        if found.len() < ALTERNATIVES_MAX && is_new && whatif::starts(state, id, &set, now) {
            found.push(set);
        }
    }
    found
}

/// What lies before a job.
struct Ahead {
    jobs: usize,
    /// Why its owner may not have it, beside those of his that come first.
    allowances: Vec<Cut>,
    /// Nodes with work and those that everybody up to and with the job needs.
    nodes: u32,
    /// The same of all parts of the cluster.
    all_nodes: u32,
    /// Some on several nodes can have them only once a limit is lifted; they are not counted.
    some_wait_for_a_limit: bool,
}

impl Ahead {
    const fn none() -> Self {
        Self { jobs: 0, allowances: Vec::new(), nodes: 0, all_nodes: 0, some_wait_for_a_limit: false }
    }

    /// In one part of the cluster. Whoever may be in either counts in each.
    fn of(state: &State, cluster: &Cluster, part: &Cluster, job: &Job, lifted: &BTreeSet<Kind>) -> Self {
        let unless = |kind: Kind, limit: u32| if lifted.contains(&kind) { u32::MAX } else { limit };
        let at_once = unless(Kind::Maximum, part.declared.max)
            .min(unless(Kind::Window, held(part)))
            .min(unless(Kind::Quota, quota::nodes_ever(state, part)))
            .min(unless(Kind::Provider, provider_nodes_ever(state, part.shape.nominal)))
            .min(unless(Kind::Location, location::nodes_ever(state, &part.location, part.shape.nominal)));
        let mut gate = Gate::new(state);
        let mut order = Order::new(state, cluster);
        let nominal = cluster.shape.nominal;
        let mut packing = Packing::on(part.busy);
        let mut of_all = Packing::on(cluster.busy);
        let (mut jobs, mut held, mut some_wait_for_a_limit) = (0, None, false);
        while let Some(other) = order.next() {
            if other.id == job.id {
                break;
            }
            jobs += 1;
            if jobs >= AHEAD_COUNTED_MAX {
                break;
            }
            if let Some(cut) = gate.holds(cluster, other) {
                // Nobody overtakes a job of his own.
                if other.owner == job.owner {
                    held = held.or(Some(cut));
                } else {
                    order.pass_over();
                }
                continue;
            }
            gate.lets(cluster, other);
            if !mix::takes(cluster, part, other) {
                of_all.add(other, nominal);
            } else if other.nodes == 1 || other.nodes <= at_once {
                of_all.add(other, nominal);
                packing.add(other, nominal);
            } else {
                some_wait_for_a_limit = true;
            }
        }
        let allowances = match held {
            Some(held) => vec![held],
            None => gate.holding(cluster, job).collect(),
        };
        packing.add(job, nominal);
        of_all.add(job, nominal);
        let (nodes, all_nodes) = (packing.nodes, of_all.nodes.max(packing.nodes));
        Self { jobs, allowances, nodes, all_nodes, some_wait_for_a_limit }
    }
}

/// One way to a start, and what blocks it.
struct Way {
    blocked: Vec<Constraint>,
}

impl Way {
    /// After everybody who is ahead. Where a limit is in the way, it is lifted for those as well: so they may then be in
    /// the way of another.
    fn in_turn(state: &State, cluster: &Cluster, part: &Cluster, job: &Job, now: Millis) -> (Self, Ahead) {
        let mut lifted = BTreeSet::new();
        loop {
            let ahead = Ahead::of(state, cluster, part, job, &lifted);
            let mut blocked = general(state, &ahead.allowances);
            blocked.extend(payers_money(state, part, job, now));
            maximum(cluster, part, ahead.nodes, &mut blocked);
            blocked.extend(rolling(state, part, job));
            let all = ahead.all_nodes.saturating_sub(cluster.live - cluster.unheard);
            growth(state, part, job, (ahead.nodes, all), now, &mut blocked);
            let kinds: BTreeSet<Kind> = blocked.iter().map(|constraint| constraint.kind).collect();
            if !ahead.some_wait_for_a_limit || kinds.is_subset(&lifted) {
                return (Self { blocked }, ahead);
            }
            lifted.extend(kinds);
        }
    }

    /// Before everybody.
    fn as_first(state: &State, cluster: &Cluster, part: &Cluster, job: &Job, now: Millis) -> Self {
        let allowances: Vec<Cut> = Gate::new(state).holding(cluster, job).collect();
        let mut blocked = general(state, &allowances);
        blocked.extend(payers_money(state, part, job, now));
        if fits(state, part, job, now) {
            return Self { blocked };
        }
        let mut alone = Packing::on(part.busy);
        alone.add(job, part.shape.nominal);
        maximum(cluster, part, alone.nodes, &mut blocked);
        blocked.extend(rolling(state, part, job));
        growth(state, part, job, (alone.nodes, 0), now, &mut blocked);
        Self { blocked }
    }
}

/// Several of a kind are lifted together, so they are told as one.
fn whole(blocked: Vec<Constraint>) -> Vec<Constraint> {
    let mut out: Vec<Constraint> = Vec::new();
    for constraint in blocked {
        match out.iter_mut().find(|other| other.kind == constraint.kind) {
            Some(other) if other.sentence.contains(&constraint.sentence) => {}
            Some(other) => other.sentence.push_str(&format!(" {}", constraint.sentence)),
            None => out.push(constraint),
        }
    }
    out
}

/// It would be placed on what is there.
fn fits(state: &State, cluster: &Cluster, job: &Job, now: Millis) -> bool {
    match job.need {
        Need::Whole => cluster.idle.len() >= job.nodes as usize,
        Need::Share(share) => {
            cluster.idle.iter().chain(&cluster.open).any(|node| has_room(state, *node, share, now))
        }
    }
}

/// What has nothing to do with nodes.
fn general(state: &State, allowances: &[Cut]) -> Vec<Constraint> {
    let mut blocked = Vec::new();
    if state.draining.is_some() {
        let sentence = "The server is being stopped; it will be placed when the server is back.".into();
        blocked.push(Constraint { kind: Kind::Draining, sentence });
    }
    let held = allowances.iter();
    blocked.extend(held.map(|cut| Constraint { kind: Kind::Allowance, sentence: cut.sentence() }));
    blocked
}

/// Whoever pays for the job alone has not the money.
fn payers_money(state: &State, cluster: &Cluster, job: &Job, now: Millis) -> Vec<Constraint> {
    let cuts = budget::all_bars(state, cluster, job, now).into_iter();
    cuts.map(|cut| Constraint { kind: Kind::Budget, sentence: cut.sentence() }).collect()
}

/// What keeps a part of a cluster from having this many nodes, and all parts together so many more.
fn growth(
    state: &State,
    cluster: &Cluster,
    job: &Job,
    (total, missing_in_all): (u32, u32),
    now: Millis,
    blocked: &mut Vec<Constraint>,
) {
    let missing = total.saturating_sub(cluster.live - cluster.unheard);
    if missing == 0 {
        return;
    }
    let locks = lock::scaling_cuts(state, cluster);
    blocked.extend(locks.map(|cut| Constraint { kind: Kind::Lock, sentence: cut.sentence() }));
    // The first node that comes ends it.
    let waits = cluster.boot.retry_at.filter(|at| *at > now && coming(state, cluster) == 0);
    if let Some(retry_at) = waits {
        let cut = Cut::BootBackoff { failures: cluster.boot.failures, retry_at };
        blocked.push(Constraint { kind: Kind::BootBackoff, sentence: cut.sentence() });
    }
    let cores = quota::cores(&cluster.shape);
    let needed = cores * u64::from(missing);
    let passed = quota::limits_on_nodes(state, cluster).filter(|(_, limit, in_use)| in_use + needed > *limit);
    for (key, limit, in_use) in passed {
        let sentence = format!(
            "{} needed and {in_use} of {limit} are in use of {key}; ask for more with 'neap quota request {} --location {} --limit {}'.",
            more_nodes_are(missing, &format!(" of {cores} cores")),
            key.pool.flag(),
            key.location,
            in_use + needed
        );
        blocked.push(Constraint { kind: Kind::Quota, sentence });
    }
    let missing = missing.max(missing_in_all);
    let poor = budget::nodes_cuts(state, cluster, missing, now);
    blocked.extend(poor.map(|cut| Constraint { kind: Kind::Budget, sentence: cut.sentence() }));
    if let Some(sentence) = provider(state, cluster.shape.nominal, missing, job) {
        blocked.push(Constraint { kind: Kind::Provider, sentence });
    }
    if let Some(cut) = location::missing(state, cluster, missing) {
        let elsewhere =
            location::elsewhere_words(state, cluster.workspace, &cluster.location, &cluster.shape, missing);
        let sentence = format!("{}{elsewhere}", cut.sentence());
        blocked.push(Constraint { kind: Kind::Location, sentence });
    }
}

fn provider(state: &State, nominal: Capacity, missing: u32, job: &Job) -> Option<String> {
    let provider = &state.settings.provider;
    let in_use = u32::try_from(state.nodes.len()).unwrap_or(u32::MAX);
    let at_once = if job.nodes > 1 { " at once" } else { "" };
    if in_use.saturating_add(missing) > provider.nodes_max {
        return Some(format!(
            "{} needed{at_once}; the provider makes at most {} (local.max_nodes) and {in_use} exist, over all clusters.",
            more_nodes_are(missing, ""),
            provider.nodes_max
        ));
    }
    let machine = provider.machine?;
    let each = counted(provider, nominal.min(machine));
    let mut free = machine.minus(state.provided);
    for _ in 0..missing {
        if each.gpus > free.gpus {
            return Some(format!(
                "{} needed{at_once}; {} of this machine's are free, and a GPU is never in two nodes.",
                more_nodes_are(missing, &format!(" with {}", many(each.gpus, "GPU"))),
                machine.minus(state.provided).gpus
            ));
        }
        if !free.fits(each) {
            return Some(format!(
                "{} needed{at_once}; the machine has {} free and local.capacity is strict.",
                more_nodes_are(missing, &format!(" of {each}")),
                machine.minus(state.provided)
            ));
        }
        free = free.minus(each);
    }
    None
}

/// The maximum, the declared one or a window's lower one, or both.
fn maximum(cluster: &Cluster, part: &Cluster, wanted: u32, blocked: &mut Vec<Constraint>) {
    let counted = wanted.saturating_add(part.unheard);
    if let Some(cut) = window::cut(cluster, part, wanted).filter(|_| counted > part.scale.max) {
        blocked.push(Constraint { kind: Kind::Window, sentence: cut.sentence() });
    }
    // Without a window a part may still have less than declared, while the other has more than it may.
    let max = if part.scheduled.max_by.is_some() { part.declared.max } else { part.scale.max };
    if counted > max {
        let sentence = match cluster.mix {
            // There would be enough, were it not for those that take nobody.
            None if wanted <= max => {
                let (nobody, take) = (part.unheard, if part.unheard == 1 { "takes" } else { "take" });
                format!(
                    "{} wanted, {nobody} of its nodes {take} nobody (cordoned, or not heard of), and max_instances is {max}; raise max_instances, or let work on them again with 'neap node uncordon'.",
                    nodes_are(wanted, "")
                )
            }
            None => Cut::Maximum { wanted, max }.sentence(),
            Some(_) => Cut::TierMaximum { tier: part.shape.tier, wanted, max }.sentence(),
        };
        blocked.push(Constraint { kind: Kind::Maximum, sentence });
    }
}

/// The maximum that a window holds, where one does.
fn held(cluster: &Cluster) -> u32 {
    if cluster.scheduled.max_by.is_some() { cluster.scale.max } else { u32::MAX }
}

/// Some of the nodes are of an older definition and too small for the job, and it is not their turn yet.
fn rolling(state: &State, cluster: &Cluster, job: &Job) -> Option<Constraint> {
    let Need::Share(share) = job.need else { return None };
    let small = |id: &crate::ids::NodeId| state.nodes.get(id).is_some_and(|node| !node.nominal.fits(share));
    cluster.old.iter().any(small).then(|| {
        let sentence = format!(
            "Nodes of compute '{}' are being replaced one by one, and it needs a node of {}; {} of the older definition are left.",
            cluster.name,
            cluster.shape.size,
            cluster.old.len()
        );
        Constraint { kind: Kind::Rolling, sentence }
    })
}

fn order(cluster: &Cluster, ahead: &Ahead) -> Constraint {
    let jobs = if ahead.jobs >= AHEAD_COUNTED_MAX {
        format!("More than {AHEAD_COUNTED_MAX} jobs are")
    } else if ahead.jobs == 1 {
        "1 job is".to_owned()
    } else {
        format!("{} jobs are", ahead.jobs)
    };
    let sentence = format!(
        "{jobs} ahead of it on compute '{}'; a higher queue_settings.priority goes first.",
        cluster.name
    );
    Constraint { kind: Kind::QueueOrder, sentence }
}

fn coming(state: &State, cluster: &Cluster) -> u32 {
    let comes = state.nodes_of(cluster).filter(|node| {
        matches!(
            node.state,
            NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. }
        )
    });
    u32::try_from(comes.count()).unwrap_or(u32::MAX)
}
