"""The past from the log: `--at` on what shows something, and what changed between two times."""

import time
from datetime import datetime, timezone

import pytest

from neapserver import unique, wait_until


@pytest.fixture
def compute(server):
    name = unique("tt")
    server.make_cluster(name, 0, 2)
    yield name
    if server.http("GET", f"{server.ws()}/computes/{name}").status_code == 200:
        server.drop_cluster(name)


def now(server):
    """A time that lies strictly between what was done before and what is done after."""
    head = server.get("/neap/v1/status")["seq"]
    time.sleep(0.02)
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    time.sleep(0.02)
    assert server.get("/neap/v1/status")["seq"] >= head
    return at


def change(server, name, high):
    body = {
        "location": "eastus",
        "properties": {
            "computeType": "AmlCompute",
            "properties": {"vmSize": "STANDARD_DS3_V2", "scaleSettings": {"minNodeCount": 0, "maxNodeCount": high, "nodeIdleTimeBeforeScaleDown": "PT2S"}},
        },
    }
    server.put(f"{server.ws()}/computes/{name}", body)


def test_a_cluster_as_it_was(server, compute):
    before = now(server)
    change(server, compute, 7)
    after = now(server)
    server.drop_cluster(compute)
    assert server.http("GET", f"{server.ws()}/computes/{compute}").status_code == 404
    assert server.json("compute", "show", "-n", compute, "--at", before)["max_instances"] == 2
    assert server.json("compute", "show", "-n", compute, "--at", after)["max_instances"] == 7
    listed = server.json("compute", "list", "--at", after, "--query", "[].name")
    assert compute in listed
    assert compute not in server.json("compute", "list", "--query", "[].name")


def test_a_job_as_it_was(server, compute):
    before = now(server)
    name = server.submit(compute, "sleep 2; echo done")
    server.wait_job(name, "Running")
    running = now(server)
    server.wait_job(name, "Completed")
    absent = server.cli("job", "show", "-n", name, "--at", before, check=False)
    assert absent.returncode != 0 and "not found" in absent.stderr.lower()
    then = server.json("job", "show", "-n", name, "--at", running)
    assert then["status"] == "Running" and then["properties"]["neap.node"].startswith("n-")
    assert "neap.endedOn" not in then["properties"]
    assert server.json("job", "show", "-n", name)["status"] == "Completed"
    jobs = {job["name"]: job["status"] for job in server.json("job", "list", "--at", running)}
    assert jobs[name] == "Running"
    assert name not in {job["name"] for job in server.json("job", "list", "--at", before)}
    nodes = server.json("compute", "list-nodes", "-n", compute, "--at", running)
    assert [node["node_state"] for node in nodes] == ["running"] and nodes[0]["current_job_name"] == name


def test_why_a_job_waited_then(server, compute):
    server.make_cluster(compute, 0, 0)
    name = server.submit(compute, "true")
    waiting = now(server)
    change(server, compute, 1)
    server.wait_job(name, "Completed")
    then = server.json("explain", "job", name, "--at", waiting)
    assert then["status"] == "Queued" and "max_instances" in str(then), then
    assert server.json("explain", "job", name)["status"] == "Completed"


def test_cost_as_it_was_known_then(server, compute):
    name = server.submit(compute, "sleep 1")
    server.wait_job(name, "Completed")
    wait_until(lambda: not server.nodes(compute), "its node is gone")
    early = now(server)
    again = server.submit(compute, "sleep 1")
    server.wait_job(again, "Completed")
    wait_until(lambda: not server.nodes(compute), "its node is gone")

    def spent(*more):
        rows = server.json("cost", "--by", "cluster", *more)
        return next((row["micro_usd"] for row in rows if row["name"] == compute), 0)

    then, today = spent("--at", early), spent()
    assert 0 < then < today
    assert then == spent("--at", early), "the past does not change"
    assert then == spent("--to", early), "and is what the books say of that time"


def test_what_changed_between_two_times(server, compute):
    before = now(server)
    change(server, compute, 5)
    name = server.submit(compute, "sleep 2")
    server.wait_job(name, "Running")
    running = now(server)
    server.wait_job(name, "Completed")
    rows = {row["what"]: (row["from"], row["to"]) for row in server.json("diff", compute, "--from", before, "--to", running)}
    assert rows["max_instances"] == (2, 5) and rows["revision"] == (1, 2)
    assert rows["nodes"] == (0, 1) and rows["jobs active"] == (0, 1) and rows[f"job {name}"] == (None, "Running")
    assert rows["spend_usd"][0] == "0.000000" and float(rows["spend_usd"][1]) > 0
    assert "min_instances" not in rows, "what is the same is not listed"
    since = {row["what"]: (row["from"], row["to"]) for row in server.json("diff", compute, "--from", running)}
    assert since[f"job {name}"] == ("Running", "Completed")
    table = server.cli("diff", compute, "--from", before, "--to", running, "-o", "table")
    assert "max_instances" in table.stdout and before[:19] in table.stderr
    assert server.json("diff", compute, "--from", running, "--to", running) == []


def test_times_that_cannot_be_asked_about(server, compute):
    future = server.cli("compute", "show", "-n", compute, "--at", "2999-01-01", check=False)
    assert future.returncode == 1 and "in the future" in future.stderr
    early = server.cli("compute", "show", "-n", compute, "--at", "2001-01-01", check=False)
    assert early.returncode == 1 and "The log begins at" in early.stderr
    words = server.cli("compute", "show", "-n", compute, "--at", "yesterday", check=False)
    assert words.returncode == 2 and "not a time" in words.stderr
    assert "is not a time" in server.http("GET", f"{server.ws()}/computes/{compute}?neap-at=then").text
    at = now(server)
    assert "not changed" in server.http("DELETE", f"{server.ws()}/computes/{compute}?neap-at={at}").text
    assert server.http("GET", f"{server.ws()}/computes/{compute}").status_code == 200
    assert "cannot be asked about the past" in server.http("GET", f"{server.ws()}/environments?neap-at={at}").text
    backwards = server.cli("diff", compute, "--from", at, "--to", "-1m", check=False)
    assert backwards.returncode == 1


def test_the_past_is_the_same_after_a_restart(own_server):
    server = own_server("past")
    server.make_cluster("tt-one", 0, 2)
    at = now(server)
    change(server, "tt-one", 3)
    server.kill()
    server.up()
    assert server.json("compute", "show", "-n", "tt-one", "--at", at)["max_instances"] == 2
    left = list((server.home / "ledger").glob("past/*.db"))
    assert len(left) <= 2, "only what is kept for the next question"
    server.kill()
    server.up()
    assert not list((server.home / "ledger").glob("past/*")), "and a start clears it away"
