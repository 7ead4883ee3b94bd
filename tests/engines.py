"""Real container engines in a folder of their own, and a small image made of this machine's own Debian packages.

Docker's daemon and Podman's service are started by hand, on sockets below /tmp, without networks of their own (jobs use the
machine's): nothing outside of their folders changes. Where an engine cannot be had, `start` says why.
"""

import io
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
from pathlib import Path

from neapserver import Late, wait_until

PACKAGES = ["bash", "dash", "coreutils", "grep", "sed", "libc-bin", "python3", "python3-venv"]


class Unavailable(Exception):
    """This machine has no such engine."""


class Engine:
    def __init__(self, kind):
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp(prefix=f"neap-{kind}-"))
        self.socket = self.folder / "engine.sock"
        self.process = None

    def start(self):
        if os.geteuid() != 0:
            raise Unavailable("engines are started as root")
        needed = ["dockerd", "containerd", "runc"] if self.kind == "docker" else ["podman", "conmon", "runc"]
        missing = [name for name in needed if not shutil.which(name)]
        if missing:
            raise Unavailable(f"not installed: {', '.join(missing)}")
        log = (self.folder / "log").open("wb")
        self.process = subprocess.Popen(
            self.service(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment(), start_new_session=True
        )
        try:
            wait_until(lambda: self.process.poll() is not None or self.answers(), f"{self.kind} answers", 60)
        except Late:
            pass
        if self.process.poll() is not None or not self.answers():
            said = (self.folder / "log").read_text(errors="replace")[-600:]
            self.stop()
            raise Unavailable(f"{self.kind} does not start here: {said}")
        return self

    def service(self):
        f = self.folder
        if self.kind == "docker":
            return [
                "dockerd", "--data-root", f / "data", "--exec-root", f / "exec", "-H", f"unix://{self.socket}", "-p", f / "pid",
                "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false", "--log-level=warn",
            ]  # fmt: skip
        return [*self.podman(), "system", "service", "--time=0", f"unix://{self.socket}"]

    def podman(self):
        f = self.folder
        return ["podman", "--root", f / "data", "--runroot", f / "run", "--tmpdir", f / "tmp", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]

    def environment(self):
        """Root without the right to raise limits cannot give containers those that Podman gives by default."""
        import resource

        limits = [f"{name}={hard}:{hard}" for name, hard in (("nofile", resource.getrlimit(resource.RLIMIT_NOFILE)[1]), ("nproc", min(resource.getrlimit(resource.RLIMIT_NPROC)[1], 32768))) if hard > 0]
        conf = self.folder / "containers.conf"
        conf.write_text(f"[containers]\ndefault_ulimits = {limits!r}\n".replace("'", '"'))
        policy = self.folder / "policy.json"
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        return {**os.environ, "CONTAINERS_CONF": str(conf), "HOME": str(self.folder)}

    def answers(self):
        return self.socket.exists() and self.run("version", check=False).returncode == 0

    def run(self, *args, check=True, text=None):
        client = ["docker", "-H", f"unix://{self.socket}"] if self.kind == "docker" else self.podman()
        done = subprocess.run(
            [*map(str, client), *map(str, args)], env=self.environment(), stdin=text, capture_output=True, text=True, timeout=300
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{self.kind} {' '.join(map(str, args))}: {done.stderr}")
        return done

    def load(self, root_archive, tag):
        """Makes an image of a root file system."""
        self.run("import", root_archive, tag)

    def containers(self, *labels):
        """Ids of containers with these labels, running or not."""
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        return self.run("ps", "-aq", *filters).stdout.split()

    def stop(self):
        if self.process and self.process.poll() is None:
            if self.kind == "docker":
                for container in self.containers():
                    self.run("rm", "-f", container, check=False)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        # What the engine has mounted would be deleted through otherwise.
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            place = line.split(" ")[1]
            if place.startswith(str(self.folder)):
                subprocess.run(["umount", "-l", place], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def closure(wanted):
    """Installed Debian packages that these need."""
    status = Path("/var/lib/dpkg/status")
    if not status.exists():
        raise Unavailable("the test image is made of Debian packages, and this machine has none")
    needs, provides = {}, {}
    for entry in status.read_text(errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^(\S+): (.*)$", entry, re.M))
        if "installed" not in fields.get("Status", "").split():
            continue
        name = fields["Package"]
        depends = f"{fields.get('Pre-Depends', '')}, {fields.get('Depends', '')}"
        needs[name] = [[re.split(r"[ (:]", option.strip())[0] for option in group.split("|")] for group in depends.split(",") if group.strip()]
        for other in fields.get("Provides", "").split(","):
            provides.setdefault(re.split(r"[ (:]", other.strip())[0], name)
    missing = [name for name in wanted if name not in needs]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    found, todo = set(), list(wanted)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        for options in needs[name]:
            chosen = next((o for o in options if o in needs), None) or next((provides[o] for o in options if o in provides), None)
            if chosen:
                todo.append(chosen)
    return sorted(found)


def root_archive(path):
    """A root file system with a shell and Python, of this machine's own packages."""
    listed = subprocess.run(["dpkg", "-L", *closure(PACKAGES)], capture_output=True, text=True, check=True).stdout
    names = set()
    for name in listed.splitlines():
        if not name.startswith("/") or name.startswith(("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/lintian", "/usr/share/zoneinfo")):
            continue
        # On a merged /usr, /bin/x and /usr/bin/x are one file.
        real = os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
        if real in ("/bin", "/sbin", "/lib", "/lib64", "/etc/passwd", "/etc/group"):
            continue
        if os.path.lexists(real) and not (os.path.isdir(real) and not os.path.islink(real)):
            names.add(real)
    with tarfile.open(path, "w") as tar:
        for link in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink(f"/{link}"):
                tar.add(f"/{link}", arcname=link, recursive=False)
        # It is nobody's file: dash's own scripts make it.
        for name in sorted(names | {os.path.join(os.path.realpath("/bin"), "sh")}):
            tar.add(name, arcname=name.lstrip("/"), recursive=False)
        for name, text in (("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("etc/group", "root:x:0:\n"), ("etc/in-the-image", "yes\n")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            info.mode = 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
        for folder, mode in (("tmp", 0o1777), ("root", 0o700), ("mnt", 0o755), ("proc", 0o555), ("sys", 0o555), ("dev", 0o755)):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, mode
            tar.addfile(info)
    return path
