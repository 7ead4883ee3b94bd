"""When it will be: `neap plan`, and the place and estimated start of those who wait."""

import json
import time

import pytest

from neapserver import Server, unique, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(home=tmp_path_factory.mktemp("plan"))
    server.up()
    server.environment_id()
    yield server
    server.down()


@pytest.fixture
def cluster(server):
    name = unique("p")
    server.make_cluster(name, 0, 1, "PT120S")
    yield name
    server.cli("compute", "delete", "-n", name, "--yes", check=False)


def file_of(tmp_path, cluster, command="true", **more):
    """A job's file, with a code folder that nobody has uploaded."""
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "src" / "main.py").write_text("print('never uploaded')\n")
    job = {"command": command, "code": "src", "environment": "azureml:plain:1", "compute": f"azureml:{cluster}", "experiment_name": "plans", **more}
    path = tmp_path / "job.yml"
    path.write_text(json.dumps({key: value for key, value in job.items() if value is not None}))
    return path



def test_a_plan_says_what_is_not_known_and_takes_it_from_whoever_knows(tmp_path):
    # A server of its own: on it no node has ever started.
    server = Server(home=tmp_path / "fresh")
    server.up()
    try:
        server.environment_id()
        name = unique("p")
        server.make_cluster(name, 0, 1, "PT120S")
        file = file_of(tmp_path, name)
        blank = server.json("plan", "-f", file)
        assert blank["start"]["p50"] is None and blank["cost"]["p50"] is None
        assert blank["end"] == {"p50": None, "p95": None, "p50_seconds": None, "p95_seconds": None}, "what never starts does not end"
        assert "end    unknown" in server.cli("plan", "-f", file).stdout
        idle = server.json("plan", "compute", "update", name, "--max-instances", 2)
        assert idle["without"]["all_done"]["p50"] == idle["at"], "nothing is to be done"
        assert any("how long a node takes to start is not known: none has started yet" in note for note in blank["notes"]), blank["notes"]
        assert blank["durations"][0]["from"] == "unknown"
        said = server.json("plan", "-f", file, "--duration", "2m", "--boot", "30s")
        assert (said["start"]["p50_seconds"], said["start"]["p95_seconds"]) == (30, 30)
        assert (said["end"]["p50_seconds"], said["durations"][0]["from"]) == (150, "given")
        # The node is paid for from the wish for it to the end of its idle time: 30 s, 2 min and 2 min.
        price = said["cost"]["p50_micro_usd"] * 3_600 / 270
        assert said["cost"]["p50_micro_usd"] == said["cost"]["p95_micro_usd"] and 100_000 < price < 1_000_000, said["cost"]
        assert [(m["nodes"], m["with_work"]) for m in said["nodes"]] == [(1, 0), (1, 1), (1, 0), (0, 0)]
        words = server.cli("plan", "-f", file, "--duration", "2m", "--boot", "30s").stdout
        assert "start  in 30 s (" in words and "Nobody else would start later." in words and words.endswith("Nothing was changed.\n")
        # Nothing was: no job, no node.
        assert server.json("job", "list") == [] and server.nodes(name, gone=True) == []
    finally:
        server.down()


def test_estimates_and_plans_follow_from_the_past_of_like_jobs(server, cluster, tmp_path):
    for _ in range(2):
        server.wait_job(server.submit(cluster, "sleep 1", experimentName="plans"), {"Completed"})
    file = file_of(tmp_path, cluster, "sleep 1", code=None)
    plan = server.json("plan", "-f", file)
    basis = plan["durations"][0]
    assert (basis["from"], basis["like"], basis["like_jobs"]) == ("history", "work", 2)
    assert plan["start"]["p50_seconds"] == 0 and 1 <= plan["end"]["p50_seconds"] <= 20
    assert plan["cost"]["p50_micro_usd"] > 0
    other = server.json("plan", "-f", file, "--set", "command=sleep 2")
    assert other["durations"][0]["like"] == "experiment"

    # Somebody runs for longer than anybody did, and two wait for it: what is left is thought to be as much again, give or take.
    long = server.submit(cluster, "sleep 600", experimentName="plans")
    server.wait_job(long, {"Running"})
    time.sleep(8)
    first = server.submit(cluster, "sleep 1", experimentName="plans")
    second = server.submit(cluster, "sleep 1", experimentName="plans")

    def estimated():
        shown = server.json("job", "show", "-n", second)
        return shown if shown.get("estimated_start") else None

    shown = wait_until(estimated, "the second has an estimate", 20)
    assert shown["queue_position"] == 2
    assert shown["estimated_start"] <= shown["estimated_start_p95"]
    wire = server.job(second)["properties"]
    assert wire["neap.queuePosition"] == "2" and all(isinstance(value, str) for value in wire.values())
    listed = {job["name"]: job for job in server.json("job", "list")}
    assert listed[first]["queue_position"] == 1 and listed[first]["estimated_start"] <= listed[second]["estimated_start"]
    rows = server.json("queue", cluster)
    assert [(row["job"], row["position"]) for row in rows] == [(first, 1), (second, 2)]
    assert all(row["estimated_start"] for row in rows)
    assert "Estimated start: 2" in server.cli("explain", "job", second).stdout

    # An urgent job would delay both, and an ordinary one nobody.
    urgent = server.json("plan", "-f", file, "--set", "queue_settings.priority=high")
    assert {job["job"] for job in urgent["delayed"]["jobs"]} == {first, second}, urgent["delayed"]
    assert all(job["p50_seconds"] >= 1 for job in urgent["delayed"]["jobs"])
    plain = server.json("plan", "-f", file)
    assert plain["delayed"]["count"] == 0 and plain["start"]["p50"] >= urgent["start"]["p50"]

    # A larger cluster would let both start sooner; asking does not make it so.
    larger = server.json("plan", "compute", "update", cluster, "--max-instances", "3")
    assert {job["job"] for job in larger["sooner"]["jobs"]} == {first, second}, larger["sooner"]
    assert larger["delayed"]["count"] == 0
    assert max(m["nodes"] for m in larger["with"]["nodes"]) == 3
    words = server.cli("plan", "compute", "update", cluster, "--max-instances", "3").stdout
    assert "2 jobs would start sooner:" in words and "Nothing was changed." in words
    assert server.cluster(cluster)["scaleSettings"]["maxNodeCount"] == 1 and len(server.nodes(cluster)) == 1


def test_what_would_be_refused_is_refused_with_the_same_words(server, cluster, tmp_path):
    body = server.job_body(cluster, "echo ${{inputs.nothing}}", environmentId=f"{server.ws()}/environments/none/versions/7", resources={"instanceCount": 9})
    name = unique("job")
    submitted = server.http("PUT", f"{server.ws()}/jobs/{name}", body)
    planned = server.http("POST", f"{server.nws()}/jobs/{name}/plan", body)
    assert submitted.status_code == planned.status_code == 400
    assert submitted.json()["error"]["message"] == planned.json()["error"]["message"]
    details = [(d["code"], d["message"]) for d in planned.json()["error"]["details"]]
    assert len(details) == 3 and details == [(d["code"], d["message"]) for d in submitted.json()["error"]["details"]]
    wrong = server.cli("plan", "compute", "update", cluster, "--min-instances", "5", check=False)
    assert wrong.returncode == 1 and "min" in wrong.stderr
    nowhere = server.cli("plan", "-f", file_of(tmp_path, "nowhere"), check=False)
    assert nowhere.returncode != 0 and "The compute 'nowhere' was not found" in nowhere.stderr


def test_a_sweep_is_planned_by_its_first_trials(server, cluster, tmp_path):
    server.wait_job(server.submit(cluster, "sleep 0.1", experimentName="plans"), {"Completed"})
    sweep = {
        "type": "sweep",
        "experiment_name": "plans",
        "compute": f"azureml:{cluster}",
        "trial": {"command": "echo ${{search_space.x}}", "environment": "azureml:plain:1"},
        "sampling_algorithm": "grid",
        "search_space": {"x": {"type": "choice", "values": [1, 2, 3, 4]}},
        "objective": {"primary_metric": "m", "goal": "maximize"},
        "limits": {"max_total_trials": 4, "max_concurrent_trials": 2},
    }
    path = tmp_path / "sweep.yml"
    path.write_text(json.dumps(sweep))
    plan = server.json("plan", "-f", path)
    assert plan["jobs"] == 2 and "Of the sweep only its first 2 trials are counted." in plan["notes"]
    assert plan["start"]["p50"] is not None


def test_a_pipeline_that_nobody_has_submitted_is_planned(server, cluster, tmp_path):
    """Its steps, their environment, its code and its data are nowhere but in the file."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print('never uploaded')\n")
    (tmp_path / "data.csv").write_text("1,2\n")
    environment = {"image": "library/python:latest"}
    prep = {
        "type": "command",
        "command": "cat ${{inputs.raw}} > ${{outputs.clean}}/x",
        "code": "src",
        "environment": environment,
        "inputs": {"raw": {"type": "uri_file", "path": "data.csv"}},
        "outputs": {"clean": {"type": "uri_folder"}},
    }
    train = {
        "$schema": "component",
        "type": "command",
        "name": "never_registered",
        "command": "ls ${{inputs.clean}}",
        "environment": environment,
        "inputs": {"clean": {"type": "uri_folder"}},
    }
    (tmp_path / "train.yml").write_text(json.dumps(train))
    pipeline = {
        "type": "pipeline",
        "experiment_name": "plans",
        "settings": {"default_compute": f"azureml:{cluster}"},
        "jobs": {
            "prep": prep,
            "train": {"type": "command", "component": "./train.yml", "inputs": {"clean": "${{parent.jobs.prep.outputs.clean}}"}},
        },
    }
    path = tmp_path / "pipeline.yml"
    path.write_text(json.dumps(pipeline))
    plan = server.json("plan", "-f", path, "--duration", "60s", "--boot", "10s")
    assert plan["jobs"] == 2 and plan["start"]["p50"] is not None and plan["end"]["p50_seconds"] >= 120, plan
    assert "Local inputs were not uploaded, and were not checked." in plan["notes"], plan
    assert server.json("component", "list") == [] and not list(server.home.glob("blobs/**/data.csv")), "nothing is put there"
    # What is wrong with such a step is told as at a submission.
    pipeline["jobs"]["train"]["inputs"]["colour"] = "red"
    pipeline["jobs"]["prep"]["compute"] = "azureml:nowhere"
    path.write_text(json.dumps(pipeline))
    wrong = server.cli("plan", "-f", path, check=False)
    assert wrong.returncode != 0 and "colour" in wrong.stderr, wrong.stderr
