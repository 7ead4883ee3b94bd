"""Services of jobs, reached through the server with the caller's rights: a port of the job's own, real ssh and scp, what is not there."""

import base64
import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess
from urllib.parse import urlsplit

import pytest
import requests
from azure.ai.ml import command
from azure.ai.ml.entities import Environment, JobService, SshJobService

from neapserver import BINARY, free_port, unique, wait_until

# What a user's own job might be: it answers requests, speaks WebSocket, and ends when it is told to.
PROGRAM = r"""
import base64, hashlib, json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body, status=200, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.websocket()
        if self.path == "/moved":
            return self.answer(b"", 302, [("Location", "/there"), ("Set-Cookie", "own=1; Path=/"), ("Set-Cookie", "neap-service=x; Path=/")])
        if self.path == "/large":
            return self.answer(b"x" * (8 << 20))
        if self.path == "/end":
            self.answer(b"bye")
            os._exit(0)
        self.answer(json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode())

    def do_POST(self):
        left, digest = int(self.headers["Content-Length"]), hashlib.sha256()
        while left:
            piece = self.rfile.read(min(left, 65536))
            left -= len(piece)
            digest.update(piece)
        self.answer(digest.hexdigest().encode())

    def websocket(self):
        accept = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        self.send_response(101)
        for name, value in [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", base64.b64encode(accept).decode())]:
            self.send_header(name, value)
        self.end_headers()
        while head := self.rfile.read(2):
            size, mask = head[1] & 127, self.rfile.read(4)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([0x81, len(text)]) + text)
            self.wfile.flush()
        self.close_connection = True

    def log_message(self, *words):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def serve(server, mark, work_cluster):
    """Submits a job that listens on a port, with further services beside it; it is canceled afterwards."""
    made = []

    def submit(services=None, line='python3 -c "$PROGRAM" $PORT', variables=None, own=True, compute=None, **properties):
        port = free_port()
        asked = dict(services or {})
        if own:
            asked["own"] = {"jobServiceType": "Custom", "port": port}
        name = server.submit(
            compute or work_cluster,
            line,
            services=asked,
            environmentVariables={"NEAP_TEST_MARK": mark, "PROGRAM": PROGRAM, "PORT": str(port), **(variables or {})},
            **properties,
        )
        made.append(name)
        return name

    yield submit
    for name in made:
        server.http("POST", f"{server.ws()}/jobs/{name}/cancel")


def services(server, name, node=0):
    return server.get(f"/history/v1.0{server.ws()}/runs/{name}/serviceinstances/{node}")["instances"]


def reach(server, name, service, status="Running", node=0, seconds=60):
    def there():
        found = services(server, name, node)[service]
        assert status == "Failed" or found["status"] != "Failed", found
        return found if found["status"] == status else None

    return wait_until(there, f"service {service} of {name} is {status}", seconds)


def fetch(server, url, method="GET", token=True, **kwargs):
    headers = kwargs.pop("headers", {})
    if token:
        headers = {"Authorization": f"Bearer {server.token()}", **headers}
    kwargs.setdefault("allow_redirects", False)
    return requests.request(method, url, headers=headers, verify=server.vars["REQUESTS_CA_BUNDLE"], timeout=30, **kwargs)


def dial(server, url, headers):
    """A bare connection, for what `requests` has no words for; the head of the answer is read."""
    at = urlsplit(url)
    context = ssl.create_default_context(cafile=server.vars["REQUESTS_CA_BUNDLE"])
    context.set_alpn_protocols(["http/1.1"])
    stream = context.wrap_socket(socket.create_connection((at.hostname, at.port), 20), server_hostname=at.hostname)
    lines = [f"GET {at.path} HTTP/1.1", f"Host: {at.netloc}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    stream.sendall("\r\n".join(lines).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        piece = stream.recv(1)
        assert piece, f"the connection ended: {head!r}"
        head += piece
    return stream, head.decode()


def websocket(server, url, **headers):
    key = base64.b64encode(os.urandom(16)).decode()
    stream, head = dial(
        server,
        url,
        {
            "Authorization": f"Bearer {server.token()}",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
            **headers,
        },
    )
    assert head.startswith("HTTP/1.1 101"), head
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    assert accept in head
    return stream


def test_a_port_of_the_jobs_own_is_reached_and_gone_with_the_job(server, serve, ml):
    name = serve()
    url = reach(server, name, "own")["endpoint"]
    told = ml.jobs.show_services(name)["own"]
    assert (told.type, told.status, told.endpoint, told.error) == ("Custom", "Running", url, None)
    assert told.port > 0
    shown = server.job(name)["services"]["own"]
    assert (shown["endpoint"], shown["status"]) == (url, "Running")

    # Nobody without a token, and no such thing as a token in the address.
    assert fetch(server, url, token=False).status_code == 401
    assert fetch(server, url, token=False, headers={"Authorization": "Bearer x.y.z"}).status_code == 401
    assert fetch(server, f"{url}?access_token={server.token()}", token=False).status_code == 401
    assert fetch(server, url.replace("/own/", "/other/")).status_code == 404

    # What the service sees: its own paths, and nothing of what opened the door.
    seen = fetch(server, f"{url}a%2Fb//c?x=1&y=%20", headers={"Cookie": "mine=2", "X-Mine": "3"}).json()
    assert seen["path"] == "/a%2Fb//c?x=1&y=%20"
    assert "authorization" not in seen["headers"]
    assert (seen["headers"]["cookie"], seen["headers"]["x-mine"]) == ("mine=2", "3")
    assert seen["headers"]["x-forwarded-prefix"] == urlsplit(url).path.rstrip("/")
    moved = fetch(server, f"{url}moved")
    assert (moved.status_code, moved.headers["Location"]) == (302, f"{urlsplit(url).path}there")
    assert moved.headers["Set-Cookie"] == f"own=1; Path={urlsplit(url).path}"
    assert fetch(server, url.rstrip("/")).headers["Location"] == urlsplit(url).path

    # Bodies both ways.
    body = os.urandom(5 << 20)
    assert fetch(server, url, "POST", data=body).text == hashlib.sha256(body).hexdigest()
    assert len(fetch(server, f"{url}large").content) == 8 << 20

    # A WebSocket lives as long as the job does, and so does the address.
    stream = websocket(server, url)
    for word in (b"hello", b"again"):
        stream.sendall(bytes([0x81, 0x80 | len(word)]) + b"\0\0\0\0" + word)
        assert stream.recv(64) == bytes([0x81, len(word)]) + word
    server.http("POST", f"{server.ws()}/jobs/{name}/cancel")
    stream.settimeout(30)
    try:
        assert stream.recv(64) == b""
    except (ConnectionResetError, ssl.SSLEOFError):
        pass
    server.wait_job(name, "Canceled")
    gone = fetch(server, url)
    assert (gone.status_code, gone.json()["error"]["code"]) == (503, "ServiceNotReachable")
    assert services(server, name)["own"] == {"type": "Custom", "port": told.port, "status": "Stopped", "error": None, "endpoint": None, "properties": {}}


def test_a_browser_comes_by_a_link_that_works_once(server, serve):
    name = serve()
    url = reach(server, name, "own")["endpoint"]
    link = server.cli("job", "open-service", "-n", name, "-s", "own", "-o", "tsv").stdout.strip()
    assert link.startswith(f"{url}?") and server.token() not in link
    first = fetch(server, link, token=False)
    assert (first.status_code, first.headers["Location"]) == (303, urlsplit(url).path)
    cookie = first.headers["Set-Cookie"]
    assert all(word in cookie for word in ("HttpOnly", "Secure", "SameSite=Lax", f"Path={urlsplit(url).path}"))
    again = fetch(server, link, token=False)
    assert (again.status_code, "Set-Cookie" in again.headers) == (403, False)

    shown = {"Cookie": cookie.split(";")[0]}
    seen = fetch(server, url, token=False, headers=shown)
    assert seen.status_code == 200 and "cookie" not in seen.json()["headers"]
    # Its own words for the service pass.
    basic = {**shown, "Authorization": "Basic bWU6cHc="}
    assert fetch(server, url, token=False, headers=basic).json()["headers"]["authorization"] == "Basic bWU6cHc="
    # Not for another service, not from another site's page, not changed.
    other = serve()
    elsewhere = reach(server, other, "own")["endpoint"]
    assert fetch(server, elsewhere, token=False, headers=shown).status_code == 403
    assert fetch(server, url, token=False, headers={**shown, "Origin": "https://127.0.0.1:1"}).status_code == 403
    assert fetch(server, url, token=False, headers={"Cookie": shown["Cookie"] + "x"}).status_code == 403


def test_a_program_that_is_not_there_is_named_and_the_job_goes_on(server, serve):
    name = serve(
        {
            "board": {"jobServiceType": "TensorBoard", "properties": {"logDir": "./logs"}},
            "lab": {"jobServiceType": "JupyterLab"},
            "code": {"jobServiceType": "VSCode"},
        },
        # Nothing of the host's further programs.
        line="PATH=/usr/bin:/bin; python3 -c \"$PROGRAM\" $PORT",
        variables={"PATH": "/usr/bin:/bin"},
    )
    for service, word in {"board": "'tensorboard'", "lab": "'jupyter-lab'", "code": "'code-server'"}.items():
        if shutil.which(word.strip("'"), path="/usr/bin:/bin"):
            continue
        failed = reach(server, name, service, "Failed")
        assert word in failed["error"]["error"]["message"], failed
        assert failed["endpoint"] is None
        assert word in server.job(name)["services"][service]["errorMessage"]
    shown = server.json("job", "show-services", "-n", name)
    assert shown["own"]["status"] in ("Starting", "Running") and "environment" in shown["board"]["error"]
    url = reach(server, name, "own")["endpoint"]
    answer = fetch(server, url.replace("/own/", "/board/"))
    assert answer.status_code == 503 and "'tensorboard'" in answer.json()["error"]["message"]
    assert fetch(server, f"{url}end").text == "bye"
    server.wait_job(name, "Completed")


def test_the_exit_of_the_command_is_what_it_was(server, serve):
    for line, expect in {"exit 7": "7", "kill -9 $$": "signal 9"}.items():
        name = serve({"lab": {"jobServiceType": "JupyterLab"}}, line=line)
        server.wait_job(name, "Failed")
        assert expect in json.dumps(server.job(name)["error"]), server.job(name)["error"]


def test_what_cannot_be_is_refused_with_everything_at_once(server, work_cluster):
    server.environment_id()
    body = server.job_body(
        work_cluster,
        "true",
        services={
            "a b": {"jobServiceType": "JupyterLab"},
            "odd": {"jobServiceType": "Telnet"},
            "shell": {"jobServiceType": "SSH", "properties": {"sshPublicKeys": "not a key"}},
            "own": {"jobServiceType": "Custom"},
            "far": {"jobServiceType": "VSCode", "nodes": {"nodesValueType": "Custom", "nodeIndex": 3}},
        },
    )
    name = unique("no")
    refused = server.http("PUT", f"{server.ws()}/jobs/{name}", body)
    assert refused.status_code == 400
    for word in ("'a b'", "'Telnet'", "not a public key", "needs the 'port'", "node 3"):
        assert word in refused.text, (word, refused.text)
    assert server.http("GET", f"{server.ws()}/jobs/{name}").status_code == 404


def test_through_the_sdk(server, ml, mark, work_cluster):
    port = free_port()
    job = command(
        command='python3 -c "$PROGRAM" $PORT',
        compute=work_cluster,
        name=unique("sdk"),
        environment=Environment(image="library/python:latest"),
        environment_variables={"NEAP_TEST_MARK": mark, "PROGRAM": PROGRAM, "PORT": str(port)},
        services={"own": JobService(type="custom", port=port)} if "custom" in _types() else None,
    )
    if job.services is None:
        pytest.skip("this SDK has no custom services")
    made = ml.jobs.create_or_update(job)
    url = reach(server, made.name, "own")["endpoint"]
    assert ml.jobs.get(made.name).services["own"].endpoint == url
    # What is shown can be sent again.
    shown = ml.jobs.get(made.name)
    shown.tags = {"seen": "yes"}
    assert ml.jobs.create_or_update(shown).tags == {"seen": "yes"}
    assert fetch(server, f"{url}end").text == "bye"
    server.wait_job(made.name, "Completed")
    assert ml.jobs.show_services(made.name)["own"].status == "Stopped"


def _types():
    from azure.ai.ml.constants._job.job import JobServiceTypeNames

    return JobServiceTypeNames.ENTITY_TO_REST


# --- ssh ----------------------------------------------------------------------------------------------------------


def has_sshd():
    return shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin:/sbin")


needs_ssh = pytest.mark.skipif(not (has_sshd() and shutil.which("ssh")), reason="openssh-server and openssh-client are not installed")


@pytest.fixture
def keys(tmp_path):
    """A key that is let in, and one that is not."""
    for name in ("good", "bad"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", tmp_path / name], check=True)
    return tmp_path / "good", tmp_path / "bad"


@needs_ssh
def test_ssh_and_scp_into_a_running_job(server, serve, keys, tmp_path):
    good, bad = keys
    public = good.with_suffix(".pub").read_text()
    name = serve({"shell": {"jobServiceType": "SSH", "properties": {"sshPublicKeys": public}}}, variables={"GREETING": "it's me"})
    told = reach(server, name, "shell")
    assert told["properties"]["user"] and told["properties"]["hostKey"].startswith("ssh-ed25519 ")

    def run(key, *words, check=True):
        return server.cli("job", "connect-ssh", "-n", name, "--private-key-file-path", key, "--", *words, check=check)

    said = run(good, 'echo "$AZUREML_RUN_ID $GREETING"; pwd; test -d logs && echo here').stdout.splitlines()
    assert said[0] == f"{name} it's me"
    assert said[1].endswith("/exe/wd") and said[2] == "here", "a session is in the job's folder"
    assert run(good, "exit 5", check=False).returncode == 5
    assert run(good, "cat", check=False).returncode == 0, "the end of stdin arrives"
    denied = run(bad, "true", check=False)
    assert denied.returncode == 255 and "Permission denied" in denied.stderr

    # Real scp, both ways, with the documented ProxyCommand.
    (tmp_path / "there").write_bytes(os.urandom(3 << 20))
    proxy = f"{BINARY} job tunnel -n {name} -s shell"
    options = ["-q", "-i", good, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", f"ProxyCommand={proxy}"]
    host = f"{told['properties']['user']}@{name}"
    at = said[1]
    for source, target in [(tmp_path / "there", f"{host}:{at}/copied"), (f"{host}:{at}/copied", tmp_path / "back")]:
        subprocess.run(["scp", *map(str, options), str(source), str(target)], check=True, env=server.environment(), timeout=60, stdin=subprocess.DEVNULL)
    assert (tmp_path / "back").read_bytes() == (tmp_path / "there").read_bytes()

    # It is no web page, and it is nobody's without a token.
    assert fetch(server, told["endpoint"]).status_code == 400
    _, head = dial(server, told["endpoint"], {"Connection": "Upgrade", "Upgrade": "neap-stream"})
    assert head.startswith("HTTP/1.1 401"), head

    # A session ends with the job.
    session = subprocess.Popen(
        [BINARY, "job", "connect-ssh", "-n", name, "-f", good, "--", "echo on; sleep 600"],
        env=server.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )
    assert session.stdout.readline() == b"on\n"
    server.http("POST", f"{server.ws()}/jobs/{name}/cancel")
    assert session.wait(30) != 0
    server.wait_job(name, "Canceled")
    after = run(good, "true", check=False)
    assert after.returncode != 0 and "Stopped" in after.stderr, after.stderr


@needs_ssh
def test_every_node_has_its_own(server, serve, keys, cluster):
    public = keys[0].with_suffix(".pub").read_text()
    name = serve(
        {
            "all": {"jobServiceType": "SSH", "nodes": {"nodesValueType": "All"}, "properties": {"sshPublicKeys": public}},
            "second": {"jobServiceType": "SSH", "nodes": {"nodesValueType": "Custom", "nodeIndex": 1}, "properties": {"sshPublicKeys": public}},
        },
        line="sleep 600",
        own=False,
        compute=cluster(high=2),
        resources={"instanceCount": 2},
    )
    for node in (0, 1):
        reach(server, name, "all", node=node)
        said = server.cli("job", "connect-ssh", "-n", name, "-i", node, "-s", "all", "-f", keys[0], "--", "echo $NODE_RANK").stdout
        assert said == f"{node}\n"
    assert (set(services(server, name, 0)), set(services(server, name, 1))) == ({"all"}, {"all", "second"})


# --- the tools themselves, where they are installed ------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("tensorboard"), reason="tensorboard is not installed")
def test_tensorboard(server, serve):
    name = serve({"board": {"jobServiceType": "TensorBoard", "properties": {"logDir": "./logs"}}}, line="sleep 600", own=False)
    url = reach(server, name, "board", seconds=120)["endpoint"]
    page = fetch(server, url)
    assert page.status_code == 200 and "TensorBoard" in page.text
    assert fetch(server, f"{url}data/runs").json() == []


@pytest.mark.skipif(not shutil.which("jupyter-lab"), reason="jupyterlab is not installed")
def test_jupyter_lab(server, serve):
    name = serve({"lab": {"jobServiceType": "JupyterLab"}}, line="sleep 600", own=False)
    url = reach(server, name, "lab", seconds=120)["endpoint"]
    page = fetch(server, f"{url}lab")
    assert page.status_code == 200 and "JupyterLab" in page.text
    folders = {entry["name"] for entry in fetch(server, f"{url}api/contents").json()["content"]}
    assert {"outputs", "logs"} <= folders
