"""Ten times the allowed load: what is over is told so, what is accepted is answered, memory stays bounded, nothing is lost.

NEAP_LOAD_SECONDS=60 is the long form (`make chaos`).
"""

import json
import multiprocessing
import os
import socket
import ssl
import time
from collections import Counter

import pytest

from neapserver import API, unique, wait_until
from world import assert_ledger, end

SECONDS = float(os.environ.get("NEAP_LOAD_SECONDS", "8"))
LIMIT = 200
OFFERED = 2000
PROCESSES = 4
LANES = 2  # keep-alive connections of each
JOB_EVERY = 10
GROWTH_BYTES_MAX = 150 * 1024 * 1024


class Caller:
    """One keep-alive connection, and requests written by hand: the caller must be cheaper than the called."""

    def __init__(self, port, bundle, bearer):
        context = ssl.create_default_context(cafile=bundle)
        context.set_alpn_protocols(["http/1.1"])
        self.socket = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {bearer}\r\n"
        self.buffer = b""

    def ask(self, method, path, body=b""):
        kind = "Content-Type: application/json\r\n" if body else ""
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\n{self.head}{kind}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        length = int(headers.get("content-length", "0"))
        while len(self.buffer) < length:
            self.more()
        text, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(lines[0].split()[1]), headers, text

    def more(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise OSError("the server closed the connection")
        self.buffer += piece


def offer(number, port, bundle, bearer, ws, body, seconds, say):
    """Sends on schedule, whatever the answers are. Says what came of it."""
    callers = [Caller(port, bundle, bearer) for _ in range(LANES)]
    answered, waits, acknowledged, bad = Counter(), [], [], []
    every = PROCESSES / OFFERED
    began = time.monotonic()
    sent = 0
    while (now := time.monotonic()) < began + seconds:
        due = began + sent * every
        if now < due:
            time.sleep(due - now)
        caller = callers[sent % LANES]
        name = f"load-{number}-{sent}" if sent % JOB_EVERY == 0 else None
        asked = time.monotonic()
        if name:
            status, headers, text = caller.ask("PUT", f"{ws}/jobs/{name}?{API}", body)
        else:
            status, headers, text = caller.ask("GET", f"{ws}/computes?{API}")
        sent += 1
        answered[status] += 1
        if status == 429:
            if headers.get("retry-after") != "1" or json.loads(text)["error"]["code"] != "TooManyRequests":
                bad.append((headers, text))
        else:
            waits.append(time.monotonic() - asked)
            if name and status in (200, 201):
                acknowledged.append(name)
    say.put((sent, answered, waits, acknowledged, bad[:3]))


@pytest.mark.timeout(600)
def test_ten_times_the_allowed_load(chaos_server, mark):
    server = chaos_server(config=f"limits: {{requests_per_second: {LIMIT}, burst: {LIMIT}}}\n")
    server.up()
    cluster = unique("ld")
    server.make_cluster(cluster, 0, 2, "PT30S")
    server.environment_id()
    body = json.dumps(server.job_body(cluster, "true", environmentVariables={"NEAP_TEST_MARK": mark})).encode()
    first = server.submit(cluster, "true", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(first, "Completed")

    context = multiprocessing.get_context("spawn")
    said = context.Queue()
    arguments = (server.port, server.vars["REQUESTS_CA_BUNDLE"], server.token(), server.ws(), body, SECONDS, said)
    callers = [context.Process(target=offer, args=(n, *arguments)) for n in range(PROCESSES)]
    before = peak = server.resident_bytes()
    for caller in callers:
        caller.start()
    told = []
    while len(told) < PROCESSES:
        peak = max(peak, server.resident_bytes())
        while not said.empty():
            told.append(said.get())
        # How the server is, is always answered.
        assert server.http("GET", "/neap/v1/status", timeout=10).status_code == 200
        time.sleep(0.1)
    for caller in callers:
        caller.join(30)

    sent = sum(t[0] for t in told)
    answered = sum((t[1] for t in told), Counter())
    waits = sorted(w for t in told for w in t[2])
    acknowledged = [name for t in told for name in t[3]]
    bad = [b for t in told for b in t[4]]
    accepted = sum(n for status, n in answered.items() if status != 429)
    growth = peak - before
    print(
        f"\noffered {sent / SECONDS:.0f}/s for {SECONDS:g} s, accepted {accepted / SECONDS:.0f}/s, refused {answered[429]}; answered {dict(answered)}; "
        f"accepted calls: median {waits[len(waits) // 2] * 1000:.1f} ms, p99 {waits[len(waits) * 99 // 100] * 1000:.1f} ms, worst {waits[-1] * 1000:.1f} ms; "
        f"memory {before / 2**20:.0f} MiB, at most {peak / 2**20:.0f} MiB; {len(acknowledged)} jobs acknowledged"
    )
    if sent < 3 * LIMIT * SECONDS:
        pytest.skip(f"this machine could offer only {sent / SECONDS:.0f} requests a second")
    assert not bad, f"a 429 without Retry-After or without its code: {bad}"
    assert answered[429] > 0
    assert set(answered) <= {200, 201, 429}, answered
    assert accepted <= LIMIT * (SECONDS + 2) + LIMIT, "no more than the limit and one burst"
    assert accepted >= LIMIT * SECONDS * 0.5, "the allowed load is served"
    assert waits[len(waits) * 99 // 100] < 5, "accepted calls are answered, not queued without end"
    assert growth < GROWTH_BYTES_MAX, f"the server grew by {growth / 2**20:.0f} MiB"

    wait_until(lambda: server.get("/neap/v1/status")["jobs"] == {"queued": 0, "running": 0}, "every job has ended", 300, 0.2)
    for name in acknowledged:
        # The client is within the limit now, as one that hears Retry-After would be.
        answer = wait_until(lambda: (a := server.http("GET", f"{server.ws()}/jobs/{name}")).status_code != 429 and [a], "it is answered", 30, 0.2)[0]
        assert answer.status_code == 200, f"{name} was acknowledged and is lost: {answer.text}"
        assert answer.json()["properties"]["status"] == "Completed", answer.text
    end(server, mark)
    assert_ledger(server, acknowledged)


def test_requests_at_once_are_bounded_and_the_way_out_is_open(chaos_server, mark):
    """Requests that are begun and never finished take a place each; what is over is told to come again."""
    places = 4
    server = chaos_server(config=f"limits: {{requests_in_flight: {places}}}\n")
    server.up()
    stuck = []
    for _ in range(places):
        caller = Caller(server.port, server.vars["REQUESTS_CA_BUNDLE"], server.token())
        caller.socket.sendall(f"PUT {server.ws()}/jobs/never?{API} HTTP/1.1\r\n{caller.head}Content-Length: 1000\r\n\r\n{{".encode())
        stuck.append(caller)
    answer = wait_until(lambda: (a := server.http("GET", f"{server.ws()}/computes")).status_code == 429 and [a], "there is no place left")[0]
    assert answer.headers["Retry-After"] == "1"
    assert "requests_in_flight" in answer.json()["error"]["message"]
    assert server.http("GET", "/neap/v1/status").status_code == 200
    server.bearer = None
    assert server.token(), "a token can be had, so that the server can be ended"
    for caller in stuck:
        caller.socket.close()
    wait_until(lambda: server.http("GET", f"{server.ws()}/computes").status_code == 200, "places are given back")
    end(server, mark)
