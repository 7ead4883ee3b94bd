"""`neap waste`: which setting would have saved money, by replay of the log."""

import csv
import io
import time

import pytest

from neapserver import unique, wait_until


@pytest.fixture
def wasteful(own_server):
    server = own_server("waste")
    name = unique("cw")
    # A minute of idle time that serves nobody, and a node that the minimum keeps before there is any work.
    server.make_cluster(name, 1, 2, idle="PT60S")
    wait_until(lambda: [node["state"] for node in server.nodes(name)] == ["idle"], "a node is there")
    time.sleep(3)
    for _ in range(2):
        server.wait_job(server.submit(name, "sleep 0.5"), "Completed")
    return server, name


def test_the_setting_that_would_have_saved_it_is_named(wasteful):
    server, name = wasteful
    rows = server.json("waste", name)
    found = {row["waste"]: row for row in rows}
    minimum = found["minimum"]
    assert (minimum["setting"], minimum["now"], minimum["instead"], minimum["how"]) == ("min_instances", "1", "0", "replayed"), minimum
    assert minimum["saved_micro_usd"] > 0 and minimum["waits_more_seconds"] >= 0
    assert [tried["value"] for tried in minimum["tried"]] == ["0"]
    assert found["tier"]["how"] == "computed" and found["tier"]["instead"] == "low_priority"
    assert all(row["cluster"] == name for row in rows)

    # The same in REST, with what was spent; run again as it was it comes to that, but for how long boots truly took.
    whole = server.get(f"{server.nws()}/waste?cluster={name}")
    (cluster,) = whole["clusters"]
    spent, again = cluster["spent_micro_usd"], cluster["replayed"]["micro_usd"]
    assert spent > 0 and abs(spent - again) <= max(spent * 0.2, 50), cluster
    (row,) = server.json("cost", "--by", "cluster", "--query", f"[?name=='{name}']")
    assert row["micro_usd"] >= spent

    # As comma-separated values, and in words on stderr.
    told = server.cli("waste", "-o", "csv")
    lines = list(csv.DictReader(io.StringIO(told.stdout)))
    assert {line["waste"] for line in lines} >= {"minimum", "tier"} and lines[0]["cluster"] == name
    assert "Nodes that min_instances kept idle cost" in told.stderr, told.stderr
    assert "Setting" in server.cli("waste", "-o", "table").stdout


def test_what_cannot_be_asked(wasteful):
    server, name = wasteful
    assert server.cli("waste", "nobody", check=False).returncode == 3
    wrong = server.cli("waste", name, "--from", "2030-01-02", "--to", "2030-01-01", check=False)
    assert wrong.returncode == 1 and "is no time at all" in wrong.stderr, wrong.stderr
    assert server.json("waste", name, "--from", "2020-01-01", "--to", "2020-01-02") == []
