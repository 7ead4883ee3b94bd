//! Serverless jobs: no cluster is named, so Neap makes one of the size and tier that are asked for, and removes it when
//! it has not been used for a while.

use neap_core::cluster::{Cluster, Tier};
use neap_core::command::PutCluster;
use neap_core::decide::DEFAULT_SIZE;
use neap_core::documents::ClusterDocument;
use neap_core::state::Workspace;
use neap_core::{Command, Millis, Problem, Refusal, WorkspaceId};
use neap_ledger::Document;

use crate::app::{self, App};
use crate::arm::errors::bad;
use crate::arm::paths;
use crate::ask::Caller;
use crate::fields::Fields;

/// Nodes of a cluster that Neap makes by itself, unless one job asks for more.
const NODES_MAX: u32 = 10;
const IDLE_MS: i64 = 120_000;
/// A cluster that nobody has used for this long is removed.
const UNUSED_MS: u64 = 10 * 60 * 1_000;
/// Tells a cluster that Neap made from one that a user called so.
const MARK: &str = "neap.serverless";

/// What a serverless job runs on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serverless {
    pub size: String,
    pub tier: Tier,
    pub nodes: u32,
}

impl Serverless {
    /// The same for the same workspace, size and tier.
    pub(super) fn cluster(&self, workspace: WorkspaceId) -> String {
        let words = [&workspace.to_string(), &self.size.to_uppercase(), self.tier.canonical()];
        let guid = paths::derived_guid(&words);
        format!("serverless-{}", guid.split('-').next().unwrap_or_default())
    }
}

/// From `resources.instanceType` and `queueSettings.jobTier`.
pub(super) fn read(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Serverless {
    let resources = fields.object("resources", &mut Vec::new());
    let queue = fields.object("queueSettings", &mut Vec::new());
    let size =
        resources.text("instanceType", problems).filter(|size| !size.is_empty()).unwrap_or(DEFAULT_SIZE);
    let tier = match queue.text("jobTier", problems).unwrap_or("").to_ascii_lowercase().as_str() {
        "spot" => Tier::LowPriority,
        "" | "null" | "basic" | "standard" | "premium" => Tier::Dedicated,
        other => {
            problems.push(bad(
                format!("The job tier '{other}' is not known: Spot, Basic, Standard or Premium."),
                &queue.place("jobTier"),
            ));
            Tier::Dedicated
        }
    };
    Serverless { size: size.into(), tier, nodes: 1 }
}

/// Sees to it that the cluster is there and large enough.
pub(super) async fn ensure(
    app: &App,
    caller: &Caller,
    workspace: &Workspace,
    wanted: &Serverless,
) -> Result<(), Refusal> {
    match put(app, workspace, wanted)? {
        Some((put, document)) => app.submit(caller, Command::PutCluster(put), vec![document]).await.map(drop),
        None => Ok(()),
    }
}

/// What makes it so; nothing if it is.
pub(super) fn put(
    app: &App,
    workspace: &Workspace,
    wanted: &Serverless,
) -> Result<Option<(PutCluster, Document)>, Refusal> {
    let name = wanted.cluster(workspace.id);
    let max = app.state().cluster(workspace.id, &name).filter(|c| !c.is_deleting()).map(|c| c.declared.max);
    if max.is_some_and(|max| max >= wanted.nodes) {
        return Ok(None);
    }
    let document = app::document(&ClusterDocument {
        description: Some("Made by Neap for serverless jobs.".into()),
        tags: [(MARK.to_owned(), "true".to_owned())].into(),
        ..ClusterDocument::default()
    })?;
    let put = PutCluster {
        workspace: workspace.id,
        name: name.into(),
        location: None,
        size: Some(wanted.size.as_str().into()),
        tier: Some(wanted.tier.canonical().into()),
        network: None,
        reference: None,
        min: Some(0),
        max: Some(i64::from(wanted.nodes.max(NODES_MAX))),
        idle_ms: Some(IDLE_MS),
        dedicated: None,
        document: document.hash,
        problems: Vec::new(),
    };
    Ok(Some((put, document)))
}

/// Removes the clusters that Neap made and nobody uses any more. True if there are such that may be unused later.
pub(crate) async fn tidy(app: &App, caller: &Caller) -> Result<bool, Refusal> {
    let (state, now) = (app.state(), app.now());
    let mut kept = false;
    for cluster in state.clusters.values().filter(|c| c.name.starts_with("serverless-") && !c.is_deleting()) {
        let document: ClusterDocument = app.document(&cluster.document)?;
        if !document.tags.contains_key(MARK) {
            continue;
        }
        if !is_unused(cluster, now) {
            kept = true;
            continue;
        }
        let reason = "Nobody has used it for a while; Neap made it for serverless jobs.".into();
        app.submit(caller, Command::DeleteCluster { cluster: cluster.id, reason }, Vec::new()).await?;
    }
    Ok(kept)
}

fn is_unused(cluster: &Cluster, now: Millis) -> bool {
    let empty = cluster.nodes.is_empty()
        && cluster.queue.is_empty()
        && cluster.active.is_empty()
        && cluster.waiting.is_empty();
    empty && now.since(cluster.target_since.max(cluster.modified)) >= UNUSED_MS
}
