"""Batch endpoints: made, called and deleted with the SDK and with `neap`; each call a parallel job whose rows are whole.
And models by `neap model`, which deployments stand on."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from azure.ai.ml import Input, Output, load_batch_deployment, load_batch_endpoint, load_component
from azure.ai.ml.constants._endpoint import EndpointInvokeFields
from azure.ai.ml.entities import (
    BatchEndpoint,
    BatchRetrySettings,
    CodeConfiguration,
    Environment,
    Model,
    ModelBatchDeployment,
    ModelBatchDeploymentSettings,
    PipelineComponentBatchDeployment,
)
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from neapserver import ROOT, unique

CODE = Path(__file__).parent / "jobs" / "batch"
MLFLOW = ROOT / ".venv-test" / "mlflow" / "bin" / "python"
PYTHON = {"image": "library/python:latest"}


def folder(path, count, **special):
    path.mkdir(parents=True)
    for n in range(1, count + 1):
        (path / f"f{n}.txt").write_text(f"ok{n}\n")
    for name, word in special.items():
        (path / f"{name}.txt").write_text(word + "\n")
    return path


@pytest.fixture(autouse=True)
def no_deployment_from_before():
    """The SDK keeps the deployment of the last call in a dictionary of its own, and sends it with every later call of the process."""
    EndpointInvokeFields.DEFAULT_HEADER.pop(EndpointInvokeFields.MODEL_DEPLOYMENT, None)


@pytest.fixture(scope="module")
def model(ml, tmp_path_factory):
    at = tmp_path_factory.mktemp("m") / "model"
    at.mkdir()
    (at / "word.txt").write_text("deep\n")
    return ml.models.create_or_update(Model(name=unique("net"), path=str(at)))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("d") / "files", 7)


@pytest.fixture(scope="module")
def deploy(ml, work_cluster, model, mark):
    """Makes deployments of the scoring script."""

    def deploy(endpoint, name, variables=None, model=model, resources=1, **settings):
        made = ModelBatchDeployment(
            name=name,
            endpoint_name=endpoint,
            model=model,
            code_configuration=CodeConfiguration(code=str(CODE), scoring_script="score.py"),
            environment=Environment(image="library/python:latest"),
            compute=work_cluster,
            settings=ModelBatchDeploymentSettings(
                environment_variables={"NEAP_TEST_MARK": mark, **(variables or {})},
                **{"mini_batch_size": 2, "instance_count": resources, "max_concurrency_per_instance": 1, "retry_settings": BatchRetrySettings(max_retries=1, timeout=30), **settings},
            ),
        )
        return ml.batch_deployments.begin_create_or_update(made).result()

    return deploy


@pytest.fixture(scope="module")
def scores(ml, deploy):
    """An endpoint with two deployments, the first of them its default."""
    name = unique("scores")
    ml.batch_endpoints.begin_create_or_update(BatchEndpoint(name=name, description="d", tags={"a": "1"})).result()
    deploy(name, "v1", resources=2)
    deploy(name, "v2", variables={"SAY": "two"}, output_file_name="two.txt")
    endpoint = ml.batch_endpoints.get(name)
    endpoint.defaults = {"deployment_name": "v1"}
    ml.batch_endpoints.begin_create_or_update(endpoint).result()
    return name


def rows(server, job, file="predictions.csv"):
    found = server.output(job, "score", file) or server.output(f"{job}_batchscoring", "score", file)
    return [line.split() for line in found.decode().splitlines()]


# --- with the SDK -----------------------------------------------------------------------------------------------------


def test_an_endpoint_is_made_changed_listed_and_deleted(ml):
    name = unique("ep")
    made = ml.batch_endpoints.begin_create_or_update(BatchEndpoint(name=name, description="first", tags={"a": "1"})).result()
    assert (made.name, made.provisioning_state, made.auth_mode, made.tags) == (name, "Succeeded", "aad_token", {"a": "1"})
    assert made.scoring_uri.endswith(f"/batchEndpoints/{name}/jobs")
    made.description = "second"
    ml.batch_endpoints.begin_create_or_update(made).result()
    shown = ml.batch_endpoints.get(name)
    assert (shown.description, shown.defaults) == ("second", None)
    assert name in [endpoint.name for endpoint in ml.batch_endpoints.list()]
    ml.batch_endpoints.begin_delete(name).result()
    assert name not in [endpoint.name for endpoint in ml.batch_endpoints.list()]
    with pytest.raises(ResourceNotFoundError, match="batch endpoint"):
        ml.batch_endpoints.get(name)


def test_a_call_runs_every_file_once(ml, server, scores, data, tmp_path, capfd):
    shown = ml.batch_deployments.get("v1", scores)
    assert (shown.provisioning_state, shown.mini_batch_size, shown.output_action, shown.error_threshold) == ("Succeeded", 2, "append_row", -1)
    assert sorted(deployment.name for deployment in ml.batch_deployments.list(scores)) == ["v1", "v2"]
    job = ml.batch_endpoints.invoke(endpoint_name=scores, deployment_name="v1", input=Input(type="uri_folder", path=str(data)))
    assert job.name.startswith("batchjob-") and job.status
    ml.jobs.stream(job.name)
    whole = ml.jobs.get(job.name)
    assert (whole.type, whole.status, whole.experiment_name) == ("pipeline", "Completed", scores)
    steps = list(ml.jobs.list(parent_job_name=job.name))
    assert [step.display_name for step in steps] == ["batchscoring"]
    ml.jobs.download(steps[0].name, download_path=tmp_path, output_name="score")
    lines = (tmp_path / "named-outputs" / "score" / "predictions.csv").read_text().splitlines()
    assert lines == [f"f{n}.txt deep ok{n}" for n in range(1, 8)]
    workers = list(ml.jobs.list(parent_job_name=steps[0].name))
    assert len(workers) == 2, "instance_count"
    logs = "".join(server.log(worker.name) for worker in workers)
    assert "model at model/word.txt" in logs
    assert logs.count(": 2 in, 2 out") == 3 and logs.count(": 1 in, 1 out") == 1, logs


def test_the_default_deployment_is_switched(ml, server, scores, data):
    endpoint = ml.batch_endpoints.get(scores)
    assert endpoint.defaults.deployment_name == "v1"
    endpoint.defaults.deployment_name = "v2"
    ml.batch_endpoints.begin_create_or_update(endpoint).result()
    job = ml.batch_endpoints.invoke(endpoint_name=scores, inputs={"files": Input(type="uri_folder", path=str(data))}, experiment_name="other")
    server.wait_job(job.name, "Completed", 120)
    assert server.job(job.name)["experimentName"] == "other"
    assert rows(server, job.name, "two.txt") == [[f"f{n}.txt", "two", f"ok{n}"] for n in range(1, 8)]
    assert job.name in [listed.name for listed in ml.batch_endpoints.list_jobs(scores)]
    listed = {listed.name: listed.status for listed in ml.batch_deployments.list_jobs(scores, name="v2")}
    assert listed[job.name] == "Completed"
    assert job.name not in [listed.name for listed in ml.batch_deployments.list_jobs(scores, name="v1")]
    endpoint.defaults.deployment_name = "v1"
    ml.batch_endpoints.begin_create_or_update(endpoint).result()


def test_a_call_says_some_things_otherwise(ml, server, scores, data):
    name = unique("said")
    place = f"azureml://datastores/workspaceblobstore/paths/own/{name}/here.txt"
    job = ml.batch_endpoints.invoke(
        endpoint_name=scores,
        deployment_name="v1",
        inputs={"one": Input(type="uri_file", path=str(data / "f3.txt"))},
        outputs={"score": Output(type="uri_file", path=place)},
        params_override=[{"job_name": name}, {"mini_batch_size": 1}, {"compute.instance_count": 1}],
    )
    assert job.name == name
    server.wait_job(name, "Completed", 120)
    store = server.get(f"{server.ws()}/datastores/workspaceblobstore")["properties"]
    written = server.session.get(
        f"https://{store['accountName']}.blob.core.windows.net/{store['containerName']}/own/{name}/here.txt",
        headers={"Authorization": f"Bearer {server.token()}"},
        verify=server.vars["REQUESTS_CA_BUNDLE"],
        timeout=30,
    )
    assert written.text == "f3.txt deep ok3\n"
    assert len(server.json("job", "list", "--parent-job-name", f"{name}_batchscoring")) == 1


def test_files_of_a_summary_and_a_model_that_is_one_file(ml, server, scores, deploy, tmp_path):
    (tmp_path / "word.txt").write_text("flat\n")
    single = ml.models.create_or_update(Model(name=unique("single"), path=str(tmp_path / "word.txt")))
    deploy(scores, "files", model=single, variables={"WRITE_FILES": "1"}, output_action="summary_only", logging_level="debug")
    assert ml.batch_deployments.get("files", scores).output_action == "summary_only"
    files = folder(tmp_path / "files", 2)
    job = ml.batch_endpoints.invoke(endpoint_name=scores, deployment_name="files", input=Input(type="uri_folder", path=str(files))).name
    server.wait_job(job, "Completed", 120)
    assert server.output(f"{job}_batchscoring", "score", "f2.txt.out") == b"flat ok2\n"
    assert server.output(f"{job}_batchscoring", "score", "predictions.csv") is None
    ml.batch_deployments.begin_delete("files", scores).result()
    assert "files" not in [deployment.name for deployment in ml.batch_deployments.list(scores)]


def test_too_many_bad_files_fail_the_job(ml, server, scores, deploy, tmp_path):
    deploy(scores, "strict", mini_batch_size=1, error_threshold=0, retry_settings=BatchRetrySettings(max_retries=0, timeout=30))
    files = folder(tmp_path / "files", 2, g1="bad")
    job = ml.batch_endpoints.invoke(endpoint_name=scores, deployment_name="strict", input=Input(type="uri_folder", path=str(files))).name
    server.wait_job(job, "Failed", 120)
    assert "ValueError: g1.txt is bad" in server.log(job)
    allowed = ml.batch_endpoints.invoke(
        endpoint_name=scores, deployment_name="strict", input=Input(type="uri_folder", path=str(files)), params_override=[{"error_threshold": 1}]
    ).name
    server.wait_job(allowed, "Completed", 120)
    assert [row[0] for row in rows(server, allowed)] == ["f1.txt", "f2.txt"]


def test_a_pipeline_component_behind_an_endpoint(ml, server, work_cluster, data, tmp_path, mark):
    step = {
        "type": "command", "command": "ls ${{inputs.data}} | sed 's/^/${{inputs.word}} /' > ${{outputs.rows}}/names.txt", "environment": PYTHON,
        "environment_variables": {"NEAP_TEST_MARK": mark},
        "inputs": {"data": "${{parent.inputs.data}}", "word": "${{parent.inputs.word}}"}, "outputs": {"rows": "${{parent.outputs.rows}}"},
    }  # fmt: skip
    (tmp_path / "names.yml").write_text(yaml.safe_dump({
        "type": "command", "name": "names", "command": step["command"], "environment": PYTHON,
        "inputs": {"data": {"type": "uri_folder"}, "word": {"type": "string"}}, "outputs": {"rows": {"type": "uri_folder"}},
    }))  # fmt: skip
    whole = {
        "type": "pipeline", "name": unique("pipe").replace("-", "_"), "version": "1",
        "inputs": {"data": {"type": "uri_folder"}, "word": {"type": "string", "default": "file"}, "extra": {"type": "integer", "optional": True}},
        "outputs": {"rows": {"type": "uri_folder"}},
        "jobs": {"list": {"type": "command", "component": "./names.yml", "inputs": step["inputs"], "outputs": step["outputs"]}},
    }  # fmt: skip
    (tmp_path / "pipe.yml").write_text(yaml.safe_dump(whole))
    component = ml.components.create_or_update(load_component(tmp_path / "pipe.yml"))
    endpoint = unique("pipes")
    ml.batch_endpoints.begin_create_or_update(BatchEndpoint(name=endpoint)).result()
    made = PipelineComponentBatchDeployment(name="names", endpoint_name=endpoint, component=component, settings={"default_compute": work_cluster})
    ml.batch_deployments.begin_create_or_update(made).result()
    assert ml.batch_deployments.get("names", endpoint).name == "names"
    server.http("PATCH", f"{server.ws()}/batchEndpoints/{endpoint}", {"properties": {"defaults": {"deploymentName": "names"}}})
    assert ml.batch_endpoints.get(endpoint).defaults.deployment_name == "names"
    job = ml.batch_endpoints.invoke(
        endpoint_name=endpoint, inputs={"data": Input(type="uri_folder", path=str(data)), "word": Input(type="string", default="is")}
    ).name
    server.wait_job(job, "Completed", 120)
    assert ml.jobs.get(job).type == "pipeline"
    found = server.output(f"{job}_list", "rows", "names.txt") or server.output(job, "rows", "names.txt")
    assert found.decode().splitlines() == [f"is f{n}.txt" for n in range(1, 8)]
    with pytest.raises(HttpResponseError) as refused:
        ml.batch_endpoints.invoke(endpoint_name=endpoint, inputs={"odd": Input(type="string", default="x")})
    for words in ["The input 'data' of the pipeline has no value", "no 'odd' among its inputs"]:
        assert words in str(refused.value), refused.value
    ml.batch_endpoints.begin_delete(endpoint).result()
    assert server.status(job) == "Completed", "jobs stay"


@pytest.mark.skipif(not MLFLOW.exists(), reason="the MLflow environment of these suites is not there (make test makes it)")
def test_an_mlflow_model_needs_no_script(own_server, mark, tmp_path):
    program = """
import mlflow, sys
class Twice(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [2 * x for x in model_input['x']]
mlflow.pyfunc.save_model(sys.argv[1], python_model=Twice())
"""
    done = subprocess.run([str(MLFLOW), "-c", program, str(tmp_path / "twice")], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    server = own_server(start=False)
    # The client's environment is not the system's: its packages are seen without isolation only.
    server.home.joinpath("config.yaml").write_text("local: {isolation: off}\n")
    server.up()
    server.make_cluster("cpu", 0, 1, "PT1M")
    server.cli("model", "create", "-n", "twice", "--path", tmp_path / "twice", "--type", "mlflow_model")
    environment = server.environment_id()
    server.cli("batch-endpoint", "create", "-n", "doubles")
    at = f"{server.ws()}/batchEndpoints/doubles/deployments/"
    model = {"referenceType": "Id", "assetId": f"{server.ws()}/models/twice/versions/1"}
    variables = {"NEAP_TEST_MARK": mark, "PATH": f"{MLFLOW.parent}:/usr/bin:/bin", "GIT_PYTHON_REFRESH": "quiet"}
    server.put(at + "plain", {"properties": {"model": model, "compute": "azureml:cpu", "environmentId": environment, "environmentVariables": variables}})
    server.put(at + "own", {"properties": {"model": model, "compute": "azureml:cpu"}})
    shown = server.get(at + "own")["properties"]
    assert "codeConfiguration" not in shown and "environmentId" not in shown, "what Neap made is not the user's"
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "a.csv").write_text("x\n1\n2\n")
    (tables / "b.csv").write_text("x\n5\n")
    job = server.json("batch-endpoint", "invoke", "-n", "doubles", "--deployment-name", "plain", "--input", tables)["name"]
    server.wait_job(job, "Completed", 180)
    assert rows(server, job) == [["0", "2", "a.csv"], ["1", "4", "a.csv"], ["0", "10", "b.csv"]]


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_everything_wrong_with_a_deployment_is_said_at_once(server, scores):
    ws = server.ws()
    body = {
        "properties": {
            "model": {"referenceType": "Id", "assetId": f"{ws}/models/nosuch/versions/1"},
            "compute": f"{ws}/computes/nosuch",
            "codeConfiguration": {"codeId": f"{ws}/codes/nosuch/versions/1", "scoringScript": "score.py"},
            "environmentId": f"{ws}/environments/nosuch/versions/1",
            "miniBatchSize": 0,
            "outputFileName": "a/b",
        }
    }
    answer = server.http("PUT", f"{ws}/batchEndpoints/{scores}/deployments/a_b", body)
    assert answer.status_code == 400, answer.text
    said = {(detail["target"] or "").removeprefix("properties."): detail["message"] for detail in answer.json()["error"]["details"]}
    assert set(said) == {"name", "model.assetId", "compute", "codeConfiguration.codeId", "environmentId", "miniBatchSize", "outputFileName"}, said
    assert "'nosuch' was not found" in said["compute"]
    assert server.http("GET", f"{ws}/batchEndpoints/{scores}/deployments/a_b").status_code == 404, "nothing is left of it"


def test_a_script_that_is_not_in_the_code_and_a_model_without_one(server, scores, model):
    ws = server.ws()
    kept = server.get(f"{ws}/batchEndpoints/{scores}/deployments/v1")
    kept["properties"]["codeConfiguration"]["scoringScript"] = "nosuch.py"
    answer = server.http("PUT", f"{ws}/batchEndpoints/{scores}/deployments/v3", kept)
    assert answer.status_code == 400 and "'nosuch.py' is not in the code" in answer.text
    assert answer.json()["error"]["target"] == "properties.codeConfiguration.scoringScript"
    del kept["properties"]["codeConfiguration"]
    answer = server.http("PUT", f"{ws}/batchEndpoints/{scores}/deployments/v3", kept)
    assert answer.status_code == 400 and "only an MLflow model" in answer.text


def test_wrong_calls(ml, server, scores, deploy):
    path = f"{server.ws()}/batchEndpoints/{scores}/jobs"
    before = len(ml.batch_endpoints.list_jobs(scores))
    nothing = {"jobInputType": "UriFolder", "uri": "azureml://datastores/workspaceblobstore/paths/nosuch/"}
    answer = server.http("POST", path, {"properties": {"inputData": {"a": nothing}, "miniBatchSize": -1, "wings": 2, "name": "a b"}})
    assert answer.status_code == 400, answer.text
    targets = {detail["target"] for detail in answer.json()["error"]["details"]}
    assert targets == {"properties.inputData", "properties.miniBatchSize", "properties.wings", "name"}, answer.text
    assert "There is nothing at 'nosuch'" in answer.text
    answer = server.http("POST", path, {"properties": {"inputData": {"a": nothing}}}, headers={"azureml-model-deployment": "nosuch"})
    assert answer.status_code == 404 and "it has v1, v2" in answer.text
    answer = server.http("POST", path, {})
    assert answer.status_code == 400 and "needs an input" in answer.text
    assert len(ml.batch_endpoints.list_jobs(scores)) == before
    empty = unique("none")
    server.put(f"{server.ws()}/batchEndpoints/{empty}", {"properties": {"authMode": "aadToken"}})
    answer = server.http("POST", f"{server.ws()}/batchEndpoints/{empty}/jobs", {"properties": {"inputData": {"a": nothing}}})
    assert answer.status_code == 400 and "no default deployment" in answer.text
    with pytest.raises(HttpResponseError, match="no deployment 'v9' that could be its default"):
        ml.batch_endpoints.begin_create_or_update(BatchEndpoint(name=empty, defaults={"deployment_name": "v9"})).result()
    assert server.http("POST", f"{server.ws()}/batchEndpoints/{empty}/listkeys").status_code == 400
    assert server.http("PUT", f"{server.ws()}/batchEndpoints/x", {"properties": {}}).status_code == 400
    assert server.http("PUT", f"{server.ws()}/batchEndpoints/nosuch/deployments/v1", {"properties": {}}).status_code == 404


def test_the_same_call_again_is_the_same_job(server, scores, data):
    asset = server.json("data", "create", "-n", unique("files"), "--path", data, "--type", "uri_folder")
    uri = f"{server.ws()}/data/{asset['name']}/versions/{asset['version']}"
    body = {"properties": {"inputData": {"a": {"jobInputType": "UriFolder", "uri": uri}}}}
    once = unique("9f0e")
    first = server.http("POST", f"{server.ws()}/batchEndpoints/{scores}/jobs", body, headers={"repeatability_request-id": once})
    second = server.http("POST", f"{server.ws()}/batchEndpoints/{scores}/jobs", body, headers={"repeatability_request-id": once})
    assert (first.status_code, second.status_code) == (201, 201), first.text + second.text
    assert first.json()["name"] == second.json()["name"] == f"batchjob-{once}"
    server.wait_job(f"batchjob-{once}", "Completed", 120)
    assert len(rows(server, f"batchjob-{once}")) == 7


def test_endpoints_survive_a_killed_server_and_what_is_deleted_stays_so(own_server):
    server = own_server()
    path = f"{server.ws()}/batchEndpoints/lasting"
    made = server.put(path, {"tags": {"a": "1"}, "properties": {"description": "d"}})
    server.put(f"{server.ws()}/batchEndpoints/gone", {"properties": {}})
    assert server.http("DELETE", f"{server.ws()}/batchEndpoints/gone").status_code == 200
    assert server.http("DELETE", f"{server.ws()}/batchEndpoints/gone").status_code == 204
    server.kill()
    server.up()
    assert server.get(path) == made
    assert [endpoint["name"] for endpoint in server.get(f"{server.ws()}/batchEndpoints")["value"]] == ["lasting"]


# --- with `neap` ------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path, work_cluster, mark):
    """An endpoint's and a deployment's file, as `az ml` reads them."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "word.txt").write_text("local\n")
    endpoint = unique("cli")
    (tmp_path / "endpoint.yml").write_text(yaml.safe_dump({"name": endpoint, "description": "from a file", "auth_mode": "aad_token", "tags": {"a": "1"}}))
    (tmp_path / "deployment.yml").write_text(yaml.safe_dump({
        "name": "v1", "endpoint_name": endpoint, "type": "model", "model": {"path": "./model"}, "compute": f"azureml:{work_cluster}",
        "code_configuration": {"code": str(CODE), "scoring_script": "score.py"}, "environment": PYTHON, "resources": {"instance_count": 1},
        "settings": {"mini_batch_size": 3, "max_concurrency_per_instance": 1, "output_action": "append_row", "output_file_name": "rows.csv",
                     "retry_settings": {"max_retries": 1, "timeout": 30}, "error_threshold": -1, "logging_level": "info",
                     "environment_variables": {"NEAP_TEST_MARK": mark}},
    }))  # fmt: skip
    return endpoint, tmp_path


def test_the_whole_life_by_commands(server, written, data, tmp_path):
    endpoint, at = written
    made = server.json("batch-endpoint", "create", "-f", at / "endpoint.yml")
    assert (made["name"], made["provisioning_state"], made["tags"]) == (endpoint, "Succeeded", {"a": "1"})
    deployed = server.json("batch-deployment", "create", "-f", at / "deployment.yml", "--set-default")
    assert (deployed["name"], deployed["mini_batch_size"], deployed["output_file_name"]) == ("v1", 3, "rows.csv")
    assert server.json("batch-endpoint", "show", "-n", endpoint)["defaults"] == {"deployment_name": "v1"}
    done = server.cli("batch-endpoint", "invoke", "-n", endpoint, "--input", data, "--job-name", unique("run"), "--stream")
    assert "Completed" in done.stderr, done.stdout + done.stderr
    listed = server.json("batch-endpoint", "list-jobs", "-n", endpoint)
    assert [(job["status"], job["deployment"]) for job in listed] == [("Completed", "v1")]
    job = listed[0]["name"]
    assert rows(server, job, "rows.csv") == [[f"f{n}.txt", "local", f"ok{n}"] for n in range(1, 8)]
    server.cli("job", "download", "-n", f"{job}_batchscoring", "--output-name", "score", "-p", tmp_path / "down")
    assert [path.name for path in (tmp_path / "down").rglob("*") if path.is_file()] == ["rows.csv"]
    changed = server.json("batch-deployment", "update", "-n", "v1", "-e", endpoint, "--set", "mini_batch_size=7", "description=changed")
    assert (changed["mini_batch_size"], changed["description"]) == (7, "changed")
    shown = server.json("batch-deployment", "show", "-n", "v1", "-e", endpoint)
    assert shown["code_configuration"]["scoring_script"] == "score.py" and shown["retry_settings"] == {"max_retries": 1, "timeout": 30}
    assert [row["name"] for row in server.json("batch-deployment", "list", "-e", endpoint)] == ["v1"]
    updated = server.json("batch-endpoint", "update", "-n", endpoint, "--set", "tags.b=2")
    assert updated["tags"] == {"a": "1", "b": "2"} and updated["defaults"] == {"deployment_name": "v1"}
    again = server.json("batch-endpoint", "invoke", "-n", endpoint, "--input", data, "-m", "1", "--set", "output_file_name=one.csv")["name"]
    server.wait_job(again, "Completed", 120)
    assert len(rows(server, again, "one.csv")) == 7
    assert len(server.json("batch-deployment", "list-jobs", "-n", "v1", "-e", endpoint)) == 2
    server.cli("batch-deployment", "delete", "-n", "v1", "-e", endpoint, "--yes")
    assert server.json("batch-endpoint", "show", "-n", endpoint).get("defaults") is None, "nothing is left to be the default"
    server.cli("batch-endpoint", "delete", "-n", endpoint, "--yes")
    assert endpoint not in [row["name"] for row in server.json("batch-endpoint", "list")]
    assert server.status(job) == "Completed"
    refused = server.cli("batch-endpoint", "invoke", "-n", endpoint, "--input", data, check=False)
    assert refused.returncode != 0 and "was not found" in refused.stderr


def test_the_sdk_reads_the_same_files(ml, server, written, data):
    endpoint, at = written
    ml.batch_endpoints.begin_create_or_update(load_batch_endpoint(at / "endpoint.yml")).result()
    # The SDK reads the older form, with the settings at the top.
    older = yaml.safe_load((at / "deployment.yml").read_text())
    settings = older.pop("settings")
    del older["type"]
    (at / "older.yml").write_text(yaml.safe_dump({**older, **settings}))
    ml.batch_deployments.begin_create_or_update(load_batch_deployment(at / "older.yml")).result()
    job = ml.batch_endpoints.invoke(endpoint_name=endpoint, deployment_name="v1", input=Input(type="uri_folder", path=str(data))).name
    server.wait_job(job, "Completed", 120)
    assert [row[1] for row in rows(server, job, "rows.csv")] == ["local"] * 7
    ml.batch_endpoints.begin_delete(endpoint).result()


def test_models_by_commands(server, tmp_path):
    at = tmp_path / "net"
    (at / "deep").mkdir(parents=True)
    (at / "weights.bin").write_bytes(b"\0\1\2")
    (at / "deep" / "more.txt").write_text("more\n")
    name = unique("net")
    made = server.json("model", "create", "-n", name, "--version", "1", "--path", at, "--type", "custom_model", "--description", "d")
    assert (made["name"], made["version"], made["type"], made["description"]) == (name, "1", "custom_model", "d")
    (tmp_path / "model.yml").write_text(yaml.safe_dump({"name": name, "version": "2", "path": "./net/weights.bin", "tags": {"stage": "good"}}))
    server.cli("model", "create", "-f", tmp_path / "model.yml")
    assert sorted(row["version"] for row in server.json("model", "list", "-n", name)) == ["1", "2"]
    assert name in [row["name"] for row in server.json("model", "list")]
    assert server.json("model", "show", "-n", name, "--version", "2")["tags"] == {"stage": "good"}
    assert server.json("model", "show", "-n", name, "--label", "latest")["version"] == "2"
    server.cli("model", "archive", "-n", name, "--version", "1")
    assert [row["version"] for row in server.json("model", "list", "-n", name)] == ["2"]
    server.cli("model", "restore", "-n", name, "--version", "1")
    assert sorted(row["version"] for row in server.json("model", "list", "-n", name)) == ["1", "2"]
    server.cli("model", "archive", "-n", name)
    assert name not in [row["name"] for row in server.json("model", "list")]
    server.cli("model", "restore", "-n", name)
    server.cli("model", "download", "-n", name, "--version", "1", "-p", tmp_path / "down")
    found = {str(path.relative_to(tmp_path / "down" / name)): path.read_bytes() for path in (tmp_path / "down").rglob("*") if path.is_file()}
    assert {Path(path).name: content for path, content in found.items()} == {"weights.bin": b"\0\1\2", "more.txt": b"more\n"}, found
    server.cli("model", "download", "-n", name, "--version", "2", "-p", tmp_path / "single")
    assert [path.read_bytes() for path in (tmp_path / "single").rglob("*") if path.is_file()] == [b"\0\1\2"]
    other = server.cli("model", "create", "-n", name, "--version", "1", "--path", tmp_path / "model.yml", check=False)
    assert other.returncode != 0 and "never changes" in other.stderr
    assert json.loads(server.cli("model", "update", "-n", name, "--version", "1", "--set", "tags.x=1", "-o", "json").stdout)["tags"] == {"x": "1"}
