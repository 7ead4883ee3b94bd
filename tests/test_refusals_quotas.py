"""Every refusal of quotas, requests for more, and limits per user and team, with its text, through Azure Resource Manager (or Neap's own REST,
where Azure has no words) and through the command line."""

import pytest

from neapserver import unique
from refusing import by_cli, by_rest, cluster_body, job_file, refused

TOTAL = "Total_Cluster_Dedicated_Regional_vCPUs"


@pytest.fixture
def limits(strict):
    """Sets limits and takes them away afterwards."""
    made = []

    def limit(*which, value=4, location="eastus"):
        made.append((which, location))
        strict.cli("quota", "set", *which, "--limit", value, "--location", location)

    yield limit
    for which, location in reversed(made):
        strict.cli("quota", "set", *which, "--limit", "none", "--location", location)


@pytest.fixture
def clusters(strict):
    made = []

    def make(*args, **more):
        made.append(unique("rf"))
        strict.make_cluster(made[-1], *args, **more)
        return made[-1]

    yield make
    for name in made:
        strict.drop_cluster(name)


def asks(strict, name, low=0, high=1, tier=None, floor=None):
    """The same cluster by ARM and by the command line."""
    more = {**({"vmPriority": "LowPriority"} if tier else {}), **({"neapDedicatedNodeCount": floor} if floor else {})}
    body = cluster_body(low=low, high=high, **more)
    words = ["compute", "create", "-n", name, "--type", "AmlCompute", "--location", "eastus", "--size", "STANDARD_DS3_V2", "--min-instances", low, "--max-instances", high]
    words += ["--tier", "low_priority"] if tier else []
    words += ["--dedicated-instances", floor] if floor else []
    return ("PUT", f"{strict.ws()}/computes/{name}", body), words


def test_the_number_asked_held_by_whom_free_and_what_to_do(strict, limits, clusters):
    first, second, name = clusters(0, 2), clusters(0, 1), unique("rf")
    limits("--dedicated", value=20)
    limits("--dedicated", value=8, location="westus")
    text = (
        f"Total Cluster Dedicated Regional vCPUs in eastus: the limit of subscription {strict.subscription} is 20 cores, 12 are held ('{first}' 8, '{second}' 4), "
        "8 are free, and 3 nodes of STANDARD_DS3_V2 at 4 cores are 12 cores. To go on: lower maxNodeCount to 2, lower or delete what holds them, "
        "or ask for more with 'neap quota request --dedicated --location eastus --limit 24'. "
    )
    ask, words = asks(strict, name, high=3)
    refused(strict, ask, words, "ClusterCoreQuotaReached", text, status=409)
    # Not even the minimum has room.
    text = "8 are free, and 3 nodes of STANDARD_DS3_V2 are 12 cores. To go on: lower minNodeCount and maxNodeCount to 2, lower or delete what holds them, or ask for more with 'neap quota request --dedicated --location eastus --limit 24'."
    ask, words = asks(strict, name, low=3, high=3)
    refused(strict, ask, words, "ClusterMinNodesExceedCoreQuota", text, status=409)
    # A larger maximum of one that is there; by its own figures, not with itself as a holder.
    ask, _ = asks(strict, second, high=4)
    refused(strict, ask, ["compute", "update", "-n", second, "--max-instances", 4], "ClusterCoreQuotaReached", f"8 are held by others ('{first}' 8), 12 are free, and 4 nodes of STANDARD_DS3_V2 at 4 cores are 16 cores.", status=409)
    by_rest(strict, ("POST", f"computes/{second}/plan", ask[2]), "ClusterCoreQuotaReached", f"8 are held by others ('{first}' 8)", status=409)
    by_cli(strict, ["plan", "compute", "update", second, "--max-instances", 4], "(ClusterCoreQuotaReached)", f"8 are held by others ('{first}' 8)")
    by_cli(strict, ["compute", "update", "-n", second, "--max-instances", 4, "--dry-run"], "(ClusterCoreQuotaReached)", f"8 are held by others ('{first}' 8)")


@pytest.mark.parametrize(
    ("which", "value", "cluster", "code", "text"),
    [
        (["--family", "standardDSv2Family"], 4, {"high": 2}, "ClusterCoreQuotaReached", "Standard DSv2 Family Cluster Dedicated vCPUs in eastus: the limit of subscription {s} is 4 cores, 0 are held, 4 are free, and 2 nodes of STANDARD_DS3_V2 at 4 cores are 8 cores. To go on: lower maxNodeCount to 1, lower or delete what holds them, or ask for more with 'neap quota request --family standardDSv2Family --location eastus --limit 8'."),
        (["--low-priority"], 4, {"high": 2, "tier": True}, "ClusterCoreQuotaReached", "Total Cluster LowPriority Regional vCPUs in eastus: the limit of subscription {s} is 4 cores, 0 are held, 4 are free, and 2 nodes of STANDARD_DS3_V2 at 4 cores are 8 cores."),
        (["--low-priority"], 3, {"high": 2, "tier": True}, "ClusterMinNodesExceedCoreQuota", "3 are free, and 1 node of STANDARD_DS3_V2 is 4 cores (the maximum asked for is 8). To go on: lower or delete what holds them"),
        (["--dedicated"], 4, {"high": 3, "tier": True, "floor": 2}, "ClusterCoreQuotaReached", "Total Cluster Dedicated Regional vCPUs in eastus: the limit of subscription {s} is 4 cores, 0 are held, 4 are free, and 2 nodes of STANDARD_DS3_V2 at 4 cores are 8 cores."),
        (["--clusters"], 0, {}, "ClusterCoreQuotaReached", "Clusters in eastus: the limit of subscription {s} is 0 clusters, 0 are held, 0 are free, and this is one more cluster. To go on: lower or delete what holds them, or ask for more with 'neap quota request --clusters --location eastus --limit 1'."),
        (["--nodes-per-cluster"], 2, {"high": 3}, "ClusterCoreQuotaReached", "maxNodeCount is 3; subscription {s} allows 2 nodes per cluster in eastus. Lower maxNodeCount, or ask for more with 'neap quota request --nodes-per-cluster --location eastus --limit 3'."),
        (["--dedicated", "--level", "workspace"], 4, {"high": 2}, "ClusterCoreQuotaReached", "the limit of workspace 'default' is 4 cores, 0 are held, 4 are free"),
    ],
)
def test_each_limit_speaks_for_itself(strict, limits, which, value, cluster, code, text):
    limits(*which, value=value)
    name = unique("rf")
    ask, words = asks(strict, name, **cluster)
    refused(strict, ask, words, code, text.format(s=strict.subscription), status=409)
    assert strict.http("GET", f"{strict.ws()}/computes/{name}").status_code == 404


def test_every_limit_that_is_passed_is_told(strict, limits):
    limits("--dedicated")
    limits("--family", "standardDSv2Family")
    limits("--nodes-per-cluster", value=1)
    ask, words = asks(strict, unique("rf"), high=2)
    error = by_rest(strict, ask, "ClusterCoreQuotaReached", "Standard DSv2 Family", "Total Cluster Dedicated", "1 nodes per cluster", status=409)
    assert len(error["details"]) == 3, error
    by_cli(strict, words, "Standard DSv2 Family", "Total Cluster Dedicated", "1 nodes per cluster")


def test_a_job_on_more_nodes_than_the_quota_allows(strict, limits, clusters, tmp_path):
    for name, which, text in [
        (clusters(0, 3), ["--dedicated"], "The job asks for 3 nodes of STANDARD_DS3_V2 at once and the quota allows 1; ask for fewer, or for more quota ('neap quota list', 'neap quota request')."),
        (clusters(0, 4, vmPriority="LowPriority", neapDedicatedNodeCount=1), ["--low-priority"], "The job asks for 3 nodes of STANDARD_DS3_V2 at once and the quota allows 1; ask for fewer, or for more quota ('neap quota list', 'neap quota request')."),
    ]:
        limits(*which)
        ask = ("PUT", f"{strict.ws()}/jobs/{unique('job')}", strict.job_body(name, "true", resources={"instanceCount": 3}))
        file = job_file(tmp_path, name, resources={"instance_count": 3})
        refused(strict, ask, ["job", "create", "-f", file], "JobNodeCountExceedsCoreQuota", text, status=409)
        by_cli(strict, ["plan", "-f", file], "(JobNodeCountExceedsCoreQuota)", text)


def setting(strict):
    return f"/subscriptions/{strict.subscription}/providers/Microsoft.MachineLearningServices/locations/eastus/updateQuotas"


def set_one(strict, **item):
    """What Azure's call answers to one limit: it is taken or not by itself."""
    answer = strict.http("POST", setting(strict), {"value": [{"type": "", "unit": "Count", **item}]})
    assert answer.status_code == 200, answer.text
    [row] = answer.json()["value"]
    return row["status"], row["message"]


def test_a_limit_that_cannot_be_set(strict, limits):
    place = setting(strict)
    top = f"/subscriptions/{strict.subscription}/quotas/"
    by_rest(strict, ("POST", place, {}), "BadArgument", "'value' is the list of limits to set.")
    by_rest(strict, ("POST", place.replace("eastus", "atlantis"), {"value": []}), "LocationNotAvailable", "There is no location 'atlantis' on this server.")
    by_cli(strict, ["quota", "set", "--dedicated", "--limit", 1, "--location", "atlantis"], "(LocationNotAvailable)", "There is no location 'atlantis' on this server.")
    by_cli(strict, ["quota", "list", "--location", "atlantis"], "(LocationNotAvailable)", "There is no location 'atlantis' on this server.")
    # Each item is answered by itself, with Azure's word for it and a sentence.
    text = "There is no quota 'Standard Nope Family Cluster Dedicated vCPUs'; 'neap quota list --all' shows those there are."
    assert set_one(strict, id=top + "Standard_Nope_Family_Cluster_Dedicated_vCPUs", limit=1) == ("InvalidVMFamilyName", text)
    by_cli(strict, ["quota", "set", "--family", "standardNopeFamily", "--limit", 1, "--location", "eastus"], text)
    limits("--dedicated", value=10)
    text = "A workspace's limit cannot be above the subscription's, which is 10."
    assert set_one(strict, id=f"{strict.ws()}/quotas/{TOTAL}", limit=11) == ("InvalidQuotaExceedsSubscriptionLimit", text)
    by_cli(strict, ["quota", "set", "--dedicated", "--level", "workspace", "--limit", 11, "--location", "eastus"], text)
    by_cli(strict, ["quota", "set", "--dedicated", "--limit", "lots"], "invalid value 'lots'", "give a whole number, or none", exit=2)
    by_cli(strict, ["quota", "set", "--limit", 1], "the following required arguments were not provided", exit=2)
    by_cli(strict, ["quota", "set", "--dedicated", "--clusters", "--limit", 1], "cannot be used with", exit=2)


def test_a_limit_that_is_no_number_is_said_in_words(strict):
    item = {"id": f"/subscriptions/{strict.subscription}/quotas/{TOTAL}", "limit": "lots"}
    assert set_one(strict, **item) == ("Failure", "(BadArgument) 'limit' is a whole number; a negative one takes the limit away.")


def test_requests_for_more_that_cannot_be(strict, limits):
    path = f"/neap/v1/subscriptions/{strict.subscription}/quotaRequests"
    top = f"/subscriptions/{strict.subscription}/quotas/"
    ask = {"location": "eastus", "id": top + TOTAL, "limit": 8}
    words = ["quota", "request", "--dedicated", "--location", "eastus", "--limit", 8]
    text = "There is no limit on Total Cluster Dedicated Regional vCPUs in eastus: nothing needs to be asked for."
    refused(strict, ("POST", path, ask), words, "BadArgument", text)
    limits("--dedicated", value=8)
    refused(strict, ("POST", path, ask), words, "BadArgument", "The limit on Total Cluster Dedicated Regional vCPUs in eastus is 8 already.")
    text = "The location 'atlantis' is not known here. Known are, for example: eastus, westus."
    refused(strict, ("POST", path, {**ask, "location": "atlantis"}), ["quota", "request", "--dedicated", "--location", "atlantis", "--limit", 8], "LocationNotAvailable", text)
    text = "There is no quota 'Standard Nope Family Cluster Dedicated vCPUs'; 'neap quota list --all' shows those there are."
    nope = {**ask, "id": top + "Standard_Nope_Family_Cluster_Dedicated_vCPUs"}
    refused(strict, ("POST", path, nope), ["quota", "request", "--family", "standardNopeFamily", "--location", "eastus", "--limit", 8], "BadArgument", text)
    by_rest(strict, ("POST", path, {"location": "eastus"}), "BadArgument", "'id' is of a subscription or a workspace, and ends in /quotas/ and a name.", "'limit' is the number that is asked for.")
    nope = {**ask, "id": f"{strict.ws(workspace='nowhere')}/quotas/{TOTAL}"}
    by_rest(strict, ("POST", path, nope), "BadArgument", f"There is no workspace 'nowhere' in group '{strict.group}'.")
    by_cli(strict, ["quota", "request", "--dedicated", "--location", "eastus", "--limit", "lots"], "invalid value 'lots'", exit=2)
    by_cli(strict, ["quota", "request", "--dedicated", "--location", "eastus"], "--limit <N>", exit=2)
    refused(strict, ("POST", f"{path}/999999/approve", {}), ["quota", "approve", 999999], "ResourceNotFound", "There is no quota request 999999.", status=404)
    refused(strict, ("POST", f"{path}/999999/deny", {}), ["quota", "deny", 999999], "ResourceNotFound", "There is no quota request 999999.", status=404)
    by_rest(strict, ("POST", f"{path}/first/approve", {}), "BadArgument", "'first' is not the number of a request.")
    by_cli(strict, ["quota", "approve", "first"], "invalid value 'first'", exit=2)
    made = strict.json("quota", "request", "--dedicated", "--location", "eastus", "--limit", 9)["id"]
    strict.cli("quota", "deny", made, "--reason", "no")
    for verb in ("approve", "deny"):
        refused(strict, ("POST", f"{path}/{made}/{verb}", {}), ["quota", verb, made], "QuotaRequestAnswered", f"The quota request {made} was denied by", status=409)


def test_limits_of_users_and_teams_that_cannot_be(strict):
    text = "There is no team 'nobody'; 'teams' in the configuration has: vision."
    refused(strict, ("PUT", "allowances", {"team": "nobody", "jobs": 1}), ["quota", "user", "--team", "nobody", "--jobs", 1], "BadArgument", text)
    text = "The Compute with name 'nowhere' was not found."
    refused(strict, ("PUT", "allowances", {"compute": "nowhere", "jobs": 1}), ["quota", "user", "--compute", "nowhere", "--jobs", 1], "ResourceNotFound", text, status=404)
    # What the command line sees by itself.
    by_rest(strict, ("PUT", "allowances", {"user": "ann", "team": "vision", "jobs": 1}), "BadArgument", "Say 'user' or 'team', not both; neither is each user.")
    by_cli(strict, ["quota", "user", "--user", "ann", "--team", "vision", "--jobs", 1], "cannot be used with", exit=2)
    by_rest(strict, ("PUT", "allowances", {"user": "ann"}), "BadArgument", "Say how many jobs or cores may run at a time.")
    by_cli(strict, ["quota", "user", "--user", "ann"], "say how much", "--jobs N, --cores N, or --remove", exit=2)
    by_rest(strict, ("PUT", "allowances", {"jobs": -1, "cores": -2}), "BadArgument", "'jobs' is a number from 0 on.", "'cores' is a number from 0 on.")
    by_cli(strict, ["quota", "user", "--jobs", "some"], "invalid value 'some'", exit=2)
    by_rest(strict, ("PUT", "allowances", {"jobs": "some"}), "BadArgument", "'jobs' must be a whole number")


def test_as_many_requests_as_may_wait(strict, limits):
    limits("--clusters", value=100, location="westus")
    path = f"/neap/v1/subscriptions/{strict.subscription}/quotaRequests"
    ask = {"location": "westus", "id": f"/subscriptions/{strict.subscription}/quotas/Clusters", "limit": 200}
    for _ in range(1000):
        assert strict.http("POST", path, ask).status_code == 201
    text = "1000 requests wait for an answer, which is the limit; have some of them answered first."
    refused(strict, ("POST", path, ask), ["quota", "request", "--clusters", "--location", "westus", "--limit", 200], "LimitReached", text, status=409)
