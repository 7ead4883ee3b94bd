"""Somebody who holds a node's key and certificate, and so every order that its agent is given.

The agent itself is stopped (SIGSTOP) meanwhile. What it is told is read here as it comes over the wire: big-endian `u32` length,
one byte for the kind (0 is a message), JSON.
"""

import json
import os
import queue
import signal
import socket
import ssl
import struct
import threading

import requests

from neapserver import wait_until

HEARTBEAT_S = 0.3


class StolenNode:
    def __init__(self, server, cluster):
        self.server = server
        number = server.nodes(cluster)[0]["node_id"].removeprefix("n-")
        self.folder = server.home / "nodes" / number
        self.config = json.loads((self.folder / "node.json").read_text())
        self.agent = json.loads((self.folder / "agent.process.json").read_text())["pid"]
        self.heard = queue.Queue()
        self.passes = []
        self.over = threading.Event()
        os.kill(self.agent, signal.SIGSTOP)
        try:
            self.stream = self.connect(2)
        except ConnectionRefusedError:
            self.stream = self.connect(1)
        threading.Thread(target=self.listen, daemon=True).start()
        threading.Thread(target=self.renew, daemon=True).start()

    def connect(self, protocol):
        context = ssl.create_default_context(cafile=self.config["ca_pem_path"])
        context.load_cert_chain(self.folder / "node.pem", self.folder / "node.key")
        context.set_alpn_protocols(["neap-agent/1"])
        host, port = self.config["server"].rsplit(":", 1)
        stream = context.wrap_socket(socket.create_connection((host, int(port)), 10), server_hostname=self.config["server_name"])
        self.stream, self.lock = stream, threading.Lock()
        facts = {"hostname": "stolen", "agent_version": "0", "pid": 1, "cpus_milli": 2000, "memory_mb": 4096, "gpus": 0}
        self.say(type="hello", protocol=protocol, node=self.config["node"], facts=facts, attempts=[])
        first = self.read()
        if first["type"] == "refused":
            raise ConnectionRefusedError(first["reason"])
        assert first["type"] == "welcome", first
        self.take(first)
        return stream

    def say(self, **message):
        body = b"\0" + json.dumps(message).encode()
        with self.lock:
            self.stream.sendall(struct.pack(">I", len(body)) + body)

    def exactly(self, count):
        got = b""
        while len(got) < count:
            piece = self.stream.recv(count - len(got))
            if not piece:
                raise ConnectionError("the server hung up")
            got += piece
        return got

    def read(self):
        (length,) = struct.unpack(">I", self.exactly(4))
        return json.loads(self.exactly(length)[1:])

    def take(self, message):
        if message.get("url_pass"):
            self.passes.append(message["url_pass"])
        if message["type"] in ("start", "stop"):
            self.heard.put(message)

    def listen(self):
        while not self.over.is_set():
            try:
                self.take(self.read())
            except (OSError, ValueError):
                return

    def renew(self):
        while not self.over.wait(HEARTBEAT_S):
            try:
                self.say(type="heartbeat", sent_boot_ms=1)
            except OSError:
                return

    def hear(self, kind, seconds=30):
        """The next order of this kind; others are passed over."""
        while True:
            message = self.heard.get(timeout=seconds)
            if message["type"] == kind:
                return message

    def report(self, attempt, number, **body):
        self.say(type="report", attempt=attempt, number=number, body=body)

    @property
    def url_pass(self):
        return self.passes[-1] if self.passes else None

    def ask(self, method, folder, name="", url_pass="current", query="", **kwargs):
        """One request with the signature of this folder of an order; `name` goes into the URL as it is written."""
        url_pass = self.url_pass if url_pass == "current" else url_pass
        url = f"{folder['container_url']}/{folder['prefix']}{name}?{folder['sas']}{query}"
        if url_pass:
            url += f"&neap-pass={url_pass}"
        return send(method, url, self.config["ca_pem_path"], **kwargs)

    def list(self, folder):
        url = f"{folder['container_url']}?restype=container&comp=list&prefix={folder['prefix']}&{folder['sas']}"
        return send("GET", url + (f"&neap-pass={self.url_pass}" if self.url_pass else ""), self.config["ca_pem_path"])

    def put(self, folder, name, data=b"x", **kwargs):
        return self.ask("PUT", folder, name, data=data, headers={"x-ms-blob-type": "BlockBlob"}, **kwargs)

    def give_back(self):
        """The true agent goes on, or is replaced if its lease has ended meanwhile."""
        self.over.set()
        try:
            self.stream.close()
        finally:
            try:
                os.kill(self.agent, signal.SIGCONT)
            except ProcessLookupError:
                pass


def send(method, url, ca, **kwargs):
    """Sends the URL as it is: no library resolves `..` or escapes on the way."""
    with requests.Session() as session:
        session.trust_env = False
        prepared = session.prepare_request(requests.Request(method, "https://x", **kwargs))
        prepared.url = url
        return session.send(prepared, verify=ca, timeout=20)


def idle_node(server, cluster):
    return wait_until(lambda: [n for n in server.nodes(cluster) if n["state"] == "idle"] and StolenNode(server, cluster), f"a node of {cluster} is idle", 60)
