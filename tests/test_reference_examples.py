"""Files of jobs and schedules, run as they are by `neap` and by the SDK: the public examples where they are, and our own.

The public examples are read from `$NEAP_REFERENCE/examples`, else from `../shared/reference/examples` beside the checkout. Without
them one test says that they were skipped, and our own (`tests/yaml/run`) are run all the same.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from azure.ai.ml import MLClient, load_job
from azure.identity import DefaultAzureCredential

from neapserver import ROOT, Server, new_home, remove, unique

EXAMPLES = Path(os.environ.get("NEAP_REFERENCE") or ROOT.parent / "shared" / "reference") / "examples"
OURS = ROOT / "tests" / "yaml" / "run"
JOBS = [*sorted((EXAMPLES / "jobs").glob("*.yml")), *sorted(OURS.glob("*.yml"))]
SCHEDULES = [*sorted((EXAMPLES / "schedules").glob("*-schedule.yml")), *(ROOT / "tests" / "schedules" / f"{name}.yml" for name in ("hourly", "named", "weekly"))]

BOTH = "a,b\n1,2\na,b\n3,4\n5,6\n"


@dataclass
class Expected:
    """What a file's job leaves: lines of its log, or of its steps'; and files, below what `job download --all` makes."""

    log: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)


EXPECTED = {
    "hello-world": Expected(log={"": ["hello world"]}),
    "hello-world-env-var": Expected(log={"": ["hello world"]}),
    "hello-world-input": Expected(log={"": ["hello world", "42"]}),
    "hello-world-org": Expected(log={"": ["hello world"]}),
    "hello-world-output": Expected(files={"artifacts/outputs/helloworld.txt": "hello world\n"}),
    "hello-world-output-data": Expected(files={"named-outputs/hello_output/helloworld.txt": "hello world\n"}),
    "hello-pipeline": Expected(log={"hello_job": ["hello"], "world_job": ["world"]}),
    "hello-pipeline-abc": Expected(log={"a": ["hello hello world"], "c": ["/world.txt"]}),
    "hello-pipeline-io": Expected(log={"hello_job": ["hello"], "world_job": ["world"]}),
    "hello-pipeline-io-serverless": Expected(log={"hello_job": ["hello"], "world_job": ["world"]}),
    # What is left in the background (the number) ends with the shell, and may have said nothing by then.
    "hello-pipeline-settings": Expected(log={"hello_job": ["hello"], "world_job": ["hello"]}),
    "command-ends": Expected(
        log={"": ["given words 3 True and 2 files in mode fast", "given and 1 files in mode fast"]},
        files={
            "named-outputs/all/read.txt": BOTH,
            "named-outputs/one/one": "a,b\n1,2\n",
            "artifacts/outputs/kept.txt": "kept\n",
        },
    ),
    "command-processes": Expected(log={"": [f"rank {rank} of 4 on node {rank // 2}" for rank in range(4)]}),
    "pipeline-kinds": Expected(
        log={"inline": ["given piped and 2 files in mode inline"], "component": ["given copied and 1 files in mode None"]},
        files={"named-outputs/last/read.txt": BOTH, "named-outputs/scores/scores": {"one.csv 8", "two.csv 12"}},
    ),
    "sweep-grid": Expected(files={"named-outputs/tried/tried.txt": "1"}),
}


@pytest.fixture(scope="module")
def server(mark):
    """A server whose table of addresses leads to our own files."""
    home = new_home("examples")
    (home / "config.yaml").write_text(f"inputs:\n  map:\n    'https://data.example.org/copies': '{OURS / 'data'}'\n")
    running = Server(home)
    running.up()
    patch = pytest.MonkeyPatch()
    for key, value in running.vars.items():
        patch.setenv(key, value)
    yield running
    patch.undo()
    try:
        running.down()
        running.assert_nothing_left(mark)
        verified = running.cli("verify", check=False)
        assert verified.returncode == 0, f"neap verify: {verified.stdout}{verified.stderr}"
    finally:
        remove(home)


@pytest.fixture(scope="module")
def ml(server):
    return MLClient(DefaultAzureCredential(), server.subscription, server.group, server.workspace)


@pytest.fixture(scope="module", autouse=True)
def cpu_cluster(server):
    """The cluster that the files name. Those that name none get a serverless one."""
    server.make_cluster("cpu-cluster", 0, 2, "PT1M")


def by_cli(server, ml, path, folder):
    name = unique("cli")
    server.cli("job", "create", "-f", path, "-n", name)
    streamed = server.cli("job", "stream", "-n", name, timeout=180)
    assert f"job {name}: Completed" in streamed.stderr, streamed.stderr
    server.cli("job", "download", "-n", name, "--all", "-p", folder)
    return name


def by_sdk(server, ml, path, folder):
    job = load_job(path)
    job.name = unique("sdk")
    ml.jobs.create_or_update(job)
    ml.jobs.stream(job.name)
    server.wait_job(job.name, "Completed", 120)
    ml.jobs.download(job.name, download_path=folder, all=True)
    return job.name


def log_of(server, job, step):
    """What a job or a step of it said; a step that need not run again has said it in an earlier job."""
    name = f"{job}_{step}" if step else job
    earlier = server.job(name)["properties"].get("azureml.reusedrunid")
    return server.log(earlier or name)


def test_the_public_examples_are_there():
    if not EXAMPLES.is_dir():
        pytest.skip(f"the public examples are not at {EXAMPLES}: set NEAP_REFERENCE to the folder that has them; only our own files were run")
    assert {path.stem for path in JOBS} >= set(EXPECTED), "every file that we know is run"


@pytest.mark.parametrize("way", [by_cli, by_sdk], ids=["cli", "sdk"])
@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_file_runs_to_its_end_with_its_outputs(server, ml, path, way, tmp_path, monkeypatch):
    # Whatever the SDK makes of a relative path, it is not the folder of these suites.
    monkeypatch.chdir(tmp_path)
    name = way(server, ml, path, tmp_path)
    expected = EXPECTED.get(path.stem, Expected())
    for step, lines in expected.log.items():
        said = log_of(server, name, step)
        assert all(line in said for line in lines), f"{step or name} said {said!r}"
    for file, content in expected.files.items():
        found = list(tmp_path.rglob(file))
        assert len(found) == 1, f"{file}: {sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob('*'))}"
        text = found[0].read_text()
        # Rows of a parallel step come in any order.
        assert (set(text.splitlines()) if isinstance(content, set) else text) == content, file


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_a_schedule_is_taken_and_a_forced_trigger_completes(server, path):
    name = unique("schedule")
    made = server.json("schedule", "create", "-f", path, "-n", name)
    assert (made["name"], made["is_enabled"], made["provisioning_state"]) == (name, True, "Succeeded")
    job = server.json("schedule", "trigger", "-n", name)["job_name"]
    streamed = server.cli("job", "stream", "-n", job, timeout=180)
    assert f"job {job}: Completed" in streamed.stderr, streamed.stderr
    assert server.job(job)["properties"]["azureml.scheduleName"] == name
    server.cli("schedule", "delete", "-n", name, "--yes")
    assert server.http("GET", f"{server.ws()}/schedules/{name}").status_code == 404
