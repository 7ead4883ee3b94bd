"""The attacker reaches the port and guesses the number of a node that is being made. They `join` with a garbage token before
the true agent does, so that the server takes the node for joined and locks the true agent out. They also announce and send
large agent frames, and open agent connections that say nothing.

Stopped by: the conversation with agents (`control/conversation.rs`), which checks the token before it records anything; the
frame limits of `protocol`, which are small for whoever has shown no certificate; the deadline for introductions.
"""

import socket
import struct
import sys
from pathlib import Path

import pytest
from aftermath import assert_other_jobs_run, assert_replays, assert_serving
from neapserver import Server, free_port, new_home, remove, unique, wait_until
from visitor import AGENT, connect, is_closed, message, read_message, resident_bytes

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "chaos"))
from proxy import FaultProxy  # noqa: E402

MIB = 1024 * 1024
FRAMES = 100


@pytest.fixture(scope="module")
def attacked(mark):
    """A server whose agents dial it through a proxy: it can hold the true agents back."""
    server = Server(new_home("join"))
    dialled = free_port()
    (server.home / "config.yaml").write_text(f"local: {{agent_dial: '127.0.0.1:{dialled}'}}\nlimits: {{unauthenticated_seconds: 2}}\n")
    server.proxy = FaultProxy(dialled, server.port)
    server.up()
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.proxy.close()
    server.assert_nothing_left(mark)
    remove(server.home)


def join(server, node, token):
    """What the server says to somebody who joins as this node."""
    with connect(server, AGENT) as stream:
        stream.sendall(message(type="join", protocol=2, node=node, token=token, csr_pem="none"))
        return read_message(stream)


def test_a_garbage_token_changes_nothing(attacked):
    attacked.proxy.refuse()
    cluster = unique("cj")
    attacked.make_cluster(cluster, 1, 1, "PT1M")
    node = wait_until(lambda: attacked.nodes(cluster), "a node is being made")[0]
    number = int(node["node_id"].removeprefix("n-"))
    for token in ("garbage", "", "neapjoin1.AAAA", "x" * 5000):
        refused = join(attacked, number, token)
        assert refused["type"] == "refused" and "nobody waits" not in refused["reason"], refused
    elsewhere = join(attacked, number + 1000, "garbage")
    assert elsewhere["reason"] == join(attacked, number, "garbage")["reason"], "an answer does not tell which nodes there are"
    attacked.proxy.flow()
    assert_other_jobs_run(attacked, cluster)
    assert [found["node_id"] for found in attacked.nodes(cluster)] == [node["node_id"]], "the true agent has joined as this very node"


def test_large_frames_of_strangers_are_not_kept(attacked):
    before = resident_bytes(attacked)
    streams, peak = [], before
    for _ in range(FRAMES):
        stream = connect(attacked, AGENT)
        stream.settimeout(2)
        streams.append(stream)
        try:
            stream.sendall(struct.pack(">IB", 8 * MIB, 0) + b'"' + b"x" * MIB)
        except OSError:
            pass
        peak = max(peak, resident_bytes(attacked))
    grown = peak - before
    assert grown < 40 * MIB, f"{FRAMES} frames of which nobody knows whose they are: {grown / MIB:.0f} MiB"
    assert all(is_closed(stream, 2) for stream in streams)


def test_agents_that_say_nothing_are_let_go(attacked):
    silent = [connect(attacked, AGENT) for _ in range(5)]
    half = connect(attacked, AGENT)
    half.sendall(struct.pack(">I", 100))
    unshaken = socket.create_connection(("127.0.0.1", attacked.port))
    for stream in [*silent, half]:
        assert is_closed(stream, 10), "nobody introduced themselves"
    unshaken.close()
    assert_serving(attacked)
    assert_replays(attacked)
