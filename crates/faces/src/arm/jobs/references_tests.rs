//! Ids in, places and problems out.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use neap_core::documents::{EnvironmentDocument, JobDocument};
use neap_core::{Code, Refusal};
use serde_json::{Value, json};

use super::{Environment, Shelf, code, environment};
use crate::arm::jobs::data::Datastores;
use crate::arm::paths::sample_workspace;
use crate::elsewhere::DataRules;
use crate::environments::{EnvironmentRules, MappedEnvironment};

/// A shelf of (kind, name, version) → properties.
#[derive(Default)]
pub(crate) struct Fake {
    pub assets: BTreeMap<(String, String, String), Value>,
    pub jobs: BTreeMap<String, JobDocument>,
    pub rules: DataRules,
}

impl Fake {
    pub fn with(entries: &[(&str, &str, &str, Value)]) -> Self {
        let entry =
            |(k, n, v, p): &(&str, &str, &str, Value)| (((*k).into(), (*n).into(), (*v).into()), p.clone());
        Self { assets: entries.iter().map(entry).collect(), ..Self::default() }
    }
}

impl Shelf for Fake {
    fn asset(&self, kind: &str, name: &str, version: Option<&str>) -> Result<Option<Value>, Refusal> {
        Ok(self
            .assets
            .iter()
            .rev()
            .find(|((k, n, v), _)| k == kind && n == name && version.is_none_or(|version| v == version))
            .map(|(_, properties)| properties.clone()))
    }

    fn newest(&self, kind: &str, name: &str) -> Result<Option<String>, Refusal> {
        let found = self.assets.keys().rev().find(|(k, n, _)| k == kind && n == name);
        Ok(found.map(|(_, _, version)| version.clone()))
    }

    fn job(&self, name: &str) -> Result<Option<JobDocument>, Refusal> {
        Ok(self.jobs.get(name).cloned())
    }

    fn datastores(&self) -> Result<Datastores, Refusal> {
        let stores = self.assets.iter().filter(|((kind, ..), _)| kind == "datastore");
        Ok(stores.map(|((_, name, _), properties)| (name.clone(), properties.clone())).collect())
    }

    fn rules(&self) -> &DataRules {
        &self.rules
    }

    fn environments(&self) -> &EnvironmentRules {
        static RULES: LazyLock<EnvironmentRules> = LazyLock::new(|| EnvironmentRules {
            map: vec![MappedEnvironment {
                pattern: "mapped-*".into(),
                image: None,
                packages: Some("six".into()),
            }],
            archives: vec!["/srv/images".into()],
            ..EnvironmentRules::default()
        });
        &RULES
    }

    fn containers_only(&self, cluster: &str) -> Result<bool, Refusal> {
        Ok(cluster == "strict")
    }
}

fn shelf() -> Fake {
    Fake::with(&[
        ("code", "c", "1", json!({"codeUri": "https://h:1/neapst1/snapshot-x/src"})),
        ("code", "alien", "1", json!({"codeUri": "https://h:1/neapst9/snapshot-x/src"})),
        ("environment", "e", "2", json!({"image": "python:3.11", "condaFile": "deps"})),
        ("environment", "conda", "1", json!({"condaFile": "deps"})),
        ("environment", "good-archive", "1", json!({"image": "file:/srv/images/a.tar"})),
        ("environment", "archive", "1", json!({"image": "file:/etc/a.tar"})),
        (
            "environment",
            "build",
            "1",
            json!({"build": {"contextUri": "https://h:1/azureml-blobstore/LocalUpload/c/", "dockerfilePath": "./sub/Dockerfile"}}),
        ),
        (
            "environment",
            "alien-build",
            "1",
            json!({"build": {"contextUri": "https://h:1/neapst9/x/c/", "dockerfilePath": "../Dockerfile"}}),
        ),
    ])
}

#[test]
fn codes_must_be_here() {
    let workspace = sample_workspace();
    for (id, expect) in [
        ("azureml:c:1", Some("src/")),
        ("azureml:c:2", None),
        ("azureml:alien:1", None),
        ("nonsense/x", None),
    ] {
        let mut problems = Vec::new();
        let found = code(&shelf(), &workspace, id, &mut problems).unwrap();
        assert_eq!(found.map(|blob| blob.path).as_deref(), expect, "{id}");
        assert_eq!(problems.len(), usize::from(expect.is_none()), "{id}");
    }
}

#[test]
fn environments_registered_and_curated() {
    let workspace = sample_workspace();
    let read = |id: &str| {
        let mut problems = Vec::new();
        let environment = environment(&shelf(), &workspace, id, &mut problems).unwrap();
        (environment, problems)
    };
    let (found, problems) = read("azureml:e:2");
    let image = |packages: Option<&str>| EnvironmentDocument::Image {
        image: "python:3.11".into(),
        packages: packages.map(Into::into),
    };
    assert_eq!(found, Environment { definition: image(Some("deps")), notes: vec![] });
    assert_eq!(problems, []);
    assert_eq!(read("e@latest").0.definition, image(Some("deps")));
    assert_eq!(read("conda:1").0.definition, EnvironmentDocument::Packages { packages: "deps".into() });
    for curated in [
        "azureml:AzureML-sklearn-0.24-ubuntu18.04-py37-cpu@latest",
        "AzureML-x:3",
        "azureml://registries/azureml/environments/sklearn-1.5/labels/latest",
    ] {
        let (found, problems) = read(curated);
        assert_eq!(
            (found.definition, found.notes.len(), problems.len()),
            (EnvironmentDocument::Nothing, 1, 0),
            "{curated}"
        );
    }
    assert_eq!(read("azureml:nope:1").1[0].code, Code::EnvironmentNotFound);
    assert_eq!(read("e").1.len(), 1);
}

#[test]
fn environments_by_the_table_by_archive_and_by_build_context() {
    let workspace = sample_workspace();
    let read = |id: &str| {
        let mut problems = Vec::new();
        let environment = environment(&shelf(), &workspace, id, &mut problems).unwrap();
        (environment.definition, problems)
    };
    let (found, problems) = read("azureml://registries/r/environments/mapped-one/versions/3");
    assert_eq!((found, problems.len()), (EnvironmentDocument::Packages { packages: "six".into() }, 0));
    assert_eq!(read("good-archive:1").1, []);
    assert!(read("archive:1").1[0].message.contains("environments.archives"));
    let (found, problems) = read("build:1");
    assert_eq!(problems, []);
    let EnvironmentDocument::Build { at, dockerfile } = found else { panic!("{found:?}") };
    assert_eq!((at.path.as_str(), dockerfile.as_str()), ("LocalUpload/c/", "sub/Dockerfile"));
    assert_eq!(read("alien-build:1").1[0].code, Code::EnvironmentNotFound);
}
