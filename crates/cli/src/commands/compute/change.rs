//! `compute create` and `compute update`: a file, flags over it, overrides over both; then one PUT.

use super::CLUSTER_COLUMNS;
use super::definition::{CreateArgs, ScaleArgs, UpdateArgs, specification};
use super::describe::describe;
use crate::args::Global;
use crate::client::segment;
use crate::commands::block_on;
use crate::entity;
use crate::failure::{Failure, Outcome};
use crate::second_look;
use crate::session::Session;
use crate::specification::Specification;
use crate::terminal::Terminal;
use neap_spec::{ComputeRequest, Document, compute_request, mended};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;

/// Stands for the name of a cluster that has none, while the server looks at the rest.
const STAND_IN_NAME: &str = "neap-has-no-name-for-it";

pub fn create(args: &CreateArgs, global: &Global, terminal: &Terminal) -> Outcome<()> {
    let document = specification(args, terminal)?;
    let session = Session::open(global, terminal);
    // What is wrong with the file is said also where no server is.
    if let Err(error) = compute_request(&document, &Specification::nowhere()) {
        let (file, session) = (args.file.as_deref(), session.as_ref().ok());
        return block_on(async { Err(all_problems(error, &document, file, session, Face::Arm).await) });
    }
    let session = session?;
    block_on(async {
        let request = compute_request(&document, &session.scope)?;
        if args.scale.dry_run {
            return show_plan(&dry_run(&request, &session, Face::Arm).await?, &session);
        }
        put(&request, &session, Face::Arm, args.scale.no_wait, "creating").await
    })
}

pub fn update(args: &UpdateArgs, global: &Global, terminal: &Terminal) -> Outcome<()> {
    if !args.add.is_empty() {
        return Err(Failure::usage("--add is for lists, and a cluster has none that can change")
            .hint("use --set PATH=VALUE"));
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        let path = session.path(&format!("computes/{}", segment(&args.name)));
        let mut document = Document::from_value(entity::compute(&session.client.get(&path).await?));
        let mut wrong = Vec::new();
        for path in &args.remove {
            match neap_spec::remove_path(&mut document.value, path) {
                Ok(true) => {}
                Ok(false) => wrong.push(format!("--remove {path}: the cluster has no such property")),
                Err(message) => wrong.push(format!("--remove {path}: {message}")),
            }
        }
        args.nodes.apply(&mut document)?;
        args.scale.apply(&mut document, args.force_string)?;
        if document.value["name"].as_str().is_none_or(|name| !name.eq_ignore_ascii_case(&args.name)) {
            wrong.push(
                "the name of a cluster cannot be changed; create another cluster under the new name".into(),
            );
            document.set("name", args.name.as_str().into())?;
        }
        let planned = match requested(&document, &session).await {
            Ok(request) => dry_run(&request, &session, Face::Own).await.map(|plan| (request, plan)),
            Err(failure) => Err(failure),
        };
        if !wrong.is_empty() {
            wrong.extend(planned.err().into_iter().flat_map(Failure::lines));
            return Err(Failure::of_specification(wrong));
        }
        let (request, plan) = planned?;
        if args.scale.dry_run {
            return show_plan(&plan, &session);
        }
        if plan["roll"].is_object() && !args.yes {
            session.terminal.note(&describe(&plan));
            session.terminal.confirm(&format!("Replace the nodes of {} one by one?", args.name))?;
        }
        put(&request, &session, Face::Own, args.scale.no_wait, "updating").await
    })
}

/// A cluster's definition with these changes, as a request.
pub async fn changed(name: &str, scale: &ScaleArgs, session: &Session) -> Outcome<ComputeRequest> {
    let path = session.path(&format!("computes/{}", segment(name)));
    let mut document = Document::from_value(entity::compute(&session.client.get(&path).await?));
    scale.apply(&mut document, false)?;
    requested(&document, session).await
}

/// A changed definition as a request, or all that is wrong with it.
async fn requested(document: &Document, session: &Session) -> Outcome<ComputeRequest> {
    match compute_request(document, &session.scope) {
        Ok(request) => Ok(request),
        Err(error) => Err(all_problems(error, document, None, Some(session), Face::Own).await),
    }
}

/// The face that a definition is put through.
#[derive(Debug, Clone, Copy)]
enum Face {
    /// It refuses what Azure refuses.
    Arm,
    /// Nodes may be replaced.
    Own,
}

impl Face {
    fn path(self, request: &ComputeRequest, session: &Session) -> String {
        let below = format!("computes/{}", segment(&request.name));
        match self {
            Self::Arm => session.path(&below),
            Self::Own => session.own_path(&below),
        }
    }
}

/// What the server says this would do.
async fn dry_run(request: &ComputeRequest, session: &Session, face: Face) -> Outcome<Value> {
    let path = format!("{}?neapDryRun=true", face.path(request, session));
    Ok(session.client.call(Method::PUT, &path, Some(&request.body)).await?.body)
}

/// What is wrong with a definition, and what the server would refuse in the rest of it.
async fn all_problems(
    error: neap_spec::Error,
    document: &Document,
    file: Option<&Path>,
    session: Option<&Session>,
    face: Face,
) -> Failure {
    let mend = |session: &Session, problems| {
        let stand_ins = [("name", STAND_IN_NAME), ("type", "amlcompute")];
        mended(document, problems, &stand_ins, |document| compute_request(document, &session.scope))
    };
    let ask = async |session: &Session, request: &mut ComputeRequest| {
        dry_run(request, session, face).await.map(drop)
    };
    second_look::everything(error, file, session, mend, ask).await
}

fn show_plan(plan: &Value, session: &Session) -> Outcome<()> {
    session.terminal.note(&describe(plan));
    for warning in plan["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        session.terminal.warning(warning);
    }
    let changes = json!({
        "revision": plan["revision"], "changes": plan["changes"], "nodes_added": plan["nodesAdded"],
        "nodes_let_go": plan["nodesLetGo"], "cuts": plan["cuts"], "roll": plan["roll"],
        "dependents": plan["dependents"],
    });
    session.print(
        &changes,
        &[("Revision", "revision"), ("NodesAdded", "nodes_added"), ("NodesLetGo", "nodes_let_go")],
    )
}

/// The cluster with some of its properties set to these.
async fn with_properties(name: &str, properties: &[(&str, Value)], session: &Session) -> Outcome<Document> {
    let path = session.path(&format!("computes/{}", segment(name)));
    let mut document = Document::from_value(entity::compute(&session.client.get(&path).await?));
    for (key, value) in properties {
        document.set(key, value.clone())?;
    }
    Ok(document)
}

pub async fn plan_update(name: &str, properties: &[(&str, Value)], session: &Session) -> Outcome<Value> {
    let request = requested(&with_properties(name, properties, session).await?, session).await?;
    dry_run(&request, session, Face::Own).await
}

pub async fn set_properties(name: &str, properties: &[(&str, Value)], session: &Session) -> Outcome<()> {
    let request = requested(&with_properties(name, properties, session).await?, session).await?;
    put(&request, session, Face::Own, false, "updating").await
}

async fn put(
    request: &ComputeRequest,
    session: &Session,
    face: Face,
    no_wait: bool,
    doing: &str,
) -> Outcome<()> {
    let path = session.path(&format!("computes/{}", segment(&request.name)));
    let spinner = session.terminal.spinner(&format!("{doing} {}", request.name));
    let answer = session.client.call(Method::PUT, &face.path(request, session), Some(&request.body)).await;
    let resource = match answer {
        Ok(answer) if no_wait => Ok(answer.body),
        Ok(answer) => match session.client.wait(&answer).await {
            Ok(()) => session.client.get(&path).await,
            Err(failure) => Err(failure),
        },
        Err(failure) => Err(failure),
    };
    spinner.finish_and_clear();
    let resource = resource?;
    session.warn_of(&resource);
    session.print(&entity::compute(&resource), CLUSTER_COLUMNS)
}
