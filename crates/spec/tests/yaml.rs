//! The project's own YAML files under `tests/yaml`, which use every field: each is accepted, whole.

use neap_spec::{
    Context, Defaults, Document, Error, Files, Request, Scope, batch_deployment_request,
    batch_endpoint_request, component_request, data_request, datastore_request, environment_request,
    job_request, model_request, schedule_request,
};
use std::collections::BTreeSet;
use std::path::Path;

struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

fn request(kind: &str, document: &Document, context: &Context<'_>) -> Option<Result<Request, Error>> {
    Some(match kind {
        "command" | "sweep" | "pipeline" => {
            job_request(document, context, &Defaults { name: "made_up", experiment: "here" })
        }
        "schedule" => schedule_request(document, context),
        "component" => component_request(document, context),
        "environment" => environment_request(document, context),
        "data" => data_request(document, context),
        "model" => model_request(document, context),
        "datastore" => datastore_request(document, context),
        "endpoint" => batch_endpoint_request(document, context),
        "deployment" => batch_deployment_request(document, context),
        _ => return None,
    })
}

#[test]
fn every_file_is_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/yaml");
    let scope = Scope { subscription_id: "S".into(), resource_group: "R".into(), workspace: "W".into() };
    let context = Context { scope: &scope, folder: &folder, files: &Disk };
    let mut kinds = BTreeSet::new();
    let mut refused = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((kind, _)) = name.split_once('-').filter(|_| name.ends_with(".yml")) else { continue };
        let document = Document::parse(&std::fs::read_to_string(entry.path()).unwrap()).unwrap();
        match request(kind, &document, &context) {
            Some(Ok(_)) => {
                kinds.insert(kind.to_owned());
            }
            Some(Err(error)) => refused.push(format!("{name}: {error}")),
            None => refused.push(format!("{name}: no kind of file begins with `{kind}-`")),
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert_eq!(kinds.len(), 11, "{kinds:?}");
}
