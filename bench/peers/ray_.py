"""Ray: calls in Python workers that are there already. No process for each task, and nothing is written to a disk.

This module runs in the environment that the wheel was installed into, in a process of its own (see apart.py).
"""

import os
import shutil
import subprocess
import tempfile
import time

from peer import Latency, Missing, Peer, Sample, Setting

NAME = "Ray"
INIT = "ray.init on the loopback, no dashboard, 200 MB of object store"

NOOP = [
    Setting(
        "ray-call", "tasks in warm workers", f"{INIT}, all tasks submitted at once, then ray.get of all", "call", n=5000
    ),
    Setting(
        "ray-spawn",
        "tasks that run /bin/true",
        f"{INIT}, each task runs /bin/true by subprocess.run",
        "call + process",
        n=2000,
    ),
]
LATENCY = [Setting("ray", "tasks in warm workers", f"{INIT}, a task that returns the time", "call", n=200)]
COLD = []

OBJECT_STORE_BYTES = 200_000_000


class Ray(Peer):
    name = NAME

    def __init__(self):
        self.folder = None

    def version(self) -> str:
        try:
            from importlib.metadata import version

            return version("ray")
        except ImportError as error:
            raise Missing(f"the wheel ray is not installed: {error}") from error

    def start(self, setting: Setting, slots: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray

        self.folder = tempfile.mkdtemp(prefix="neap-ray-")
        ray.init(
            num_cpus=slots,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=self.folder,
        )
        self.get = ray.get
        self.tasks = {
            "ray-call": ray.remote(num_cpus=1)(nothing),
            "ray-spawn": ray.remote(num_cpus=1)(spawn),
            "ray": ray.remote(num_cpus=1)(now),
        }
        # Workers are Python programs that take a second to start; each has run something before anything counts.
        task = self.tasks[setting.key]
        self.get([task.remote() for _ in range(100 * slots)])

    def noop(self, setting: Setting, n: int) -> float:
        task = self.tasks[setting.key]
        begun = time.monotonic()
        self.get([task.remote() for _ in range(n)])
        return n / (time.monotonic() - begun)

    def latency(self, setting: Setting, n: int) -> Latency:
        task = self.tasks[setting.key]
        samples = []
        for _ in range(n):
            sent = time.time()
            ran = self.get(task.remote())
            done = time.time()
            samples.append(Sample((ran - sent) * 1e3, (done - sent) * 1e3))
        return Latency.of(samples)

    def stop(self) -> None:
        if self.folder:
            import ray

            ray.shutdown()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


def nothing():
    pass


def spawn():
    subprocess.run(["/bin/true"], check=True)


def now() -> float:
    return time.time()


PEER = Ray
