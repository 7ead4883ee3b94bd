"""Child processes, each ended by its own id. Nothing here looks for processes by name."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

GRACE_S = 10.0
# Ends a daemon when this program is gone, even if that was killed: part of Debian's util-linux.
PARENT_DEATH = ("setpriv", "--pdeathsig", "KILL")


class Daemons:
    """Programs in the foreground, ended last first."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.running: list[subprocess.Popen] = []

    def start(self, *argv: str, env: dict[str, str] | None = None) -> subprocess.Popen:
        name = Path(argv[0]).name
        with open(self.folder / f"{name}.out", "ab") as out:
            process = subprocess.Popen(
                [*PARENT_DEATH, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=env,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def stop(self) -> None:
        while self.running:
            end(self.running.pop())


def end(process: subprocess.Popen, grace_s: float = GRACE_S) -> None:
    """Asks the process to end, and kills its own session when it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def end_holders(folder: Path) -> None:
    """Kills what has a file of this folder open. The folder is a temporary one of ours, and so are they."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            held = [os.readlink(link) for link in (process / "fd").iterdir()]
            if process.name != str(os.getpid()) and any(name.startswith(f"{folder}/") for name in held):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            # It has ended in the meantime, or it is somebody else's.
            continue


def run(argv: list[str], on_interrupt: signal.Signals | None = None) -> str:
    """What the program printed. When this one is interrupted, the program gets the signal and the time to clean up."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, complaint = process.communicate()
    except BaseException:
        if on_interrupt and process.poll() is None:
            process.send_signal(on_interrupt)
        process.communicate()
        raise
    if process.returncode != 0:
        last = (complaint.strip().splitlines() or ["it said nothing"])[-1]
        raise RuntimeError(f"{Path(argv[0]).name} ended with {process.returncode}: {last}")
    return printed


def wait_until(true, what: str, timeout_s: float = 60.0, every_s: float = 0.02) -> None:
    give_up = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > give_up:
            raise RuntimeError(f"waited {timeout_s:.0f} s until {what}")
        time.sleep(every_s)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
