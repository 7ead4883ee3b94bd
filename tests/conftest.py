"""Fixtures: one real server for the suites that do not break it, and a fresh one for those that do."""

import os

import pytest

from neapserver import BINARY, Server, new_home, remove, share, unique
from refusing import CONFIG

MARK = f"neap-test-{os.urandom(6).hex()}"


def pytest_sessionstart(session):
    if session.config.option.collectonly:
        return
    if not BINARY.exists():
        pytest.exit(f"{BINARY} is not there: run `cargo build -p neap-cli` (or `make test`, which does) or set NEAP_BIN.", 2)


@pytest.fixture(scope="session")
def mark():
    """A word that every job of these suites carries in its environment, so that no process of theirs can hide."""
    return MARK


@pytest.fixture(scope="session")
def server(mark):
    home = new_home("suite")
    share(home)
    running = Server(home)
    running.up()
    patch = pytest.MonkeyPatch()
    # What `eval "$(neap env)"` does to a shell, and nothing else.
    for key, value in running.vars.items():
        patch.setenv(key, value)
    yield running
    patch.undo()
    try:
        running.down()
        running.assert_nothing_left(mark)
        verified = running.cli("verify", check=False)
        assert verified.returncode == 0, f"neap verify after the suites: {verified.stdout}{verified.stderr}"
    finally:
        remove(home)


@pytest.fixture
def own_server(mark):
    """Makes servers of a test's own; what they leave behind fails the test."""
    made = []

    def make(name="own", home=None, start=True, **kwargs):
        running = Server(home or new_home(name), **kwargs)
        if home is None:
            share(running.home)
        made.append(running)
        if start:
            running.up()
        return running

    yield make
    for running in made:
        running.cli("down", "--grace", "1", check=False, timeout=90)
        running.assert_nothing_left(mark)
        remove(running.home)


@pytest.fixture(scope="module")
def strict(mark):
    """A server for the suites of refusals: few locations, a size that only one of them has, a team."""
    home = new_home("refuse")
    (home / "config.yaml").write_text(CONFIG)
    running = Server(home)
    running.up()
    running.environment_id()
    yield running
    running.cli("down", "--grace", "1", check=False, timeout=90)
    running.assert_nothing_left(mark)
    remove(home)


@pytest.fixture(scope="session")
def ml(server):
    from azure.ai.ml import MLClient
    from azure.identity import DefaultAzureCredential

    return MLClient(
        DefaultAzureCredential(),
        os.environ["NEAP_SUBSCRIPTION_ID"],
        os.environ["NEAP_RESOURCE_GROUP"],
        os.environ["NEAP_WORKSPACE"],
    )


@pytest.fixture
def cluster(server):
    """Makes clusters and takes them away afterwards: nodes that nobody needs would slow the other tests."""
    made = []

    def make(low=0, high=2, idle="PT2S", **kwargs):
        name = unique("c")
        server.make_cluster(name, low, high, idle, **kwargs)
        made.append(name)
        return name

    yield make
    for name in made:
        if server.http("GET", f"{server.ws()}/computes/{name}").status_code == 200:
            server.drop_cluster(name)


@pytest.fixture(scope="session")
def work_cluster(server):
    """A cluster that stays up between the tests which only want something to run on."""
    name = unique("work")
    server.make_cluster(name, 0, 2, "PT1M")
    return name
