"""A secret leaks through what the service keeps or shows.

The attacker reads what lies around: a backup of the data folder, a log, `ps`, the answers of the API, a trace collector. They look for
the value of a secret that a job uses. What stops them: values are encrypted with a key of the installation before they reach the
ledger (crates/ledger/src/seal.rs, crates/identity/src/vault.rs); the API has no way to read one; only the order to the agent carries
one in the clear; the supervisor masks it before the first byte of the log is written (crates/sandbox/src/mask.rs).
"""

import base64
import http.server
import os
import secrets
import threading
import urllib.parse
from pathlib import Path

import pytest

from aftermath import assert_replays, assert_serving, reason_of
from neapserver import Server, new_home, remove, unique, wait_until

# Two of them: one is a secret of the workspace, one a variable that somebody wrote into a job as it is. '/' and '+' so that encodings differ.
SECRET = f"cAn/{secrets.token_hex(12)}+x"
PLAIN = f"pLain/{secrets.token_hex(12)}+x"
OLD = f"oLd/{secrets.token_hex(12)}+x"
STORED = f"stOred/{secrets.token_hex(12)}+x"


class Collector(http.server.BaseHTTPRequestHandler):
    seen = []

    def do_POST(self):
        Collector.seen.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def world(mark):
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    server = Server(new_home("canary"))
    server.up(env={"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"})
    server.the_cluster = unique("canary")
    server.make_cluster(server.the_cluster, 0, 1, "PT1M")
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.assert_nothing_left(mark)
    collector.shutdown()
    remove(server.home)


def forms(value):
    """What a value looks like as it is, in JSON, in a URL and in base64."""
    raw = value.encode()
    return [raw, value.replace("/", "\\/").encode(), urllib.parse.quote(value, safe="").encode(), base64.b64encode(raw).rstrip(b"=")[:-1]]


def places_with(server, value):
    found = []
    for path in server.home.rglob("*"):
        if path.is_file() and not path.is_symlink():
            try:
                raw = path.read_bytes()
            except OSError:
                continue
            if any(form in raw for form in forms(value)):
                found.append(str(path.relative_to(server.home)))
    return found


def processes_with(value, but):
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if any(form in line for form in forms(value)) or (but not in environ and any(form in environ for form in forms(value))):
            found.append((entry.name, line.replace(b"\0", b" ").decode(errors="replace")))
    return found


PRINTS = """
printf 'plain: %s\\n' "$TOKEN"
printf 'in pieces: '; printf %s "$TOKEN" | while IFS= read -r -n1 c; do printf %s "$c"; sleep 0.005; done; echo
printf 'encoded: %s\\n' "$(printf 'user:%s' "$TOKEN" | base64 -w0)"
printf 'url: %s\\n' "$(python3 -c 'import os, urllib.parse; print(urllib.parse.quote(os.environ["TOKEN"], safe=""))')"
printf 'length: %s, header %s\\n' "${#TOKEN}" "${#HEADER}"
echo printed
while [ "$SECONDS" -lt 3 ]; do sleep 0.05; done
"""


def test_a_secret_is_nowhere_in_the_clear(world):
    server = world
    created = server.cli("secret", "create", "-n", "canary", "--value-stdin", "-o", "json", text=OLD + "\n")
    created = [created, server.cli("secret", "create", "-n", "canary", "--value-stdin", "-o", "json", text=SECRET + "\n")]
    job = server.submit(server.the_cluster, PRINTS, environmentVariables={"TOKEN": "${{secrets.canary}}", "HEADER": "Bearer ${{secrets.canary}}", "ALSO": PLAIN})
    wait_until(lambda: "printed\n" in server.log(job), f"{job} has printed", 60)

    # While it runs.
    run = f"AZUREML_RUN_ID={job}".encode()
    assert processes_with(SECRET, run) == []
    assert places_with(server, SECRET) == []
    for pid in [server.pid, *[pid for pid, _ in server.agents()]]:
        core = next(line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max core file size"))
        assert core.split()[4:6] == ["1", "1"], core

    # The job got it, and its log does not show it.
    server.wait_job(job, "Completed")
    log = server.log(job)
    assert not any(form.decode() in log for form in forms(SECRET)), log
    assert "plain: ***\n" in log and "in pieces: ***\n" in log and "url: ***\n" in log and "encoded: " in log
    assert f"length: {len(SECRET)}, header {len(SECRET) + 7}" in log

    # Every answer that has to do with either.
    answers = [done.stdout + done.stderr for done in created]
    answers += [server.cli("secret", *words, "-o", "json").stdout for words in (["list"], ["show", "-n", "canary"])]
    answers += [server.http("GET", f"{server.nws()}/secrets/canary").text, server.http("GET", f"{server.nws()}/secrets").text]
    shown = server.cli("job", "show", "-n", job, "-o", "json").stdout
    answers += [shown, server.http("GET", f"{server.ws()}/jobs/{job}").text, str(server.explain(job)), str(server.details(job))]
    answers += [server.http("GET", f"{server.nws()}/jobs/{job}/provenance").text, server.http("GET", "/metrics").text]
    refused = server.http("PUT", f"{server.nws()}/secrets/canary", {"value": SECRET, "extra": SECRET + "\0"})
    assert refused.status_code == 400
    answers.append(refused.text)
    for answer in answers:
        assert not any(form.decode() in answer for value in (SECRET, OLD) for form in forms(value)), answer
    # A variable that its owner wrote is the owner's to read, as Azure answers it.
    assert "${{secrets.canary}}" in shown and PLAIN in shown

    # Nothing of either in the data folder; nothing of the value that was replaced.
    for value in (SECRET, OLD, PLAIN):
        assert places_with(server, value) == []
    assert not any(form in body for body in Collector.seen for value in (SECRET, PLAIN) for form in forms(value))
    assert_serving(server, server.the_cluster)


COMMAND = """
environment: {image: library/python:latest}
compute: azureml:CLUSTER
"""
YAMLS = {
    "command": "type: command\ncommand: printf '%s' $TOKEN\n" + COMMAND + "environment_variables: VARIABLES\n",
    "pipeline": (
        "type: pipeline\nsettings: {default_compute: azureml:CLUSTER}\njobs:\n  step:\n    type: command\n"
        "    command: printf '%s' $TOKEN\n    environment: {image: library/python:latest}\n    environment_variables: VARIABLES\n"
    ),
    "sweep": (
        "type: sweep\nsampling_algorithm: grid\nsearch_space: {x: {type: choice, values: [1]}}\nobjective: {goal: maximize, primary_metric: m}\n"
        "limits: {max_total_trials: 1}\ncompute: azureml:CLUSTER\ntrial:\n  command: printf '%s' $TOKEN ${{search_space.x}}\n"
        "  environment: {image: library/python:latest}\n  environment_variables: VARIABLES\n"
    ),
}


def test_variables_of_jobs_are_encrypted_in_the_ledger(world, tmp_path):
    """The same for a single job, a pipeline's step and a sweep's trial, and for the schedule that makes jobs."""
    server = world
    before = {}
    for kind, text in YAMLS.items():
        value = f"{kind}/{secrets.token_hex(12)}+x"
        file = tmp_path / f"{kind}.yml"
        file.write_text(text.replace("VARIABLES", f"{{TOKEN: '{value}'}}").replace("CLUSTER", server.the_cluster))
        before[kind] = (file, value, server.json("job", "create", "-f", file)["name"])
    file, value, _ = before["pipeline"]
    schedule = tmp_path / "schedule.yml"
    schedule.write_text(f"name: nightly\ntrigger: {{type: cron, expression: '0 3 * * *'}}\ncreate_job: {file}\n")
    server.cli("schedule", "create", "-f", schedule)
    for kind, (_, value, name) in before.items():
        server.wait_job(name, {"Completed", "Failed"})
        if kind == "command":
            assert value in server.cli("job", "show", "-n", name, "-o", "json").stdout, "its owner reads it, as in Azure"
        # A job's log is not the ledger: what it prints of a variable is its own affair.
        kept = [place for place in places_with(server, value) if place.startswith(("ledger/", "logs/", "tracking", "parallel"))]
        assert kept == [], kind


@pytest.mark.parametrize("kind", YAMLS)
def test_each_kind_of_job_can_name_a_secret(world, tmp_path, kind):
    server = world
    value = f"{kind}/{secrets.token_hex(12)}+x"
    server.cli("secret", "create", "-n", f"of_{kind}", "--value-stdin", text=value)
    file = tmp_path / f"{kind}.yml"
    file.write_text(YAMLS[kind].replace("VARIABLES", "{TOKEN: '${{secrets.of_" + kind + "}}'}").replace("CLUSTER", server.the_cluster))
    name = server.json("job", "create", "-f", file)["name"]
    server.wait_job(name, {"Completed", "Failed"})
    inner = [name, *[child["name"] for child in server.json("job", "list", "--parent-job-name", name)]] if kind != "command" else [name]
    assert any("***" in server.log(job) for job in inner), [server.log(job) for job in inner]
    assert places_with(server, value) == []


def test_a_secret_that_is_not_there_is_refused_by_name(world):
    server = world
    server.environment_id()
    body = server.job_body(server.the_cluster, "true", environmentVariables={"A": "${{secrets.nowhere}}", "B": "${{secrets.}}"})
    refused = server.http("PUT", f"{server.ws()}/jobs/{unique('no')}", body)
    assert refused.status_code == 400
    text = refused.text
    assert "SecretNotFound" in text and "'A' refers to the secret 'nowhere'" in text and "'B': '' cannot name a secret" in text


def test_a_secret_deleted_too_early_ends_its_job_with_the_reason(world):
    server = world
    cluster = unique("later")
    server.make_cluster(cluster, 0, 1, "PT1M")
    server.put(f"{server.nws()}/secrets/brief", {"value": "brief-value"})
    first = server.submit(cluster, "while [ ! -e go ]; do sleep 0.05; [ $SECONDS -gt 30 ] && exit 1; done")
    server.wait_job(first, {"Running"})
    second = server.submit(cluster, "echo never", environmentVariables={"A": "${{secrets.brief}}"})
    server.cli("secret", "delete", "-n", "brief")
    server.cli("job", "cancel", "-n", first)
    status, words = reason_of(server, second)
    assert status == "Failed" and "the secret 'brief' does not exist" in words, words
    assert server.http("GET", f"{server.nws()}/secrets/brief").status_code == 404


def test_credentials_of_a_datastore_may_name_a_secret(world):
    server = world
    server.put(f"{server.nws()}/secrets/stored", {"value": STORED})
    path = f"{server.ws()}/datastores/remote"
    body = {"properties": {"datastoreType": "AzureBlob", "accountName": "acct", "containerName": "c", "credentials": {"credentialsType": "AccountKey", "secrets": {"secretsType": "AccountKey", "key": "${{secrets.stored}}"}}}}
    server.put(path, body)
    listed = server.http("POST", f"{path}/listSecrets", {}).json()
    assert listed["key"] == "${{secrets.stored}}", "listSecrets answers what was written, not the value"
    assert places_with(server, STORED) == []
    body["properties"]["credentials"]["secrets"]["key"] = "${{secrets.nowhere}}"
    refused = server.http("PUT", path, body)
    assert refused.status_code == 400 and "SecretNotFound" in refused.text and "'nowhere'" in refused.text


def test_a_jobs_token_reads_no_secret(world):
    server = world
    script = (
        "python3 - <<'END'\n"
        "import os, ssl, urllib.request, urllib.error\n"
        f"url = {server.url!r} + {server.nws()!r} + '/secrets/canary'\n"
        "request = urllib.request.Request(url, headers={'Authorization': 'Bearer ' + os.environ['MLFLOW_TRACKING_TOKEN']})\n"
        "try:\n"
        "    print('answered', urllib.request.urlopen(request, context=ssl._create_unverified_context()).status)\n"
        "except urllib.error.HTTPError as e:\n"
        "    print('refused', e.code)\n"
        "except OSError as e:\n"
        "    print('refused', e)\n"
        "END\n"
    )
    job = server.submit(server.the_cluster, script)
    server.wait_job(job, "Completed")
    assert "refused" in server.log(job) and "answered" not in server.log(job)


def test_the_ledger_is_whole_and_its_key_matters(world):
    server = world
    assert_replays(server)
    key = server.home / "identity" / "vault.key"
    kept = key.read_bytes()
    key.unlink()
    try:
        told = server.cli("verify", "--replay", check=False)
        assert told.returncode == 0 and "identity/vault.key" in told.stderr, told.stdout + told.stderr
        key.write_bytes(bytes(32))
        assert server.cli("verify", check=False).returncode == 1
        started = server.up(check=False)
        assert started.returncode != 0 and "vault.key" in started.stdout + started.stderr, started.stdout + started.stderr
    finally:
        key.write_bytes(kept)
