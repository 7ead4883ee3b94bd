//! What a job says about its container: whether it must have one, its shared memory, and `docker_args`.

use neap_core::documents::{ContainerDocument, EnvironmentDocument};
use neap_core::{Code, Problem};
use serde_json::Value;

use crate::arm::errors::bad;
use crate::environments::EnvironmentRules;
use crate::fields::Fields;

/// What may be asked of an engine without weakening anything.
const SAFE: &str = "--shm-size, --ulimit, --env, --init, --ipc, --network host and --gpus";

/// Reads `shmSize`, `dockerArgs` and `dockerArgsList` of a job's resources.
pub(super) fn read(
    resources: &Fields<'_>,
    notes: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> ContainerDocument {
    let mut container = ContainerDocument::default();
    if let Some(text) = resources.text("shmSize", problems).filter(|text| !text.is_empty()) {
        container.shm_bytes = bytes(text);
        if container.shm_bytes.is_none() {
            problems.push(bad(
                format!("'{text}' is not a size: a number with b, k, m or g."),
                &resources.place("shmSize"),
            ));
        }
    }
    let mut words: Vec<String> = Vec::new();
    if let Some(text) = resources.text("dockerArgs", problems) {
        words.extend(text.split_whitespace().map(str::to_owned));
    }
    if let Some(list) = resources.value("dockerArgsList").and_then(Value::as_array) {
        words.extend(list.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    let (args, refused) = safe_args(&words, notes);
    container.args = args;
    if !refused.is_empty() {
        problems.push(
            Problem::new(
                Code::NotSupported,
                format!("docker_args cannot have {}; {SAFE} can be given.", refused.join(", ")),
            )
            .at(resources.place("dockerArgs")),
        );
    }
    container
}

/// The arguments that are kept, each as one word, and those that are refused.
fn safe_args(words: &[String], notes: &mut Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut kept, mut refused) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, given) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || given.clone().or_else(|| words.next().cloned()).unwrap_or_default();
        match name {
            "--init" | "--rm" => {}
            "--gpus" => drop(value()),
            "--env" | "-e" => kept.push(format!("--env={}", value())),
            "--ulimit" => kept.push(format!("--ulimit={}", value())),
            "--shm-size" => {
                let text = value();
                match bytes(&text) {
                    Some(bytes) => kept.push(format!("--shm-size={bytes}")),
                    None => refused.push(format!("{name} {text}")),
                }
            }
            "--ipc" => {
                if value() == "host" {
                    notes.push("docker_args --ipc=host has no effect: each container has shared memory of its own, whose size is shm_size.".into());
                }
            }
            "--network" | "--net" => {
                let network = value();
                if network == "host" {
                    notes.push("docker_args --network host has no effect: a container has the job's own network where Neap can give it one.".into());
                } else {
                    refused.push(format!("{name} {network}"));
                }
            }
            _ => refused.push(word.clone()),
        }
    }
    (kept, refused)
}

/// `2g`, `512m`, `1024`
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let (number, factor) = match text.chars().last()? {
        'k' => (&text[..text.len() - 1], 1 << 10),
        'm' => (&text[..text.len() - 1], 1 << 20),
        'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes > 0)
}

/// `isolation` of a job: whether it must run in a container.
pub(super) fn isolation(asked: Option<&Value>, place: &str, problems: &mut Vec<Problem>) -> bool {
    match asked.and_then(Value::as_str) {
        Some("container") => true,
        Some("host-allowed") | None => false,
        Some(other) => {
            problems.push(bad(format!("'{other}' is not an isolation: container or host-allowed."), place));
            false
        }
    }
}

/// What keeps an environment from being made on the host, where it is certain that it will be.
fn on_host(environment: &EnvironmentDocument, rules: &EnvironmentRules) -> Option<Problem> {
    let packages = match environment {
        EnvironmentDocument::Packages { packages } => packages,
        EnvironmentDocument::Image { packages: Some(packages), .. } if rules.engine_missing().is_some() => {
            packages
        }
        EnvironmentDocument::Nothing
        | EnvironmentDocument::Image { .. }
        | EnvironmentDocument::Build { .. } => {
            return None;
        }
    };
    rules.packages_refused(packages).map(|why| bad(why, "properties.environmentId"))
}

/// A job that must run in a container and certainly cannot is refused; so is one whose packages cannot be had.
pub(super) fn check(
    container: &ContainerDocument,
    environment: &EnvironmentDocument,
    rules: &EnvironmentRules,
) -> Vec<Problem> {
    if !container.required {
        return on_host(environment, rules).into_iter().collect();
    }
    let mut problems = Vec::new();
    let mut refuse = |why: String, place: &str| {
        let message = format!("isolation: container is never weakened, and {why}.");
        problems.push(Problem::new(Code::NotSupported, message).at(place));
    };
    if let Some(why) = rules.engine_missing() {
        refuse(
            format!("{why}. Start Docker or Podman, or say host-allowed"),
            "properties.resources.properties.neap.isolation",
        );
    }
    match environment {
        EnvironmentDocument::Image { .. } | EnvironmentDocument::Build { .. } => {}
        EnvironmentDocument::Nothing | EnvironmentDocument::Packages { .. } => {
            refuse("the environment has no image that is known here".into(), "properties.environmentId");
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_arguments_are_kept_and_the_others_named() {
        let words = "--shm-size 4g --ulimit memlock=-1 -e A=b --env=C=d=e --ipc=host --net=host --init --privileged -v /:/host --network bridge";
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut notes = Vec::new();
        let (kept, refused) = safe_args(&words, &mut notes);
        assert_eq!(kept, ["--shm-size=4294967296", "--ulimit=memlock=-1", "--env=A=b", "--env=C=d=e"]);
        assert_eq!(refused, ["--privileged", "-v", "/:/host", "--network bridge"]);
        assert_eq!(notes.len(), 2);
    }

    #[test]
    fn sizes() {
        for (text, expect) in [
            ("2g", Some(2 << 30)),
            ("512M", Some(512 << 20)),
            ("64kb", Some(64 << 10)),
            ("7", Some(7)),
            ("0", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(bytes(text), expect, "{text}");
        }
    }

    #[test]
    fn a_container_that_cannot_be_is_refused_with_every_reason() {
        let required = ContainerDocument { required: true, ..ContainerDocument::default() };
        let image = EnvironmentDocument::Image { image: "i".into(), packages: None };
        let none = EnvironmentRules::default();
        let here = EnvironmentRules { engine_sockets: vec!["/".into()], ..EnvironmentRules::default() };
        assert_eq!(check(&ContainerDocument::default(), &EnvironmentDocument::Nothing, &none), []);
        assert_eq!(check(&required, &EnvironmentDocument::Nothing, &none).len(), 2);
        assert_eq!(check(&required, &image, &none).len(), 1);
        assert_eq!(check(&required, &image, &here), []);
    }

    #[test]
    fn packages_that_cannot_be_had_are_named() {
        let plain = ContainerDocument::default();
        let packages = "name: x\ndependencies:\n- no-such-package=1\n- numpy\n- gone-too\n";
        let host = EnvironmentDocument::Packages { packages: packages.into() };
        let image = EnvironmentDocument::Image { image: "i".into(), packages: Some(packages.into()) };
        let none = EnvironmentRules::default();
        let engine = EnvironmentRules { engine_sockets: vec!["/".into()], ..EnvironmentRules::default() };
        let conda = EnvironmentRules { conda_programs: vec!["/".into()], ..EnvironmentRules::default() };
        for (environment, rules, refused) in [
            (&host, &none, true),
            (&host, &engine, true),
            (&host, &conda, false),
            (&image, &none, true),
            (&image, &engine, false),
        ] {
            let found = check(&plain, environment, rules);
            assert_eq!(found.len(), usize::from(refused), "{environment:?}");
            if refused {
                assert!(found[0].message.contains("no-such-package=1, gone-too"), "{}", found[0].message);
            }
        }
    }
}
