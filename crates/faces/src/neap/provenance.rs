//! `provenance`: what a job was made of and ran on, as it was then. Told from its document and its tables; what the
//! names stand for today is not looked up.

use axum::response::Response;
use neap_core::documents::{EnvironmentDocument, InputDocument, JobDocument};
use neap_core::job::PROVENANCE;
use neap_core::state::Workspace;
use neap_core::{Millis, NodeId, Refusal};
use neap_ledger::JobRow;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::arm::{find_job, output_uri};
use crate::{reply, story};

pub(crate) fn get(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let row = find_job(app, workspace, name)?;
    let document: JobDocument = app.document(&row.document)?;
    let mut told = told(&row, &document);
    let outputs: Map<String, Value> = document
        .outputs
        .iter()
        .map(|(name, output)| (name.clone(), json!({"uri": output_uri(workspace, output).0})))
        .collect();
    told["outputs"] = Value::Object(outputs);
    if row.is_family {
        let names: Vec<String> = story::members(app, &row)?.into_iter().map(|member| member.name).collect();
        told["members"] = json!(names);
    }
    Ok(reply::ok(&told))
}

fn told(row: &JobRow, document: &JobDocument) -> Value {
    let fact = |key: &str| row.facts.get(&format!("{PROVENANCE}{key}"));
    let sources = &document.sources;
    let node = |id: &NodeId| format!("n-{id}");
    let nodes: Vec<String> = if row.ranks.is_empty() {
        row.node.iter().map(node).collect()
    } else {
        row.ranks.iter().map(node).collect()
    };
    json!({
        "job": row.name,
        "status": row.status.word(),
        "owner": row.owner,
        "attempt": row.attempt,
        "times": {
            "submitted": row.created.rfc3339(),
            "started": row.started.map(Millis::rfc3339),
            "ended": row.ended.map(Millis::rfc3339),
        },
        "component": sources.component,
        "code": document.code.as_ref().map(|_| json!({
            "source": sources.code,
            "hash": sources.code_hash,
            "content": fact("code").map(|text| content(text)),
        })),
        "environment": environment(row, document),
        "inputs": inputs(row, document),
        "cluster": {
            "name": Some(&row.cluster_name).filter(|name| !name.is_empty()),
            "revision": fact("clusterRevision").and_then(|text| text.parse::<u32>().ok()),
        },
        "nodes": nodes,
        "versions": {"neap": sources.release, "agent": fact("agent"), "python": fact("python")},
    })
}

/// What was asked for and what it became: an image's digest, or the key of what the packages were made of.
fn environment(row: &JobRow, document: &JobDocument) -> Value {
    let (image, packages) = match &document.environment {
        EnvironmentDocument::Image { image, packages } => (Some(image.as_str()), packages.as_deref()),
        EnvironmentDocument::Packages { packages } => (None, Some(packages.as_str())),
        EnvironmentDocument::Nothing | EnvironmentDocument::Build { .. } => (None, None),
    };
    let fact = |key: &str| row.facts.get(&format!("neap.{key}"));
    json!({
        "source": document.sources.environment,
        "image": image,
        "packages": packages,
        "ran_in": fact("environment"),
        "digest": fact("environmentDigest").or_else(|| fact("environmentKey")),
        "differences": fact("environmentDifferences"),
    })
}

fn inputs(row: &JobRow, document: &JobDocument) -> Map<String, Value> {
    let tell = |(name, input): (&String, &InputDocument)| {
        let source = document.sources.inputs.get(name);
        let told = match input {
            InputDocument::Literal { value } if source.is_none() => json!({"value": value}),
            InputDocument::Literal { .. } => json!({"source": source}),
            InputDocument::File { .. } | InputDocument::Folder { .. } | InputDocument::Any { .. } => {
                let fetched = row.facts.get(&format!("{PROVENANCE}input.{name}"));
                json!({"source": source, "content": fetched.map(|text| content(text))})
            }
        };
        (name.clone(), told)
    };
    document.inputs.iter().map(tell).collect()
}

/// `DIGEST FILES BYTES`, as a node tells what it fetched.
fn content(text: &str) -> Value {
    let mut words = text.split(' ');
    let (digest, files, bytes) = (words.next(), words.next(), words.next());
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
    json!({"digest": digest, "files": number(files), "bytes": number(bytes)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_fetched() {
        assert_eq!(content("ab12 3 40"), json!({"digest": "ab12", "files": 3, "bytes": 40}));
        assert_eq!(content("ab12"), json!({"digest": "ab12", "files": null, "bytes": null}));
    }
}
