"""Every refusal of sizes, places and money, with its text, through Azure Resource Manager (or Neap's own REST, where Azure has no words)
and through the command line."""

import pytest

from neapserver import unique

CONFIG = """
locations: [eastus, westus]
sizes:
  - {name: Rack, family: rack, cores: 1, memory_gb: 1, price: 1, locations: [westus]}
"""


@pytest.fixture(scope="module")
def strict(mark):
    from neapserver import Server, new_home, remove

    home = new_home("refuse")
    (home / "config.yaml").write_text(CONFIG)
    server = Server(home)
    server.up()
    server.environment_id()
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.assert_nothing_left(mark)
    remove(home)


def both(server, code, text, size="Standard_DS3_v2", tier=None, location="eastus", low=0, high=1, status=400, name=None):
    """The same cluster through both: refused by both, with the same words."""
    name = name or unique("rf")
    scale = {"minNodeCount": low, "maxNodeCount": high, "nodeIdleTimeBeforeScaleDown": "PT2S"}
    inner = {"vmSize": size, "scaleSettings": scale, **({"vmPriority": tier} if tier else {})}
    answer = server.http("PUT", f"{server.ws()}/computes/{name}", {"location": location, "properties": {"computeType": "AmlCompute", "properties": inner}})
    error = answer.json().get("error", {})
    assert (answer.status_code, error.get("code")) == (status, code), answer.text
    assert text in error["message"], answer.text
    words = ["compute", "create", "-n", name, "--type", "AmlCompute", "--size", size, "--location", location, "--min-instances", low, "--max-instances", high]
    refused = server.cli(*words, *(["--tier", tier] if tier else []), check=False)
    assert refused.returncode == 1 and text in refused.stderr and code in refused.stderr, refused.stderr
    assert server.http("GET", f"{server.ws()}/computes/{name}").status_code == 404, "nothing is left behind"


@pytest.mark.parametrize(
    ("size", "series", "since", "instead"),
    [
        ("Standard_NC6", "NC", "2023-08-31", "Standard_NC4as_T4_v3"),
        ("Standard_NC6_Promo", "NC_Promo", "2023-08-31", "Standard_NC4as_T4_v3"),
        ("Standard_NC12s_v2", "NCv2", "2023-08-31", "Standard_NC24ads_A100_v4"),
        ("Standard_ND6s", "ND", "2023-08-31", "Standard_NC24ads_A100_v4"),
        ("Standard_NV6", "NV", "2023-08-31", "Standard_NV36ads_A10_v5"),
        ("Standard_NV6_Promo", "NV_Promo", "2023-08-31", "Standard_NV36ads_A10_v5"),
        ("Standard_A1", "Av1", "2024-08-31", "Standard_D2s_v3"),
        ("Standard_HB60rs", "HB", "2024-08-31", "Standard_HB120rs_v3"),
    ],
)
def test_a_retired_series(strict, size, series, since, instead):
    both(strict, "InvalidVmSize", f"The VM size '{size}' is of the {series} series, which was retired on {since}; use for example {instead}.", size=size)


def test_an_unknown_size_and_one_that_is_elsewhere(strict):
    both(strict, "InvalidVmSize", "The VM size 'Standard_DS3_v9' is not known. Did you mean one of", size="Standard_DS3_v9")
    both(strict, "InvalidVmSize", "The VM size 'Quantum' is not known. 'neap compute list-sizes' lists those that are.", size="Quantum")
    both(strict, "InvalidVmSize", "The VM size 'Rack' is not offered in eastus; it is in westus.", size="Rack")


def test_a_size_without_low_priority_and_a_tier_that_is_none(strict):
    text = "The VM size 'Rack' has no low-priority tier; use Dedicated."
    name = unique("rf")
    body = {"location": "westus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "Rack", "vmPriority": "LowPriority"}}}
    answer = strict.http("PUT", f"{strict.ws()}/computes/{name}", body)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "InvalidVmSize" and text in answer.text, answer.text
    refused = strict.cli("compute", "create", "-n", name, "--type", "AmlCompute", "--size", "Rack", "--location", "westus", "--tier", "low_priority", check=False)
    assert refused.returncode == 1 and text in refused.stderr, refused.stderr
    body["properties"]["properties"]["vmPriority"] = "Spot"
    answer = strict.http("PUT", f"{strict.ws()}/computes/{name}", body)
    assert answer.status_code == 400 and "The tier 'Spot' is not known; it is Dedicated or LowPriority." in answer.text, answer.text
    refused = strict.cli("compute", "create", "-n", name, "--type", "AmlCompute", "--tier", "Spot", check=False)
    assert refused.returncode != 0 and "tier" in refused.stderr and "dedicated" in refused.stderr.lower(), refused.stderr


def test_a_location_that_is_not_there(strict):
    text = "The location 'atlantis' is not known here. Known are, for example: eastus, westus."
    both(strict, "LocationNotAvailable", text, location="atlantis")
    # Of a workspace, and of a limit.
    group = f"/subscriptions/{strict.subscription}/resourceGroups/{strict.group}"
    answer = strict.http("PUT", f"{group}/providers/Microsoft.MachineLearningServices/workspaces/{unique('ws')}", {"location": "atlantis", "properties": {}})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "LocationNotAvailable" and text in answer.text, answer.text
    refused = strict.cli("workspace", "create", "-n", unique("ws"), "--location", "atlantis", check=False)
    assert refused.returncode == 1 and text in refused.stderr, refused.stderr
    refused = strict.cli("quota", "set", "--dedicated", "--limit", "4", "--location", "atlantis", check=False)
    assert refused.returncode == 1 and "atlantis" in refused.stderr, refused.stderr
    refused = strict.cli("compute", "list-sizes", "--location", "atlantis", check=False)
    assert refused.returncode == 1 and "There is no location 'atlantis' on this server." in refused.stderr, refused.stderr


def test_a_location_stays(strict):
    name = unique("rf")
    strict.make_cluster(name, 0, 1)
    text = f"The location of compute '{name}' is eastus and cannot be changed to westus"
    body = {"location": "westus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2"}}}
    answer = strict.http("PUT", f"{strict.ws()}/computes/{name}", body)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "PropertyChangeNotAllowed" and text in answer.text, answer.text
    refused = strict.cli("compute", "create", "-n", name, "--type", "AmlCompute", "--location", "westus", check=False)
    assert refused.returncode == 1 and text in refused.stderr, refused.stderr
    strict.drop_cluster(name)


def test_a_quota_says_which_location_has_room(strict):
    name = unique("rf")
    for location, limit in (("eastus", 4), ("westus", 40)):
        strict.cli("quota", "set", "--dedicated", "--limit", limit, "--location", location)
    try:
        both(strict, "ClusterCoreQuotaReached", "westus has room for 10 such nodes.", high=2, status=409, name=name)
        strict.cli("quota", "set", "--dedicated", "--limit", 4, "--location", "westus")
        both(strict, "ClusterCoreQuotaReached", "No other location has room.", high=2, status=409, name=name)
        both(strict, "ClusterMinNodesExceedCoreQuota", "2 nodes of STANDARD_DS3_V2 are 8 cores", low=2, high=2, status=409, name=name)
    finally:
        for location in ("eastus", "westus"):
            strict.cli("quota", "set", "--dedicated", "--limit", "none", "--location", location)


def test_a_budget_that_cannot_be(strict):
    def refused(text, *words, body=None, status=400):
        done = strict.cli("budget", "create", "-n", "bad", *words, check=False)
        assert done.returncode != 0 and text in done.stderr, done.stderr
        if body is not None:
            answer = strict.http("PUT", "/neap/v1/budgets/bad", body)
            assert answer.status_code == status and text in answer.text, answer.text

    def body(**more):
        return {"amount_usd": "1", "scope": {"kind": "user", "user": "me"}, **more}

    refused("'lots' is no amount of dollars such as 250 or 12.50.", "--amount", "lots", "--user", "me", body=body(amount_usd="lots"))
    refused("it must be more than nothing", "--amount", "0", "--user", "me", body=body(amount_usd="0"))
    refused("The threshold 120 is not a percentage from 1 to 100.", "--amount", "1", "--user", "me", "--threshold", "120", body=body(thresholds=[120]))
    nowhere = {"kind": "cluster", "subscription": strict.subscription, "resource_group": strict.group, "workspace": strict.workspace, "compute": "nowhere"}
    refused("The compute 'nowhere' was not found", "--amount", "1", "--compute", "nowhere", body=body(scope=nowhere), status=404)
    gone = strict.cli("budget", "show", "-n", "bad", check=False)
    assert gone.returncode == 3 and "There is no budget 'bad'; 'neap budget list' shows those there are." in gone.stderr, gone.stderr
    assert strict.http("GET", "/neap/v1/budgets/bad").status_code == 404


def test_a_budget_too_small_for_its_job(strict, tmp_path):
    name, job = unique("rf"), unique("job")
    strict.make_cluster(name, 0, 1)
    strict.cli("budget", "create", "-n", "tiny", "--amount", "0.000001", "--period", "total", "--job", job)
    text = f"Budget 'tiny' on job '{job}'"
    answer = strict.http("PUT", f"{strict.ws()}/jobs/{job}", strict.job_body(name, "true"))
    assert answer.status_code == 409 and answer.json()["error"]["code"] == "BudgetTooSmall" and text in answer.text, answer.text
    spec = tmp_path / "job.yml"
    spec.write_text(f"command: 'true'\nname: {job}\ncompute: azureml:{name}\nenvironment: azureml:plain:1\n")
    refused = strict.cli("job", "create", "-f", spec, check=False)
    assert refused.returncode == 1 and "BudgetTooSmall" in refused.stderr and text in refused.stderr, refused.stderr
    strict.cli("budget", "delete", "-n", "tiny")
    strict.drop_cluster(name)


def test_cost_that_cannot_be_asked_for(strict):
    for query, words, text in [
        ("by=moon", ["--by", "moon"], "Cost is summed by cluster, job, user, cause, node or tag:NAME, not by 'moon'."),
        ("by=tag:", ["--by", "tag:"], "Cost is summed by cluster, job, user, cause, node or tag:NAME, not by 'tag:'."),
    ]:
        answer = strict.http("GET", f"{strict.nws()}/cost?{query}")
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "BadArgument" and text in answer.text, answer.text
        refused = strict.cli("cost", *words, check=False)
        assert refused.returncode == 1 and text in refused.stderr, refused.stderr
    answer = strict.http("GET", f"{strict.nws()}/cost?from=yesterday")
    assert answer.status_code == 400 and "'yesterday' is not a time such as" in answer.text, answer.text
    assert strict.cli("cost", "--from", "yesterday", check=False).returncode == 2
