//! `services` of a command job: what is to run beside its command, checked at submission.

use std::collections::BTreeMap;

use neap_core::documents::{RAY_DASHBOARD, ServiceDocument, ServiceKind, ServiceNodes};
use neap_core::{Code, Problem};
use serde_json::{Map, Value};

use crate::arm::errors::bad;
use crate::fields::Fields;
use crate::limits;

/// What the server lists by itself.
const OWN: &[&str] = &["Studio", "Tracking", RAY_DASHBOARD];
/// What only answers carry.
const ANSWERED: &[&str] = &["endpoint", "status", "errorMessage"];
/// What public keys begin with.
const KEY_TYPES: &[&str] = &["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"];

/// Takes away what answers add to the services that were asked for.
pub(super) fn as_asked(services: &mut Map<String, Value>) {
    services.retain(|name, _| !OWN.contains(&name.as_str()));
    for service in services.values_mut().filter_map(Value::as_object_mut) {
        service.retain(|key, value| !ANSWERED.contains(&key.as_str()) && !value.is_null());
    }
}

/// `nodes` is on how many nodes the job runs.
pub(super) fn read(
    fields: &Fields<'_>,
    nodes: u32,
    notes: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, ServiceDocument> {
    let all = fields.object("services", problems);
    let mut services = BTreeMap::new();
    for (name, value) in all.entries().filter(|(name, _)| !OWN.contains(&name.as_str())) {
        let service = Fields::of(Some(value), &all.place(name), problems);
        if !is_name(name) {
            problems.push(bad(
                format!(
                    "'{name}' cannot name a service: letters, digits, '_', '-' and '.', at most {} of them.",
                    limits::SERVICE_NAME_CHARS_MAX
                ),
                &all.place(name),
            ));
        }
        if let Some(read) = read_one(name, &service, nodes, notes, problems) {
            services.insert(name.clone(), read);
        }
    }
    if services.len() > limits::SERVICES_MAX {
        problems.push(Problem::new(
            Code::LimitReached,
            format!("The job has {} services; it may have {}.", services.len(), limits::SERVICES_MAX),
        ));
    }
    services
}

/// It becomes a segment of a path.
fn is_name(name: &str) -> bool {
    (1..=limits::SERVICE_NAME_CHARS_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

fn read_one(
    name: &str,
    service: &Fields<'_>,
    nodes: u32,
    notes: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> Option<ServiceDocument> {
    let port = read_port(service, problems);
    let nodes = read_nodes(service, nodes, problems);
    let properties = service.object("properties", problems);
    let kind = service.text("jobServiceType", problems).unwrap_or("");
    let what = match kind.to_ascii_lowercase().as_str() {
        "ssh" => ServiceKind::Ssh { public_keys: read_keys(name, &properties, problems) },
        "tensorboard" => {
            let log_dir = properties.text("logDir", problems).filter(|dir| !dir.is_empty());
            ServiceKind::TensorBoard { log_dir: log_dir.map(str::to_owned) }
        }
        "jupyterlab" => ServiceKind::JupyterLab,
        "vscode" => ServiceKind::VsCode,
        "custom" => {
            if service.value("port").is_none() {
                problems.push(bad(
                    format!(
                        "The custom service '{name}' needs the 'port' on which the job's command listens."
                    ),
                    &service.place("port"),
                ));
            }
            ServiceKind::Custom
        }
        "studio" | "tracking" => return None,
        _ => {
            problems.push(bad(
                format!(
                    "'{kind}' is not a type of service: SSH, TensorBoard, JupyterLab, VSCode or Custom \
                     (in YAML ssh, tensor_board, jupyter_lab, vs_code, custom)."
                ),
                &service.place("jobServiceType"),
            ));
            return None;
        }
    };
    if port.is_some() && matches!(what, ServiceKind::JupyterLab | ServiceKind::VsCode) {
        notes.push(format!(
            "The port of the service '{name}' has no effect: it listens on a socket that only the job can open."
        ));
    }
    Some(ServiceDocument { what, port, nodes })
}

fn read_port(service: &Fields<'_>, problems: &mut Vec<Problem>) -> Option<u16> {
    let asked = service.integer("port", problems)?;
    let port = u16::try_from(asked).ok().filter(|port| *port > 0);
    if port.is_none() {
        problems
            .push(bad(format!("'port' is {asked}; it must be between 1 and 65535."), &service.place("port")));
    }
    port
}

fn read_nodes(service: &Fields<'_>, nodes: u32, problems: &mut Vec<Problem>) -> ServiceNodes {
    let asked = service.object("nodes", problems);
    if !asked.is_present() {
        return ServiceNodes::Head;
    }
    let kind = asked.text("nodesValueType", problems).unwrap_or("");
    if kind.eq_ignore_ascii_case("All") {
        return ServiceNodes::All;
    }
    let index = asked.integer("nodeIndex", problems);
    match index.map(u32::try_from) {
        Some(Ok(index)) if index < nodes => ServiceNodes::One(index),
        Some(_) => {
            problems.push(bad(
                format!(
                    "The service is asked for on node {}, but the job's nodes are 0 to {}.",
                    index.unwrap_or_default(),
                    nodes - 1
                ),
                &asked.place("nodeIndex"),
            ));
            ServiceNodes::Head
        }
        None => {
            problems.push(bad(
                format!("'{kind}' does not say on which nodes the service is: 'all', or the index of one."),
                &asked.place("nodesValueType"),
            ));
            ServiceNodes::Head
        }
    }
}

/// One key a line, as in an `authorized_keys` file, but without options.
fn read_keys(name: &str, properties: &Fields<'_>, problems: &mut Vec<Problem>) -> Vec<String> {
    let place = properties.place("sshPublicKeys");
    let text = properties.text("sshPublicKeys", problems).unwrap_or("");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        problems.push(bad(
            format!("The service '{name}' needs a public key ('ssh_public_keys'): nobody could log in."),
            &place,
        ));
    }
    for line in &lines {
        let mut words = line.split_whitespace();
        let known = words.next().is_some_and(|word| KEY_TYPES.iter().any(|kind| word.starts_with(kind)));
        let key = words.next().is_some_and(|word| {
            word.chars().all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c)) && word.starts_with("AAAA")
        });
        if !known || !key || line.chars().any(char::is_control) {
            let shown: String = line.chars().take(24).collect();
            problems.push(bad(
                format!(
                    "'{shown}…' is not a public key: one line such as 'ssh-ed25519 AAAA… name', from a file that ends with .pub."
                ),
                &place,
            ));
        }
    }
    lines.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(services: &Value) -> (BTreeMap<String, ServiceDocument>, Vec<String>, Vec<Problem>) {
        let body = json!({"services": services});
        let (mut notes, mut problems) = (Vec::new(), Vec::new());
        let fields = Fields::of(Some(&body), "properties", &mut problems);
        let read = read(&fields, 2, &mut notes, &mut problems);
        (read, notes, problems)
    }

    #[test]
    fn every_kind_is_read() {
        let (read, notes, problems) = check(&json!({
            "Studio": {"jobServiceType": "Studio", "endpoint": "x"},
            "lab": {"jobServiceType": "JupyterLab", "nodes": {"nodesValueType": "All"}, "port": 8888},
            "code": {"jobServiceType": "VSCode", "nodes": {"nodesValueType": "Custom", "nodeIndex": 1}},
            "board": {"jobServiceType": "TensorBoard", "properties": {"logDir": "./logs"}, "port": 6006},
            "shell": {"jobServiceType": "SSH", "properties": {"sshPublicKeys": "ssh-rsa AAAAB3 me\nssh-ed25519 AAAAC3"}},
            "own": {"jobServiceType": "Custom", "port": 8000, "endpoint": "e", "status": "s"},
        }));
        assert_eq!(problems, []);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert_eq!(read.keys().collect::<Vec<_>>(), ["board", "code", "lab", "own", "shell"]);
        assert_eq!(read["lab"].nodes, ServiceNodes::All);
        assert_eq!(read["code"].nodes, ServiceNodes::One(1));
        assert_eq!(read["own"].port, Some(8000));
        assert_eq!(read["board"].what, ServiceKind::TensorBoard { log_dir: Some("./logs".into()) });
        let ServiceKind::Ssh { public_keys } = &read["shell"].what else { panic!("{read:?}") };
        assert_eq!(public_keys.len(), 2);
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let (_, _, problems) = check(&json!({
            "a/b": {"jobServiceType": "JupyterLab"},
            "none": {},
            "keyless": {"jobServiceType": "SSH"},
            "keys": {"jobServiceType": "SSH", "properties": {"sshPublicKeys": "command=\"x\" ssh-rsa AAAA\nhello"}},
            "portless": {"jobServiceType": "Custom"},
            "port": {"jobServiceType": "Custom", "port": 70000},
            "far": {"jobServiceType": "VSCode", "nodes": {"nodesValueType": "Custom", "nodeIndex": 2}},
            "odd": {"jobServiceType": "VSCode", "nodes": {"nodesValueType": "Some"}},
        }));
        assert_eq!(problems.len(), 9, "{problems:#?}");
    }

    #[test]
    fn what_answers_add_is_not_asked_for() {
        let mut shown = json!({"Studio": {}, "RayDashboard": {},
            "own": {"jobServiceType": "Custom", "port": 1, "endpoint": "e", "status": "Running", "errorMessage": null}});
        as_asked(shown.as_object_mut().unwrap());
        assert_eq!(shown, json!({"own": {"jobServiceType": "Custom", "port": 1}}));
    }
}
