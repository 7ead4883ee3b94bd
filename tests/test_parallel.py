"""Parallel steps of pipelines: every file once in the output, whatever dies; retries; thresholds; wrong entry scripts."""

import os
import signal
from pathlib import Path

import pytest
from azure.ai.ml import Input, MLClient, Output, command, dsl, load_job
from azure.ai.ml.entities import Environment, RetrySettings
from azure.ai.ml.parallel import RunFunction, parallel_run_function
from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential

from neapserver import Server, new_home, remove, unique, wait_until

CODE = Path(__file__).parent / "jobs" / "parallel"
CLUSTER = "par"


@pytest.fixture(scope="module")
def own(mark):
    """A server that these tests may kill, with a cluster of three nodes."""
    running = Server(new_home("parallel"))
    running.up()
    patch = pytest.MonkeyPatch()
    for key, value in running.vars.items():
        patch.setenv(key, value)
    running.make_cluster(CLUSTER, 0, 3, "PT60S")
    yield running
    patch.undo()
    try:
        running.down()
        running.assert_nothing_left(mark)
        verified = running.cli("verify", check=False)
        assert verified.returncode == 0, verified.stdout + verified.stderr
    finally:
        remove(running.home)


@pytest.fixture(scope="module")
def client(own):
    return MLClient(DefaultAzureCredential(), own.subscription, own.group, own.workspace)


def submit(client, mark, make_files, **asked):
    """A pipeline of a step that writes files and a parallel step that reads them."""
    program = asked.pop("arguments", "")
    script = asked.pop("script", "score.py")
    beside = asked.pop("beside", False)
    make = command(
        name="make",
        command=f"cd ${{{{outputs.files}}}} && {make_files}",
        environment=Environment(image="library/python:latest"),
        outputs={"files": Output(type="uri_folder")},
        is_deterministic=False,
    )
    outputs = {"rows": Output(type="uri_file")}
    if beside:
        outputs["beside"] = Output(type="uri_folder")
        program += " --beside ${{outputs.beside}}"
    score = parallel_run_function(
        name="score",
        inputs={"files": Input(type="uri_folder")},
        outputs=outputs,
        input_data="${{inputs.files}}",
        environment_variables={"NEAP_TEST_MARK": mark},
        task=RunFunction(
            code=str(CODE), entry_script=script, program_arguments=program, append_row_to="${{outputs.rows}}", environment=Environment(image="library/python:latest")
        ),
        **{"instance_count": 1, "max_concurrency_per_instance": 1, "mini_batch_size": "1", "is_deterministic": False, **asked},
    )

    @dsl.pipeline(default_compute=CLUSTER)
    def both():
        made = make()
        score(files=made.outputs.files)

    pipeline = both()
    pipeline.name = unique("par")
    return client.jobs.create_or_update(pipeline, experiment_name="parallel").name


def step(own, pipeline):
    name = f"{pipeline}_score"
    wait_until(lambda: own.http("GET", f"{own.ws()}/jobs/{name}").status_code == 200, f"the step {name} is there", 30)
    return name


def rows_of(own, job):
    return [line.split() for line in own.output(job, "rows", "rows").decode().splitlines()]


def did(own, worker):
    return own.log(worker).count(" in, ")


def files(count, *special):
    """The shell line that makes them."""
    line = f"for i in $(seq -w 1 {count}); do echo ok$i > f$i.txt; done"
    return " && ".join([line, *(f"echo {word} > {name}" for name, word in special)])


def test_a_thousand_files_on_three_nodes_and_one_is_lost(own, client, mark):
    pipeline = submit(client, mark, files(1000), instance_count=3, max_concurrency_per_instance=2, arguments="--pause 0.02")
    job = step(own, pipeline)
    workers = [f"{job}_worker_{n}" for n in range(3)]
    wait_until(lambda: own.http("GET", f"{own.ws()}/jobs/{workers[2]}").status_code == 200, "the workers are there", 120)
    for worker in workers:
        own.wait_job(worker, "Running", 120)
    wait_until(lambda: all(did(own, worker) >= 10 for worker in workers), "all three work", 120)
    agents = own.agents()
    assert len(agents) == 3, agents
    os.kill(agents[0][0], signal.SIGKILL)
    own.wait_job(pipeline, "Completed", 300)
    rows = rows_of(own, job)
    names = [row[0] for row in rows]
    assert names == [f"f{n:04}.txt" for n in range(1, 1001)], "every file once, in order"
    assert all(row[1] == "ok" + row[0][1:5] for row in rows)
    assert {row[2] for row in rows} == set(workers), "each of the nodes did some"
    attempts = sorted(own.job(worker)["properties"]["neap.attempt"] for worker in workers)
    assert attempts[-1] == "2" or any(own.status(worker) == "Canceled" for worker in workers), attempts


def test_the_server_is_killed_in_the_middle(own, client, mark):
    pipeline = submit(client, mark, files(200), instance_count=2, arguments="--pause 0.05")
    job = step(own, pipeline)
    worker = f"{job}_worker_0"
    wait_until(lambda: own.http("GET", f"{own.ws()}/jobs/{worker}").status_code == 200, "the worker is there", 120)
    wait_until(lambda: did(own, worker) >= 5, "it works", 120)
    own.kill()
    own.up()
    own.wait_job(pipeline, "Completed", 180)
    assert [row[0] for row in rows_of(own, job)] == [f"f{n:03}.txt" for n in range(1, 201)]
    assert {own.job(f"{job}_worker_{n}")["properties"]["neap.attempt"] for n in range(2)} == {"1"}, "the workers went on"


def test_files_written_beside_the_rows_survive_a_lost_node(own, client, mark):
    pipeline = submit(client, mark, files(60), instance_count=2, beside=True, arguments="--pause 0.1")
    job = step(own, pipeline)
    workers = [f"{job}_worker_{n}" for n in range(2)]
    wait_until(lambda: own.http("GET", f"{own.ws()}/jobs/{workers[1]}").status_code == 200, "the workers are there", 120)
    wait_until(lambda: all(did(own, worker) >= 3 for worker in workers), "both work", 120)
    node = own.job(workers[0])["properties"]["neap.node"].removeprefix("n-")
    victim = [pid for pid, line in own.agents() if f"/{node}" in line or line.split()[-1] == node or f"/{node}/" in (line + "/")]
    os.kill((victim or [own.agents()[0][0]])[0], signal.SIGKILL)
    own.wait_job(pipeline, "Completed", 240)
    names = [f"f{n:02}.txt" for n in range(1, 61)]
    assert [row[0] for row in rows_of(own, job)] == names
    assert [name for name in names if own.output(job, "beside", name + ".out") is None] == []


def test_retries_and_what_is_allowed_to_fail(own, client, mark):
    special = [("g1.txt", "bad"), ("g2.txt", "flaky"), ("g3.txt", "die"), ("g4.txt", "hang"), ("g5.txt", "short")]
    retry = RetrySettings(max_retries=1, timeout=2)
    pipeline = submit(client, mark, files(4, *special), retry_settings=retry, mini_batch_error_threshold=3)
    job = step(own, pipeline)
    own.wait_job(pipeline, "Completed", 120)
    assert [row[0] for row in rows_of(own, job)] == ["f1.txt", "f2.txt", "f3.txt", "f4.txt", "g2.txt"]
    log = own.log(f"{job}_worker_0")
    assert log.count("ValueError: g1.txt is bad") == 2, "tried once more, then given up"
    assert log.count("RuntimeError: g2.txt fails once") == 1
    assert log.count("the process ended: exit code 7") == 2
    assert log.count("run() took longer than 2 s") == 2


def test_too_many_failures_end_it_with_counts_and_errors(own, client, mark):
    pipeline = submit(client, mark, files(3, ("g1.txt", "bad")), retry_settings=RetrySettings(max_retries=0, timeout=10), mini_batch_error_threshold=0)
    job = step(own, pipeline)
    own.wait_job(pipeline, "Failed", 120)
    log = own.log(pipeline)
    assert "1 of 4 mini-batches failed, and mini_batch_error_threshold allows 0" in log
    assert "ValueError: g1.txt is bad" in log
    assert own.status(job) == "Failed"
    few = submit(client, mark, files(3, ("g1.txt", "short")), error_threshold=0)
    own.wait_job(few, "Failed", 120)
    assert "1 items have no result" in own.log(few)


def test_a_wrong_entry_script(own, client, mark):
    with pytest.raises(HttpResponseError) as refused:
        submit(client, mark, files(1), script="nosuch.py", mini_batch_size="0", arguments="${{inputs.nothing}}")
    for words in ["'nosuch.py' is not in the code", "'0' is neither a number of files", "${{inputs.nothing}}"]:
        assert words in str(refused.value), words
    pipeline = submit(client, mark, files(1), script="norun.py")
    own.wait_job(pipeline, "Failed", 120)
    assert "has no function run(mini_batch)" in own.log(pipeline)


PIPELINE = """
type: pipeline
experiment_name: parallel
settings: {{default_compute: azureml:{cluster}}}
inputs:
  files: {{type: uri_folder, path: {data}}}
jobs:
  score:
    type: parallel
    mini_batch_size: "2"
    resources: {{instance_count: 2}}
    max_concurrency_per_instance: 1
    logging_level: DEBUG
    mini_batch_error_threshold: 5
    retry_settings: {{max_retries: 2, timeout: 60}}
    inputs: {{files: "${{{{parent.inputs.files}}}}"}}
    outputs: {{rows: {{type: uri_file, mode: rw_mount}}}}
    input_data: ${{{{inputs.files}}}}
    environment_variables: {{NEAP_TEST_MARK: {mark}}}
    task:
      type: run_function
      code: {code}
      entry_script: score.py
      environment: {{image: library/python:latest}}
      program_arguments: --pause 0 --allowed_failed_percent 50
      append_row_to: ${{{{outputs.rows}}}}
"""


def test_from_yaml_with_mini_batches_by_count(own, client, mark, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for n in range(7):
        (data / f"x{n}.txt").write_text("a" * 400)
    written = tmp_path / "pipeline.yml"
    written.write_text(PIPELINE.format(cluster=CLUSTER, data=data, code=CODE, mark=mark))
    job = load_job(written)
    job.name = unique("yaml")
    client.jobs.create_or_update(job)
    own.wait_job(job.name, "Completed", 120)
    name = step(own, job.name)
    assert [row[0] for row in rows_of(own, name)] == [f"x{n}.txt" for n in range(7)]
    shown = client.jobs.get(name)
    assert (shown.type, shown.status, shown.properties["azureml.parallelrunstep"]) == ("command", "Completed", "true")
    assert shown.properties["neap.jobType"] == "Parallel", "the answer says what it is"
    assert shown.command.startswith('python "${{inputs.neap_parallel_driver}}"'), "what each node runs"
    client.jobs.download(name, download_path=tmp_path / "out", output_name="rows")
    assert len([p for p in (tmp_path / "out").rglob("*") if p.is_file()]) == 1
    logs = own.log(f"{name}_worker_0") + own.log(f"{name}_worker_1")
    assert logs.count(": 2 in, 2 out") == 3 and logs.count(": 1 in, 1 out") == 1, logs


def test_what_a_table_asks_for_and_is_not_done_is_refused(own, mark, tmp_path):
    data = tmp_path / "table"
    data.mkdir()
    (data / "x.csv").write_text("a,b\n1,2\n")
    (data / "MLTable").write_text("type: mltable\npaths: [{pattern: ./*.csv}]\ntransformations:\n  - read_delimited:\n      delimiter: ','\n  - filter: 'col(\"a\") > 0'\n")
    written = tmp_path / "pipeline.yml"
    written.write_text(PIPELINE.format(cluster=CLUSTER, data=data, code=CODE, mark=mark).replace("type: uri_folder", "type: mltable"))
    name = unique("table")
    done = own.cli("job", "create", "-f", written, "-n", name, check=False)
    assert done.returncode == 1 and "asks for filter, which a parallel step does not apply" in done.stderr, done.stderr
    assert own.http("GET", f"{own.ws()}/jobs/{name}").status_code == 404
