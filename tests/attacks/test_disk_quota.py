"""The attacker is a job that takes all of the disk: it writes at full speed into files, into a file that it deleted and keeps open, or
leaves outputs that are small on its node and huge on the server (files of holes).

What stops them: the agent counts what the attempt's folders hold while it runs (crates/agent/src/disk.rs), looks for files without a name
when the disk shrinks for no visible reason, and adds up the length of outputs before it reads them (crates/agent/src/finalize.rs). On the
server, what arrives is counted against the workspace (crates/storage/src/usage.rs), blocks that are in no blob yet among it.
"""

import re
import threading
import time

import pytest

import aftermath
from neapserver import unique, wait_until
from small_disk import MB, free, server_on, small_disk

DISK_MB = 768
QUOTA_MB = 256
# What the attempt may have written beyond its quota when it is dead.
EXCESS_MB = 64

# Files of 16 MB, as fast as the machine takes them.
MANY_FILES = "i=0; while :; do i=$((i+1)); head -c 16777216 /dev/zero > f$i || sleep 1; done"
# Written to after it has lost its name.
UNNAMED = "exec 3> gone; rm gone; while :; do head -c 16777216 /dev/zero >&3 || sleep 1; done"
SPARSE = "mkdir -p ${{outputs.o}}; for i in $(seq 32); do truncate -s 200M ${{outputs.o}}/f$i || exit 9; done"


@pytest.fixture(scope="module")
def place():
    with small_disk(DISK_MB) as place:
        yield place


@pytest.fixture(scope="module")
def server(place, mark):
    config = f"local: {{disk_mb_per_job: {QUOTA_MB}, disk_reserve_mb: 16}}\nstorage: {{workspace_mb_max: 160}}\n"
    with server_on(place, mark, config) as server:
        server.environment_id()
        yield server
        aftermath.assert_replays(server)


@pytest.fixture(scope="module")
def cluster(server):
    name = unique("dq")
    server.make_cluster(name, 1, 1, "PT60S")
    wait_until(lambda: [n for n in server.nodes(name) if "idle" in str(n).lower()], "the node is idle")
    return name


class Lowest:
    """The least free space that a disk had meanwhile."""

    def __init__(self, place):
        self.place, self.first = place, free(place)
        self.least = self.first
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        while not self.ended.is_set():
            self.least = min(self.least, free(self.place))
            time.sleep(0.001)  # between two looks

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    @property
    def taken_mb(self):
        return (self.first - self.least) / MB


def submit(server, cluster, mark, command, **properties):
    return server.submit(cluster, command, name=unique("greedy"), environmentVariables={"NEAP_TEST_MARK": mark}, **properties)


def folder_output():
    return {"o": {"jobOutputType": "uri_folder", "mode": "Upload"}}


@pytest.mark.parametrize("command", [MANY_FILES, UNNAMED], ids=["files", "unnamed"])
def test_a_job_that_writes_at_full_speed_is_stopped_at_its_quota(server, place, cluster, mark, command):
    with Lowest(place) as lowest:
        job = submit(server, cluster, mark, command)
        status, reason = aftermath.reason_of(server, job)
    assert status == "Failed" and "DiskQuotaExceeded" in reason, reason
    assert f"its limit is {QUOTA_MB}.0 MB" in reason and "disk_mb" in reason, reason
    assert server.log(job).splitlines()[-1].startswith("[neap] The job's folders took"), "the log's last line says so"
    assert server.job(job)["properties"]["neap.attempt"] == "1", "it is not tried again as if its node were lost"
    print(f"\ntook {lowest.taken_mb:.1f} MB of {QUOTA_MB}")
    assert lowest.taken_mb <= QUOTA_MB + EXCESS_MB
    wait_until(lambda: free(place) > lowest.first - 32 * MB, "its folder is gone", 20)
    aftermath.assert_other_jobs_run(server, cluster)


def test_a_job_may_ask_for_less_and_not_for_more(server, place, cluster, mark):
    def asking(mb):
        return {"resources": {"instanceCount": 1, "properties": {"neap": {"disk_mb": mb}}}}

    _, reason = aftermath.reason_of(server, submit(server, cluster, mark, MANY_FILES, **asking(32)))
    assert "its limit is 32.0 MB" in reason, reason
    _, reason = aftermath.reason_of(server, submit(server, cluster, mark, "head -c 300000000 /dev/zero | split -b 16M; sleep 9", **asking(100000)))
    assert f"its limit is {QUOTA_MB}.0 MB" in reason and "asks for 100000 MB" in reason, reason


def test_holes_and_second_names_take_no_room(server, cluster, mark):
    job = submit(server, cluster, mark, "head -c 67108864 /dev/zero > a; for i in $(seq 9); do ln a l$i; done; truncate -s 200M hole; sleep 1")
    server.wait_job(job, "Completed")


def test_outputs_of_holes_are_refused_before_they_are_read(server, place, cluster, mark):
    with Lowest(place) as lowest:
        status, reason = aftermath.reason_of(server, submit(server, cluster, mark, SPARSE, outputs=folder_output()))
    assert status == "Failed" and "DiskQuotaExceeded" in reason and "6400.0 MB long" in reason, reason
    assert lowest.taken_mb < 32, "nothing of it was written on the server"
    assert not list((server.home / "blobs").rglob("f1*")), "nothing of it stays"
    aftermath.assert_serving(server, cluster)


def test_what_a_workspace_keeps_is_bounded_and_blocks_go_with_the_attempt(server, place, cluster, mark):
    first = submit(server, cluster, mark, "head -c 104857600 /dev/urandom > ${{outputs.o}}/one", outputs=folder_output())
    server.wait_job(first, "Completed")
    before = free(place)
    job = submit(server, cluster, mark, "head -c 104857600 /dev/urandom > ${{outputs.o}}/two", outputs=folder_output())
    status, reason = aftermath.reason_of(server, job)
    assert status == "Failed" and "storage.workspace_mb_max" in reason and "azureml-blobstore 1" in reason, reason
    # Blocks of the part that had room were stored already.
    aftermath.assert_other_jobs_run(server, cluster)
    wait_until(lambda: free(place) > before - 8 * MB, "blocks of the attempt are gone", 20)
    # What is deleted makes room.
    assert server.http("DELETE", f"{server.ws()}/jobs/{first}").status_code in (200, 202, 204)
    assert re.search(r"a workspace may keep 160 MB", server.cli("doctor").stdout)
