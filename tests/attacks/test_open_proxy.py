"""The attacker has an ordinary account, or runs a job. They want the server to fetch what only the server can reach: its own loopback,
the private network, the cloud's metadata service. They try the web container of the blob face with a bearer token, data URIs to
loopback in many spellings, a public-looking address that redirects there, a datastore with an endpoint there, and a signed URL of
a job with another query.

Stopped by: `outgoing.allow` (crates/storage/src/foreign/outgoing): every address is checked where the connection is made and after
each redirect. And by the blob face, which reads an address elsewhere only with a URL that was signed for exactly this address.
"""

import http.server
import re
import threading
from urllib.parse import quote

import pytest

from aftermath import assert_replays, assert_serving, reason_of
from neapserver import Server, new_home, remove, unique


class Inside(http.server.BaseHTTPRequestHandler):
    """Answers everything, counts, and redirects where it is told to."""

    def do_GET(self):
        self.server.seen.append(self.path)
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = f"inside {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_GET

    def log_message(self, *_):
        pass


def web(address):
    server = http.server.ThreadingHTTPServer((address, 0), Inside)
    server.seen = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def inside():
    """What the attacker wants: on loopback, not listed."""
    server = web("127.0.0.2")
    yield server
    server.shutdown()


@pytest.fixture(scope="module")
def outside():
    """Stands for the attacker's own web server: listed, so that it can be reached here."""
    server = web("127.0.0.3")
    yield server
    server.shutdown()


@pytest.fixture(scope="module")
def server():
    home = new_home("proxy")
    running = Server(home)
    # Older releases do not know the key, and are not to fail for that.
    (home / "config.yaml").write_text("outgoing: {allow: [127.0.0.3]}\n")
    if running.up(check=False).returncode != 0:
        (home / "config.yaml").unlink()
        running.up()
    running.make_cluster("victims", 0, 1, "PT30S")
    yield running
    running.cli("down", "--grace", "1", check=False, timeout=90)
    remove(home)


def account(server):
    name = server.get(f"{server.ws()}/datastores/workspaceblobstore")["properties"]["accountName"]
    return re.search(r"neapst\d+", name)[0]


def submit_with(server, uri, command="cat ${{inputs.x}}", **more):
    """The answer to a submission with this input, and the job's name."""
    server.environment_id()
    name = unique("ssrf")
    body = server.job_body("victims", command, inputs={"x": {"jobInputType": "uri_file", "uri": uri, **more}})
    return server.http("PUT", f"{server.ws()}/jobs/{name}", body), name


def test_a_token_does_not_open_the_web(server, inside, outside):
    for container, name in [
        ("~http", f"127.0.0.2:{inside.server_port}/token"),
        ("~http", f"127.0.0.3:{outside.server_port}/token"),
        ("~https", "example.com/token"),
        ("~azure", "account/container/token"),
        ("~s3", "bucket/token"),
    ]:
        for method in ("GET", "HEAD"):
            answer = server.http(method, f"/{account(server)}/{quote(container)}/{quote(name)}")
            assert answer.status_code == 403, f"{container}/{name}: {answer.status_code} {answer.text}"
        listing = server.http("GET", f"/{account(server)}/{quote(container)}?restype=container&comp=list&prefix={quote(name)}")
        assert listing.status_code == 403, listing.text
    assert not inside.seen and not outside.seen, (inside.seen, outside.seen)


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.2", "2130706434", "0x7f000002", "0177.0.0.2", "127.0.0.2.", "[::ffff:127.0.0.2]"])
def test_data_on_loopback_is_not_fetched(server, inside, host):
    answer, _ = submit_with(server, f"http://{host}:{inside.server_port}/data.csv")
    assert answer.status_code == 400 and "outgoing.allow" in answer.text, answer.text
    assert not inside.seen, inside.seen


@pytest.mark.parametrize("uri", ["http://localhost:9/x", "http://169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/x", "http://10.0.0.1/x", "http://0.0.0.0:9/x", "http://[fe80::1]/x"])
def test_metadata_and_private_addresses_are_not_fetched(server, uri):
    answer, _ = submit_with(server, uri)
    assert answer.status_code == 400 and "outgoing.allow" in answer.text, answer.text


def test_a_redirect_does_not_lead_inside(server, inside, outside):
    at = f"http://127.0.0.3:{outside.server_port}"
    for target in (f"http://127.0.0.2:{inside.server_port}/jump", f"http://localhost:{inside.server_port}/jump", "http://169.254.169.254/latest"):
        answer, _ = submit_with(server, f"{at}/to/{target}")
        assert answer.status_code == 400 and "outgoing.allow" in answer.text, answer.text
    # Nor does it go on for ever.
    loop, _ = submit_with(server, f"{at}/to/{at}/to/{at}/to/{at}/to/{at}/to/{at}/to/{at}/to/{at}/end")
    assert loop.status_code == 400, loop.text
    assert "/end" not in outside.seen and not inside.seen, (outside.seen, inside.seen)
    # One that stays outside is followed.
    good, name = submit_with(server, f"{at}/to/{at}/fine.csv")
    assert good.status_code in (200, 201), good.text
    server.wait_job(name, "Completed")
    assert "inside /fine.csv" in server.log(name)


def test_a_datastore_does_not_lead_inside(server, inside):
    endpoint = f"127.0.0.2:{inside.server_port}"
    stores = {
        "azin": {"datastoreType": "AzureBlob", "accountName": "a", "containerName": "c", "endpoint": endpoint, "protocol": "http", "credentials": {"credentialsType": "None"}},
        "s3in": {"datastoreType": "S3", "bucket": "b", "endpoint": f"http://{endpoint}", "credentials": {"credentialsType": "None"}},
        # The authority that is asked for a token is an address as well.
        "spin": {"datastoreType": "AzureBlob", "accountName": "a", "containerName": "c", "credentials": {"credentialsType": "ServicePrincipal", "tenantId": "t", "clientId": "c", "authorityUrl": f"http://{endpoint}", "secrets": {"secretsType": "ServicePrincipal", "clientSecret": "s"}}},
        "noport": {"datastoreType": "S3", "bucket": "b", "endpoint": "http://127.0.0.2:99999", "credentials": {"credentialsType": "None"}},
    }
    for name, properties in stores.items():
        made = server.http("PUT", f"{server.ws()}/datastores/{name}?skipValidation=true", {"properties": properties})
        assert made.status_code in (200, 201, 400), made.text
        if made.status_code == 400:
            continue
        answer, _ = submit_with(server, f"azureml://datastores/{name}/paths/x.csv")
        assert answer.status_code == 400, f"{name}: {answer.text}"
        listing = server.http("GET", f"/{account(server)}/~store.{name}?restype=container&comp=list")
        assert listing.status_code >= 400, f"{name}: {listing.text}"
    assert not inside.seen, inside.seen


def test_a_signed_url_is_for_one_address_with_its_query(server, outside):
    """The job reads its agent's words: here it is the test that plays a job whose URL leaked. The query is part of what is signed."""
    at = f"http://127.0.0.3:{outside.server_port}"
    answer, name = submit_with(server, f"{at}/signed.csv?version=1")
    assert answer.status_code in (200, 201), answer.text
    server.wait_job(name, "Completed")
    assert "inside /signed.csv?version=1" in server.log(name)


def test_afterwards(server):
    bad, name = submit_with(server, "http://127.0.0.2:9/x")
    assert bad.status_code == 400
    assert_serving(server, "victims")
    failing = server.submit("victims", "exit 3")
    status, told = reason_of(server, failing)
    assert status == "Failed", told
    assert_replays(server)
