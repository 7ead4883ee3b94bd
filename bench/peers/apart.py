"""A peer in a process of its own, under another Python: one JSON line asks, one JSON line answers.

What a peer's library prints, leaks or crashes then stays with that process, and a fresh one is measured each time.

    python apart.py MODULE        runs the peer of that module until its input ends
"""

import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from peer import Latency, Missing, Peer, Setting
from processes import PARENT_DEATH, end

STOP_S = 30.0


class Apart(Peer):
    def __init__(self, python: Path, module: str, name: str, log: Path):
        self.python, self.module, self.name, self.log = python, module, name, log
        self.process: subprocess.Popen | None = None

    def version(self) -> str:
        if not self.python.exists():
            raise Missing("its Python environment is not there")
        try:
            return self.ask("version")
        finally:
            self.stop()

    def start(self, setting: Setting, slots: int) -> None:
        self.ask("start", asdict(setting), slots)

    def noop(self, setting: Setting, n: int) -> float:
        return self.ask("noop", asdict(setting), n)

    def latency(self, setting: Setting, n: int) -> Latency:
        return Latency(**self.ask("latency", asdict(setting), n))

    def stop(self) -> None:
        if self.process is None:
            return
        process, self.process = self.process, None
        # The end of its input lets the peer stop what it started.
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            end(process)
        process.stdout.close()

    def ask(self, verb: str, *arguments):
        if self.process is None:
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen(
                    [*PARENT_DEATH, str(self.python), "-B", __file__, self.module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        try:
            self.process.stdin.write(json.dumps([verb, *arguments]) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{self.name} ended while it was asked for {verb}; see {self.log}")
        kind, value = json.loads(answer)
        if kind == "missing":
            raise Missing(value)
        if kind == "failed":
            raise RuntimeError(value)
        return value


def serve(module: str) -> None:
    # What the library prints goes with the errors; the answers have the pipe to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = importlib.import_module(module).PEER()
    try:
        for line in sys.stdin:
            answers.write(json.dumps(answer(peer, *json.loads(line))) + "\n")
            answers.flush()
    finally:
        peer.stop()


def answer(peer: Peer, verb: str, *arguments):
    try:
        match verb, arguments:
            case "version", []:
                return "done", peer.version()
            case "start", [setting, slots]:
                return "done", peer.start(Setting(**setting), slots)
            case "noop", [setting, n]:
                return "done", peer.noop(Setting(**setting), n)
            case "latency", [setting, n]:
                return "done", asdict(peer.latency(Setting(**setting), n))
    except Missing as missing:
        return "missing", str(missing)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return "failed", f"no such verb: {verb}"


if __name__ == "__main__":
    serve(sys.argv[1])
