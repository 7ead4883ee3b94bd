"""What must never be readable: passwords, the identity secret, tokens and signatures; and who is let in."""

import base64
import json
import re
import sqlite3
import stat

import pytest
import requests

from neapserver import Server, new_home, remove, unique

PASSWORD = "Zx-secret-Password-4711"
JWT = re.compile(rb"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}")
SIGNATURE = re.compile(rb"sig=(?!REDACTED|<|\*|\.\.\.)[\w%+/=-]{12,}")


@pytest.fixture(scope="module")
def lived_in(mark):
    """A server that has seen a password, a job, a download of secrets and a wrong visitor."""
    server = Server(new_home("secret"))
    server.up()
    name = unique("sec")
    server.make_cluster(name, 0, 1, "PT30S", userAccountCredentials={"adminUserName": "azureuser", "adminUserPassword": PASSWORD, "adminUserSshPublicKey": "ssh-rsa AAAA"})
    server.put(f"{server.ws()}/computes/{name}", server.get(f"{server.ws()}/computes/{name}"))
    job = server.submit(name, "env | sort; echo done > ${{outputs.o}}/x", outputs={"o": {"jobOutputType": "uri_folder"}}, environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, "Completed")
    server.details(job)
    assert server.output(job, "o", "x") == b"done\n"
    requests.get(server.vars["IDENTITY_ENDPOINT"], params={"resource": "x"}, headers={"X-IDENTITY-HEADER": "wrong-guess-123456"}, verify=server.vars["REQUESTS_CA_BUNDLE"])
    server.cli("compute", "list")
    server.the_job, server.the_cluster = job, name
    yield server
    server.down()
    server.assert_nothing_left(mark)
    remove(server.home)


def files(server, *but):
    for path in sorted(server.home.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.relative_to(server.home).parts[0] not in but:
            try:
                yield path, path.read_bytes()
            except OSError:
                continue


def test_the_password_is_nowhere(lived_in):
    needles = [PASSWORD.encode(), base64.b64encode(PASSWORD.encode()).rstrip(b"=")]
    for path, raw in files(lived_in):
        assert not any(n in raw for n in needles), f"the SSH password is in {path.relative_to(lived_in.home)}"
    assert PASSWORD not in lived_in.http("GET", f"{lived_in.ws()}/computes").text
    assert PASSWORD not in lived_in.cli("compute", "show", "-n", lived_in.the_cluster).stdout


def test_the_identity_secret_is_only_where_the_owner_keeps_it(lived_in):
    secret = lived_in.vars["IDENTITY_HEADER"].encode()
    allowed = {"client.json", "identity/secret"}
    for path, raw in files(lived_in):
        assert secret not in raw or str(path.relative_to(lived_in.home)) in allowed, path


def test_logs_hold_no_tokens_and_no_signatures(lived_in):
    token = lived_in.token().encode()
    for path, raw in files(lived_in, "identity"):
        if path.suffix == ".log" or "log" in path.parent.name:
            assert token not in raw and not JWT.search(raw), f"a token is in {path}"
            assert not SIGNATURE.search(raw), f"a signature is in {path}: {SIGNATURE.search(raw).group()[:40]!r}"


def test_the_ledger_holds_no_secret(lived_in):
    needles = [PASSWORD.encode(), lived_in.vars["IDENTITY_HEADER"].encode(), lived_in.token().encode()]
    db = sqlite3.connect(f"file:{lived_in.home}/ledger/neap.db?mode=ro", uri=True)
    for (table,) in db.execute("select name from sqlite_master where type='table'").fetchall():
        for row in db.execute(f'select * from "{table}"'):
            raw = b"\0".join(v if isinstance(v, bytes) else str(v).encode() for v in row)
            assert not any(n in raw for n in needles), f"a secret is in table {table}"
            assert not JWT.search(raw), f"a token is in table {table}"
    db.close()


def test_command_lines_show_no_secret(lived_in):
    secret = lived_in.vars["IDENTITY_HEADER"]
    for pid, line in lived_in.processes():
        assert secret not in line and PASSWORD not in line and not JWT.search(line.encode()), (pid, line)


def test_the_job_cannot_see_the_owners_secret(lived_in):
    log = lived_in.log(lived_in.the_job)
    assert lived_in.vars["IDENTITY_HEADER"] not in log and "NEAP_TEST_MARK" in log


def test_modes(lived_in):
    assert stat.S_IMODE(lived_in.home.stat().st_mode) & 0o077 == 0
    for name in ("client.json", "server.json"):
        assert stat.S_IMODE((lived_in.home / name).stat().st_mode) == 0o600, name
    private = [p for p in (lived_in.home / "identity").iterdir() if p.suffix == ".key" or p.name == "secret"]
    assert len(private) >= 3
    for path in private:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize("headers", [{}, {"X-IDENTITY-HEADER": "wrong"}, {"X-IDENTITY-HEADER": ""}, {"secret": "wrong"}], ids=["none", "wrong", "empty", "other-wrong"])
def test_the_token_endpoint_wants_the_secret(lived_in, headers):
    answer = requests.get(lived_in.vars["IDENTITY_ENDPOINT"], params={"api-version": "2019-08-01", "resource": "x"}, headers=headers, verify=lived_in.vars["REQUESTS_CA_BUNDLE"])
    assert answer.status_code == 401 and "access_token" not in answer.text


def test_tokens_are_short_lived_and_say_for_whom(lived_in):
    body = requests.get(
        lived_in.vars["IDENTITY_ENDPOINT"], params={"api-version": "2019-08-01", "resource": "https://ml.azure.local"},
        headers={"X-IDENTITY-HEADER": lived_in.vars["IDENTITY_HEADER"]}, verify=lived_in.vars["REQUESTS_CA_BUNDLE"],
    ).json()
    claims = json.loads(base64.urlsafe_b64decode(body["access_token"].split(".")[1] + "=="))
    assert claims["aud"] == "https://ml.azure.local"
    assert claims["tid"], "az login --identity takes the tenant from it"
    assert 0 < claims["exp"] - claims["iat"] <= 3600
    assert isinstance(body["expires_on"], str)


FORGED = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode() + ".eyJhdWQiOiJ4IiwiZXhwIjo0MDAwMDAwMDAwfQ.c2ln"


@pytest.mark.parametrize("bearer", [None, "Bearer rubbish", f"Bearer {FORGED}", "Basic dTpw"], ids=["none", "rubbish", "alg-none", "basic"])
def test_every_plane_wants_a_token(lived_in, bearer):
    server = lived_in
    paths = [
        ("GET", server.ws()),
        ("GET", f"{server.ws()}/computes"),
        ("PUT", f"{server.ws()}/computes/intruder"),
        ("GET", f"{server.ws()}/jobs/{server.the_job}"),
        ("POST", f"{server.ws()}/datastores/workspaceblobstore/listSecrets"),
        ("GET", f"/history/v1.0{server.ws()}/runs/{server.the_job}/details"),
        ("GET", "/subscriptions"),
        ("GET", "/neap/v1/status"),
        ("POST", "/neap/v1/shutdown"),
        ("GET", f"{server.nws()}/jobs/{server.the_job}/log"),
    ]
    for method, path in paths:
        answer = requests.request(method, f"{server.url}{path}?api-version=2023-04-01", headers={"Authorization": bearer} if bearer else {}, json={} if method != "GET" else None, verify=server.vars["REQUESTS_CA_BUNDLE"])
        assert answer.status_code == 401, (method, path, answer.status_code, answer.text[:200])


def test_blobs_want_a_signature(lived_in):
    store = lived_in.get(f"{lived_in.ws()}/datastores/workspaceblobstore")["properties"]
    url = f"https://{store['accountName']}.blob.core.windows.net/{store['containerName']}/azureml/{lived_in.the_job}/o/x"
    for query in ("", "?sv=2024-01-01&sr=c&sp=rwl&se=2099-01-01T00:00:00Z&sig=Zm9yZ2Vk"):
        answer = requests.get(url + query, verify=lived_in.vars["REQUESTS_CA_BUNDLE"])
        assert answer.status_code in (401, 403), (query, answer.status_code)


def test_paths_do_not_climb_out_of_a_container(lived_in):
    store = lived_in.get(f"{lived_in.ws()}/datastores/workspaceblobstore")["properties"]
    sas = lived_in.http("POST", f"{lived_in.ws()}/datastores/workspaceblobstore/listSecrets", {}).json()["sasToken"]
    for climb in ("%2e%2e/%2e%2e/%2e%2e/identity/secret", "..%2f..%2f..%2fidentity%2fsecret", "a/%2e%2e/%2e%2e/%2e%2e/%2e%2e/client.json"):
        session = requests.Session()
        request = requests.Request("GET", "https://x/").prepare()
        request.url = f"https://{store['accountName']}.blob.core.windows.net/{store['containerName']}/{climb}?{sas.lstrip('?')}"
        answer = session.send(request, verify=lived_in.vars["REQUESTS_CA_BUNDLE"])
        assert answer.status_code in (400, 401, 403, 404), (climb, answer.status_code)
        assert lived_in.vars["IDENTITY_HEADER"] not in answer.text
