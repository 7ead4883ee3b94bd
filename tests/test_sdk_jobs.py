"""Command jobs by the current azure-ai-ml SDK: submit, watch, download, cancel, fail; and how the cluster rises and falls."""

import hashlib
import json
import os
import threading
from pathlib import Path

import pytest
from azure.ai.ml import Input, Output, command
from azure.ai.ml.constants import ListViewType
from azure.ai.ml.entities import Environment
from azure.ai.ml.exceptions import JobException
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from neapserver import holds_for, unique, wait_until

JOBS = Path(__file__).parent / "jobs"


@pytest.fixture
def send(ml, mark, work_cluster):
    """Submits a command job; everything but the command has a plain default."""

    def submit(line, compute=None, variables=None, **kwargs):
        kwargs.setdefault("name", unique("sdk"))
        kwargs.setdefault("experiment_name", "suite")
        limits = kwargs.pop("timeout", None)
        job = command(
            command=line,
            compute=compute or work_cluster,
            environment=kwargs.pop("environment", Environment(image="library/python:latest")),
            environment_variables={"NEAP_TEST_MARK": mark, **(variables or {})},
            **kwargs,
        )
        if limits:
            job.set_limits(timeout=limits)
        return ml.jobs.create_or_update(job)

    return submit


def only(folder, name):
    found = list(Path(folder).rglob(name))
    assert len(found) == 1, f"{name} in {folder}: {sorted(str(p) for p in Path(folder).rglob('*'))}"
    return found[0]


# --- submit, watch, download --------------------------------------------------------------------------------------


def test_code_inputs_outputs_stream_download(ml, send, server, tmp_path, capsys):
    job = send(
        "python train.py --rate ${{inputs.rate}} --flag ${{inputs.flag}} --out ${{outputs.result}}",
        code=str(JOBS / "trainer"),
        inputs={"rate": 0.25, "flag": True},
        outputs={"result": Output(type="uri_folder")},
        variables={"GREETING": "hello from the SDK"},
        display_name="first",
        description="a whole job",
        tags={"suite": "jobs"},
    )
    assert job.status in ("NotStarted", "Queued", "Preparing", "Provisioning", "Starting", "Running")
    ml.jobs.stream(job.name)
    printed = capsys.readouterr().out
    assert "rate=0.25 flag=True greeting=hello from the SDK" in printed
    assert "steps=3" in printed

    done = ml.jobs.get(job.name)
    assert (done.status, done.display_name, done.description, done.tags) == ("Completed", "first", "a whole job", {"suite": "jobs"})

    ml.jobs.download(job.name, download_path=tmp_path / "all", all=True)
    assert json.loads(only(tmp_path / "all" / "artifacts", "model.json").read_text()) == {"rate": 0.25}
    assert "steps=3" in only(tmp_path / "all" / "artifacts", "std_log.txt").read_text()
    assert only(tmp_path / "all" / "named-outputs" / "result", "metrics.txt").read_text() == "accuracy 0.75\n"
    assert only(tmp_path / "all" / "named-outputs" / "result", "empty.bin").read_bytes() == b""

    ml.jobs.download(job.name, download_path=tmp_path / "one", output_name="result")
    assert only(tmp_path / "one", "metrics.txt").read_text() == "accuracy 0.75\n"


def test_the_same_code_is_uploaded_once_and_ignored_files_never(ml, send):
    first = send("ls -R", code=str(JOBS / "trainer"))
    second = send("ls -R", code=str(JOBS / "trainer"))
    assert ml.jobs.get(first.name).code == ml.jobs.get(second.name).code


def test_ignored_files_are_not_there(ml, send, server):
    job = send("ls -R .", code=str(JOBS / "trainer"))
    server.wait_job(job.name, "Completed")
    assert "train.py" in server.log(job.name) and "notes.txt" not in server.log(job.name)


def test_local_file_and_folder_inputs(send, server, tmp_path):
    (tmp_path / "folder" / "sub").mkdir(parents=True)
    (tmp_path / "folder" / "a.txt").write_text("alpha")
    (tmp_path / "folder" / "sub" / "b ü.txt").write_text("beta")
    (tmp_path / "one.csv").write_text("x,y\n1,2\n")
    job = send(
        'python read.py "${{inputs.folder}}" "${{inputs.file}}"',
        code=str(JOBS / "reader"),
        inputs={"folder": Input(type="uri_folder", path=str(tmp_path / "folder")), "file": Input(type="uri_file", path=str(tmp_path / "one.csv"))},
    )
    server.wait_job(job.name, "Completed")
    log = server.log(job.name)
    for name, text in (("a.txt", "alpha"), ("b ü.txt", "beta"), ("one.csv", "x,y\n1,2\n")):
        assert f"{name} {len(text)} {hashlib.sha256(text.encode()).hexdigest()[:16]}" in log


def test_a_file_over_64_mib_goes_up_in_blocks(send, server, tmp_path):
    big = tmp_path / "big.bin"
    block, digest = os.urandom(1 << 20), hashlib.sha256()
    with big.open("wb") as out:
        for i in range(70):
            piece = bytes([i]) + block[1:]
            out.write(piece)
            digest.update(piece)
    job = send("python read.py ${{inputs.big}}", code=str(JOBS / "reader"), inputs={"big": Input(type="uri_file", path=str(big))})
    server.wait_job(job.name, "Completed", 120)
    assert f"big.bin {70 << 20} {digest.hexdigest()[:16]}" in server.log(job.name)


def test_a_big_output_comes_back_whole(ml, send, server, tmp_path):
    line = "python -c \"import sys; open(sys.argv[1] + '/big.bin', 'wb').write(bytes(range(256)) * 4096 * 40)\" ${{outputs.o}}"
    job = send(line, outputs={"o": Output(type="uri_folder")})
    server.wait_job(job.name, "Completed", 120)
    ml.jobs.download(job.name, download_path=tmp_path, output_name="o")
    assert only(tmp_path, "big.bin").read_bytes() == bytes(range(256)) * 4096 * 40


def test_stream_prints_the_log_of_a_job_that_was_faster(ml, send, server, capsys):
    job = send("echo a quick word")
    server.wait_job(job.name, "Completed")
    ml.jobs.stream(job.name)
    assert "a quick word" in capsys.readouterr().out


def test_stream_shows_lines_while_the_job_runs(ml, send, server, tmp_path):
    """The job prints, then waits for the test to have seen it: a stream that only speaks at the end never finishes."""
    import subprocess
    import sys

    job = send("echo the first line; sleep 600")
    script = (
        "import os, sys\nfrom azure.ai.ml import MLClient\nfrom azure.identity import DefaultAzureCredential\n"
        "e = os.environ\nMLClient(DefaultAzureCredential(), e['NEAP_SUBSCRIPTION_ID'], e['NEAP_RESOURCE_GROUP'], e['NEAP_WORKSPACE']).jobs.stream(sys.argv[1])\n"
    )
    out = tmp_path / "out.txt"
    with out.open("wb") as sink:
        watcher = subprocess.Popen([sys.executable, "-u", "-W", "ignore", "-c", script, job.name], stdout=sink, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "the first line" in out.read_text(errors="replace"), "the SDK shows the line while the job runs", 60)
        assert server.status(job.name) == "Running"
        ml.jobs.begin_cancel(job.name).wait()
        watcher.wait(60)
    finally:
        watcher.kill()


def test_the_job_says_how_it_is_isolated_and_where_it_ran(send, server):
    job = send("echo x")
    server.wait_job(job.name, "Completed")
    extra = server.job(job.name)["properties"]
    assert extra["neap.node"].startswith("n-") and extra["neap.attempt"] == "1" and extra["neap.isolation"]


def test_environments_by_name_and_by_curated_name(ml, send, server):
    ml.environments.create_or_update(Environment(name="mine", version="3", image="library/python:latest"))
    for environment in ("mine:3", "mine@latest", "azureml://registries/azureml/environments/sklearn-1.5/versions/1"):
        job = send("python -c 'print(6 * 7)'", environment=environment)
        server.wait_job(job.name, "Completed")
        assert "42" in server.log(job.name)


# --- ends ---------------------------------------------------------------------------------------------------------


def test_cancel(ml, send, server, mark):
    job = send("echo started; sleep 600")
    server.wait_job(job.name, "Running")
    ml.jobs.begin_cancel(job.name).wait()
    server.wait_job(job.name, "Canceled")
    wait_until(lambda: not any("sleep 600" in line for _, line in server.processes(mark)), "the job's processes are gone")


def test_cancel_of_a_queued_job(ml, send, server, cluster):
    nowhere = cluster(0, 0)
    job = send("echo never", compute=nowhere)
    ml.jobs.begin_cancel(job.name).wait()
    server.wait_job(job.name, "Canceled")


def test_failure_carries_its_reason(ml, send, server, capsys):
    job = send("echo before the end; exit 3")
    with pytest.raises(JobException) as failed:
        ml.jobs.stream(job.name)
    assert "before the end" in capsys.readouterr().out
    assert "3" in str(failed.value) and "exit" in str(failed.value).lower(), str(failed.value)
    assert server.status(job.name) == "Failed"
    assert server.job(job.name)["properties"]["neap.failureClass"]
    assert server.job(job.name)["properties"]["neap.nextStep"]


def test_death_by_signal_is_told_apart(send, server):
    job = send("kill -SEGV $$")
    server.wait_job(job.name, "Failed")
    assert "signal" in json.dumps(server.job(job.name)["error"]).lower()


def test_timeout(send, server, mark):
    job = send("echo busy; sleep 600", timeout=2)
    status = server.wait_job(job.name, {"Failed", "Canceled"}, 30)
    words = json.dumps([server.details(job.name), server.job(job.name)]).lower()
    assert "timeout" in words or "time limit" in words, (status, words)
    wait_until(lambda: not any("sleep 600" in line for _, line in server.processes(mark)), "the job's processes are gone")


def test_what_a_job_leaves_running_is_gone_with_it(send, server, mark):
    job = send("setsid sleep 601 & nohup sleep 601 & echo left two behind")
    server.wait_job(job.name, "Completed")
    wait_until(lambda: not any("sleep 601" in line for _, line in server.processes(mark)), "the job's whole tree is gone")


# --- the job as a record ------------------------------------------------------------------------------------------


def test_list_archive_restore(ml, send, server):
    job = send("true")
    server.wait_job(job.name, "Completed")
    names = lambda view: {j.name for j in ml.jobs.list(list_view_type=view) if j}
    assert job.name in names(ListViewType.ACTIVE_ONLY)
    ml.jobs.archive(job.name)
    assert job.name not in names(ListViewType.ACTIVE_ONLY)
    assert job.name in names(ListViewType.ARCHIVED_ONLY) and job.name in names(ListViewType.ALL)
    ml.jobs.restore(job.name)
    assert job.name in names(ListViewType.ACTIVE_ONLY)


def test_tags_can_be_edited(ml, send, server):
    job = send("true", tags={"a": "1"})
    server.wait_job(job.name, "Completed")
    fetched = ml.jobs.get(job.name)
    fetched.tags["b"] = "2"
    fetched.display_name = "renamed"
    ml.jobs.create_or_update(fetched)
    again = ml.jobs.get(job.name)
    assert again.tags == {"a": "1", "b": "2"} and again.display_name == "renamed" and again.status == "Completed"


def test_delete(ml, send, server):
    job = send("true")
    server.wait_job(job.name, "Completed")
    ml.jobs.begin_delete(job.name).wait()
    wait_until(lambda: server.http("GET", f"{server.ws()}/jobs/{job.name}").status_code == 404, "the job is gone")
    with pytest.raises(ResourceNotFoundError):
        ml.jobs.get(job.name)


def test_the_same_put_again_is_no_error_and_starts_nothing(server, work_cluster):
    name = server.submit(work_cluster, "echo once")
    body = server.job_body(work_cluster, "echo once")
    assert server.http("PUT", f"{server.ws()}/jobs/{name}", body).status_code == 200
    server.wait_job(name, "Completed")
    assert server.http("PUT", f"{server.ws()}/jobs/{name}", body).status_code == 200
    assert server.status(name) == "Completed" and server.job(name)["properties"]["neap.attempt"] == "1"


def test_another_definition_under_a_used_name_names_the_fields(server, work_cluster):
    name = server.submit(work_cluster, "echo one")
    body = server.job_body(work_cluster, "echo two", environmentVariables={"A": "b"})
    answer = server.http("PUT", f"{server.ws()}/jobs/{name}", body)
    assert answer.status_code == 409
    assert "command" in answer.text and "environmentVariables" in answer.text, answer.text


def test_only_labels_changed_is_an_update(server, work_cluster):
    name = server.submit(work_cluster, "echo one")
    body = server.job_body(work_cluster, "echo one", tags={"x": "y"}, description="new", displayName="shown")
    assert server.http("PUT", f"{server.ws()}/jobs/{name}", body).status_code == 200
    assert server.job(name)["tags"] == {"x": "y"} and server.job(name)["displayName"] == "shown"


# --- refusals -----------------------------------------------------------------------------------------------------


def test_unknown_compute(send):
    with pytest.raises(HttpResponseError) as no:
        send("true", compute="no-such-cluster")
    assert 400 <= no.value.status_code < 500 and "no-such-cluster" in str(no.value)


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU, so there is nothing to refuse")
def test_a_gpu_that_is_not_there(send, cluster):
    gpu = cluster(0, 1, size="STANDARD_NC6S_V3")
    with pytest.raises(HttpResponseError) as no:
        send("nvidia-smi", compute=gpu)
    assert "gpu" in str(no.value).lower()


def test_more_instances_than_the_cluster_may_have_are_refused_plainly(send):
    with pytest.raises(HttpResponseError) as no:
        send("true", instance_count=5_000)
    assert "5000 nodes at once" in str(no.value) and "max_instances" in str(no.value)


def test_what_neap_does_not_run_is_refused_plainly(server):
    for kind in ("AutoML", "Spark"):
        answer = server.http("PUT", f"{server.ws()}/jobs/{unique('p')}", {"properties": {"jobType": kind}})
        assert 400 <= answer.status_code < 500 and kind.lower() in answer.text.lower(), answer.text


def test_a_job_that_is_not_there(ml):
    with pytest.raises(ResourceNotFoundError):
        ml.jobs.get("not-there")


# --- the cluster rises and falls ----------------------------------------------------------------------------------


def test_rises_from_zero_and_falls_back(ml, send, server, cluster):
    name = cluster(0, 2, "PT2S")
    assert server.cluster(name)["currentNodeCount"] == 0
    job = send("sleep 3", compute=name)
    server.wait_job(job.name, "Running")
    assert [n.node_state for n in ml.compute.list_nodes(name)] == ["running"]
    node = server.nodes(name)[0]
    assert node["job"] == job.name and node["reason"]
    # The idle time is shorter than the job: a busy node is never taken.
    while server.status(job.name) == "Running":
        assert server.nodes(name) or server.status(job.name) != "Running", "a busy node was taken"
    server.wait_job(job.name, "Completed")
    wait_until(lambda: server.cluster(name)["currentNodeCount"] == 0, "the cluster is at zero again", 30)
    gone = server.nodes(name, gone=True)
    assert [n["node_id"] for n in gone] == [node["node_id"]]


def test_an_idle_node_is_used_before_one_is_added(send, server, cluster):
    name = cluster(0, 2, "PT1M")
    first = send("true", compute=name)
    server.wait_job(first.name, "Completed")
    wait_until(lambda: [n["state"] for n in server.nodes(name)] == ["idle"], "the node is idle")
    second = send("true", compute=name)
    server.wait_job(second.name, "Completed")
    assert server.job(first.name)["properties"]["neap.node"] == server.job(second.name)["properties"]["neap.node"]
    assert len(server.nodes(name, gone=True)) == 1


def test_two_jobs_on_one_node_queue_and_the_second_says_why(send, server, cluster):
    name = cluster(0, 1, "PT1M")
    first = send("sleep 600", compute=name)
    server.wait_job(first.name, "Running")
    second = send("echo second", compute=name)
    assert server.status(second.name) == "Queued"
    reasons = server.explain(second.name)["reasons"]
    assert reasons and server.job(second.name)["properties"]["neap.queueReason"]
    assert "1" in " ".join(reasons), reasons
    server.http("POST", f"{server.ws()}/jobs/{first.name}/cancel")
    server.wait_job(second.name, "Completed")


def test_a_scale_up_asks_for_the_whole_gap(send, server, cluster):
    name = cluster(0, 3, "PT2S")
    jobs = [send("sleep 600", compute=name) for _ in range(4)]
    wait_until(lambda: [n["state"] for n in server.nodes(name)] == ["running"] * 3, "three nodes run")
    assert server.cluster(name)["currentNodeCount"] == 3 and server.cluster(name)["targetNodeCount"] == 3
    statuses = lambda: sorted(server.status(j.name) for j in jobs)  # noqa: E731
    wait_until(lambda: statuses() == ["Queued", "Running", "Running", "Running"], "three run and one waits")


def test_minimum_of_one_starts_and_stays(send, server, cluster):
    name = cluster(1, 2, "PT0S")
    wait_until(lambda: [n["state"] for n in server.nodes(name)] == ["idle"], "one node is idle")
    job = send("true", compute=name)
    server.wait_job(job.name, "Completed")
    holds_for(lambda: len(server.nodes(name)) >= 1, "one node stays", 2)


def test_a_lowered_maximum_takes_idle_nodes_at_once_and_busy_ones_later(send, server, cluster):
    name = cluster(0, 2, "PT10M")
    busy = send("sleep 600", compute=name)
    short = send("true", compute=name)
    server.wait_job(busy.name, "Running")
    server.wait_job(short.name, "Completed")
    server.http("PATCH", f"{server.ws()}/computes/{name}", {"properties": {"properties": {"scaleSettings": {"minNodeCount": 0, "maxNodeCount": 0}}}})
    wait_until(lambda: [n["job"] for n in server.nodes(name) if n["state"] != "leaving"] == [busy.name], "only the busy node is left")
    assert server.status(busy.name) == "Running"
    server.http("POST", f"{server.ws()}/jobs/{busy.name}/cancel")
    wait_until(lambda: not server.nodes(name), "the last node left after its job")


def test_many_short_jobs_at_once(server, cluster):
    name = cluster(0, 2, "PT5S")
    server.environment_id()
    names = [unique("many") for _ in range(40)]

    def submit(some):
        for n in some:
            server_put(n)

    def server_put(n):
        answer = server.http("PUT", f"{server.ws()}/jobs/{n}", server.job_body(name, f"echo {n}"))
        assert answer.status_code in (200, 201), answer.text

    threads = [threading.Thread(target=submit, args=(names[i::4],)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for n in names:
        server.wait_job(n, "Completed", 120)
        assert n in server.log(n)
    assert len(server.nodes(name, gone=True)) <= 2
