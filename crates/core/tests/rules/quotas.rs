//! Limits on cores: what may be declared, what may be asked for, and what a lowered limit does.

use neap_core::cluster::Cut;
use neap_core::command::{PutCluster, RequestQuota};
use neap_core::event::{Event, QuotaSet};
use neap_core::limits::{QUOTA_REQUESTS_KEPT, QUOTA_REQUESTS_OPEN_MAX};
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::{Code, Command};

use crate::scaling::requested;
use crate::world::{CPU, WORKSPACE, World, cluster};

fn subscription(pool: Pool) -> QuotaKey {
    QuotaKey { holder: Holder::Subscription("s".into()), location: "westus".into(), pool }
}

fn workspace(pool: Pool) -> QuotaKey {
    QuotaKey { holder: Holder::Workspace(WORKSPACE), location: "westus".into(), pool }
}

fn family() -> Pool {
    Pool::Family("standardDSv2Family".into())
}

fn limit(key: QuotaKey, limit: u64) -> Command {
    Command::SetQuota { key, limit: Some(limit), by: "owner".into() }
}

fn put(name: &str, min: i64, max: i64) -> Command {
    Command::PutCluster(PutCluster { min: Some(min), max: Some(max), idle_ms: Some(10_000), ..cluster(name) })
}

#[track_caller]
fn why_refused(world: &World, command: Command) -> String {
    world.ask(command).expect_err("it is refused").to_string()
}

#[test]
fn a_cluster_holds_its_maximum_and_deletion_releases_it() {
    let mut world = World::new();
    world.tell(limit(subscription(family()), 24));
    world.tell(put("cpu", 0, 4));
    assert_eq!(world.state.quota_usage[&subscription(family())].held, 16);
    assert_eq!(world.refused(put("other", 0, 3)), [Code::ClusterCoreQuotaReached]);
    let why = why_refused(&world, put("other", 0, 3));
    for part in [
        "Standard DSv2 Family Cluster Dedicated vCPUs in westus",
        "the limit of subscription s is 24 cores",
        "16 are held ('cpu' 16)",
        "8 are free",
        "3 nodes of STANDARD_DS3_V2 at 4 cores are 12 cores",
        "lower maxNodeCount to 2",
        "neap quota request --family standardDSv2Family --location westus --limit 28",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    world.tell(put("other", 0, 2));
    assert_eq!(world.refused(put("third", 0, 1)), [Code::ClusterMinNodesExceedCoreQuota]);
    world.tell(Command::DeleteCluster { cluster: CPU, reason: "asked".into() });
    world.tell(put("third", 0, 4));
}

#[test]
fn every_limit_that_is_passed_is_named() {
    let mut world = World::new();
    for (key, max) in [
        (subscription(family()), 8),
        (subscription(Pool::Dedicated), 4),
        (workspace(family()), 8),
        (subscription(Pool::NodesPerCluster), 2),
    ] {
        world.tell(limit(key, max));
    }
    assert_eq!(world.refused(put("cpu", 0, 3)).len(), 4);
    assert_eq!(
        world.refused(put("cpu", 2, 2)),
        [Code::ClusterMinNodesExceedCoreQuota],
        "two nodes are eight cores, of four in all"
    );
    world.tell(put("cpu", 0, 1));
    world.tell(limit(subscription(Pool::Clusters), 1));
    let one_more = PutCluster { tier: Some("LowPriority".into()), max: Some(1), ..cluster("low") };
    assert_eq!(world.refused(Command::PutCluster(one_more)), [Code::ClusterCoreQuotaReached]);
}

#[test]
fn low_priority_cores_are_one_number_and_no_dedicated_ones() {
    let mut world = World::new();
    world.tell(limit(subscription(Pool::Dedicated), 0));
    world.tell(limit(subscription(Pool::LowPriority), 8));
    let low = |name: &str, size: &str, max| {
        let tier = Some("LowPriority".into());
        Command::PutCluster(PutCluster { size: Some(size.into()), tier, max: Some(max), ..cluster(name) })
    };
    world.tell(low("one", "Standard_DS3_v2", 1));
    assert_eq!(world.refused(low("two", "Standard_D4s_v3", 2)), [Code::ClusterCoreQuotaReached]);
    world.tell(low("two", "Standard_D4s_v3", 1));
    assert_eq!(world.refused(put("cpu", 0, 1)), [Code::ClusterMinNodesExceedCoreQuota]);
}

#[test]
fn a_limit_lowered_below_what_is_held_takes_nothing_away_and_gives_nothing_more() {
    let mut world = World::with_cluster(2, 4);
    world.tell(limit(subscription(family()), 4));
    assert_eq!(world.cpu().live, 2, "what is there stays");
    world.tell(put("cpu", 2, 4));
    assert_eq!(world.refused(put("cpu", 2, 5)), [Code::ClusterCoreQuotaReached]);
    world.tell(put("cpu", 2, 3));
    for name in ["a", "b", "c"] {
        world.submit(name);
    }
    assert_eq!(world.cpu().live, 2, "and nothing is added");
    let cut = &world.cpu().cuts[0];
    assert!(matches!(cut, Cut::Quota { limit: 4, in_use: 8, needed: 4, .. }), "{cut:?}");
    assert!(cut.sentence().contains("8 of 4 are in use"), "{}", cut.sentence());
    let events = world.tell(limit(subscription(family()), 12));
    assert_eq!(requested(&events), 1, "as much as there is room for, at once");
}

#[test]
fn an_own_smaller_limit_of_the_workspace_binds_it_alone() {
    let mut world = World::new();
    world.tell(limit(workspace(Pool::Dedicated), 4));
    assert_eq!(world.refused(put("cpu", 0, 2)), [Code::ClusterCoreQuotaReached]);
    assert!(why_refused(&world, put("cpu", 0, 2)).contains("the limit of workspace 'ws' is 4 cores"));
}

#[test]
fn where_there_is_room_is_said() {
    let mut world = World::new();
    let there = QuotaKey { location: "eastus".into(), ..subscription(Pool::Dedicated) };
    world.tell(limit(there, 100));
    world.tell(limit(subscription(Pool::Dedicated), 4));
    let why = why_refused(&world, put("cpu", 0, 2));
    assert!(why.ends_with("eastus has room for 25 such nodes."), "{why}");
}

#[test]
fn more_is_asked_for_and_granted_on_record() {
    let mut world = World::new();
    let request = |limit| {
        let (by, reason) = ("ada".into(), "a deadline".into());
        Command::RequestQuota(RequestQuota { key: subscription(family()), limit, by, reason })
    };
    assert_eq!(world.refused(request(8)), [Code::BadArgument], "there is no limit");
    world.tell(limit(subscription(family()), 4));
    for no_more in [0, 3, 4] {
        assert_eq!(world.refused(request(no_more)), [Code::BadArgument], "{no_more} of 4");
        assert!(why_refused(&world, request(no_more)).contains("is 4 already"));
    }
    assert!(world.ask(request(5)).is_ok());
    world.tell(request(8));
    world.tell(request(16));
    let answer = |request, approved| Command::AnswerQuota {
        request,
        approved,
        by: "owner".into(),
        reason: "fine".into(),
    };
    assert_eq!(world.tell(answer(1, false)).len(), 1, "no limit changes");
    let events = world.tell(answer(2, true));
    let set = QuotaSet { key: subscription(family()), limit: Some(16), by: "owner".into() };
    assert!(events.contains(&Event::from(set)), "{events:?}");
    assert_eq!(world.refused(answer(2, true)), [Code::QuotaRequestAnswered]);
    assert_eq!(world.refused(answer(3, true)), [Code::ResourceNotFound]);
    assert!(world.state.quota_requests[&1].answer.as_ref().is_some_and(|answer| !answer.approved));
    // What was asked for is no more by the time it is answered.
    world.tell(request(20));
    world.tell(limit(subscription(family()), 64));
    assert!(
        why_refused(&world, answer(3, true))
            .contains("is 64 by now, and 20 would be no more. Deny request 3.")
    );
    world.tell(Command::SetQuota { key: subscription(family()), limit: None, by: "owner".into() });
    assert!(why_refused(&world, answer(3, true)).contains("There is no limit on"));
    assert!(world.ask(answer(3, false)).is_ok());
}

#[test]
fn a_workspace_is_not_granted_more_than_the_subscription_has() {
    let mut world = World::new();
    world.tell(limit(subscription(Pool::Dedicated), 100));
    world.tell(limit(workspace(Pool::Dedicated), 10));
    let (by, reason) = ("ada".into(), "a deadline".into());
    let key = workspace(Pool::Dedicated);
    world.tell(Command::RequestQuota(RequestQuota { key, limit: 90, by, reason }));
    world.tell(limit(subscription(Pool::Dedicated), 50));
    let approve =
        Command::AnswerQuota { request: 1, approved: true, by: "owner".into(), reason: "fine".into() };
    let why = why_refused(&world, approve.clone());
    assert!(
        why.contains("90 is above the subscription's limit on it, which is 50. Deny request 1."),
        "{why}"
    );
    world.tell(limit(subscription(Pool::Dedicated), 90));
    assert!(world.ask(approve).is_ok());
}

fn request(limit: u64) -> Command {
    let (by, reason) = ("ada".into(), "a deadline".into());
    Command::RequestQuota(RequestQuota { key: subscription(family()), limit, by, reason })
}

fn deny(request: u64) -> Command {
    Command::AnswerQuota { request, approved: false, by: "owner".into(), reason: "no".into() }
}

#[test]
fn only_so_many_requests_wait_for_an_answer() {
    let mut world = World::new();
    world.tell(limit(subscription(family()), 4));
    let most = QUOTA_REQUESTS_OPEN_MAX as u64;
    world.batch((1..=most).map(|_| request(8)));
    assert_eq!(world.refused(request(8)), [Code::LimitReached]);
    world.tell(deny(7));
    world.tell(request(8));
    assert_eq!(world.refused(request(8)), [Code::LimitReached], "those that were answered do not count");
}

#[test]
fn the_last_answers_are_kept_and_every_open_request() {
    let mut world = World::new();
    world.tell(limit(subscription(family()), 4));
    let kept = QUOTA_REQUESTS_KEPT as u64;
    for id in 1..=kept {
        world.batch([request(8), deny(id)]);
    }
    world.tell(request(16));
    world.batch([request(8), deny(kept + 2)]);
    let ids: Vec<u64> = world.state.quota_requests.keys().copied().collect();
    assert_eq!((ids[0], ids.len() as u64), (2, kept + 1), "the oldest answer went");
    assert!(world.state.quota_requests[&(kept + 1)].answer.is_none());
}

#[test]
fn the_limits_of_a_workspace_go_with_it_and_no_others() {
    let mut world = World::new();
    world.tell(limit(subscription(family()), 4));
    world.tell(limit(workspace(family()), 4));
    world.tell(Command::DeleteWorkspace { workspace: WORKSPACE });
    assert!(world.state.workspaces.is_empty());
    let left: Vec<&QuotaKey> = world.state.quotas.keys().collect();
    assert_eq!(left, [&subscription(family())]);
}

#[test]
fn a_job_on_more_nodes_than_the_quota_ever_allows_is_refused() {
    let mut world = World::with_cluster(0, 4);
    world.tell(limit(subscription(Pool::Dedicated), 8));
    let mut gang = crate::world::job("gang");
    gang.nodes = 3;
    assert_eq!(world.refused(Command::SubmitJob(gang.clone())), [Code::JobNodeCountExceedsCoreQuota]);
    gang.nodes = 2;
    world.tell(Command::SubmitJob(gang));
    assert_eq!(world.cpu().live, 2);
}

#[test]
fn an_unknown_place_and_an_unknown_workspace_have_no_limits() {
    let world = World::new();
    let nowhere = QuotaKey { location: "atlantis".into(), ..subscription(Pool::Dedicated) };
    assert_eq!(world.refused(limit(nowhere.clone(), 1)), [Code::LocationNotAvailable]);
    let some: Vec<&str> = world.state.settings.locations.iter().take(5).map(String::as_str).collect();
    let why = why_refused(&world, limit(nowhere, 1));
    assert!(why.ends_with(&format!("Known are, for example: {}.", some.join(", "))), "{why}");
    let nobody =
        QuotaKey { holder: Holder::Workspace(neap_core::WorkspaceId(9)), ..subscription(Pool::Dedicated) };
    assert_eq!(world.refused(limit(nobody, 1)), [Code::ParentResourceNotFound]);
}

#[test]
fn a_limit_that_is_as_it_was_is_no_news() {
    let mut world = World::new();
    let none = || Command::SetQuota { key: subscription(family()), limit: None, by: "owner".into() };
    assert_eq!(world.ask(none()), Ok(vec![]), "there is none");
    world.tell(limit(subscription(family()), 4));
    assert_eq!(world.ask(limit(subscription(family()), 4)), Ok(vec![]));
    assert_eq!(world.tell(limit(subscription(family()), 5)).len(), 1);
    assert_eq!(world.tell(none()).len(), 1);
    assert!(world.state.quotas.is_empty());
}
