"""Clusters with a dedicated floor and low priority above it, jobs that choose their tier, and dedicated work that takes low-priority nodes
back: through the command line, ARM and the SDK."""

import json

import pytest
from azure.ai.ml import MLClient
from azure.identity import DefaultAzureCredential

from neapserver import Server, new_home, remove, unique, wait_until

SAVED = "echo AZUREML_CHECKPOINT_DIR >/dev/null; "
WHOLE = {"instanceCount": 1, "properties": {}}


@pytest.fixture(scope="module")
def tiers(mark):
    """A server that makes three nodes at most."""
    home = new_home("tiers")
    (home / "config.yaml").write_text("local:\n  max_nodes: 3\n")
    running = Server(home)
    running.up()
    patch = pytest.MonkeyPatch()
    for key, value in running.vars.items():
        patch.setenv(key, value)
    yield running
    patch.undo()
    try:
        running.down()
        running.assert_nothing_left(mark)
        verified = running.cli("verify", "--replay", check=False)
        assert verified.returncode == 0, verified.stdout + verified.stderr
    finally:
        remove(home)


@pytest.fixture
def mixed(tiers):
    """One dedicated node, and two of low priority."""
    name = unique("mixed")[:20]
    tiers.cli("compute", "create", "-n", name, "-t", "amlcompute", "--tier", "low_priority", "--max-instances", 3, "--dedicated-instances", 1, "-d", 2)
    yield name
    tiers.drop_cluster(name)


@pytest.fixture
def send(tiers, mark):
    sent = []

    def send(cluster, line="sleep 600", **more):
        sent.append(tiers.submit(cluster, SAVED + line, environmentVariables={"NEAP_TEST_MARK": mark}, **more))
        return sent[-1]

    yield send
    for job in sent:
        tiers.http("POST", f"{tiers.ws()}/jobs/{job}/cancel")
    for job in sent:
        tiers.wait_job(job)


def runs(server, job):
    server.wait_job(job, "Running")
    return server.job(job)["properties"]


def choosing(word):
    return {"queueSettings": {"jobTier": word}}


def test_the_floor_is_filled_first_and_each_job_has_the_tier_that_it_chose(tiers, mixed, send):
    first = send(mixed)
    assert runs(tiers, first)["neap.tier"] == "Dedicated"
    second = send(mixed, **choosing("Spot"))
    assert runs(tiers, second)["neap.tier"] == "LowPriority"
    waits = send(mixed, **choosing("Standard"))
    reason = wait_until(lambda: tiers.job(waits)["properties"].get("neap.queueReason"), "it says why it waits")
    assert "It takes dedicated nodes only" in reason and "has at most 1" in reason, reason
    # It holds up nobody who may have another.
    third = send(mixed)
    assert runs(tiers, third)["neap.tier"] == "LowPriority"
    shown = json.loads(tiers.cli("compute", "show", "-n", mixed, "-o", "json").stdout)
    assert (shown["tier"], shown["dedicated_instances"]) == ("low_priority", 1)
    assert shown["nodes_by_tier"] == {"dedicated": {"live": 1, "busy": 1}, "low_priority": {"live": 2, "busy": 2}}
    assert sorted(node["tier"] for node in tiers.nodes(mixed)) == ["Dedicated", "LowPriority", "LowPriority"]
    explained = tiers.cli("explain", "job", waits).stdout
    assert "dedicated_instances" in explained, explained


def test_what_a_cluster_has_not_is_refused_before_anything_is_paid_for(tiers, send):
    plain, low = unique("plain")[:20], unique("low")[:20]
    tiers.make_cluster(plain, 0, 1)
    tiers.make_cluster(low, 0, 1, vmPriority="LowPriority")
    fallback = {"resources": {"instanceCount": 1, "properties": {"neap": {"retry": {"dedicated_after": 2}}}}}
    for cluster, more, says in [
        (plain, choosing("Spot"), "has dedicated nodes only"),
        (low, choosing("Premium"), "has low-priority nodes only"),
        (low, fallback, "--dedicated-instances"),
    ]:
        answer = tiers.http("PUT", f"{tiers.ws()}/jobs/{unique('job')}", tiers.job_body(cluster, "true", **more))
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["code"] == "JobTierNotAvailable" and says in error["message"], error
    wrong = tiers.cli("compute", "update", "-n", plain, "--dedicated-instances", 3, check=False)
    assert wrong.returncode != 0 and "the tier is Dedicated" in wrong.stderr, wrong.stderr
    wrong = tiers.cli("compute", "update", "-n", low, "--dedicated-instances", 3, check=False)
    assert wrong.returncode != 0 and "dedicated_instances is 3 and max_instances is 1" in wrong.stderr, wrong.stderr
    for name in (plain, low):
        tiers.drop_cluster(name)


def test_a_floor_as_high_as_the_maximum_is_warned_of(tiers, mixed):
    warned = tiers.cli("compute", "update", "-n", mixed, "--dedicated-instances", 3, "--dry-run").stderr
    assert "dedicated_instances and max_instances are both 3: there is no room for low-priority nodes" in warned, warned
    warned = tiers.cli("compute", "update", "-n", mixed, "--dedicated-instances", 2, "--dry-run").stderr
    assert "Low priority beyond 2 dedicated: a node can be taken back" in warned and "no room" not in warned, warned


def test_azures_clients_see_a_low_priority_cluster_and_leave_the_floor_alone(tiers, mixed):
    ml = MLClient(DefaultAzureCredential(), tiers.subscription, tiers.group, tiers.workspace)
    cluster = ml.compute.get(mixed)
    assert (cluster.tier, cluster.max_instances) == ("low_priority", 3)
    cluster.max_instances = 2
    ml.compute.begin_update(cluster).result()
    shown = json.loads(tiers.cli("compute", "show", "-n", mixed, "-o", "json").stdout)
    assert (shown["max_instances"], shown["dedicated_instances"]) == (2, 1)
    held = {row["name"]["value"]: row["currentValue"] for row in tiers.get(f"/subscriptions/{tiers.subscription}/providers/Microsoft.MachineLearningServices/locations/eastus/usages")["value"]}
    assert (held["Total Cluster Dedicated Regional vCPUs"], held["Total Cluster LowPriority Regional vCPUs"]) == (4, 4), held


def test_a_job_falls_back_to_dedicated_nodes(tiers, mixed, send):
    resources = {"instanceCount": 1, "properties": {"neap": {"retry": {"dedicated_after": 1}}}}
    job = send(mixed, resources=resources, **choosing("Spot"))
    assert runs(tiers, job)["neap.tier"] == "LowPriority"
    [node] = [node["node_id"] for node in tiers.nodes(mixed) if node["job"] == job]
    assert tiers.http("POST", f"{tiers.nws()}/computes/{mixed}/evict", {"node": node, "grace_seconds": 0}).status_code == 202
    wait_until(lambda: tiers.job(job)["properties"].get("neap.tier") == "Dedicated", "it runs on a dedicated node", 60)
    assert "taken back 1 times" in tiers.job(job)["properties"]["neap.tierReason"]


def test_dedicated_work_takes_a_low_priority_node_back_and_has_its_place(tiers, send):
    low, firm = unique("low")[:20], unique("firm")[:20]
    tiers.make_cluster(low, 0, 3, vmPriority="LowPriority")
    tiers.make_cluster(firm, 0, 1, "PT1S")
    crowd = [send(low) for _ in range(3)]
    for job in crowd:
        runs(tiers, job)
    urgent = send(firm, "true")
    tiers.wait_job(urgent, "Completed", 90)
    gone = [node["reason"] for node in tiers.nodes(low, gone=True) if "dedicated work" in node["reason"]]
    assert gone == [f"dedicated work on compute '{firm}' needs the room"], gone
    # Nothing failed, and the one that lost its node goes on once there is room again.
    for job in crowd:
        runs(tiers, job)
    assert sorted(tiers.job(job)["properties"]["neap.attempt"] for job in crowd) == ["1", "1", "2"]
    for job in crowd:
        tiers.http("POST", f"{tiers.ws()}/jobs/{job}/cancel")
    for name in (low, firm):
        tiers.drop_cluster(name)


def test_a_job_that_seems_to_save_nothing_is_warned(tiers, mixed, mark):
    tiers.environment_id()

    def warned(line, **more):
        body = tiers.job_body(mixed, line, environmentVariables={"NEAP_TEST_MARK": mark}, **more)
        answer = tiers.http("PUT", f"{tiers.ws()}/jobs/{unique('job')}", body)
        assert answer.status_code == 201, answer.text
        tiers.wait_job(answer.json()["name"])
        return answer.json()["properties"]["properties"].get("neapWarnings", "")

    assert "neither a checkpoint folder nor an output" in warned("true")
    assert "checkpoint" not in warned("true", **choosing("Standard"))
    assert "checkpoint" not in warned("test -d $AZUREML_CHECKPOINT_DIR")
