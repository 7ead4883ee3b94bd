"""A real Neap server in a folder of its own, and the few ways the suites talk to it without an SDK.

Never reaches into the program: it starts the binary, reads what `neap env` prints, and speaks HTTPS.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("NEAP_BIN", ROOT / "target" / "debug" / "neap"))
SHARED = ROOT.parent / "shared"
FINAL = {"Completed", "Failed", "Canceled"}
API = "api-version=2024-10-01"


class Late(AssertionError):
    """A condition did not come true before its deadline."""


def wait_until(check, what, seconds=30.0, every=0.05):
    """Calls `check` until it gives something true, and returns that. The last value is part of the failure."""
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Late(f"after {seconds:g} s still not so: {what}; last seen: {value!r}")
        time.sleep(every)


def holds_for(check, what, seconds, every=0.1):
    """The opposite promise: `check` must stay true for the whole time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert check(), f"no longer so: {what}"
        time.sleep(every)


def free_port():
    """A port below the range that outgoing connections take, so that it is still free after a kill and a restart."""
    while True:
        port = random.SystemRandom().randrange(20000, 30000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def counter():
    n = 0
    while True:
        n += 1
        yield n


_names = counter()


def unique(prefix):
    """A name that is legal for clusters and jobs alike and used once."""
    return f"{prefix}-x{next(_names)}{os.urandom(2).hex()}"


def new_home(name):
    """A short path: a data folder may hold sockets, whose names are limited to about a hundred bytes."""
    return Path(tempfile.mkdtemp(prefix=f"neap-{name}-"))


def shared_folder():
    """Where jobs of servers that `share` was called for may write, and tests may look: none of the places that each job has for
    itself, nor one of the system's."""
    taken = tuple(f"/{name}/" for name in "tmp var/tmp run proc dev sys mnt/azureml usr etc opt bin sbin lib lib64 nix".split())
    places = [ROOT / "target", Path("/srv"), Path.home() / ".cache"]
    for place in places:
        if not f"{place}/".startswith(taken) and (os.access(place, os.W_OK) or os.access(place.parent, os.W_OK)):
            return place / "neap-shared-with-jobs"
    raise RuntimeError(f"no folder to share with jobs; looked at {places}")


SHARED_FOLDER = shared_folder()


def share(home):
    """Lets isolated jobs of the server with this home write to SHARED_FOLDER."""
    SHARED_FOLDER.mkdir(parents=True, exist_ok=True)
    SHARED_FOLDER.chmod(0o1777)
    file = Path(home) / "config.yaml"
    text = file.read_text() if file.exists() else ""
    if "local: {" in text:
        text = text.replace("local: {", f"local: {{shared_paths: ['{SHARED_FOLDER}'], ", 1)
    elif "local:" in text:
        text = text.replace("local:\n", f"local:\n  shared_paths: ['{SHARED_FOLDER}']\n", 1)
    else:
        text += f"local: {{shared_paths: ['{SHARED_FOLDER}']}}\n"
    file.write_text(text)


def name_of(pid):
    """The name the process gave itself; None if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


class Server:
    def __init__(self, home, port=None):
        self.home = Path(home)
        self.port = port or free_port()
        self.vars = {}
        self.session = requests.Session()
        self.session.trust_env = False
        self.bearer = None
        self.bearer_until = 0.0

    # --- the program -------------------------------------------------------------------------------------------

    def environment(self):
        """What a person's shell has, less anything that points at another server, plus this one's data folder."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NEAP_", "IDENTITY_", "MSI_", "AZUREML_", "ARM_", "AZURE_", "MLFLOW_"))}
        kept.pop("REQUESTS_CA_BUNDLE", None)
        return {**kept, "NEAP_HOME": str(self.home), "NO_COLOR": "1"}

    def cli(self, *args, check=True, timeout=120, text=None, cwd=None, env=None):
        done = subprocess.run(
            [str(BINARY), *map(str, args)],
            env={**self.environment(), **(env or {})},
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"neap {' '.join(map(str, args))} ended with {done.returncode}\nstdout: {done.stdout}\nstderr: {done.stderr}\n{self.tail()}")
        return done

    def json(self, *args, **kwargs):
        return json.loads(self.cli(*args, "-o", "json", **kwargs).stdout)

    def up(self, check=True, extra=(), env=None):
        done = self.cli("up", "--data", self.home, "--listen", f"127.0.0.1:{self.port}", "--detach", *extra, check=check, timeout=60, env=env)
        if done.returncode == 0:
            self.vars = {k: str(v) for k, v in json.loads(self.cli("env", "--format", "json").stdout).items()}
            self.bearer = None
        return done

    def down(self, *args):
        """Stops it without waiting long for jobs: those that still run here are meant to."""
        return self.cli("down", "--grace", "1", *args, timeout=90)

    def tail(self, lines=40):
        log = self.home / "logs" / "server.log"
        if not log.exists():
            return "(no server.log)"
        return "server.log ends:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

    @property
    def pid(self):
        try:
            return int(json.loads((self.home / "server.json").read_text())["pid"])
        except (OSError, ValueError, KeyError):
            return None

    def kill(self):
        """kill -9 of the server alone. Waits until the kernel has taken it away, so that the lock is free."""
        pid = self.pid
        if pid is None:
            return None
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        wait_until(lambda: not alive(pid), f"process {pid} is gone after kill -9", 10, 0.005)
        return pid

    # --- processes ---------------------------------------------------------------------------------------------

    def processes(self, *marks):
        """(pid, command line) of everything on this machine that carries this data folder, or one of the marks."""
        needles = [str(self.home).encode(), *(m.encode() for m in marks)]
        mine = ancestors(os.getpid())
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) in mine:
                continue
            try:
                line = (entry / "cmdline").read_bytes()
                if not line or state_of(entry.name) == "Z":
                    continue
                text = line + b"\0" + (entry / "environ").read_bytes()
                try:
                    text += b"\0" + os.readlink(entry / "cwd").encode()
                except OSError:
                    pass
            except OSError:
                continue
            if any(n in text for n in needles):
                found.append((int(entry.name), line.replace(b"\0", b" ").decode(errors="replace").strip()))
        return sorted(found)

    def agents(self):
        """The agents of this installation's nodes. What an agent forks keeps its command line, but has its own name; and what
        was such a fork when its command line was read may be a job's shell by now."""
        found = [(pid, line) for pid, line in self.processes() if line.split()[1:2] == ["agent"]]
        return [(pid, line) for pid, line in found if name_of(pid) == BINARY.resolve().name[:15]]

    def assert_nothing_left(self, *marks):
        try:
            wait_until(lambda: not self.processes(*marks), "no process of the installation is left", 15)
        except Late:
            raise AssertionError(f"processes left after neap down: {self.processes(*marks)}") from None

    # --- HTTPS -------------------------------------------------------------------------------------------------

    @property
    def client(self):
        return json.loads((self.home / "client.json").read_text())

    @property
    def url(self):
        return self.client["url"].rstrip("/")

    @property
    def subscription(self):
        return self.vars["NEAP_SUBSCRIPTION_ID"]

    @property
    def group(self):
        return self.vars["NEAP_RESOURCE_GROUP"]

    @property
    def workspace(self):
        return self.vars["NEAP_WORKSPACE"]

    def ws(self, group=None, workspace=None):
        return (
            f"/subscriptions/{self.subscription}/resourceGroups/{group or self.group}"
            f"/providers/Microsoft.MachineLearningServices/workspaces/{workspace or self.workspace}"
        )

    def nws(self):
        return f"/neap/v1/subscriptions/{self.subscription}/resourceGroups/{self.group}/workspaces/{self.workspace}"

    def token(self):
        if self.bearer is None or time.time() > self.bearer_until:
            answer = requests.get(
                self.vars["IDENTITY_ENDPOINT"],
                params={"api-version": "2019-08-01", "resource": self.url},
                headers={"X-IDENTITY-HEADER": self.vars["IDENTITY_HEADER"]},
                verify=self.vars["REQUESTS_CA_BUNDLE"],
                timeout=20,
            )
            answer.raise_for_status()
            body = answer.json()
            self.bearer, self.bearer_until = body["access_token"], float(body["expires_on"]) - 60
        return self.bearer

    def http(self, method, path, body=None, timeout=30, **kwargs):
        """One request with a bearer token, no retries: the suites want to see what the server said."""
        joint = "&" if "?" in path else "?"
        headers = {"Authorization": f"Bearer {self.token()}", **kwargs.pop("headers", {})}
        return self.session.request(
            method, f"{self.url}{path}{joint}{API}", json=body, headers=headers, verify=self.vars["REQUESTS_CA_BUNDLE"], timeout=timeout, **kwargs
        )

    def get(self, path, **kwargs):
        answer = self.http("GET", path, **kwargs)
        assert answer.status_code == 200, f"GET {path}: {answer.status_code} {answer.text[:800]}"
        return answer.json()

    def put(self, path, body, **kwargs):
        answer = self.http("PUT", path, body, **kwargs)
        assert answer.status_code in (200, 201), f"PUT {path}: {answer.status_code} {answer.text[:800]}"
        return answer.json()

    # --- clusters and jobs by plain HTTPS ------------------------------------------------------------------------

    def cluster(self, name):
        return self.get(f"{self.ws()}/computes/{name}")["properties"]["properties"]

    def make_cluster(self, name, low=0, high=2, idle="PT2S", size="STANDARD_DS3_V2", **more):
        return self.put(
            f"{self.ws()}/computes/{name}",
            {
                "location": "eastus",
                "properties": {
                    "computeType": "AmlCompute",
                    "properties": {"vmSize": size, "scaleSettings": {"minNodeCount": low, "maxNodeCount": high, "nodeIdleTimeBeforeScaleDown": idle}, **more},
                },
            },
        )

    def drop_cluster(self, name):
        answer = self.http("DELETE", f"{self.ws()}/computes/{name}?underlyingResourceAction=Delete")
        assert answer.status_code in (200, 202, 204), answer.text
        wait_until(lambda: self.http("GET", f"{self.ws()}/computes/{name}").status_code == 404, f"cluster {name} is gone", 60)

    def nodes(self, cluster, gone=False):
        return self.get(f"{self.nws()}/computes/{cluster}/nodes" + ("?gone=true" if gone else ""))["value"]

    def environment_id(self):
        """A registered environment, for jobs that are sent without an SDK."""
        path = f"{self.ws()}/environments/plain/versions/1"
        self.put(path, {"properties": {"image": "library/python:latest"}})
        return path

    def job_body(self, cluster, command, **properties):
        return {
            "properties": {
                "jobType": "Command",
                "experimentName": "black-box",
                "command": command,
                "environmentId": f"{self.ws()}/environments/plain/versions/1",
                "computeId": f"{self.ws()}/computes/{cluster}",
                "resources": {"instanceCount": 1, "properties": {}},
                **properties,
            }
        }

    def submit(self, cluster, command, name=None, **properties):
        self.environment_id()
        name = name or unique("job")
        self.put(f"{self.ws()}/jobs/{name}", self.job_body(cluster, command, **properties))
        return name

    def job(self, name):
        return self.get(f"{self.ws()}/jobs/{name}")["properties"]

    def status(self, name):
        return self.job(name)["status"]

    def wait_job(self, name, wanted=FINAL, seconds=60):
        wanted = {wanted} if isinstance(wanted, str) else wanted
        seen = {}

        def reached():
            seen["status"] = self.status(name)
            if seen["status"] in FINAL and seen["status"] not in wanted:
                raise AssertionError(f"job {name} ended as {seen['status']}: {self.job(name)}\nlog: {self.log(name)[-2000:]}")
            return seen["status"] if seen["status"] in wanted else None

        return wait_until(reached, f"job {name} is one of {sorted(wanted)}", seconds)

    def log(self, name):
        answer = self.http("GET", f"{self.nws()}/jobs/{name}/log?offset=0&follow=false")
        return answer.text if answer.status_code == 200 else f"({answer.status_code} {answer.text})"

    def explain(self, name):
        return self.get(f"{self.nws()}/jobs/{name}/explain")

    def details(self, name):
        return self.get(f"/history/v1.0{self.ws()}/runs/{name}/details")

    def output(self, job, output, file):
        """The bytes of one file of a named output, by the blob operations that the SDK uses; None when there is none."""
        store = self.get(f"{self.ws()}/datastores/workspaceblobstore")["properties"]
        secret = self.http("POST", f"{self.ws()}/datastores/workspaceblobstore/listSecrets", {"expirableSecret": True, "expireAfterHours": 1}).json()
        base = f"https://{store['accountName']}.blob.core.windows.net/{store['containerName']}/azureml/{job}/{output}/{file}"
        query, headers = "", {}
        if secret.get("sasToken"):
            query = "?" + secret["sasToken"].lstrip("?")
        else:
            headers = {"Authorization": f"Bearer {self.token()}"}
        answer = self.session.get(base + query, headers=headers, verify=self.vars["REQUESTS_CA_BUNDLE"], timeout=30)
        if answer.status_code == 404:
            return None
        assert answer.status_code in (200, 206), f"{base}: {answer.status_code} {answer.text[:300]}"
        return answer.content


def alive(pid):
    try:
        return state_of(pid) != "Z"
    except OSError:
        return False


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def ancestors(pid):
    seen = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            break
    return seen


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)
