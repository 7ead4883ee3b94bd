"""Pipelines by the real SDK and by `neap`: order, bindings, reuse, failures, nesting, cancel; and what is refused."""

import os
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from azure.ai.ml import Input, Output, command, dsl, load_component
from azure.ai.ml.entities import Environment

from neapserver import SHARED_FOLDER, unique, wait_until

ENVIRONMENT = "azureml://registries/azureml/environments/sklearn-1.5/labels/latest"


def step(line, **kwargs):
    kwargs.setdefault("environment", Environment(image="library/python:latest"))
    return command(command=line, **kwargs)


@pytest.fixture
def run(ml, server):
    """Submits a pipeline and waits for its end."""

    def submit(pipeline, name=None):
        pipeline.name = name or unique("pipe")
        job = ml.jobs.create_or_update(pipeline, experiment_name="suite")
        server.wait_job(job.name)
        return job.name

    return submit


@pytest.fixture
def gate():
    """A file that a job can wait for; its own /tmp is not this one."""
    path = SHARED_FOLDER / unique("neap-gate")
    yield path
    path.unlink(missing_ok=True)


def children(server, name):
    runs = server.get(f"/history/v1.0{server.ws()}/runs/{name}/children")["value"]
    return {run["runId"].removeprefix(f"{name}_"): run for run in runs}


def statuses(server, name):
    return {step: run["status"] for step, run in children(server, name).items()}


def test_steps_hand_their_outputs_on_and_the_pipelines_output_is_downloaded(ml, server, run, work_cluster, tmp_path):
    write = step("mkdir -p ${{outputs.o}} && echo ${{inputs.word}} > ${{outputs.o}}/w.txt", inputs={"word": "none"}, outputs={"o": Output(type="uri_folder")})
    join = step(
        "cat ${{inputs.a}}/w.txt ${{inputs.b}}/w.txt > ${{outputs.r}}/both.txt",
        inputs={"a": Input(type="uri_folder"), "b": Input(type="uri_folder")},
        outputs={"r": Output(type="uri_folder")},
    )

    @dsl.pipeline(compute=work_cluster)
    def pipeline(word):
        one = write(word=word)
        two = write(word="world")
        both = join(a=one.outputs.o, b=two.outputs.o)
        return {"final": both.outputs.r}

    name = run(pipeline(word="hello"))
    job = ml.jobs.get(name)
    assert job.status == "Completed", server.job(name)
    assert set(statuses(server, name).values()) == {"Completed"} and len(statuses(server, name)) == 3
    ml.jobs.download(name, download_path=tmp_path, output_name="final")
    found = list(tmp_path.rglob("both.txt"))
    assert len(found) == 1 and found[0].read_text() == "hello\nworld\n"
    listed = [child.name for child in ml.jobs.list(parent_job_name=name)]
    assert len(listed) == 3
    assert not set(listed) & {job.name for job in ml.jobs.list(max_results=500)}, "steps are listed with their pipeline only"


def test_a_step_waits_for_those_it_needs_and_says_so(ml, server, work_cluster, gate):
    slow = step(f"while [ ! -e {gate} ]; do sleep 0.05; done; touch ${{{{outputs.o}}}}/x", outputs={"o": Output(type="uri_folder")})
    after = step("ls ${{inputs.i}}", inputs={"i": Input(type="uri_folder")})

    @dsl.pipeline(compute=work_cluster)
    def pipeline():
        first = slow()
        second = after(i=first.outputs.o)  # noqa: F841 (the variable names the step)

    job = pipeline()
    job.name = unique("pipe")
    name = ml.jobs.create_or_update(job, experiment_name="suite").name
    wait_until(lambda: statuses(server, name)["first"] == "Running", "the first step runs")
    assert statuses(server, name)["second"] == "NotStarted"
    waiting = server.job(f"{name}_second")["properties"]["neap.queueReason"]
    assert waiting == f"It waits for step '{name}_first' to complete."
    gate.touch()
    server.wait_job(name)
    assert set(statuses(server, name).values()) == {"Completed"}


def test_unchanged_steps_are_not_run_again(ml, server, run, work_cluster):
    salt = unique("salt")
    definition = {
        "type": "command", "name": "make", "version": "1", "is_deterministic": True,
        "command": f"date +%s%N > ${{{{outputs.o}}}}/stamp; echo {salt}", "environment": ENVIRONMENT,
        "outputs": {"o": {"type": "uri_folder"}},
    }
    component = component_of(definition)
    show = step("cat ${{inputs.i}}/stamp", inputs={"i": Input(type="uri_folder")})

    def pipeline(force=False):
        @dsl.pipeline(compute=work_cluster, force_rerun=force)
        def inner():
            made = component()
            shown = show(i=made.outputs.o)  # noqa: F841

        return inner()

    first, second = run(pipeline()), run(pipeline())
    reused = children(server, second)["made"]
    assert reused["properties"]["azureml.isreused"] == "true"
    assert reused["properties"]["azureml.reusedrunid"] == f"{first}_made"
    assert children(server, second)["shown"]["properties"]["azureml.reusedrunid"] == f"{first}_shown", "what follows it is unchanged too"
    third = run(pipeline(force=True))
    assert not any("azureml.isreused" in child["properties"] for child in children(server, third).values())

    def stamp(name):
        return [line for line in server.log(f"{name}_shown").splitlines() if line.isdigit()]

    assert len(stamp(first)) == 1 and stamp(third) != stamp(first)


def component_of(definition):
    with tempfile.NamedTemporaryFile("w", suffix=".yml", delete=False) as file:
        yaml.safe_dump(definition, file)
    try:
        return load_component(file.name)
    finally:
        os.unlink(file.name)


def broken(work_cluster, go_on):
    fails = step("echo broken; exit 3", outputs={"o": Output(type="uri_folder")})
    needs = step("echo never", inputs={"i": Input(type="uri_folder")})
    slow, quick = step("sleep 60"), step("echo other")

    @dsl.pipeline(compute=work_cluster, continue_on_step_failure=go_on)
    def pipeline():
        bad = fails()
        needy = needs(i=bad.outputs.o)  # noqa: F841
        other = quick() if go_on else slow()  # noqa: F841

    return pipeline()


def test_a_failed_step_ends_the_pipeline_and_is_named(ml, server, run, work_cluster):
    began = time.monotonic()
    name = run(broken(work_cluster, go_on=False))
    assert time.monotonic() - began < 50, "the step that would take a minute was ended with it"
    assert statuses(server, name) == {"bad": "Failed", "needy": "Canceled", "other": "Canceled"}
    error = server.job(name)["error"]
    assert error["code"] == "StepFailed" and "exit code 3" in error["message"] and f"{name}_bad" in error["message"]


def test_steps_that_do_not_need_the_failed_one_go_on(server, run, work_cluster):
    name = run(broken(work_cluster, go_on=True))
    assert statuses(server, name) == {"bad": "Failed", "needy": "Canceled", "other": "Completed"}
    assert server.status(name) == "Failed"


def test_nested_pipelines_and_the_story_of_all_of_it(ml, server, run, work_cluster):
    leaf = step("echo ${{inputs.n}} > ${{outputs.o}}/n", inputs={"n": 1}, outputs={"o": Output(type="uri_folder")})

    show = step("cat ${{inputs.i}}/n", inputs={"i": Input(type="uri_folder")})

    @dsl.pipeline()
    def inner(n: int):
        made = leaf(n=n)
        return {"out": made.outputs.o}

    @dsl.pipeline(compute=work_cluster)
    def outer():
        first = inner(n=7)
        shown = show(i=first.outputs.out)  # noqa: F841

    name = run(outer())
    assert server.status(name) == "Completed", server.job(name)
    assert "7" in server.log(f"{name}_shown").splitlines()
    assert statuses(server, f"{name}_first") == {"made": "Completed"}
    story = server.log(name)
    for line in ("was opened", f"({name}_first_made) runs on node", f"({name}_shown) ended: Completed", "ended: Completed"):
        assert line in story, story


def test_cancel_reaches_every_step(ml, server, work_cluster):
    sleeps = step("sleep 300", outputs={"o": Output(type="uri_folder")})
    never = step("echo never", inputs={"i": Input(type="uri_folder")})

    @dsl.pipeline(compute=work_cluster)
    def pipeline():
        one = sleeps()
        two = never(i=one.outputs.o)  # noqa: F841

    job = pipeline()
    job.name = unique("pipe")
    name = ml.jobs.create_or_update(job).name
    wait_until(lambda: "Running" in statuses(server, name).values(), "a step runs")
    ml.jobs.begin_cancel(name).result()
    assert server.status(name) == "Canceled"
    assert set(statuses(server, name).values()) == {"Canceled"}


def test_the_server_is_killed_in_the_middle(own_server, gate):
    server = own_server()
    server.make_cluster("cpu", high=2)
    environment = server.environment_id()
    body = {"properties": {"jobType": "Pipeline", "settings": {"default_compute": "azureml:cpu"}, "jobs": {
        "a": {"type": "command", "command": f"while [ ! -e {gate} ]; do sleep 0.05; done; echo a > ${{{{outputs.o}}}}/f",
              "environment": environment, "outputs": {"o": {"job_output_type": "uri_folder"}}},
        "b": {"type": "command", "command": "cat ${{inputs.i}}/f", "environment": environment,
              "inputs": {"i": {"job_input_type": "literal", "value": "${{parent.jobs.a.outputs.o}}"}}},
    }}}
    server.put(f"{server.ws()}/jobs/pipe", body)
    wait_until(lambda: statuses(server, "pipe")["a"] == "Running", "the first step runs")
    server.kill()
    gate.touch()
    server.up()
    server.wait_job("pipe")
    assert statuses(server, "pipe") == {"a": "Completed", "b": "Completed"}


def test_everything_wrong_is_refused_at_once_and_nothing_is_left(server, work_cluster):
    body = {"properties": {"jobType": "Pipeline", "settings": {"default_compute": f"azureml:{work_cluster}"},
        "outputs": {"never": {"jobOutputType": "uri_folder"}}, "jobs": {
        "a": {"type": "command", "command": "echo ${{inputs.x}}", "environment": "azureml:none:1"},
        "b": {"type": "command", "command": "x", "environment": ENVIRONMENT, "compute": "azureml:nowhere",
              "inputs": {"i": {"value": "${{parent.inputs.gone}}"}}},
        "c": {"type": "command", "command": "x", "environment": ENVIRONMENT, "inputs": {"i": {"value": "${{parent.jobs.d.outputs.o}}"}}},
        "d": {"type": "command", "command": "x", "environment": ENVIRONMENT, "inputs": {"i": {"value": "${{parent.jobs.c.outputs.o}}"}}},
        "e": {"type": "automl"},
    }}}
    name = unique("bad")
    answer = server.http("PUT", f"{server.ws()}/jobs/{name}", body)
    assert answer.status_code == 400, answer.text
    said = answer.text
    for expect in ("none", "inputs.x", "gone", "'c', 'd' wait for each other in a circle", "No step makes the output 'never'", "automl"):
        assert expect in said, f"{expect}: {said}"
    assert server.http("GET", f"{server.ws()}/jobs/{name}").status_code == 404
    assert server.http("GET", f"{server.ws()}/jobs/{name}_a").status_code == 404
