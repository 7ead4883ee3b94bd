"""A small file system of a test's own, with a server's data folder on it."""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from neapserver import Server, unique, wait_until

MB = 1024 * 1024


@contextmanager
def small_disk(megabytes):
    """A tmpfs of this size, where this machine lets us have one."""
    place = Path("/tmp") / unique("neap-disk")
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(place)], capture_output=True, text=True)
    if done.returncode != 0:
        place.rmdir()
        pytest.skip(f"a small file system needs the right to mount: {done.stderr.strip()}")
    try:
        yield place
    finally:
        wait_until(lambda: subprocess.run(["umount", str(place)], capture_output=True).returncode == 0, "the small disk is unmounted", 20)
        place.rmdir()


@contextmanager
def server_on(place, mark, config=""):
    server = Server(place / "data")
    server.home.mkdir()
    if config:
        (server.home / "config.yaml").write_text(config)
    try:
        server.up()
        yield server
    finally:
        # Whatever failed, the server must be able to end.
        (place / "filler").unlink(missing_ok=True)
        server.cli("down", "--grace", "1", check=False, timeout=90)
        server.assert_nothing_left(mark)


def free(place):
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


def fill(path):
    """Writes until nothing more can be written."""
    with path.open("ab", buffering=0) as out:
        for size in (MB, 4096):
            try:
                while True:
                    out.write(b"\0" * size)
            except OSError:
                pass
