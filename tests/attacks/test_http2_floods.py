"""The attacker has no credential and speaks HTTP/2: streams that are opened and reset at once (rapid reset), headers without end
in CONTINUATION frames, header lists that unpack to megabytes, hundreds of streams, windows of no bytes, floods of pings and of
settings.

Stopped by: the limits of the HTTP/2 connection (`server/limits.rs`, set in `server/listen.rs`), the lane of strangers
(`server/rate.rs`) and the deadline for connections without a credential (`server/visitors.rs`).
"""

import struct
import threading

import pytest
from aftermath import assert_replays, assert_serving
from neapserver import Server, new_home, remove
from visitor import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    h2_connect,
    h2_frame,
    h2_headers,
    h2_send,
    is_closed,
    literal,
    resident_bytes,
)

MIB = 1024 * 1024
GROWTH_MAX = 40 * MIB
WINDOW = struct.pack(">HI", 4, 0)
OPEN = END_HEADERS | END_STREAM


@pytest.fixture(scope="module")
def attacked(mark):
    server = Server(new_home("h2"))
    (server.home / "config.yaml").write_text("limits: {unauthenticated_seconds: 2}\n")
    server.up()
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.assert_nothing_left(mark)
    remove(server.home)


def rapid_reset():
    block = h2_headers("/metadata/endpoints")
    for stream in range(1, 20_000, 2):
        yield h2_frame(HEADERS, OPEN, stream, block) + h2_frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


def endless_headers():
    yield h2_frame(HEADERS, END_STREAM, 1, h2_headers("/"))
    for n in range(2_000):
        yield h2_frame(CONTINUATION, 0, 1, literal(b"x-%d" % n, b"y" * 8_000))


def empty_continuations():
    yield h2_frame(HEADERS, END_STREAM, 1, h2_headers("/"))
    for _ in range(200_000):
        yield h2_frame(CONTINUATION, 0, 1)


def header_bomb():
    """One large header in the table of the connection, then referred to by one byte each."""
    for stream in range(1, 400, 2):
        block = h2_headers("/metadata/endpoints") + b"\x40" + literal(b"x-bomb", b"z" * 3_900)[1:] + b"\xbe" * 10_000
        yield h2_frame(HEADERS, OPEN, stream, block)


def many_streams():
    for stream in range(1, 4_000, 2):
        yield h2_frame(HEADERS, END_HEADERS, stream, h2_headers("/neap/v1/status", method="POST")) + h2_frame(DATA, 0, stream, b"x" * 1_000)


def unread_answers():
    for stream in range(1, 4_000, 2):
        yield h2_frame(HEADERS, OPEN, stream, h2_headers("/metadata/endpoints"))


def pings():
    for _ in range(100_000):
        yield h2_frame(PING, 0, 0, b"8 bytes.")


def settings():
    for _ in range(100_000):
        yield h2_frame(SETTINGS, 0, 0, WINDOW)


def acknowledgements():
    for _ in range(100_000):
        yield h2_frame(SETTINGS, ACK, 0)


ATTACKS = [rapid_reset, endless_headers, empty_continuations, header_bomb, many_streams, unread_answers, pings, settings, acknowledgements]


def flood(server, attack, ended):
    """Sends what the server takes, and waits until it has hung up."""
    stream = h2_connect(server, WINDOW)
    batch = b""
    for frames in attack():
        batch += frames
        if len(batch) > 64 * 1024:
            if not h2_send(stream, batch):
                break
            batch = b""
    else:
        h2_send(stream, batch)
    ended[attack.__name__] = is_closed(stream, 10)


def test_floods_of_frames(attacked):
    before = peak = resident_bytes(attacked)
    ended = {}
    floods = [threading.Thread(target=flood, args=(attacked, attack, ended)) for attack in ATTACKS]
    for attack in floods:
        attack.start()
    while any(attack.is_alive() for attack in floods):
        assert attacked.http("GET", f"{attacked.ws()}/computes").status_code == 200
        peak = max(peak, resident_bytes(attacked))
    assert ended == {attack.__name__: True for attack in ATTACKS}, "each connection without a credential has ended"
    assert peak - before < GROWTH_MAX, f"{(peak - before) / MIB:.0f} MiB"


def test_afterwards(attacked):
    assert_serving(attacked)
    assert_replays(attacked)
