"""A job looks around on the network.

**Attacker**: a job that runs arbitrary code, started by a user who may only submit jobs.
**Attempt**: it connects to services of the machine that trust their neighbours (on the machine's loopback, on its own addresses,
by an abstract socket), and to a service that another job runs for itself.
**Stopped by**: the job's own network namespace, whose loopback is another one and which has no abstract socket of others; and the
packet filter of the router and of the machine, for the machine's addresses. Each of these holds without the other for the addresses
it covers (`crates/sandbox/tests/net.rs` switches the layers off one by one, and has a metadata service to try).

The job's own business goes on: it reaches the Neap server at the address in its variables, and names are resolved.
"""

import json
import socket
import subprocess
import threading

import pytest

from aftermath import assert_replays, assert_serving
from neapserver import Server, new_home, remove, unique, wait_until

# Says `open` or `closed` for each place: [host, port], or the name of an abstract socket.
LOOK = """python3 -c "
import json, socket, sys
for place in json.loads(sys.argv[1]):
    s = None
    try:
        if isinstance(place, str):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(1)
            s.connect(chr(0) + place)
        else:
            s = socket.create_connection(tuple(place), 1)
        s.sendall(b'x')
        print('open', place, flush=True)
    except OSError as e:
        print('closed', place, e, flush=True)
print('looked')
" '{places}'"""
# A job that serves something for itself, and says who came.
SERVE = """python3 -c "
import socket, threading
def accept(s):
    while True:
        s.accept()
        print('visited', flush=True)
t = socket.socket(socket.AF_INET6)
t.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
t.bind(('::', {port}))
t.listen()
u = socket.socket(socket.AF_UNIX)
u.bind(chr(0) + '{name}')
u.listen()
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    own.connect(('203.0.113.1', 9))
    print('address', own.getsockname()[0])
except OSError:
    print('address 127.0.0.1')
threading.Thread(target=accept, args=(u,), daemon=True).start()
threading.Thread(target=accept, args=(t,), daemon=True).start()
print('serving', flush=True)
threading.Event().wait()
" """
WORK = """python3 -c "
import os, socket, ssl, urllib.error, urllib.request
print('localhost is', socket.gethostbyname('localhost'))
url = os.environ['AZUREML_SERVICE_ENDPOINT'] + '/neap/v1/status'
context = ssl.create_default_context(cafile=os.environ['REQUESTS_CA_BUNDLE'])
try:
    print('answered', urllib.request.urlopen(url, context=context, timeout=10).status)
except urllib.error.HTTPError as e:
    print('answered', e.code)
"
"""


class Trusting:
    """A service of this machine that lets in everybody who can connect."""

    def __init__(self):
        self.visits = []
        self.tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port = self.tcp.getsockname()[1]
        self.name = unique("trusting")
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.name)
        self.abstract.listen()
        for listener in (self.tcp, self.abstract):
            threading.Thread(target=self.serve, args=(listener,), daemon=True).start()

    def serve(self, listener):
        while True:
            _, peer = listener.accept()
            self.visits.append(peer)


def own_addresses():
    """The machine's addresses, but for those that need a zone."""
    shown = json.loads(subprocess.run(["ip", "-json", "address"], capture_output=True, text=True, check=True).stdout)
    found = {a["local"] for link in shown for a in link["addr_info"] if a["scope"] != "link"}
    return sorted(found | {"127.0.0.1", "::1"})


@pytest.fixture(scope="module")
def attacked():
    server = Server(new_home("network"))
    server.up()
    server.make_cluster("work", 2, 2, "PT1M")
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    remove(server.home)


def look(server, places):
    job = server.submit("work", LOOK.format(places=json.dumps(places)))
    server.wait_job(job, "Completed")
    log = server.log(job)
    assert "looked" in log, log
    return [line for line in log.splitlines() if line.startswith("open")]


def test_services_of_the_machine(attacked):
    trusting = Trusting()
    places = [[address, trusting.port] for address in [*own_addresses(), "localhost", "169.254.1.1"]]
    assert look(attacked, [*places, trusting.name]) == []
    assert trusting.visits == []
    assert_serving(attacked, "work")


def test_services_of_another_job(attacked):
    name, port = unique("own"), 7321
    victim = attacked.submit("work", SERVE.format(port=port, name=name))
    wait_until(lambda: "serving" in attacked.log(victim), "the other job serves")
    address = next(line.split()[1] for line in attacked.log(victim).splitlines() if line.startswith("address"))
    places = [[a, port] for a in {*own_addresses(), address}]
    assert look(attacked, [*places, name]) == []
    assert "visited" not in attacked.log(victim)
    attacked.cli("job", "cancel", "-n", victim)
    assert_serving(attacked, "work")


def test_what_a_job_needs_is_there(attacked):
    job = attacked.submit("work", WORK)
    attacked.wait_job(job, "Completed")
    log = attacked.log(job)
    assert "localhost is 127.0.0.1" in log and "answered" in log, log


def test_afterwards(attacked):
    assert_replays(attacked)
