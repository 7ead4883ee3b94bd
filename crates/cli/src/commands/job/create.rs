//! `job create`: checks the file, does what must be done before, sends the job.

use crate::args::{Global, named};
use crate::client::segment;
use crate::commands::block_on;
use crate::entity;
use crate::failure::{Failure, Outcome};
use crate::names::job_name;
use crate::output::yaml;
use crate::preparation;
use crate::second_look;
use crate::session::Session;
use crate::specification::Specification;
use crate::terminal::Terminal;
use clap::Args;
use neap_spec::{Context, Defaults, Document, Error, Request, job_request};
use reqwest::Method;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap job create -f job.yml\n  neap job create -f pipeline.yml --stream\n  \
                  neap job create -f job.yml -n run-7 --set inputs.epochs=3 compute=azureml:gpu-cluster\n  \
                  neap job create --from run-7 --set inputs.epochs=9\n  \
                  name=$(neap job create -f job.yml --query name -o tsv)"
)]
pub struct CreateArgs {
    /// YAML file with the job
    #[arg(long, short = 'f', value_name = "FILE", required_unless_present = "from")]
    file: Option<PathBuf>,
    /// Submit this job's definition again, under a new name
    #[arg(long, value_name = "JOB", conflicts_with = "file", value_parser = named)]
    from: Option<String>,
    /// Name of the job [default: the file's, else made up]
    #[arg(long, short = 'n', value_parser = named)]
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
    // The file is always checked.
    #[arg(long, hide = true)]
    skip_validation: bool,
    #[arg(long, short = 'e', hide = true)]
    web: bool,
}

pub fn run(args: &CreateArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    super::refuse_web(args.web)?;
    let fallback = job_name()?;
    let build = builder(&fallback);
    let flags = [("name", args.name.clone().map(Value::from))];
    let session = Session::open(global, terminal);
    let from_file = match &args.file {
        Some(file) => {
            let specification = Specification::load(Some(file), &flags, &args.set)?;
            check(&specification, &build, session.as_ref().ok())?;
            Some(specification)
        }
        None => None,
    };
    let session = session?;
    block_on(async {
        let specification = match (from_file, &args.from) {
            (Some(specification), _) => specification,
            (None, Some(job)) => again(job, &flags, &args.set, &session).await?,
            (None, None) => return Err(Failure::usage("give a file with -f, or a job with --from")),
        };
        let resource = submit(&specification, &build, &session).await?;
        if let Some(file) = &args.save_as {
            let text = yaml(&entity::job(&resource))?;
            std::fs::write(file, text).map_err(|error| Failure::file("write", file, &error))?;
        }
        let name = resource.get("name").and_then(Value::as_str).unwrap_or(&fallback).to_owned();
        if args.stream {
            session.terminal.note(&format!("job {name} is submitted"));
            return super::stream::follow(&name, &session).await;
        }
        // Its warnings were told when it was submitted.
        session.print(&entity::job(&resource), super::COLUMNS)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// How a job's request is built: jobs without a name get `fallback`, those without an experiment the folder's name.
pub fn builder(fallback: &str) -> impl Fn(&Document, &Context<'_>) -> Result<Request, Error> {
    let here = std::env::current_dir().unwrap_or_default();
    let experiment =
        here.file_name().map_or_else(|| "Default".into(), |name| name.to_string_lossy().into_owned());
    let name = fallback.to_owned();
    move |document, context| {
        job_request(document, context, &Defaults { name: &name, experiment: &experiment })
    }
}

/// Says all that is wrong with a job's file, and with what the server would make of the rest of it; the first also where no
/// server is.
pub fn check(
    specification: &Specification,
    build: &impl Fn(&Document, &Context<'_>) -> Result<Request, Error>,
    session: Option<&Session>,
) -> Outcome<()> {
    let Err(error) = specification.built(&Specification::nowhere(), build) else { return Ok(()) };
    let mend = |session: &Session, problems| specification.mended(&session.scope, problems, build);
    let ask = async |session: &Session, request: &mut Request| {
        preparation::rehearse(request, session).await?;
        let path = session.own_path(&format!("jobs/{}/plan", segment(&request.name)));
        session.client.call(Method::POST, &path, Some(&request.body)).await.map(drop)
    };
    let file = specification.file();
    block_on(async { Err(second_look::everything(error, file, session, mend, ask).await) })
}

/// The definition that the server keeps of a job, without what only that job has.
async fn again(
    job: &str,
    flags: &[(&str, Option<Value>)],
    set: &[String],
    session: &Session,
) -> Outcome<Specification> {
    let resource = super::get(session, job).await?;
    if resource.get("properties").is_none_or(Value::is_null) {
        return Err(Failure::usage(format!("{job} is a step of a pipeline"))
            .hint("submit the pipeline again, or its step as a job of its own"));
    }
    let mut definition = entity::definition(&resource);
    pin(&mut definition, &super::provenance(session, job).await?);
    Specification::of_value(definition, flags, set)
}

/// Puts the versions in place that labels such as `@latest` stood for when the job was submitted.
fn pin(definition: &mut Value, provenance: &Value) {
    let mut put = |at: &str, source: &str| {
        let Some(source) = provenance.pointer(source).and_then(Value::as_str) else { return };
        if let Some(named) = definition.pointer_mut(at)
            && named.as_str().is_some_and(|text| text.starts_with("azureml:") && text.contains('@'))
        {
            *named = source.into();
        }
    };
    put("/environment", "/environment/source");
    put("/code", "/code/source");
    for name in
        provenance.get("inputs").and_then(Value::as_object).into_iter().flat_map(|inputs| inputs.keys())
    {
        put(&format!("/inputs/{name}/path"), &format!("/inputs/{name}/source"));
    }
}

async fn submit(
    specification: &Specification,
    build: &impl Fn(&Document, &Context<'_>) -> Result<Request, Error>,
    session: &Session,
) -> Outcome<Value> {
    let mut request = specification.plan(&session.scope, build)?;
    preparation::perform(&mut request, session).await?;
    let path = super::path(session, &request.name);
    let job = session.client.call(Method::PUT, &path, Some(&request.body)).await?.body;
    session.warn_of(&job);
    Ok(job)
}

#[cfg(test)]
mod tests {
    use crate::entity;
    use crate::specification::Specification;
    use neap_spec::{Preparation, Scope};
    use serde_json::{Value, json};
    use std::path::Path;

    /// The properties that a specification sends, with every preparation answered as a server would.
    fn sent(specification: &Specification) -> Value {
        let scope = Scope { subscription_id: "S".into(), resource_group: "R".into(), workspace: "W".into() };
        let mut request = specification.plan(&scope, super::builder("made_up")).unwrap();
        let ws = scope.workspace_id();
        for number in 0..request.preparations.len() {
            let answer = match &request.preparations[number] {
                Preparation::Code { .. } => format!("{ws}/codes/c{number}/versions/1"),
                Preparation::Data { .. } => format!("LocalUpload/{number}/d/"),
                Preparation::Context { .. } => "https://127.0.0.1/context".to_owned(),
                Preparation::Latest { collection, name } => {
                    format!("{ws}/{}/{name}/versions/9", collection.plural())
                }
                Preparation::Register(registration) => {
                    format!("{ws}/{}/anonymous/versions/{number}", registration.collection.plural())
                }
            };
            request.fill(number, &answer);
        }
        request.body["properties"].take()
    }

    /// A step that was written in the file names its component when it is shown: only the note of that differs.
    fn without_sources(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let kept = map.iter().filter(|(key, _)| *key != "_source" && *key != "displayName");
                Value::Object(kept.map(|(key, item)| (key.clone(), without_sources(item))).collect())
            }
            Value::Array(list) => Value::Array(list.iter().map(without_sources).collect()),
            other => other.clone(),
        }
    }

    #[test]
    fn a_job_that_is_submitted_again_is_the_same_job() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/yaml");
        let mut tried = 0;
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !["command-", "sweep-", "pipeline-"].iter().any(|kind| name.starts_with(kind)) {
                continue;
            }
            let first = sent(&Specification::load(Some(&entry.path()), &[], &[]).unwrap());
            let resource = json!({"name": "first", "properties": first});
            let again = sent(&Specification::of_value(entity::definition(&resource), &[], &[]).unwrap());
            let text = |value: &Value| serde_json::to_string_pretty(&without_sources(value)).unwrap();
            assert_eq!(sorted(&text(&again)), sorted(&text(&resource["properties"])), "{name}");
            tried += 1;
        }
        assert!(tried > 8, "{tried} files");
    }

    #[test]
    fn what_was_latest_then_is_named_by_its_version() {
        let mut definition = json!({"environment": "azureml:e@latest", "code": "azureml:c:1",
            "inputs": {"d": {"path": "azureml:d@latest"}, "f": {"path": "azureml:f:2"}, "n": "3"}});
        let provenance = json!({"environment": {"source": "azureml:e:7"}, "code": {"source": "azureml:c:1"},
            "inputs": {"d": {"source": "azureml:d:4"}, "f": {"source": "azureml:f:2"}, "n": {"value": "3"}}});
        super::pin(&mut definition, &provenance);
        assert_eq!(
            definition,
            json!({"environment": "azureml:e:7", "code": "azureml:c:1",
            "inputs": {"d": {"path": "azureml:d:4"}, "f": {"path": "azureml:f:2"}, "n": "3"}})
        );
    }

    /// The order of keys does not matter.
    fn sorted(text: &str) -> std::collections::BTreeMap<String, Value> {
        serde_json::from_str(text).unwrap()
    }
}
