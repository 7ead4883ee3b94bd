//! The data folder: where everything lies, and the small files by which the command line finds the server.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The layout of a data folder.
#[derive(Clone, Debug)]
pub struct DataFolder {
    root: PathBuf,
}

/// `server.json`: there while a server runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerFile {
    pub pid: u32,
    pub url: String,
    pub started_unix_ms: u64,
    pub version: String,
}

/// `client.json`: what the owner's clients need. It holds the identity secret, so it is 0600.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientFile {
    pub url: String,
    pub ca_bundle: PathBuf,
    pub identity_secret: String,
    pub subscription_id: String,
    pub resource_group: String,
    pub workspace: String,
}

/// `identity/installation.json`: made once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Installation {
    pub id: String,
    pub subscription_id: String,
    pub tenant_id: String,
}

impl DataFolder {
    pub fn open(root: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let root = root.canonicalize()?;
        let folder = Self { root };
        for part in [folder.identity(), folder.root.join("logs")] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(part)?;
        }
        Ok(folder)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("neap.lock")
    }

    pub fn config(&self) -> PathBuf {
        self.root.join("config.yaml")
    }

    pub fn server_file(&self) -> PathBuf {
        self.root.join("server.json")
    }

    pub fn client_file(&self) -> PathBuf {
        self.root.join("client.json")
    }

    pub fn identity(&self) -> PathBuf {
        self.root.join("identity")
    }

    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger")
    }

    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// What runs tell of themselves: metrics, parameters, tags.
    pub fn tracking(&self) -> PathBuf {
        self.root.join("tracking")
    }

    /// Mini-batches of parallel jobs that have not ended.
    pub fn parallel(&self) -> PathBuf {
        self.root.join("parallel")
    }

    pub fn joblogs(&self) -> PathBuf {
        self.root.join("joblogs")
    }

    /// What was told of alerts.
    pub fn alerts(&self) -> PathBuf {
        self.root.join("alerts.json")
    }

    pub fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// What nodes share and what can be made again.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    pub fn node_logs(&self) -> PathBuf {
        self.root.join("node-logs")
    }

    /// This installation's names, made at the first start.
    pub fn installation(&self) -> io::Result<Installation> {
        let path = self.identity().join("installation.json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let guid = || neap_identity::random_guid().map_err(io::Error::other);
                let made = Installation { id: guid()?, subscription_id: guid()?, tenant_id: guid()? };
                write_private(&path, &made)?;
                Ok(made)
            }
            Err(e) => Err(e),
        }
    }

    /// The port of the last life, so that agents of that life find the server again.
    pub fn last_port(&self) -> Option<u16> {
        fs::read_to_string(self.root.join("port")).ok()?.trim().parse().ok()
    }

    pub fn remember_port(&self, port: u16) -> io::Result<()> {
        // On a full disk, writing it anew would only lose it.
        if self.last_port() == Some(port) {
            return Ok(());
        }
        fs::write(self.root.join("port"), port.to_string())
    }

    pub fn write_server_file(&self, file: &ServerFile) -> io::Result<()> {
        write_private(&self.server_file(), file)
    }

    pub fn write_client_file(&self, file: &ClientFile) -> io::Result<()> {
        write_private(&self.client_file(), file)
    }

    pub fn remove_server_file(&self) {
        let _ = fs::remove_file(self.server_file());
    }
}

fn write_private<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    neap_identity::write_private(path, &text).map_err(io::Error::other)
}
