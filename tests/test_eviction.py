"""Low priority: a node is taken back, and its jobs are warned, saved, queued again and go on with what they had. By the drill of the
command line, by kill -9, by the eviction model of the local provider; alone, in gangs, in sweeps, in parallel steps.

`NEAP_EVICTIONS=200` is the long form of the last test."""

import json
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
from azure.ai.ml import Input, MLClient, Output, command, dsl
from azure.ai.ml.entities import Environment
from azure.ai.ml.parallel import RunFunction, parallel_run_function
from azure.identity import DefaultAzureCredential

from neapserver import Server, new_home, remove, unique, wait_until

EVICTIONS = int(os.environ.get("NEAP_EVICTIONS", "8"))
PARALLEL = Path(__file__).parent / "jobs" / "parallel"
LOW = {"vmPriority": "LowPriority"}
SHARE = {"instanceCount": 1, "properties": {"neap": {"cpus": 0.2}}}

# Writes one file of its output and one line of log for each step, and never does a step again whose checkpoint it has. It does not know
# of signals: it is ended in the middle of whatever it does.
STEPS = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["AZUREML_CHECKPOINT_DIR"])
state, total, pause = folder / "state.json", int(sys.argv[1]), float(sys.argv[2])
step = json.loads(state.read_text())["step"] if state.exists() else 0
print("from", step, flush=True)
while step < total:
    time.sleep(pause)
    pathlib.Path("outputs", f"part-{step}").write_text(f"{step}\\n")
    with open("outputs/all", "a") as file:
        file.write(f"{step}\\n")
    (folder / "state.new").write_text(json.dumps({"step": step + 1}))
    (folder / "state.new").rename(state)
    print("did", step, flush=True)
    step += 1
"""

# Saves when it is warned, and says what it was told.
POLITE = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["NEAP_CHECKPOINT_DIR"])
warning = pathlib.Path(os.environ["NEAP_PREEMPTION_FILE"])
assert os.environ["AZUREML_CHECKPOINT_DIR"] == str(folder)
state = folder / "deep" / "state"
count = int(state.read_text()) if state.exists() else 0
print("from", count, "warned" if warning.exists() else "in peace", flush=True)
def save(*_):
    told = json.loads(warning.read_text())
    print("told", told["event"], told["deadline_unix_seconds"] - time.time() > 1, flush=True)
    time.sleep(0.5)
    state.parent.mkdir(exist_ok=True)
    state.write_text(str(count))
    (folder / "latest").unlink(missing_ok=True)
    (folder / "latest").symlink_to("deep/state")
    print("saved", count, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
if count:
    print("link", (folder / "latest").read_text(), flush=True)
    sys.exit(0)
while True:
    time.sleep(0.1)
    count += 1
    if count == 5:
        print("ready", flush=True)
"""


def python(program, *arguments):
    """As a compound command: a shell stands before it, and ends at the first signal."""
    return f"cat > main.py <<'END'\n{program}\nEND\npython3 -u main.py {' '.join(map(str, arguments))} && echo over"


@pytest.fixture(scope="module")
def spot(mark):
    """A server whose checkpoint folders are saved every second, with a low-priority cluster."""
    home = new_home("evict")
    (home / "config.yaml").write_text("checkpoint_interval_seconds: 1\n")
    running = Server(home)
    running.up()
    patch = pytest.MonkeyPatch()
    for key, value in running.vars.items():
        patch.setenv(key, value)
    running.make_cluster("spot", 0, 4, "PT60S", **LOW)
    yield running
    patch.undo()
    try:
        running.down()
        running.assert_nothing_left(mark)
        verified = running.cli("verify", "--replay", check=False)
        assert verified.returncode == 0, verified.stdout + verified.stderr
    finally:
        remove(home)


@pytest.fixture
def send(spot, mark):
    def send(line, cluster="spot", **more):
        return spot.submit(cluster, line, environmentVariables={"NEAP_TEST_MARK": mark}, **{"resources": SHARE, **more})

    return send


def says(server, job, words, seconds=60):
    return wait_until(lambda: words in server.log(job) and server.log(job), f"{job} says {words!r}", seconds)


def evict(server, cluster="spot", **asked):
    return server.http("POST", f"{server.nws()}/computes/{cluster}/evict", asked)


def node_of(server, job):
    return server.get(f"{server.nws()}/jobs/{job}/checkpoint")["nodes"][0]


def kept(server, job):
    return server.get(f"{server.nws()}/jobs/{job}/checkpoint")["checkpoint"]


def artifacts(server, job):
    """The files of `./outputs` of a job, by name."""
    folder = server.home / "download" / job
    server.cli("job", "download", "-n", job, "--all", "--download-path", folder)
    [outputs] = [path for path in folder.rglob("outputs") if path.is_dir()]
    return {path.name: path.read_text() for path in outputs.iterdir()}


# --- one job ----------------------------------------------------------------------------------------------------------


def test_a_job_is_warned_saved_and_goes_on_elsewhere(spot, send):
    job = send(python(POLITE))
    says(spot, job, "ready")
    before = node_of(spot, job)
    drill = spot.cli("compute", "evict", "spot", "--node", before, "--grace", "20", "-o", "json")
    report = json.loads(drill.stdout)
    [told] = report["jobs"]
    assert report["passed"] and told["result"] == "pass", report
    assert told["lost_seconds"] < 5 and told["seconds_away"] > 0, "the half second of saving is not lost"
    assert told["resumed_on"] != [before] and told["attempt"] == 2
    spot.wait_job(job, "Completed")
    log = spot.log(job)
    assert "from 0 in peace" in log and "told preempted True" in log, log
    saved = re.search(r"saved (\d+)", log)[1]
    assert f"from {saved} in peace" in log and f"link {saved}" in log, log
    assert "[neap] Its node is taken back" in log and "are here again" in log, log
    node = next(node for node in spot.nodes("spot", gone=True) if node["node_id"] == before)
    assert node["reason"] == "a drill", node
    properties = spot.job(job)["properties"]
    assert properties["neap.checkpoint.restored"].endswith("by attempt 1"), properties
    # The job has ended: what was kept of it goes.
    assert kept(spot, job) == []
    wait_until(lambda: not list(spot.home.glob(f"blobs/**/*dcid.{job}/0/files/*")), "its checkpoint is removed", 40)


def test_a_simulation_changes_nothing(spot, send):
    job = send(python(STEPS, 1000, 0.6))
    says(spot, job, "did 3")
    wait_until(lambda: kept(spot, job), "it is saved while it runs")
    before = spot.nodes("spot")
    node = node_of(spot, job)
    drill = spot.cli("compute", "evict", "spot", "--node", node, "--simulate")
    assert f"{node} would be taken back" in drill.stdout and job in drill.stdout and "saved" in drill.stdout, drill.stdout
    answer = evict(spot, node=node, simulate=True)
    assert answer.status_code == 200
    [told] = [told for told in answer.json()["jobs"] if told["job"] == job]
    assert told["unsaved_seconds"] < 10 and told["checkpoint"][0]["files"] >= 1, told
    assert spot.nodes("spot") == before and spot.status(job) == "Running"
    spot.cli("job", "cancel", "-n", job)
    spot.wait_job(job, "Canceled")


def test_a_drill_fails_for_a_job_that_saves_nothing(spot, send):
    job = send("echo ready; sleep 600")
    says(spot, job, "ready")
    drill = spot.cli("compute", "evict", "spot", "--node", node_of(spot, job), "--grace", "1", check=False)
    assert drill.returncode == 1 and "FAILED" in drill.stdout and "AZUREML_CHECKPOINT_DIR" in drill.stdout, drill.stdout
    spot.cli("job", "cancel", "-n", job)
    spot.wait_job(job, "Canceled")


def test_a_drill_fails_when_more_is_lost_than_may_be_and_when_nothing_runs_again_in_time(spot, send):
    job = send(python(STEPS, 1000, 0.6))
    says(spot, job, "did 3")
    wait_until(lambda: kept(spot, job), "it is saved while it runs")
    drill = spot.cli("compute", "evict", "spot", "--node", node_of(spot, job), "--grace", "5", "--max-lost", "0", check=False)
    assert drill.returncode == 1 and "FAILED" in drill.stdout, drill.stdout
    assert re.search(r"it lost \d+\.\d s of work, more than the 0\.0 s that were allowed", drill.stdout), drill.stdout
    drill = spot.cli("compute", "evict", "spot", "--node", node_of(spot, job), "--grace", "0", "--timeout", "0", check=False)
    assert drill.returncode == 1 and "FAILED" in drill.stdout and "it does not run again yet: " in drill.stdout, drill.stdout
    spot.cli("job", "cancel", "-n", job)
    spot.wait_job(job, "Canceled")


def test_what_is_wrong_is_said(spot):
    for body, status, words in [
        ({"node": "x"}, 400, "does not name a node"),
        ({"node": "n-99999"}, 404, "n-99999"),
        ({"grace_seconds": -1}, 400, "grace_seconds"),
        ({"often": 1}, 400, "often"),
    ]:
        answer = evict(spot, **body)
        assert answer.status_code == status and words in answer.text, answer.text
    assert evict(spot, "no-such").status_code == 404
    spot.make_cluster("empty", 0, 1, **LOW)
    nothing = spot.cli("compute", "evict", "empty", check=False)
    assert nothing.returncode == 3 and "no node" in nothing.stderr, nothing.stderr


def test_outputs_of_an_interrupted_attempt_are_there_again(spot, send):
    line = 'echo more >> ${{outputs.o}}/lines; echo more >> outputs/lines; echo up; [ $(wc -l < outputs/lines) -ge 2 ] || sleep 600'
    for mode in ("Upload", "ReadWriteMount"):
        job = send(line, outputs={"o": {"jobOutputType": "uri_folder", "mode": mode}})
        says(spot, job, "up")
        answer = evict(spot, node=node_of(spot, job), grace_seconds=5)
        assert answer.status_code == 202, answer.text
        spot.wait_job(job, "Completed")
        assert spot.output(job, "o", "lines") == b"more\nmore\n", mode
        assert artifacts(spot, job)["lines"] == "more\nmore\n"


def test_a_node_that_is_lost_without_a_word_loses_little(spot, send):
    job = send(python(STEPS, 12, 0.5))
    says(spot, job, "did 3")
    saved = wait_until(lambda: kept(spot, job), "it is saved while it runs")
    assert saved[0]["attempt"] == 1 and saved[0]["ended"] is None, saved
    # The node of this job, by the number in its folder.
    number = node_of(spot, job).removeprefix("n-")
    [agent] = [pid for pid, line in spot.agents() if line.endswith(f"/nodes/{number}")]
    did = [int(step) for step in re.findall(r"did (\d+)", spot.log(job))]
    os.kill(agent, signal.SIGKILL)
    spot.wait_job(job, "Completed")
    log = spot.log(job)
    began = [int(step) for step in re.findall(r"from (\d+)", log)]
    assert len(began) == 2 and began[1] > 0, log
    # Steps of half a second, saved every second and a quiet moment.
    assert did[-1] - began[1] < 8, log
    assert sorted(map(int, artifacts(spot, job)["all"].split()))[-1] == 11


def test_a_job_may_limit_how_often(spot, send):
    job = send("echo up; sleep 600", resources={"instanceCount": 1, "properties": {"neap": {"cpus": 0.2, "retry": {"preempted": 1}}}})
    for attempt in (1, 2):
        wait_until(lambda: spot.job(job)["properties"].get("neap.attempt") == str(attempt) and spot.status(job) == "Running", f"attempt {attempt} runs")
        evict(spot, node=node_of(spot, job), grace_seconds=0)
    spot.wait_job(job, "Failed")
    assert spot.job(job)["error"]["code"] == "Preempted", spot.job(job)["error"]


# --- several ------------------------------------------------------------------------------------------------------------


def test_losing_the_whole_cluster_cancels_nothing(spot, send):
    spot.make_cluster("whole", 0, 2, "PT60S", **LOW)
    whole = {"instanceCount": 1, "properties": {}}
    jobs = [send(python(STEPS, 4, 0.3), "whole", resources=whole) for _ in range(5)]
    for job in jobs[:2]:
        says(spot, job, "did 0")
    for node in spot.nodes("whole"):
        assert evict(spot, "whole", node=node["node_id"], grace_seconds=5).status_code == 202
    for job in jobs:
        spot.wait_job(job, "Completed", 120)
        assert re.findall(r"did (\d+)", spot.log(job)) == ["0", "1", "2", "3"], "no step twice"
    assert {spot.job(job)["properties"]["neap.attempt"] for job in jobs[:2]} == {"2"}
    spot.drop_cluster("whole")


def test_a_gang_stops_and_resumes_whole(spot, send):
    line = 'f=$AZUREML_CHECKPOINT_DIR/rank; if [ -f $f ]; then echo resumed $(cat $f) of $AZUREML_NODE_RANK$NODE_RANK; exit 0; fi; echo $$ > $f; echo up; sleep 600'
    job = send(line, resources={"instanceCount": 2, "properties": {}}, distribution={"distributionType": "PyTorch", "processCountPerInstance": 1})
    wait_until(lambda: spot.status(job) == "Running" and spot.log(job).count("up") == 2, "both ranks run", 60)
    nodes = spot.get(f"{spot.nws()}/jobs/{job}/checkpoint")["nodes"]
    assert len(nodes) == 2
    assert evict(spot, node=nodes[1], grace_seconds=5).status_code == 202
    spot.wait_job(job, "Completed", 90)
    log = spot.log(job)
    assert log.count("resumed 2 of") == 2 and log.count("up\n") == 2, log
    assert spot.job(job)["properties"]["neap.attempt"] == "2"
    left = [node["node_id"] for node in spot.nodes("spot") if node["node_id"] in nodes]
    assert nodes[1] not in left, "only the one was taken"


def test_a_sweep_runs_only_the_trial_again(spot, mark):
    spot.environment_id()
    name = unique("sweep")
    trial = "f=$AZUREML_CHECKPOINT_DIR/x; if [ -f $f ]; then echo again; exit 0; fi; echo ${{search_space.x}} > $f; echo up; if [ ${{search_space.x}} = 2 ]; then sleep 600; fi"
    spot.put(f"{spot.ws()}/jobs/{name}", {"properties": {
        "jobType": "Sweep", "computeId": f"{spot.ws()}/computes/spot", "objective": {"goal": "maximize", "primaryMetric": "score"},
        "samplingAlgorithm": {"samplingAlgorithmType": "Grid"}, "searchSpace": {"x": ["choice", [[1, 2, 3]]]},
        "limits": {"jobLimitsType": "Sweep", "maxTotalTrials": 3, "maxConcurrentTrials": 3}, "resources": SHARE,
        "trial": {"command": trial, "environmentId": f"{spot.ws()}/environments/plain/versions/1", "environmentVariables": {"NEAP_TEST_MARK": mark}, "resources": SHARE},
    }})  # fmt: skip
    trials = [f"{name}_{n}" for n in range(3)]
    wait_until(lambda: spot.http("GET", f"{spot.ws()}/jobs/{trials[2]}").status_code == 200, "the trials are there")
    [slow] = [t for t in trials if json.loads(spot.job(t)["tags"]["hyperparameters"])["x"] == 2]
    for trial in trials:
        spot.wait_job(trial, "Running" if trial == slow else "Completed")
    says(spot, slow, "up")
    assert evict(spot, node=node_of(spot, slow), grace_seconds=5).status_code == 202
    spot.wait_job(name, "Completed", 90)
    attempts = {trial: spot.job(trial)["properties"]["neap.attempt"] for trial in trials}
    assert attempts.pop(slow) == "2" and set(attempts.values()) == {"1"}, attempts
    assert "again" in spot.log(slow)


def test_a_parallel_step_does_only_its_mini_batches_again(spot, mark):
    client = MLClient(DefaultAzureCredential(), spot.subscription, spot.group, spot.workspace)
    make = command(
        name="make", command="cd ${{outputs.files}} && for i in $(seq -w 1 60); do echo ok$i > f$i.txt; done",
        environment=Environment(image="library/python:latest"), outputs={"files": Output(type="uri_folder")}, is_deterministic=False,
    )  # fmt: skip
    score = parallel_run_function(
        name="score", inputs={"files": Input(type="uri_folder")}, outputs={"rows": Output(type="uri_file")}, input_data="${{inputs.files}}",
        environment_variables={"NEAP_TEST_MARK": mark}, instance_count=2, max_concurrency_per_instance=1, mini_batch_size="1", is_deterministic=False,
        task=RunFunction(code=str(PARALLEL), entry_script="score.py", program_arguments="--pause 0.1", append_row_to="${{outputs.rows}}",
                         environment=Environment(image="library/python:latest")),
    )  # fmt: skip

    @dsl.pipeline(default_compute="spot")
    def both():
        score(files=make().outputs.files)

    pipeline = both()
    pipeline.name = unique("par")
    client.jobs.create_or_update(pipeline, experiment_name="eviction")
    job = f"{pipeline.name}_score"
    worker = f"{job}_worker_0"
    wait_until(lambda: spot.http("GET", f"{spot.ws()}/jobs/{worker}").status_code == 200, "the worker is there", 120)
    wait_until(lambda: spot.log(worker).count(" in, ") >= 5, "it works", 60)
    assert evict(spot, node=node_of(spot, worker), grace_seconds=2).status_code == 202
    spot.wait_job(pipeline.name, "Completed", 180)
    rows = [line.split() for line in spot.output(job, "rows", "rows").decode().splitlines()]
    assert [row[0] for row in rows] == [f"f{n:02}.txt" for n in range(1, 61)], "every file once"


# --- by themselves ------------------------------------------------------------------------------------------------------


def test_the_local_provider_takes_low_priority_nodes_back(own_server, mark):
    home = new_home("model")
    (home / "config.yaml").write_text("local: {eviction: {mean: PT3S, notice: PT15S}}\n")
    server = own_server("model", home=home)
    server.make_cluster("low", 0, 2, **LOW)
    server.make_cluster("dear", 0, 1)
    variables = {"NEAP_TEST_MARK": mark}
    low = server.submit("low", python(STEPS, 40, 0.5), environmentVariables=variables)
    dear = server.submit("dear", "echo up; sleep 600", environmentVariables=variables)
    says(server, dear, "up")
    wait_until(lambda: int(server.job(low)["properties"].get("neap.attempt", "0")) > 1, "the low-priority node was taken back", 90)
    server.wait_job(low, "Completed", 300)
    assert re.findall(r"did (\d+)", server.log(low)) == [str(n) for n in range(40)], "no step twice"
    assert server.job(dear)["properties"]["neap.attempt"] == "1" and server.status(dear) == "Running"
    reasons = {node["reason"] for node in server.nodes("low", gone=True)}
    assert any("taken back" in reason for reason in reasons), reasons
    counted = re.search(r'neap_jobs_preempted_total\{[^}]*cluster="low"[^}]*\} (\d+)', server.http("GET", "/metrics").text)
    assert counted and int(counted[1]) >= 1
    causes = server.get(f"{server.nws()}/cost?by=cause")
    assert "eviction" in {row["name"] for row in causes["rows"]}, causes


def test_evicted_at_random_moments_nothing_fails_and_little_is_lost(spot, send):
    dice = random.Random(EVICTIONS)
    whole = {"instanceCount": 1, "properties": {}}
    steps, jobs, running, evicted, interrupted = 10, [], [], 0, 0
    deadline = time.monotonic() + 120 + EVICTIONS * 6
    while evicted < EVICTIONS:
        assert time.monotonic() < deadline, f"only {evicted} evictions"
        running = [job for job in running if spot.status(job) not in ("Completed", "Failed", "Canceled")]
        while len(running) < 4:
            running.append(send(python(STEPS, steps, 1), resources=whole))
            jobs.append(running[-1])
        busy = [node["node_id"] for node in spot.nodes("spot") if node["state"] == "running"]
        if busy:
            answer = evict(spot, node=dice.choice(busy), grace_seconds=10, reason="a random moment")
            # It may have gone, or its job may have ended, in the meantime.
            assert answer.status_code in (202, 404, 409), answer.text
            if answer.status_code == 202:
                evicted += 1
                interrupted += len(answer.json()["jobs"])
        time.sleep(dice.uniform(0.1, 1.5))
    assert interrupted > EVICTIONS / 2
    for job in jobs:
        spot.wait_job(job, "Completed", 240)
        log = spot.log(job)
        did = [int(step) for step in re.findall(r"did (\d+)", log)]
        # A step whose checkpoint was written is never done again: what is lost is less than the second since.
        assert len(did) == len(set(did)), log
        found = artifacts(spot, job)
        assert {name for name in found if name.startswith("part-")} == {f"part-{n}" for n in range(steps)}, found
        assert all(found[f"part-{n}"] == f"{n}\n" for n in range(steps))
        assert set(map(int, found["all"].split())) == set(range(steps)), "the file that grew has all of it"
