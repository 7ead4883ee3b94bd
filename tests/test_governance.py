"""Limits on cores, and locks: through the SDK, Azure Resource Manager and the command line, on a server of their own."""

import json

import pytest
from azure.ai.ml.entities import AmlCompute
from azure.core.exceptions import HttpResponseError

from neapserver import unique, wait_until

FAMILY = "Standard_DSv2_Family_Cluster_Dedicated_vCPUs"
TOTAL = "Total_Cluster_Dedicated_Regional_vCPUs"


@pytest.fixture
def governed(server):
    """Takes away every limit, lock and cluster that a test made."""
    yield server
    for lock in server.json("lock", "list"):
        assert server.http("DELETE", lock["id"]).status_code == 200
    for location in ("eastus", "westus"):
        for row in server.json("quota", "list", "--location", location):
            if row["limit"] is not None:
                scope = row["id"].split("/usages")[0]
                limit(server, f"{scope}/quotas/{row['name'].replace(' ', '_')}", -1, location)
    for cluster in server.get(f"{server.ws()}/computes")["value"]:
        if cluster["name"].startswith("gv"):
            server.drop_cluster(cluster["name"])


def limit(server, quota, value, location="eastus"):
    path = f"/subscriptions/{server.subscription}/providers/Microsoft.MachineLearningServices/locations/{location}/updateQuotas"
    answer = server.http("POST", path, {"value": [{"id": quota, "type": "", "limit": value, "unit": "Count"}]})
    assert answer.status_code == 200, answer.text
    return answer.json()["value"][0]["status"]


def of_subscription(server, name):
    return f"/subscriptions/{server.subscription}/quotas/{name}"


def held(server, name="Standard DSv2 Family Cluster Dedicated vCPUs"):
    path = f"/subscriptions/{server.subscription}/providers/Microsoft.MachineLearningServices/locations/eastus/usages"
    rows = server.get(path)["value"]
    row = next(r for r in rows if r["name"]["value"] == name and r["id"].startswith(f"/subscriptions/{server.subscription}/usages"))
    return row["currentValue"], row["limit"]


# --- limits -------------------------------------------------------------------------------------------------------------


def test_a_cluster_beyond_the_limit_is_refused_with_everything_there_is_to_know(governed, ml):
    server, first, second = governed, unique("gv"), unique("gv")
    before, _ = held(server)
    assert limit(server, of_subscription(server, FAMILY), before + 24) == "Success"
    server.make_cluster(first, 0, 4)
    assert held(server) == (before + 16, before + 24)
    with pytest.raises(HttpResponseError) as refusal:
        ml.compute.begin_create_or_update(AmlCompute(name=second, size="STANDARD_DS3_v2", location="eastus", max_instances=3)).result()
    assert refusal.value.status_code == 409 and refusal.value.error.code == "ClusterCoreQuotaReached"
    for part in ("Standard DSv2 Family", "in eastus", f"'{first}' 16", "8 are free", "12 cores", "lower maxNodeCount to 2", "neap quota request"):
        assert part in refusal.value.message, f"{part}: {refusal.value.message}"
    assert server.http("GET", f"{server.ws()}/computes/{second}").status_code == 404, "nothing is left behind"
    ml.compute.begin_create_or_update(AmlCompute(name=second, size="STANDARD_DS3_v2", location="eastus", max_instances=2)).result()
    with pytest.raises(HttpResponseError) as refusal:
        ml.compute.begin_create_or_update(AmlCompute(name=unique("gv"), size="STANDARD_DS3_v2", location="eastus", min_instances=1, max_instances=1)).result()
    assert refusal.value.error.code == "ClusterMinNodesExceedCoreQuota"
    server.drop_cluster(first)
    assert held(server)[0] == before + 8, "deletion releases it"


def test_the_command_line_says_the_same_and_asks_for_more(governed):
    server, name = governed, unique("gv")
    # Other suites have clusters on this server.
    before = held(server, "Total Cluster Dedicated Regional vCPUs")[0]
    pool = ["--dedicated", "--level", "workspace", "--location", "eastus"]
    server.cli("quota", "set", *pool, "--limit", before + 8)
    create = ["compute", "create", "-n", name, "--type", "AmlCompute", "--size", "STANDARD_DS3_v2", "--location", "eastus", "--max-instances", "9"]
    refused = server.cli(*create, check=False)
    assert refused.returncode == 1
    assert "ClusterCoreQuotaReached" in refused.stderr and "the limit of workspace" in refused.stderr and f"is {before + 8} cores" in refused.stderr, refused.stderr
    asked = server.json("quota", "request", *pool, "--limit", before + 64, "--reason", "training")
    again = server.json("quota", "request", *pool, "--limit", before + 640)
    assert (asked["status"], asked["current_limit"], asked["limit"], asked["reason"]) == ("Open", before + 8, before + 64, "training")
    assert server.json("quota", "deny", again["id"], "--reason", "too many")["status"] == "Denied"
    assert server.json("quota", "approve", asked["id"])["status"] == "Approved"
    twice = server.cli("quota", "approve", asked["id"], check=False)
    assert twice.returncode == 1 and "was approved by 'owner'" in twice.stderr
    assert server.json(*create)["max_instances"] == 9
    rows = server.json("quota", "list", "--location", "eastus")
    own = next(r for r in rows if r["name"].startswith("Total Cluster Dedicated") and r["holder"].startswith("workspace"))
    assert (own["limit"], own["free"]) == (before + 64, 64 - 36)
    statuses = {r["id"]: r["status"] for r in server.json("quota", "requests")}
    assert (statuses[asked["id"]], statuses[again["id"]]) == ("Approved", "Denied")


def test_a_lowered_limit_stops_growth_says_so_and_kills_nothing(governed, mark):
    server, name = governed, unique("gv")
    server.make_cluster(name, 0, 2, "PT60S")
    env = {"environmentVariables": {"NEAP_TEST_MARK": mark}}
    first = server.submit(name, "sleep 60", **env)
    server.wait_job(first, {"Running"})
    limit(server, of_subscription(server, TOTAL), 1)
    second = server.submit(name, "true", **env)
    wait_until(lambda: any("neap quota request --dedicated" in why for why in server.explain(second)["reasons"]), "the quota is the reason")
    assert server.status(first) == "Running" and len(server.nodes(name)) == 1
    limit(server, of_subscription(server, TOTAL), -1)
    server.wait_job(second, {"Completed"})
    assert server.status(first) == "Running"
    server.http("POST", f"{server.ws()}/jobs/{first}/cancel")
    server.wait_job(first, {"Canceled"})


def test_limits_that_cannot_be_set_are_named(governed):
    server = governed
    limit(server, of_subscription(server, TOTAL), 10)
    own = f"{server.ws()}/quotas/"
    assert limit(server, own + TOTAL, 11) == "InvalidQuotaExceedsSubscriptionLimit"
    assert limit(server, own + "Standard_Nope_Family_Cluster_Dedicated_vCPUs", 1) == "InvalidVMFamilyName"
    path = f"/subscriptions/{server.subscription}/providers/Microsoft.MachineLearningServices/locations/eastus/quotas"
    assert [(r["name"]["value"], r["limit"]) for r in server.get(path)["value"]] == [("Total Cluster Dedicated Regional vCPUs", 10)]
    wrong = server.cli("quota", "set", "--family", "standardNopeFamily", "--limit", "1", "--location", "eastus", check=False)
    assert wrong.returncode == 1 and "There is no quota" in wrong.stderr
    assert server.cli("quota", "set", "--dedicated", "--clusters", "--limit", "1", check=False).returncode == 2
    unlimited = server.cli("quota", "request", "--clusters", "--limit", "5", "--location", "eastus", check=False)
    assert unlimited.returncode == 1 and "nothing needs to be asked for" in unlimited.stderr


# --- locks --------------------------------------------------------------------------------------------------------------


def test_a_locked_cluster_is_not_deleted_and_still_scales(governed, mark):
    server, name = governed, unique("gv")
    server.make_cluster(name, 0, 1)
    made = server.json("lock", "create", "-n", "keep", "--lock-type", "CanNotDelete", "--compute", name, "--notes", "production")
    assert (made["level"], made["on"], made["notes"]) == ("CanNotDelete", f"compute {name}", "production")
    refused = server.http("DELETE", f"{server.ws()}/computes/{name}?underlyingResourceAction=Delete")
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "ScopeLocked", refused.text
    assert "lock 'keep'" in refused.json()["error"]["message"]
    whole = server.http("DELETE", server.ws())
    assert whole.status_code == 409 and whole.json()["error"]["code"] == "ScopeLocked", whole.text
    job = server.submit(name, "true", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, {"Completed"})
    server.cli("lock", "delete", "-n", "keep")
    server.drop_cluster(name)


def test_a_lock_on_the_group_stops_scaling_and_says_how_to_cure_it(governed, mark):
    server, name = governed, unique("gv")
    server.make_cluster(name, 0, 1)
    server.cli("lock", "create", "-n", "freeze", "--lock-type", "cannotdelete", "--on", "group")
    job = server.submit(name, "true", environmentVariables={"NEAP_TEST_MARK": mark})
    wait_until(lambda: any("lock the single resources instead of the group" in why for why in server.explain(job)["reasons"]), "the lock is the reason")
    shown = server.json("compute", "show", "-n", name)
    assert "freeze" in json.dumps(shown), shown
    assert server.nodes(name) == []
    server.cli("lock", "delete", "-n", "freeze", "--on", "group")
    server.wait_job(job, {"Completed"})


def test_a_read_only_workspace_takes_nothing_and_can_be_listed(governed):
    server, name = governed, unique("gv")
    server.make_cluster(name, 0, 1)
    path = f"{server.ws()}/providers/Microsoft.Authorization/locks/audit"
    assert server.http("PUT", path, {"properties": {"level": "ReadOnly", "notes": "audit"}}).status_code == 201
    assert server.http("PUT", path, {"properties": {"level": "ReadOnly", "notes": "audit again"}}).status_code == 200
    for method, below in (("PUT", f"computes/{unique('gv')}"), ("DELETE", f"computes/{name}"), ("PUT", f"jobs/{unique('job')}")):
        body = server.job_body(name, "true") if below.startswith("jobs") else {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {}}}
        answer = server.http(method, f"{server.ws()}/{below}", None if method == "DELETE" else body)
        assert answer.status_code == 409 and answer.json()["error"]["code"] == "ScopeLocked", f"{method} {below}: {answer.text}"
    listed = server.get(f"{server.ws()}/providers/Microsoft.Authorization/locks")["value"]
    assert [(lock["name"], lock["properties"]["notes"]) for lock in listed] == [("audit", "audit again")]
    assert server.http("DELETE", path).status_code == 200
    assert server.http("DELETE", path).status_code == 204
    assert server.http("GET", path).status_code == 404


def test_wrong_locks_are_refused_in_words(governed):
    server = governed
    level = server.cli("lock", "create", "-n", "x", "--lock-type", "Frozen", "--on", "workspace", check=False)
    assert level.returncode == 1 and "CanNotDelete or ReadOnly, not 'Frozen'" in level.stderr
    nowhere = server.cli("lock", "create", "-n", "x", "--lock-type", "ReadOnly", "--compute", "gv-nope", check=False)
    assert nowhere.returncode == 3, nowhere.stderr
    gone = server.cli("lock", "delete", "-n", "gv-nope", check=False)
    assert gone.returncode == 3 and "neap lock list" in gone.stderr
    above = server.http("PUT", f"/subscriptions/{server.subscription}/providers/Microsoft.Authorization/locks/x", {"properties": {"level": "ReadOnly"}})
    assert above.status_code == 400 and "cannot be locked" in above.text


# --- money --------------------------------------------------------------------------------------------------------------


def micro(rows):
    return {row["name"]: round(float(row["usd"]) * 1_000_000) for row in rows}


def test_the_sum_of_every_view_is_the_bill_of_the_nodes(own_server, mark):
    server = own_server("cost")
    server.make_cluster("costly", 0, 1, "PT1S", size="STANDARD_D64S_V3")
    env = {"environmentVariables": {"NEAP_TEST_MARK": mark}}
    good = server.submit("costly", "sleep 1", tags={"team": "vision"}, **env)
    server.wait_job(good, {"Completed"})
    bad = server.submit("costly", "sleep 1; exit 3", tags={"team": "speech"}, **env)
    server.wait_job(bad, {"Failed"})
    wait_until(lambda: server.nodes("costly") == [], "the node is gone", 60)
    by = {word: micro(server.json("cost", "--by", word)) for word in ("cluster", "job", "user", "cause", "node", "tag:team")}
    totals = {word: sum(rows.values()) for word, rows in by.items()}
    assert len(set(totals.values())) == 1 and totals["cluster"] > 0, totals
    assert set(by["job"]) == {good, bad} and set(by["tag:team"]) == {"vision", "speech"}
    causes = by["cause"]
    assert {"boot", "run", "failed", "idle"} <= set(causes), causes
    assert causes["run"] > 0 and causes["failed"] > 0
    # The bill by hand: from being asked for to being gone, at the size's price.
    price = next(s for s in server.json("compute", "list-sizes", "--location", "eastus") if s["name"] == "Standard_D64s_v3")["estimated_vm_prices"]
    assert price, "the size has a price"
    csv = server.cli("cost", "--by", "job", "--csv").stdout.splitlines()
    assert csv[0] == "name,kind,usd,node_hours,quantity,unit" and len(csv) == 3
    assert sum(micro(server.json("cost", "--to", "2020-01-01")).values()) == 0
    wrong = server.cli("cost", "--by", "colour", check=False)
    assert wrong.returncode == 1 and "tag:NAME" in wrong.stderr
    assert server.cli("cost", "--from", "soon", check=False).returncode == 2
    verified = server.cli("down", check=False)
    assert verified.returncode == 0
    replayed = server.cli("verify", "--replay", check=False)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


# --- changes ------------------------------------------------------------------------------------------------------------


def test_every_change_is_a_revision_that_one_can_go_back_to(governed):
    server, name = governed, unique("gv")
    server.make_cluster(name, 0, 2)
    server.cli("compute", "update", "-n", name, "--max-instances", "5", "--tags", "team=vision", "--change-reference", "OPS-1")
    planned = server.json("compute", "update", "-n", name, "--max-instances", "0", "--dry-run")
    assert planned["changes"] == [{"field": "max_instances", "from": 5, "to": 0}] and planned["revision"] == 3
    assert server.cluster(name)["scaleSettings"]["maxNodeCount"] == 5, "nothing was done"
    server.cli("compute", "update", "-n", name, "--max-instances", "1")
    history = server.json("compute", "history", "-n", name)
    assert [(r["revision"], r["max_instances"], r["reference"], r["current"]) for r in history] == [(3, 1, None, True), (2, 5, "OPS-1", False), (1, 2, None, False)]
    assert all(r["by"] and r["at"] for r in history)
    asked = server.cli("compute", "rollback", "-n", name, "--to", "2", check=False, text="n\n")
    assert asked.returncode != 0 and server.cluster(name)["scaleSettings"]["maxNodeCount"] == 1
    server.cli("compute", "rollback", "-n", name, "--to", "2", "--yes", "--change-reference", "OPS-2")
    now = server.json("compute", "history", "-n", name)[0]
    assert (now["revision"], now["max_instances"], now["tags"], now["reference"]) == (4, 5, {"team": "vision"}, "OPS-2")
    unknown = server.cli("compute", "rollback", "-n", name, "--to", "9", check=False)
    assert unknown.returncode == 3 and "neap compute history" in unknown.stderr


def test_a_plan_of_a_new_cluster_says_what_it_would_cost_and_refuses_what_would_be_refused(governed):
    server, name = governed, unique("gv")
    planned = server.cli("compute", "create", "-n", name, "-t", "amlcompute", "--location", "eastus", "--min-instances", "2", "--dry-run")
    assert '"nodes_added": 2' in planned.stdout and "USD a day" in planned.stderr, planned.stderr
    assert server.http("GET", f"{server.ws()}/computes/{name}").status_code == 404
    old = server.cli("compute", "create", "-n", name, "-t", "amlcompute", "--size", "Standard_NC6", "--dry-run", check=False)
    assert old.returncode == 1 and "retired on 2023-08-31" in old.stderr and "Standard_NC4as_T4_v3" in old.stderr
