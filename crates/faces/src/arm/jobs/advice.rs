//! Good practice that a job does not follow, said when it is submitted. Nothing is refused for it.

use neap_core::JobId;
use neap_core::cluster::{Cluster, Tier};
use neap_core::documents::JobDocument;
use neap_core::job::Job;
use neap_core::mix;
use neap_core::state::{State, Workspace};
use serde_json::Value;

use crate::app::App;
use crate::arm::paths;

/// Of a pipeline so many steps are looked at, and so many named.
const STEPS_LOOKED_AT: usize = 200;
const STEPS_NAMED: usize = 3;

/// Jobs that can lose their nodes and seem to save nothing. A program may do so without its definition telling; then
/// there is nothing to do.
pub(super) fn unsaved(app: &App, workspace: &Workspace, name: &str, body: &Value) -> Option<String> {
    let state = app.state();
    let id = state.job_named(workspace.id, name)?;
    if let Some(trial) = body["properties"].get("trial").filter(|trial| trial.is_object()) {
        let compute = body["properties"]["computeId"].as_str().unwrap_or_default();
        let cluster = paths::reference(compute, "computes", workspace)
            .and_then(|reference| state.cluster(workspace.id, &reference.name).cloned())?;
        let low = mix::maximums(&cluster, cluster.declared).1 > 0 && cluster.shape.tier == Tier::LowPriority;
        let outputs = body["properties"]["outputs"].as_object().is_some_and(|outputs| !outputs.is_empty());
        return (low && !mentions(trial) && !outputs).then(|| sentence("Its trials run"));
    }
    if let Some(job) = state.jobs.get(&id) {
        return (can_lose_its_node(&state, job) && saves_nothing(app, job)).then(|| sentence("It runs"));
    }
    let steps = members(&state, id);
    let lost: Vec<_> = steps
        .iter()
        .filter(|job| can_lose_its_node(&state, job) && saves_nothing(app, job))
        .map(|job| format!("'{}'", job.name))
        .collect();
    let more = lost.len().saturating_sub(STEPS_NAMED);
    let named = lost.iter().take(STEPS_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match (lost.len(), more) {
        (0, _) => None,
        (1, _) => Some(sentence(&format!("Step {named} runs"))),
        (_, 0) => Some(sentence(&format!("Steps {named} run"))),
        (_, _) => Some(sentence(&format!("Steps {named} and {more} more run"))),
    }
}

fn sentence(who: &str) -> String {
    format!(
        "{who} on low-priority nodes, which can be taken back at any time, and neither a checkpoint folder nor an output is in the \
         definition: what is not in the folder that AZUREML_CHECKPOINT_DIR names, or in an output, is done again \
         (docs/low-priority.md)."
    )
}

/// The jobs of a pipeline, those of pipelines within it among them.
fn members(state: &State, family: JobId) -> Vec<&Job> {
    let within = |job: &&Job| {
        let mut around = job.family;
        while let Some(id) = around {
            if id == family {
                return true;
            }
            around = state.family_of(id);
        }
        false
    };
    // Its members have the ids after its own.
    state.jobs.range(family..).take(STEPS_LOOKED_AT).map(|(_, job)| &**job).filter(within).collect()
}

fn can_lose_its_node(state: &State, job: &Job) -> bool {
    let Some(cluster) = state.clusters.get(&job.cluster) else { return false };
    let of_low = |part: &Cluster| part.shape.tier == Tier::LowPriority;
    mix::parts_for(cluster, job)
        .iter()
        .any(|(_, part)| of_low(part) && (part.declared.max > 0 || cluster.mix.is_none()))
}

fn saves_nothing(app: &App, job: &Job) -> bool {
    app.document::<JobDocument>(&job.document)
        .is_ok_and(|document| document.outputs.is_empty() && !mentions(&document.asked))
}

/// Whether the command or a variable tells of the checkpoint folder.
fn mentions(definition: &Value) -> bool {
    let names_it = |text: &str| text.to_ascii_uppercase().contains("CHECKPOINT");
    let variables = definition["environmentVariables"].as_object();
    definition["command"].as_str().is_some_and(names_it)
        || variables
            .into_iter()
            .flatten()
            .any(|(key, value)| names_it(key) || value.as_str().is_some_and(names_it))
}
