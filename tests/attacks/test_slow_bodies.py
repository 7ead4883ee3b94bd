"""The attacker has no credential. They open requests whose bodies never end, as many as the server works on at once, so that
everybody else is turned away; and they send large bodies to `status`, which no limit held for, to fill the server's memory.

Stopped by: the entrance of the faces (`faces/routes.rs`), which looks at the credential before the body; the lanes of
`server/rate.rs`, of which strangers have one of their own; the deadline for connections without a credential
(`server/visitors.rs`).
"""

import threading
import time

import pytest
from aftermath import assert_replays, assert_serving
from neapserver import API, Server, new_home, remove
from visitor import answer, connect, head, is_closed, resident_bytes

PLACES = 16
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def attacked(mark):
    server = Server(new_home("slow"))
    (server.home / "config.yaml").write_text(f"limits: {{requests_in_flight: {PLACES}, unauthenticated_seconds: 2}}\n")
    server.up()
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.assert_nothing_left(mark)
    remove(server.home)


def test_bodies_that_never_end_turn_nobody_away(attacked):
    paths = [f"{attacked.ws()}/jobs/never?{API}", "/neap/v1/shutdown", "/msi/token?resource=x", f"/mlflow/v1.0{attacked.ws()}/api/2.0/mlflow/runs/create"]
    slow = []
    for n in range(4 * PLACES):
        stream = connect(attacked)
        stream.sendall(head("PUT", paths[n % len(paths)], 1000) + b"{")
        slow.append(stream)
    for _ in range(5):
        assert attacked.http("GET", f"{attacked.ws()}/computes").status_code == 200
    statuses = {answer(stream)[0] for stream in slow}
    assert statuses <= {401, 405, 429}, "the credential is asked for before the body"
    assert all(is_closed(stream, 10) for stream in slow)


def test_no_route_takes_large_bodies_of_strangers(attacked):
    before = resident_bytes(attacked)
    streams = [connect(attacked) for _ in range(60)]
    peak = before
    for stream in streams:
        stream.settimeout(2)
        try:
            stream.sendall(head("POST", "/neap/v1/status", 4 * MIB - 10) + b"x" * (4 * MIB - 100))
        except OSError:
            pass
        peak = max(peak, resident_bytes(attacked))
    grown = peak - before
    assert grown < 50 * MIB, f"bodies that nobody asked for: {grown / MIB:.0f} MiB"
    for stream in streams:
        stream.close()


def test_slow_but_steady_uploads_go_on(attacked):
    """Not an attack: a body that makes progress is taken, also when it takes longer than a stranger may stay."""
    store = attacked.get(f"{attacked.ws()}/datastores/workspaceblobstore")["properties"]
    secret = attacked.http("POST", f"{attacked.ws()}/datastores/workspaceblobstore/listSecrets", {"expirableSecret": True, "expireAfterHours": 1}).json()
    path = f"/{store['accountName'].rpartition('/')[2]}/{store['containerName']}/slow.bin?{secret['sasToken'].lstrip('?')}"
    piece, pieces = b"y" * 40_000, 26
    begun = time.monotonic()
    with connect(attacked) as stream:
        stream.sendall(head("PUT", path, len(piece) * pieces, x_ms_blob_type="BlockBlob", x_ms_version="2021-08-06"))
        pause = threading.Event()
        for _ in range(pieces):
            stream.sendall(piece)
            pause.wait(0.1)
        assert answer(stream)[0] == 201
    assert time.monotonic() - begun > 2, "longer than a connection without a credential may last"


def test_afterwards(attacked):
    assert_serving(attacked)
    assert_replays(attacked)
