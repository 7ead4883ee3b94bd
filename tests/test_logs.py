"""Logs: a line is there at once, and a very long log costs neither its job nor the server much."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from neapserver import BINARY, SHARED_FOLDER, unique, wait_until

LONG = 100_000_000
LINE = "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456"
# A log of this length lies on the disk; the server needs some buffers, and pages of what it serves may count as its own.
GROWTH_MAX = 48 * 1024 * 1024

SDK_STREAM = """
import os, sys
from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential
client = MLClient(DefaultAzureCredential(), os.environ["NEAP_SUBSCRIPTION_ID"], os.environ["NEAP_RESOURCE_GROUP"], os.environ["NEAP_WORKSPACE"])
client.jobs.stream(sys.argv[1])
"""


class Reader(threading.Thread):
    """Reads a process's output to its end, and keeps its lines, or only counts its bytes."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process, self.bytes, self.tail = process, 0, b""
        self.start()

    def run(self):
        while piece := self.process.stdout.read1(1 << 16):
            self.bytes += len(piece)
            self.tail = (self.tail + piece)[-100_000:]

    @property
    def text(self):
        return self.tail.decode(errors="replace")


@pytest.fixture
def gate():
    """A file that opens the way for a job, and one by which the job says that it came by."""
    folder = SHARED_FOLDER / unique("neap-logs")
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def passes(gate, name):
    return f"touch {gate}/{name}; while [ ! -e {gate}/go-{name} ]; do sleep 0.05; done"


def memory(pid, what="VmRSS"):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {what} of {pid}")


def forget_peak(pid):
    """From now on VmHWM is what the process needs at most from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@pytest.mark.parametrize("way", ["neap", "sdk"])
def test_a_line_is_streamed_while_its_job_runs(server, work_cluster, gate, way):
    name = server.submit(work_cluster, f"echo before; {passes(gate, 'first')}; echo between; {passes(gate, 'second')}; echo after")
    words = [BINARY, "job", "stream", "-n", name] if way == "neap" else [sys.executable, "-c", SDK_STREAM, name]
    environment = {**server.environment(), **server.vars}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        read = Reader(process)
        wait_until(lambda: (gate / "first").exists(), "the job waits", 60)
        wait_until(lambda: "before" in read.text, "the line is streamed while the job waits", 60)
        assert "between" not in read.text
        (gate / "go-first").touch()
        wait_until(lambda: (gate / "second").exists(), "the job waits again", 60)
        wait_until(lambda: "between" in read.text, "the next line is streamed while the job waits", 60)
        assert "after" not in read.text
        (gate / "go-second").touch()
        assert process.wait(60) == 0, read.text
        read.join(10)
        assert "after" in read.text
    finally:
        process.kill()
        process.wait()


def test_a_very_long_log_needs_no_memory(own_server):
    server = own_server("longlog")
    server.make_cluster("long", 0, 1, "PT1M")
    server.wait_job(server.submit("long", "echo warm"), "Completed")
    pid, before = server.pid, memory(server.pid)
    forget_peak(pid)
    job = server.submit("long", f"yes '{LINE}' | head -c {LONG}")
    process = subprocess.Popen([BINARY, "job", "stream", "-n", job], env=server.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    read = Reader(process)
    try:
        server.wait_job(job, "Completed", 180)
        assert process.wait(120) == 0
        read.join(10)
    finally:
        process.kill()
        process.wait()
    assert read.bytes >= LONG, "all of it was streamed"
    assert memory(pid, "VmHWM") - before < GROWTH_MAX, "written, and streamed"

    # What the SDK reads at each poll is the whole log again.
    url = server.details(job)["logFiles"]["user_logs/std_log.txt"]
    digest, size = hashlib.sha256(), 0
    with server.session.get(url, stream=True, verify=server.vars["REQUESTS_CA_BUNDLE"], timeout=60) as answer:
        for piece in answer.iter_content(1 << 20):
            digest.update(piece)
            size += len(piece)
    expected = hashlib.sha256(((LINE + "\n").encode() * (LONG // (len(LINE) + 1) + 1))[:LONG])
    assert size >= LONG
    if size == LONG:
        assert digest.hexdigest() == expected.hexdigest()
    assert memory(pid, "VmHWM") - before < GROWTH_MAX, "read as a whole"


def test_a_long_log_does_not_wait_for_the_server(own_server, gate):
    server = own_server("stalled")
    server.make_cluster("long", 0, 1, "PT1M")
    job = server.submit("long", f"{passes(gate, 'begun')}; yes '{LINE}' | head -c {LONG}; touch {gate}/written; {passes(gate, 'end')}")
    wait_until(lambda: (gate / "begun").exists(), "the job has begun", 60)
    server.wait_job(job, "Running")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        (gate / "go-begun").touch()
        wait_until(lambda: (gate / "written").exists(), "the job has written its log though nobody takes it", 20)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    (gate / "go-end").touch()
    server.wait_job(job, "Completed", 120)
    answer = server.http("GET", f"{server.nws()}/jobs/{job}/log?offset=0&follow=false", stream=True, timeout=60)
    assert sum(len(piece) for piece in answer.iter_content(1 << 20)) >= LONG
