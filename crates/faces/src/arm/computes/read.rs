//! From a PUT or PATCH body to what a cluster should be, with every problem that only the face can see: shapes of
//! fields, settings Neap does not have, and changes of what may not change and the core does not know of.

use neap_core::cluster::{Cluster, Tier};
use neap_core::documents::ClusterDocument;
use neap_core::{Code, Problem, names};
use serde_json::Value;

use super::super::errors::bad;
use super::identity;
use crate::durations;
use crate::fields::{Fields, check_tags};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The whole resource.
    Put,
    /// Only what is to change.
    Patch,
    /// The whole resource; what Azure keeps for ever may change, too.
    Remake,
}

/// What was asked for. `None` means "as it is, or the default".
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asked {
    pub location: Option<String>,
    pub size: Option<String>,
    pub tier: Option<String>,
    pub min: Option<i64>,
    pub max: Option<i64>,
    pub idle_ms: Option<i64>,
    /// Neap's own: how many nodes of a low-priority cluster are dedicated.
    pub dedicated: Option<i64>,
    pub document: ClusterDocument,
    /// In the clear, only until it is hashed or compared.
    pub password: Option<String>,
    pub problems: Vec<Problem>,
}

impl Asked {
    /// A GET sent back, or a retry: nothing is recorded for it. What may not change is left for `decide` to judge.
    pub fn changes_nothing(&self, cluster: &Cluster, kept: &ClusterDocument) -> bool {
        let scale = &cluster.declared;
        let same = |asked: Option<i64>, now: u64| asked.is_none_or(|asked| u64::try_from(asked) == Ok(now));
        self.problems.is_empty()
            && self.document == *kept
            && same(self.min, scale.min.into())
            && same(self.max, scale.max.into())
            && same(self.idle_ms, scale.idle_ms)
            && same(self.dedicated, cluster.mix.as_ref().map_or(0, |mix| mix.floor.nodes.into()))
            && self
                .location
                .as_deref()
                .is_none_or(|asked| names::canonical_location(asked) == *cluster.location)
            && self.size.as_deref().is_none_or(|asked| asked.eq_ignore_ascii_case(&cluster.shape.size))
            && self.tier.as_deref().is_none_or(|asked| Tier::parse(asked) == Some(cluster.shape.tier))
            && !cluster.is_deleting()
    }
}

/// `current` is the kept document of a cluster that exists.
pub(super) fn read(body: &Value, current: Option<&ClusterDocument>, form: Form) -> Asked {
    let mut asked = Asked { document: current.cloned().unwrap_or_default(), ..Asked::default() };
    let mut problems = Vec::new();
    let top = Fields::of(Some(body), "", &mut problems);
    let compute = top.object("properties", &mut problems);
    let inner = compute.object("properties", &mut problems);
    // Older clients PATCH {"properties": {"scaleSettings": ..}}.
    let settings = if form == Form::Patch && !inner.is_present() { &compute } else { &inner };

    read_type(&compute, form, &mut problems);
    asked.location = read_location(&top, &compute, &mut problems);
    asked.size = settings.text("vmSize", &mut problems).map(String::from);
    asked.tier = settings.text("vmPriority", &mut problems).map(String::from);
    read_scale(settings, form, &mut asked, &mut problems);
    asked.dedicated = settings.integer("neapDedicatedNodeCount", &mut problems);
    read_unsupported(settings, &mut problems);

    if let Some(tags) = top.strings("tags", &mut problems) {
        check_tags(&tags, "tags", &mut problems);
        asked.document.tags = tags;
    }
    if let Some(description) = compute.text("description", &mut problems) {
        asked.document.description = Some(description.into());
    }
    if let Some(identity) = top.value("identity") {
        asked.document.identity = identity::read(identity, &mut problems);
    }
    // Where nodes are replaced, what is kept for ever is set as if it were new.
    let exists = current.is_some() && form != Form::Remake;
    read_network(settings, exists, &mut asked.document, &mut problems);
    asked.password = read_login(&compute, settings, exists, &mut asked.document, &mut problems);
    if let Some(kept) = current.filter(|_| form == Form::Remake) {
        keep_what_is_the_same(&mut asked.document, kept);
    }
    asked.problems = problems;
    asked
}

/// A default that is spelled out is no change.
fn keep_what_is_the_same(document: &mut ClusterDocument, kept: &ClusterDocument) {
    let open = |document: &ClusterDocument| document.remote_login.as_deref() == Some("Enabled");
    if open(document) == open(kept) || document.remote_login.as_deref() == Some("NotSpecified") {
        document.remote_login.clone_from(&kept.remote_login);
    }
    if document.public_ip.unwrap_or(true) == kept.public_ip.unwrap_or(true) {
        document.public_ip = kept.public_ip;
    }
    let disabled =
        |document: &ClusterDocument| document.local_auth_disabled.unwrap_or(document.admin_user.is_none());
    if disabled(document) == disabled(kept) {
        document.local_auth_disabled = kept.local_auth_disabled;
    }
}

fn read_type(compute: &Fields<'_>, form: Form, problems: &mut Vec<Problem>) {
    let place = compute.place("computeType");
    match compute.text("computeType", problems) {
        Some(kind) if kind.eq_ignore_ascii_case("AmlCompute") => {}
        Some(kind) => problems.push(Problem::new(Code::NotSupported, instead_of(kind)).at(place)),
        None if form == Form::Patch || compute.value("computeType").is_some() => {}
        None => problems
            .push(bad("'properties.computeType' is missing; a compute cluster is 'AmlCompute'.", &place)),
    }
}

/// One sentence on what to use instead of another type of compute.
fn instead_of(kind: &str) -> String {
    match kind.to_ascii_lowercase().as_str() {
        "computeinstance" => "Compute instances (notebook machines) are not part of Neap; use a compute cluster (AmlCompute) with min_instances 1 for a node that stays.".into(),
        "kubernetes" | "aks" => "Attached Kubernetes clusters are not supported yet; use a compute cluster (AmlCompute).".into(),
        "virtualmachine" | "hdinsight" | "databricks" | "datafactory" | "datalakeanalytics" | "synapsespark" => {
            format!("Attached computes ('{kind}') are not supported; use a compute cluster (AmlCompute) on the machine where Neap runs.")
        }
        _ => format!("The compute type '{kind}' is not known; Neap has compute clusters (AmlCompute)."),
    }
}

fn read_location(top: &Fields<'_>, compute: &Fields<'_>, problems: &mut Vec<Problem>) -> Option<String> {
    let outer = top.text("location", problems).filter(|text| !text.trim().is_empty());
    let inner = compute.text("computeLocation", problems).filter(|text| !text.trim().is_empty());
    if let (Some(outer), Some(inner)) = (outer, inner)
        && neap_core::names::canonical_location(outer) != neap_core::names::canonical_location(inner)
    {
        problems.push(bad(
            format!("'location' is '{outer}' and 'properties.computeLocation' is '{inner}'; a cluster is in one location."),
            "properties.computeLocation",
        ));
    }
    outer.or(inner).map(String::from)
}

fn read_scale(settings: &Fields<'_>, form: Form, asked: &mut Asked, problems: &mut Vec<Problem>) {
    let scale = settings.object("scaleSettings", problems);
    asked.min = scale.integer("minNodeCount", problems);
    asked.max = scale.integer("maxNodeCount", problems);
    let key = "nodeIdleTimeBeforeScaleDown";
    asked.idle_ms = match scale.text(key, problems) {
        Some(text) => match durations::parse_ms(text) {
            Ok(ms) => Some(ms),
            Err(why) => {
                problems
                    .push(Problem::new(Code::InvalidScaleSettings, format!("{why}.")).at(scale.place(key)));
                None
            }
        },
        // A whole resource without an idle time means the default.
        None if form == Form::Put && scale.is_present() && scale.value(key).is_none() => {
            Some(DEFAULT_IDLE_MS)
        }
        None => None,
    };
}

const DEFAULT_IDLE_MS: i64 = 120_000;

fn read_unsupported(settings: &Fields<'_>, problems: &mut Vec<Problem>) {
    if let Some(os) = settings.text("osType", problems)
        && !os.eq_ignore_ascii_case("Linux")
    {
        problems.push(
            Problem::new(Code::NotSupported, format!("Nodes run Linux; 'osType' '{os}' is not supported."))
                .at(settings.place("osType")),
        );
    }
    if settings.value("virtualMachineImage").is_some() {
        problems.push(
            Problem::new(
                Code::NotSupported,
                "A virtual machine image cannot be chosen; give jobs an environment instead.",
            )
            .at(settings.place("virtualMachineImage")),
        );
    }
    if settings.flag("isolatedNetwork", problems) == Some(true) {
        problems.push(
            Problem::new(
                Code::NotSupported,
                "An isolated network is not supported yet; leave 'isolatedNetwork' out.",
            )
            .at(settings.place("isolatedNetwork")),
        );
    }
}

fn changed(what: &str, from: &str, to: &str, place: String) -> Problem {
    Problem::new(
        Code::PropertyChangeNotAllowed,
        format!("{what} cannot be changed after creation: it is {from}, and {to} was asked for. 'neap compute update' replaces its nodes one by one; or create another cluster."),
    )
    .at(place)
}

fn read_network(
    settings: &Fields<'_>,
    exists: bool,
    document: &mut ClusterDocument,
    problems: &mut Vec<Problem>,
) {
    // An empty object is what one released client sends for "as it is".
    let subnet = settings.object("subnet", problems).text("id", problems).filter(|id| !id.is_empty());
    if let Some(subnet) = subnet {
        match &document.subnet {
            Some(current) if current.eq_ignore_ascii_case(subnet) => {}
            current if exists => {
                let from = current.as_ref().map_or_else(|| String::from("none"), |id| format!("'{id}'"));
                problems.push(changed("The subnet", &from, &format!("'{subnet}'"), settings.place("subnet")));
            }
            _ => document.subnet = Some(subnet.into()),
        }
    }
    if let Some(public) = settings.flag("enableNodePublicIp", problems) {
        let current = document.public_ip.unwrap_or(true);
        if exists && current != public {
            problems.push(changed(
                "The public IP of nodes",
                on_off(current),
                on_off(public),
                settings.place("enableNodePublicIp"),
            ));
        } else {
            document.public_ip = Some(public);
        }
    }
}

const fn on_off(flag: bool) -> &'static str {
    if flag { "on" } else { "off" }
}

/// SSH settings. Gives a password that was sent, to be hashed (new cluster) or compared (existing one).
fn read_login(
    compute: &Fields<'_>,
    settings: &Fields<'_>,
    exists: bool,
    document: &mut ClusterDocument,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let key = "remoteLoginPortPublicAccess";
    if let Some(word) = settings.text(key, problems) {
        match ["Enabled", "Disabled", "NotSpecified"]
            .into_iter()
            .find(|known| known.eq_ignore_ascii_case(word))
        {
            None => problems.push(bad(
                format!("'{word}' is not a state of the SSH port: Enabled, Disabled or NotSpecified."),
                &settings.place(key),
            )),
            Some(word) => {
                let open = document.remote_login.as_deref() == Some("Enabled");
                if !exists {
                    document.remote_login = Some(word.into());
                } else if word != "NotSpecified" && (word == "Enabled") != open {
                    problems.push(changed(
                        "Public SSH access",
                        on_off(open),
                        on_off(!open),
                        settings.place(key),
                    ));
                } else if word != "NotSpecified" {
                    document.remote_login = Some(word.into());
                }
            }
        }
    }
    let had_login = document.admin_user.is_some();
    if let Some(disabled) = compute.flag("disableLocalAuth", problems) {
        let current = document.local_auth_disabled.unwrap_or(!had_login);
        if exists && current != disabled {
            problems.push(changed(
                "SSH login (disableLocalAuth)",
                &current.to_string(),
                &disabled.to_string(),
                compute.place("disableLocalAuth"),
            ));
        } else {
            document.local_auth_disabled = Some(disabled);
        }
    }
    let login = settings.object("userAccountCredentials", problems);
    for (key, kept, what) in [
        ("adminUserName", &mut document.admin_user, "The SSH user name"),
        ("adminUserSshPublicKey", &mut document.admin_key, "The SSH public key"),
    ] {
        let Some(text) = login.text(key, problems).filter(|text| !text.is_empty()) else { continue };
        match kept {
            Some(current) if current == text => {}
            current if exists => {
                let from = if current.is_some() { "another" } else { "not set" };
                problems.push(changed(what, from, "a different one", login.place(key)));
            }
            _ => *kept = Some(text.into()),
        }
    }
    let password =
        login.text("adminUserPassword", problems).filter(|text| !text.is_empty()).map(String::from);
    if !exists
        && login.is_present()
        && document.admin_user.is_none()
        && (password.is_some() || document.admin_key.is_some())
    {
        problems.push(bad("SSH credentials need an 'adminUserName'.", &login.place("adminUserName")));
    }
    password
}

/// The problem with a password that is not the one the cluster was created with.
pub(super) fn password_changed() -> Problem {
    changed(
        "The SSH password",
        "another or not set",
        "a different one",
        "properties.properties.userAccountCredentials.adminUserPassword".into(),
    )
}

/// What is kept and not in force, as sentences for the user.
pub(super) fn warnings(document: &ClusterDocument) -> Vec<String> {
    let mut out = Vec::new();
    let mut say = |condition: bool, sentence: &str| {
        if condition {
            out.push(sentence.to_owned());
        }
    };
    let ssh = document.admin_user.is_some()
        || document.admin_key.is_some()
        || document.admin_password_hash.is_some()
        || document.remote_login.as_deref() == Some("Enabled");
    say(ssh, "SSH settings are kept but not in force yet: nodes open no SSH port.");
    say(
        document.subnet.is_some(),
        "The subnet is kept but not in force yet: nodes use the network of the machine they run on.",
    );
    say(
        document.public_ip == Some(false),
        "enable_node_public_ip: false is kept but not in force yet: nodes use the network of the machine they run on.",
    );
    say(document.identity.is_some(), "The identity is kept but not in force yet: jobs get no tokens for it.");
    out
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
