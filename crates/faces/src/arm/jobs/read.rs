//! From a job's PUT body to its definition, with every problem at once. What is taken but has no effect is said in
//! the log's first lines, never dropped in silence.

use std::sync::Arc;

use neap_core::documents::{ContainerDocument, JobDocument};
use neap_core::job::{Need, Retry};
use neap_core::mix::TierChoice;
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use serde_json::{Map, Value};

use super::references::{self, Shelf};
use super::serverless::{self, Serverless};
use super::{
    compare, container, distribution, instance, need, ports, retry, secrets, services, sources, tier,
};
use crate::arm::errors::bad;
use crate::arm::paths;
use crate::durations;
use crate::fields::Fields;

/// Between low (1) and high (3).
const DEFAULT_PRIORITY: u8 = 2;
/// Job fields that are known: anything else is told to have no effect.
const KNOWN: &[&str] = &[
    "jobType",
    "displayName",
    "description",
    "experimentName",
    "command",
    "codeId",
    "environmentId",
    "computeId",
    "inputs",
    "outputs",
    "distribution",
    "resources",
    "limits",
    "queueSettings",
    "identity",
    "services",
    "environmentVariables",
    "tags",
    "properties",
    "isArchived",
    "status",
    "componentId",
    "parentJobName",
    "parameters",
    "notificationSetting",
    "autologgerSettings",
    "secretsConfiguration",
    "error",
];

#[derive(Debug)]
pub(super) struct AskedJob {
    pub cluster: String,
    /// The cluster is one that Neap makes.
    pub serverless: Option<Serverless>,
    pub priority: u8,
    pub need: Need,
    pub nodes: u32,
    pub timeout_ms: Option<u64>,
    pub retry: Option<Arc<Retry>>,
    pub tier: TierChoice,
    pub document: JobDocument,
    pub problems: Vec<Problem>,
}

/// `name` is the job's, for the default places of its outputs.
pub(super) fn read(
    name: &str,
    body: &Value,
    workspace: &Workspace,
    shelf: &dyn Shelf,
) -> Result<AskedJob, Refusal> {
    let mut problems = Vec::new();
    let body = &*instance::filled(body, workspace, shelf, &mut problems)?;
    let top = Fields::of(Some(body), "", &mut problems);
    let fields = top.object("properties", &mut problems);
    if let Some(refusal) = other_type(&fields, &mut problems) {
        return Err(refusal);
    }
    let mut document = JobDocument {
        experiment: fields.text("experimentName", &mut problems).unwrap_or("Default").into(),
        asked: compare::definition(body.get("properties").and_then(Value::as_object).unwrap_or(&Map::new())),
        ..JobDocument::default()
    };
    let mut notes = Vec::new();

    document.command = fields.text("command", &mut problems).unwrap_or_default().into();
    if document.command.trim().is_empty() {
        problems.push(bad("A command job needs a 'command'.", "properties.command"));
    }
    let (cluster, mut serverless) = read_compute(&fields, workspace, &mut problems);
    if let Some(id) = fields.text("codeId", &mut problems).filter(|id| !id.is_empty()) {
        document.code = references::code(shelf, workspace, id, &mut problems)?;
    }
    match fields.text("environmentId", &mut problems).filter(|id| !id.is_empty()) {
        Some(id) => {
            let environment = references::environment(shelf, workspace, id, &mut problems)?;
            document.environment = environment.definition;
            notes.extend(environment.notes);
        }
        None => problems.push(bad("A command job needs an 'environmentId'.", "properties.environmentId")),
    }
    document.environment_variables =
        fields.strings("environmentVariables", &mut problems).unwrap_or_default();
    secrets::check(&document.environment_variables, shelf, &mut problems)?;
    ports::read_inputs(&fields, workspace, shelf, &mut document.inputs, &mut problems)?;
    ports::read_outputs(name, &fields, workspace, shelf, &mut document.outputs, &mut problems)?;
    check_bindings(&document, &mut problems);

    let (need, retry, dedicated_after) =
        read_resources(&fields, serverless.is_some(), &mut document.container, &mut notes, &mut problems);
    document.disk_mb = read_disk(&fields, &mut problems);
    let nodes = distribution::nodes(&fields.object("resources", &mut Vec::new()), &mut problems);
    if let Some(wanted) = &mut serverless {
        wanted.nodes = nodes;
    }
    document.distribution = distribution::read(&fields, nodes, &mut problems);
    document.services = services::read(&fields, nodes, &mut notes, &mut problems);
    let timeout_ms = read_timeout(&fields, &mut problems);
    let priority = read_priority(&fields, &mut problems);
    let tier = TierChoice { only: tier::read(&fields, serverless.is_some(), &mut problems), dedicated_after };
    read_without_effect(&fields, &mut document.container, &mut notes, &mut problems);
    document.container.required |= shelf.containers_only(&cluster)?;
    problems.extend(container::check(&document.container, &document.environment, shelf.environments()));
    document.sources = sources::read(shelf, workspace, &body["properties"])?;
    notes.extend(shelf.apart(&cluster, &document)?);
    document.preamble = notes;
    Ok(AskedJob { cluster, serverless, priority, need, nodes, timeout_ms, retry, tier, document, problems })
}

fn other_type(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Option<Refusal> {
    let kind = fields.text("jobType", problems).unwrap_or("");
    let sentence = match kind.to_ascii_lowercase().as_str() {
        "command" => return None,
        "" => "'properties.jobType' is missing; Neap runs jobs of type 'Command'.".to_owned(),
        "automl" | "finetuning" | "distillation" | "labeling" => {
            format!("'{kind}' jobs are not part of Neap; submit your training script as a command job.")
        }
        "spark" => "Spark jobs are not part of Neap; submit a command job.".into(),
        _ => format!("The job type '{kind}' is not known; Neap runs jobs of type 'Command'."),
    };
    let code = if kind.is_empty() { Code::BadArgument } else { Code::NotSupported };
    Some(Problem::new(code, sentence).at("properties.jobType").into())
}

/// The cluster that is named, or that a job without one runs on.
fn read_compute(
    fields: &Fields<'_>,
    workspace: &Workspace,
    problems: &mut Vec<Problem>,
) -> (String, Option<Serverless>) {
    let place = "properties.computeId";
    let serverless = |problems: &mut Vec<Problem>| {
        let wanted = serverless::read(fields, problems);
        (wanted.cluster(workspace.id), Some(wanted))
    };
    let Some(id) = fields.text("computeId", problems).filter(|id| !id.is_empty()) else {
        return serverless(problems);
    };
    match paths::reference(id, "computes", workspace) {
        Some(reference) if reference.name.eq_ignore_ascii_case("serverless") => serverless(problems),
        Some(reference) if reference.here => (reference.name, None),
        Some(_) => {
            problems.push(
                Problem::new(
                    Code::ComputeNotFound,
                    format!("'{id}' is in another workspace; a job runs on a cluster of its own."),
                )
                .at(place),
            );
            (String::new(), None)
        }
        None => {
            problems.push(
                Problem::new(Code::ComputeNotFound, format!("'{id}' is not the id of a compute cluster."))
                    .at(place),
            );
            (String::new(), None)
        }
    }
}

/// `${{inputs.x}}` and `${{outputs.y}}` must exist; those inside `$[[ ]]` are optional.
fn check_bindings(document: &JobDocument, problems: &mut Vec<Problem>) {
    let mut command = document.command.as_str();
    let mut required = String::new();
    while let Some((before, rest)) = command.split_once("$[[") {
        required += before;
        command = rest.split_once("]]").map_or("", |(_, after)| after);
    }
    required += command;
    for part in required.split("${{").skip(1) {
        let Some((inside, _)) = part.split_once("}}") else { continue };
        let inside = inside.trim();
        let known = match inside.split_once('.') {
            Some(("inputs", name)) => document.asked["inputs"].get(name).is_some(),
            Some(("outputs", name)) => document.asked["outputs"].get(name).is_some(),
            _ => false,
        };
        if !known {
            problems.push(bad(
                format!("The command uses '${{{{{inside}}}}}', which the job does not define."),
                "properties.command",
            ));
        }
    }
}

fn read_resources(
    fields: &Fields<'_>,
    serverless: bool,
    container: &mut ContainerDocument,
    notes: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> (Need, Option<Arc<Retry>>, Option<u32>) {
    let resources = fields.object("resources", problems);
    *container = container::read(&resources, notes, problems);
    for key in ["instanceType", "maxInstanceCount", "locations"] {
        if resources.value(key).is_some() && !(serverless && key == "instanceType") {
            notes.push(format!("resources.{key} has no effect: the job runs on a node of its cluster."));
        }
    }
    let properties = resources.object("properties", problems);
    if properties.value("IsLocal").is_some() {
        problems.push(
            Problem::new(
                Code::NotSupported,
                "compute: local is not supported; name a compute cluster of this workspace.",
            )
            .at(properties.place("IsLocal")),
        );
    }
    let Some(asked) = properties.value("neap") else { return (Need::Whole, None, None) };
    let asked = need::plain(asked);
    container.required =
        container::isolation(asked.get("isolation"), &properties.place("neap.isolation"), problems);
    let dedicated_after =
        retry::dedicated_after(asked.get("retry"), &properties.place("neap.retry"), problems);
    let retry = retry::read(asked.get("retry"), &properties.place("neap.retry"), problems);
    (need::read(&asked, &properties.place("neap"), problems), retry.map(Arc::new), dedicated_after)
}

fn read_disk(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Option<u64> {
    // What is wrong with the objects around it is told where shares are read.
    let mut told = Vec::new();
    let properties = fields.object("resources", &mut told).object("properties", &mut told);
    need::disk_mb(properties.value("neap")?, &properties.place("neap"), problems)
}

fn read_timeout(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Option<u64> {
    let limits = fields.object("limits", problems);
    let text = limits.text("timeout", problems)?;
    let place = limits.place("timeout");
    match durations::parse_ms(text).map(u64::try_from) {
        Ok(Ok(ms)) if ms > 0 => Some(ms),
        Ok(_) => {
            problems.push(bad(format!("The timeout '{text}' must be longer than nothing."), &place));
            None
        }
        Err(why) => {
            problems.push(bad(format!("{why}."), &place));
            None
        }
    }
}

fn read_priority(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> u8 {
    let queue = fields.object("queueSettings", problems);
    let Some(asked) = queue.value("priority") else { return DEFAULT_PRIORITY };
    let read = match asked {
        Value::String(word) => match word.to_ascii_lowercase().as_str() {
            "low" => Some(1),
            "medium" => Some(2),
            "high" => Some(3),
            _ => None,
        },
        number => number.as_u64().filter(|n| (1..=3).contains(n)).and_then(|n| u8::try_from(n).ok()),
    };
    read.unwrap_or_else(|| {
        problems.push(bad(
            format!("The priority {asked} is not known: 1 (low), 2 (medium) or 3 (high)."),
            &queue.place("priority"),
        ));
        DEFAULT_PRIORITY
    })
}

/// As whom a job acts. Its own token is always there; of the others it is said what they do not do here.
fn read_identity(fields: &Fields<'_>, notes: &mut Vec<String>, problems: &mut Vec<Problem>) {
    let Some(identity) = fields.value("identity").filter(|identity| identity.is_object()) else { return };
    let kind = ["identityType", "type"].iter().find_map(|key| identity[*key].as_str()).unwrap_or_default();
    match kind.to_ascii_lowercase().replace('_', "").as_str() {
        // The token in AZUREML_RUN_TOKEN, which lasts as long as the attempt.
        "amltoken" => {}
        "useridentity" | "user" => notes.push(
            "identity: user_identity: the job does not act as its submitter. It has its own token (AZUREML_RUN_TOKEN) for this server, and data is fetched with the datastores' credentials.".into(),
        ),
        "managed" | "managedidentity" => notes.push(
            "identity: managed: nodes hand out no tokens of a managed identity yet. The job has its own token (AZUREML_RUN_TOKEN) for this server, and data is fetched with the datastores' credentials.".into(),
        ),
        _ => problems.push(bad(
            format!("The identity '{kind}' is not known: user_identity, managed and aml_token are."),
            "properties.identity",
        )),
    }
}

/// Everything else that a job may carry: refused where it would change the result, said in the log where not.
fn read_without_effect(
    fields: &Fields<'_>,
    container: &mut ContainerDocument,
    notes: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) {
    let mut refuse = |key: &str, sentence: &str| {
        if fields.value(key).is_some_and(|value| value.as_object().is_none_or(|map| !map.is_empty())) {
            problems.push(Problem::new(Code::NotSupported, sentence).at(fields.place(key)));
        }
    };
    refuse("parentJobName", "Child jobs are not supported yet.");
    refuse(
        "secretsConfiguration",
        "Secrets of a key vault are not supported: there is none here. Create them with 'neap secret create' and give them as environment variables: ${{secrets.NAME}}; or give data through a datastore with credentials.",
    );
    read_identity(fields, notes, problems);
    for (key, sentence) in [
        ("notificationSetting", "Notifications are not sent yet."),
        ("autologgerSettings", "Automatic MLflow logging is not switched on by the server."),
    ] {
        if fields
            .value(key)
            .is_some_and(|value| value.as_object().is_none_or(|map| map.values().any(|v| !v.is_null())))
        {
            notes.push(sentence.into());
        }
    }
    for (key, _) in fields.entries().filter(|(key, _)| !KNOWN.contains(&key.as_str())) {
        notes.push(format!("'{key}' of the request is not known here and has no effect."));
    }
    let properties = fields.object("properties", problems);
    container.required |= container::isolation(
        properties.value("neap.isolation"),
        &properties.place("neap.isolation"),
        problems,
    );
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
