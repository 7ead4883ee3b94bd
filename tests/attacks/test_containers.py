"""A job in a container looks for a way out of it.

**Attacker**: a job that runs arbitrary code in a container of Docker or Podman, started by a user who may only submit jobs.
**Attempt**: it connects to services of the machine that trust their neighbours, to metadata services and to a service of another
container; looks for processes and shared memory of others; takes capabilities, namespaces, mounts, other processes and kernel
interfaces that it should not have; leaves a core dump, fills the machine with processes.
**Stopped by**: the container's own network namespace, which the engine makes without a network and Neap connects to its router
before the command begins, and the packet filters of router and machine; the container's own pid and ipc namespaces; an
unprivileged user without capabilities and without new privileges, under the engine's list of system calls; the limits that the
engine is told.

The job's own business goes on: it reaches the Neap server and its names, and its services are reached through the server.
"""

import json
import os

import pytest
import requests

from aftermath import assert_other_jobs_run, assert_replays
from engines import Engine, Unavailable, root_archive
from neapserver import FINAL, Server, new_home, remove, unique, wait_until
from test_network import Trusting, own_addresses

IMAGE = "neap-test:1"
PORT = 7321
KEY = 0x6E656170
PROCESSES_MAX = 8192
SHARE = {"instanceCount": 1, "properties": {"neap": {"isolation": "container", "cpus": 0.5, "memory_gb": 0.5}}}

# The other job: it serves on every address, and has shared memory that everybody may read.
VICTIM = """
import ctypes, http.server, socket, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print('visited', self.path, flush=True)
        self.send_response(200)
        self.send_header('Content-Length', '6')
        self.end_headers()
        self.wfile.write(b'inside')
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(('0.0.0.0', PORT), Handler)
unix = socket.socket(socket.AF_UNIX)
unix.bind(chr(0) + NAME)
unix.listen()
assert ctypes.CDLL(None).shmget(KEY, 4096, 0o1666) >= 0
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.connect(('203.0.113.1', 9))
print('address', own.getsockname()[0])
print('serving', flush=True)
server.serve_forever()
"""

# The attacker. Each finding is a line `{what: found}`.
PROBE = """
import ctypes, errno, json, os, resource, signal, socket, ssl, urllib.error, urllib.request
libc = ctypes.CDLL(None, use_errno=True)
def say(what, found):
    print('found', json.dumps({what: found}), flush=True)
def call(what, work):
    ctypes.set_errno(0)
    answer = work()
    say(what, 'done' if answer >= 0 else errno.errorcode[ctypes.get_errno()])

def visit(place):
    try:
        if isinstance(place, str):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(1)
            s.connect(chr(0) + place)
        else:
            s = socket.create_connection(tuple(place), 1)
        s.sendall(b'GET / HTTP/1.0' + b'\\r\\n' * 2)
        return True
    except OSError:
        return False
say('open', [place for place in PLACES if visit(place)])
say('interfaces', sorted(name for _, name in socket.if_nameindex()))
try:
    context = ssl.create_default_context(cafile=os.environ['REQUESTS_CA_BUNDLE'])
    url = os.environ['AZUREML_SERVICE_ENDPOINT'] + '/neap/v1/status'
    say('server', urllib.request.urlopen(url, context=context, timeout=10).status)
except urllib.error.HTTPError as e:
    say('server', e.code)
except OSError as e:
    say('server', str(e))
say('names', [socket.gethostbyname('localhost'), socket.gethostbyname(socket.gethostname())])
say('resolver', open('/etc/resolv.conf').read().split()[:2])
question = bytes.fromhex('abcd01000001000000000000') + b'\\x09localhost\\x00\\x00\\x01\\x00\\x01'
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(15)
try:
    s.sendto(question, ('127.0.0.53', 53))
    say('answer', s.recv(512)[:2].hex())
except OSError as e:
    say('answer', str(e))

status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
say('status', {name: status[name].strip() for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')})
say('users', [os.getuid() > 0, os.getgid() > 0, all(group == os.getgid() for group in os.getgroups())])
processes = [pid for pid in os.listdir('/proc') if pid.isdigit()]
say('strangers', [pid for pid in processes if os.stat('/proc/' + pid).st_uid != os.getuid()])
say('processes', len(processes))
call('shared memory', lambda: libc.shmget(KEY, 4096, 0))
NEWNS, NEWUSER, NEWNET, NEWPID = 0x20000, 0x10000000, 0x40000000, 0x20000000
for name, flag in {'user': NEWUSER, 'mount': NEWNS, 'net': NEWNET, 'pid': NEWPID}.items():
    call('unshare ' + name, lambda: libc.unshare(flag))
call('mount', lambda: libc.mount(b'none', b'/mnt', b'tmpfs', 0, None))
call('umount', lambda: libc.umount2(b'/proc', 2))
call('chroot', lambda: libc.chroot(b'/tmp'))
call('setuid', lambda: libc.setuid(0))
call('keyctl', lambda: libc.syscall(250, 0, -3, 1, 0, 0))
call('bpf', lambda: libc.syscall(321, 0, 0, 0))
call('io_uring', lambda: libc.syscall(425, 0, 0))
call('userfaultfd', lambda: libc.syscall(323, 0))
call('perf_event_open', lambda: libc.syscall(298, 0, 0, -1, -1, 0))
call('vsock', lambda: libc.socket(40, 1, 0))
call('packet', lambda: libc.socket(17, 3, 0))
call('alg', lambda: libc.socket(38, 5, 0))
for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/kernel/uevent_helper', '/proc/sys/net/ipv4/ip_forward', '/etc/hosts', '/etc/resolv.conf'):
    try:
        open(path, 'w').close()
        say('write ' + path, 'done')
    except OSError as e:
        say('write ' + path, errno.errorcode[e.errno])
say('device files', sorted(name for name in os.listdir('/dev') if name in ('kmsg', 'mem', 'kvm', 'sda', 'vda', 'fuse')))
say('limits', {name: resource.getrlimit(getattr(resource, 'RLIMIT_' + name)) for name in ('CORE', 'FSIZE')})
say('shm', os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize)
for path in ('/sys/fs/cgroup/pids/pids.max', '/sys/fs/cgroup/pids.max'):
    if os.path.exists(path):
        say('pids', open(path).read().strip())
"""


# Forks until it may not, or until the kernel has ended children for want of memory; and goes on.
BOMB = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
said, count = False, 0
while True:
    try:
        if os.fork() == 0:
            while True:
                signal.pause()
        count += 1
        ended, _ = os.waitpid(-1, os.WNOHANG)
    except OSError:
        ended = True
    if ended and not said:
        print('full', count, flush=True)
        said = True
"""

# Two of them, on two nodes.
RANK = """
import os, socket, time
place, rank = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])), os.environ['RANK']
print('interfaces', sorted(name for _, name in socket.if_nameindex()))
def visit(to):
    try:
        if isinstance(to, str):
            socket.socket(socket.AF_UNIX).connect(chr(0) + to)
        else:
            socket.create_connection(tuple(to), 1).sendall(b'x')
        return True
    except OSError:
        return False
print('open', [to for to in PLACES if visit(to)])
if rank == '0':
    server = socket.create_server(place)
    server.settimeout(60)
    print('rank 0 heard', server.accept()[0].recv(100).decode())
else:
    for _ in range(600):
        try:
            socket.create_connection(place, 1).sendall(f'rank {rank}'.encode())
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit('rank 0 is out of reach')
"""


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request, tmp_path_factory):
    if request.param not in os.environ.get("NEAP_TEST_ENGINES", "docker,podman").split(","):
        pytest.skip(f"{request.param}: not among NEAP_TEST_ENGINES")
    engine = Engine(request.param)
    try:
        engine.start()
        engine.load(root_archive(tmp_path_factory.mktemp("image") / "root.tar"), IMAGE)
    except Unavailable as why:
        pytest.skip(f"{request.param}: {why}")
    yield engine
    engine.stop()


class World:
    def __init__(self, engine):
        self.server = Server(new_home("contained"))
        (self.server.home / "config.yaml").write_text(f"environments: {{engine: {engine.kind}, socket: {engine.socket}}}\n")
        self.server.up()
        self.server.make_cluster("work", 1, 3, "PT1M")
        self.environment = f"{self.server.ws()}/environments/image/versions/1"
        self.server.put(self.environment, {"properties": {"image": IMAGE}})

    def submit(self, program, command='python3 -c "$PROGRAM"', share=SHARE, **properties):
        name = unique("job")
        body = self.server.job_body("work", command, resources=share, environmentVariables={"PROGRAM": program}, **properties)
        body["properties"]["environmentId"] = self.environment
        self.server.put(f"{self.server.ws()}/jobs/{name}", body)
        return name

    def begun(self, name, word):
        def there():
            assert self.server.status(name) not in ("Failed", "Completed"), self.server.log(name)
            return word in self.server.log(name)

        wait_until(there, f"{name} says {word}", 60)

    def cancel(self, name):
        try:
            self.server.http("POST", f"{self.server.ws()}/jobs/{name}/cancel")
        except requests.ConnectionError:
            pass  # The last test stops the server.


@pytest.fixture(scope="module")
def world(engine):
    world = World(engine)
    yield world
    world.server.cli("down", "--grace", "1", check=False, timeout=90)
    remove(world.server.home)


@pytest.fixture(scope="module")
def victim(world):
    abstract = unique("victim")
    name = world.submit(f"PORT, NAME, KEY = {PORT}, {abstract!r}, {KEY}\n{VICTIM}", services={"own": {"jobServiceType": "Custom", "port": PORT}})
    world.begun(name, "serving")
    yield name, abstract
    world.cancel(name)


@pytest.fixture(scope="module")
def found(world, victim):
    """What the attacker found, while the other job ran beside it."""
    other, abstract = victim
    trusting = Trusting()
    address = next(line.split()[1] for line in world.server.log(other).splitlines() if line.startswith("address"))
    ports = [*([a, trusting.port] for a in [*own_addresses(), "localhost"]), *([a, PORT] for a in [*own_addresses(), address])]
    metadata = [["169.254.169.254", 80], ["168.63.129.16", 80], ["100.100.100.200", 80], ["169.254.1.1", trusting.port]]
    share = {**SHARE, "dockerArgs": "--network host --ipc host --ulimit core=-1 --ulimit fsize=-1"}
    job = world.submit(share=share, program=f"PLACES, KEY = {[*ports, *metadata, trusting.name, abstract]!r}, {KEY}\n{PROBE}")
    world.server.wait_job(job, "Completed", 90)
    found = {}
    for line in world.server.log(job).splitlines():
        if line.startswith("found "):
            found.update(json.loads(line.removeprefix("found ")))
    found["visits"] = trusting.visits
    found["visited"] = "visited" in world.server.log(other)
    return found


def test_the_network_of_others(found):
    assert found["open"] == [] and found["visits"] == [] and not found["visited"]
    assert found["interfaces"] == ["eth0", "lo"]


def test_what_a_job_needs_is_there(found):
    assert found["server"] in (200, 401, 403)
    assert found["names"] == ["127.0.0.1", "127.0.0.1"]
    assert found["resolver"] == ["nameserver", "127.0.0.53"] and found["answer"] == "abcd"


def test_rights(found):
    nothing = {name: "0" * 16 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert found["status"] == {**nothing, "NoNewPrivs": "1", "Seccomp": "2"}
    assert found["users"] == [True, True, True]
    refused = ["unshare user", "unshare mount", "unshare net", "unshare pid", "mount", "umount", "chroot", "setuid", "keyctl", "bpf", "userfaultfd", "perf_event_open", "io_uring", "vsock", "alg", "packet"]
    assert [what for what in refused if found[what] == "done"] == []
    assert [what for what in found if what.startswith("write ") and found[what] == "done"] == []
    assert found["device files"] == []


def test_other_containers_are_not_seen(found):
    assert found["strangers"] == [] and found["processes"] < 10
    assert found["shared memory"] == "ENOENT"


def test_limits(found):
    assert found["limits"]["CORE"] == [1, 1]
    assert 0 < found["limits"]["FSIZE"][0] == found["limits"]["FSIZE"][1]
    assert 0 < found["shm"] <= 64 << 20
    assert found["pids"] == str(PROCESSES_MAX)


def test_a_service_of_the_job_is_reached_through_the_server(world, victim):
    name, _ = victim
    server = world.server

    def running():
        service = server.get(f"/history/v1.0{server.ws()}/runs/{name}/serviceinstances/0")["instances"]["own"]
        assert service["status"] != "Failed", service
        return service["endpoint"] if service["status"] == "Running" else None

    url = wait_until(running, "the service runs", 60)
    headers = {"Authorization": f"Bearer {server.token()}"}
    answer = requests.get(url, headers=headers, verify=server.vars["REQUESTS_CA_BUNDLE"], timeout=30)
    assert (answer.status_code, answer.text) == (200, "inside")


def test_ranks_reach_each_other_and_nobody_else(world, engine):
    trusting = Trusting()
    places = [[a, trusting.port] for a in own_addresses()] + [trusting.name]
    properties = {"distribution": {"distributionType": "PyTorch", "processCountPerInstance": 1}}
    job = world.submit(f"PLACES = {places!r}\n{RANK}", share={"instanceCount": 2, "properties": {"neap": {"isolation": "container"}}}, **properties)
    world.server.wait_job(job, "Completed", 120)
    log = world.server.log(job)
    assert "rank 0 heard rank 1" in log and "open []" in log and "interfaces ['eth0', 'lo']" in log, log
    assert trusting.visits == []


def test_a_fork_bomb_is_bounded_and_ends_with_its_job(world, engine):
    share = {"instanceCount": 1, "properties": {"neap": {"isolation": "container", "cpus": 0.3, "memory_gb": 0.1}}}
    bomb = world.submit(BOMB, share=share)
    # The kernel ends it for want of memory, or it finds that it may not have more processes.
    wait_until(lambda: world.server.status(bomb) in FINAL or "full" in world.server.log(bomb), "the bomb has met a limit", 60)
    assert_other_jobs_run(world.server, "work")
    world.cancel(bomb)
    wait_until(lambda: world.server.status(bomb) in FINAL, "the bomb has ended", 60)


def test_afterwards(world, engine, victim):
    world.cancel(victim[0])
    world.server.wait_job(victim[0], "Canceled")
    assert_other_jobs_run(world.server, "work")
    wait_until(lambda: not engine.containers(), "no container is left", 20)
    assert_replays(world.server)
