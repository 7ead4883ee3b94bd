//! Ids and URIs in, places and problems out.

use std::collections::BTreeMap;

use neap_core::{Code, Refusal};
use serde_json::{Value, json};

use super::{Environment, Shape, Shelf, code, data, environment};
use crate::arm::paths::sample_workspace;

/// A shelf of (kind, name, version) → properties.
#[derive(Default)]
pub(crate) struct Fake(pub BTreeMap<(String, String, String), Value>);

impl Fake {
    pub fn with(entries: &[(&str, &str, &str, Value)]) -> Self {
        Self(
            entries.iter().map(|(k, n, v, p)| (((*k).into(), (*n).into(), (*v).into()), p.clone())).collect(),
        )
    }
}

impl Shelf for Fake {
    fn asset(&self, kind: &str, name: &str, version: Option<&str>) -> Result<Option<Value>, Refusal> {
        Ok(self
            .0
            .iter()
            .rev()
            .find(|((k, n, v), _)| k == kind && n == name && version.is_none_or(|version| v == version))
            .map(|(_, properties)| properties.clone()))
    }
}

fn shelf() -> Fake {
    Fake::with(&[
        ("code", "c", "1", json!({"codeUri": "https://h:1/neapst1/snapshot-x/src"})),
        ("code", "alien", "1", json!({"codeUri": "https://h:1/neapst9/snapshot-x/src"})),
        ("environment", "e", "2", json!({"image": "python:3.11", "condaFile": "deps"})),
        (
            "data",
            "d",
            "1",
            json!({"dataUri": "azureml://datastores/workspaceblobstore/paths/LocalUpload/x/", "dataType": "uri_folder"}),
        ),
        ("data", "web", "1", json!({"dataUri": "https://example.com/x.csv"})),
        ("datastore", "mine", "1", json!({})),
    ])
}

#[test]
fn data_uris() {
    let workspace = sample_workspace();
    let long = "azureml://subscriptions/s1/resourcegroups/NEAP/workspaces/default/datastores/workspaceblobstore/paths/a/b";
    let asset = format!("{}/data/d/versions/1", crate::arm::paths::workspace_id(&workspace));
    let check = |uri: &str, shape, expect: Result<(&str, &str), Code>| {
        let mut problems = Vec::new();
        let found = data(&shelf(), &workspace, uri, shape, "inputs.d", &mut problems).unwrap();
        let read = match (&found, problems.as_slice()) {
            (Some(blob), []) => Ok((blob.container.as_str(), blob.path.as_str())),
            (None, [problem]) => Err(problem.code),
            other => panic!("{uri}: {other:?}"),
        };
        assert_eq!(read, expect, "{uri}");
    };
    check(
        "azureml://datastores/workspaceblobstore/paths/a/b",
        Shape::Folder,
        Ok(("azureml-blobstore", "a/b/")),
    );
    check(
        "azureml://datastores/workspaceblobstore/paths/a/b.csv",
        Shape::File,
        Ok(("azureml-blobstore", "a/b.csv")),
    );
    check(
        "azureml://datastores/workspaceartifactstore/ExperimentRun/dcid.x",
        Shape::Folder,
        Ok(("azureml", "ExperimentRun/dcid.x/")),
    );
    check(long, Shape::Folder, Ok(("azureml-blobstore", "a/b/")));
    check(&long.replace("default", "other"), Shape::Folder, Err(Code::BadArgument));
    check(&asset, Shape::Folder, Ok(("azureml-blobstore", "LocalUpload/x/")));
    check("azureml:d:1", Shape::Folder, Ok(("azureml-blobstore", "LocalUpload/x/")));
    check("azureml:d:9", Shape::Folder, Err(Code::BadArgument));
    check("azureml:web:1", Shape::File, Err(Code::NotSupported));
    check("azureml://datastores/mine/paths/a", Shape::Folder, Err(Code::NotSupported));
    check("azureml://datastores/nope/paths/a", Shape::Folder, Err(Code::DatastoreNotFound));
    check("azureml://datastores/workspaceblobstore/paths/../a", Shape::Folder, Err(Code::BadArgument));
    check("azureml://datastores/workspaceblobstore/paths/a/", Shape::File, Err(Code::BadArgument));
    check("s3://bucket/x", Shape::Folder, Err(Code::NotSupported));
    check("wasbs://c@a.blob.core.windows.net/x", Shape::Folder, Err(Code::NotSupported));
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
    assert_eq!(
        found,
        Environment { image: Some("python:3.11".into()), packages: Some("deps".into()), notes: vec![] }
    );
    assert_eq!(problems, []);
    assert_eq!(read("e@latest").0.image.as_deref(), Some("python:3.11"));
    for curated in [
        "azureml:AzureML-sklearn-0.24-ubuntu18.04-py37-cpu@latest",
        "AzureML-x:3",
        "azureml://registries/azureml/environments/sklearn-1.5/labels/latest",
    ] {
        let (found, problems) = read(curated);
        assert_eq!(
            (found.image.as_deref(), found.notes.len(), problems.len()),
            (Some(curated), 1, 0),
            "{curated}"
        );
    }
    assert_eq!(read("azureml:nope:1").1[0].code, Code::EnvironmentNotFound);
    assert_eq!(read("e").1.len(), 1);
}
