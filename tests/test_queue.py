"""Who waits, why, and the least that would change it: `neap explain`, `neap queue`, `neap node`, `neap quota user`."""

import pytest

from neapserver import Server, unique, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(home=tmp_path_factory.mktemp("queue"))
    server.up()
    yield server
    server.down()


@pytest.fixture
def cluster(server):
    name = unique("q")
    server.make_cluster(name, 0, 1, "PT60S")
    yield name
    server.cli("compute", "delete", "-n", name, "--yes", check=False)


def running(server, cluster, command="sleep 600"):
    job = server.submit(cluster, command)
    server.wait_job(job, {"Running"})
    return job


def test_explain_says_what_is_in_the_way_and_the_least_that_would_help(server, cluster):
    running(server, cluster)
    ahead, last = server.submit(cluster, "sleep 600"), server.submit(cluster, "true")
    told = server.json("explain", "job", last)
    kinds = {c["kind"] for c in told["verdict"]["constraints"]}
    assert kinds == {"maximum"}, "nobody's going first would help: the one node is taken"
    assert told["verdict"]["position"] == 2
    assert [[c["kind"] for c in s] for s in told["verdict"]["unblocking"]] == [["maximum"]]
    words = server.cli("explain", "job", last).stdout
    assert "Place in the queue: 2." in words and "It would start without:\n  - max_instances" in words
    of_cluster = server.cli("explain", "cluster", cluster).stdout
    assert "1 of 1 nodes have work, 0 to 1 are allowed, 2 jobs wait." in of_cluster and ahead in of_cluster
    # What it says is so.
    server.cli("compute", "update", "-n", cluster, "--max-instances", "3")
    server.wait_job(last, {"Completed"})


def test_the_queue_is_listed_in_its_order_with_what_each_has_used(server, cluster):
    first = running(server, cluster)
    low = server.submit(cluster, "true", queueSettings={"priority": 1})
    high = server.submit(cluster, "true", queueSettings={"priority": 3})
    rows = server.json("queue", cluster)
    assert [row["job"] for row in rows] == [high, low]
    assert [row["position"] for row in rows] == [1, 2]
    assert server.json("queue", cluster, "--query", "[0].job") == high
    assert server.json("queue", cluster, "--running", "--query", "[].job") == [first]
    shares = server.json("queue", cluster, "--shares")
    assert shares[0]["running_jobs"] == 1 and shares[0]["running_cores"] > 0


def test_a_user_has_as_many_running_as_is_allowed(server, cluster):
    server.cli("compute", "update", "-n", cluster, "--max-instances", "3")
    rows = server.json("quota", "user", "--jobs", "1", "--compute", cluster)
    assert rows == [{"who": "each user", "within": f"compute {cluster}", "jobs": 1, "cores": None}]
    first = running(server, cluster)
    second = server.submit(cluster, "true")
    told = server.json("explain", "job", second)["verdict"]
    assert [c["kind"] for c in told["constraints"]] == ["allowance"], told
    assert "each user may have at a time: 1 of 1 are in use" in told["constraints"][0]["sentence"]
    # What is not said stays as it is.
    rows = server.json("quota", "user", "--cores", "64", "--compute", cluster)
    assert rows == [{"who": "each user", "within": f"compute {cluster}", "jobs": 1, "cores": 64}], rows
    server.cli("job", "cancel", "-n", first)
    server.wait_job(second, {"Completed"})
    assert server.json("quota", "user", "--compute", cluster, "--remove") == []
    wrong = server.cli("quota", "user", "--team", "nobody", "--jobs", "1", check=False)
    assert wrong.returncode != 0 and "There is no team 'nobody'" in wrong.stderr


def test_nodes_are_cordoned_drained_and_removed(server, cluster):
    job = running(server, cluster)
    node = server.json("compute", "list-nodes", "-n", cluster)[0]["node_id"]
    assert server.json("node", "cordon", node, "-c", cluster, "--reason", "a look")["cordoned"] is True
    server.cli("job", "cancel", "-n", job)
    server.wait_job(job, {"Canceled"})
    waits = server.submit(cluster, "true")
    assert server.json("explain", "job", waits)["status"] == "Queued", "nothing new on a cordoned node"
    [row] = server.json("compute", "list-nodes", "-n", cluster)
    assert (row["cordoned"], row["cordon_reason"]) == (True, "a look"), row
    for asked in (("explain", "job", waits), ("explain", "cluster", cluster), ("queue", cluster)):
        done = server.cli(*asked)
        said = done.stdout + done.stderr
        assert f"Its node {node} is cordoned (a look): nothing new comes onto it; 'neap node uncordon {node} --cluster {cluster}'" in said, said
        assert "busy and" not in said and "heard of for a while" not in said and "on their way" not in said, said
    server.cli("node", "uncordon", node, "-c", cluster)
    server.wait_job(waits, {"Completed"})
    last = running(server, cluster)
    server.cli("node", "drain", node, "-c", cluster)
    server.cli("job", "cancel", "-n", last)
    wait_until(lambda: node not in [n["node_id"] for n in server.json("compute", "list-nodes", "-n", cluster)], "the node goes", 30)
    again = running(server, cluster)
    node = server.json("compute", "list-nodes", "-n", cluster)[0]["node_id"]
    server.cli("node", "remove", node, "-c", cluster, "--grace", "1")
    wait_until(lambda: server.job(again)["properties"]["neap.attempt"] == "2", "it goes on elsewhere", 60)
    missing = server.cli("node", "cordon", "n-9999", "-c", cluster, check=False)
    assert missing.returncode != 0 and "n-9999" in missing.stderr
