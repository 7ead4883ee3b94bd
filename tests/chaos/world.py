"""What the chaos suites share: a server that can be told where to die, a client that remembers what was acknowledged,
witnesses of what truly ran, and the questions asked when the faults are over.

Nothing here reaches into the program: it starts it, kills it, speaks HTTPS, and reads its files when it is down.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import requests

from neapserver import BINARY, FINAL, SHARED_FOLDER, Late, Server, alive, name_of, share, wait_until

SEED = int(os.environ.get("NEAP_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
TROUBLE = (requests.RequestException, OSError, ValueError, KeyError)


class ChaosServer(Server):
    """A server with a configuration of its own, and the time that each start took."""

    def __init__(self, home=None, config="", port=None):
        super().__init__(home or tempfile.mkdtemp(prefix="neap-chaos-"), port)
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if config:
            (self.home / "config.yaml").write_text(config)
        share(self.home)
        self.listen = "127.0.0.1"
        self.starts = []

    def up(self, check=True, extra=(), env=None):
        began = time.monotonic()
        done = self.cli("up", "--data", self.home, "--listen", f"{self.listen}:{self.port}", "--detach", *extra, check=check, timeout=60, env=env)
        took = time.monotonic() - began
        if done.returncode == 0:
            self.starts.append(took)
            try:
                self.vars = {k: str(v) for k, v in json.loads(self.cli("env", "--format", "json").stdout).items()}
            except AssertionError:
                if check:
                    raise
            self.bearer = None
        return done

    def begin_up(self):
        """A start that nobody waits for: it will be killed on its way."""
        return subprocess.Popen(
            [str(BINARY), "up", "--data", str(self.home), "--listen", f"{self.listen}:{self.port}", "--detach"],
            env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )

    def server_processes(self):
        return [pid for pid, line in self.processes() if line.split()[1:2] == ["up"]]

    def kill_all_servers(self):
        """Every `neap up` of this folder, also one that has not said yet that it is there."""
        killed = set()

        def gone():
            # One that was on its way may appear after the first look.
            pids = self.server_processes()
            for pid in pids:
                send(pid, signal.SIGKILL)
            killed.update(pids)
            return not pids

        wait_until(gone, "no server is left", 10, 0.005)
        return len(killed)

    def helpers(self, name):
        """What an agent forked, by the name it gave itself: `neap-spawner` or `neap-supervisor`."""
        return [pid for pid, _ in self.processes() if name_of(pid) == name]

    def resident_bytes(self):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def is_alive(self):
        pid = self.pid
        return pid is not None and alive(pid)

    def panics(self):
        log = self.home / "logs" / "server.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return [line for line in lines if "panicked at" in line]


def send(pid, what):
    try:
        os.kill(pid, what)
        return True
    except ProcessLookupError:
        return False


class Witness:
    """A folder outside of everything that Neap hides, where each execution of a job writes when it was alive."""

    def __init__(self):
        SHARED_FOLDER.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="neap-witness-", dir=SHARED_FOLDER))
        self.folder.chmod(0o777)

    def command(self, name, ticks, tick_s=0.05, then="", again=None):
        """A shell command that ticks into a file of this execution alone. A later execution ticks `again` times."""
        file = f"{self.folder}/{name}"
        shorter = f'[ "$(ls {file}.* 2>/dev/null | wc -l)" -gt 0 ] && n={again}; ' if again is not None else ""
        return (
            f'n={ticks}; {shorter}f={file}.$RANDOM$RANDOM$RANDOM; i=0; echo "$EPOCHREALTIME" >> $f; '
            f'while [ $i -lt $n ]; do i=$((i+1)); sleep {tick_s}; echo "$EPOCHREALTIME" >> $f; done; {then}'
        )

    def executions(self, name):
        """(first, last) sign of life of every execution, in order of time."""
        found = []
        for path in self.folder.glob(f"{name}.*"):
            times = [float(line) for line in path.read_text().split() if line.count(".") == 1]
            if times:
                found.append((times[0], times[-1]))
        return sorted(found)

    def assert_one_at_a_time(self, name, attempts):
        runs = self.executions(name)
        assert len(runs) <= attempts, f"{name} was executed {len(runs)} times in {attempts} attempts"
        for (_, ended), (began, _) in zip(runs, runs[1:]):
            assert ended < began, f"{name}: an execution was alive at {ended:.3f}, another began at {began:.3f}"
        return runs

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Client(threading.Thread):
    """Submits jobs one after another and remembers which were acknowledged. What was not is sent again, the same."""

    def __init__(self, server, cluster, mark, witness, prefix="j", ahead=16, limit=None, dice=None, outputs=True):
        super().__init__(daemon=True)
        self.server, self.cluster, self.mark, self.witness = server, cluster, mark, witness
        self.prefix, self.ahead, self.limit, self.outputs = prefix, ahead, limit, outputs
        self.dice = dice or random.Random(SEED)
        self.acknowledged, self.open, self.resent, self.error = [], set(), 0, None
        self.enough = threading.Event()

    def run(self):
        try:
            while not self.enough.is_set() and (self.limit is None or len(self.acknowledged) < self.limit):
                if len(self.open) < self.ahead:
                    self.submit(f"{self.prefix}-{len(self.acknowledged) + 1:05d}")
                else:
                    self.look()
        except Exception as problem:  # told by the test, not lost in a thread
            self.error = problem

    def body(self, name):
        then = f"echo {name} >> ${{{{outputs.done}}}}/line.txt; echo said {name}" if self.outputs else ""
        outputs = {"outputs": {"done": {"jobOutputType": "uri_folder", "mode": "Upload"}}} if self.outputs else {}
        command = self.witness.command(name, ticks=self.dice.choice([0, 1, 3, 8]), then=then)
        return self.server.job_body(self.cluster, command, environmentVariables={"NEAP_TEST_MARK": self.mark}, **outputs)

    def submit(self, name):
        body = self.body(name)
        while True:
            try:
                answer = self.server.http("PUT", f"{self.server.ws()}/jobs/{name}", body, timeout=10)
            except TROUBLE:
                answer = None
            if answer is not None and answer.status_code in (200, 201):
                self.acknowledged.append(name)
                self.open.add(name)
                return
            if answer is not None and answer.status_code < 500 and answer.status_code not in (401, 429):
                raise AssertionError(f"{name} was refused: {answer.status_code} {answer.text}")
            self.resent += 1
            if self.enough.is_set():
                return
            time.sleep(0.02)

    def look(self):
        for name in sorted(self.open):
            try:
                answer = self.server.http("GET", f"{self.server.ws()}/jobs/{name}", timeout=10)
            except TROUBLE:
                return
            if answer.status_code == 404:
                raise AssertionError(f"{name} was acknowledged and is lost")
            if answer.status_code == 200 and answer.json()["properties"]["status"] in FINAL:
                self.open.discard(name)
        time.sleep(0.02)

    def finish(self, seconds=60):
        self.enough.set()
        self.join(seconds)
        assert not self.is_alive(), "the client has ended"
        assert self.error is None, self.error


def persist(act, what, seconds=30):
    """Does something over HTTPS until it is done, whatever breaks meanwhile."""

    def attempt():
        try:
            act()
            return True
        except (*TROUBLE, AssertionError) as problem:
            attempt.last = problem
            return False

    attempt.last = None
    try:
        wait_until(attempt, what, seconds)
    except Late:
        raise AssertionError(f"{what}: {attempt.last}") from attempt.last


def assert_all_done(server, witness, names, outputs=True, seconds=180):
    """Every acknowledged job completed, with its output once and no two executions alive together. Counts attempts."""
    attempts = Counter()
    for name in names:
        server.wait_job(name, "Completed", seconds)
        number = int(server.job(name)["properties"]["neap.attempt"])
        attempts[number] += 1
        runs = witness.assert_one_at_a_time(name, number)
        assert runs, f"{name} is said to have completed and nobody saw it run"
        if outputs:
            assert server.output(name, "done", "line.txt") == f"{name}\n".encode(), f"{name} did not leave exactly one line"
            said = [line for line in server.log(name).splitlines() if line == f"said {name}"]
            assert said, f"{name}: its last word is missing in its log"
    return dict(sorted(attempts.items()))


def assert_ledger(server, names):
    """With the server down: the chain and its replay are clean, and each job was accepted as ended exactly once."""
    verified = server.cli("verify", "--replay", check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    with sqlite3.connect(f"file:{server.home / 'ledger' / 'neap.db'}?mode=ro", uri=True) as db:
        rows = db.execute("select kind, body from events where kind in ('job.submitted', 'job.ended') order by seq").fetchall()
    submitted, ended = {}, Counter()
    for kind, body in rows:
        event = json.loads(body)
        if kind == "job.submitted":
            assert event["name"] not in submitted, f"{event['name']} was submitted twice"
            submitted[event["name"]] = event["id"]
        else:
            ended[event["id"]] += 1
    for name in names:
        assert name in submitted, f"{name} was acknowledged and is not in the log"
        assert ended[submitted[name]] == 1, f"{name} was accepted as ended {ended[submitted[name]]} times"
    assert not server.panics(), server.panics()


def end(server, mark):
    """Down, in order; what does not end is the failure, and is ended here so that it disturbs nobody else."""
    try:
        server.down()
        server.assert_nothing_left(mark)
    finally:
        for pid, _ in server.processes():
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGKILL)
