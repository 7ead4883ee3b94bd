"""A descriptor of a job's folder, handed to somebody outside.

**Attacker**: a job, and an accomplice on the same machine with the rights of the job's user (a program that the job left behind
with a set-id bit, or simply the same user where Neap is not root).
**Attempt**: the job passes its working folder through an abstract socket and leaves no trace in it. When the folder is used for
the next job, the accomplice plants a link before that job's code arrives, reads its files, and adds to its outputs.
**Stopped by**: no folder and no user is used again, so the descriptor shows a folder that nobody comes to; and the agent creates
files by descriptor, new ones only, without following links. With a network of its own the job does not reach the socket.
"""

import array
import os
import socket
import subprocess
import sys
import threading

import pytest

from aftermath import assert_replays, assert_serving
from neapserver import Server, new_home, remove, unique, wait_until

PASS = """python3 -c "
import array, os, socket
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(chr(0) + '{name}')
    s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [os.open('.', os.O_RDONLY)]))])
    s.recv(1)
    print('passed')
except OSError as e:
    print('stopped:', e)
" """
# Runs as the accomplice. The folder is its descriptor 0.
PLANT = """
import os, sys
folder, target = int(sys.argv[1]), sys.argv[2]
for name in ("pwn", "code.py"):
    try:
        os.symlink(target, name, dir_fd=folder)
    except OSError as e:
        print(e)
"""
LOOK = "import os, sys; print(*os.listdir(int(sys.argv[1])))"


class Accomplice:
    """Takes descriptors from whoever connects to an abstract socket."""

    def __init__(self):
        self.name = unique("accomplice")
        self.folders = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0" + self.name)
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            user = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], sys.byteorder)
            _, parts, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
            for _, _, data in parts:
                self.folders.append((user, array.array("i", data)[0]))
            connection.send(b"y")
            connection.close()

    def act(self, program, *words):
        """What the program says, run with the rights of each job's user."""
        said = []
        for user, folder in self.folders:
            rights = {"user": user, "group": user, "extra_groups": []} if os.getuid() == 0 else {}
            done = subprocess.run(["/usr/bin/python3", "-c", program, str(folder), *map(str, words)], pass_fds=[folder], capture_output=True, text=True, **rights)
            said.append(done.stdout)
        return " ".join(said)


@pytest.fixture(scope="module")
def attacked():
    server = Server(new_home("passed"))
    server.up()
    server.make_cluster("work", 1, 1, "PT1M")
    server.environment_id()
    yield server
    assert_replays(server)
    remove(server.home)


def test_a_folder_that_was_passed_on_is_nobodys_next(attacked):
    server, accomplice = attacked, Accomplice()
    target = server.home / "owners-file"
    target.write_text("untouched")
    target.chmod(0o600)
    command = PASS.format(name=accomplice.name)
    # The first brings the node up; its folder may be too young to be used again anywhere.
    for _ in range(3):
        job = server.submit("work", command, name=unique("passes"))
        server.wait_job(job, "Completed")
    said = server.log(job)
    assert "passed" in said or "stopped" in said, said
    accomplice.act(PLANT, target)
    # A job of somebody else, with code, on the same node.
    folder = server.home / "victim"
    folder.mkdir()
    for name in ("pwn", "code.py"):
        (folder / name).write_text("print('of the victim')\n")
    name = unique("victim")
    (server.home / "victim.yaml").write_text(
        f"command: python3 code.py; touch here; echo ready; sleep 600\ncode: {folder}\nenvironment: azureml:plain:1\ncompute: azureml:work\nexperiment_name: attacks\n"
    )
    server.cli("job", "create", "-f", server.home / "victim.yaml", "-n", name)
    wait_until(lambda: "ready" in server.log(name) or server.status(name) == "Failed", "the victim runs", 60)
    seen = accomplice.act(LOOK)
    assert target.read_text() == "untouched", "the agent wrote the victim's code through a planted link"
    assert "here" not in seen.split(), f"the accomplice sees the victim's folder: {seen}"
    assert "of the victim" in server.log(name)
    server.cli("job", "cancel", "-n", name)
    server.wait_job(name, "Canceled")
    assert_serving(server, "work")
