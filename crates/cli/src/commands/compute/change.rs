//! `compute create` and `compute update`: a file, flags over it, overrides over both; then one PUT.

use super::CLUSTER_COLUMNS;
use crate::args::{Global, flag_value};
use crate::client::segment;
use crate::commands::block_on;
use crate::entity;
use crate::failure::{Failure, Outcome};
use crate::second_look;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::Args;
use neap_spec::{ComputeRequest, Document, Scope, compute_request, mended};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// Stands for the name of a cluster that has none, while the server looks at the rest.
const STAND_IN_NAME: &str = "neap-has-no-name-for-it";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap compute create -f cluster.yml\n  \
                  neap compute create -n cpu -t amlcompute --size Standard_DS3_v2 --max-instances 4\n  \
                  neap compute create -f cluster.yml -n other --set idle_time_before_scale_down=0")]
pub struct CreateArgs {
    /// YAML file with the specification
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Name of the cluster (required without a file)
    #[arg(long, short = 'n')]
    name: Option<String>,
    /// Kind of compute: amlcompute (required without a file)
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    kind: Option<String>,
    /// Size of a node, as `neap compute list-sizes` names it [default: STANDARD_DS3_V2]
    #[arg(long)]
    size: Option<String>,
    /// dedicated or low_priority [default: dedicated]
    #[arg(long)]
    tier: Option<String>,
    /// Region [default: the workspace's]
    #[arg(long, short = 'l')]
    location: Option<String>,
    /// What the cluster is for
    #[arg(long)]
    description: Option<String>,
    /// Whether nodes have a public address [default: true]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_parser = flag_value, value_name = "BOOL")]
    enable_node_public_ip: Option<bool>,
    /// Whether the SSH port is public
    #[arg(long, short = 'p', num_args = 0..=1, default_missing_value = "true", value_parser = flag_value, value_name = "BOOL")]
    ssh_public_access_enabled: Option<bool>,
    /// User name of the administrator on the nodes
    #[arg(long, value_name = "NAME")]
    admin_username: Option<String>,
    /// Password of the administrator; `-` reads it from standard input
    #[arg(long, env = "NEAP_ADMIN_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    admin_password: Option<String>,
    /// Public SSH key of the administrator
    #[arg(long, value_name = "KEY")]
    ssh_key_value: Option<String>,
    /// Virtual network of the nodes
    #[arg(long, value_name = "NAME")]
    vnet_name: Option<String>,
    /// Subnet, by name or full resource id
    #[arg(long)]
    subnet: Option<String>,
    #[command(flatten)]
    scale: ScaleArgs,
    // For compute instances; read, so that the type is what is refused.
    #[arg(long, hide = true)]
    user_object_id: Option<String>,
    #[arg(long, hide = true)]
    user_tenant_id: Option<String>,
}

/// What Azure keeps for ever, and `neap compute update` replaces nodes for.
#[derive(Debug, Args)]
struct NodeArgs {
    /// Size of a node: nodes are replaced one by one
    #[arg(long)]
    size: Option<String>,
    /// dedicated or low_priority: nodes are replaced one by one
    #[arg(long)]
    tier: Option<String>,
    /// Whether nodes have a public address: nodes are replaced one by one
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_parser = flag_value, value_name = "BOOL")]
    enable_node_public_ip: Option<bool>,
    /// Whether the SSH port is public: nodes are replaced one by one
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_parser = flag_value, value_name = "BOOL")]
    ssh_public_access_enabled: Option<bool>,
    /// User name of the administrator on the nodes: nodes are replaced one by one
    #[arg(long, value_name = "NAME")]
    admin_username: Option<String>,
    /// Public SSH key of the administrator: nodes are replaced one by one
    #[arg(long, value_name = "KEY")]
    ssh_key_value: Option<String>,
    /// Subnet, by full resource id: nodes are replaced one by one
    #[arg(long)]
    subnet: Option<String>,
}

impl NodeArgs {
    fn apply(&self, document: &mut Document) -> Outcome<()> {
        for (path, value) in [
            ("size", &self.size),
            ("tier", &self.tier),
            ("ssh_settings.admin_username", &self.admin_username),
            ("ssh_settings.ssh_key_value", &self.ssh_key_value),
            ("network_settings.subnet", &self.subnet),
        ] {
            if let Some(value) = value {
                document.set(path, value.as_str().into())?;
            }
        }
        for (path, value) in [
            ("enable_node_public_ip", self.enable_node_public_ip),
            ("ssh_public_access_enabled", self.ssh_public_access_enabled),
        ] {
            if let Some(value) = value {
                document.set(path, value.into())?;
            }
        }
        Ok(())
    }
}

/// What may be given at creation and changed later.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Fewest nodes [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    min_instances: Option<i64>,
    /// Most nodes [default: 4]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_instances: Option<i64>,
    /// Dedicated nodes of a low_priority cluster: first to come, last to go [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    dedicated_instances: Option<i64>,
    /// How long a node stays idle before it goes; 0 is at once [default: 120]
    #[arg(long, short = 'd', value_name = "SECONDS", allow_negative_numbers = true)]
    idle_time_before_scale_down: Option<i64>,
    /// Tags as key=value, several after one another; "" removes all
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    tags: Option<Vec<String>>,
    /// SystemAssigned or UserAssigned
    #[arg(long, value_name = "TYPE")]
    identity_type: Option<String>,
    /// Resource ids of user-assigned identities, separated by commas; [system] for the system-assigned one
    #[arg(long, short = 'i', value_name = "IDS")]
    user_assigned_identities: Option<String>,
    /// Set any property of the specification, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Return when the request is accepted
    #[arg(long)]
    no_wait: bool,
    /// Show what would change, which nodes would come or go, and do nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap compute update -n cpu --max-instances 8\n  \
                  neap compute update -n cpu --min-instances 0 -d 0\n  \
                  neap compute update -n cpu --set description=\"night runs\" tags.team=vision\n  \
                  neap compute update -n cpu --size Standard_DS4_v2 --dry-run")]
pub struct UpdateArgs {
    /// Name of the cluster
    #[arg(long, short = 'n')]
    name: String,
    #[command(flatten)]
    scale: ScaleArgs,
    #[command(flatten)]
    nodes: NodeArgs,
    /// Do not ask before nodes are replaced
    #[arg(long, short = 'y')]
    yes: bool,
    /// Remove a property, by path
    #[arg(long, num_args = 1.., value_name = "PATH")]
    remove: Vec<String>,
    /// Take the values of --set as text
    #[arg(long)]
    force_string: bool,
    // Lists to add to do not occur in a cluster's changeable properties.
    #[arg(long, num_args = 1.., hide = true)]
    add: Vec<String>,
}

pub fn create(args: &CreateArgs, global: &Global, terminal: &Terminal) -> Outcome<()> {
    let document = specification(args, terminal)?;
    let session = Session::open(global, terminal);
    // What is wrong with the file is said also where no server is.
    if let Err(error) = compute_request(&document, &anywhere()) {
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
        for path in &args.remove {
            match neap_spec::remove_path(&mut document.value, path) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(Failure::usage(format!("--remove {path}: the cluster has no such property")));
                }
                Err(message) => return Err(Failure::usage(format!("--remove {path}: {message}"))),
            }
        }
        args.nodes.apply(&mut document)?;
        args.scale.apply(&mut document, args.force_string)?;
        if document.value["name"].as_str().is_some_and(|name| !name.eq_ignore_ascii_case(&args.name)) {
            return Err(Failure::usage("the name of a cluster cannot be changed")
                .hint("create another cluster under the new name"));
        }
        let request = requested(&document, &session).await?;
        let plan = dry_run(&request, &session, Face::Own).await?;
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

/// A plan in words, one line for each change.
pub fn describe(plan: &Value) -> String {
    let changes = plan["changes"].as_array().cloned().unwrap_or_default();
    if changes.is_empty() {
        return "Nothing would change.".to_owned();
    }
    let mut lines: Vec<String> = changes
        .iter()
        .map(|change| {
            format!(
                "{}: {} -> {}",
                change["field"].as_str().unwrap_or_default(),
                change["from"],
                change["to"]
            )
        })
        .collect();
    lines.push(format!("nodes added at once: {}, let go: {}", plan["nodesAdded"], plan["nodesLetGo"]));
    if plan["roll"].is_object() {
        lines.extend(describe_roll(&plan["roll"]));
    }
    lines.extend(dependents(&plan["dependents"]));
    lines.join("\n")
}

/// Which nodes are replaced, and what that means for quotas and costs.
fn describe_roll(roll: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = |value: &Value| list(value).iter().map(text).collect::<Vec<_>>().join(", ");
    let nodes: Vec<String> = list(&roll["nodes"])
        .iter()
        .map(|node| match named(&node["jobs"]) {
            jobs if jobs.is_empty() => format!("{} ({})", text(&node["node"]), text(&node["state"])),
            jobs => format!("{} (once {jobs} has ended)", text(&node["node"])),
        })
        .collect();
    let mut lines = vec![format!("nodes replaced, one by one: {}", nodes.join(", "))];
    for quota in list(&roll["quotas"]) {
        let limit = quota["limit"].as_u64().map_or_else(String::new, |limit| format!(" of {limit}"));
        lines.push(format!(
            "{} of {}: {} -> {}{limit} cores held",
            text(&quota["name"]),
            text(&quota["of"]),
            quota["held_before"],
            quota["held_after"]
        ));
    }
    let price = |key: &str| text(&roll[key]["node_hour_usd"]);
    lines.push(format!(
        "price of a node, USD an hour: {} -> {}",
        price("price_before"),
        price("price_after")
    ));
    lines
}

/// What hangs on a cluster, one line for each kind.
pub fn dependents(found: &Value) -> Vec<String> {
    let list = |key: &str| found[key].as_array().cloned().unwrap_or_default();
    let names = |key: &str| -> Vec<String> {
        let name =
            |value: &Value| value.as_str().or_else(|| value["name"].as_str()).unwrap_or_default().to_owned();
        list(key).iter().map(name).collect()
    };
    let mut lines = Vec::new();
    let (running, waiting) = (&found["jobs"]["running"], &found["jobs"]["waiting"]);
    if running.as_u64().unwrap_or(0) + waiting.as_u64().unwrap_or(0) > 0 {
        lines.push(format!("jobs on it: {running} running, {waiting} waiting"));
    }
    for (key, words) in [
        ("job_schedules", "schedules that submit jobs to it"),
        ("batch_deployments", "batch deployments on it"),
        ("compute_schedules", "schedules of its minimum and maximum"),
        ("budgets", "budgets on it"),
        ("locks", "locks on it"),
        ("limits", "limits on what somebody may have on it"),
    ] {
        let names = names(key);
        if !names.is_empty() {
            lines.push(format!("{words}: {}", names.join(", ")));
        }
    }
    lines
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

fn specification(args: &CreateArgs, terminal: &Terminal) -> Outcome<Document> {
    let mut document = match &args.file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
            Document::parse(&text).map_err(|error| Failure::from(error).of_file(Some(path)))?
        }
        None => {
            if args.name.is_none() || args.kind.is_none() {
                return Err(Failure::usage("without --file, --name and --type are required")
                    .hint("as in: neap compute create -n cpu -t amlcompute --max-instances 4")
                    .hint("or:    neap compute create -f cluster.yml"));
            }
            Document::from_value(json!({}))
        }
    };
    let flags = [
        ("name", &args.name),
        ("type", &args.kind),
        ("size", &args.size),
        ("tier", &args.tier),
        ("location", &args.location),
        ("description", &args.description),
        ("ssh_settings.admin_username", &args.admin_username),
        ("ssh_settings.ssh_key_value", &args.ssh_key_value),
        ("network_settings.vnet_name", &args.vnet_name),
        ("network_settings.subnet", &args.subnet),
    ];
    for (path, value) in flags {
        if let Some(value) = value {
            document.set(path, value.as_str().into())?;
        }
    }
    for (path, value) in [
        ("enable_node_public_ip", args.enable_node_public_ip),
        ("ssh_public_access_enabled", args.ssh_public_access_enabled),
    ] {
        if let Some(value) = value {
            document.set(path, value.into())?;
        }
    }
    if let Some(password) = password(args, terminal)? {
        document.set("ssh_settings.admin_password", password.into())?;
    }
    args.scale.apply(&mut document, false)?;
    Ok(document)
}

/// The password, from where nobody else can read it if the user chose so.
fn password(args: &CreateArgs, terminal: &Terminal) -> Outcome<Option<String>> {
    let from_environment = std::env::var("NEAP_ADMIN_PASSWORD").ok();
    match &args.admin_password {
        None => Ok(None),
        Some(dash) if dash == "-" => {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map_err(|error| {
                Failure::failed(format!("cannot read the password from standard input: {error}"))
            })?;
            Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
        }
        // The variable belongs to a cluster with SSH; one without a user name does not ask for a password.
        given if *given == from_environment && args.admin_username.is_none() => Ok(None),
        given => {
            if *given != from_environment {
                terminal.warning(
                    "a password given as a flag can be seen in the process list; use --admin-password - or NEAP_ADMIN_PASSWORD",
                );
            }
            Ok(given.clone())
        }
    }
}

impl ScaleArgs {
    fn apply(&self, document: &mut Document, force_string: bool) -> Outcome<()> {
        for (key, value) in [
            ("min_instances", self.min_instances),
            ("max_instances", self.max_instances),
            ("dedicated_instances", self.dedicated_instances),
            ("idle_time_before_scale_down", self.idle_time_before_scale_down),
        ] {
            if let Some(value) = value {
                document.set(key, value.into())?;
            }
        }
        if let Some(tags) = &self.tags {
            document.set("tags", tag_map(tags)?)?;
        }
        self.apply_identity(document)?;
        for assignment in &self.set {
            document.set_assignment(assignment, force_string)?;
        }
        Ok(())
    }

    fn apply_identity(&self, document: &mut Document) -> Outcome<()> {
        let ids: Vec<&str> = self
            .user_assigned_identities
            .iter()
            .flat_map(|ids| ids.split(','))
            .map(str::trim)
            .filter(|id| !id.is_empty())
            .collect();
        let system = ids.contains(&"[system]");
        let users: Vec<Value> =
            ids.iter().filter(|id| **id != "[system]").map(|id| json!({ "resource_id": id })).collect();
        let kind = match self.identity_type.as_deref() {
            Some(kind) => kind,
            None if system => "system_assigned",
            None if !users.is_empty() => "user_assigned",
            None => return Ok(()),
        };
        let mut identity = Map::new();
        identity.insert("type".into(), kind.into());
        if !users.is_empty() {
            identity.insert("user_assigned_identities".into(), users.into());
        }
        Ok(document.set("identity", Value::Object(identity))?)
    }
}

fn tag_map(tags: &[String]) -> Outcome<Value> {
    let mut map = Map::new();
    for tag in tags.iter().filter(|tag| !tag.is_empty()) {
        // As with az, a key alone is a tag with an empty value.
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        if key.is_empty() {
            return Err(Failure::usage(format!("--tags {tag}: a tag is written key=value")));
        }
        map.insert(key.to_owned(), value.into());
    }
    Ok(Value::Object(map))
}

/// A place for checks that do not depend on the place.
fn anywhere() -> Scope {
    Scope { subscription_id: String::new(), resource_group: String::new(), workspace: String::new() }
}
