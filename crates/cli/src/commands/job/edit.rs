//! `job update`, `archive` and `restore`: what may change about a job that is submitted.

use super::{get, print};
use crate::args::named;
use crate::client::segment;
use crate::entity;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use clap::Args;
use neap_spec::{remove_path, set_path, typed_value};
use reqwest::Method;
use serde_json::{Value, json};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap job update -n run-7 --set display_name=\"best so far\" tags.keep=yes\n  \
                        neap job update -n run-7 --remove tags.keep"
)]
pub struct UpdateArgs {
    /// Name of the job
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Set display_name, description, tags.KEY or properties.KEY
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Remove a tag or property, by path
    #[arg(long, num_args = 1.., value_name = "PATH")]
    remove: Vec<String>,
    /// Take the values of --set as text
    #[arg(long)]
    force_string: bool,
    #[arg(long, num_args = 1.., hide = true)]
    add: Vec<String>,
    #[arg(long, short = 'e', hide = true)]
    web: bool,
}

const CHANGEABLE: &[&str] = &["display_name", "description", "tags", "properties"];

pub async fn update(args: &UpdateArgs, session: &Session) -> Outcome<()> {
    super::refuse_web(args.web)?;
    if !args.add.is_empty() {
        return Err(Failure::usage("--add is for lists, and a job has none that can change")
            .hint("use --set PATH=VALUE"));
    }
    let resource = get(session, &args.name).await?;
    let mut job = entity::job(&resource);
    for assignment in &args.set {
        let (path, value) = assignment
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {assignment}: write it as path=value")))?;
        changeable(path)?;
        // Tags and properties are text, whatever they look like.
        let text = args.force_string || path.contains('.');
        set_path(&mut job, path, typed_value(value, text))
            .map_err(|message| Failure::usage(format!("--set {path}: {message}")))?;
    }
    for path in &args.remove {
        changeable(path)?;
        if !remove_path(&mut job, path).map_err(Failure::usage)? {
            return Err(Failure::usage(format!("--remove {path}: the job has no such property")));
        }
    }
    let or = |key: &str, default: Value| job.get(key).cloned().unwrap_or(default);
    let body = json!({
        "displayName": or("display_name", Value::Null),
        "description": or("description", Value::Null),
        "tags": or("tags", json!({})),
        "properties": or("properties", json!({})),
    });
    patch(&args.name, &resource, &body, session).await
}

fn changeable(path: &str) -> Outcome<()> {
    let top = path.split(['.', '[']).next().unwrap_or(path);
    if CHANGEABLE.contains(&top) {
        return Ok(());
    }
    Err(Failure::usage(format!("{top} of a submitted job cannot change"))
        .hint(format!("what can: {}", CHANGEABLE.join(", ")))
        .hint("submit another job for another definition"))
}

pub async fn set_archived(name: &str, archived: bool, session: &Session) -> Outcome<()> {
    let resource = get(session, name).await?;
    patch(name, &resource, &json!({ "hidden": archived }), session).await
}

async fn patch(name: &str, resource: &Value, body: &Value, session: &Session) -> Outcome<()> {
    let experiment =
        resource.pointer("/properties/experimentName").and_then(Value::as_str).unwrap_or("Default");
    let path = session.history_path(&format!("experiments/{}/runs/{}", segment(experiment), segment(name)));
    session.client.call(Method::PATCH, &path, Some(body)).await?;
    print(session, &get(session, name).await?)
}
