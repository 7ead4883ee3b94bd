//! The flags of `compute create` and `compute update`, and the definition that they make of a file or of a cluster.

use crate::args::{flag_value, named, whole};
use crate::failure::{Failure, Outcome};
use crate::terminal::Terminal;
use clap::Args;
use neap_spec::Document;
use serde_json::{Map, Value, json};
use std::io::BufRead;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap compute create -f cluster.yml\n  \
                  neap compute create -n cpu -t amlcompute --size Standard_DS3_v2 --max-instances 4\n  \
                  neap compute create -f cluster.yml -n other --set idle_time_before_scale_down=0")]
pub struct CreateArgs {
    /// YAML file with the specification
    #[arg(long, short = 'f', value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Name of the cluster (required without a file)
    #[arg(long, short = 'n', value_parser = named)]
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
    pub scale: ScaleArgs,
    // For compute instances; read, so that the type is what is refused.
    #[arg(long, hide = true)]
    user_object_id: Option<String>,
    #[arg(long, hide = true)]
    user_tenant_id: Option<String>,
}

/// What Azure keeps for ever, and `neap compute update` replaces nodes for.
#[derive(Debug, Args)]
pub struct NodeArgs {
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
    pub fn apply(&self, document: &mut Document) -> Outcome<()> {
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
    /// Fewest nodes [at creation: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
    min_instances: Option<i64>,
    /// Most nodes [at creation: 4]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
    max_instances: Option<i64>,
    /// Dedicated nodes of a low_priority cluster: first to come, last to go [at creation: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
    dedicated_instances: Option<i64>,
    /// How long a node stays idle before it goes; 0 is at once [at creation: 120]
    #[arg(long, short = 'd', value_name = "SECONDS", allow_negative_numbers = true, value_parser = whole::<i64>)]
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
    pub no_wait: bool,
    /// Show what would change, which nodes would come or go, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap compute update -n cpu --max-instances 8\n  \
                  neap compute update -n cpu --min-instances 0 -d 0\n  \
                  neap compute update -n cpu --set description=\"night runs\" tags.team=vision\n  \
                  neap compute update -n cpu --size Standard_DS4_v2 --dry-run")]
pub struct UpdateArgs {
    /// Name of the cluster
    #[arg(long, short = 'n', value_parser = named)]
    pub name: String,
    #[command(flatten)]
    pub scale: ScaleArgs,
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Do not ask before nodes are replaced
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Remove a property, by path
    #[arg(long, num_args = 1.., value_name = "PATH")]
    pub remove: Vec<String>,
    /// Take the values of --set as text
    #[arg(long)]
    pub force_string: bool,
    // Lists to add to do not occur in a cluster's changeable properties.
    #[arg(long, num_args = 1.., hide = true)]
    pub add: Vec<String>,
}

pub fn specification(args: &CreateArgs, terminal: &Terminal) -> Outcome<Document> {
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
    pub fn apply(&self, document: &mut Document, force_string: bool) -> Outcome<()> {
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
