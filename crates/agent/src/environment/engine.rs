//! The container engine of the node: Docker or Podman, which speak the same API on their sockets.
//!
//! It finds the engine and asks it about images and containers. What runs user code (a build, a container) is asked for by
//! a process of its own, under the attempt's supervisor: see `driver`.

#![allow(
    clippy::disallowed_types,
    reason = "the engine's API has hash maps in its types; their order means nothing"
)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use bollard::query_parameters::{ListContainersOptions, RemoveContainerOptions};
use bollard::{API_DEFAULT_VERSION, Docker};
use serde::{Deserialize, Serialize};

use super::limits::{END_ROUND_MS, ENGINE_ANSWER_S_MAX, REMOVALS_MAX, UNREADABLE_MAX};
use super::shared;

/// Labels of every container that Neap makes.
pub(crate) const LABEL_INSTALLATION: &str = "neap.installation";
pub(crate) const LABEL_NODE: &str = "neap.node";
pub(crate) const LABEL_ATTEMPT: &str = "neap.attempt";
/// It does nothing but hold the network of this attempt's containers.
pub(crate) const LABEL_HOLDS: &str = "neap.holds";
/// Which network it shares with others.
pub(crate) const LABEL_NETWORK: &str = "neap.network";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Whichever is there, Docker first.
    #[default]
    Auto,
    Docker,
    Podman,
    /// Containers are not used.
    None,
}

/// Which engine nodes use, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    pub kind: EngineKind,
    /// Its socket; absent: where the engines have theirs.
    pub socket: Option<PathBuf>,
}

impl EngineSettings {
    /// Where the engine may be, in the order in which it is looked for. `variable` reads the environment.
    pub fn sockets(&self, variable: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
        if self.kind == EngineKind::None {
            return Vec::new();
        }
        if let Some(socket) = &self.socket {
            return vec![socket.clone()];
        }
        let named =
            |name: &str| variable(name).and_then(|url| url.strip_prefix("unix://").map(PathBuf::from));
        let mine = |below: &str| variable("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join(below));
        let docker = [named("DOCKER_HOST"), Some("/var/run/docker.sock".into()), mine("docker.sock")];
        let podman =
            [named("CONTAINER_HOST"), Some("/run/podman/podman.sock".into()), mine("podman/podman.sock")];
        let all: Vec<Option<PathBuf>> = match self.kind {
            EngineKind::Docker => docker.into(),
            EngineKind::Podman => podman.into(),
            EngineKind::Auto => docker.into_iter().chain(podman).collect(),
            EngineKind::None => Vec::new(),
        };
        all.into_iter().flatten().collect()
    }
}

/// An engine that answers.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub api: Docker,
    pub socket: PathBuf,
    /// `docker 20.10.24`, `podman 4.3.1`
    pub name: String,
    /// It runs as an ordinary user, whom containers' root is outside.
    pub rootless: bool,
}

impl Engine {
    /// The first of the engine's places where one answers; the error says what was tried.
    pub(crate) async fn find(settings: &EngineSettings) -> Result<Self, String> {
        if settings.kind == EngineKind::None {
            return Err("no container engine is to be used (environments.engine: none)".into());
        }
        let mut tried = Vec::new();
        for socket in settings.sockets(|name| std::env::var(name).ok()) {
            if !socket.exists() {
                continue;
            }
            match Self::connect(socket.clone(), settings.kind, ENGINE_ANSWER_S_MAX).await {
                Ok(engine) => return Ok(engine),
                Err(why) => tried.push(format!("{}: {why}", socket.display())),
            }
        }
        Err(match (tried.is_empty(), &settings.socket) {
            (false, _) => format!("no container engine answers ({})", tried.join("; ")),
            (true, Some(socket)) => format!("there is no container engine at {}", socket.display()),
            (true, None) => "there is no container engine on this node".into(),
        })
    }

    /// The engine behind a socket, whose answers may take so long to begin.
    pub(crate) async fn connect(socket: PathBuf, kind: EngineKind, answer_s: u64) -> Result<Self, String> {
        let path = socket.display().to_string();
        let api =
            Docker::connect_with_unix(&path, answer_s, API_DEFAULT_VERSION).map_err(|e| e.to_string())?;
        let asking = async {
            let api = api.negotiate_version().await?;
            let (version, info) = tokio::try_join!(api.version(), api.info())?;
            Ok::<_, bollard::errors::Error>((api, version, info))
        };
        let (api, version, info) = tokio::time::timeout(Duration::from_secs(ENGINE_ANSWER_S_MAX), asking)
            .await
            .map_err(|_| format!("no answer within {ENGINE_ANSWER_S_MAX} s"))?
            .map_err(|e| e.to_string())?;
        let podman =
            version.components.iter().flatten().any(|part| part.name.to_ascii_lowercase().contains("podman"));
        if matches!((kind, podman), (EngineKind::Docker, true) | (EngineKind::Podman, false)) {
            return Err(format!("it is {}", if podman { "Podman" } else { "Docker" }));
        }
        let rootless = info.security_options.iter().flatten().any(|option| option.contains("rootless"));
        let name = format!(
            "{} {}",
            if podman { "podman" } else { "docker" },
            version.version.as_deref().unwrap_or("of unknown version")
        );
        Ok(Self { api, socket, name, rootless })
    }

    /// The digest of an image that is there.
    pub(crate) async fn image(&self, reference: &str) -> Result<Option<String>, String> {
        match self.api.inspect_image(reference).await {
            Ok(image) => Ok(Some(image.id.unwrap_or_else(|| reference.to_owned()))),
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
            Err(e) => Err(format!("asking {} for image {reference}: {e}", self.name)),
        }
    }

    /// Removes every container with these labels, running or not, and says how many. `keep` is asked for the node.
    pub(crate) async fn remove(
        &self,
        labels: &[(String, String)],
        keep: impl Fn(&str) -> bool,
    ) -> Result<usize, String> {
        let failed = |e: bollard::errors::Error| format!("removing containers of {}: {e}", self.name);
        let (mut removed, mut rounds, mut unreadable) = (0, 0, 0);
        // One that is just being made may appear after the list was made.
        while rounds < REMOVALS_MAX {
            let labels = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let options = ListContainersOptions {
                all: true,
                filters: Some(HashMap::from([("label".to_owned(), labels)])),
                ..ListContainersOptions::default()
            };
            let mut found = match self.api.list_containers(Some(options)).await {
                // Podman has states on the way to the end that Docker does not.
                Err(bollard::errors::Error::JsonDataError { .. }) if unreadable < UNREADABLE_MAX => {
                    unreadable += 1;
                    tokio::time::sleep(Duration::from_millis(END_ROUND_MS)).await;
                    continue;
                }
                other => other.map_err(failed)?,
            };
            found.retain(|container| {
                let label = |name| container.labels.as_ref().and_then(|labels| labels.get(name));
                // Those that hold a network are nobody's; they go after the last one that has it.
                !label(LABEL_NODE).is_some_and(|node| keep(node)) && label(LABEL_HOLDS).is_none()
            });
            if found.is_empty() {
                break;
            }
            rounds += 1;
            for id in found.iter().filter_map(|container| container.id.as_deref()) {
                let options = RemoveContainerOptions { force: true, v: true, link: false };
                match self.api.remove_container(id, Some(options)).await {
                    Ok(()) => removed += 1,
                    // Somebody else is removing it, or has.
                    Err(bollard::errors::Error::DockerResponseServerError {
                        status_code: 404 | 409, ..
                    }) => {}
                    Err(e) => return Err(failed(e)),
                }
            }
        }
        if let Some((_, installation)) = labels.iter().find(|(name, _)| name == LABEL_INSTALLATION) {
            shared::sweep(self, installation).await;
        }
        Ok(removed)
    }
}

/// The name by which an engine pulls one image and not all of its tags.
pub(crate) fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_looked_for_where_they_are() {
        let sockets = |kind, socket: Option<&str>| {
            EngineSettings { kind, socket: socket.map(Into::into) }
                .sockets(|name| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into()))
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(sockets(EngineKind::None, Some("/x")), Vec::<String>::new());
        assert_eq!(sockets(EngineKind::Docker, Some("/x")), ["/x"]);
        assert_eq!(sockets(EngineKind::Docker, None), ["/var/run/docker.sock", "/run/user/7/docker.sock"]);
        assert_eq!(
            sockets(EngineKind::Podman, None),
            ["/run/podman/podman.sock", "/run/user/7/podman/podman.sock"]
        );
        assert_eq!(sockets(EngineKind::Auto, None).len(), 4);
    }

    #[test]
    fn one_tag_is_pulled() {
        for (written, pulled) in [
            ("python", "python:latest"),
            ("host:5000/a/b", "host:5000/a/b:latest"),
            ("a/b:1", "a/b:1"),
            ("a@sha256:00", "a@sha256:00"),
        ] {
            assert_eq!(with_tag(written), pulled);
        }
    }
}
