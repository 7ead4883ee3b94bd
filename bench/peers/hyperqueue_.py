"""HyperQueue as its wheel brings it: the Python API with `LocalCluster`, a server and a worker in one process.

The wheel has no `hq` program, and its server keeps no journal. The cluster has a process to itself, apart from the
client: its worker forks for each task, which costs more the more memory a process has. This module runs in the
environment that the wheel was installed into (see apart.py).

    python hyperqueue_.py FOLDER SLOTS        the cluster, until its input ends
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peer import Latency, Missing, Peer, Sample, Setting
from processes import PARENT_DEATH, end

NAME = "HyperQueue"
NO_PROGRAM = "the wheel has no hq program, and its LocalCluster takes no journal"
ONE_SUBMIT = "LocalCluster, one worker, all tasks in one submit"

NOOP = [
    Setting("hq-plain", "one submit, no output files", f"{ONE_SUBMIT} of /bin/true, stdout and stderr off", n=3000),
    Setting(
        "hq-files",
        "one submit, output files",
        f"{ONE_SUBMIT} of /bin/true, stdout and stderr to files (its default)",
        n=3000,
    ),
    Setting("hq-shell", "one submit, bash -c true", f"{ONE_SUBMIT} of bash -c true, stdout and stderr off", n=3000),
    Setting(
        "hq-each",
        "a submit for each job",
        "LocalCluster, one worker, one client, a job of one /bin/true for each submit",
        n=1500,
    ),
    Setting("hq-journal", "with its journal", "hq server start --journal", skipped=NO_PROGRAM),
]
LATENCY = [
    Setting(
        "hq",
        "a job for each submit",
        "LocalCluster, a job of one bash for each submit, asked after every millisecond",
        n=40,
    )
]
COLD = [
    Setting(
        "hq-autoalloc",
        "automatic allocation",
        "hq alloc add slurm",
        skipped="it needs the hq program, which the wheel has not",
    )
]

TRUE = ["/bin/true"]
SHELL = ["/bin/bash", "-c", "true"]
STAMP = ["/bin/bash", "-c", "echo $EPOCHREALTIME"]
SILENT = {"stdout": None, "stderr": None}
# What the cluster's process prints, last of all, when it can be used.
READY = "cluster ready\n"


class NotYet(Exception):
    """Ends the API's own wait, which would sleep for a second."""


class HyperQueue(Peer):
    name = NAME

    def __init__(self):
        self.cluster = None
        self.folder = None

    def version(self) -> str:
        try:
            from hyperqueue.ffi import get_version
        except ImportError as error:
            raise Missing(f"the wheel hyperqueue is not installed: {error}") from error
        return get_version().lstrip("v")

    def start(self, setting: Setting, slots: int) -> None:
        from hyperqueue import Client

        self.folder = Path(tempfile.mkdtemp(prefix="neap-peers-hq-"))
        # Output files go to the folder in which a job is submitted.
        os.chdir(self.folder)
        server = str(self.folder / "server")
        self.cluster = subprocess.Popen(
            [*PARENT_DEATH, sys.executable, "-B", __file__, server, str(slots)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if not any(line == READY for line in self.cluster.stdout):
            raise RuntimeError("HyperQueue's LocalCluster did not start")
        self.client = Client(server)
        self.wait([self.submit(TRUE, 4 * slots, **SILENT)])

    def noop(self, setting: Setting, n: int) -> float:
        if setting.key == "hq-each":
            begun = time.monotonic()
            jobs = [self.submit(TRUE, **SILENT) for _ in range(n)]
            # Asking after thousands of jobs is work for the server: the last one is waited for first.
            self.wait(jobs[-1:], every_s=0.01)
            self.wait(jobs, every_s=0.05)
            return n / (time.monotonic() - begun)
        outputs = {} if setting.key == "hq-files" else SILENT
        job = self.job(SHELL if setting.key == "hq-shell" else TRUE, n, **outputs)
        begun = time.monotonic()
        self.wait([self.client.submit(job).id], every_s=0.01)
        return n / (time.monotonic() - begun)

    def latency(self, setting: Setting, n: int) -> Latency:
        stamp = self.folder / "stamp"
        samples = []
        for _ in range(n):
            sent = time.time()
            self.wait([self.submit(STAMP, stdout=str(stamp), stderr=None)], every_s=0.001)
            done = time.time()
            samples.append(Sample((float(stamp.read_text()) - sent) * 1e3, (done - sent) * 1e3))
        return Latency.of(samples)

    def stop(self) -> None:
        if self.cluster:
            self.cluster.stdin.close()
            try:
                self.cluster.wait(10)
            except subprocess.TimeoutExpired:
                end(self.cluster)
            self.cluster = None
        if self.folder:
            os.chdir("/")
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def job(self, argv: list[str], tasks: int, **outputs):
        from hyperqueue import Job

        job = Job()
        for _ in range(tasks):
            job.program(argv, **outputs)
        return job

    def submit(self, argv: list[str], tasks: int = 1, **outputs) -> int:
        return self.client.submit(self.job(argv, tasks, **outputs)).id

    def wait(self, jobs: list[int], every_s: float = 0.01) -> None:
        def ended(states):
            if not all(state["completed"] for state in states.values()):
                raise NotYet

        while True:
            try:
                failed = self.client.connection.wait_for_jobs(jobs, ended)
            except NotYet:
                time.sleep(every_s)
                continue
            if failed:
                raise RuntimeError(f"{len(failed)} of HyperQueue's jobs failed")
            return


def serve(server: str, slots: int) -> None:
    from hyperqueue.cluster import LocalCluster, WorkerConfig

    cluster = LocalCluster(server_dir=server, worker_config=WorkerConfig(cores=slots))
    print(READY, end="", flush=True)
    sys.stdin.read()
    cluster.stop()


PEER = HyperQueue

if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
