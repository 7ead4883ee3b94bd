"""GPUs: which attempt has which, what a machine without them says, and pretended ones. What a real GPU is needed for is in
`gpu_real.py`, which runs by itself."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import neapserver
import pytest
import yaml

from neapserver import SHARED_FOLDER, Server, new_home, remove, unique, wait_until

ONE, TWO, FOUR = "STANDARD_NC24ADS_A100_V4", "STANDARD_NC48ADS_A100_V4", "STANDARD_NC96ADS_A100_V4"
SAY = 'echo "sees <$CUDA_VISIBLE_DEVICES> <$NVIDIA_VISIBLE_DEVICES>"'
no_gpu_here = pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU, so there is nothing to refuse")


@pytest.fixture(scope="module")
def pretending(mark):
    """A server that pretends to have four GPUs."""
    running = Server(new_home("gpus"))
    neapserver.share(running.home)
    running.up(extra=("--emulate-gpus", "4"))
    yield running
    running.down()
    running.assert_nothing_left(mark)
    remove(running.home)


@pytest.fixture
def gpu_cluster(pretending):
    made = []

    def make(size, high=1, low=0):
        name = unique("gp")
        pretending.make_cluster(name, low, high, size=size)
        made.append(name)
        return name

    yield make
    for name in made:
        pretending.drop_cluster(name)


@pytest.fixture
def gate():
    """A file that jobs wait for; they have a /tmp of their own, and so it lies elsewhere."""
    folder = Path(tempfile.mkdtemp(prefix="neap-gate-", dir=SHARED_FOLDER))
    folder.chmod(0o755)
    yield folder / "open"
    shutil.rmtree(folder)


def behind(gate):
    return f"{SAY}; for i in $(seq 1200); do [ -e {gate} ] && exit 0; sleep 0.1; done; exit 1"


def share(gpus):
    return {"instanceCount": 1, "properties": {"neap": {"cpus": 0.1, "gpus": gpus}}}


def ids(*numbers):
    return ",".join(f"GPU-emulated-{n}" for n in numbers)


def held(server):
    """Every GPU that a node of this server has, by job."""
    nodes = [n for c in server.get(f"{server.ws()}/computes")["value"] for n in server.nodes(c["name"])]
    return [gpu for node in nodes for gpu in node["gpus"]]


def saw(server, job):
    """What an attempt was told: the GPUs, by number."""
    line = next(line for line in server.log(job).splitlines() if line.startswith("sees "))
    cuda, containers = line.removeprefix("sees ").split(" ")
    assert containers == "<void>", "what is not there is not asked of a container runtime"
    return [word.removeprefix("GPU-emulated-") for word in cuda.strip("<>").split(",") if word]


def test_two_jobs_on_one_node_have_different_gpus(pretending, gpu_cluster, gate):
    server, compute = pretending, gpu_cluster(TWO)
    jobs = [server.submit(compute, behind(gate), resources=share(1)) for _ in range(2)]
    for job in jobs:
        server.wait_job(job, "Running")
    node = server.nodes(compute)[0]
    assert node["actual"]["gpus"] == 2 and sorted(node["jobs"]) == sorted(jobs)
    assert sorted(gpu["job"] for gpu in node["gpus"]) == sorted(jobs), node["gpus"]
    third = server.submit(compute, SAY, resources=share(1))
    idle = server.submit(compute, SAY, resources=share(0))
    gate.write_text("")
    for job in [*jobs, third, idle]:
        server.wait_job(job, "Completed")
    first, second = (saw(server, job) for job in jobs)
    assert len(first) == len(second) == 1 and first != second
    assert saw(server, third) in (first, second), "it waits for one of the node's two"
    assert saw(server, idle) == []
    wait_until(lambda: all(gpu["job"] is None for gpu in server.nodes(compute)[0]["gpus"]), "they are given back")


def test_a_whole_node_has_all_its_gpus_and_every_job_is_told_what_they_are(pretending, gpu_cluster):
    server, compute = pretending, gpu_cluster(FOUR)
    job = server.submit(compute, f"{SAY}; env | grep -c CUDA_VISIBLE_DEVICES=", environmentVariables={"CUDA_VISIBLE_DEVICES": "7"})
    server.wait_job(job, "Completed")
    assert len(saw(server, job)) == 4
    first = server.log(job).splitlines()[0]
    assert "emulated" in first and "--emulate-gpus" in first, server.log(job)
    facts = server.job(job)["properties"]
    assert facts["neap.gpu.emulated"] == "true" and facts["neap.gpus"].count("emulated: there is no such GPU") == 4
    assert "neap.gpu.utilization" not in facts, "nothing is measured of what is not there"
    shown = server.json("job", "show", "-n", job)
    assert shown["properties"]["neap.gpu.emulated"] == "true"
    boot = server.cli("compute", "node-log", "-n", compute, "--node", server.nodes(compute, gone=True)[0]["node_id"]).stdout
    assert "GPU GPU-emulated-" in boot


def test_a_job_without_gpus_is_told_nothing(pretending, gpu_cluster):
    server = pretending
    compute = gpu_cluster("STANDARD_DS3_V2")
    job = server.submit(compute, SAY)
    server.wait_job(job, "Completed")
    assert saw(server, job) == []
    assert "emulated" not in server.log(job) and not any(key.startswith("neap.gpu") for key in server.job(job)["properties"])


def test_no_gpu_is_ever_in_two_nodes_also_after_a_kill(pretending, gpu_cluster, gate):
    """Six GPUs are wanted and four are there; the server is killed while they are held."""
    server = pretending
    computes = [gpu_cluster(TWO, 2), gpu_cluster(ONE, 4)]
    jobs = [server.submit(computes[0], behind(gate)) for _ in range(2)]
    for job in jobs:
        server.wait_job(job, "Running")
    late = [server.submit(computes[1], behind(gate)) for _ in range(2)]
    reason = wait_until(lambda: server.job(late[0])["properties"].get("neap.queueReason"), "the queued job says why")
    assert "GPU" in reason and "never in two nodes" in reason, reason
    server.kill()
    server.up(extra=("--emulate-gpus", "4"))
    wait_until(lambda: sum(gpu["job"] is not None for gpu in held(server)) == 4, "the nodes tell their GPUs again")
    uuids = [gpu["uuid"] for gpu in held(server)]
    assert sorted(uuids) == [f"GPU-emulated-{n}" for n in range(4)], "each once"
    assert {server.status(job) for job in late} == {"Queued"}
    gate.write_text("")
    for job in [*jobs, *late]:
        server.wait_job(job, "Completed", 120)
    assert len({tuple(saw(server, job)) for job in jobs}) == 2


def test_a_node_that_dies_gives_its_gpus_back(pretending, gpu_cluster):
    server, compute = pretending, gpu_cluster(FOUR)
    job = server.submit(compute, f"{SAY}; sleep 60")
    server.wait_job(job, "Running")
    before = server.nodes(compute)[0]["node_id"]
    (agent,) = [pid for pid, line in server.agents() if line.endswith(f"/nodes/{before.removeprefix('n-')}")]
    os.kill(agent, 9)
    wait_until(lambda: server.job(job)["properties"].get("neap.attempt") == "2" and server.status(job) == "Running", "it runs again", 30)
    assert len(held(server)) == 4 and server.nodes(compute)[0]["node_id"] != before
    server.cli("job", "cancel", "-n", job)
    server.wait_job(job, "Canceled")


# --- a machine that seems to have two, by a driver library of the tests' own ------------------------------------------------

MADE_UP = Path(__file__).parent / "gpus"
LOOK = """
for n in 0 1; do if : < /dev/nvidia$n; then echo opens $n; else echo closed $n; fi; done 2>/dev/null
echo "sees <$CUDA_VISIBLE_DEVICES> <$NVIDIA_VISIBLE_DEVICES>"
"""


@pytest.fixture(scope="module")
def seeming(mark):
    """A server on a machine with two GPUs of which only the driver library knows."""
    can = subprocess.run(["unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    if can.returncode != 0 or not shutil.which("cc") or Path("/dev/nvidia0").exists():
        pytest.skip("needs the right to mount, a C compiler, and no GPU")
    library = new_home("nvml")
    library.chmod(0o755)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library / "libnvidia-ml.so.1", MADE_UP / "nvml.c"], check=True)
    starter = library / "neap"
    starter.write_text(f'#!/bin/sh\nexec unshare -m --propagation private {MADE_UP}/within.sh {library} {neapserver.BINARY.resolve()} "$@"\n')
    starter.chmod(0o755)

    class Seeming(Server):
        def cli(self, *args, **kwargs):
            if args[0] not in ("up", "doctor"):
                return super().cli(*args, **kwargs)
            real, neapserver.BINARY = neapserver.BINARY, starter
            try:
                return super().cli(*args, **kwargs)
            finally:
                neapserver.BINARY = real

    running = Seeming(new_home("seeming"))
    neapserver.share(running.home)
    running.up()
    yield running
    running.down()
    running.assert_nothing_left(mark)
    remove(running.home)
    remove(library)


def test_the_doctor_names_them(seeming):
    text = seeming.cli("doctor").stdout
    for n in (0, 1):
        assert f"GPU                Made-up GPU {n}, 8192 MB, driver 1.2.3, GPU-made-up-{n}, /dev/nvidia{n}" in text, text
    assert len(json.loads(seeming.cli("doctor", "-o", "json").stdout)["gpus"]) == 2


def test_each_job_opens_its_own_gpu_and_its_use_is_kept(seeming, gate):
    server, compute = seeming, unique("gp")
    server.make_cluster(compute, 0, 1, size=TWO)
    wait = f"{LOOK}for i in $(seq 1200); do [ -e {gate} ] && exit 0; sleep 0.1; done; exit 1"
    jobs = [server.submit(compute, wait, resources=share(1)) for _ in range(2)]
    for job in jobs:
        wait_until(lambda job=job: "neap.gpu.utilization_now" in server.job(job)["properties"], f"{job} has live figures")
    live = {server.job(job)["properties"]["neap.gpu.utilization_now"] for job in jobs}
    assert live == {"30", "90"}
    shown = {gpu["uuid"]: gpu for gpu in server.json("compute", "list-nodes", "-n", compute)[0]["gpus"]}
    assert {gpu["utilization_percent"] for gpu in shown.values()} == {30, 90} and shown["GPU-made-up-0"]["memory_used_mb"] == 1024
    metrics = server.http("GET", "/metrics").text
    assert f'neap_gpu_utilization_ratio{{workspace="{server.workspace}",cluster="{compute}"}} 0.6' in metrics, metrics
    gate.write_text("")
    for job in jobs:
        server.wait_job(job, "Completed")
        lines = server.log(job).splitlines()
        facts = server.job(job)["properties"]
        own = facts["neap.gpus"].split(" ")[0]
        n = own.removeprefix("GPU-made-up-")
        assert f"sees <{own}> <{own}>" in lines and f"opens {n}" in lines and f"closed {1 - int(n)}" in lines, lines
        assert facts["neap.gpu.utilization"] == {"0": "30.0", "1": "90.0"}[n] and facts["neap.gpu.separation"] == "device files"
        assert (facts["neap.gpu.memory_mb"], facts["neap.gpu.memory_total_mb"]) == ("1024", "8192")
        assert "neap.gpu.hint" not in facts and "neap.gpu.utilization_now" not in facts, "too short to say, and over"
    both = server.submit(compute, f"{LOOK}sleep 1")
    server.wait_job(both, "Completed")
    facts = server.job(both)["properties"]
    assert (facts["neap.gpu.utilization"], facts["neap.gpu.utilization_each"], facts["neap.gpu.utilization_max"]) == ("60.0", "30.0, 90.0", "90")
    none = server.submit(compute, LOOK, resources=share(0))
    server.wait_job(none, "Completed")
    assert {"sees <> <void>", "closed 0", "closed 1"} <= set(server.log(none).splitlines()), server.log(none)
    server.drop_cluster(compute)


# --- a machine that has none -------------------------------------------------------------------------------------------------


@no_gpu_here
def test_a_gpu_cluster_is_declared_with_a_warning_and_its_jobs_are_refused_with_what_is_missing(server, tmp_path):
    compute = unique("gp")
    made = server.make_cluster(compute, 0, 1, size=TWO)
    (warning,) = [text for text in made["properties"]["properties"]["neapWarnings"] if "GPU" in text]
    assert "has 2 x A100" in warning and "this machine has none" in warning and "--emulate-gpus 2" in warning
    again = server.cli("compute", "create", "-n", compute, "--type", "AmlCompute", "--size", TWO, "--max-instances", "1")
    assert "this machine has none" in again.stderr, again.stderr
    server.environment_id()
    answer = server.http("PUT", f"{server.ws()}/jobs/{unique('job')}", server.job_body(compute, "true"))
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["code"] == "GpuNotAvailable", answer.text
    for part in ("needs 2 GPUs", "has 2 x A100", "this machine has none: 2 missing", "neap up --emulate-gpus 2", "gpus: 0"):
        assert part in error["message"], error["message"]
    file = tmp_path / "job.yml"
    file.write_text(yaml.safe_dump({"command": "true", "environment": {"image": "library/python:latest"}, "compute": f"azureml:{compute}"}))
    refused = server.cli("job", "create", "-f", file, check=False)
    assert refused.returncode == 1 and "GpuNotAvailable" in refused.stderr and "--emulate-gpus 2" in refused.stderr, refused.stderr
    # One that needs none is welcome.
    job = server.submit(compute, SAY, resources=share(0))
    server.wait_job(job, "Completed")
    assert saw(server, job) == []
    server.drop_cluster(compute)


@no_gpu_here
def test_the_doctor_says_that_there_is_none(server):
    text = server.cli("doctor").stdout
    assert "GPU                No NVIDIA GPU was found" in text and "--emulate-gpus N" in text, text
    report = json.loads(server.cli("doctor", "-o", "json").stdout)
    assert report["gpus"] == [] and report["machine"]["gpus"] == 0 and report["gpu_remarks"]


def test_a_server_that_pretends_to_have_too_few_says_so(pretending):
    server, compute = pretending, unique("gp")
    made = server.make_cluster(compute, 0, 1, size="STANDARD_ND96ISR_H100_V5")
    assert any("this machine has 4" in text for text in made["properties"]["properties"]["neapWarnings"])
    server.environment_id()
    answer = server.http("PUT", f"{server.ws()}/jobs/{unique('job')}", server.job_body(compute, "true"))
    assert "this machine has 4: 4 missing" in answer.json()["error"]["message"], answer.text
    server.drop_cluster(compute)


def test_the_configuration_pretends_too(own_server):
    server = own_server("gpus", start=False)
    server.home.mkdir(exist_ok=True)
    (server.home / "config.yaml").write_text("local: {emulate_gpus: 1}\n")
    server.up()
    server.make_cluster("gp-conf", 0, 1, size=ONE)
    job = server.submit("gp-conf", SAY)
    server.wait_job(job, "Completed")
    assert saw(server, job) == ["0"]
