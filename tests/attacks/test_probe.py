"""What a job can read, write, call and reach: the whole list, compared with what is promised, in each mode.

**Attacker**: any job.
**Attempt**: everything that a first look at a strange machine tries.
**Stopped by**: the layer that each line of `PROMISED` names. A change of the sandbox shows here as a difference.
"""

import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from aftermath import assert_replays
from neapserver import BINARY, Server, new_home, remove, unique

PROBE = r'''
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
found = {}

def call(number, *arguments):
    ctypes.set_errno(0)
    answer = libc.syscall(number, *arguments)
    return "done" if answer >= 0 else errno.errorcode[ctypes.get_errno()]

calls = {
    "mount": (165, b"none", b"/tmp", b"tmpfs", 0, None), "umount2": (166, b"/tmp", 2), "unshare_user": (272, 0x10000000),
    "unshare_net": (272, 0x40000000), "setns": (308, 0, 0), "chroot": (161, b"/tmp"), "keyctl": (250, 0, -3, 0),
    "add_key": (248, b"user", b"x", b"y", 1, -3), "bpf": (321, 0, None, 0), "io_uring_setup": (425, 1, None),
    "perf_event_open": (298, None, 0, -1, -1, 0), "userfaultfd": (323, 0), "init_module": (175, None, 0, b""),
    "kexec_load": (246, 0, 0, None, 0), "clock_settime": (227, 0, None), "settimeofday": (164, None, None),
    "open_by_handle_at": (304, -1, None, 0), "pivot_root": (155, b".", b"."), "clone3": (435, None, 0),
    "ptrace_init": (101, 16, 1, 0, 0), "kill_init": (62, 1, 9), "swapoff": (168, b"/x"), "sethostname": (170, b"x", 1),
    "fallocate": (285, 1, 0, 0, 4096), "open_tree": (428, -100, b"/", 1), "fsopen": (430, b"tmpfs", 0), "quotactl": (179, 0, None, 0, None),
}
found["calls"] = {name: call(*words) for name, words in calls.items()}
found["sockets"] = {}
for name, family in (("packet", 17), ("vsock", 40), ("alg", 38), ("netlink", 16), ("unix", 1), ("inet", 2)):
    try:
        socket.socket(family, socket.SOCK_DGRAM if family != 38 else socket.SOCK_SEQPACKET).close()
        found["sockets"][name] = "done"
    except OSError as e:
        found["sockets"][name] = errno.errorcode[e.errno]

def reach(host, port):
    s = socket.socket()
    s.settimeout(3)
    try:
        s.connect((host, port))
        return "open"
    except OSError as e:
        return "closed"
    finally:
        s.close()

server, other = int(sys.argv[1]), int(sys.argv[2])
found["reach"] = {
    "the server": reach("127.0.0.1", server), "another port of the machine": reach("127.0.0.1", other),
    "metadata": reach("169.254.169.254", 80), "azure": reach("168.63.129.16", 80),
}
found["root"] = sorted(os.listdir("/"))
found["writable"] = sorted(p for p in ("/", "/usr", "/etc", "/opt", "/sys", "/proc/sys", "/run", "/run/lock", "/tmp", "/var", "/var/tmp", "/dev", "/dev/shm", "/home", "/mnt") if os.access(p, os.W_OK))
found["dev"] = sorted(os.listdir("/dev"))
found["unreadable"] = sorted(p for p in ("/etc/shadow", "/proc/1/environ", "/proc/1/root", "/proc/1/mem", "/proc/kcore") if not os.access(p, os.R_OK))
found["gone"] = sorted(p for p in sys.argv[3:] + ["/root", "/var/lib", "/var/log", "/boot", "/srv", "/sys/fs/cgroup/neap"] if not os.path.exists(p))
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
found["status"] = {key: status[key] for key in ("CapEff", "CapPrm", "CapAmb", "NoNewPrivs", "Seccomp")}
found["pids"] = len([p for p in os.listdir("/proc") if p.isdigit()]) < 8
found["keys"] = len(open("/proc/keys").read().splitlines()) if os.path.exists("/proc/keys") else 0
found["users"] = len(open("/etc/passwd").read().splitlines())
print("PROBE " + json.dumps(found))
'''

# Own user namespaces and mounts: seccomp. Sockets: seccomp. Reach: network namespace and router. Files: own root, Landlock.
PROMISED = {
    "calls": {
        **dict.fromkeys(
            "mount umount2 unshare_user unshare_net setns chroot keyctl add_key bpf perf_event_open userfaultfd init_module kexec_load clock_settime settimeofday "
            "open_by_handle_at pivot_root swapoff sethostname open_tree fsopen quotactl".split(),
            "EPERM",
        ),
        "io_uring_setup": "ENOSYS",
        "clone3": "ENOSYS",
        "fallocate": "ENOTSUP",
        # The kernel's own rules: another user's process, and the first of a pid namespace.
        "ptrace_init": "EPERM",
        "kill_init": "EPERM",
    },
    "sockets": {"packet": "EPERM", "vsock": "EPERM", "alg": "EPERM", "netlink": "done", "unix": "done", "inet": "done"},
    "reach": {"the server": "open", "another port of the machine": "closed", "metadata": "closed", "azure": "closed"},
    "writable": ["/dev/shm", "/run/lock", "/tmp", "/var/tmp"],
    "dev": ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"],
    "unreadable": ["/etc/shadow", "/proc/1/environ", "/proc/1/mem", "/proc/1/root", "/proc/kcore"],
    "status": {"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"},
    "pids": True,
    "users": 3,
}
ROOT_FOLDERS = {".neap", "dev", "home", "mnt", "proc", "run", "sys", "tmp", "var", "bin", "etc", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "usr"}


class OrdinaryServer(Server):
    """The same program, started by a user who is not root."""

    def cli(self, *args, check=True, timeout=120, env=None, **_more):
        user = pwd.getpwnam("nobody")
        done = subprocess.run(
            [str(self.binary), *map(str, args)],
            env={**self.environment(), "HOME": str(self.home), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd="/",
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
        )
        assert not check or done.returncode == 0, f"neap {args}: {done.stdout}{done.stderr}"
        return done


@pytest.fixture(scope="module", params=["root", "ordinary user"])
def probed(request):
    if os.geteuid() != 0:
        if request.param == "root":
            pytest.skip("needs root")
        server = Server(new_home("probe"))
    elif request.param == "root":
        server = Server(new_home("probe"))
    else:
        server = OrdinaryServer(new_home("probe"))
        # Where that user can reach it.
        server.binary = server.home / "program" / "neap"
        server.binary.parent.mkdir()
        shutil.copy(BINARY, server.binary)
        for path in (server.home, server.binary.parent):
            path.chmod(0o755)
            shutil.chown(path, "nobody")
        server.home = server.home / "data"
        server.home.mkdir()
        shutil.chown(server.home, "nobody")
    server.mode = request.param
    server.up()
    server.make_cluster("probes", 0, 1, "PT30S")
    yield server
    assert_replays(server)
    remove(server.home.parent if server.mode != "root" and os.geteuid() == 0 else server.home)


def test_what_a_job_can_do_is_what_is_promised(probed):
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        script = f"cat > probe.py <<'END'\n{PROBE}\nEND\npython3 probe.py {probed.port} {listener.getsockname()[1]} {probed.home}"
        job = probed.submit("probes", script, name=unique("probe"))
        if probed.mode != "root" and "Jobs cannot be isolated here" in str(probed.job(job)):
            pytest.skip("this kernel gives ordinary users no namespaces")
        probed.wait_job(job, "Completed", 60)
    lines = probed.log(job).splitlines()
    found = json.loads(next(line for line in lines if line.startswith("PROBE ")).removeprefix("PROBE "))
    assert set(found.pop("root")) <= ROOT_FOLDERS
    gone = set(found.pop("gone"))
    assert {str(probed.home), "/root", "/var/lib", "/var/log", "/srv", "/boot"} <= gone, gone
    found["dev"] = [name for name in found["dev"] if not name.startswith(("nvidia", "dri", "kfd"))]
    assert found.pop("keys") <= 2, "no keys of others"
    if probed.mode != "root":
        # It runs as the server's own user, in a user namespace: files of that user below the machine's folders stay closed by the mounts.
        found["writable"] = [path for path in found["writable"] if path != "/mnt"]
    assert {name: value for name, value in found["calls"].items() if value != PROMISED["calls"].get(name)} == {}
    assert found == PROMISED
