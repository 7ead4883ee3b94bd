"""A package that plants links while it is installed.

**Attacker**: whoever writes a package that a job's environment names. Its build code runs on the node before the job does.
**Attempt**: it leaves links in every folder it can write to, so that the agent, which may be root, later writes the job's code
through one of them, or reads the installation's secret through another.
**Stopped by**: a folder and a user of their own for builds, which no attempt's folder is reachable from; and the agent's rule
to create files by descriptor and never to follow a link (`crates/agent/src/tree.rs`). A link in place of `python-version` is
not read.
"""

import hashlib
import io
import os
import tarfile

import pytest

from aftermath import assert_other_jobs_run, assert_replays, assert_serving, reason_of
from neapserver import Server, new_home, remove, unique
from test_environments import Index, variables

pytestmark = pytest.mark.filterwarnings("ignore")

# A build backend without any requirement: pip runs it to make the wheel.
BACKEND = r"""
import glob, os, zipfile

TARGET, SECRET = {target!r}, {secret!r}


def plant(folder):
    # Not where it would only be in the way.
    if os.path.basename(folder) in ("outputs", "logs"):
        return
    for name, leads in (("pwn", TARGET), ("code.py", TARGET), ("python-version", SECRET)):
        try:
            os.symlink(leads, os.path.join(folder, name))
        except OSError:
            pass


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    roots = ["/mnt/azureml/cr/j", "/mnt/azureml/environments", {home!r}, os.getcwd()]
    for root in roots:
        for folder, folders, _ in os.walk(root):
            plant(folder)
    name = "{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as out:
        out.writestr("{module}.py", "")
        info = "{module}-1.0.dist-info"
        out.writestr(info + "/METADATA", "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        out.writestr(info + "/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(info + "/RECORD", "")
    return name
"""


def add_sdist(index, name, **words):
    """A package that exists as source only, so that its backend runs on the node."""
    module = name.replace("-", "_")
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.format(name=name, module=module, **words),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
    }
    page = index.folder / "simple" / name
    page.mkdir(parents=True)
    path = page / f"{module}-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as out:
        for file, text in files.items():
            entry = tarfile.TarInfo(f"{module}-1.0/{file}")
            entry.size = len(text)
            out.addfile(entry, io.BytesIO(text.encode()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (page / "index.html").write_text(f'<a href="{path.name}#sha256={digest}">{path.name}</a>')


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    from pathlib import Path

    index = Index(tmp_path_factory.mktemp("index"))
    for wheel in Path("/usr/share/python-wheels").glob("*.whl"):
        index.add(wheel, wheel.name.split("-")[0])
    if not (index.folder / "simple" / "pip").exists():
        pytest.skip("this machine has no wheel of pip (Debian: python3-pip-whl)")
    server = Server(new_home("links"))
    (server.home / "config.yaml").write_text("environments: {engine: none}\n")
    for name, value in variables(index).items():
        os.environ[name] = value
    server.up()
    server.make_cluster("work", 0, 2, "PT1M")
    server.index = index
    # Of the owner of the installation, and in no folder that a job is shown.
    server.target = server.home / "owners-file"
    server.target.write_text("untouched")
    server.target.chmod(0o600)
    server.secret = server.home / "identity" / "secret"
    yield server
    for name in variables(index):
        os.environ.pop(name, None)
    assert_replays(server)
    remove(server.home)
    index.server.shutdown()


def run(server, package, command, code=()):
    """A job whose environment names this package, with code of its own."""
    path = f"{server.ws()}/environments/{unique('e')}/versions/1"
    server.put(path, {"properties": {"condaFile": f"name: x\ndependencies:\n  - pip:\n    - {package}\n"}})
    body = server.job_body("work", command)
    body["properties"]["environmentId"] = path
    if code:
        folder = server.home / unique("code")
        folder.mkdir()
        for name, text in code:
            (folder / name).write_text(text)
        name = unique("attack")
        job = folder.parent / f"{name}.yaml"
        job.write_text(
            f"command: {command}\ncode: {folder}\nenvironment: azureml:{path.split('/')[-3]}:1\ncompute: azureml:work\nexperiment_name: attacks\n"
        )
        server.cli("job", "create", "-f", job, "-n", name)
        return name
    name = unique("attack")
    server.put(f"{server.ws()}/jobs/{name}", body)
    return name


def test_a_build_plants_links(attacked):
    server = attacked
    add_sdist(server.index, "neap-planter", target=str(server.target), secret=str(server.secret), home=str(server.home))
    before = server.target.stat()
    job = run(server, "neap-planter", "cat pwn", code=[("pwn", "of the job"), ("code.py", "of the job")])
    status, reason = reason_of(server, job, 120)
    after = server.target.stat()
    assert server.target.read_text() == "untouched", "the agent wrote the job's code through a planted link"
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode), "the agent gave the owner's file away"
    shown = str(server.job(job)) + reason
    assert server.secret.read_text().strip() not in shown, "the agent read the secret into the job's properties"
    # The build may have spoilt nothing but itself: the job has its own code, or a reason.
    assert status == "Completed" and "of the job" in reason, (status, reason)
    assert_serving(server, "work")


def test_the_environment_is_nobodys_to_change(attacked):
    """The same package built anew is used by a second job: nothing in it is a link of the build's to the outside that the agent made
    its own, and none of it belongs to the build."""
    server = attacked
    add_sdist(server.index, "neap-planter-two", target=str(server.target), secret=str(server.secret), home=str(server.home))
    job = run(server, "neap-planter-two", 'python -c "import neap_planter_two, os; print(os.stat(neap_planter_two.__file__).st_uid, os.getuid())"')
    status, reason = reason_of(server, job, 120)
    assert status == "Completed", reason
    if os.getuid() == 0:
        of_file, of_job = reason.strip().splitlines()[-1].split()
        assert of_job != "0" and of_file not in ("1", of_job), reason
    assert server.target.read_text() == "untouched"
    assert_other_jobs_run(server, "work")
