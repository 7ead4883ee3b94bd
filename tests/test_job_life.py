"""A job's life beside its run: tried again by cause, failing with a class and a next step, told where it came from, run again
the same, made of a component, and refused whole when something about it is wrong. By plain requests, by `neap`, by the SDK."""

import json
import os
import signal

import pytest
import yaml
from azure.ai.ml import Input, MLClient, command, load_job
from azure.core.exceptions import HttpResponseError

from neapserver import unique, wait_until

PYTHON = {"image": "library/python:latest"}


@pytest.fixture
def write(tmp_path):
    def write(name, body):
        path = tmp_path / name
        path.write_text(yaml.safe_dump(body, sort_keys=False))
        return path

    return write


def retry(**more):
    return {"instanceCount": 1, "properties": {"neap": {"cpus": 0.2, "retry": more}}}


SHARE = {"instanceCount": 1, "properties": {"neap": {"cpus": 0.2}}}
# What an earlier attempt left in the output is there again, so that an attempt knows its number.
COUNTS = "n=$(cat ${{outputs.o}}/n 2>/dev/null || echo 0); n=$((n+1)); echo $n > ${{outputs.o}}/n; echo attempt $n; [ $n -ge %d ] || exit 75"
OUT = {"o": {"jobOutputType": "uri_folder"}}


def provenance(server, name):
    return server.get(f"{server.nws()}/jobs/{name}/provenance")


def refused(server, name, body):
    """The problems of a job that is refused, by where they are; and nothing of it is there afterwards."""
    answer = server.http("PUT", f"{server.ws()}/jobs/{name}", body)
    assert answer.status_code in (400, 404, 409), answer.text
    assert server.http("GET", f"{server.ws()}/jobs/{name}").status_code == 404, "nothing is left behind"
    return json.dumps(answer.json())


# --- tried again ------------------------------------------------------------------------------------------------------


def test_an_exit_code_that_is_listed_is_tried_again_until_it_is_well(server, work_cluster):
    name = server.submit(work_cluster, COUNTS % 3, outputs=OUT, resources=retry(exit_codes=[75], max=5))
    server.wait_job(name, "Completed")
    job = server.job(name)
    assert job["properties"]["neap.attempt"] == "3"
    assert job["resources"]["properties"]["neap"]["retry"] == {"exit_codes": [75], "max": 5}, "it is shown as it was asked for"
    assert "attempt 3" in server.log(name)


def test_it_is_tried_as_often_as_was_asked_and_no_other_code_is(server, work_cluster):
    often = server.submit(work_cluster, "exit 75", resources=retry(exit_codes="75,137", max="2"))
    other = server.submit(work_cluster, "exit 3", resources=retry(exit_codes=[75], max=2))
    killed = server.submit(work_cluster, "kill -9 $$", resources=retry(exit_codes=[137], max=1))
    for name, attempts, said in [(often, "3", "It was tried 3 times."), (other, "1", "exit code 3."), (killed, "2", "It was tried 2 times.")]:
        server.wait_job(name, "Failed")
        job = server.job(name)
        assert (job["properties"]["neap.attempt"], job["properties"]["neap.failureClass"]) == (attempts, "user code"), job
        assert job["error"]["message"].endswith(said), job["error"]


def test_steps_and_trials_are_tried_again_too(server, work_cluster, write):
    neap = {"properties": {"neap": {"cpus": 0.2, "retry": {"exit_codes": [75], "max": 3}}}}
    out = {"o": {"type": "uri_folder"}}
    path = write("pipeline.yml", {
        "type": "pipeline", "settings": {"default_compute": f"azureml:{work_cluster}", "force_rerun": True},
        "jobs": {
            "plain": {"type": "command", "command": COUNTS % 2, "environment": PYTHON, "outputs": out, "resources": neap},
            "tries": {
                "type": "sweep", "trial": {"type": "command", "inputs": {"x": {"type": "integer"}}, "outputs": out, "environment": PYTHON, "resources": neap,
                                           "command": COUNTS % 2 + "; echo ${{inputs.x}}"},
                "search_space": {"x": {"type": "choice", "values": [1]}}, "sampling_algorithm": "grid",
                "objective": {"goal": "minimize", "primary_metric": "loss"}, "limits": {"max_total_trials": 1},
            },
        },
    })  # fmt: skip
    name = unique("pipe")
    server.cli("job", "create", "-f", path, "-n", name)
    wait_until(lambda: server.status(name) in ("Completed", "Failed"), "the pipeline ended", 120)
    steps = {row["display_name"]: row["name"] for row in server.json("job", "list", "-p", name)}
    trial = server.json("job", "list", "-p", steps["tries"])[0]["name"]
    for job in (steps["plain"], trial):
        told = provenance(server, job)
        assert (told["status"], told["attempt"]) == ("Completed", 2), told


def test_what_is_wrong_with_retry_is_said_at_once(server, work_cluster):
    server.environment_id()
    said = refused(server, unique("bad"), server.job_body(work_cluster, "true", resources=retry(exit_codes=[0], max=-1, node_lost="x", times=3)))
    for key in ("exit_codes", "max", "node_lost", "times"):
        assert f"neap.retry.{key}" in said, said


def test_a_job_that_must_not_run_twice_fails_when_its_node_is_lost(own_server, mark):
    server = own_server("lost")
    server.make_cluster("lost-cluster", 0, 1)
    job = server.submit("lost-cluster", "sleep 600", environmentVariables={"NEAP_TEST_MARK": mark}, resources=retry(node_lost=0))
    server.wait_job(job, "Running")
    [(agent, _)] = server.agents()
    os.kill(agent, signal.SIGKILL)
    server.wait_job(job, "Failed")
    told = server.job(job)
    assert told["error"]["code"] == "NodesLost" and told["properties"]["neap.failureClass"] == "system"
    assert told["error"]["message"].startswith("1 attempt was lost"), told["error"]


# --- failure class and next step ----------------------------------------------------------------------------------------


def test_a_failed_job_carries_one_class_and_a_next_step_wherever_it_is_shown(server, ml, work_cluster):
    name = server.submit(work_cluster, "exit 127", resources=SHARE)
    server.wait_job(name, "Failed")
    job = server.job(name)
    assert job["properties"]["neap.failureClass"] == "user code" and "was not found" in job["properties"]["neap.nextStep"]
    details = {detail["code"]: detail["message"] for detail in job["error"]["details"]}
    assert details == {"FailureClass": "user code", "NextStep": job["properties"]["neap.nextStep"]}
    shown = server.json("job", "show", "-n", name)
    assert (shown["failure_class"], shown["next_step"]) == ("user code", job["properties"]["neap.nextStep"])
    run = server.get(f"/history/v1.0{server.ws()}/runs/{name}")
    assert run["error"]["error"]["innerError"]["code"] == "user code"
    assert ml.jobs.get(name).status == "Failed", "the SDK reads it"


def test_an_environment_that_cannot_be_made_is_its_own_class_also_of_the_pipeline(server, work_cluster):
    environment = f"{server.ws()}/environments/{unique('broken')}/versions/1"
    server.put(environment, {"properties": {"condaFile": "name: x\ndependencies:\n- pip:\n  - --no-index\n  - neap-has-no-such-package\n"}})
    step = {"type": "command", "command": "true", "environment": environment, "resources": {"instance_count": 1, "properties": {"neap": {"cpus": 0.2}}}}
    name = unique("pipe")
    body = {"properties": {"jobType": "Pipeline", "settings": {"default_compute": f"{server.ws()}/computes/{work_cluster}"}, "jobs": {"a": step}}}
    server.put(f"{server.ws()}/jobs/{name}", body)
    server.wait_job(name, "Failed", 120)
    job = server.job(name)
    assert job["properties"]["neap.failureClass"] == "environment", job
    child = server.get(f"/history/v1.0{server.ws()}/runs/{name}/children")["value"][0]
    assert child["error"]["error"]["innerError"]["code"] == "environment" and child["error"]["error"]["details"][0]["message"]
    # The SDK reads no pipeline with steps in place, which only plain HTTPS can submit: it would stumble over it in a list.
    assert server.http("DELETE", f"{server.ws()}/jobs/{name}").status_code in (200, 202, 204)


# --- provenance, and the same again -------------------------------------------------------------------------------------


@pytest.fixture
def traced(server, work_cluster, write, tmp_path):
    """A job with code, an environment by label, data by label, and a value."""
    code = tmp_path / "src"
    code.mkdir(exist_ok=True)
    (code / "main.py").write_text("import sys\nprint('read', open(sys.argv[1]).read(), sys.argv[2])\n")
    data, env = unique("words"), unique("env")
    (tmp_path / "words.txt").write_text("first")
    server.cli("data", "create", "-f", write("data.yml", {"name": data, "version": "1", "type": "uri_file", "path": "./words.txt"}))
    server.cli("environment", "create", "-f", write("env.yml", {"name": env, "version": "1", **PYTHON}))
    path = write("job.yml", {
        "type": "command", "command": "python main.py ${{inputs.words}} ${{inputs.n}}", "code": "./src", "environment": f"azureml:{env}@latest",
        "compute": f"azureml:{work_cluster}", "inputs": {"words": {"type": "uri_file", "path": f"azureml:{data}@latest"}, "n": 3},
        "resources": {"instance_count": 1, "properties": {"neap": {"cpus": 0.2}}},
    })  # fmt: skip
    name = unique("traced")
    server.cli("job", "create", "-f", path, "-n", name)
    server.wait_job(name, "Completed")
    return {"name": name, "data": data, "env": env}


def test_provenance_is_kept_with_the_job(server, traced, work_cluster):
    told = server.json("job", "show", "-n", traced["name"], "--provenance")
    assert told == provenance(server, traced["name"])
    assert told["code"]["source"].startswith("azureml:") and len(told["code"]["hash"]) == 64
    assert told["code"]["content"]["files"] == 1 and told["code"]["content"]["digest"]
    assert told["environment"]["source"] == f"azureml:{traced['env']}:1" and told["environment"]["image"] == PYTHON["image"]
    assert told["inputs"]["words"]["source"] == f"azureml:{traced['data']}:1"
    assert (told["inputs"]["words"]["content"]["files"], told["inputs"]["words"]["content"]["bytes"]) == (1, 5)
    assert told["inputs"]["n"] == {"value": "3"}
    assert told["nodes"] and told["nodes"][0].startswith("n-") and told["cluster"]["name"] == work_cluster
    assert told["cluster"]["revision"] >= 1
    versions = told["versions"]
    assert versions["neap"] and versions["agent"] == versions["neap"] and versions["python"].startswith("3.")
    assert told["times"]["submitted"] <= told["times"]["started"] <= told["times"]["ended"]
    assert not any(key.startswith("provenance") for key in server.job(traced["name"])["properties"])


def test_a_job_is_run_again_with_what_it_was_made_of_then(server, traced, write, tmp_path):
    (tmp_path / "words.txt").write_text("second, and longer")
    server.cli("data", "create", "-f", write("data.yml", {"name": traced["data"], "version": "2", "type": "uri_file", "path": "./words.txt"}))
    server.cli("environment", "create", "-f", write("env.yml", {"name": traced["env"], "version": "2", "image": "library/other:1"}))
    again = unique("again")
    server.cli("job", "create", "--from", traced["name"], "-n", again)
    server.wait_job(again, "Completed")
    first, second = provenance(server, traced["name"]), provenance(server, again)
    for key in ("code", "environment", "inputs"):
        assert first[key] == second[key], key
    assert "read first 3" in server.log(again)


def test_labels_that_the_server_resolves_are_pinned_too(server, traced):
    name, again = unique("label"), unique("again")
    kept = server.job(traced["name"])
    body = {"properties": {key: kept[key] for key in ("jobType", "command", "codeId", "computeId", "inputs", "resources")}}
    body["properties"]["environmentId"] = f"azureml:{traced['env']}@latest"
    body["properties"]["inputs"]["words"]["uri"] = f"azureml:{traced['data']}@latest"
    server.put(f"{server.ws()}/jobs/{name}", body)
    server.wait_job(name, "Completed")
    assert provenance(server, name)["environment"]["source"] == f"azureml:{traced['env']}:1"
    server.put(f"{server.ws()}/environments/{traced['env']}/versions/2", {"properties": {"image": "library/other:1"}})
    server.cli("job", "create", "--from", name, "-n", again)
    server.wait_job(again, "Completed")
    assert provenance(server, again)["environment"] == provenance(server, name)["environment"]
    assert provenance(server, again)["inputs"] == provenance(server, name)["inputs"]


def test_the_revision_of_the_cluster_is_the_one_that_was_in_force(server, cluster):
    name = cluster(high=1)
    before = server.submit(name, "true", resources=SHARE)
    server.wait_job(before, "Completed")
    server.make_cluster(name, high=2)
    after = server.submit(name, "true", resources=SHARE)
    server.wait_job(after, "Completed")
    first, second = (provenance(server, job)["cluster"]["revision"] for job in (before, after))
    assert second == first + 1


# --- identity, components, secrets --------------------------------------------------------------------------------------


def test_what_an_identity_does_not_do_here_is_said(server, work_cluster):
    for kind, said in [("AMLToken", None), ("UserIdentity", "does not act as its submitter"), ("Managed", "no tokens of a managed identity")]:
        command = 'test -n "$AZUREML_RUN_TOKEN" && echo has a token'
        name = server.submit(work_cluster, command, identity={"identityType": kind}, resources=SHARE)
        server.wait_job(name, "Completed")
        assert server.job(name)["identity"]["identityType"] == kind
        log = server.log(name)
        assert "has a token" in log and ("identity:" in log) == (said is not None), log
        assert said is None or said in log
    assert "identity 'Robot' is not known" in refused(server, unique("bad"), server.job_body(work_cluster, "true", identity={"identityType": "Robot"}))


def test_a_job_of_a_component_is_made_of_it(server, work_cluster):
    server.environment_id()
    name = unique("comp")
    component = f"{server.ws()}/components/{name}/versions/1"
    spec = {"name": name, "version": "1", "type": "command", "command": "echo $WORD ${{inputs.n}} | tee ${{outputs.o}}/said", "environment": f"azureml:{server.ws()}/environments/plain/versions/1",
            "environment_variables": {"WORD": "from-the-component"}, "inputs": {"n": {"type": "integer", "default": 3, "max": 9}}, "outputs": {"o": {"type": "uri_folder"}}}  # fmt: skip
    server.put(component, {"properties": {"componentSpec": spec}})
    body = {"properties": {"jobType": "Command", "componentId": component, "computeId": f"{server.ws()}/computes/{work_cluster}", "resources": SHARE}}
    job = unique("of")
    server.put(f"{server.ws()}/jobs/{job}", body)
    server.wait_job(job, "Completed")
    assert "from-the-component 3" in server.log(job)
    assert provenance(server, job)["component"] == f"azureml:{name}:1"
    server.put(f"{server.ws()}/jobs/{job}", body)
    body["properties"]["inputs"] = {"n": {"jobInputType": "literal", "value": "12"}, "m": {"jobInputType": "literal", "value": "1"}}
    said = refused(server, unique("bad"), body)
    assert "at most 9" in said and "no input 'm'" in said, said
    again = server.http("PUT", f"{server.ws()}/jobs/{job}", body)
    assert again.status_code == 409 and "inputs" in again.text, again.text


def test_secrets_of_a_key_vault_are_refused_in_words(server, work_cluster):
    server.environment_id()
    secrets = {"key": {"uri": "https://vault.example/secrets/key"}}
    assert "key vault" in refused(server, unique("bad"), server.job_body(work_cluster, "true", secretsConfiguration=secrets))


# --- refused whole ------------------------------------------------------------------------------------------------------


def test_every_problem_of_a_job_is_listed(server, work_cluster):
    body = server.job_body(
        work_cluster,
        "echo ${{inputs.nope}}",
        environmentId=f"{server.ws()}/environments/there-is-none/versions/7",
        codeId=f"{server.ws()}/codes/there-is-none/versions/1",
        computeId=f"{server.ws()}/computes/no-cluster",
        inputs={
            "gone": {"jobInputType": "uri_file", "uri": "azureml://datastores/workspaceblobstore/paths/not/there.csv"},
            "odd": {"jobInputType": "uri_cube", "uri": "azureml:x:1"},
            "asset": {"jobInputType": "uri_folder", "uri": "azureml:no-such-data:3"},
        },
        limits={"jobLimitsType": "Command", "timeout": "soon"},
        distribution={"distributionType": "Horovod"},
    )
    said = refused(server, unique("bad"), body)
    for part in ("inputs.nope", "there-is-none", "codeId", "no-cluster", "not/there.csv", "uri_cube", "no-such-data", "timeout", "horovod"):
        assert part in said, (part, said)


def test_conda_packages_that_nobody_knows_are_refused_by_name(server, work_cluster, tmp_path):
    environment = f"{server.ws()}/environments/{unique('odd')}/versions/1"
    server.put(environment, {"properties": {"condaFile": "name: x\ndependencies:\n- numpy\n- neap-odd-package=1.0\n- another-odd-one\n"}})
    for body in (
        server.job_body(work_cluster, "true", environmentId=environment),
        {"properties": {"jobType": "Pipeline", "settings": {"default_compute": f"{server.ws()}/computes/{work_cluster}"}, "jobs": {
            "a": {"type": "command", "command": "true", "environment": environment}}}},
        sweep_body(server, work_cluster, environmentId=environment),
    ):  # fmt: skip
        said = refused(server, unique("bad"), body)
        assert "neap-odd-package=1.0, another-odd-one" in said, said


def sweep_body(server, work_cluster, inputs=None, **trial):
    plain = f"{server.ws()}/environments/plain/versions/1"
    return {"properties": {
        "jobType": "Sweep", "computeId": f"{server.ws()}/computes/{work_cluster}", "inputs": inputs or {},
        "trial": {"command": "echo ${{search_space.x}}", "environmentId": plain, **trial},
        "searchSpace": {"x": ["choice", [[1, 2]]]}, "samplingAlgorithm": {"samplingAlgorithmType": "Grid"},
        "objective": {"goal": "minimize", "primaryMetric": "loss"}, "limits": {"jobLimitsType": "Sweep", "maxTotalTrials": 2, "maxConcurrentTrials": 1},
    }}  # fmt: skip


def test_a_sweep_and_a_parallel_step_look_for_their_inputs_when_submitted(server, work_cluster):
    server.environment_id()
    gone = {"jobInputType": "uri_folder", "uri": "azureml://datastores/workspaceblobstore/paths/not/there/"}
    said = refused(server, unique("bad"), sweep_body(server, work_cluster, {"gone": gone}, command="echo ${{search_space.y}} ${{inputs.gone}}"))
    assert "not/there" in said and "search_space.y" in said, said
    step = {
        "type": "parallel", "mini_batch_size": "1", "input_data": "${{inputs.gone}}", "inputs": {"gone": {"job_input_type": "uri_folder", "uri": gone["uri"]}},
        "task": {"type": "run_function", "entry_script": "x.py", "environment": f"azureml:{server.ws()}/environments/plain/versions/1"},
    }  # fmt: skip
    body = {"properties": {"jobType": "Pipeline", "settings": {"default_compute": f"{server.ws()}/computes/{work_cluster}"}, "jobs": {"p": step}}}
    assert "not/there" in refused(server, unique("bad"), body)


def test_a_pipeline_is_refused_whole(server, work_cluster):
    plain = f"{server.ws()}/environments/plain/versions/1"
    server.environment_id()
    end = lambda step: {"job_input_type": "literal", "value": "${{parent.jobs.%s.outputs.o}}" % step}  # noqa: E731
    step = lambda **more: {"type": "command", "command": "true", "environment": plain, "outputs": {"o": {"job_output_type": "uri_folder"}}, **more}  # noqa: E731
    name = unique("bad")
    body = {"properties": {"jobType": "Pipeline", "settings": {"default_compute": f"{server.ws()}/computes/{work_cluster}"}, "jobs": {
        "a": step(inputs={"x": end("b")}), "b": step(inputs={"x": end("a")}),
        "c": step(command="echo ${{inputs.none}}"), "d": step(environment=f"{server.ws()}/environments/there-is-none/versions/1"),
        "e": {"type": "if_else", "condition": "${{parent.jobs.a.outputs.o}}", "true_block": "${{parent.jobs.c}}"},
        "f": {"type": "do_while", "body": "${{parent.jobs.c}}", "limits": {"max_iteration_count": 3}},
        "g": {"type": "parallel_for", "body": "${{parent.jobs.c}}", "items": "[1]"},
    }}}  # fmt: skip
    said = refused(server, name, body)
    for part in ("circle", "inputs.none", "there-is-none", "if_else", "do_while", "parallel_for", "is not offered yet"):
        assert part in said, (part, said)
    listed = {job["name"] for job in server.json("job", "list", "--all-results")}
    assert not any(job.startswith(name) for job in listed), "no step is left behind"


def test_a_used_name_with_another_definition_is_refused_with_what_differs(server, work_cluster):
    name = server.submit(work_cluster, "echo one", resources=SHARE)
    server.wait_job(name, "Completed")
    answer = server.http("PUT", f"{server.ws()}/jobs/{name}", server.job_body(work_cluster, "echo two", resources=SHARE, limits={"timeout": "PT9S"}))
    assert answer.status_code == 409 and "command, limits" in answer.text, answer.text
    assert server.job(name)["command"] == "echo one"


def test_the_command_line_says_every_problem_of_a_file_before_anything_is_sent(server, work_cluster, write):
    before = {job["name"] for job in server.json("job", "list", "--all-results")}
    path = write("bad.yml", {
        "type": "command", "command": "echo ${{inputs.nope}}", "code": "./not-there", "environment": PYTHON, "compute": f"azureml:{work_cluster}",
        "inputs": {"file": {"type": "uri_file", "path": "./gone.csv"}, "odd": {"type": "uri_cube", "path": "x"}}, "limits": {"timeout": "soon"},
    })  # fmt: skip
    done = server.cli("job", "create", "-f", path, check=False)
    assert done.returncode == 2, done.stderr
    for part in ("nope", "not-there", "gone.csv", "uri_cube", "timeout"):
        assert part in done.stderr, (part, done.stderr)
    assert {job["name"] for job in server.json("job", "list", "--all-results")} == before


def test_the_sdk_hears_every_problem(ml: MLClient, server, work_cluster):
    gone = Input(type="uri_file", path="azureml://datastores/workspaceblobstore/paths/not/there.csv")
    job = command(
        command="cat ${{inputs.gone}}", environment="there-is-none:7", compute="no-cluster", inputs={"gone": gone}, name=unique("bad"), experiment_name="x"
    )
    with pytest.raises(HttpResponseError) as told:
        ml.jobs.create_or_update(job)
    said = str(told.value)
    assert "no-cluster" in said or "there-is-none" in said, said
    assert server.http("GET", f"{server.ws()}/jobs/{job.name}").status_code == 404


def test_the_sdk_passes_retry_on_as_it_is_written(ml, server, work_cluster, write):
    path = write("retry.yml", {
        "$schema": "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json", "command": "exit 75", "environment": PYTHON,
        "compute": f"azureml:{work_cluster}", "resources": {"instance_count": 1, "properties": {"neap": {"cpus": 0.2, "retry": {"exit_codes": [75], "max": 1}}}},
    })  # fmt: skip
    job = load_job(path)
    job.name, job.experiment_name = unique("retry"), "x"
    sent = ml.jobs.create_or_update(job)
    server.wait_job(sent.name, "Failed")
    assert server.job(sent.name)["properties"]["neap.attempt"] == "2"


# --- members of families ------------------------------------------------------------------------------------------------


def test_members_know_their_root_and_their_parent(server, ml, work_cluster, write):
    name = unique("pipe")
    path = write("pipeline.yml", {
        "type": "pipeline", "settings": {"default_compute": f"azureml:{work_cluster}", "force_rerun": True},
        "jobs": {"only": {"command": "echo root=$AZUREML_ROOT_RUN_ID run=$AZUREML_RUN_ID", "environment": PYTHON,
                          "resources": {"properties": {"neap": {"cpus": 0.2}}}}},
    })  # fmt: skip
    server.cli("job", "create", "-f", path, "-n", name)
    server.wait_job(name, "Completed", 120)
    child = server.get(f"/history/v1.0{server.ws()}/runs/{name}/children")["value"][0]["runId"]
    assert f"root={name} run={child}" in server.log(child)
    run = server.get(f"/mlflow/v1.0{server.ws()}/api/2.0/mlflow/runs/get?run_id={child}")["run"]
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    assert (tags["mlflow.parentRunId"], tags["mlflow.rootRunId"]) == (name, name)


def test_the_best_trial_is_what_is_downloaded_of_a_sweep(server, work_cluster, write, tmp_path):
    name = unique("sweep")
    path = write("sweep.yml", {
        "type": "sweep", "compute": f"azureml:{work_cluster}", "sampling_algorithm": "grid", "search_space": {"x": {"type": "choice", "values": [2, 1]}},
        "objective": {"goal": "minimize", "primary_metric": "loss"}, "limits": {"max_total_trials": 2, "max_concurrent_trials": 2},
        "trial": {"environment": PYTHON, "code": "./src", "command": "python log.py ${{search_space.x}}"},
        "resources": {"properties": {"neap": {"cpus": 0.2}}},
    })  # fmt: skip
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "log.py").write_text(
        "import json, os, pathlib, sys, time, urllib.request\n"
        "body = {'run_id': os.environ['MLFLOW_RUN_ID'], 'key': 'loss', 'value': float(sys.argv[1]), 'timestamp': int(time.time() * 1000), 'step': 0}\n"
        "request = urllib.request.Request(os.environ['MLFLOW_TRACKING_URI'] + '/api/2.0/mlflow/runs/log-metric', json.dumps(body).encode(),\n"
        "    {'Authorization': 'Bearer ' + os.environ['MLFLOW_TRACKING_TOKEN'], 'Content-Type': 'application/json'})\n"
        "urllib.request.urlopen(request).read()\n"
        "pathlib.Path('outputs').mkdir(exist_ok=True)\n"
        "pathlib.Path('outputs/x.txt').write_text(sys.argv[1])\n"
    )
    server.cli("job", "create", "-f", path, "-n", name)
    server.wait_job(name, "Completed", 120)
    server.cli("job", "download", "-n", name, "-p", tmp_path / "got")
    found = list((tmp_path / "got" / "artifacts").rglob("x.txt"))
    assert [path.read_text() for path in found] == ["1"], sorted((tmp_path / "got").rglob("*"))


def test_a_forced_trigger_has_the_time_it_was_asked_for(server, work_cluster, write):
    name = unique("sched")
    job = {"type": "command", "command": "echo at ${{inputs.at}}", "inputs": {"at": "${{creation_context.trigger_time}}"}, "environment": PYTHON, "compute": f"azureml:{work_cluster}",
           "resources": {"properties": {"neap": {"cpus": 0.2}}}}  # fmt: skip
    path = write("schedule.yml", {"name": name, "trigger": {"type": "cron", "expression": "0 0 1 1 *", "time_zone": "UTC"}, "create_job": job})
    server.cli("schedule", "create", "-f", path)
    try:
        made = server.json("schedule", "trigger", "-n", name)["job_name"]
        server.wait_job(made, "Completed")
        assert "at 20" in server.log(made), server.log(made)
    finally:
        server.cli("schedule", "delete", "-n", name, "--yes", check=False)
