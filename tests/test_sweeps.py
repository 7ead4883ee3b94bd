"""Sweeps by the real SDK: the best trial is found and named, bad ones are stopped, the best one's outputs are the sweep's."""

from pathlib import Path

import pytest
from azure.ai.ml import Input, Output, command, dsl
from azure.ai.ml.entities import Environment
from azure.ai.ml.sweep import BanditPolicy, Choice, Uniform
from azure.core.exceptions import HttpResponseError

from neapserver import unique, wait_until

CODE = Path(__file__).parent / "jobs" / "trial"


def trial(pause=0.0, **kwargs):
    return command(
        code=str(CODE),
        command=f"python quadratic.py ${{{{inputs.x}}}} {pause} ${{{{outputs.model}}}}",
        environment=Environment(image="library/python:latest"),
        inputs={"x": 0.0},
        outputs={"model": Output(type="uri_folder")},
        **kwargs,
    )


def sweep_of(values, compute, pause=0.0, algorithm="grid", **limits):
    space = {"x": values if isinstance(values, Uniform) else Choice(values=values)}
    sweep = trial(pause)(**space).sweep(compute=compute, sampling_algorithm=algorithm, primary_metric="score", goal="Maximize")
    sweep.set_limits(**{"max_total_trials": 20, "max_concurrent_trials": 4, **limits})
    sweep.name, sweep.experiment_name = unique("sweep"), "suite"
    return sweep


def trials(server, name):
    runs = server.get(f"/history/v1.0{server.ws()}/runs/{name}/children")["value"]
    return {int(run["runId"].rsplit("_", 1)[1]): run for run in runs}


def test_grid_finds_the_best_and_hands_its_outputs_on(ml, server, work_cluster, tmp_path):
    sweep = sweep_of([0, 1, 3, 8, 95], work_cluster)
    name = ml.jobs.create_or_update(sweep).name
    server.wait_job(name, "Completed")
    found = trials(server, name)
    assert [found[number]["status"] for number in sorted(found)] == ["Completed"] * 4 + ["Failed"], "one trial's failure is its own"
    best = server.job(name)["properties"]["best_child_run_id"]
    assert best == f"{name}_2"
    assert server.job(best)["tags"]["hyperparameters"] == '{"x":3}'
    ml.jobs.download(name, download_path=tmp_path, output_name="model")
    assert [path.read_text() for path in tmp_path.rglob("x.txt")] == ["3.0"]
    assert server.output(name, "model", "x.txt") == b"3.0", "the sweep's own place has them too"


def test_bandit_stops_the_bad_ones_ten_at_a_time(ml, server, cluster):
    compute = cluster(high=10)
    sweep = sweep_of(Uniform(0, 20), compute, pause=0.3, algorithm="random", max_total_trials=20, max_concurrent_trials=10)
    sweep.early_termination = BanditPolicy(slack_factor=0.2, evaluation_interval=1)
    name = ml.jobs.create_or_update(sweep).name
    most = 0

    def ended():
        nonlocal most
        most = max(most, sum(run["status"] in ("Running", "Preparing", "Queued", "Finalizing") for run in trials(server, name).values()))
        return server.status(name) in ("Completed", "Failed", "Canceled")

    wait_until(ended, "the sweep ends", 180)
    assert server.status(name) == "Completed", server.job(name)
    found = trials(server, name)
    assert len(found) == 20 and most <= 10
    stopped = [run for run in found.values() if run["status"] == "Canceled"]
    assert stopped and all("bandit" in server.job(run["runId"])["error"]["message"] for run in stopped)
    values = {n: float(server.job(run["runId"])["tags"]["hyperparameters"].split(":")[1].rstrip("}")) for n, run in found.items()}
    completed = {n: x for n, x in values.items() if found[n]["status"] == "Completed"}
    nearest = min(completed, key=lambda n: abs(completed[n] - 3))
    assert server.job(name)["properties"]["best_child_run_id"] == f"{name}_{nearest}"


def test_a_sweep_goes_on_after_the_server_was_killed(own_server):
    server = own_server()
    server.make_cluster("cpu", high=2)
    server.environment_id()
    body = {"properties": {"jobType": "Sweep", "computeId": f"{server.ws()}/computes/cpu", "objective": {"goal": "maximize", "primaryMetric": "score"},
        "samplingAlgorithm": {"samplingAlgorithmType": "Grid"}, "searchSpace": {"x": ["choice", [[1, 2, 3, 4, 5, 6]]]},
        "limits": {"jobLimitsType": "Sweep", "maxTotalTrials": 6, "maxConcurrentTrials": 2},
        "trial": {"command": "echo ${{search_space.x}}; sleep 0.3", "environmentId": f"{server.ws()}/environments/plain/versions/1"}}}
    server.put(f"{server.ws()}/jobs/sweep", body)
    wait_until(lambda: any(run["status"] == "Completed" for run in trials(server, "sweep").values()), "a trial is done")
    server.kill()
    server.up()
    server.wait_job("sweep", "Completed")
    found = trials(server, "sweep")
    assert sorted(found) == [0, 1, 2, 3, 4, 5] and {run["status"] for run in found.values()} == {"Completed"}
    assert sorted(server.log(f"sweep_{n}").split()[-1] for n in found) == ["1", "2", "3", "4", "5", "6"]


def test_a_sweep_is_a_step_like_any_other(ml, server, work_cluster):
    show = command(command="cat ${{inputs.model}}/x.txt", environment=Environment(image="library/python:latest"), inputs={"model": Input(type="uri_folder")})

    @dsl.pipeline(compute=work_cluster)
    def pipeline():
        tried = trial()(x=Choice(values=[9, 3])).sweep(sampling_algorithm="grid", primary_metric="score", goal="Maximize")
        tried.set_limits(max_total_trials=2, max_concurrent_trials=2)
        shown = show(model=tried.outputs.model)  # noqa: F841 (the variable names the step)

    job = pipeline()
    job.name = unique("pipe")
    name = ml.jobs.create_or_update(job, experiment_name="suite").name
    server.wait_job(name, "Completed")
    assert server.log(f"{name}_shown").strip().endswith("3.0")


def test_cancel_ends_every_trial(ml, server, work_cluster):
    name = ml.jobs.create_or_update(sweep_of([1, 2, 3, 4, 5], work_cluster, pause=30)).name
    wait_until(lambda: any(run["status"] == "Running" for run in trials(server, name).values()), "a trial runs")
    ml.jobs.begin_cancel(name).result()
    assert server.status(name) == "Canceled"
    assert {run["status"] for run in trials(server, name).values()} == {"Canceled"}


def test_what_is_wrong_is_refused_at_once(server, work_cluster):
    body = {"properties": {"jobType": "Sweep", "computeId": f"{server.ws()}/computes/nowhere", "objective": {"goal": "most"},
        "samplingAlgorithm": {"samplingAlgorithmType": "Grid"}, "searchSpace": {"x": ["uniform", [0, 1]], "y": ["normal", [0]]},
        "limits": {"maxTotalTrials": 0}, "trial": {"command": "echo ${{search_space.z}}", "environmentId": "azureml:none:1"}}}
    name = unique("bad")
    answer = server.http("PUT", f"{server.ws()}/jobs/{name}", body)
    assert answer.status_code == 400, answer.text
    for expect in ("nowhere", "primaryMetric", "goal", "searchSpace.y", "maxTotalTrials", "none"):
        assert expect in answer.text, f"{expect}: {answer.text}"
    assert server.http("GET", f"{server.ws()}/jobs/{name}").status_code == 404


def test_the_sdk_hears_the_same(ml, work_cluster):
    sweep = sweep_of([1], work_cluster)
    sweep.compute = "nowhere"
    with pytest.raises(HttpResponseError, match="nowhere"):
        ml.jobs.create_or_update(sweep)
