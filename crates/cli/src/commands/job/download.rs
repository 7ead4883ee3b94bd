//! `job download`: logs and artifacts, and named outputs, into a folder.

use crate::args::named;
use crate::entity::is_final;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use crate::transfer::{ARTIFACT_STORE, BLOB_STORE, Datastore};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  neap job download -n run-7\n  neap job download -n run-7 --all -p results\n  \
                  neap job download -n run-7 --output-name model"
)]
pub struct DownloadArgs {
    /// Name of the job
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Logs, artifacts and every named output
    #[arg(long)]
    all: bool,
    /// Only this named output
    #[arg(long, value_name = "NAME", conflicts_with = "all", value_parser = named)]
    output_name: Option<String>,
    /// Folder to download to
    #[arg(long, short = 'p', value_name = "DIR", default_value = ".")]
    download_path: PathBuf,
}

/// Where the artifacts of a job go, below the chosen folder; those of a sweep beside its best trial's.
const ARTIFACTS: &str = "artifacts";
const SWEEP_ARTIFACTS: &str = "hd-artifacts";

pub async fn run(args: &DownloadArgs, session: &Session) -> Outcome<()> {
    let job = super::get(session, &args.name).await?;
    let is_sweep = job.pointer("/properties/jobType").and_then(Value::as_str) == Some("Sweep");
    let best = job.pointer("/properties/properties/best_child_run_id").and_then(Value::as_str);
    let mut files = 0;
    match best.filter(|_| is_sweep) {
        Some(best) => {
            session.terminal.note(&format!("the best trial is {best}"));
            let trial = super::get(session, best).await?;
            files += fetch(best, &trial, args, ARTIFACTS, session).await?;
            if args.output_name.is_none() {
                let own = DownloadArgs { all: false, ..args.clone() };
                files += fetch(&args.name, &job, &own, SWEEP_ARTIFACTS, session).await?;
            }
        }
        None => files += fetch(&args.name, &job, args, ARTIFACTS, session).await?,
    }
    session.terminal.note(&format!("{files} files downloaded to {}", args.download_path.display()));
    Ok(())
}

/// Downloads what is asked for of one job; gives how many files that were.
async fn fetch(
    name: &str,
    job: &Value,
    args: &DownloadArgs,
    artifacts: &str,
    session: &Session,
) -> Outcome<usize> {
    let status = job.pointer("/properties/status").and_then(Value::as_str).unwrap_or_default();
    if !is_final(status) {
        return Err(Failure::failed(format!(
            "job {name} is {status}; its files can be downloaded when it has ended"
        ))
        .hint(format!("wait for it with: neap job stream -n {name}")));
    }
    let outputs = job.pointer("/properties/outputs").and_then(Value::as_object);
    let declared: Vec<&str> = outputs
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .filter(|name| *name != "default")
        .collect();
    let chosen = match &args.output_name {
        Some(output) => {
            if !declared.contains(&output.as_str()) {
                let failure =
                    Failure::new(Exit::NotFound, format!("job {name} has no output named {output}"));
                return Err(match neap_spec::nearest(output, declared.iter().copied()) {
                    Some(near) => failure.hint(format!("did you mean {near}?")),
                    None if declared.is_empty() => {
                        failure.hint("it declared none; leave --output-name out for its artifacts")
                    }
                    None => failure.hint(format!("its outputs: {}", declared.join(", "))),
                });
            }
            vec![output.as_str()]
        }
        None if args.all => declared,
        None => Vec::new(),
    };
    let mut files = 0;
    if args.output_name.is_none() {
        let store = Datastore::open(ARTIFACT_STORE, session).await?;
        let prefix = format!("ExperimentRun/dcid.{name}/");
        files += store.download(&prefix, &args.download_path.join(artifacts), session).await?;
    }
    let places = if chosen.is_empty() { BTreeMap::new() } else { places(&args.name, session).await? };
    for output in chosen {
        let asked = outputs.and_then(|outputs| outputs.get(output)?.get("uri")?.as_str());
        let place = places.get(output).map(String::as_str).or(asked);
        let (store, prefix) = place
            .and_then(|uri| place_in_store(uri, name, output))
            .unwrap_or_else(|| (BLOB_STORE.to_owned(), format!("azureml/{name}/{output}/")));
        let target = args.download_path.join("named-outputs").join(safe_name(output)?);
        files += Datastore::open(&store, session).await?.download(&prefix, &target, session).await?;
    }
    Ok(files)
}

/// Where the outputs of a job lie, asked as the Azure clients ask it: what a pipeline's steps make for it, and what an
/// earlier job has made, lies under other names than the job's.
async fn places(job: &str, session: &Session) -> Outcome<BTreeMap<String, String>> {
    let workspace = session.workspace_path();
    let path = format!("/history/v1.0{workspace}/rundata");
    let run = session.client.call(Method::POST, &path, Some(&json!({ "runId": job }))).await?.body;
    let outputs = run.pointer("/runMetadata/outputs").and_then(Value::as_object).into_iter().flatten();
    let ids: BTreeMap<&str, &str> = outputs
        .filter_map(|(name, output)| Some((name.as_str(), output.get("assetId")?.as_str()?)))
        .collect();
    let path = format!("/data/v1.0{workspace}/dataversion/batchGetResolvedUris");
    let asked = json!({"values": ids.values().collect::<Vec<_>>()});
    let found = session.client.call(Method::POST, &path, Some(&asked)).await?.body;
    let uri = |id: &str| found.get("values")?.get(id)?.get("uri")?.as_str().map(str::to_owned);
    Ok(ids.into_iter().filter_map(|(name, id)| Some((name.to_owned(), uri(id)?))).collect())
}

/// The datastore of an output that was sent elsewhere, and its path there.
fn place_in_store(uri: &str, job: &str, output: &str) -> Option<(String, String)> {
    let (_, rest) = uri.split_once("datastores/").filter(|(before, _)| before.starts_with("azureml://"))?;
    let (store, path) = rest.split_once("/paths/")?;
    let fill = |text: &str| {
        let words =
            [("${{name}}", job), ("${{output_name}}", output), ("${{default_datastore}}", BLOB_STORE)];
        words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
    };
    Some((fill(store), fill(path)))
}

fn safe_name(output: &str) -> Outcome<&Path> {
    if output.is_empty() || output == ".." || output.contains(['/', '\\', '\0']) {
        return Err(Failure::failed(format!("the output name `{output}` cannot be a folder name")));
    }
    Ok(Path::new(output))
}

#[cfg(test)]
mod tests {
    use super::place_in_store;

    #[test]
    fn outputs_are_found_where_they_were_sent() {
        for (uri, expected) in [
            (
                "azureml://datastores/${{default_datastore}}/paths/out/${{name}}/",
                Some(("workspaceblobstore", "out/j/")),
            ),
            (
                "azureml://subscriptions/s/resourcegroups/r/workspaces/w/datastores/workspaceblobstore/paths/p/",
                Some(("workspaceblobstore", "p/")),
            ),
            ("azureml://datastores/other/paths/p/", Some(("other", "p/"))),
            ("https://example/datastores/p/paths/x", None),
        ] {
            let found = place_in_store(uri, "j", "o");
            let found = found.as_ref().map(|(store, path)| (store.as_str(), path.as_str()));
            assert_eq!(found, expected, "{uri}");
        }
    }
}
