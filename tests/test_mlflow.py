"""MLflow's own client: inside jobs with nothing but what the agent sets, and from outside with `eval "$(neap env)"`."""

import json
import subprocess
from pathlib import Path

import pytest
import requests

from neapserver import ROOT, new_home, remove, unique, wait_until

CLIENT = ROOT / ".venv-test" / "mlflow" / "bin" / "python"
JOBS = Path(__file__).parent / "jobs" / "tracker"


@pytest.fixture(scope="module")
def tracked(mark):
    """A server whose jobs see this checkout's MLflow: without isolation, since the client's environment is not the system's."""
    from neapserver import Server

    home = new_home("mlflow")
    home.joinpath("config.yaml").write_text("local: {isolation: off}\n")
    server = Server(home)
    server.up()
    server.compute = unique("ml")
    server.make_cluster(server.compute, 0, 1, "PT1M")
    yield server
    server.down()
    server.assert_nothing_left(mark)
    remove(home)


def submit(server, mark, line, **more):
    # MLflow takes MLFLOW_RUN_ID out of the environment when it has attached to the run.
    return server.submit(server.compute, f"export MLFLOW_RUN_ID_SEEN=$MLFLOW_RUN_ID; {line}", environmentVariables={"NEAP_TEST_MARK": mark, "GIT_PYTHON_REFRESH": "quiet"}, **more)


def outside(server, program, check=True, **variables):
    """Runs a program with the real client in a shell that has what `neap env` prints; gives what it printed last, as JSON."""
    env = {**server.environment(), **server.vars, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "GIT_PYTHON_REFRESH": "quiet", **variables}
    env = {name: value for name, value in env.items() if value is not None}
    done = subprocess.run([str(CLIENT), "-c", "import json, mlflow\nfrom mlflow import MlflowClient\n" + program], env=env, capture_output=True, text=True, timeout=180, cwd=server.home)
    if check:
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{server.tail()}"
        return json.loads(done.stdout.strip().splitlines()[-1])
    return done


def tracking(server, path, method="GET", workspace=None, token=None, **kwargs):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    url = f"{server.url}/mlflow/v1.0{server.ws(workspace=workspace)}/api/2.0/mlflow/{path}"
    return requests.request(method, url, headers=headers, verify=server.vars["REQUESTS_CA_BUNDLE"], timeout=30, **kwargs)


@pytest.fixture(scope="module")
def logged(tracked, mark):
    """A job that logged something of every kind, and has ended."""
    job = submit(tracked, mark, f"{CLIENT} {JOBS}/log.py", experimentName="tides")
    tracked.wait_job(job, "Completed", 120)
    return job


# --- inside a job -----------------------------------------------------------------------------------------------------


def test_a_job_logs_with_nothing_but_its_variables(tracked, logged):
    said = json.loads(tracked.log(logged).strip().splitlines()[-1])
    assert said["run"] == logged
    answer = tracked.get(f"{tracked.nws()}/jobs/{logged}/metrics")
    last = {m["name"]: (m["value"], m["step"], m["points"]) for m in answer["metrics"]}
    assert last == {"loss": (0.2, 4, 5), "accuracy": (0.75, 4, 1), "odd": ("NaN", 4, 1)}
    assert answer["params"] == {"rate": "0.5", "layers": "3", "kind": "tree"}
    assert answer["tags"]["team"] == "tide"
    history = tracked.get(f"{tracked.nws()}/jobs/{logged}/metrics?metric=loss")["history"]
    assert [p["value"] for p in history] == [1.0, 0.5, 1 / 3, 0.25, 0.2]


def test_the_command_line_and_history_show_it(tracked, logged):
    shown = tracked.json("job", "show", "-n", logged)
    assert shown["metrics"]["loss"] == 0.2 and shown["params"]["kind"] == "tree"
    table = tracked.cli("job", "metrics", "-n", logged, "-o", "table").stdout
    assert "accuracy" in table and "0.75" in table
    assert [p["step"] for p in tracked.json("job", "metrics", "-n", logged, "--metric", "loss")] == [0, 1, 2, 3, 4]
    missing = tracked.cli("job", "metrics", "-n", logged, "--metric", "none", check=False)
    assert missing.returncode != 0 and "logged no metric 'none'" in missing.stderr
    run = tracked.get(f"/history/v1.0{tracked.ws()}/runs/{logged}")
    assert run["metrics"]["accuracy"] == 0.75 and run["parameters"]["rate"] == "0.5"
    quiet = tracked.submit(tracked.compute, "true")
    tracked.wait_job(quiet, "Completed")
    assert "metrics" not in tracked.json("job", "show", "-n", quiet)


def test_the_job_is_the_run(tracked, logged):
    seen = outside(tracked, f"""
client = MlflowClient()
run = client.get_run({logged!r})
experiment = client.get_experiment_by_name('tides')
children = mlflow.search_runs([experiment.experiment_id], filter_string="tags.mlflow.parentRunId = '{logged}'", output_format='list')
files = sorted(f.path for f in client.list_artifacts({logged!r}))
text = open(client.download_artifacts({logged!r}, 'notes/note.txt')).read()
kept = open(mlflow.artifacts.download_artifacts(artifact_uri='runs:/{logged}/outputs/kept.txt')).read()
folder = mlflow.artifacts.download_artifacts(run_id={logged!r}, artifact_path='config')
print(json.dumps(dict(status=run.info.status, end=run.info.end_time, start=run.info.start_time, params=run.data.params, same=run.info.experiment_id == experiment.experiment_id,
    tags=run.data.tags, children=[(c.info.run_name, c.data.metrics, c.info.status) for c in children], files=files, text=text, kept=kept,
    config=json.load(open(folder + '/settings.json')))))
""")
    assert seen["status"] == "FINISHED" and seen["end"] >= seen["start"] and seen["same"]
    assert seen["params"]["layers"] == "3"
    assert seen["tags"]["team"] == "tide" and seen["tags"]["mlflow.source.type"] == "JOB"
    assert seen["children"] == [["child", {"loss": 9.0}, "FINISHED"]]
    assert {"notes", "config", "outputs", "user_logs"} <= set(seen["files"])
    assert (seen["text"], seen["kept"], seen["config"]) == ("from the job\n", "by the agent\n", {"a": 1})


def test_autolog_of_scikit_learn(tracked, mark):
    job = submit(tracked, mark, f"{CLIENT} {JOBS}/autolog.py")
    tracked.wait_job(job, "Completed", 240)
    assert f"run {job}" in tracked.log(job)
    seen = outside(tracked, f"""
import mlflow.sklearn
client = MlflowClient()
run = client.get_run({job!r})
model = mlflow.sklearn.load_model(f'models:/{{run.outputs.model_outputs[0].model_id}}') if run.outputs.model_outputs else mlflow.sklearn.load_model('runs:/{job}/model')
try:
    client.create_registered_model('m')
    refused = None
except Exception as e:
    refused = str(e)
print(json.dumps(dict(params=run.data.params, metrics=run.data.metrics, predicted=[int(n) for n in model.predict([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]])],
    datasets=[d.dataset.name for d in run.inputs.dataset_inputs], refused=refused)))
""")
    assert seen["params"]["C"] == "0.7" and seen["params"]["max_iter"] == "200"
    assert seen["metrics"]["training_accuracy_score"] > 0.9
    assert seen["predicted"] == [0, 2] and seen["datasets"]
    assert "registry is not offered" in seen["refused"]


def test_an_isolated_job_reaches_the_endpoint(server, work_cluster, mark):
    """What the agent sets is right in a namespace too, where the data folder cannot be seen: checked with the host's Python alone."""
    program = (
        "import json,os,ssl,urllib.request as u;e=os.environ;"
        "r=u.Request(e['MLFLOW_TRACKING_URI']+'/api/2.0/mlflow/runs/log-metric',"
        "json.dumps({'run_id':e['MLFLOW_RUN_ID'],'key':'depth','value':7.5,'timestamp':1,'step':2}).encode(),"
        "{'Authorization':'Bearer '+e['MLFLOW_TRACKING_TOKEN'],'Content-Type':'application/json'});"
        "c=ssl.create_default_context(cafile=e['REQUESTS_CA_BUNDLE']);print(u.urlopen(r,context=c).status, len(c.get_ca_certs())>1)"
    )
    job = server.submit(work_cluster, f'python3 -c "{program}"', environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, "Completed")
    assert "200 True" in server.log(job)
    assert server.get(f"{server.nws()}/jobs/{job}/metrics")["metrics"][0]["value"] == 7.5


# --- from outside -----------------------------------------------------------------------------------------------------


def test_runs_from_outside(tracked):
    seen = outside(tracked, """
mlflow.set_experiment('outside')
ids = []
for n in range(3):
    with mlflow.start_run(run_name=f'r{n}') as run:
        mlflow.log_param('n', n)
        mlflow.log_metric('score', n / 10)
        mlflow.set_tag('even', str(n % 2 == 0))
        ids.append(run.info.run_id)
client = MlflowClient()
experiment = client.get_experiment_by_name('outside').experiment_id
def found(filter, **more):
    return [r.info.run_name for r in mlflow.search_runs([experiment], filter_string=filter, output_format='list', **more)]
failures = {}
for name, call in dict(
    changed=lambda: client.log_param(ids[0], 'n', 'other'),
    missing=lambda: client.get_run('nobody'),
    grammar=lambda: found("metrics.score = 'x'"),
    taken=lambda: client.create_experiment('outside'),
).items():
    try: call(); failures[name] = None
    except Exception as e: failures[name] = [getattr(e, 'error_code', None), str(e)]
first = client.search_runs([experiment], max_results=2, order_by=['params.n ASC'])
second = client.search_runs([experiment], max_results=2, order_by=['params.n ASC'], page_token=first.token)
client.delete_run(ids[0]); gone = found(''); client.restore_run(ids[0])
client.rename_experiment(experiment, 'renamed'); renamed = client.get_experiment(experiment).name
default = mlflow.start_run(experiment_id='0').info.experiment_id; mlflow.end_run()
print(json.dumps(dict(all=found(''), best=found("metrics.score > 0.05 and tags.even = 'True'"), order=found('', order_by=['metrics.score DESC']),
    failures=failures, pages=[[r.data.params['n'] for r in first], [r.data.params['n'] for r in second]], gone=gone, renamed=renamed,
    default=client.get_experiment(default).name, statuses=[client.get_run(i).info.status for i in ids])))
""")
    assert sorted(seen["all"]) == ["r0", "r1", "r2"]
    assert seen["best"] == ["r2"] and seen["order"] == ["r2", "r1", "r0"]
    assert seen["failures"]["changed"][0] == "INVALID_PARAMETER_VALUE" and "'n'" in seen["failures"]["changed"][1]
    assert seen["failures"]["missing"][0] == "RESOURCE_DOES_NOT_EXIST"
    assert seen["failures"]["grammar"][0] == "INVALID_PARAMETER_VALUE"
    assert seen["failures"]["taken"][0] == "RESOURCE_ALREADY_EXISTS"
    assert seen["pages"] == [["0", "1"], ["2"]]
    assert sorted(seen["gone"]) == ["r1", "r2"] and seen["renamed"] == "renamed"
    assert seen["default"] == "Default" and set(seen["statuses"]) == {"FINISHED"}


def test_a_hundred_thousand_points(tracked):
    """In batches, as a client sends them: all are there, and the server's memory does not follow them."""
    before = tracked.get("/neap/v1/status")["resident_bytes"]
    seen = outside(tracked, """
from mlflow.entities import Metric
client = MlflowClient()
run = client.create_run('0').info.run_id
for batch in range(100):
    client.log_batch(run, [Metric('wave', (batch * 1000 + n) % 97, 1_000_000 + batch * 1000 + n, batch * 1000 + n) for n in range(1000)])
history = client.get_metric_history(run, 'wave')
print(json.dumps(dict(run=run, count=len(history), steps=len({p.step for p in history}), last=client.get_run(run).data.metrics['wave'])))
""")
    assert (seen["count"], seen["steps"], seen["last"]) == (100_000, 100_000, 99_999 % 97)
    grown = tracked.get("/neap/v1/status")["resident_bytes"] - before
    assert grown < 96 << 20, f"the server grew by {grown >> 20} MiB"


def test_a_large_file_goes_up_in_parts(tracked, tmp_path):
    big = tmp_path / "big.bin"
    big.write_bytes(bytes(range(256)) * (12 << 12))
    seen = outside(tracked, f"""
import hashlib
with mlflow.start_run() as run:
    mlflow.log_artifact({str(big)!r}, 'deep/er')
got = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path='deep/er/big.bin')
print(json.dumps(hashlib.sha256(open(got, 'rb').read()).hexdigest()))
""", MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD="true", MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE=str(5 << 20), MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE=str(5 << 20))
    import hashlib

    assert seen == hashlib.sha256(big.read_bytes()).hexdigest()


# --- who is let in ----------------------------------------------------------------------------------------------------


def test_without_a_token_nobody_is_let_in(tracked):
    done = outside(tracked, "MlflowClient().search_experiments()", check=False, MLFLOW_TRACKING_USERNAME=None, MLFLOW_TRACKING_PASSWORD=None)
    assert done.returncode != 0 and "UNAUTHENTICATED" in done.stderr
    done = outside(tracked, "MlflowClient().search_experiments()", check=False, MLFLOW_TRACKING_PASSWORD="wrong")
    assert done.returncode != 0 and "UNAUTHENTICATED" in done.stderr
    for token in (None, "rubbish", "a.b.c"):
        answer = tracking(tracked, "experiments/search", token=token)
        assert answer.status_code == 401 and answer.json()["error_code"] == "UNAUTHENTICATED", answer.text
    assert tracking(tracked, "experiments/search", token=tracked.token()).status_code == 200


def test_a_jobs_token_is_for_its_workspace_and_its_attempt(tracked, mark, tmp_path):
    place = tmp_path / "token"
    tracked.put(tracked.ws(workspace="second"), {"location": "eastus", "properties": {}})
    body = tracked.job_body(tracked.compute, f'printf %s "$MLFLOW_TRACKING_TOKEN" > {place}.new; mv {place}.new {place}; while [ -e {place} ]; do sleep 0.05; done', environmentVariables={"NEAP_TEST_MARK": mark})
    job = unique("job")
    tracked.put(f"{tracked.ws()}/jobs/{job}", body)
    wait_until(place.exists, "the job has said its token")
    token = place.read_text()
    entry = {"run_id": job, "key": "x", "value": 1.0, "timestamp": 1, "step": 0}
    assert tracking(tracked, "runs/log-metric", "POST", token=token, json=entry).status_code == 200
    other = tracking(tracked, "runs/create", "POST", workspace="second", token=token, json={"experiment_id": "0"})
    assert other.status_code == 403 and other.json()["error_code"] == "PERMISSION_DENIED", other.text
    for path in (tracked.ws(), f"/history/v1.0{tracked.ws()}/runs/{job}", "/neap/v1/status"):
        answer = requests.get(f"{tracked.url}{path}?api-version=2024-10-01", headers={"Authorization": f"Bearer {token}"}, verify=tracked.vars["REQUESTS_CA_BUNDLE"])
        assert answer.status_code == 401, (path, answer.status_code)
    place.unlink()
    tracked.wait_job(job, "Completed")
    late = tracking(tracked, "runs/log-metric", "POST", token=token, json=entry)
    assert late.status_code == 401 and "expired" in late.json()["message"], late.text


def test_what_is_not_offered_is_said(tracked):
    for path in ("registered-models/search", "model-versions/get", "traces"):
        answer = tracking(tracked, path, token=tracked.token())
        assert answer.status_code == 501 and answer.json()["error_code"] == "NOT_IMPLEMENTED", answer.text
    answer = tracking(tracked, "nothing/here", token=tracked.token())
    assert answer.status_code == 404 and answer.json()["error_code"] == "ENDPOINT_NOT_FOUND"


# --- what survives ----------------------------------------------------------------------------------------------------


def test_acknowledged_points_survive_kill_9(own_server, mark):
    server = own_server("mlkill", start=False)
    server.home.joinpath("config.yaml").write_text("local: {isolation: off}\n")
    server.up()
    server.compute = unique("ml")
    server.make_cluster(server.compute, 0, 1, "PT1M")
    job = submit(server, mark, f"MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR=0 MLFLOW_HTTP_REQUEST_BACKOFF_JITTER=0.3 MLFLOW_HTTP_REQUEST_MAX_RETRIES=10 {CLIENT} {JOBS}/steps.py 400")
    beats = f"{server.nws()}/jobs/{job}/metrics?metric=beat"

    def acknowledged():
        return [int(line.split()[1]) for line in server.log(job).splitlines() if line.startswith("acknowledged")]

    for kill in range(2):
        floor = 60 * (kill + 1)
        wait_until(lambda: len(acknowledged()) > floor, f"more than {floor} points are acknowledged", 90)
        said = acknowledged()
        server.kill()
        server.up()
        kept = {int(p["step"]) for p in server.get(beats)["history"]}
        assert set(said) <= kept, f"lost: {sorted(set(said) - kept)}"
    server.wait_job(job, "Completed", 120)
    assert [p["step"] for p in server.get(beats)["history"]] == list(range(400))
