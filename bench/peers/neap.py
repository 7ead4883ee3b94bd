"""Neap itself, by its own `neap bench`, and what the machine does without any system: bare spawns.

`neap bench` starts a server of its own in a temporary folder, measures over HTTPS and takes it down; `start` and `stop`
have nothing to do.
"""

import json
import os
import re
import signal
from pathlib import Path

from peer import Latency, Missing, Peer, Setting
from processes import run

NAME = "Neap"
HTTPS = "one durable PUT over HTTPS for each job, 16 connections, bash -c true"

NOOP = [
    Setting("neap-off", "isolation off", f"{HTTPS}, a process group and nothing else", durable="yes", n=2000),
    Setting(
        "neap-full",
        "isolation full",
        f"{HTTPS}, namespaces, cgroup and a user of its own for each job",
        durable="yes",
        n=2000,
    ),
]
LATENCY = [
    Setting(
        "neap-full",
        "isolation full",
        "one PUT after the other, each followed to the end of its log",
        durable="yes",
        n=60,
    )
]
COLD = [
    Setting(
        "neap-full",
        "zero nodes, idle time 0",
        "a cluster with no node before each job; the local provider makes it",
        durable="yes",
        n=10,
    )
]

BARE_NAME = "bare spawn"
BARE = [
    Setting("bare-true", "/bin/true", "threads that spawn and reap /bin/true, one for each slot"),
    Setting("bare-shell", "bash -c true", "threads that spawn and reap bash -c true, one for each slot"),
]
ISOLATED = [
    Setting(
        "isolated-true",
        "/bin/true, isolated",
        "clone into the same namespaces, join the same cgroup, mount /proc, exec /bin/true",
    ),
    Setting(
        "isolated-shell",
        "bash -c true, isolated",
        "clone into the same namespaces, join the same cgroup, mount /proc, exec bash -c true",
    ),
]
# How long a round of an isolated spawn takes, and the number that its program has for each.
ISOLATED_S = 2
ISOLATED_NUMBER = {"isolated-true": "5", "isolated-shell": "4"}


class Neap(Peer):
    name = NAME

    def __init__(self, program: Path, scratch: Path | None):
        self.program, self.scratch = program, scratch
        self.slots = 1
        self.machine: dict = {}
        # What the last no-op round measured beside its jobs.
        self.bare: dict[str, float] = {}

    def version(self) -> str:
        if not self.program.exists():
            raise Missing(f"{self.program} is not there; build it with: make build")
        return self.run("--version", text=True).split()[-1]

    def start(self, setting: Setting, slots: int) -> None:
        self.slots = slots

    def noop(self, setting: Setting, n: int) -> float:
        found = self.bench("noop", setting, n, "--nodes", "1", "--cpus", str(self.slots), "--rounds", "1")
        self.bare = {"bare-true": found["bare_spawns_per_second"], "bare-shell": found["bare_shells_per_second"]}
        return found["jobs_per_second"]

    def latency(self, setting: Setting, n: int) -> Latency:
        return percentiles(self.bench("latency", setting, n), "running_ms")

    def cold(self, setting: Setting, n: int) -> Latency:
        return percentiles(self.bench("cold", setting, n), "first_line_ms")

    def stop(self) -> None:
        pass

    def bench(self, benchmark: str, setting: Setting, n: int, *arguments: str) -> dict:
        isolation = setting.key.removeprefix("neap-")
        scratch = ["--scratch", str(self.scratch)] if self.scratch else []
        found = self.run(
            "bench",
            benchmark,
            "--jobs",
            str(n),
            "--isolation",
            isolation,
            *arguments,
            *scratch,
            "-o",
            "json",
            "--only-show-errors",
        )
        self.machine = self.machine or found["machine"]
        return found

    def run(self, *argv: str, text: bool = False):
        printed = run([str(self.program), *argv], on_interrupt=signal.SIGINT)
        return printed if text else json.loads(printed)


def percentiles(found: dict, running: str) -> Latency:
    return Latency(
        found[f"{running}_p50"], found[f"{running}_p99"], found["completed_ms_p50"], found["completed_ms_p99"]
    )


class Isolated(Peer):
    """Bare spawns into the namespaces and the cgroup that Neap gives a job: the sandbox's own example program."""

    name = BARE_NAME

    def __init__(self, program: Path):
        self.program = program
        self.slots = 1

    def version(self) -> str:
        if os.geteuid() != 0:
            raise Missing("namespaces and cgroups need root here")
        if not self.program.exists():
            raise Missing("its program is not built: cargo build --release -p neap-sandbox --example spawn_rate")
        return ""

    def start(self, setting: Setting, slots: int) -> None:
        self.slots = slots

    def noop(self, setting: Setting, n: int) -> float:
        printed = run([str(self.program), str(ISOLATED_S), str(self.slots), ISOLATED_NUMBER[setting.key]])
        found = re.search(r"median\s+([\d.]+) /s", printed)
        if not found:
            raise RuntimeError(f"spawn_rate printed no rate: {printed.strip()}")
        return float(found.group(1))

    def stop(self) -> None:
        pass
