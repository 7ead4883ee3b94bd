//! Submitting, editing, cancelling and deleting jobs.

use std::sync::Arc;

use neap_core::cluster::QueueKey;
use neap_core::command::{PutCluster, SubmitJob};
use neap_core::event::{
    AttemptStopRequested, JobCancelRequested, JobDeleted, JobEnded, JobSubmitted, JobUpdated, NodeMetered,
};
use neap_core::job::{Class, Exit, Need, Outcome, Status, StopReason};
use neap_core::limits::QUEUE_LENGTH_MAX;
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::retired::retired;
use neap_core::{Capacity, Code, Command, Event, JobId, NodeId, Problem, WorkspaceId};

use crate::world::{
    CPU, DOCUMENT, NOMINAL, OTHER_DOCUMENT, QUARTER, WORKSPACE, World, cancel, cluster, job, kinds, settings,
    share,
};

fn submit(change: impl FnOnce(&mut SubmitJob)) -> Command {
    let mut job = job("train");
    change(&mut job);
    Command::SubmitJob(job)
}

#[test]
fn a_job_is_taken_as_it_was_asked_for() {
    let world = World::with_cluster(0, 1);
    let submitted = JobSubmitted {
        tags: vec![],
        id: JobId(1),
        workspace: WORKSPACE,
        cluster: CPU,
        name: "train".into(),
        owner: "me".into(),
        priority: 1,
        need: Need::Whole,
        nodes: 1,
        family: None,
        after: Vec::new(),
        work: None,
        timeout_ms: Some(7_000),
        retry: None,
        like: None,
        tier: Default::default(),
        document: DOCUMENT,
        meta: OTHER_DOCUMENT,
    };
    let command = submit(|job| {
        job.cluster = "CPU".into();
        job.timeout_ms = Some(7_000);
    });
    assert_eq!(world.ask(command), Ok(vec![submitted.into()]));
}

#[test]
fn every_problem_of_a_job_is_told_at_once() {
    let world = World::with_cluster(0, 1);
    for (command, expect) in [
        (submit(|job| job.workspace = WorkspaceId(9)), vec![Code::ParentResourceNotFound]),
        (submit(|job| job.name = "a/b".into()), vec![Code::InvalidResourceName]),
        (submit(|job| job.cluster = "gpu".into()), vec![Code::ComputeNotFound]),
        (
            submit(|job| {
                job.problems = vec![Problem::new(Code::CodeNotFound, "no such code")];
                job.name = "a/b".into();
                job.need = Need::Share(Capacity { cpus_milli: 1, ..NOMINAL.plus(NOMINAL) });
            }),
            vec![Code::CodeNotFound, Code::InvalidResourceName, Code::BadArgument, Code::ResourceTooLarge],
        ),
    ] {
        assert_eq!(world.refused(command), expect);
    }
}

#[test]
fn a_name_is_used_once_also_by_a_job_that_has_ended() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    assert_eq!(world.refused(submit(|_| {})), [Code::JobNameTaken]);
    world.tell(cancel(job));
    assert!(world.state.jobs.is_empty());
    assert_eq!(world.refused(submit(|_| {})), [Code::JobNameTaken]);
    assert!(world.ask(submit(|job| job.name = "again".into())).is_ok());
}

#[test]
fn a_cluster_that_is_going_and_a_server_that_stops_take_no_jobs() {
    let mut world = World::with_cluster(1, 1);
    let mut stopping = world.clone();
    world.tell(Command::DeleteCluster { cluster: CPU, reason: "asked".into() });
    assert_eq!(world.refused(submit(|_| {})), [Code::ComputeNotFound]);
    stopping.tell(Command::Drain { deadline: stopping.now.plus(1_000) });
    assert_eq!(stopping.refused(submit(|_| {})), [Code::ServerIsStopping]);
}

#[test]
fn a_share_is_no_less_than_the_least_and_no_more_than_a_node() {
    let world = World::with_cluster(0, 1);
    let asks = |share: Capacity| submit(|job| job.need = Need::Share(share));
    let least = Capacity { cpus_milli: 10, memory_mb: 0, gpus: 0 };
    for share in [least, QUARTER, NOMINAL] {
        assert!(world.ask(asks(share)).is_ok(), "{share}");
    }
    for (share, expect) in [
        (Capacity { cpus_milli: 9, ..least }, Code::BadArgument),
        (Capacity { cpus_milli: NOMINAL.cpus_milli + 1, ..NOMINAL }, Code::ResourceTooLarge),
        (Capacity { memory_mb: NOMINAL.memory_mb + 1, ..NOMINAL }, Code::ResourceTooLarge),
        (Capacity { gpus: 1, ..NOMINAL }, Code::ResourceTooLarge),
    ] {
        assert_eq!(world.refused(asks(share)), [expect], "{share}");
    }
}

#[test]
fn a_gpu_that_is_asked_for_is_truly_there() {
    let machine = |gpus| {
        let mut world = World::with(settings(|s| s.provider.machine = Some(Capacity { gpus, ..NOMINAL })));
        let size = neap_core::catalogue::sizes()
            .find(|size| size.gpus == 2 && retired(size.name).is_none())
            .unwrap();
        world.tell(Command::PutCluster(PutCluster { size: Some(size.name.into()), ..cluster("cpu") }));
        world
    };
    let whole = || submit(|_| {});
    let gpus = |gpus| submit(move |job| job.need = Need::Share(Capacity { gpus, ..QUARTER }));
    assert_eq!(machine(0).refused(whole()), [Code::GpuNotAvailable]);
    assert_eq!(machine(1).refused(whole()), [Code::GpuNotAvailable], "a whole node has two");
    assert!(machine(2).ask(whole()).is_ok());
    assert_eq!(machine(0).refused(gpus(1)), [Code::GpuNotAvailable]);
    assert!(machine(1).ask(gpus(1)).is_ok());
    assert!(machine(0).ask(gpus(0)).is_ok(), "a share without one");
    let mut cloud = machine(2);
    let settings = settings(|s| s.provider.machine = None);
    cloud.tell(Command::Start { release: "test".into(), settings });
    assert!(cloud.ask(gpus(2)).is_ok(), "where each node is a machine of its own, its size is believed");
}

#[test]
fn a_queue_has_an_end() {
    let mut world = World::with_cluster(0, 1);
    for (waiting, expect) in [(QUEUE_LENGTH_MAX - 1, None), (QUEUE_LENGTH_MAX, Some(Code::LimitReached))] {
        let cpu = Arc::make_mut(world.state.clusters.get_mut(&CPU).unwrap());
        cpu.queue = (0..waiting as u64).map(|id| QueueKey { behind: 0, job: JobId(id) }).collect();
        let refusal = world.ask(submit(|_| {})).err();
        assert_eq!(refusal.map(|refusal| refusal.code()), expect, "{waiting} jobs wait");
    }
}

#[test]
fn a_queue_ends_where_it_is_configured_to() {
    let mut world = World::with_cluster(0, 0);
    let settings = settings(|s| s.waiting_jobs_max = 2);
    world.tell(Command::Start { release: "test".into(), settings });
    for name in ["one", "two"] {
        world.submit(name);
    }
    let refusal = world.ask(submit(|job| job.name = "three".into())).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "(LimitReached) 2 jobs wait on compute 'cpu' already; 2 is the limit (limits.waiting_jobs in config.yaml)."
    );
}

#[test]
fn only_a_job_that_was_submitted_can_be_edited() {
    let mut world = World::with_cluster(0, 1);
    let update = |job| Command::UpdateJob { job, meta: DOCUMENT, archived: true };
    let job = world.submit("train");
    for unknown in [JobId(0), JobId(2), JobId(3)] {
        assert_eq!(world.refused(update(unknown)), [Code::ResourceNotFound]);
        assert_eq!(world.refused(cancel(unknown)), [Code::ResourceNotFound]);
        assert_eq!(world.refused(Command::DeleteJob { job: unknown }), [Code::ResourceNotFound]);
    }
    // What its node has cost so far is its under the old tags.
    let updated = JobUpdated { id: job, meta: DOCUMENT, archived: true };
    let metered = NodeMetered { id: NodeId(1) };
    assert_eq!(world.ask(update(job)), Ok(vec![metered.into(), updated.into()]));
    world.ready(1);
    world.start(job);
    assert_eq!(kinds(&world.ask(update(job)).unwrap()), ["node.metered", "job.updated"]);
    world.end(job, Exit::Success);
    assert_eq!(
        kinds(&world.ask(update(job)).unwrap()),
        ["node.metered", "job.updated"],
        "it is idle after it"
    );
    let next = world.submit("next");
    world.start(next);
    world.wait(1_000);
    let events = world.ask(update(next)).unwrap();
    world.tell(update(next));
    assert_eq!(
        (kinds(&events).len(), world.node(1).metered),
        (2, world.now),
        "the books are closed up to here"
    );
}

#[test]
fn a_waiting_job_is_cancelled_at_once() {
    let mut world = World::with_cluster(0, 0);
    let job = world.submit("train");
    let answer = world.ask(cancel(job)).unwrap();
    let [Event::JobCancelRequested(asked), Event::JobEnded(ended)] = &answer[..] else {
        panic!("{answer:?}")
    };
    assert_eq!(*asked, JobCancelRequested { id: job, reason: "not wanted".into() });
    assert_eq!((ended.id, ended.attempt, &ended.exit), (job, None, &None));
    let failure = ended.outcome.failure.as_ref().unwrap();
    assert_eq!(ended.outcome.status, Status::Canceled);
    assert_eq!(
        (failure.class, &*failure.code, &*failure.message),
        (Class::UserCode, "JobCanceled", "not wanted")
    );
    world.tell(cancel(job));
    assert_eq!(world.refused(cancel(job)), [Code::JobAlreadyFinal]);
}

#[test]
fn a_running_job_is_cancelled_through_its_node_once() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    world.ready(1);
    let grace = world.state.settings.stop_grace_ms;
    assert_eq!(
        world.ask(cancel(job)),
        Ok(vec![
            JobCancelRequested { id: job, reason: "not wanted".into() }.into(),
            AttemptStopRequested {
                reason: None,
                id: job,
                attempt: 1,
                why: StopReason::Cancel,
                // The grace, as long again for the word to come back, and some.
                deadline: world.now.plus(2 * grace + 5_000),
            }
            .into(),
        ])
    );
    world.tell(cancel(job));
    assert_eq!(world.job(job).status(), Status::CancelRequested);
    assert_eq!(world.job(job).cancel.as_ref().map(|c| (c.at, &*c.reason)), Some((world.now, "not wanted")));
    assert_eq!(world.ask(cancel(job)), Ok(vec![]), "it was asked for already");
    let events = world.end(job, Exit::Success);
    let ended = events.iter().find_map(|event| match event {
        Event::JobEnded(JobEnded { outcome: Outcome { status, .. }, .. }) => Some(*status),
        _ => None,
    });
    assert_eq!(ended, Some(Status::Canceled), "whatever its last word was");
}

#[test]
fn a_job_is_deleted_after_its_end() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit_job(share("train", QUARTER));
    let delete = || Command::DeleteJob { job };
    assert_eq!(world.refused(delete()), [Code::JobNotFinal]);
    world.tell(cancel(job));
    assert_eq!(world.ask(delete()), Ok(vec![JobDeleted { id: job }.into()]));
    let used = world.state.clone();
    world.tell(delete());
    assert_eq!(world.state.job_names, used.job_names, "its name stays used");
}

#[test]
fn a_job_on_several_nodes_is_taken_if_it_can_ever_have_them() {
    let pair = || submit(|job| job.nodes = 2);
    let mut world = World::with_cluster(0, 2);
    assert!(world.ask(pair()).is_ok());
    assert_eq!(world.refused(submit(|job| job.nodes = 0)), [Code::BadArgument]);
    let shared = submit(|job| (job.nodes, job.need) = (2, Need::Share(QUARTER)));
    assert_eq!(world.refused(shared), [Code::BadArgument]);
    world.scale(0, 1);
    assert_eq!(world.refused(pair()), [Code::ResourceTooLarge], "its cluster has one at most");
    world.scale(0, 0);
    assert!(world.ask(submit(|_| {})).is_ok(), "one on one node waits for better times");

    for (nodes_max, cores, expect) in [
        (1, None, Some(Code::ResourceTooLarge)),
        (64, Some(4), Some(Code::JobNodeCountExceedsCoreQuota)),
        (1, Some(4), Some(Code::JobNodeCountExceedsCoreQuota)),
        (2, Some(8), None),
        (0, Some(0), Some(Code::JobNodeCountExceedsCoreQuota)),
    ] {
        let mut world = World::with(settings(|s| s.provider.nodes_max = nodes_max));
        world.scale(0, 2);
        let holder = Holder::Subscription("s".into());
        let key = QuotaKey { holder, location: "westus".into(), pool: Pool::Dedicated };
        world.tell(Command::SetQuota { key, limit: cores, by: "owner".into() });
        let refused = world.ask(pair()).err().map(|refusal| refusal.code());
        assert_eq!(refused, expect, "{nodes_max} nodes, {cores:?} cores");
        assert!(world.ask(submit(|_| {})).is_ok(), "{nodes_max} nodes, {cores:?} cores");
    }
}

#[test]
fn a_machine_has_as_many_nodes_as_its_scarcest_part_is_enough_for() {
    for (cpus_milli, memory_mb, most) in [
        (8_000, 1_000_000, 2),
        (7_999, 1_000_000, 1),
        (1_000_000, 2 * NOMINAL.memory_mb, 2),
        (1_000_000, 2 * NOMINAL.memory_mb - 1, 1),
    ] {
        let mut world = World::with(settings(|s| {
            s.provider.machine = Some(Capacity { cpus_milli, memory_mb, gpus: 0 });
            s.provider.strict = true;
        }));
        world.scale(0, 9);
        for nodes in 2..=3 {
            let taken = world.ask(submit(|job| job.nodes = nodes)).is_ok();
            assert_eq!(taken, nodes <= most, "{nodes} of {cpus_milli} and {memory_mb}");
        }
    }
}
