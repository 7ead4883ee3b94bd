"""What jobs run in: the host, cached virtual environments, and containers of real engines. Packages come from an index on loopback."""

import functools
import hashlib
import http.server
import json
import os
import shutil
import signal
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engines import Engine, Unavailable, root_archive
from neapserver import ROOT, Server, new_home, remove, unique, wait_until

IMAGE = "neap-test:1"
COMPUTE = (
    "import hashlib, json, os, sys; data = open(sys.argv[1]).read(); "
    "json.dump({'sum': sum(int(n) for n in data.split()), 'digest': hashlib.sha256(data.encode()).hexdigest(), 'mine': os.environ['MINE']}, open(sys.argv[2] + '/result.json', 'w'), sort_keys=True); "
    "open('outputs/beside.txt', 'w').write('kept'); print('in the image:', os.path.exists('/etc/in-the-image'), 'uid above zero:', os.getuid() > 0)"
)


# --- an index of packages -----------------------------------------------------------------------------------------


class Index:
    """Packages on loopback, and how often each file was fetched."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.fetched = []
        handler = functools.partial(self.handler(), directory=str(self.folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handler(index):
        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self):
                index.fetched.append(self.path)
                super().do_GET()

            def log_message(self, *_):
                pass

        return Handler

    def add(self, wheel, name):
        page = self.folder / "simple" / name
        page.mkdir(parents=True, exist_ok=True)
        target = page / wheel.name
        target.write_bytes(wheel.read_bytes())
        digest = hashlib.sha256(target.read_bytes()).hexdigest()
        (page / "index.html").write_text(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>')

    def wheel(self, name, version, text):
        """A package with one module of this text."""
        module, path = name.replace("-", "_"), self.folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        info = f"{module}-{version}.dist-info"
        with zipfile.ZipFile(path, "w") as out:
            out.writestr(f"{module}.py", text)
            out.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            out.writestr(f"{info}/RECORD", "")
        self.add(path, name)

    def fetches(self, name):
        return [path for path in self.fetched if path.endswith(".whl") and name.replace("-", "_") in path]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    index = Index(tmp_path_factory.mktemp("index"))
    for wheel in Path("/usr/share/python-wheels").glob("*.whl"):
        index.add(wheel, wheel.name.split("-")[0])
    if not (index.folder / "simple" / "pip").exists():
        pytest.skip("this machine has no wheel of pip (Debian: python3-pip-whl)")
    for n in range(1, 6):
        index.wheel(f"neap-probe-{n}", "1.0", f"def word():\n    return 'probe {n}'\n")
    yield index
    index.server.shutdown()


# --- servers ------------------------------------------------------------------------------------------------------


class World:
    """A server with one cluster, whose jobs name their environments."""

    def __init__(self, config, environment):
        self.server = Server(new_home("env"))
        (self.server.home / "config.yaml").write_text(config)
        saved = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        try:
            self.server.up()
        finally:
            for name, value in saved.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        self.server.make_cluster("work", 0, 2, "PT1M")

    def environment(self, **properties):
        path = f"{self.server.ws()}/environments/{unique('e')}/versions/1"
        self.server.put(path, {"properties": properties})
        return path

    def body(self, environment, command, **properties):
        body = self.server.job_body("work", command, **properties)
        body["properties"]["environmentId"] = environment
        return body

    def submit(self, environment, command, **properties):
        name = unique("job")
        self.server.put(f"{self.server.ws()}/jobs/{name}", self.body(environment, command, **properties))
        return name

    def done(self, environment, command, wanted="Completed", **properties):
        """Runs a job to its end: its name, log and properties."""
        name = self.submit(environment, command, **properties)
        self.server.wait_job(name, wanted, 180)
        return name, self.server.log(name), self.server.job(name)["properties"]

    def close(self):
        self.server.cli("down", "--grace", "1", check=False, timeout=90)
        try:
            self.server.assert_nothing_left()
        finally:
            remove(self.server.home)


def variables(index):
    return {"PIP_INDEX_URL": index.url, "PIP_FIND_LINKS": "", "UV_DEFAULT_INDEX": index.url, "PIP_RETRIES": "1"}


@pytest.fixture(scope="module")
def host(index):
    world = World("environments: {engine: none}\n", variables(index))
    yield world
    world.close()


@pytest.fixture(scope="session")
def image_archive(tmp_path_factory):
    try:
        return root_archive(tmp_path_factory.mktemp("image") / "root.tar")
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request, image_archive):
    if request.param not in os.environ.get("NEAP_TEST_ENGINES", "docker,podman").split(","):
        pytest.skip(f"{request.param}: not among NEAP_TEST_ENGINES")
    engine = Engine(request.param)
    try:
        engine.start()
    except Unavailable as why:
        pytest.skip(f"{request.param}: {why}")
    engine.load(image_archive, IMAGE)
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def contained(engine, index):
    world = World(f"environments: {{engine: {engine.kind}, socket: {engine.socket}, archives: [{engine.folder}]}}\n", variables(index))
    yield world
    world.close()
    assert engine.containers() == []


def conda(*packages, pip=()):
    lines = ["name: x", "dependencies:", *(f"  - {p}" for p in packages)]
    if pip:
        lines += ["  - pip:", *(f"    - {p}" for p in pip)]
    return "\n".join(lines) + "\n"


# --- on the host ---------------------------------------------------------------------------------------------------


def test_packages_are_installed_once_and_found_afterwards(host, index):
    environment = host.environment(image="library/python:latest", condaFile=conda("python=3.99", "pip", pip=["neap-probe-1"]))
    line = 'python -c "import neap_probe_1 as p; print(p.word())"'
    _, log, facts = host.done(environment, line)
    first = log.splitlines()[0]
    assert first.startswith("[neap] This job runs on the host's Python") and "image library/python:latest is not used" in first and "3.99" in first
    assert "neap" in log and "probe 1" in log
    assert (facts["neap.environmentBuild"], "3.99" in facts["neap.environmentDifferences"]) == ("built", True)
    # Another environment of the same content.
    again = host.environment(condaFile=conda("python=3.99", "pip", pip=["neap-probe-1"]))
    _, log, facts2 = host.done(again, line)
    assert facts2["neap.environmentBuild"] == "found" and facts2["neap.environmentKey"] == facts["neap.environmentKey"]
    assert "probe 1" in log and "Collecting" not in log
    assert len(index.fetches("neap-probe-1")) == 1


def test_the_hosts_packages_are_not_seen_and_a_job_may_install_its_own(host):
    environment = host.environment(condaFile=conda(pip=["neap-probe-2"]))
    line = "pip install -q --index-url $INDEX neap-probe-3 && python -c \"import neap_probe_2, neap_probe_3, sys; print(sys.prefix, [p for p in sys.path if 'dist-packages' in p])\""
    index_url = [v for v in Path(f"/proc/{host.server.pid}/environ").read_text().split("\0") if v.startswith("PIP_INDEX_URL=")][0].split("=", 1)[1]
    _, log, _ = host.done(environment, line, environmentVariables={"INDEX": index_url})
    assert log.rstrip().endswith("/venv []"), log
    # What that job installed is not in the shared environment.
    _, log, _ = host.done(environment, "python -c 'import neap_probe_2, neap_probe_3'", "Failed")
    assert "No module named 'neap_probe_3'" in log


def test_jobs_that_ask_at_once_share_one_build(host, index):
    environment = host.environment(condaFile=conda(pip=["neap-probe-4"]))
    share = {"instanceCount": 1, "properties": {"neap": {"cpus": 0.2, "memory_gb": 0.2}}}
    with ThreadPoolExecutor(6) as pool:
        names = list(pool.map(lambda _: host.submit(environment, 'python -c "import neap_probe_4"', resources=share), range(6)))
    for name in names:
        host.server.wait_job(name, "Completed", 180)
    built = [host.server.job(name)["properties"]["neap.environmentBuild"] for name in names]
    assert sorted(built) == ["built"] + ["found"] * 5
    assert len(index.fetches("neap-probe-4")) == 1


def test_uv_installs_where_it_is_there(index):
    uv = shutil.which("uv", path=os.pathsep.join([os.environ["PATH"], str(ROOT / ".venv-test" / "uv" / "bin"), os.path.dirname(sys.executable)]))
    if not uv or any(not os.stat(part).st_mode & 1 for part in [uv, *Path(uv).resolve().parents]):
        pytest.skip("there is no uv that an unprivileged user could run")
    if Path(uv).resolve().is_relative_to("/tmp"):
        pytest.skip("this checkout's uv lies in /tmp, and jobs have a /tmp of their own")
    world = World("environments: {engine: none}\n", {**variables(index), "PATH": os.pathsep.join([os.path.dirname(uv), os.environ["PATH"]])})
    try:
        environment = world.environment(condaFile=conda(pip=["neap-probe-2"]))
        _, log, facts = world.done(environment, 'python -c "import neap_probe_2 as p; print(p.word())"; pip --version')
        assert "probe 2" in log and "(uv)" in facts["neap.environment"]
    finally:
        world.close()


def test_unknown_conda_packages_are_refused_by_name_all_at_once(host):
    environment = host.environment(condaFile=conda("numpy", "no-such-thing=1.2", "nor-this"))
    name = unique("job")
    refused = host.server.http("PUT", f"{host.server.ws()}/jobs/{name}", host.body(environment, "echo ran"))
    assert refused.status_code == 400, refused.text
    message = refused.json()["error"]["message"]
    assert "no-such-thing=1.2" in message and "nor-this" in message and "numpy" not in message
    assert host.server.http("GET", f"{host.server.ws()}/jobs/{name}").status_code == 404, "nothing is left behind"


def test_a_failed_build_keeps_its_log(host):
    environment = host.environment(condaFile=conda(pip=["neap-probe-not-there"]))
    name, log, facts = host.done(environment, "echo ran", "Failed")
    assert "neap-probe-not-there" in log and facts["neap.failureClass"] == "environment"
    kept = [f.read_text() for f in (host.server.home / "cache" / "environments").glob("*.log")]
    assert any("neap-probe-not-there" in text for text in kept)


def test_a_container_that_cannot_be_had_is_refused(host):
    environment = host.environment(image=IMAGE)
    body = host.body(environment, "echo ran", resources={"instanceCount": 1, "properties": {"neap": {"isolation": "container"}}})
    name = unique("job")
    answer = host.server.http("PUT", f"{host.server.ws()}/jobs/{name}", body)
    assert answer.status_code == 400 and "never weakened" in answer.text
    assert host.server.http("GET", f"{host.server.ws()}/jobs/{name}").status_code == 404
    # A cluster says it for all its jobs.
    host.server.make_cluster("strict", 0, 1)
    tagged = host.server.get(f"{host.server.ws()}/computes/strict")
    host.server.put(f"{host.server.ws()}/computes/strict", {**tagged, "tags": {"neap.isolation": "container"}})
    body = host.body(environment, "echo ran")
    body["properties"]["computeId"] = f"{host.server.ws()}/computes/strict"
    assert "never weakened" in host.server.http("PUT", f"{host.server.ws()}/jobs/{name}", body).text


def test_names_of_other_registries_stand_for_what_the_table_says(own_server, index, monkeypatch):
    for name, value in variables(index).items():
        monkeypatch.setenv(name, value)
    server = own_server("map", start=False)
    (server.home / "config.yaml").write_text("environments: {engine: none, map: {'sklearn-*': {pip: [neap-probe-5]}}}\n")
    server.up()
    server.make_cluster("work", 0, 1)
    body = server.job_body("work", 'python -c "import neap_probe_5 as p; print(p.word())"')
    body["properties"]["environmentId"] = "azureml://registries/azureml/environments/sklearn-1.5/labels/latest"
    server.put(f"{server.ws()}/jobs/known", body)
    body["properties"]["environmentId"] = "azureml:AzureML-other@latest"
    body["properties"]["command"] = "echo ran"
    server.put(f"{server.ws()}/jobs/unknown", body)
    server.wait_job("known", "Completed", 120)
    server.wait_job("unknown", "Completed", 120)
    assert "probe 5" in server.log("known") and "environments.map" in server.log("known")
    assert "'azureml:AzureML-other@latest'" in server.log("unknown")


# --- in containers --------------------------------------------------------------------------------------------------


def results(world, environment, **more):
    """The same job: code of no kind, an input, a named output, a file in ./outputs."""
    world.server.put(f"{world.server.ws()}/jobs/{unique('none')}", world.body(environment, "true"))
    name, log, facts = world.done(
        environment,
        f'printf "1 2 39" > data.txt && python3 -c "{COMPUTE}" data.txt ${{{{outputs.result}}}}',
        outputs={"result": {"jobOutputType": "uri_folder"}},
        environmentVariables={"MINE": "a b"},
        **more,
    )
    return json.loads(world.server.output(name, "result", "result.json")), log, facts


def test_the_same_job_in_a_container_and_on_the_host(contained, engine, host):
    inside, log, facts = results(contained, contained.environment(image=IMAGE))
    outside, host_log, host_facts = results(host, host.environment(image=IMAGE))
    assert inside == outside == {"sum": 42, "digest": hashlib.sha256(b"1 2 39").hexdigest(), "mine": "a b"}
    assert log.splitlines()[0].startswith(f"[neap] This job runs in a container of {engine.kind}")
    assert "in the image: True uid above zero: True" in log and "in the image: False" in host_log
    assert facts["neap.environment"].startswith(f"{engine.kind} ") and facts["neap.environmentDigest"]
    assert "not run in a container" in host_facts["neap.environmentDifferences"]


def test_a_secret_is_given_to_a_container_and_kept_nowhere(contained):
    server, value = contained.server, "inside/c0ntainer"
    server.put(f"{server.nws()}/secrets/inside", {"value": value})
    environment = contained.environment(image=IMAGE)
    _, log, _ = contained.done(environment, 'echo "got $TOKEN ${#TOKEN}"', environmentVariables={"TOKEN": "${{secrets.inside}}"})
    assert f"got *** {len(value)}" in log
    # Folders may go meanwhile, which `os.walk` does not mind.
    files = [Path(folder) / name for folder, _, names in os.walk(server.home) for name in names]
    kept = [path for path in files if path.is_file() and not path.is_symlink() and value.encode() in path.read_bytes()]
    assert kept == []


def test_packages_on_top_of_an_image_are_built_once(contained, index, engine):
    before = len(index.fetches("neap-probe-1"))
    environment = contained.environment(image=IMAGE, condaFile=conda("python=3.11", pip=["neap-probe-1"]))
    line = 'python -c "import neap_probe_1 as p; print(p.word())"'
    with ThreadPoolExecutor(3) as pool:
        share = {"instanceCount": 1, "properties": {"neap": {"cpus": 0.2, "memory_gb": 0.2}}}
        names = list(pool.map(lambda _: contained.submit(environment, line, resources=share), range(3)))
    for name in names:
        contained.server.wait_job(name, "Completed", 240)
        assert "probe 1" in contained.server.log(name)
    assert sorted(contained.server.job(n)["properties"]["neap.environmentBuild"] for n in names) == ["built", "found", "found"]
    _, log, facts = contained.done(environment, line)
    assert facts["neap.environmentBuild"] == "found" and "Building" not in log
    assert len(index.fetches("neap-probe-1")) == before + 1


def test_a_build_context_from_a_job_file(contained, tmp_path):
    (tmp_path / "context" / "sub").mkdir(parents=True)
    (tmp_path / "context" / "sub" / "word.txt").write_text("from the context")
    (tmp_path / "context" / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY sub/word.txt /word.txt\nRUN echo building here\n")
    (tmp_path / "job.yml").write_text(
        "command: cat /word.txt\ncompute: azureml:work\nenvironment: {build: {path: ./context}}\nexperiment_name: black-box\n"
    )
    for expect in ("built", "found"):
        name = unique("job")
        contained.server.cli("job", "create", "-f", tmp_path / "job.yml", "--name", name)
        contained.server.wait_job(name, "Completed", 180)
        log = contained.server.log(name)
        assert "from the context" in log and ("building here" in log) == (expect == "built")
        assert contained.server.job(name)["properties"]["neap.environmentBuild"] == expect
    (tmp_path / "context" / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo before the end; exit 4\n")
    name = unique("job")
    contained.server.cli("job", "create", "-f", tmp_path / "job.yml", "--name", name)
    contained.server.wait_job(name, "Failed", 180)
    assert "before the end" in contained.server.log(name)
    assert contained.server.job(name)["properties"]["neap.failureClass"] == "environment"


def test_ends_are_told_apart(contained):
    environment = contained.environment(image=IMAGE)
    cases = {
        "exit 7": ("UserError", "exit code 7"),
        "kill -9 $$": ("UserError", "signal 9"),
        "no-such-program": ("UserError", "exit code 127"),
    }
    names = {line: contained.submit(environment, line) for line in cases}
    for line, (code, words) in cases.items():
        contained.server.wait_job(names[line], "Failed", 120)
        error = contained.server.job(names[line])["error"]
        assert error["code"] == code and words in error["message"], (line, error)


def test_memory_is_limited(contained, engine):
    environment = contained.environment(image=IMAGE)
    share = {"instanceCount": 1, "properties": {"neap": {"cpus": 0.5, "memory_gb": 0.1}}}
    name, _, _ = contained.done(environment, 'python3 -c "x = bytearray(400 << 20)"', "Failed", resources=share)
    error = contained.server.job(name)["error"]
    if engine.kind == "docker":
        assert error["code"] == "OutOfMemory" and "102 MB" in error["message"], error
    else:
        # On version 1 of cgroups Podman does not say that memory was the reason.
        assert error["code"] in ("OutOfMemory", "UserError"), error


def test_an_image_from_an_archive(contained, engine, image_archive):
    archive = engine.folder / "saved.tar"
    if not archive.exists():
        engine.run("save", "-o", archive, IMAGE)
    environment = contained.environment(image=f"file:{archive}")
    _, log, facts = contained.done(environment, "cat /etc/in-the-image")
    assert facts["neap.environmentBuild"] == "built" and "yes" in log.split()
    assert contained.done(environment, "true")[2]["neap.environmentBuild"] == "found"
    refused = contained.server.http("PUT", f"{contained.server.ws()}/jobs/{unique('job')}", contained.body(contained.environment(image="file:/etc/passwd"), "true"))
    assert refused.status_code == 400 and "environments.archives" in refused.text


def test_an_image_that_cannot_be_pulled(contained):
    absent = contained.environment(image="127.0.0.1:1/not/there:1")
    _, log, facts = contained.done(absent, "test ! -e /etc/in-the-image && echo on the host")
    assert "could not be pulled" in log.splitlines()[0] and "on the host" in log
    assert "could not be pulled" in facts["neap.environmentDifferences"]
    required = {"instanceCount": 1, "properties": {"neap": {"isolation": "container"}}}
    _, log, facts = contained.done(absent, "echo on the host", "Failed", resources=required)
    assert facts["neap.failureClass"] == "environment" and "on the host" not in log.splitlines()
    _, log, _ = contained.done(contained.environment(image=IMAGE), "cat /etc/in-the-image", resources=required)
    assert "yes" in log.split()


def running(world, engine, line="echo begun; sleep 1000"):
    name = world.submit(world.environment(image=IMAGE), line)
    world.server.wait_job(name, "Running", 60)
    wait_until(lambda: "begun" in world.server.log(name), "the command runs in its container", 30)
    assert engine.containers()
    return name


def test_a_canceled_job_leaves_no_container(contained, engine):
    name = running(contained, engine, "trap 'echo asked politely; exit 3' TERM; echo begun; while :; do sleep 0.1; done")
    contained.server.http("POST", f"{contained.server.ws()}/jobs/{name}/cancel")
    contained.server.wait_job(name, "Canceled", 60)
    assert "asked politely" in contained.server.log(name)
    wait_until(lambda: not engine.containers(), "no container is left", 20)


def test_a_stubborn_job_is_killed_with_its_container(contained, engine):
    name = running(contained, engine, "trap '' TERM; echo begun; while :; do sleep 0.1; done")
    contained.server.http("POST", f"{contained.server.ws()}/jobs/{name}/cancel")
    contained.server.wait_job(name, "Canceled", 60)
    wait_until(lambda: not engine.containers(), "no container is left", 20)


def test_stubborn_ranks_are_killed_with_their_containers(contained, engine):
    environment = contained.environment(image=IMAGE)
    name = contained.submit(environment, "trap '' TERM; echo begun; while :; do sleep 0.1; done", resources={"instanceCount": 2})
    contained.server.wait_job(name, "Running", 60)
    wait_until(lambda: len(engine.containers()) == 3, "two ranks, and a container that holds their network", 30)
    contained.server.http("POST", f"{contained.server.ws()}/jobs/{name}/cancel")
    contained.server.wait_job(name, "Canceled", 60)
    wait_until(lambda: not engine.containers(), "no container is left", 20)


def test_a_killed_agent_leaves_no_container(contained, engine):
    name = running(contained, engine)
    node = contained.server.job(name)["properties"]["neap.node"]
    agent = next(pid for pid, line in contained.server.agents() if line.endswith(f"/{node.removeprefix('n-')}"))
    before = engine.containers()
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: not set(before) & set(engine.containers()), "the dead node's container is gone", 30)
    # The job runs again, on another node and in another container.
    wait_until(lambda: contained.server.job(name)["properties"].get("neap.attempt") == "2" and contained.server.status(name) == "Running", "it runs again", 60)
    contained.server.http("POST", f"{contained.server.ws()}/jobs/{name}/cancel")
    contained.server.wait_job(name, "Canceled", 60)
    wait_until(lambda: not engine.containers(), "no container is left", 20)


def test_a_hung_agent_cannot_prolong_a_container(engine, index):
    world = World(f"lease_ttl_seconds: 5\nenvironments: {{engine: {engine.kind}, socket: {engine.socket}}}\n", variables(index))
    try:
        name = running(world, engine)
        agent = next(pid for pid, _ in world.server.agents())
        marker = world.server.job(name)["properties"]["neap.node"]
        assert marker
        first = engine.run("inspect", "--format", "{{.State.Pid}}", engine.containers()[0]).stdout.strip()
        os.kill(agent, signal.SIGSTOP)
        wait_until(lambda: not Path(f"/proc/{first}").exists(), "the container's process ended with the lease", 40)
        wait_until(lambda: world.server.job(name)["properties"].get("neap.attempt") == "2", "the job is tried again", 60)
        world.server.http("POST", f"{world.server.ws()}/jobs/{name}/cancel")
        world.server.wait_job(name, "Canceled", 60)
    finally:
        world.close()
    assert engine.containers() == []


def test_neap_down_leaves_no_container(engine, index):
    world = World(f"environments: {{engine: {engine.kind}, socket: {engine.socket}}}\n", variables(index))
    try:
        running(world, engine)
    finally:
        world.close()
    assert engine.containers() == []


