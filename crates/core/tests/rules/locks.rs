//! Locks: what each kind stops at each scope, and that scaling says why it stands still.

use neap_core::cluster::Cut;
use neap_core::command::{PutCluster, PutLock};
use neap_core::limits::LOCKS_MAX;
use neap_core::lock::{LockLevel, LockScope};
use neap_core::state::GroupKey;
use neap_core::{ClusterId, Code, Command, WorkspaceId};

use crate::scaling::requested;
use crate::world::{CPU, WORKSPACE, World, cluster, job, put_workspace};

fn group(name: &str) -> LockScope {
    LockScope::Group(GroupKey::new("s", name))
}

fn lock(scope: LockScope, level: LockLevel) -> Command {
    Command::PutLock(PutLock { scope, name: "keep".into(), level, notes: "".into(), by: "owner".into() })
}

fn unlock(scope: LockScope) -> Command {
    Command::DeleteLock { scope, name: "KEEP".into() }
}

fn delete_cluster() -> Command {
    Command::DeleteCluster { cluster: CPU, reason: "asked".into() }
}

fn change_cluster() -> Command {
    Command::PutCluster(PutCluster { max: Some(9), ..cluster("cpu") })
}

fn delete_group() -> Command {
    Command::DeleteGroup { subscription: "s".into(), name: "g".into() }
}

#[test]
fn each_kind_stops_what_the_table_says_at_each_scope() {
    use LockLevel::{CanNotDelete, ReadOnly};
    let scopes = [LockScope::Cluster(CPU), LockScope::Workspace(WORKSPACE), group("g")];
    // In this order: delete cluster, change cluster, submit a job, new cluster, change workspace, delete workspace,
    // delete group; then whether the cluster grows for the job that waits.
    let table = [
        (CanNotDelete, 0, "x.....xx", true),
        (CanNotDelete, 1, "x.....xx", true),
        (CanNotDelete, 2, "x.....xx", false),
        (ReadOnly, 0, "xx....xx", false),
        (ReadOnly, 1, "xxxxx.xx", false),
        (ReadOnly, 2, "xxxxx.xx", false),
    ];
    for (level, scope, stops, scales) in table {
        let mut world = World::with_cluster(0, 1);
        world.tell(lock(scopes[scope].clone(), level));
        let acts = [
            delete_cluster(),
            change_cluster(),
            Command::SubmitJob(job("new")),
            Command::PutCluster(cluster("another")),
            put_workspace("ws"),
            Command::CancelJob { job: neap_core::JobId(77), reason: "".into() },
            Command::DeleteWorkspace { workspace: WORKSPACE },
            delete_group(),
        ];
        let seen: String = acts
            .into_iter()
            .map(|act| match world.ask(act) {
                Err(refusal) if refusal.code() == Code::ScopeLocked => 'x',
                _ => '.',
            })
            .collect();
        assert_eq!(seen, stops, "{level:?} on scope {scope}");
        let mut world = World::with_cluster(0, 1);
        let waiting = world.state.next.job;
        world.batch([lock(scopes[scope].clone(), level)]);
        if world.ask(Command::SubmitJob(job("waits"))).is_ok() {
            let events = world.tell(Command::SubmitJob(job("waits")));
            assert_eq!(requested(&events) == 1, scales, "{level:?} on scope {scope}");
            world.tell(Command::CancelJob { job: waiting, reason: "enough".into() });
        }
    }
}

#[test]
fn a_lock_on_the_group_keeps_idle_nodes_and_says_so_and_its_end_replans_at_once() {
    let mut world = World::with_cluster(1, 2);
    world.ready(1);
    world.scale(0, 2);
    world.tell(lock(group("g"), LockLevel::CanNotDelete));
    world.wait(60_000);
    assert_eq!(world.cpu().live, 1, "its idle time is long over");
    let cut = world.cpu().cuts[0].clone();
    assert!(matches!(&cut, Cut::Lock { group: true, .. }), "{cut:?}");
    assert!(cut.sentence().contains("lock the single resources instead of the group"), "{}", cut.sentence());
    world.tell(unlock(group("g")));
    assert_eq!(world.cpu().live, 0);
    assert!(world.cpu().cuts.is_empty());
}

#[test]
fn a_lock_on_the_networks_group_stops_scaling() {
    let mut world = World::new();
    world.tell(crate::world::put_group("net", "westus"));
    let network = Some(GroupKey::new("s", "net"));
    world.tell(Command::PutCluster(PutCluster { network, ..cluster("cpu") }));
    world.tell(lock(group("net"), LockLevel::ReadOnly));
    let events = world.tell(Command::SubmitJob(job("waits")));
    assert_eq!(requested(&events), 0);
    let reasons = neap_core::explain::queue_reasons(&world.state, neap_core::JobId(1));
    assert!(
        reasons.iter().any(|why| why.contains("lock 'keep' on resource group 'net' stops scaling")),
        "{reasons:?}"
    );
    assert_eq!(requested(&world.tell(unlock(group("net")))), 1);
}

#[test]
fn what_is_not_there_is_not_locked_and_a_lock_is_found_by_its_name_in_any_case() {
    let mut world = World::with_cluster(0, 1);
    assert_eq!(
        world.refused(lock(LockScope::Cluster(ClusterId(9)), LockLevel::ReadOnly)),
        [Code::ResourceNotFound]
    );
    assert_eq!(world.refused(unlock(group("g"))), [Code::ResourceNotFound]);
    world.tell(lock(LockScope::Cluster(CPU), LockLevel::CanNotDelete));
    assert_eq!(world.refused(delete_cluster()), [Code::ScopeLocked]);
    world.tell(unlock(LockScope::Cluster(CPU)));
    world.tell(delete_cluster());
    assert_eq!(world.refused(lock(LockScope::Cluster(CPU), LockLevel::ReadOnly)), [Code::ResourceNotFound]);
}

#[test]
fn there_are_so_many_locks_and_no_more() {
    let mut world = World::with_cluster(0, 1);
    let lock = |number: usize| {
        let (scope, name) = (LockScope::Workspace(WORKSPACE), format!("lock{number}").into());
        let (level, notes, by) = (LockLevel::CanNotDelete, "".into(), "owner".into());
        Command::PutLock(PutLock { scope, name, level, notes, by })
    };
    world.batch((1..LOCKS_MAX).map(lock));
    world.tell(lock(LOCKS_MAX));
    assert_eq!(world.refused(lock(LOCKS_MAX + 1)), [Code::LimitReached]);
    assert!(world.ask(lock(1)).is_ok(), "one that is there is changed");
}

#[test]
fn a_group_that_is_locked_is_not_put_again_and_takes_no_workspace() {
    let put = || crate::world::put_group("g", "westus");
    let mut world = World::new();
    world.tell(lock(group("g"), LockLevel::CanNotDelete));
    assert!(world.ask(put()).is_ok() && world.ask(put_workspace("new")).is_ok());
    world.tell(lock(group("g"), LockLevel::ReadOnly));
    for command in [put(), put_workspace("new")] {
        assert_eq!(world.refused(command), [Code::ScopeLocked]);
    }
    assert!(world.ask(crate::world::put_group("other", "westus")).is_ok(), "none of its business");
}

#[test]
fn a_workspace_that_goes_is_not_locked_and_what_is_gone_has_no_locks() {
    let mut world = World::with_cluster(1, 1);
    let on_workspace = || lock(LockScope::Workspace(WORKSPACE), LockLevel::CanNotDelete);
    let nowhere = lock(LockScope::Workspace(WorkspaceId(9)), LockLevel::CanNotDelete);
    assert_eq!(world.refused(nowhere), [Code::ResourceNotFound]);
    assert_eq!(world.refused(lock(group("other"), LockLevel::ReadOnly)), [Code::ResourceNotFound]);
    world.tell(crate::world::put_group("other", "westus"));
    world.tell(lock(group("other"), LockLevel::ReadOnly));
    world.tell(Command::DeleteWorkspace { workspace: WORKSPACE });
    assert!(world.state.workspaces[&WORKSPACE].deleting, "its node is there");
    assert_eq!(world.refused(on_workspace()), [Code::ResourceNotFound]);
    assert!(world.cpu().is_deleting());
    assert_eq!(world.refused(lock(LockScope::Cluster(CPU), LockLevel::ReadOnly)), [Code::ResourceNotFound]);
    assert_eq!(world.state.locks.len(), 1, "the lock on another group stays");
}

#[test]
fn a_lock_says_who_put_it_when_and_what_for() {
    let mut world = World::new();
    world.wait(7);
    let (scope, level) = (group("g"), LockLevel::CanNotDelete);
    let (name, notes, by) = ("Keep".into(), "for the audit".into(), "ada".into());
    world.tell(Command::PutLock(PutLock { scope, name, level, notes, by }));
    let lock = &world.state.locks[&(group("g"), "keep".into())];
    assert_eq!((&*lock.name, &*lock.notes, &*lock.by, lock.at), ("Keep", "for the audit", "ada", world.now));
    let bad = PutLock { scope: group("g"), name: "?".into(), level, notes: "".into(), by: "ada".into() };
    assert_eq!(world.refused(Command::PutLock(bad)), [Code::InvalidResourceName]);
}
