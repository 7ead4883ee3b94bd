//! What is there before time passes, and what comes: clusters, work, and how long nodes take. Also the commands by
//! which the machine learns of it.

use std::sync::Arc;

use neap_core::catalogue;
use neap_core::command::{PutCluster, PutWorkspace, SubmitJob};
use neap_core::history::Like;
use neap_core::job::Need;
use neap_core::settings::Settings;
use neap_core::{Command, DocHash, WorkspaceId};

/// Who asks for everything that has no owner of its own.
pub(crate) const OWNER: &str = "replay";
/// The first workspace that is made.
pub(crate) const WORKSPACE: WorkspaceId = WorkspaceId(1);

const LOCATION: &str = "westus";
const DOCUMENT: DocHash = DocHash([0; 32]);
/// Deadlines of the machine are this many times as long as nodes take, so that none passes here.
const PATIENCE: u64 = 4;

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// As names of clusters are.
    pub name: Arc<str>,
    /// A size of the catalogue.
    pub size: Arc<str>,
    pub min: u32,
    pub max: u32,
    pub idle_ms: u64,
}

/// A job: when it comes, what it needs, and how long it will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The name of its pool.
    pub pool: Arc<str>,
    pub owner: Arc<str>,
    pub submit_ms: u64,
    pub run_ms: u64,
    pub need: Need,
    /// How many nodes it runs on at once.
    pub nodes: u32,
    pub priority: u8,
    /// Its `limits.timeout`.
    pub timeout_ms: Option<u64>,
    pub like: Option<Like>,
}

/// How long every node takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTimes {
    /// From the wish for it to its readiness.
    pub boot_ms: u64,
    /// From the order to go to its absence.
    pub leave_ms: u64,
}

/// Everything up to the clusters.
pub(crate) fn opening(pools: &[Pool], times: NodeTimes) -> Vec<Command> {
    let mut commands = vec![
        Command::Start { release: "replay".into(), settings: settings(times) },
        Command::PutGroup {
            subscription: OWNER.into(),
            name: OWNER.into(),
            location: LOCATION.into(),
            document: DOCUMENT,
        },
        Command::PutWorkspace(PutWorkspace {
            subscription: OWNER.into(),
            group: OWNER.into(),
            name: OWNER.into(),
            location: Some(LOCATION.into()),
            document: DOCUMENT,
            problems: Vec::new(),
        }),
    ];
    commands.extend(pools.iter().map(put));
    commands
}

/// Creates the cluster, or gives it this scale.
pub(crate) fn put(pool: &Pool) -> Command {
    Command::PutCluster(PutCluster {
        workspace: WORKSPACE,
        name: pool.name.clone(),
        location: None,
        size: Some(pool.size.clone()),
        tier: None,
        network: None,
        reference: None,
        min: Some(pool.min.into()),
        max: Some(pool.max.into()),
        idle_ms: Some(i64::try_from(pool.idle_ms).unwrap_or(i64::MAX)),
        dedicated: None,
        document: DOCUMENT,
        problems: Vec::new(),
    })
}

/// The `number`th job.
pub(crate) fn submit(task: &Task, number: usize) -> Command {
    Command::SubmitJob(SubmitJob {
        workspace: WORKSPACE,
        name: format!("job-{number}").into(),
        cluster: task.pool.clone(),
        owner: task.owner.clone(),
        priority: task.priority,
        need: task.need,
        nodes: task.nodes,
        family: None,
        tags: vec![],
        timeout_ms: task.timeout_ms,
        retry: None,
        like: task.like,
        tier: Default::default(),
        document: DOCUMENT,
        meta: DOCUMENT,
        problems: Vec::new(),
    })
}

fn settings(times: NodeTimes) -> Settings {
    let usual = Settings::default();
    let mut settings = Settings {
        locations: catalogue::regions().map(String::from).collect(),
        create_deadline_ms: usual.create_deadline_ms.max(times.boot_ms.saturating_mul(PATIENCE)),
        leave_deadline_ms: usual.leave_deadline_ms.max(times.leave_ms.saturating_mul(PATIENCE)),
        ..usual
    };
    settings.provider.name = "simulated".into();
    settings.provider.nodes_max = u32::MAX;
    settings
}
