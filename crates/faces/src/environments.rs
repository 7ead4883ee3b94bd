//! What the operator says about environments: names that stand for images and packages, archives that may be used, and
//! whether jobs must run in containers. Read from the configuration; it knows nothing of engines but where they would be.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub struct EnvironmentRules {
    /// The most specific first.
    pub map: Vec<MappedEnvironment>,
    /// Folders whose image archives jobs may name.
    pub archives: Vec<PathBuf>,
    /// Every job runs in a container.
    pub container_only: bool,
    /// Where a container engine would be; empty: none is to be used.
    pub engine_sockets: Vec<PathBuf>,
    /// Where a program would be that installs conda packages.
    pub conda_programs: Vec<PathBuf>,
}

/// What stands for an environment of somebody else's registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedEnvironment {
    /// A name, `name:version` or a whole reference; `*` stands for anything.
    pub pattern: String,
    pub image: Option<String>,
    /// A conda file or pip requirements, as text.
    pub packages: Option<String>,
}

impl EnvironmentRules {
    /// What stands for this reference, which has this name and version or label.
    pub(crate) fn mapped(
        &self,
        reference: &str,
        name: &str,
        version: Option<&str>,
    ) -> Option<&MappedEnvironment> {
        let with_version = version.map(|version| format!("{name}:{version}"));
        self.map.iter().find(|mapped| {
            [Some(reference), Some(name), with_version.as_deref()]
                .into_iter()
                .flatten()
                .any(|text| matches(&mapped.pattern, text))
        })
    }

    /// Whether an image archive may be used.
    pub(crate) fn allows_archive(&self, archive: &Path) -> bool {
        archive.is_absolute()
            && !archive.components().any(|part| part.as_os_str() == "..")
            && self.archives.iter().any(|folder| archive.starts_with(folder))
    }

    /// Why packages cannot be installed on nodes of this machine, as far as can be told without asking a registry.
    pub(crate) fn packages_refused(&self, text: &str) -> Option<String> {
        match neap_spec::packages::read(text) {
            Err(why) => Some(why),
            Ok(wanted) if wanted.unknown.is_empty() || self.conda_programs.iter().any(|at| at.exists()) => {
                None
            }
            Ok(wanted) => Some(format!(
                "There is no conda here, and these conda packages have no known name on PyPI: {}. Give them as pip packages under their PyPI names, install micromamba, or use an image.",
                wanted.unknown.join(", ")
            )),
        }
    }

    /// Why nothing can run in a container here, as far as this machine can tell.
    pub(crate) fn engine_missing(&self) -> Option<String> {
        if self.engine_sockets.is_empty() {
            return Some(
                "no container engine is to be used (environments.engine: none in config.yaml)".into(),
            );
        }
        if self.engine_sockets.iter().any(|socket| socket.exists()) {
            return None;
        }
        let places: Vec<String> =
            self.engine_sockets.iter().map(|socket| socket.display().to_string()).collect();
        Some(format!("there is no container engine (looked for at {})", places.join(", ")))
    }
}

/// `*` stands for any text; case does not matter, as in all names of Azure's.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_ascii_lowercase(), text.to_ascii_lowercase());
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expect) in [
            ("sklearn-1.5", "sklearn-1.5", true),
            ("sklearn-1.5", "sklearn-1.55", false),
            ("AzureML-*", "azureml-sklearn", true),
            ("*sklearn*cpu", "AzureML-sklearn-0.24-py37-cpu", true),
            ("*sklearn*cpu", "AzureML-sklearn-0.24-py37-gpu", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn names_versions_and_whole_references() {
        let mapped = |pattern: &str, image: &str| MappedEnvironment {
            pattern: pattern.into(),
            image: Some(image.into()),
            packages: None,
        };
        let rules = EnvironmentRules {
            map: vec![
                mapped("sklearn-1.5:10", "ten"),
                mapped("sklearn-1.5", "any"),
                mapped("azureml://registries/mine/*", "mine"),
            ],
            ..EnvironmentRules::default()
        };
        let find = |reference: &str, name: &str, version: &str| {
            rules.mapped(reference, name, Some(version)).and_then(|found| found.image.clone())
        };
        assert_eq!(find("r", "sklearn-1.5", "10").as_deref(), Some("ten"));
        assert_eq!(find("r", "sklearn-1.5", "latest").as_deref(), Some("any"));
        assert_eq!(
            find("azureml://registries/mine/environments/x/versions/1", "x", "1").as_deref(),
            Some("mine")
        );
        assert_eq!(find("r", "x", "1"), None);
    }

    #[test]
    fn archives_lie_below_the_folders_that_were_named() {
        let rules = EnvironmentRules { archives: vec!["/srv/images".into()], ..EnvironmentRules::default() };
        for (archive, expect) in [
            ("/srv/images/a.tar", true),
            ("/srv/images/../etc/a.tar", false),
            ("/srv/imagesx/a.tar", false),
            ("images/a.tar", false),
        ] {
            assert_eq!(rules.allows_archive(Path::new(archive)), expect, "{archive}");
        }
        assert!(rules.engine_missing().unwrap().contains("none"));
    }
}
