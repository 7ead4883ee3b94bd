//! URIs in, places and problems out.

use neap_core::Code;
use neap_core::documents::{BlobPath, JobDocument, OutputDetails, OutputDocument};
use serde_json::json;

use super::super::references::tests::Fake;
use super::{Asked, Found, Shape, input, output, uri_of};
use crate::arm::paths::{sample_workspace, workspace_id};

fn shelf() -> Fake {
    let mut shelf = Fake::with(&[
        (
            "data",
            "d",
            "1",
            json!({"dataUri": "azureml://datastores/workspaceblobstore/paths/LocalUpload/x/", "dataType": "uri_folder"}),
        ),
        ("data", "web", "1", json!({"dataUri": "https://example.com/x.csv", "dataType": "uri_file"})),
        ("data", "circle", "1", json!({"dataUri": "azureml:circle:1", "dataType": "uri_folder"})),
        (
            "model",
            "m",
            "2",
            json!({"modelUri": "azureml://jobs/old/outputs/model/paths/best", "modelType": "custom_model"}),
        ),
        (
            "datastore",
            "blob",
            "1",
            json!({"datastoreType": "AzureBlob", "accountName": "acc", "containerName": "c"}),
        ),
        ("datastore", "bucket", "1", json!({"datastoreType": "S3", "bucket": "b"})),
        ("datastore", "share", "1", json!({"datastoreType": "AzureFile"})),
        ("datastore", "here", "1", json!({"datastoreType": "LocalFolder", "path": "/srv/in/sub"})),
    ]);
    let at = |path: &str| BlobPath {
        account: "neapst1".into(),
        container: "azureml-blobstore".into(),
        path: path.into(),
    };
    let outputs = [
        (
            "model".to_owned(),
            OutputDocument::Folder { at: at("azureml/old/model/"), more: OutputDetails::default() },
        ),
        (
            "one".to_owned(),
            OutputDocument::File { at: at("azureml/old/one/one"), more: OutputDetails::default() },
        ),
    ];
    shelf.jobs.insert("old".into(), JobDocument { outputs: outputs.into(), ..JobDocument::default() });
    shelf.rules.inputs_allow = vec!["/srv/in".into()];
    shelf.rules.outputs_allow = vec!["/srv/out".into()];
    shelf.rules.inputs_map = vec![("https://mapped.example/data".into(), "/copies/data".into())];
    shelf
}

fn read(uri: &str, shape: Shape, write: bool) -> Result<Found, Code> {
    let asked = Asked { uri, shape, model: shape == Shape::Any, place: "inputs.d" };
    let find = if write { output } else { input };
    find(&shelf(), &sample_workspace(), asked).unwrap().map_err(|problem| problem.code)
}

#[track_caller]
fn check(uri: &str, shape: Shape, expect: Result<(&str, &str), Code>) {
    let found = read(uri, shape, false);
    let read = found.as_ref().map(|found| (found.at.container.as_str(), found.at.path.as_str()));
    assert_eq!(read.map_err(|code| *code), expect, "{uri}");
}

#[test]
fn the_workspaces_own() {
    let long = "azureml://subscriptions/s1/resourcegroups/NEAP/workspaces/default/datastores/workspaceblobstore/paths/a/b";
    let ws = workspace_id(&sample_workspace());
    let own = "azureml-blobstore";
    check("azureml://datastores/workspaceblobstore/paths/a/b", Shape::Folder, Ok((own, "a/b/")));
    check("azureml://datastores/workspaceblobstore/paths/a/b.csv", Shape::File, Ok((own, "a/b.csv")));
    check("azureml://datastores/workspaceblobstore/paths/", Shape::Folder, Ok((own, "")));
    check(
        "azureml://datastores/workspaceartifactstore/ExperimentRun/dcid.x",
        Shape::Folder,
        Ok(("azureml", "ExperimentRun/dcid.x/")),
    );
    check(long, Shape::Folder, Ok((own, "a/b/")));
    check(&long.replace("default", "other"), Shape::Folder, Err(Code::BadArgument));
    check("azureml://datastores/nope/paths/a", Shape::Folder, Err(Code::DatastoreNotFound));
    check("azureml://datastores/workspaceblobstore/paths/../a", Shape::Folder, Err(Code::BadArgument));
    check("azureml://datastores/workspaceblobstore/paths/a/", Shape::File, Err(Code::BadArgument));
    for asset in [&format!("{ws}/data/d/versions/1"), "azureml:d:1", "azureml:d@latest"] {
        check(asset, Shape::Folder, Ok((own, "LocalUpload/x/")));
    }
    check("azureml:d:1", Shape::File, Err(Code::BadArgument));
    check("azureml:d:9", Shape::Folder, Err(Code::BadArgument));
    check("azureml:circle:1", Shape::Folder, Err(Code::BadArgument));
    check("azureml:m:2", Shape::Any, Ok((own, "azureml/old/model/best")));
    check(&format!("{ws}/models/m/versions/2"), Shape::Folder, Ok((own, "azureml/old/model/best/")));
    check("azureml:m:2", Shape::Folder, Err(Code::BadArgument));
    check("azureml://jobs/old/outputs/model", Shape::Folder, Ok((own, "azureml/old/model/")));
    check("azureml://jobs/old/outputs/one", Shape::File, Ok((own, "azureml/old/one/one")));
    check("azureml://jobs/old/outputs/one/paths/x", Shape::File, Err(Code::BadArgument));
    check(
        "azureml://jobs/old/outputs/artifacts/paths/outputs/m.pkl",
        Shape::File,
        Ok(("azureml", "ExperimentRun/dcid.old/outputs/m.pkl")),
    );
    check("azureml://jobs/old/outputs/none", Shape::Folder, Err(Code::BadArgument));
    check("azureml://jobs/none/outputs/model", Shape::Folder, Err(Code::BadArgument));
    check("runs:/old/model", Shape::Any, Ok(("azureml", "ExperimentRun/dcid.old/model")));
}

#[test]
fn elsewhere() {
    check("azureml://datastores/blob/paths/a", Shape::Folder, Ok(("~store.blob", "a/")));
    check("azureml://datastores/blob/paths/", Shape::Folder, Ok(("~store.blob", "")));
    check("azureml://datastores/share/paths/a", Shape::Folder, Err(Code::NotSupported));
    check("azureml://datastores/here/paths/a", Shape::Folder, Ok(("~store.here", "a/")));
    check("azureml:web:1", Shape::File, Ok(("~https", "example.com/x.csv")));
    check("https://example.com/a%20b.csv", Shape::File, Ok(("~https", "example.com/a b.csv")));
    check("http://127.0.0.1:81/a.csv", Shape::File, Ok(("~http", "127.0.0.1:81/a.csv")));
    check("https://example.com/folder/", Shape::Folder, Err(Code::BadArgument));
    check("https://user:pw@example.com/a", Shape::File, Err(Code::BadArgument));
    check("https://other.blob.core.windows.net/c/p/q", Shape::Folder, Ok(("~azure", "other/c/p/q/")));
    check("https://acc.blob.core.windows.net/c/p/q", Shape::Folder, Ok(("~store.blob", "p/q/")));
    check("wasbs://c@acc.blob.core.windows.net/p", Shape::Folder, Ok(("~store.blob", "p/")));
    check("wasbs://c@other.blob.core.windows.net/p", Shape::File, Ok(("~azure", "other/c/p")));
    check("abfss://fs@lake.dfs.core.windows.net/p/", Shape::Folder, Ok(("~azure", "lake/fs/p/")));
    check("wasbs://nothing", Shape::Folder, Err(Code::BadArgument));
    check("s3://b/k", Shape::File, Ok(("~store.bucket", "k")));
    check("s3://public/k/", Shape::Folder, Ok(("~s3", "public/k/")));
    check("https://mapped.example/data/x.csv?sig=1", Shape::File, Ok(("~file", "copies/data/x.csv")));
    check("file:///srv/in/a%20b", Shape::Folder, Ok(("~file", "srv/in/a b/")));
    check("/srv/in/x", Shape::File, Ok(("~file", "srv/in/x")));
    check("/etc/passwd", Shape::File, Err(Code::BadArgument));
    check("/srv/in/../../etc/passwd", Shape::File, Err(Code::BadArgument));
    check("file://host/x", Shape::File, Err(Code::BadArgument));
    check("hdfs://n/x", Shape::File, Err(Code::NotSupported));
    check("just/a/path", Shape::File, Err(Code::BadArgument));
    let signed =
        read("https://acc.blob.core.windows.net/c/x.csv?sv=1&sig=a%2Fb", Shape::File, false).unwrap();
    assert_eq!(
        (signed.at.path.as_str(), signed.query.as_deref()),
        ("acc.blob.core.windows.net/c/x.csv", Some("sv=1&sig=a%2Fb"))
    );
}

#[test]
fn outputs_go_to_datastores() {
    let place = |uri: &str| read(uri, Shape::Folder, true).map(|found| (found.at.container, found.at.path));
    let at = |container: &str, path: &str| Ok((container.to_owned(), path.to_owned()));
    assert_eq!(place("azureml://datastores/workspaceblobstore/paths/x"), at("azureml-blobstore", "x/"));
    assert_eq!(place("azureml://datastores/bucket/paths/x"), at("~store.bucket", "x/"));
    assert_eq!(place("wasbs://c@acc.blob.core.windows.net/p"), at("~store.blob", "p/"));
    for uri in [
        "https://mapped.example/data/x",
        "https://example.com/x",
        "file:///srv/in/x",
        "azureml:d:1",
        "runs:/old/x",
        "s3://public/x",
        "azureml://datastores/here/paths/x",
    ] {
        assert_eq!(place(uri), Err(Code::BadArgument), "{uri}");
    }
}

#[test]
fn places_have_uris() {
    let at = |container: &str, path: &str| BlobPath {
        account: "neapst1".into(),
        container: container.into(),
        path: path.into(),
    };
    let long = |rest: &str| {
        format!("azureml://subscriptions/s1/resourcegroups/neap/workspaces/default/datastores/{rest}")
    };
    let workspace = sample_workspace();
    assert_eq!(uri_of(&workspace, &at("azureml-blobstore", "a/b/")), long("workspaceblobstore/paths/a/b/"));
    assert_eq!(uri_of(&workspace, &at("~store.lake", "a/b")), long("lake/paths/a/b"));
}
