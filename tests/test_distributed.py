"""Jobs on several nodes and of several processes: PyTorch, MPI, TensorFlow's variables, Ray's absence; and what becomes of the others
when one rank, one node or the user ends it."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from azure.ai.ml import command
from azure.ai.ml.entities import Environment

from neapserver import unique, wait_until

CODE = Path(__file__).parent / "jobs" / "distributed"
TF_PRINT = 'python3 -c "import os; print(os.environ[\'TF_CONFIG\'])"'


def system_python_has(module):
    return subprocess.run(["/usr/bin/python3", "-c", f"import {module}"], capture_output=True).returncode == 0


needs_torch = pytest.mark.skipif(not system_python_has("torch"), reason="python3-torch is not installed (scripts/setup.sh test, as root, installs it)")
needs_mpi = pytest.mark.skipif(shutil.which("mpirun") is None, reason="openmpi-bin is not installed (scripts/setup.sh test, as root, installs it)")
needs_mpi4py = pytest.mark.skipif(not system_python_has("mpi4py"), reason="python3-mpi4py is not installed (scripts/setup.sh test, as root, installs it)")
needs_mpicc = pytest.mark.skipif(shutil.which("mpicc") is None, reason="libopenmpi-dev is not installed (scripts/setup.sh test, as root, installs it)")


@pytest.fixture(scope="module")
def gang(server):
    """Three nodes at most, which stay between the tests."""
    name = unique("gang")
    server.make_cluster(name, 0, 3, "PT1M")
    yield name
    server.drop_cluster(name)


@pytest.fixture
def send(ml, mark, gang):
    def submit(line, instances=2, distribution=None, compute=None, variables=None, timeout=None, **kwargs):
        job = command(
            command=line,
            compute=compute or gang,
            name=unique("dist"),
            experiment_name="suite",
            instance_count=instances,
            distribution=distribution,
            environment=Environment(image="library/python:latest"),
            environment_variables={"NEAP_TEST_MARK": mark, **(variables or {})},
            **kwargs,
        )
        if timeout:
            job.set_limits(timeout=timeout)
        return ml.jobs.create_or_update(job).name

    return submit


def log_of(server, job, rank):
    """One rank's log, by the signed URL that clients get."""
    url = server.details(job)["logFiles"].get(f"user_logs/std_log_process_{rank}.txt")
    assert url, server.details(job)
    answer = server.session.get(url, verify=server.vars["REQUESTS_CA_BUNDLE"], timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.text


def failure(server, job):
    """Its message. A run that ended just now is shown once as finalizing."""
    return wait_until(lambda: server.details(job)["error"], "the failure is shown", 10)["error"]["message"]


def pids(needle):
    """Processes whose command line has this word, and nothing else's."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if needle.encode() in line:
                found.append(int(entry.name))
    return found


def all_processes():
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def arguments_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def variables_of(pid):
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def sleepers(number):
    """`sleep` processes of this duration, by their rank."""
    found = {}
    for pid in pids(f"sleep\0{number}"):
        try:
            found[int(variables_of(pid)["RANK"])] = pid
        except (OSError, KeyError):
            continue
    return found


# --- they find each other -----------------------------------------------------------------------------------------------


def test_variables_logs_and_stream(server, ml, send, capsys):
    line = "echo $RANK $LOCAL_RANK $NODE_RANK $WORLD_SIZE $AZUREML_NODE_COUNT $MASTER_ADDR:$MASTER_PORT $AZ_BATCH_MASTER_NODE; echo -n last words of $RANK"
    job = send(line, distribution={"type": "pytorch", "process_count_per_instance": 2})
    ml.jobs.stream(job)
    printed = capsys.readouterr().out
    seen = {}
    for rank in range(4):
        first, last = log_of(server, job, rank).split("\n")[-2:]
        own, local, node, world, nodes, master, azures = first.split()
        assert (own, local, node, world, nodes) == (str(rank), str(rank % 2), str(rank // 2), "4", "2")
        assert last == f"last words of {rank}"
        assert master == azures
        seen[rank] = master
    assert len(set(seen.values())) == 1 and re.fullmatch(r"127\.\d+\.\d+\.\d+:\d+", seen[0]) and not seen[0].startswith("127.0.")
    assert "last words of 0" in printed and "last words of 1" not in printed
    merged = server.log(job)
    for rank in range(4):
        assert f"{f'[{rank}] ' if rank else ''}last words of {rank}\n" in merged, merged
    assert set(server.details(job)["logFiles"]) == {f"user_logs/std_log_process_{rank}.txt" for rank in range(4)}


def test_without_a_distribution_every_node_runs_the_command(server, send):
    job = send("echo rank $RANK of $WORLD_SIZE on $NODE_RANK", instances=3)
    server.wait_job(job, "Completed")
    for rank in range(3):
        assert f"rank {rank} of 3 on {rank}\n" in log_of(server, job, rank)


def test_tf_config(server, send):
    job = send(TF_PRINT, distribution={"type": "tensorflow", "worker_count": 3})
    server.wait_job(job, "Completed")
    told = [json.loads(log_of(server, job, rank).splitlines()[-1]) for rank in range(3)]
    clusters = {json.dumps(one["cluster"]) for one in told}
    assert len(clusters) == 1
    workers = told[0]["cluster"]["worker"]
    assert len(set(workers)) == 3 and len({w.split(":")[0] for w in workers}) == 2
    assert [one["task"] for one in told] == [{"type": "worker", "index": i} for i in range(3)]


def test_parameter_servers_end_with_the_workers(server, send):
    wait = "import json,os,time; t=json.loads(os.environ['TF_CONFIG'])['task']; print(t['type'], t['index']); time.sleep(3600 if t['type']=='ps' else 0.2)"
    job = send(f'python3 -c "{wait}"', distribution={"type": "tensorflow", "worker_count": 2, "parameter_server_count": 2})
    server.wait_job(job, "Completed")
    assert [log_of(server, job, rank).split()[-2:] for rank in range(4)] == [["worker", "0"], ["worker", "1"], ["ps", "0"], ["ps", "1"]]


# --- they train for real ------------------------------------------------------------------------------------------------


def weights(server, job, ranks):
    said = [re.search(r"rank (\d+) of (\d+): weight (\S+) bias (\S+)", log_of(server, job, rank)) for rank in range(ranks)]
    assert all(said), [log_of(server, job, rank) for rank in range(ranks)]
    assert [(int(m[1]), int(m[2])) for m in said] == [(rank, ranks) for rank in range(ranks)]
    assert len({(m[3], m[4]) for m in said}) == 1, [m[0] for m in said]
    return float(said[0][3]), float(said[0][4])


@needs_torch
@needs_mpi
@needs_mpi4py
def test_pytorch_and_mpi_agree(server, send):
    torch = send("/usr/bin/python3 train_torch.py", code=str(CODE), distribution={"type": "pytorch", "process_count_per_instance": 1})
    mpi = send("/usr/bin/python3 train_mpi.py", code=str(CODE), distribution={"type": "mpi", "process_count_per_instance": 1})
    server.wait_job(torch, "Completed", 120)
    server.wait_job(mpi, "Completed", 120)
    by_torch, by_mpi = weights(server, torch, 2), weights(server, mpi, 2)
    assert by_torch[0] > 0.1, "it has learned nothing"
    assert by_torch == pytest.approx(by_mpi, abs=1e-6)


@needs_torch
def test_pytorch_two_processes_on_each_of_two_nodes(server, send):
    job = send("/usr/bin/python3 train_torch.py", code=str(CODE), distribution={"type": "pytorch", "process_count_per_instance": 2})
    server.wait_job(job, "Completed", 120)
    weights(server, job, 4)


@needs_mpi
@needs_mpicc
def test_mpi_in_c(server, send):
    line = "mpicc -o $TMPDIR/sum$RANK allreduce.c && $TMPDIR/sum$RANK"
    job = send(line, code=str(CODE), distribution={"type": "mpi", "process_count_per_instance": 2})
    server.wait_job(job, "Completed", 120)
    for rank in range(4):
        assert f"rank {rank} of 4: sum 10" in log_of(server, job, rank)
    one = send("test -n $OMPI_COMM_WORLD_RANK && echo mine $OMPI_COMM_WORLD_RANK", instances=1, distribution={"type": "mpi", "process_count_per_instance": 2})
    server.wait_job(one, "Completed")
    assert [log_of(server, one, rank).splitlines()[-1] for rank in range(2)] == ["mine 0", "mine 1"]


# --- they end together --------------------------------------------------------------------------------------------------


def test_one_rank_fails(server, send):
    job = send('[ "$RANK" != 3 ] || { echo rank three gives up; exit 7; }; sleep 3600', distribution={"type": "pytorch", "process_count_per_instance": 2})
    server.wait_job(job, "Failed")
    assert failure(server, job) == "Rank 3: The command ended with exit code 7. Its log is user_logs/std_log_process_3.txt."
    assert log_of(server, job, 3).endswith("rank three gives up\n")
    one = send("exit $RANK")
    server.wait_job(one, "Failed")
    assert re.fullmatch(r"Rank 1 \(node n-\d+\): The command ended with exit code 1\. Its log is user_logs/std_log_process_1\.txt\.", failure(server, one))


@pytest.mark.parametrize("processes", [1, 2])
def test_one_rank_is_killed(server, send, processes):
    number = 7100 + processes
    job = send(f"sleep {number}", distribution={"type": "pytorch", "process_count_per_instance": processes})
    ranks = wait_until(lambda: len(found := sleepers(number)) == 2 * processes and found, "all ranks run", 60)
    os.kill(ranks[processes], signal.SIGKILL)
    server.wait_job(job, "Failed")
    message = failure(server, job)
    assert message.startswith(f"Rank {processes}") and "signal 9" in message and f"std_log_process_{processes}.txt" in message
    assert not pids(f"sleep\0{number}")


@needs_mpi
def test_one_mpi_rank_is_killed_and_one_fails(server, send):
    job = send("sleep 7103", distribution={"type": "mpi", "process_count_per_instance": 1})
    ranks = wait_until(lambda: len(found := sleepers(7103)) == 2 and found, "both ranks run", 60)
    os.kill(ranks[1], signal.SIGKILL)
    server.wait_job(job, "Failed")
    assert failure(server, job).startswith("Rank 1: The command was ended by signal 9"), failure(server, job)
    job = send('[ "$RANK" != 1 ] || exit 9; sleep 7104', distribution={"type": "mpi", "process_count_per_instance": 1})
    server.wait_job(job, "Failed")
    assert failure(server, job) == "Rank 1: The command ended with exit code 9. Its log is user_logs/std_log_process_1.txt."
    wait_until(lambda: not pids("sleep\0007103") and not pids("sleep\0007104") and not pids("orted"), "nothing of them is left", 15)


KINDS = [{"type": "pytorch", "process_count_per_instance": 2}, pytest.param({"type": "mpi", "process_count_per_instance": 1}, marks=needs_mpi)]


@pytest.mark.parametrize("distribution", KINDS, ids=["pytorch", "mpi"])
def test_a_node_is_lost_and_all_start_again(server, send, cluster, distribution):
    own = cluster(0, 2, "PT1M")
    job = send("echo attempt; sleep 7105", compute=own, distribution=distribution)
    size = 2 * distribution["process_count_per_instance"]
    first = wait_until(lambda: len(found := sleepers(7105)) == size and found, "all ranks run", 60)
    agents = {int(m[1]): pid for pid, line in server.agents() if (m := re.search(r"/nodes/(\d+)", line))}
    node = int(variables_of(first[size - 1])["NEAP_NODE_MARK"].rsplit("/", 1)[1])
    os.kill(agents[node], signal.SIGKILL)
    again = wait_until(lambda: len(found := sleepers(7105)) == size and not set(found.values()) & set(first.values()) and found, "all ranks run again", 60)
    wait_until(lambda: server.status(job) == "Running", "it runs again", 30)
    os.kill(again[0], signal.SIGTERM)
    server.wait_job(job, "Failed")
    # What the lost node had not sent yet went with it.
    assert size < server.log(job).count("attempt\n") <= 2 * size
    assert not pids("sleep\0007105")


@pytest.mark.parametrize("distribution", KINDS, ids=["pytorch", "mpi"])
def test_cancel_and_timeout(server, ml, send, distribution):
    job = send("trap 'echo told to end; exit 3' TERM; sleep 7106 & wait", distribution=distribution)
    size = 2 * distribution["process_count_per_instance"]
    wait_until(lambda: len(sleepers(7106)) == size, "all ranks run", 60)
    ml.jobs.begin_cancel(job).wait()
    server.wait_job(job, "Canceled")
    late = send("sleep 7107", distribution=distribution, timeout=2)
    server.wait_job(late, "Canceled")
    wait_until(lambda: not pids("sleep\0007106") and not pids("sleep\0007107"), "nothing of them is left", 15)


def test_refusals_and_what_is_missing(server, send, gang):
    environment = server.environment_id()

    def refused(**properties):
        body = server.job_body(gang, "true", environmentId=environment, **properties)
        answer = server.http("PUT", f"{server.ws()}/jobs/{unique('no')}", body)
        assert answer.status_code == 400, answer.text
        return answer.text

    assert "asks for 4 nodes at once and max_instances" in refused(resources={"instanceCount": 4})
    assert "only 1 workers" in refused(resources={"instanceCount": 2}, distribution={"distributionType": "TensorFlow", "workerCount": 1})
    lost = {"PATH": "/nowhere"}
    job = send("true", distribution={"type": "mpi", "process_count_per_instance": 1}, variables=lost)
    server.wait_job(job, "Failed")
    assert "openmpi-bin" in failure(server, job) and server.details(job)["error"]["error"]["innerError"]["code"] == "environment"
    ray = server.submit(gang, "true", resources={"instanceCount": 2}, distribution={"distributionType": "Ray"}, environmentVariables=lost)
    server.wait_job(ray, "Failed")
    assert "no 'ray' on its PATH" in failure(server, ray), failure(server, ray)


def test_secrets_are_in_no_argument(server, send):
    """What the nodes of an attempt know each other by is in no command line."""
    job = send("sleep 7108", distribution={"type": "pytorch", "process_count_per_instance": 2})
    wait_until(lambda: len(sleepers(7108)) == 4, "all ranks run", 60)
    for pid in sleepers(7108).values():
        assert not any(name.startswith("NEAP_LAUNCH") for name in variables_of(pid))
    launchers = [pid for pid in all_processes() if arguments_of(pid)[1:2] == ["launch"] and "NEAP_LAUNCH" in variables_of(pid)]
    assert launchers
    secrets = {json.loads(variables_of(pid)["NEAP_LAUNCH"])["ranks"]["secret"] for pid in launchers}
    assert len(secrets) == 1 and len(min(secrets)) > 30
    assert not any(min(secrets) in word for pid in all_processes() for word in arguments_of(pid))
    server.cli("job", "cancel", "--name", job)
    server.wait_job(job, "Canceled")


@pytest.mark.skipif(os.geteuid() != 0, reason="without root there is only one user to run as")
def test_processes_are_not_root(server, send):
    job = send("id -u; id -un", distribution={"type": "pytorch", "process_count_per_instance": 2})
    server.wait_job(job, "Completed")
    uid, name = log_of(server, job, 0).split()[-2:]
    assert int(uid) >= 1_900_000_000 and name == "neap"
