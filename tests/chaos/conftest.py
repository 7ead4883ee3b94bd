"""Fixtures of the chaos suites."""

import pytest

from neapserver import remove
from world import ChaosServer, Witness, end


@pytest.fixture
def witness():
    made = Witness()
    yield made
    made.remove()


@pytest.fixture
def chaos_server(mark):
    """Makes servers that a test may break; what they leave behind fails the test."""
    made = []

    def make(**kwargs):
        server = ChaosServer(**kwargs)
        made.append(server)
        return server

    yield make
    for server in made:
        if server.processes():
            end(server, mark)
        remove(server.home)
