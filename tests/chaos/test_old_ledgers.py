"""Upgrade: what each release left in `tests/ledgers/` opens, verifies, replays and is served by the program of today."""

import json
import shutil
import sqlite3

import pytest

from neapserver import ROOT, wait_until

LEDGERS = sorted(path.parent for path in (ROOT / "tests" / "ledgers").glob("*/expected.json"))


@pytest.fixture(params=LEDGERS, ids=lambda path: path.name)
def old(request, chaos_server):
    """A server on a copy of an old release's folder, not started, and what that release knew."""
    server = chaos_server()
    shutil.copytree(request.param, server.home, dirs_exist_ok=True)
    return server, json.loads((request.param / "expected.json").read_text())


def test_there_is_one():
    assert LEDGERS, "each release leaves a small ledger"


def test_it_verifies_and_replays_from_the_first_event(old):
    server, expected = old
    # The first start brings its tables to this release's.
    server.up()
    server.down()
    done = server.json("verify", "--replay")
    assert done["clean"] and done["replayed"] and done["events"] >= expected["events"], done


def test_it_is_served_and_written_on(old, mark):
    server, expected = old
    server.up()
    shown = {job["name"]: job["properties"]["status"] for job in server.get(f"{server.ws()}/jobs")["value"]}
    assert shown == expected["jobs"]
    assert sorted(c["name"] for c in server.get(f"{server.ws()}/computes")["value"]) == expected["clusters"]
    again = server.submit(expected["clusters"][0], "echo upgraded", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(again, "Completed")
    wait_until(lambda: "upgraded" in server.log(again).splitlines(), "its log is there")
    server.down()
    assert server.cli("verify", "--replay", check=False).returncode == 0
    with sqlite3.connect(f"file:{server.home / 'ledger' / 'neap.db'}?mode=ro", uri=True) as db:
        assert db.execute("select max(seq) from events").fetchone()[0] > expected["events"]
