"""Every kind of file that `neap` reads, sent to a real server: pipelines, sweeps, components, assets, and a job again."""

import json

import pytest
import yaml

from neapserver import ROOT, unique

YAML = ROOT / "tests" / "yaml"
PYTHON = {"image": "library/python:latest"}


@pytest.fixture
def write(tmp_path):
    def write(name, body):
        path = tmp_path / name
        path.write_text(yaml.safe_dump(body, sort_keys=False))
        return path

    return write


@pytest.fixture
def pipeline(work_cluster, mark, write, tmp_path):
    """Two steps with code, the second a component's file, bound to each other and to the pipeline's ends."""
    code = tmp_path / "src"
    code.mkdir()
    (code / "say.py").write_text("import pathlib, sys\nprint('said', sys.argv[1])\npathlib.Path(sys.argv[2], 'x.txt').write_text(sys.argv[1] + chr(10))\n")
    write("second.yml", {
        "type": "command", "name": "second", "inputs": {"before": {"type": "uri_folder"}, "word": {"type": "string", "default": "end"}},
        "outputs": {"after": {"type": "uri_folder"}}, "environment": PYTHON,
        "command": "cat ${{inputs.before}}/x.txt; echo ${{inputs.word}}; cp ${{inputs.before}}/x.txt ${{outputs.after}}/y.txt",
    })  # fmt: skip
    return write("pipeline.yml", {
        "type": "pipeline", "settings": {"default_compute": f"azureml:{work_cluster}"}, "inputs": {"word": "hello"},
        "outputs": {"final": {"type": "uri_folder"}},
        "jobs": {
            "first": {"command": "python say.py ${{inputs.word}} ${{outputs.o}}", "code": "./src", "environment": PYTHON,
                      "environment_variables": {"NEAP_TEST_MARK": mark},
                      "inputs": {"word": "${{parent.inputs.word}}"}, "outputs": {"o": {"type": "uri_folder"}}},
            "second": {"component": "./second.yml", "inputs": {"before": "${{parent.jobs.first.outputs.o}}"}, "outputs": {"after": "${{parent.outputs.final}}"}},
        },
    })  # fmt: skip


def test_a_pipeline_is_streamed_under_the_names_of_its_steps(server, pipeline):
    name = unique("pipe")
    done = server.cli("job", "create", "-f", pipeline, "-n", name, "--set", "inputs.word=changed", "--stream")
    assert "[first] said changed" in done.stdout and "[second] end" in done.stdout, done.stdout
    assert "Completed" in done.stderr
    children = server.json("job", "list", "--parent-job-name", name)
    assert sorted(child["display_name"] for child in children) == ["first", "second"]
    assert {child["status"] for child in children} == {"Completed"}


def test_a_job_is_submitted_again_under_a_new_name(server, pipeline):
    first, again = unique("pipe"), unique("pipe")
    server.cli("job", "create", "-f", pipeline, "-n", first)
    server.wait_job(first, "Completed", seconds=120)
    server.cli("job", "create", "--from", first, "-n", again, "--set", "inputs.word=twice")
    server.wait_job(again, "Completed", seconds=120)
    kept, sent = server.job(first), server.job(again)
    assert sent["inputs"]["word"]["value"] == "twice" and kept["inputs"]["word"]["value"] == "hello"
    for step in ("first", "second"):
        assert sent["jobs"][step]["componentId"] == kept["jobs"][step]["componentId"], "the same work, by the same id"


def test_a_failing_step_fails_the_stream(server, work_cluster, write):
    step = {"command": "echo last words; exit 7", "environment": PYTHON}
    path = write("bad.yml", {"type": "pipeline", "settings": {"default_compute": f"azureml:{work_cluster}"}, "jobs": {"only": step}})
    done = server.cli("job", "create", "-f", path, "--stream", check=False)
    assert done.returncode == 1 and "[only] last words" in done.stdout and "Failed" in done.stderr


def test_nothing_is_left_of_a_file_that_is_wrong(server, pipeline):
    before = {job["name"] for job in server.json("job", "list")}
    done = server.cli("job", "create", "-f", pipeline, "--set", "jobs.second.inputs.before=${{parent.jobs.frist.outputs.o}}", check=False)
    assert done.returncode == 2 and "did you mean `first`?" in done.stderr
    assert {job["name"] for job in server.json("job", "list")} == before


def test_components_are_registered_listed_and_used(server, pipeline, write, work_cluster):
    name = unique("comp").replace("-", "_")
    made = server.json("component", "create", "-f", pipeline.parent / "second.yml", "--name", name, "--version", "3")
    assert (made["name"], made["version"], made["type"]) == (name, "3", "command")
    assert server.json("component", "show", "-n", name)["command"] == made["command"]
    assert name in [row["name"] for row in server.json("component", "list")]
    assert [row["version"] for row in server.json("component", "list", "-n", name)] == ["3"]
    path = write("uses.yml", {
        "type": "pipeline", "settings": {"default_compute": f"azureml:{work_cluster}"},
        "jobs": {"a": {"command": "echo from-a > ${{outputs.o}}/x.txt", "environment": PYTHON, "outputs": {"o": {"type": "uri_folder"}}},
                 "b": {"component": f"azureml:{name}@latest", "inputs": {"before": "${{parent.jobs.a.outputs.o}}", "word": "registered"}}},
    })  # fmt: skip
    done = server.cli("job", "create", "-f", path, "--stream")
    assert "[b] from-a" in done.stdout and "[b] registered" in done.stdout


def test_environments_and_data_are_registered(server, tmp_path):
    environment = server.json("environment", "create", "-n", unique("env"), "--image", "library/python:latest", "--description", "d")
    assert environment["image"] == "library/python:latest" and environment["version"] == "1"
    changed = server.json("environment", "update", "-n", environment["name"], "--version", "1", "--set", "tags.stage=good")
    assert changed["tags"] == {"stage": "good"}
    refused = server.cli("environment", "update", "-n", environment["name"], "--version", "1", "--set", "image=other", check=False)
    assert refused.returncode == 2 and "cannot change" in refused.stderr
    (tmp_path / "rows.csv").write_text("a,b\n")
    data = server.json("data", "create", "-n", unique("rows"), "--path", tmp_path / "rows.csv", "--type", "uri_file")
    assert data["type"] == "uri_file" and data["path"].endswith("/rows.csv")
    assert server.json("data", "show", "-n", data["name"], "--label", "latest")["path"] == data["path"]


def test_a_sweep_shows_its_trials(server, work_cluster, write):
    path = write("sweep.yml", {
        "type": "sweep", "compute": f"azureml:{work_cluster}", "sampling_algorithm": "grid", "objective": {"primary_metric": "m", "goal": "maximize"},
        "search_space": {"x": {"type": "choice", "values": [1, 2]}}, "limits": {"max_total_trials": 2, "max_concurrent_trials": 2},
        "trial": {"command": "echo tried ${{search_space.x}}", "environment": PYTHON},
    })  # fmt: skip
    name = unique("sweep")
    done = server.cli("job", "create", "-f", path, "-n", name, "--stream", check=False)
    assert "tried 1" in done.stdout and "tried 2" in done.stdout, done.stdout + done.stderr
    assert len(server.json("job", "list", "--parent-job-name", name)) == 2
    shown = server.json("job", "show", "-n", name)
    assert shown["search_space"] == {"x": {"type": "choice", "values": [1, 2]}} and shown["sampling_algorithm"] == "grid"


@pytest.mark.parametrize("path", [p for p in sorted(YAML.glob("*.yml")) if p.name.startswith(("command-", "pipeline-", "sweep-"))], ids=lambda path: path.name)
def test_files_with_every_field_are_valid(server, path):
    assert json.loads(server.cli("job", "validate", "-f", path).stdout) == {"result": "Succeeded"}
