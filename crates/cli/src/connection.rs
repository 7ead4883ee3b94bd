//! How this client finds its server: the data folder's `client.json`, else the variables that `neap env` prints.

use crate::failure::{Exit, Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// All that a client needs to know. The field names are those of `client.json`.
#[derive(Clone, Serialize, Deserialize)]
pub struct Connection {
    pub url: String,
    pub ca_bundle: PathBuf,
    pub identity_secret: String,
    pub subscription_id: String,
    pub resource_group: String,
    pub workspace: String,
    #[serde(skip)]
    pub token_endpoint: Option<String>,
}

// The secret stays out of every debug print.
impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("url", &self.url)
            .field("ca_bundle", &self.ca_bundle)
            .finish_non_exhaustive()
    }
}

/// `server.json`: the process that serves a data folder.
#[derive(Debug, Clone, Deserialize)]
pub struct ServerFile {
    pub pid: i32,
    pub url: String,
}

impl Connection {
    /// The connection of a data folder, if the folder has one.
    pub fn of_folder(data: &Path) -> Outcome<Option<Self>> {
        read_json(&data.join("client.json"))
    }

    /// The connection to use: the folder's, else the environment's.
    pub fn find(data: &Path) -> Outcome<Self> {
        if let Some(connection) = Self::of_folder(data)? {
            return Ok(connection);
        }
        Self::from_environment().ok_or_else(|| {
            Failure::new(
                Exit::Unreachable,
                format!("no Neap server is known: {} has no client.json", data.display()),
            )
            .hint("start it with 'neap up --detach'")
            .hint("or point at one with --data DIR, NEAP_HOME, or the variables of 'neap env'")
        })
    }

    fn from_environment() -> Option<Self> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Some(Self {
            url: set("NEAP_URL")?.trim_end_matches('/').to_owned(),
            ca_bundle: set("REQUESTS_CA_BUNDLE")?.into(),
            identity_secret: set("IDENTITY_HEADER")?,
            subscription_id: set("NEAP_SUBSCRIPTION_ID").unwrap_or_default(),
            resource_group: set("NEAP_RESOURCE_GROUP").unwrap_or_else(|| "neap".to_owned()),
            workspace: set("NEAP_WORKSPACE").unwrap_or_else(|| "default".to_owned()),
            token_endpoint: set("IDENTITY_ENDPOINT"),
        })
    }

    /// Where MLflow's clients track runs of the default workspace.
    pub fn tracking_uri(&self) -> String {
        format!(
            "{}/mlflow/v1.0/subscriptions/{}/resourceGroups/{}/providers/Microsoft.MachineLearningServices/workspaces/{}",
            self.url.trim_end_matches('/'),
            self.subscription_id,
            self.resource_group,
            self.workspace
        )
    }

    pub fn token_url(&self) -> String {
        self.token_endpoint.clone().unwrap_or_else(|| format!("{}/msi/token", self.url))
    }
}

/// The server process of a data folder, if one has said that it runs.
pub fn server_file(data: &Path) -> Outcome<Option<ServerFile>> {
    read_json(&data.join("server.json"))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Outcome<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            Failure::failed(format!("{} is damaged: {error}", path.display()))
                .hint("restart the server ('neap down', 'neap up --detach'); it writes the file anew")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::file("read", path, &error)),
    }
}
