"""A job that makes folders in folders.

**Attacker**: a job, with `mkdir` in a loop.
**Attempt**: tens of thousands of nested folders, in its working folder, its checkpoint folder and its outputs. Whoever walks through
or deletes them by recursion overflows his stack: first the agent, then the server at each start, until a person deletes them.
**Stopped by**: deletion without recursion and without paths (`crates/sandbox/src/remove.rs`), and walks with a limit of depth
(`crates/agent/src/tree.rs`), which fail the job with a reason.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from aftermath import assert_other_jobs_run, assert_replays, assert_serving, reason_of
from neapserver import Server, new_home, remove, unique, wait_until

DEPTH = 15_000
# As a statement of the shell, so that nothing else is in the job's folder.
NEST = "import os\nfor _ in range({depth}):\n    os.mkdir('d'); os.chdir('d')\nprint('nested')"


def nest(where, depth=DEPTH):
    return f"cd {where} && python3 - <<'END'\n{NEST.format(depth=depth)}\nEND"


@pytest.fixture(scope="module")
def attacked():
    # In memory, where there is room: a disk under load takes a minute for so many folders.
    memory = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="neap-deep-", dir=memory)) if os.access(memory, os.W_OK) else new_home("deep")
    server = Server(home)
    server.up()
    server.make_cluster("work", 1, 2, "PT1M")
    server.environment_id()
    yield server
    assert_replays(server)
    assert not list((server.home / "nodes").glob("*/attempts/*")), "the folders are deleted with their nodes"
    remove(server.home)


def attempts(server):
    return [path for path in (server.home / "nodes").glob("*/attempts/*") if path.is_dir()]


def test_the_agent_deletes_them_and_lives(attacked):
    before = [node["node_id"] for node in attacked.nodes("work")]
    job = attacked.submit("work", nest("."), name=unique("deep"))
    status, reason = reason_of(attacked, job, 60)
    assert status == "Completed" and "nested" in reason, (status, reason)
    assert_serving(attacked, "work")
    # Its folder goes, while the node stays what it was.
    wait_until(lambda: not any((path / "work/exe/wd/d").exists() for path in attempts(attacked)), "the folders are deleted", 60)
    assert_other_jobs_run(attacked, "work")
    assert set(before) <= {node["node_id"] for node in attacked.nodes("work")}, "no node was lost"


def test_outputs_too_deep_fail_the_job_with_its_reason(attacked):
    job = attacked.submit("work", nest("outputs", 500), name=unique("deep"))
    status, reason = reason_of(attacked, job, 60)
    assert status == "Failed" and "100 folders" in reason, (status, reason)
    assert_other_jobs_run(attacked, "work")


def test_the_server_starts_over_what_is_left(attacked):
    """The node died before its agent had deleted anything, and then the server: it finds the folder at its next start."""
    attacked.kill()
    left = attacked.home / "nodes" / "999999" / "attempts" / "1" / "work"
    left.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", NEST.format(depth=DEPTH)], cwd=left, check=True, stdout=subprocess.DEVNULL)
    attacked.up()
    wait_until(lambda: not left.exists(), "the server deletes the folder", 60)
    assert_serving(attacked, "work")
