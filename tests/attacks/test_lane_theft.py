"""The attacker has no credential. They put `?sig=1` into the address of any request: the server took it for a signed one, let it
into the lane of the nodes' files, and nodes and log readers were refused. Or they use a route that no limit held for.

Stopped by: the lanes of `server/rate.rs`, which are chosen by a credential that has been verified.
"""

import json
import re

import pytest
import requests
from aftermath import assert_replays, assert_serving
from neapserver import Server, new_home, remove, wait_until
from visitor import answer, connect, head

RATE = 20


@pytest.fixture(scope="module")
def attacked(mark):
    server = Server(new_home("lane"))
    (server.home / "config.yaml").write_text(f"limits: {{requests_per_second: {RATE}, burst: {RATE}}}\n")
    server.up()
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.assert_nothing_left(mark)
    remove(server.home)


def flood(server, path, count=20 * RATE, **headers):
    """Statuses of many requests, one right after the other."""
    statuses = []
    while len(statuses) < count:
        # A stranger's connection is closed after some requests.
        with connect(server) as stream:
            try:
                for _ in range(count - len(statuses)):
                    stream.sendall(head("GET", path, **headers))
                    statuses.append(answer(stream)[0])
            except OSError:
                pass
    return statuses


@pytest.mark.parametrize("path", ["/subscriptions?sig=1", "/neapst1/azureml/x?sv=2021-08-06&sr=c&sp=r&sig=AAAA", "/neap/logs/neapst1/1?sig=1"])
def test_a_made_up_signature_keeps_nobody_waiting(attacked, path):
    wait_until(lambda: attacked.http("GET", f"{attacked.ws()}/computes").status_code == 200, "the rate allows it", every=0.3)
    secret = attacked.http("POST", f"{attacked.ws()}/datastores/workspaceblobstore/listSecrets", {"expirableSecret": True, "expireAfterHours": 1}).json()
    store = attacked.get(f"{attacked.ws()}/datastores/workspaceblobstore")["properties"]
    signed = f"/{store['accountName'].rpartition('/')[2]}/{store['containerName']}?restype=container&comp=list&{secret['sasToken'].lstrip('?')}"
    assert 200 not in flood(attacked, path)
    for _ in range(RATE // 2):
        answered = requests.get(attacked.url + signed, verify=attacked.vars["REQUESTS_CA_BUNDLE"], timeout=10)
        assert answered.status_code == 200, f"the lane of signed requests is full: {answered.text}"


def test_no_route_is_exempt(attacked):
    statuses = flood(attacked, "/neap/v1/status", 500, Authorization=f"Bearer {attacked.token()}")
    assert set(statuses) == {200, 429}
    statuses = flood(attacked, "/neap/v1/status", 1500)
    assert 429 in statuses and 200 not in statuses
    assert wait_until(lambda: attacked.http("GET", "/neap/v1/status").status_code == 200, "the owner is answered", every=0.3)


def test_afterwards(attacked):
    wait_until(lambda: attacked.http("GET", f"{attacked.ws()}/computes").status_code == 200, "the rate allows it", every=0.3)
    assert_serving(attacked)
    limited = re.search(r"neap_http_requests_limited_total (\d+)", attacked.http("GET", "/metrics").text)
    assert int(limited.group(1)) > 0, json.dumps(limited.group(0))
    assert_replays(attacked)
