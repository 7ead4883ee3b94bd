"""Every refusal of tiers, the queue, nodes, drills, plans and questions about jobs and clusters, with its text, through Azure Resource Manager
(or Neap's own REST, where Azure has no words) and through the command line."""

import http.server
import json
import threading
from pathlib import Path

import pytest

from neapserver import holds_for, unique, wait_until
from refusing import by_cli, by_rest, cluster_body, job_file, refused

COMPUTE = "The Compute with name 'nowhere' was not found."


@pytest.fixture(scope="module")
def clusters(strict):
    """Clusters that nothing runs on: dedicated, low priority, and both."""
    made = {"plain": {}, "low": {"vmPriority": "LowPriority"}, "mixed": {"vmPriority": "LowPriority", "neapDedicatedNodeCount": 1}}
    names = {kind: unique(kind) for kind in made}
    for kind, more in made.items():
        strict.make_cluster(names[kind], 0, 3, **more)
    yield names
    for name in names.values():
        strict.drop_cluster(name)


def submitted(server, folder, cluster, wire, spec, code, *texts, status=400):
    """A job by ARM, by `job create` and by `plan`, and by plan's REST: what would be refused is refused with the same words."""
    name, body = unique("job"), server.job_body(cluster, "true", **wire)
    refused(server, ("PUT", f"{server.ws()}/jobs/{name}", body), ["job", "create", "-f", job_file(folder, cluster, **spec)], code, *texts, status=status)
    refused(server, ("POST", f"jobs/{name}/plan", body), ["plan", "-f", folder / "job.yml"], code, *texts, status=status)
    assert server.http("GET", f"{server.ws()}/jobs/{name}").status_code == 404


# --- tiers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wire", "spec", "text"),
    [
        ("plain", {"queueSettings": {"jobTier": "Spot"}}, {"queue_settings": {"job_tier": "Spot"}}, "The job asks for low-priority nodes (queue_settings.job_tier Spot) and compute '{name}' has dedicated nodes only. Leave job_tier out, or name a compute of tier low_priority."),
        ("low", {"queueSettings": {"jobTier": "Premium"}}, {"queue_settings": {"job_tier": "Premium"}}, "The job asks for dedicated nodes (queue_settings.job_tier Standard or Premium) and compute '{name}' has low-priority nodes only. Choose Spot or leave job_tier out, name a dedicated compute, or give the compute a dedicated floor ('neap compute update --dedicated-instances N')."),
        ("low", {"resources": {"instanceCount": 1, "properties": {"neap": {"retry": {"dedicated_after": 2}}}}}, {"resources": {"instance_count": 1, "properties": {"neap": {"retry": {"dedicated_after": 2}}}}}, "The job is to go on on dedicated nodes once its nodes were taken back (neap.retry.dedicated_after) and compute '{name}' has none. Leave that out, or give the compute a dedicated floor ('neap compute update --dedicated-instances N')."),
    ],
)
def test_a_tier_that_the_cluster_has_not(strict, clusters, tmp_path, kind, wire, spec, text):
    submitted(strict, tmp_path, clusters[kind], wire, spec, "JobTierNotAvailable", text.format(name=clusters[kind]))


@pytest.mark.parametrize(
    ("neap", "texts"),
    [
        ("half", ["is text that is not a JSON object."]),
        ([2], ["must be an object such as {\"cpus\": 2, \"memory_gb\": 4}."]),
        ({"cpus": 0.001, "memory_gb": -1, "gpus": 0.5, "disk": 3}, [".cpus' must be at least 0.01.", ".memory_gb' must be a number that is not negative.", ".gpus' must be a whole number.", ".disk' is not known: cpus, memory_gb, gpus, disk_mb, isolation and retry can be stated."]),
        ({"memory_gb": 1}, ["states a share of a node and must say how many 'cpus' of it."]),
        ({"retry": "often"}, ["must be an object such as {\"exit_codes\": [75], \"max\": 3}."]),
        ({"retry": {"exit_codes": [256], "max": -1, "preempted": 1001, "times": 1}}, [".exit_codes' must list between 1 and 64 exit codes from 1 to 255, such as [75, 137].", ".max' must be a whole number from 0 to 1000.", ".preempted' must be a whole number from 0 to 1000.", ".times' is not known: exit_codes, max, node_lost, preempted and dedicated_after can be stated."]),
        ({"retry": {"max": 3}}, [".max' says how often, and '", ".exit_codes' for which exit codes is missing."]),
    ],
)
def test_a_share_of_a_node_and_retries_that_make_no_sense(strict, clusters, tmp_path, neap, texts):
    resources = {"properties": {"neap": neap}}
    submitted(strict, tmp_path, clusters["mixed"], {"resources": resources}, {"resources": resources}, "BadArgument", *texts)


def test_dedicated_after_no_eviction(strict, clusters, tmp_path):
    properties = {"neap": {"retry": {"dedicated_after": 0}}}
    text = "must be at least 1; a job that wants dedicated nodes from the start says queue_settings.job_tier: Standard."
    submitted(strict, tmp_path, clusters["mixed"], {"resources": {"properties": properties}}, {"resources": {"properties": properties}}, "BadArgument", text)


@pytest.mark.parametrize(
    ("kind", "count", "text"),
    [
        ("plain", 2, "dedicated_instances is 2 and the tier is Dedicated: then all nodes are. It is for clusters of tier low_priority, whose other nodes can be taken back."),
        ("low", 9, "dedicated_instances is 9 and max_instances is 3; the dedicated nodes are a part of all."),
        ("low", 65001, "dedicated_instances is 65001; it must be between 0 and 65000."),
        ("low", -1, "dedicated_instances is -1; it must be between 0 and 65000."),
    ],
)
def test_a_dedicated_floor_that_cannot_be(strict, clusters, kind, count, text):
    name = clusters[kind]
    body = strict.get(f"{strict.ws()}/computes/{name}")
    body["properties"]["properties"]["neapDedicatedNodeCount"] = count
    words = ["compute", "update", "-n", name, f"--dedicated-instances={count}"]
    refused(strict, ("PUT", f"{strict.ws()}/computes/{name}", body), words, "InvalidScaleSettings", text)
    by_rest(strict, ("PUT", f"computes/{name}", body), "InvalidScaleSettings", text)
    more = {"vmPriority": "LowPriority"} if kind == "low" else {}
    by_rest(strict, ("PUT", f"{strict.ws()}/computes/{unique('rf')}", cluster_body(high=3, neapDedicatedNodeCount=count, **more)), "InvalidScaleSettings", text)


def test_a_word_that_is_no_tier_or_priority(strict, clusters, tmp_path):
    """The command line knows the words of a job's file, and says so before it asks."""
    path, name = f"{strict.ws()}/jobs/{unique('job')}", clusters["plain"]
    by_rest(strict, ("PUT", path, strict.job_body(name, "true", queueSettings={"jobTier": "gold"})), "BadArgument", "The job tier 'gold' is not known: Spot, Basic, Standard or Premium.")
    for asked in (7, 0, "urgent"):
        says = f'"{asked}"' if isinstance(asked, str) else asked
        by_rest(strict, ("PUT", path, strict.job_body(name, "true", queueSettings={"priority": asked})), "BadArgument", f"The priority {says} is not known: 1 (low), 2 (medium) or 3 (high).")
    for command in (["job", "create"], ["job", "validate"], ["plan"]):
        file = job_file(tmp_path, name, queue_settings={"job_tier": "gold", "priority": "urgent"})
        by_cli(strict, [*command, "-f", file], "queue_settings.job_tier: `gold` is not one of spot, basic, standard, premium", "queue_settings.priority: `urgent` is not one of low, medium, high", exit=2)


# --- the queue --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "nodes", "more", "text"),
    [
        ("plain", 4, {}, "The job asks for 4 nodes at once and max_instances of compute '{name}' is 3; raise it or ask for fewer."),
        ("mixed", 3, {}, "The job asks for 3 nodes at once and compute '{name}' has at most 1 dedicated and 2 low-priority ones; a job has all of its nodes of one tier. Raise max_instances or dedicated_instances, or ask for fewer."),
        ("mixed", 2, {"job_tier": "Standard"}, "The job asks for 2 dedicated nodes at once and compute '{name}' has at most 1 dedicated and 2 low-priority ones; a job has all of its nodes of one tier. Raise max_instances or dedicated_instances, or ask for fewer."),
        ("mixed", 3, {"job_tier": "Spot"}, "The job asks for 3 low-priority nodes at once and compute '{name}' has at most 1 dedicated and 2 low-priority ones; a job has all of its nodes of one tier. Raise max_instances or dedicated_instances, or ask for fewer."),
    ],
)
def test_a_gang_larger_than_its_cluster(strict, clusters, tmp_path, kind, nodes, more, text):
    wire = {"resources": {"instanceCount": nodes}, **({"queueSettings": {"jobTier": more["job_tier"]}} if more else {})}
    spec = {"resources": {"instance_count": nodes}, **({"queue_settings": more} if more else {})}
    submitted(strict, tmp_path, clusters[kind], wire, spec, "ResourceTooLarge", text.format(name=clusters[kind]))


def test_a_gang_larger_than_the_machine(own_server, tmp_path):
    server = own_server("few", start=False)
    (server.home / "config.yaml").write_text("local: {max_nodes: 2}\n")
    server.up()
    server.environment_id()
    text = "The job asks for 3 nodes at once and the provider makes at most 2 of size STANDARD_DS3_V2 (local.max_nodes, local.capacity); ask for fewer."
    for name, count, more in [("plain", 4, {}), ("mixed", 8, {"vmPriority": "LowPriority", "neapDedicatedNodeCount": 4})]:
        server.make_cluster(name, 0, count, **more)
        submitted(server, tmp_path, name, {"resources": {"instanceCount": 3}}, {"resources": {"instance_count": 3}}, "ResourceTooLarge", text)


def test_a_share_that_no_node_has(strict, clusters, tmp_path):
    def share(**neap):
        return {"instanceCount": 1, "properties": {"neap": neap}}, {"instance_count": 1, "properties": {"neap": neap}}

    wire, spec = share(cpus=64, memory_gb=1)
    submitted(strict, tmp_path, clusters["plain"], {"resources": wire}, {"resources": spec}, "ResourceTooLarge", "The job asks for 64 cores, 1024 MB; a node of size STANDARD_DS3_V2 has 4 cores, 14336 MB.")
    wire, spec = share(cpus=0.001)
    submitted(strict, tmp_path, clusters["plain"], {"resources": wire}, {"resources": spec}, "BadArgument", "must be at least 0.01.")
    wire, spec = share(memory_gb=1)
    submitted(strict, tmp_path, clusters["plain"], {"resources": wire}, {"resources": spec}, "BadArgument", "states a share of a node and must say how many 'cpus' of it.")
    wire, spec = share(cpus=1, colour="red")
    submitted(strict, tmp_path, clusters["plain"], {"resources": wire}, {"resources": spec}, "BadArgument", ".colour' is not known: cpus, memory_gb, gpus, disk_mb, isolation and retry can be stated.")
    wire, spec = share(cpus=1)
    wire["instanceCount"] = spec["instance_count"] = 2
    text = "A job on several nodes takes each of them whole; leave out resources.properties.neap, or ask for one node."
    submitted(strict, tmp_path, clusters["plain"], {"resources": wire}, {"resources": spec}, "BadArgument", text)


def test_no_node_at_all(strict, clusters, tmp_path):
    by_rest(strict, ("PUT", f"{strict.ws()}/jobs/{unique('job')}", strict.job_body(clusters["plain"], "true", resources={"instanceCount": 0})), "BadArgument", "instanceCount")
    by_cli(strict, ["job", "create", "-f", job_file(tmp_path, clusters["plain"], resources={"instance_count": 0})], "resources.instance_count", exit=2)


def test_a_compute_that_is_not_there(strict, clusters, tmp_path):
    text = "The compute 'nowhere' was not found in this workspace; 'neap compute list' shows those there are."
    submitted(strict, tmp_path, "nowhere", {}, {}, "ComputeNotFound", text)
    for ask, words in [
        (("GET", "computes/nowhere/queue"), ["queue", "nowhere"]),
        (("GET", "computes/nowhere/explain"), ["explain", "cluster", "nowhere"]),
        (("GET", "computes/nowhere/health"), ["compute", "health", "-n", "nowhere"]),
        (("GET", "computes/nowhere/nodes"), ["compute", "list-nodes", "-n", "nowhere"]),
        (("GET", "computes/nowhere/revisions"), ["compute", "history", "-n", "nowhere"]),
        (("GET", "computes/nowhere/revisions"), ["compute", "rollback", "-n", "nowhere", "--to", 1]),
        (("POST", "computes/nowhere/evict", {}), ["compute", "evict", "nowhere"]),
        (("POST", "computes/nowhere/nodes/n-1/cordon", {}), ["node", "cordon", "n-1", "-c", "nowhere"]),
        (("GET", f"{strict.ws()}/computes/nowhere"), ["plan", "compute", "update", "nowhere", "--max-instances", 2]),
    ]:
        refused(strict, ask, words, "ResourceNotFound", COMPUTE, status=404)


def test_a_job_that_is_not_there(strict):
    for ask, words in [
        (("GET", "jobs/nobody/explain"), ["explain", "job", "nobody"]),
        (("GET", f"{strict.ws()}/jobs/nobody"), ["job", "show", "-n", "nobody"]),
        (("POST", f"{strict.ws()}/jobs/nobody/cancel"), ["job", "cancel", "-n", "nobody"]),
    ]:
        refused(strict, ask, words, "ResourceNotFound", "Job nobody not found.", status=404)
    by_rest(strict, ("GET", "jobs/nobody/checkpoint"), "ResourceNotFound", "Job nobody not found.", status=404)


# --- plans ------------------------------------------------------------------------------------------------------------------


def test_a_plan_of_what_cannot_be_read(strict, clusters, tmp_path):
    file, name = job_file(tmp_path, clusters["plain"]), unique("job")
    for key, flag in (("duration_s", "--duration"), ("boot_s", "--boot")):
        by_rest(strict, ("POST", f"jobs/{name}/plan?{key}=soon", strict.job_body(clusters["plain"], "true")), "BadArgument", f"'soon' is not a number of seconds ({key}).")
        by_cli(strict, ["plan", "-f", file, flag, "soon"], "invalid value 'soon'", "write a time as 90s, 30m, 2h or 1d", exit=2)
    body = strict.job_body(clusters["plain"], "true", environmentId="azureml:none:1")
    answer = strict.http("POST", f"{strict.nws()}/jobs/{name}/plan?duration_s=-1&boot_s=x", body | {"drafts": [3]})
    told = [problem["message"] for problem in answer.json()["error"]["details"]]
    assert answer.status_code == 400 and told[:2] == ["'-1' is not a number of seconds (duration_s).", "'x' is not a number of seconds (boot_s)."], answer.text
    assert "'drafts[0]' needs" in told[2] and "environment" in told[3] and len(told) == 4, answer.text
    by_cli(strict, ["plan", "-f", file, "--duration", "99999999999999999d"], "that is too long", exit=2)
    by_cli(strict, ["plan"], "--file <FILE>", exit=2)
    by_cli(strict, ["plan", "-f", tmp_path / "none.yml"], "none.yml", exit=2)
    by_cli(strict, ["plan", "compute", "update"], "<CLUSTER>", exit=2)
    file.write_text("command: [")
    by_cli(strict, ["plan", "-f", file], "job.yml", exit=2)
    by_rest(strict, ("POST", f"jobs/{name}/plan", []), "BadArgument")


def test_a_plan_of_a_scale_that_cannot_be(strict, clusters):
    name = clusters["plain"]
    text = "minNodeCount is 5 and maxNodeCount is 3; the minimum cannot be above the maximum."
    body = strict.get(f"{strict.ws()}/computes/{name}")
    body["properties"]["properties"]["scaleSettings"]["minNodeCount"] = 5
    refused(strict, ("POST", f"computes/{name}/plan", body), ["plan", "compute", "update", name, "--min-instances", 5], "InvalidScaleSettings", text)
    assert strict.cluster(name)["scaleSettings"]["minNodeCount"] == 0


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU, so there is nothing to refuse")
def test_a_gpu_that_is_not_there(strict, tmp_path):
    name = unique("rf")
    strict.make_cluster(name, 0, 1, size="STANDARD_NC4AS_T4_V3")
    text = (
        "The job needs 1 GPU (size STANDARD_NC4AS_T4_V3 has 1 x T4) and this machine has none: 1 missing. It is not run on the CPU instead; use a size without GPUs, "
        "state resources.properties.neap.gpus: 0, run the server on a machine with NVIDIA GPUs ('neap doctor' lists them), or start it with 'neap up --emulate-gpus 1' "
        "to try things out with pretended ones."
    )
    submitted(strict, tmp_path, name, {}, {}, "GpuNotAvailable", text)
    warned = "and this machine has none: the cluster is declared, and jobs on it that need more are refused (GpuNotAvailable)."
    told = strict.cli("compute", "create", "-n", name, "--type", "AmlCompute", "--size", "STANDARD_NC4AS_T4_V3", "--location", "eastus", "--max-instances", 1)
    assert warned in told.stderr, told.stderr
    assert warned in strict.http("GET", f"{strict.ws()}/computes/{name}").text
    strict.drop_cluster(name)


class Closed(http.server.BaseHTTPRequestHandler):
    """Has nothing, and keeps one thing to itself."""

    def do_HEAD(self):
        self.send_response(403 if "secret" in self.path else 404)
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, *_):
        pass


def test_data_that_cannot_be_read(strict, clusters, tmp_path):
    """What is wrong, and its cure, of each input in one answer."""
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Closed)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{web.server_port}"
    places = {"gone": f"{at}/gone.csv", "secret": f"{at}/secret.csv", "silent": "http://127.0.0.1:9/x.csv"}
    wire = {"inputs": {name: {"jobInputType": "uri_file", "uri": uri} for name, uri in places.items()}}
    spec = {"inputs": {name: {"type": "uri_file", "path": uri} for name, uri in places.items()}}
    texts = [f"The input '{name}' cannot be read: " for name in places]
    cures = ["; correct its path, or put it there first.", "; correct the datastore's credentials, or what they may read.", "; see that this server reaches it, and submit the job again."]
    try:
        submitted(strict, tmp_path, clusters["plain"], wire, spec, "BadArgument", *texts, *cures)
    finally:
        web.shutdown()


# --- drills and nodes ---------------------------------------------------------------------------------------------------------


def test_a_drill_that_cannot_be(strict, clusters):
    name = clusters["low"]
    path, words = f"computes/{name}/evict", ["compute", "evict", name]
    refused(strict, ("POST", path, {}), words, "ResourceNotFound", "The compute has no node that could be taken back.", status=404)
    refused(strict, ("POST", path, {"simulate": True}), [*words, "--simulate"], "ResourceNotFound", "The compute has no node that could be taken back.", status=404)
    refused(strict, ("POST", path, {"node": "first"}), [*words, "--node", "first"], "BadArgument", "'first' does not name a node, as n-3 does.")
    refused(strict, ("POST", path, {"node": "n-99999"}), [*words, "--node", "n-99999"], "ResourceNotFound", "Node n-99999 was not found on this compute.", status=404)
    refused(strict, ("POST", path, {"node": "n-99999"}), ["node", "remove", "n-99999", "-c", name], "ResourceNotFound", "Node n-99999 was not found on this compute.", status=404)
    refused(strict, ("POST", path, {"grace_seconds": 1e9}), [*words, "--grace", 1e9], "BadArgument", "grace_seconds must be between 0 and 3600.")
    refused(strict, ("POST", path, {"grace_seconds": -1}), [*words, "--grace=-1"], "BadArgument", "grace_seconds must be between 0 and 3600.")
    by_rest(strict, ("POST", path, {"colour": "red"}), "BadArgument", "'colour' is not known; a drill has node, grace_seconds, simulate, reason.")
    answer = strict.http("POST", f"{strict.nws()}/{path}", {"colour": 1, "node": "first", "grace_seconds": "soon", "simulate": "x", "reason": 2})
    told = [problem["message"] for problem in answer.json()["error"]["details"]]
    assert answer.status_code == 400 and told == [
        "'colour' is not known; a drill has node, grace_seconds, simulate, reason.",
        "'first' does not name a node, as n-3 does.",
        "'grace_seconds' must be a number, and is a string.",
        "'simulate' must be true or false, and is a string.",
        "'reason' must be a string, and is the number 2.",
    ], answer.text
    by_cli(strict, [*words, "--grace", "soon"], "invalid value 'soon'", exit=2)


def test_a_drill_says_what_is_wrong_with_it_before_it_takes_a_node(strict, mark):
    name = unique("rf")
    strict.make_cluster(name, 0, 1, vmPriority="LowPriority")
    job = strict.submit(name, "sleep 60", environmentVariables={"NEAP_TEST_MARK": mark})
    strict.wait_job(job, "Running")
    by_cli(strict, ["compute", "evict", name, "--grace", 1, "--timeout=-5"], "--timeout is seconds, and not below 0", exit=2)
    holds_for(lambda: strict.job(job)["properties"]["neap.attempt"] == "1" and strict.status(job) == "Running", "nothing was done", 4)
    strict.cli("job", "cancel", "-n", job)
    strict.drop_cluster(name)


def test_nodes_that_cannot_be_changed(strict, clusters, mark):
    name = unique("rf")
    strict.make_cluster(name, 0, 1)
    for verb in ("cordon", "uncordon", "drain"):
        for node in ("n-99999", "first"):
            refused(strict, ("POST", f"computes/{name}/nodes/{node}/{verb}", {}), ["node", verb, node, "-c", name], "ResourceNotFound", f"The Node with name '{node}' was not found.", status=404)
    by_rest(strict, ("GET", f"computes/{name}/queue?top=lots"), "BadArgument", "'lots' is not a number of jobs, from 0 to ")
    refused(strict, ("GET", f"computes/{name}/nodes/n-99999/log"), ["compute", "node-log", "-n", name, "--node", "n-99999"], "ResourceNotFound", "The Node with name 'n-99999' was not found.", status=404)
    # A node of another cluster is none of this one's; and what is on its way out stays so.
    job = strict.submit(name, "trap '' TERM; while :; do sleep 1; done", environmentVariables={"NEAP_TEST_MARK": mark})
    strict.wait_job(job, "Running")
    node = strict.nodes(name)[0]["node_id"]
    answer = strict.http("POST", f"{strict.nws()}/computes/{name}/nodes/{node}/cordon", data="{reason:")
    assert answer.status_code == 400 and "The request body is not JSON" in answer.text, answer.text
    assert not strict.nodes(name)[0]["cordoned"], "nothing was done"
    other = clusters["plain"]
    refused(strict, ("POST", f"computes/{other}/nodes/{node}/cordon", {}), ["node", "cordon", node, "-c", other], "ResourceNotFound", f"The Node with name '{node}' was not found.", status=404)
    refused(strict, ("POST", f"computes/{other}/evict", {"node": node}), ["node", "remove", node, "-c", other], "ResourceNotFound", f"Node {node} was not found on this compute.", status=404)
    answer = strict.http("POST", f"{strict.nws()}/computes/{name}/evict", {"node": node, "grace_seconds": 20})
    assert answer.status_code == 202, answer.text
    text = "The node is on its way out already; nothing was done."
    refused(strict, ("POST", f"computes/{name}/evict", {"node": node}), ["node", "remove", node, "-c", name], "ResourceBeingDeleted", text, status=409)
    refused(strict, ("POST", f"computes/{name}/evict", {"node": node}), ["compute", "evict", name, "--node", node], "ResourceBeingDeleted", text, status=409)
    refused(strict, ("POST", f"computes/{name}/nodes/{node}/uncordon", {}), ["node", "uncordon", node, "-c", name], "ResourceBeingDeleted", "The node is on its way out.", status=409)
    strict.cli("job", "cancel", "-n", job)
    strict.drop_cluster(name)


def test_a_node_that_is_being_replaced_is_not_used_again(strict, mark):
    name = unique("rf")
    strict.make_cluster(name, 0, 1, "PT600S")
    job = strict.submit(name, "sleep 600", environmentVariables={"NEAP_TEST_MARK": mark})
    strict.wait_job(job, "Running")
    node = strict.nodes(name)[0]["node_id"]
    strict.cli("compute", "update", "-n", name, "--size", "STANDARD_DS2_V2", "--yes")
    wait_until(lambda: strict.nodes(name)[0]["cordoned"], "the node is to be replaced")
    text = "The node is of an older definition of its compute and is being replaced; nothing new is placed on it."
    refused(strict, ("POST", f"computes/{name}/nodes/{node}/uncordon", {}), ["node", "uncordon", node, "-c", name], "ResourceBeingDeleted", text, status=409)
    strict.cli("job", "cancel", "-n", job)
    strict.drop_cluster(name)


def test_a_serverless_job_is_not_told_that_its_cluster_is_missing(strict, tmp_path):
    """It would have come with the job."""
    gone = "The environment 'gone' has no version '7' in this workspace."
    name, body = unique("job"), strict.job_body("serverless", "true", environmentId=f"{strict.ws()}/environments/gone/versions/7")
    spec = {"command": "true", "compute": "azureml:serverless", "environment": "azureml:gone:7"}
    step = {"type": "command", **spec}
    (tmp_path / "job.yml").write_text(json.dumps(spec))
    (tmp_path / "pipeline.yml").write_text(json.dumps({"type": "pipeline", "jobs": {"one": step}}))
    for ask in (("PUT", f"{strict.ws()}/jobs/{name}", body), ("POST", f"jobs/{name}/plan", body)):
        error = by_rest(strict, ask, "EnvironmentNotFound", gone)
        assert len(error["details"]) == 1, error
    for words in (["job", "create"], ["plan"]):
        for file in ("job.yml", "pipeline.yml"):
            assert "serverless" not in by_cli(strict, [*words, "-f", tmp_path / file], gone)
    assert not any(cluster["name"].startswith("serverless") for cluster in strict.json("compute", "list")), "none was made for it"
