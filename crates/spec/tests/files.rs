//! Data-driven checks of whole files: what the YAML says, and what goes on the wire or is refused.

use neap_spec::{
    Collection, Context, Defaults, Document, Error, Files, Preparation, Request, Scope, compute_request,
    job_request, schedule_request,
};
use serde_json::{Value, json};
use std::path::Path;

fn scope() -> Scope {
    Scope { subscription_id: "S".into(), resource_group: "R".into(), workspace: "W".into() }
}

const WS: &str = "/subscriptions/S/resourceGroups/R/providers/Microsoft.MachineLearningServices/workspaces/W";

struct Table;

impl Files for Table {
    fn read(&self, path: &Path) -> std::io::Result<String> {
        match path.to_str() {
            Some("dir/conda.yml") => Ok("dependencies: [python]\n".to_owned()),
            Some("dir/env.yml") => Ok("image: python:3.12\nname: e\nversion: 7\n".to_owned()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        !path.display().to_string().contains("nowhere")
    }
}

fn job(yaml: &str) -> Result<Request, Error> {
    let scope = scope();
    let context = Context { scope: &scope, folder: Path::new("dir"), files: &Table };
    job_request(&Document::parse(yaml)?, &context, &Defaults { name: "made_up", experiment: "here" })
}

#[track_caller]
fn check_compute(yaml: &str, expected: &Value) {
    let request = compute_request(&Document::parse(yaml).unwrap(), &scope()).unwrap();
    assert_eq!(request.body, *expected, "{yaml}");
}

#[track_caller]
fn check_refused(result: Result<impl Sized, Error>, expected: &[&str]) {
    let said = match result {
        Ok(_) => panic!("this should have been refused with {expected:?}"),
        Err(Error::Problems(problems)) => problems.iter().map(ToString::to_string).collect(),
        Err(other) => vec![other.to_string()],
    };
    assert_eq!(said, expected);
}

#[test]
fn the_least_cluster_gets_the_defaults_of_the_azure_client() {
    check_compute(
        "$schema: https://example/x.json\nname: c1\ntype: amlcompute\n",
        &json!({"properties": {"computeType": "AmlCompute", "disableLocalAuth": true, "properties": {
            "vmSize": "STANDARD_DS3_V2",
            "scaleSettings": {"maxNodeCount": 4, "minNodeCount": 0, "nodeIdleTimeBeforeScaleDown": "PT2M"},
            "remoteLoginPortPublicAccess": "NotSpecified", "enableNodePublicIp": true, "osType": "Linux"}}}),
    );
}

#[test]
fn every_field_of_a_cluster_reaches_the_wire() {
    check_compute(
        "name: c1\ntype: AmlCompute\nsize: Standard_NC6\ntier: LowPriority\nmin_instances: 1\nmax_instances: 0\n\
         idle_time_before_scale_down: 0\nlocation: West US\ntags: {a: 1, b: true}\ndescription: d\n\
         ssh_public_access_enabled: false\nenable_node_public_ip: false\n\
         ssh_settings: {admin_username: u, ssh_key_value: k}\n\
         network_settings: {vnet_name: v, subnet: s}\n\
         identity: {type: user_assigned, user_assigned_identities: [{resource_id: x}]}\n",
        &json!({"location": "West US", "tags": {"a": "1", "b": "True"},
          "identity": {"type": "UserAssigned", "userAssignedIdentities": {"x": {}}},
          "properties": {"computeType": "AmlCompute", "description": "d", "disableLocalAuth": false, "properties": {
            "vmSize": "Standard_NC6", "vmPriority": "LowPriority",
            "scaleSettings": {"maxNodeCount": 0, "minNodeCount": 1, "nodeIdleTimeBeforeScaleDown": "PT0S"},
            "subnet": {"id":
                "/subscriptions/S/resourceGroups/R/providers/Microsoft.Network/virtualNetworks/v/subnets/s"},
            "userAccountCredentials": {"adminUserName": "u", "adminUserSshPublicKey": "k"},
            "remoteLoginPortPublicAccess": "Disabled", "enableNodePublicIp": false, "osType": "Linux"}}}),
    );
}

#[test]
fn all_problems_of_a_cluster_are_said_at_once() {
    let yaml = "type: amlcompute\nmin_instance: 1\nmax_instances: many\ntier: low\nname: 12\n\
                idle_time_before_scale_down: -1\ncolour: red\nssh_settings: {admin_user: u}\n";
    let document = Document::parse(yaml).unwrap();
    let Err(Error::Problems(problems)) = compute_request(&document, &scope()) else {
        panic!("must be refused")
    };
    let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(said[0], "line 2: min_instance: unknown key; did you mean `min_instances`?");
    assert_eq!(said[1], "line 3: max_instances: must be a whole number, not the text `many`");
    assert_eq!(said[2], "line 4: tier: `low` is not one of dedicated, low_priority");
    assert_eq!(said[3], "line 5: name: must be text; put 12 in quotes");
    assert_eq!(said[4], "line 6: idle_time_before_scale_down: must be 0 or more, not -1");
    assert!(said[5].starts_with("line 7: colour: unknown key; the keys here are name, type"), "{}", said[5]);
    assert!(said[6].contains("ssh_settings.admin_user: unknown key; did you mean `admin_username`?"));
    assert_eq!(said[7], "line 8: ssh_settings.admin_username: required, and not given");
    assert_eq!(said.len(), 8);
}

#[test]
fn what_is_not_a_cluster_is_refused_in_one_sentence() {
    for kind in ["computeinstance", "virtualmachine", "kubernetes", "synapsespark", "toaster"] {
        let document = Document::parse(&format!("name: x\ntype: {kind}\n")).unwrap();
        let refusal = compute_request(&document, &scope()).unwrap_err();
        assert!(matches!(refusal, Error::NotSupported(_)), "{kind}");
        assert!(refusal.to_string().contains("amlcompute"), "{refusal}");
    }
}

#[test]
fn overrides_change_the_document() {
    let mut document = Document::parse("name: c1\ntype: amlcompute\nmax_instances: 2\n").unwrap();
    document.set_assignment("max_instances=7", false).unwrap();
    document.set_assignment("tags.team=vision", false).unwrap();
    let body = compute_request(&document, &scope()).unwrap().body;
    assert_eq!(body["properties"]["properties"]["scaleSettings"]["maxNodeCount"], 7);
    assert_eq!(body["tags"], json!({"team": "vision"}));
    assert!(document.set_assignment("no equals sign", false).is_err());
}

#[test]
fn a_whole_job_reaches_the_wire() {
    let request = job(
        "type: command\nname: j1\ndisplay_name: shown\nexperiment_name: exp\ndescription: d\n\
         command: python t.py --x ${{inputs.x}} --b ${{inputs.b}} --d ${{inputs.d}} > ${{outputs.o}}\n\
         code: ./src\nenvironment: azureml:e:3\ncompute: azureml:cpu\n\
         inputs: {x: 3, b: true, f: 0.5, s: text, d: {type: uri_file, path: ./data/a.csv, mode: download},\n\
         \x20 reg: {path: 'azureml:set:1'}, ds: {path: 'azureml://datastores/w/paths/p', mode: ro_mount}}\n\
         outputs: {o: , p: {mode: upload, type: uri_file, name: m, version: 2}}\n\
         resources: {instance_count: 2, shm_size: 4g, docker_args: [--a, --b], properties: {neap: {cpus: 1}}}\n\
         limits: {timeout: 3600}\ndistribution: {type: PyTorch, process_count_per_instance: 2}\n\
         queue_settings: {job_tier: Spot, priority: high}\n\
         services: {jl: {type: jupyter_lab, nodes: all}, ssh: {type: ssh, ssh_public_keys: k}}\n\
         identity: {type: managed, client_id: c}\ntags: {t: 1}\nenvironment_variables: {K: v, N: 1}\n",
    )
    .unwrap();
    let mut request = request;
    assert_eq!(
        request.preparations,
        [
            Preparation::Code { path: "dir/src".into(), includes: Vec::new() },
            Preparation::Data { path: "dir/data/a.csv".into() },
        ]
    );
    request.fill(0, "CODE");
    request.fill(1, "up/a.csv");
    assert_eq!(request.name, "j1");
    assert_eq!(
        request.body["properties"],
        json!({"jobType": "Command", "displayName": "shown", "experimentName": "exp", "description": "d",
          "command": "python t.py --x ${{inputs.x}} --b ${{inputs.b}} --d ${{inputs.d}} > ${{outputs.o}}",
          "codeId": "CODE",
          "environmentId": format!("{WS}/environments/e/versions/3"), "computeId": format!("{WS}/computes/cpu"),
          "inputs": {"x": {"jobInputType": "literal", "value": "3"}, "b": {"jobInputType": "literal", "value": "True"},
            "f": {"jobInputType": "literal", "value": "0.5"}, "s": {"jobInputType": "literal", "value": "text"},
            "d": {"jobInputType": "uri_file", "mode": "Download", "uri": "azureml://datastores/workspaceblobstore/paths/up/a.csv"},
            "reg": {"jobInputType": "uri_folder", "uri": format!("{WS}/data/set/versions/1")},
            "ds": {"jobInputType": "uri_folder", "mode": "ReadOnlyMount", "uri": "azureml://datastores/w/paths/p"}},
          "outputs": {"o": {"jobOutputType": "uri_folder"},
            "p": {"jobOutputType": "uri_file", "mode": "Upload", "assetName": "m", "assetVersion": "2"}},
          "resources": {"instanceCount": 2, "shmSize": "4g", "dockerArgs": "--a --b", "properties": {"neap": {"cpus": 1}}},
          "limits": {"jobLimitsType": "Command", "timeout": "PT1H"},
          "distribution": {"distributionType": "PyTorch", "processCountPerInstance": 2},
          "queueSettings": {"jobTier": "Spot", "priority": 3},
          "services": {"jl": {"jobServiceType": "JupyterLab", "nodes": {"nodesValueType": "All"}},
            "ssh": {"jobServiceType": "SSH", "properties": {"sshPublicKeys": "k"}}},
          "identity": {"identityType": "Managed", "clientId": "c"},
          "environmentVariables": {"K": "v", "N": "1"}, "tags": {"t": "1"}, "properties": {}, "isArchived": false})
    );
}

#[test]
fn environments_come_in_many_forms() {
    for (written, expected) in [
        ("azureml:e:1", format!("{WS}/environments/e/versions/1")),
        ("e:1", format!("{WS}/environments/e/versions/1")),
        ("azureml:AzureML-sklearn@latest", "azureml:AzureML-sklearn@latest".to_owned()),
        (
            "azureml://registries/azureml/environments/e/labels/latest",
            "azureml://registries/azureml/environments/e/labels/latest".to_owned(),
        ),
        ("azureml:/subscriptions/x", "/subscriptions/x".to_owned()),
    ] {
        let request = job(&format!("command: ls\nenvironment: {written}\n")).unwrap();
        assert_eq!(request.preparations, [], "{written}");
        assert_eq!(request.body["properties"]["environmentId"], expected, "{written}");
    }
    let mut request = job("command: ls\nenvironment: azureml:e@latest\n").unwrap();
    let latest = Preparation::Latest { collection: Collection::Environments, name: "e".into() };
    assert_eq!(request.preparations, [latest]);
    request.fill(0, "ID");
    assert_eq!(request.body["properties"]["environmentId"], "ID");

    let request = job("command: ls\nenvironment: {image: python, conda_file: conda.yml}\n").unwrap();
    let [Preparation::Register(inline)] = request.preparations.as_slice() else { panic!("inline") };
    assert_eq!((inline.collection, &inline.name), (Collection::Environments, &None));
    assert_eq!(
        inline.body["properties"],
        json!({"condaFile": "dependencies: [python]\n", "image": "python", "isAnonymous": true, "isArchived": false})
    );
    let request = job("command: ls\nenvironment: {build: {path: ctx, dockerfile_path: D}}\n").unwrap();
    let [Preparation::Context { path }, Preparation::Register(build)] = request.preparations.as_slice()
    else {
        panic!("a build context")
    };
    assert_eq!(path, Path::new("dir/ctx"));
    assert_eq!(build.body["properties"]["build"]["dockerfilePath"], "D");
    let request = job("command: ls\nenvironment: file:env.yml\n").unwrap();
    let [Preparation::Register(inline)] = request.preparations.as_slice() else { panic!("from a file") };
    assert_eq!((inline.name.as_deref(), inline.version.as_deref()), (Some("e"), Some("7")));
}

#[test]
fn all_problems_of_a_job_are_said_at_once() {
    check_refused(
        job(
            "command: echo ${{inputs.datta}} ${{outputs.x}}\nenvironment: {conda_file: nowhere.yml}\ncode: nowhere\n\
             inputs: {data: 1, d: {mode: sideways, path: x}, e: {type: uri_file}}\nlimits: {timeout: 0}\n\
             distribution: {type: torch}\n",
        ),
        &[
            "line 4: inputs.d.mode: `sideways` is not one of ro_mount, rw_mount, download, direct, eval_mount, \
             eval_download",
            "line 5: limits.timeout: must be 1 or more, not 0",
            "line 6: distribution.type: `torch` is not one of pytorch, mpi, tensorflow, ray; did you mean `pytorch`?",
            "line 1: command: ${{inputs.datta}} is not declared in `inputs`; did you mean `data`?",
            "line 1: command: ${{outputs.x}} is not declared in `outputs`",
            "line 3: code: dir/nowhere does not exist; relative paths count from the folder of the YAML file",
            "line 2: environment: an environment needs `image` or `build`",
            "line 4: inputs.e: needs a `path` (data) or a `value` (a literal)",
        ],
    );
    check_refused(
        job("type: command\n"),
        &["command: required, and not given", "environment: required, and not given"],
    );
    check_refused(
        job("command: ls\nenvironment: e\n"),
        &[
            "line 2: environment: `e` names no version; write azureml:NAME:VERSION or azureml:NAME@latest, or give an image inline (environment: {image: ...})",
        ],
    );
}

#[test]
fn other_jobs_are_refused_plainly() {
    for (yaml, word) in [
        ("trigger: {}\ncreate_job: x\n", "neap schedule create"),
        ("type: parallel\n", "a step of a pipeline"),
        ("type: automl\n", "automl jobs are not offered"),
        ("type: spark\n", "spark jobs are not offered"),
    ] {
        let refusal = job(yaml).unwrap_err();
        assert!(matches!(refusal, Error::NotSupported(_)) && refusal.to_string().contains(word), "{refusal}");
    }
}

/// The public examples are read where the reference folder stands beside the repository.
#[test]
#[allow(clippy::print_stderr)] // a skipped check says so
fn the_public_examples_are_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference/examples");
    let Ok(entries) = std::fs::read_dir(folder.join("compute")) else {
        eprintln!("skipped: {} is not here", folder.display());
        return;
    };
    for entry in entries.map(Result::unwrap) {
        let (name, text) = (entry.file_name(), std::fs::read_to_string(entry.path()).unwrap());
        let result = compute_request(&Document::parse(&text).unwrap(), &scope());
        assert_eq!(result.is_ok(), name.to_string_lossy().starts_with("cluster-"), "{name:?}: {result:?}");
    }
    for entry in std::fs::read_dir(folder.join("jobs")).unwrap().map(Result::unwrap) {
        let (name, text) = (entry.file_name(), std::fs::read_to_string(entry.path()).unwrap());
        job(&text).unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }
    let schedules = folder.join("schedules");
    let scope = scope();
    let context = Context { scope: &scope, folder: &schedules, files: &Disk };
    for entry in std::fs::read_dir(&schedules).unwrap().map(Result::unwrap) {
        let (name, text) = (entry.file_name(), std::fs::read_to_string(entry.path()).unwrap());
        let document = Document::parse(&text).unwrap();
        let result = if name.to_string_lossy().ends_with("-schedule.yml") {
            schedule_request(&document, &context)
        } else {
            job(&text)
        };
        result.unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }
}

struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}
