"""What the suites of refusals share: one wish, by REST and by the command line, and both say the same."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import requests

from neapserver import API

CONFIG = """
locations: [eastus, westus]
outgoing: {allow: [127.0.0.1]}
teams: {vision: [ann, bob]}
sizes:
  - {name: Rack, family: rack, cores: 1, memory_gb: 1, price: 1, locations: [westus]}
"""


def by_rest(server, ask, code, *texts, status=400, headers=None):
    """`ask` is the method, the path and, where there is one, the body. A path that begins with no '/' is below Neap's own workspace."""
    method, path, *body = ask
    path = path if path.startswith("/") else f"{server.nws()}/{path}"
    answer = server.http(method, path, *body, **({"headers": headers} if headers else {}))
    assert answer.content, f"{method} {path}: {answer.status_code} without a word"
    error = answer.json().get("error", {})
    assert (answer.status_code, error.get("code")) == (status, code), f"{method} {path}: {answer.status_code} {answer.text}"
    for text in texts:
        assert text in error["message"], f"{method} {path}: {text}\n{answer.text}"
    return error


def by_cli(server, words, *texts, exit=1):
    done = server.cli(*words, check=False)
    assert done.returncode == exit, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    for text in texts:
        assert text in done.stderr, f"{words}: {text}\n{done.stderr}"
    return done.stderr


def refused(server, ask, words, code, *texts, status=400, exit=None):
    """Both refuse it with the same words, whole, and name the code. What is not there ends the command line with 3, all else with 1."""
    by_rest(server, ask, code, *texts, status=status)
    by_cli(server, words, f"({code})", *texts, exit=exit or (3 if status == 404 else 1))


def cluster_body(size="STANDARD_DS3_V2", location="eastus", low=0, high=1, idle="PT2S", **inner):
    scale = {"minNodeCount": low, "maxNodeCount": high, "nodeIdleTimeBeforeScaleDown": idle}
    return {"location": location, "properties": {"computeType": "AmlCompute", "properties": {"vmSize": size, "scaleSettings": scale, **inner}}}


def job_file(folder, cluster, **more):
    """A job as the command line reads it; JSON is YAML."""
    path = folder / "job.yml"
    path.write_text(json.dumps({"command": "true", "compute": f"azureml:{cluster}", "environment": "azureml:plain:1", **more}))
    return path


def fill(server, asks):
    """Sends them all, eight at a time; each is taken."""
    mine = threading.local()

    def send(ask):
        method, path, body = ask
        if not hasattr(mine, "session"):
            mine.session = requests.Session()
        answer = mine.session.request(method, f"{server.url}{path}{'&' if '?' in path else '?'}{API}", json=body, headers={"Authorization": f"Bearer {server.token()}"}, verify=server.vars["REQUESTS_CA_BUNDLE"], timeout=60)
        assert answer.status_code in (200, 201), f"{method} {path}: {answer.status_code} {answer.text}"

    server.token()
    with ThreadPoolExecutor(8) as senders:
        for _ in senders.map(send, asks):
            pass
