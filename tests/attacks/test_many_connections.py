"""The attacker has no credential. They open as many connections as they can and leave them as they are: before the handshake,
after it, in the middle of a header, or as HTTP/2 connections that are kept alive with pings.

Stopped by: the caps and deadlines of `server/visitors.rs`. At a cap the oldest connection without a credential makes room, so
that clients with one always get in.
"""

import os
import socket
import threading

import pytest
import requests
from aftermath import assert_replays, assert_serving
from neapserver import API, Server, new_home, remove, unique, wait_until
from visitor import PING, connect, h2_connect, h2_frame, head, is_closed

PER_ADDRESS = 4
LOOPBACK = 8 * PER_ADDRESS
IDLE_S = 2


@pytest.fixture(scope="module")
def attacked(mark):
    server = Server(new_home("many"))
    limits = f"unauthenticated_connections: 64, unauthenticated_connections_per_address: {PER_ADDRESS}, unauthenticated_seconds: 2, idle_seconds: {IDLE_S}"
    (server.home / "config.yaml").write_text(f"limits: {{{limits}}}\n")
    server.up()
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.assert_nothing_left(mark)
    remove(server.home)


def open_files(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def test_silent_connections_displace_each_other(attacked):
    attacked.http("GET", f"{attacked.ws()}/computes")
    before = open_files(attacked)
    silent = [socket.create_connection(("127.0.0.1", attacked.port)) for _ in range(300)]
    wait_until(lambda: open_files(attacked) <= before + LOOPBACK + 5, "the cap holds", 5)
    for _ in range(5):
        fresh = requests.Session()
        fresh.trust_env = False
        answered = fresh.get(
            f"{attacked.url}{attacked.ws()}/computes?{API}", headers={"Authorization": f"Bearer {attacked.token()}"}, verify=attacked.vars["REQUESTS_CA_BUNDLE"], timeout=10
        )
        assert answered.status_code == 200
    assert all(is_closed(stream, 8) for stream in silent), "those that were left are let go, too"
    assert "neap_connections_limited_total 2" in attacked.http("GET", "/metrics").text, "more than two hundred made room"


def test_connections_that_never_show_a_credential_end(attacked):
    idle = [connect(attacked) for _ in range(3)]
    for stream, sent in zip(idle, (b"", b"GET / HT", head("GET", "/subscriptions")), strict=True):
        stream.sendall(sent)
    half_a_preface = connect(attacked, "h2")
    half_a_preface.sendall(b"PRI * ")
    pinging = h2_connect(attacked)
    stop = threading.Event()

    def ping():
        while not stop.wait(0.2):
            try:
                pinging.sendall(h2_frame(PING, 0, 0, b"8 bytes."))
            except OSError:
                return

    pings = threading.Thread(target=ping)
    pings.start()
    try:
        for stream in [*idle, half_a_preface, pinging]:
            assert is_closed(stream, 8)
    finally:
        stop.set()
        pings.join()


def test_idle_connections_with_a_credential_end_later_and_busy_ones_do_not(attacked, mark):
    cluster = unique("cm")
    attacked.make_cluster(cluster, 1, 1, "PT1M")
    job = attacked.submit(cluster, f"echo one; sleep {IDLE_S + 2}; echo two", environmentVariables={"NEAP_TEST_MARK": mark})
    followed = attacked.http("GET", f"{attacked.nws()}/jobs/{job}/log?follow=true", stream=True)
    idle = connect(attacked)
    idle.sendall(head("GET", f"{attacked.ws()}/computes?{API}", Authorization=f"Bearer {attacked.token()}"))
    streaming = attacked.cli("job", "stream", "-n", job)
    assert "two" in streaming.stdout + streaming.stderr
    assert b"two" in followed.content, "a log that is silent for longer than a connection may be idle is followed to its end"
    assert is_closed(idle, 1)


def test_many_clients_at_once(attacked):
    """Not an attack: clients with a credential are many more than strangers may be."""
    wanted, asking, connected, statuses = 80, threading.Lock(), set(), set()

    def call(number):
        with requests.Session() as session:
            session.trust_env = False

            def ask():
                answered = session.get(
                    f"{attacked.url}{attacked.ws()}/computes?{API}", headers={"Authorization": f"Bearer {attacked.token()}"}, verify=attacked.vars["REQUESTS_CA_BUNDLE"], timeout=60
                )
                with asking:
                    statuses.add(answered.status_code)
                    connected.add(number)
                return len(connected) == wanted

            # Nobody is idle, and nobody hangs up before everybody is there.
            wait_until(ask, "everybody is connected", 60, 0.3)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(wanted)]
    for start in range(0, wanted, 10):
        for caller in callers[start : start + 10]:
            caller.start()
        wait_until(lambda enough=start + 10: len(connected) >= enough, "these are connected", 60)
    for caller in callers:
        caller.join()
    assert (len(connected), statuses) == (wanted, {200})


def test_afterwards(attacked):
    assert_serving(attacked)
    assert_replays(attacked)
