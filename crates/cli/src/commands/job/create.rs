//! `job create`: checks the file, uploads what is local, registers the environment, sends the job.

use crate::args::Global;
use crate::client::segment;
use crate::commands::block_on;
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{hex, job_name};
use crate::output::yaml;
use crate::session::Session;
use crate::terminal::Terminal;
use crate::transfer::{BLOB_STORE, Datastore, Snapshot, upload_code};
use clap::Args;
use neap_spec::{
    Document, Environment, EnvironmentRequest, JobRequest, Scope, Submission, UploadKind, job_request,
};
use reqwest::Method;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap job create -f job.yml\n  neap job create -f job.yml --stream\n  \
                  neap job create -f job.yml -n run-7 --set inputs.epochs=3 compute=azureml:gpu-cluster\n  \
                  name=$(neap job create -f job.yml --query name -o tsv)")]
pub struct CreateArgs {
    /// YAML file with the job
    #[arg(long, short = 'f', value_name = "FILE")]
    file: PathBuf,
    /// Name of the job [default: the file's, else made up]
    #[arg(long, short = 'n')]
    name: Option<String>,
    /// Set any property of the specification, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Print the log until the job ends; exit 1 if it fails
    #[arg(long, short = 's')]
    stream: bool,
    /// Write the created job as YAML to this file
    #[arg(long, short = 'a', value_name = "FILE")]
    save_as: Option<PathBuf>,
    // The file is always checked, and there are no pages to open yet.
    #[arg(long, hide = true)]
    skip_validation: bool,
    #[arg(long, short = 'e', hide = true)]
    web: bool,
}

pub fn run(args: &CreateArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let document = document(args)?;
    let fallback = job_name()?;
    let nowhere =
        Scope { subscription_id: String::new(), resource_group: String::new(), workspace: String::new() };
    // What is wrong with the file is said before any server is asked.
    let dry = plan(args, &document, &nowhere, &fallback)?;
    for upload in &dry.uploads {
        if !upload.path.exists() {
            return Err(Failure::usage(format!("{} does not exist", upload.path.display()))
                .hint("relative paths count from the folder of the YAML file"));
        }
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        let resource = submit(args, &document, &fallback, &session).await?;
        let name = resource.get("name").and_then(Value::as_str).unwrap_or(&fallback).to_owned();
        if args.stream {
            session.terminal.note(&format!("job {name} is submitted"));
            return super::stream::follow(&name, &session).await;
        }
        super::print(&session, &resource)?;
        Ok(ExitCode::SUCCESS)
    })
}

fn document(args: &CreateArgs) -> Outcome<Document> {
    let path = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Failure::usage(format!("cannot read {path}: {error}")))?;
    let mut document = Document::parse(&text).map_err(|error| named(&args.file, error))?;
    if let Some(name) = &args.name {
        document.set("name", name.as_str().into())?;
    }
    for assignment in &args.set {
        document.set_assignment(assignment, false)?;
    }
    Ok(document)
}

fn plan(args: &CreateArgs, document: &Document, scope: &Scope, name: &str) -> Outcome<JobRequest> {
    let folder = args.file.parent().unwrap_or(Path::new(""));
    let here = std::env::current_dir().unwrap_or_default();
    let experiment = here.file_name().map_or_else(|| "Default".into(), |name| name.to_string_lossy());
    let submission = Submission { scope, folder, name, experiment: &experiment };
    job_request(document, &submission, &|path| std::fs::read_to_string(path))
        .map_err(|error| named(&args.file, error))
}

fn named(file: &Path, error: neap_spec::Error) -> Failure {
    let mut failure = Failure::from(error);
    failure.message = format!("{}: {}", file.display(), failure.message);
    failure
}

async fn submit(args: &CreateArgs, document: &Document, name: &str, session: &Session) -> Outcome<Value> {
    let mut request = plan(args, document, &session.scope, name)?;
    let mut store = None;
    for upload in std::mem::take(&mut request.uploads) {
        let snapshot = Snapshot::of(&upload.path)?;
        match upload.kind {
            UploadKind::Code => {
                let id = upload_code(&snapshot, session).await?;
                request.set_code(&id);
            }
            UploadKind::Input { name } => {
                if store.is_none() {
                    store = Some(Datastore::open(BLOB_STORE, session).await?);
                }
                if let Some(store) = &store {
                    let path = store.upload(&snapshot, session).await?;
                    request.set_input(&name, &format!("azureml://datastores/{BLOB_STORE}/paths/{path}"));
                }
            }
        }
    }
    match std::mem::replace(&mut request.environment, Environment::Id(String::new())) {
        Environment::Id(_) => {}
        Environment::Latest { name } => {
            let id = latest_environment(&name, session).await?;
            request.set_environment(&id);
        }
        Environment::Register(environment) => {
            let id = register(environment, session).await?;
            request.set_environment(&id);
        }
    }
    let path = super::path(session, &request.name);
    let resource = session.client.call(Method::PUT, &path, Some(&request.body)).await?.body;
    if let Some(file) = &args.save_as {
        let text = yaml(&crate::entity::job(&resource))?;
        std::fs::write(file, text).map_err(|error| Failure::file("write", file, &error))?;
    }
    Ok(resource)
}

async fn latest_environment(name: &str, session: &Session) -> Outcome<String> {
    let path =
        session.path(&format!("environments/{}/versions?$orderBy=createdtime%20desc&$top=1", segment(name)));
    let versions = session.client.list(&path, Some(1)).await?;
    let id = versions.first().and_then(|version| version.get("id")).and_then(Value::as_str);
    id.map(str::to_owned).ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("no environment is registered under the name {name}"))
            .hint("name a version that exists, or give an image inline (environment: {image: ...})")
    })
}

async fn register(mut environment: EnvironmentRequest, session: &Session) -> Outcome<String> {
    if let Some(folder) = &environment.build_context {
        let store = Datastore::open(BLOB_STORE, session).await?;
        let path = store.upload(&Snapshot::of(folder)?, session).await?;
        environment.body["properties"]["build"]["contextUri"] = store.url(&path).into();
    }
    let (name, version) = match (environment.name, environment.version) {
        (None, _) => ("CliV2AnonymousEnvironment".to_owned(), content_hash(&environment.body)),
        (Some(name), Some(version)) => (name, version),
        (Some(name), None) => {
            let container =
                session.client.find(&session.path(&format!("environments/{}", segment(&name)))).await?;
            let next = container
                .as_ref()
                .and_then(|container| container.pointer("/properties/nextVersion")?.as_str())
                .unwrap_or("1")
                .to_owned();
            (name, next)
        }
    };
    let path = session.path(&format!("environments/{}/versions/{}", segment(&name), segment(&version)));
    let answer = session.client.call(Method::PUT, &path, Some(&environment.body)).await?;
    let id = answer.body.get("id").and_then(Value::as_str);
    Ok(id.map_or_else(
        || format!("{}/environments/{name}/versions/{version}", session.scope.workspace_id()),
        str::to_owned,
    ))
}

fn content_hash(body: &Value) -> String {
    hex(&Sha256::digest(body.to_string().as_bytes()))
}
