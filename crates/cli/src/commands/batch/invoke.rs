//! `batch-endpoint invoke`: data in, a job out.

use super::endpoint_path;
use crate::args::{named, whole};
use crate::client::segment;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::transfer::{BLOB_STORE, Datastore, Snapshot};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap batch-endpoint invoke -n scores --input ./images\n  \
                        neap batch-endpoint invoke -n scores --input azureml:irises:1 --input-type uri_file --stream\n  \
                        neap batch-endpoint invoke -n scores --deployment-name v2 \\\n    \
                        --input azureml://datastores/workspaceblobstore/paths/images/ --set mini_batch_size=5")]
pub struct InvokeArgs {
    /// Name of the endpoint
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Deployment [default: the endpoint's default]
    #[arg(long, short = 'd', value_parser = named)]
    deployment_name: Option<String>,
    /// The data: a local path, which is uploaded, a data asset, or a URI
    #[arg(long, value_name = "PATH")]
    input: String,
    /// uri_folder or uri_file
    #[arg(long, value_name = "TYPE", default_value = "uri_folder", value_parser = ["uri_folder", "uri_file", "mltable"])]
    input_type: String,
    /// Name of the job
    #[arg(long, value_parser = named)]
    job_name: Option<String>,
    /// Experiment of the job
    #[arg(long)]
    experiment_name: Option<String>,
    /// Where the predictions go
    #[arg(long, value_name = "URI")]
    output_path: Option<String>,
    /// Files of one mini-batch
    #[arg(long, short = 'm', value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>)]
    mini_batch_size: Option<u64>,
    /// Nodes to run on
    #[arg(long, short = 'c', value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>)]
    instance_count: Option<u64>,
    /// Other settings of the call, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Print the log until the job ends; exit 1 if it fails
    #[arg(long, short = 's')]
    stream: bool,
}

pub async fn run(args: &InvokeArgs, session: &Session) -> Outcome<ExitCode> {
    let endpoint = session.client.get(&endpoint_path(session, &args.name)).await?;
    let scoring = endpoint.pointer("/properties/scoringUri").and_then(Value::as_str).unwrap_or_default();
    if scoring.is_empty() {
        return Err(Failure::failed(format!("the endpoint {} has no address to be called at", args.name)));
    }
    let body = json!({ "properties": properties(args, session).await? });
    let headers: Vec<(&str, &str)> =
        args.deployment_name.iter().map(|name| ("azureml-model-deployment", name.as_str())).collect();
    let answer = session.client.call_with(Method::POST, scoring, &body, &headers).await?.body;
    let name = answer.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if args.stream && !name.is_empty() {
        session.terminal.note(&format!("job {name} is submitted"));
        return crate::commands::job::stream_job(&name, session).await;
    }
    let shown = json!({
        "name": name,
        "status": answer.pointer("/properties/status").cloned().unwrap_or(Value::Null),
        "id": answer.get("id").cloned().unwrap_or(Value::Null),
    });
    session.print(&shown, &[("Name", "name"), ("Status", "status")])?;
    Ok(ExitCode::SUCCESS)
}

async fn properties(args: &InvokeArgs, session: &Session) -> Outcome<Value> {
    let uri = input_uri(args, session).await?;
    let kind = match args.input_type.as_str() {
        "uri_file" => "UriFile",
        "mltable" => "MLTable",
        _ => "UriFolder",
    };
    let mut properties = json!({"inputData": {kind: {"jobInputType": kind, "uri": uri}}});
    if let Some(name) = &args.job_name {
        properties["name"] = name.as_str().into();
    }
    if let Some(name) = &args.experiment_name {
        properties["properties"] = json!({ "experimentName": name });
    }
    if let Some(path) = &args.output_path {
        properties["outputData"] = json!({"score": {"jobOutputType": "UriFolder", "uri": path}});
    }
    if let Some(size) = args.mini_batch_size {
        properties["miniBatchSize"] = size.into();
    }
    if let Some(count) = args.instance_count {
        properties["resources"] = json!({ "instanceCount": count });
    }
    for assignment in &args.set {
        let (path, value) = assignment
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {assignment}: write it as path=value")))?;
        let wire = match path {
            "mini_batch_size" => "miniBatchSize",
            "error_threshold" => "errorThreshold",
            "max_concurrency_per_instance" => "maxConcurrencyPerInstance",
            "output_file_name" => "outputFileName",
            "logging_level" => "loggingLevel",
            "resources.instance_count" | "instance_count" => {
                properties["resources"] = json!({"instanceCount": neap_spec::typed_value(value, false)});
                continue;
            }
            "retry_settings.max_retries" => {
                properties["retrySettings"]["maxRetries"] = neap_spec::typed_value(value, false);
                continue;
            }
            "retry_settings.timeout" => {
                let seconds =
                    value.parse().map_err(|_| Failure::usage("retry_settings.timeout is in seconds"))?;
                properties["retrySettings"]["timeout"] = neap_spec::iso_from_seconds(seconds).into();
                continue;
            }
            other => {
                return Err(Failure::usage(format!("a call has no `{other}`")).hint(
                    "what --set takes: mini_batch_size, error_threshold, max_concurrency_per_instance, \
                     output_file_name, logging_level, instance_count, retry_settings.max_retries, \
                     retry_settings.timeout",
                ));
            }
        };
        properties[wire] = neap_spec::typed_value(value, false);
    }
    Ok(properties)
}

async fn input_uri(args: &InvokeArgs, session: &Session) -> Outcome<String> {
    let input = args.input.as_str();
    if input.contains("://") {
        return Ok(input.to_owned());
    }
    let Some(name) = input.strip_prefix("azureml:") else {
        let store = Datastore::open(BLOB_STORE, session).await?;
        let path = store.upload(&Snapshot::of(Path::new(input))?, session).await?;
        return Ok(format!("azureml://datastores/{BLOB_STORE}/paths/{path}"));
    };
    if name.starts_with('/') {
        return Ok(name.to_owned());
    }
    if let Some((name, "latest")) = name.split_once('@') {
        return crate::preparation::latest(neap_spec::Collection::Data, name, session).await;
    }
    match name.split_once(':') {
        Some((name, version)) => {
            let id = format!("{}/data/{name}/versions/{version}", session.scope.workspace_id());
            // Said here, before a job is made that cannot start.
            session
                .client
                .get(&session.path(&format!("data/{}/versions/{}", segment(name), segment(version))))
                .await?;
            Ok(id)
        }
        None => Err(Failure::usage(format!("{input} names no version"))
            .hint("write azureml:NAME:VERSION or azureml:NAME@latest")),
    }
}
