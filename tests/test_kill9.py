"""What survives: the server killed with -9 at random moments, an agent killed, a full disk, a damaged record."""

import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import requests

from neapserver import BINARY, FINAL, free_port, unique, wait_until

SEED = int(os.environ.get("NEAP_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
KILLS = int(os.environ.get("NEAP_TEST_KILLS", "50"))
AHEAD = 24  # jobs submitted and not yet known to be final


class Submitter(threading.Thread):
    """Sends jobs one after another and remembers which were acknowledged. What was not acknowledged is sent again, the same."""

    def __init__(self, server, cluster, mark):
        super().__init__(daemon=True)
        self.server, self.cluster, self.mark = server, cluster, mark
        self.acknowledged, self.open, self.resent, self.error = [], set(), 0, None
        self.enough = threading.Event()

    def run(self):
        try:
            number = 0
            while not self.enough.is_set():
                if len(self.open) < AHEAD:
                    number += 1
                    self.send(f"k9-{number:04d}")
                else:
                    self.look()
        except Exception as problem:  # reported by the test, not lost in a thread
            self.error = problem

    def send(self, name):
        body = self.server.job_body(
            self.cluster,
            f"echo {name} >> ${{{{outputs.done}}}}/line.txt; sleep 0.1",
            outputs={"done": {"jobOutputType": "uri_folder", "mode": "Upload"}},
            environmentVariables={"NEAP_TEST_MARK": self.mark},
        )
        while True:
            try:
                answer = self.server.http("PUT", f"{self.server.ws()}/jobs/{name}", body, timeout=10)
            except (requests.RequestException, OSError, ValueError, KeyError):
                self.resent += 1
                time.sleep(0.02)
                if self.enough.is_set():
                    return
                continue
            if answer.status_code in (200, 201):
                self.acknowledged.append(name)
                self.open.add(name)
                return
            if answer.status_code < 500:
                raise AssertionError(f"{name} was refused: {answer.status_code} {answer.text}")
            time.sleep(0.02)

    def look(self):
        for name in sorted(self.open):
            try:
                answer = self.server.http("GET", f"{self.server.ws()}/jobs/{name}", timeout=10)
            except (requests.RequestException, OSError, ValueError, KeyError):
                return
            if answer.status_code == 404:
                raise AssertionError(f"{name} was acknowledged and is lost")
            if answer.status_code == 200 and answer.json()["properties"]["status"] in FINAL:
                self.open.discard(name)
        time.sleep(0.02)


def end_booting(server):
    """True if there was none left. (One that was about to detach may appear after a first look.)"""
    found = booting(server)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return not found


def booting(server):
    """Process ids of `neap up` for this data folder, also before it has written server.json."""
    return [pid for pid, line in server.processes() if line.split()[1:2] == ["up"]]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_kills_during_a_stream_of_jobs(own_server, mark):
    print(f"\nseed {SEED} (NEAP_TEST_SEED={SEED} repeats the moments)")
    dice = random.Random(SEED)
    server = own_server("kill9")
    server.environment_id()
    name = unique("k9")
    server.make_cluster(name, 0, 3, "PT30S")
    long = server.submit(
        name,
        "i=0; while [ $i -lt 700 ]; do i=$((i+1)); echo tick $i; sleep 0.1; done",
        name="k9-long",
        environmentVariables={"NEAP_TEST_MARK": mark},
    )
    server.wait_job(long, "Running")
    stream = Submitter(server, name, mark)
    stream.start()
    back = []
    for turn in range(KILLS):
        time.sleep(dice.uniform(0.02, 0.9))  # the moment of the kill, not something to wait for
        assert server.kill(), "there was a server to kill"
        if dice.random() < 0.2:
            # Killed again while it comes back.
            starting = subprocess.Popen(
                [str(BINARY), "up", "--data", str(server.home), "--listen", f"127.0.0.1:{server.port}", "--detach"],
                env=server.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            )
            wait_until(lambda: booting(server) or starting.poll() is not None, "it begins to start", 10, 0.001)
            time.sleep(dice.uniform(0.0, 0.15))
            end_booting(server)
            starting.wait(20)
            wait_until(lambda: end_booting(server), "the half-started server is gone", 30, 0.005)
        began = time.monotonic()
        server.up()
        back.append(time.monotonic() - began)
        assert stream.error is None, stream.error
    stream.enough.set()
    stream.join(60)
    assert stream.error is None, stream.error
    print(f"{KILLS} kills, {len(stream.acknowledged)} jobs acknowledged, {stream.resent} resent; serving again: median {sorted(back)[len(back) // 2] * 1000:.0f} ms, worst {max(back) * 1000:.0f} ms")
    assert len(stream.acknowledged) >= KILLS, "the stream of jobs was thinner than the kills"

    for job in stream.acknowledged:
        server.wait_job(job, "Completed", 180)
        assert server.output(job, "done", "line.txt") == f"{job}\n".encode(), f"{job} did not leave exactly one line"
    server.wait_job(long, "Completed", 120)
    assert server.job(long)["properties"]["neap.attempt"] == "1", "the long job went on through every kill"
    ticks = [line for line in server.log(long).splitlines() if line.startswith("tick ")]
    assert ticks == [f"tick {i}" for i in range(1, 701)], "its log has every line once"
    attempts = Counter(server.job(job)["properties"]["neap.attempt"] for job in stream.acknowledged)
    print(f"attempts needed: {dict(attempts)}")
    assert set(attempts) == {"1"}, "an agent that lives on keeps its attempts, so none is started twice"

    server.down()
    server.assert_nothing_left(mark)
    verified = server.cli("verify", check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    replayed = server.cli("verify", "--replay", check=False)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_an_agent_killed_is_noticed_and_its_job_runs_elsewhere(own_server, mark):
    server = own_server("agent")
    name = unique("ag")
    server.make_cluster(name, 0, 2, "PT30S")
    job = server.submit(name, "echo begun; sleep 600", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, "Running")
    first = server.job(job)["properties"]["neap.node"]
    agents = server.agents()
    assert len(agents) == 1, agents
    began = time.monotonic()
    os.kill(agents[0][0], signal.SIGKILL)
    wait_until(lambda: server.job(job)["properties"].get("neap.attempt") == "2" or server.status(job) != "Running", "the death is noticed", 10, 0.02)
    noticed = time.monotonic() - began
    wait_until(lambda: (lambda j: j["status"] == "Running" and j["properties"]["neap.attempt"] == "2")(server.job(job)), "the job runs elsewhere", 20, 0.02)
    moved = time.monotonic() - began
    print(f"\nagent killed: noticed after {noticed * 1000:.0f} ms, running elsewhere after {moved * 1000:.0f} ms")
    assert server.job(job)["properties"]["neap.node"] != first
    assert moved < 10
    assert len([1 for _, line in server.processes(mark) if line == "sleep 600"]) <= 1, "the first attempt's processes ended with its agent"
    dead = [n for n in server.nodes(name, gone=True) if n["node_id"] == first]
    assert dead and dead[0]["reason"], dead


def test_an_attempt_goes_on_while_the_server_is_away(own_server, mark):
    server = own_server("away")
    name = unique("aw")
    server.make_cluster(name, 0, 1, "PT30S")
    job = server.submit(name, "echo one; sleep 2; echo two; mkdir -p outputs; echo kept > outputs/x", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, "Running")
    server.kill()
    wait_until(lambda: not any("sleep 2" in line for _, line in server.processes(mark)), "the job ended by itself", 20)
    server.up()
    server.wait_job(job, "Completed", 30)
    assert server.job(job)["properties"]["neap.attempt"] == "1"
    assert [line for line in server.log(job).splitlines() if line in ("one", "two")] == ["one", "two"]


def test_leave_nodes_leaves_them_and_a_plain_down_does_not(own_server, mark):
    server = own_server("leave")
    name = unique("lv")
    server.make_cluster(name, 0, 1, "PT30S")
    job = server.submit(name, "sleep 3; echo survived", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, "Running")
    server.down("--leave-nodes")
    assert server.agents(), "the agent is still there"
    server.up()
    server.wait_job(job, "Completed", 30)
    assert server.job(job)["properties"]["neap.attempt"] == "1"
    server.down()
    server.assert_nothing_left(mark)


def test_a_second_server_on_the_same_folder_is_refused(own_server):
    server = own_server("second")
    other = subprocess.run(
        [str(BINARY), "up", "--data", str(server.home), "--listen", f"127.0.0.1:{free_port()}"],
        env=server.environment(), capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL,
    )
    assert other.returncode != 0
    assert str(server.pid) in other.stderr and str(server.home) in other.stderr, other.stderr
    assert server.get("/neap/v1/status")["pid"] == server.pid


def test_operations_survive_a_restart(own_server):
    """A poller that was given a URL before the kill gets its answer after it."""
    server = own_server("ops")
    name = unique("op")
    answer = server.http(
        "PUT", f"{server.ws()}/computes/{name}", {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2"}}}
    )
    follow = answer.headers.get("Azure-AsyncOperation") or answer.headers.get("Location")
    gone = server.http("DELETE", f"{server.ws()}/computes/{name}?underlyingResourceAction=Delete") if not follow else None
    if gone is not None:
        follow = gone.headers.get("Azure-AsyncOperation") or gone.headers.get("Location")
    if not follow:
        pytest.skip("every operation was answered at once, so there is none to follow")
    server.kill()
    server.up()
    path = follow.replace(server.url, "").split("api-version=")[0].rstrip("?&")
    wait_until(lambda: server.http("GET", path).json().get("status") == "Succeeded", "the operation succeeded")


# --- the disk -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 MiB, where this machine lets us have one."""
    place = Path("/tmp") / unique("neap-small")
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", str(place)], capture_output=True, text=True)
    if done.returncode != 0:
        place.rmdir()
        pytest.skip(f"a small file system needs the right to mount: {done.stderr.strip()}")
    yield place
    wait_until(lambda: subprocess.run(["umount", str(place)], capture_output=True).returncode == 0, "the small disk is unmounted", 20)
    place.rmdir()


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(small_disk, own_server):
    server = own_server(home=small_disk / "data")
    kept = unique("full")
    server.make_cluster(kept)
    filler = small_disk / "filler"

    def fill():
        with filler.open("ab") as out:
            try:
                while True:
                    out.write(b"\0" * 65536)
                    out.flush()
            except OSError:
                pass

    fill()
    refused = None
    for _ in range(500):
        # What is already reserved for the log may take a few more.
        answer = server.http("PUT", f"{server.ws()}/computes/{unique('f')}", {"location": "eastus", "tags": {"x": "y" * 200}, "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2"}}})
        if answer.status_code >= 400:
            refused = answer
            break
        fill()
    assert refused is not None, "writes were accepted on a full disk"
    words = refused.json()["error"]["message"].lower()
    assert "disk" in words or "space" in words, words
    assert server.cluster(kept)["scaleSettings"]["maxNodeCount"] == 2, "reads are still served"
    assert "disk" in (server.get("/neap/v1/status")["read_only"] or "disk").lower()
    filler.unlink()

    def written():
        done = server.http("PUT", f"{server.ws()}/computes/{unique('ok')}", {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2"}}})
        return done.status_code in (200, 201)

    wait_until(written, "writes are taken again when there is room", 30)
    server.down()
    assert server.cli("verify", check=False).returncode == 0


def damage(home, which):
    """Changes one byte of the body of an event, behind the program's back. Returns the record's number."""
    with sqlite3.connect(home / "ledger" / "neap.db") as db:
        tables = [r[0] for r in db.execute("select name from sqlite_master where type='table' and name like 'event%'")]
        assert tables, "the ledger has a table of events"
        table = tables[0]
        columns = {r[1]: r[2].upper() for r in db.execute(f"pragma table_info({table})")}
        body = next(c for c in ("body", "event", "payload", "data", "envelope") if c in columns)
        for (trigger,) in db.execute("select name from sqlite_master where type='trigger' and tbl_name=?", (table,)).fetchall():
            db.execute(f"drop trigger {trigger}")
        count = db.execute(f"select count(*) from {table}").fetchone()[0]
        seq, old = db.execute(f"select seq, {body} from {table} order by seq limit 1 offset ?", (which(count),)).fetchone()
        raw = bytearray(old.encode() if isinstance(old, str) else old)
        raw[len(raw) // 2] ^= 1
        db.execute(f"update {table} set {body}=? where seq=?", (raw.decode(errors="replace") if isinstance(old, str) else bytes(raw), seq))
    return seq


def some_history(server):
    for _ in range(5):
        server.make_cluster(unique("h"))


def test_verify_names_a_damaged_record(own_server):
    server = own_server("damage")
    some_history(server)
    server.down()
    assert server.cli("verify").returncode == 0
    seq = damage(server.home, lambda count: count // 2)
    found = server.cli("verify", check=False)
    assert found.returncode != 0 and str(seq) in found.stdout + found.stderr, found.stdout + found.stderr


def test_damage_after_the_snapshot_is_refused_at_start_with_the_number(own_server):
    server = own_server("damage")
    some_history(server)
    server.kill()  # no snapshot is written on the way out
    seq = damage(server.home, lambda count: count - 1)
    done = server.up(check=False)
    assert done.returncode != 0, "a damaged log was served"
    assert str(seq) in done.stderr, done.stderr
    assert "neap" in done.stderr.lower(), "it says what to do"
    for pid, _ in server.agents():
        os.kill(pid, signal.SIGKILL)


def test_damage_before_the_snapshot_makes_the_server_read_only(own_server):
    server = own_server("damage")
    some_history(server)
    server.down()
    damage(server.home, lambda count: 1)
    done = server.up(check=False)
    if done.returncode != 0:
        assert "record" in done.stderr.lower(), done.stderr
        return
    reason = wait_until(lambda: server.get("/neap/v1/status")["read_only"], "the background check finds it")
    assert "2" in reason, reason
    answer = server.http("PUT", f"{server.ws()}/computes/{unique('r')}", {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2"}}})
    assert answer.status_code >= 400
    assert server.get(f"{server.ws()}/computes")["value"], "reads are still served"
