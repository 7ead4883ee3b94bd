//! Where things are kept for this user, and the defaults that `neap configure` stores.

use crate::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The keys that `neap configure --defaults` takes, and what each means.
pub const DEFAULT_KEYS: &[(&str, &str)] = &[
    ("workspace", "workspace name, as -w"),
    ("group", "resource group, as -g"),
    ("subscription", "subscription id, as --subscription"),
    ("location", "region, as -l of list-sizes, list-usage and workspace create"),
    ("output", "output format, as -o"),
];

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    #[serde(default)]
    pub defaults: BTreeMap<String, String>,
}

impl Settings {
    /// The stored settings; none is the same as empty.
    pub fn load() -> Outcome<Self> {
        let Some(path) = settings_file() else { return Ok(Self::default()) };
        match std::fs::read_to_string(&path) {
            Ok(text) if text.trim().is_empty() => Ok(Self::default()),
            Ok(text) => serde_saphyr::from_str(&text).map_err(|error| {
                Failure::usage(format!("{} is not valid: {error}", path.display()))
                    .hint("correct the file, or remove it and run neap configure again")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure::file("read", &path, &error)),
        }
    }

    pub fn save(&self) -> Outcome<PathBuf> {
        let path = settings_file().ok_or_else(|| {
            Failure::failed("neither XDG_CONFIG_HOME nor HOME is set: there is no place to store it")
        })?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder).map_err(|error| Failure::file("create", folder, &error))?;
        let text = serde_saphyr::to_string(self)
            .map_err(|error| Failure::failed(format!("cannot write the settings as YAML: {error}")))?;
        std::fs::write(&path, text).map_err(|error| Failure::file("write", &path, &error))?;
        Ok(path)
    }

    pub fn default_of(&self, key: &str) -> Option<&str> {
        self.defaults.get(key).map(String::as_str)
    }
}

fn settings_file() -> Option<PathBuf> {
    Some(xdg("XDG_CONFIG_HOME", ".config")?.join("neap/config.yaml"))
}

/// The data folder: what was given, else the user's own.
pub fn data_folder(given: Option<&Path>) -> Outcome<PathBuf> {
    if let Some(given) = given.filter(|given| !given.as_os_str().is_empty()) {
        return Ok(given.to_owned());
    }
    xdg("XDG_DATA_HOME", ".local/share").map(|folder| folder.join("neap")).ok_or_else(|| {
        Failure::usage("there is no data folder: neither XDG_DATA_HOME nor HOME is set")
            .hint("give one with --data DIR or NEAP_HOME")
    })
}

fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable).filter(|path| path.is_absolute()).or_else(|| Some(set("HOME")?.join(below_home)))
}
