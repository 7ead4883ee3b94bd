//! Which steps need not run again: what names a step's work, and the outputs of an earlier job that did the same.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::inputs::Given;
use super::outputs::Output;
use super::scope::flag;

/// An earlier job that did the same work, and where its outputs lie.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier {
    pub job: String,
    pub outputs: BTreeMap<String, String>,
}

/// The name of a step's work, if an earlier job may stand for it: a command whose result depends on nothing that is not
/// written here, and whose outputs may lie anywhere.
pub(super) fn work(
    spec: &Value,
    job: &Value,
    inputs: &BTreeMap<String, Given>,
    outputs: &BTreeMap<String, Output>,
) -> Option<String> {
    let is_deterministic = flag(&spec["is_deterministic"]).unwrap_or(true);
    let lie_anywhere = outputs.values().all(|output| !output.is_explicit);
    (is_deterministic && lie_anywhere).then(|| work_of(&job["properties"], inputs, outputs))
}

/// A digest of everything that a step's result depends on.
fn work_of(job: &Value, inputs: &BTreeMap<String, Given>, outputs: &BTreeMap<String, Output>) -> String {
    use sha2::{Digest, Sha256};
    let identities: BTreeMap<&String, &Value> =
        inputs.iter().map(|(name, given)| (name, &given.identity)).collect();
    let kinds: BTreeMap<&String, &String> =
        outputs.iter().map(|(name, output)| (name, &output.kind)).collect();
    let all = json!({
        "command": job["command"],
        "code": job["codeId"],
        "environment": job["environmentId"],
        "variables": job["environmentVariables"],
        "distribution": job["distribution"],
        "resources": job["resources"],
        "inputs": identities,
        "outputs": kinds,
    });
    let digest = Sha256::digest(all.to_string().as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
