"""Every refusal of sizes, places and quotas, with its text, through Azure Resource Manager (or Neap's own REST, where Azure has no words)
and through the command line."""

import pytest

from neapserver import unique
from refusing import by_cli, by_rest, cluster_body, refused

def both(server, code, text, size="Standard_DS3_v2", tier=None, location="eastus", low=0, high=1, status=400, name=None):
    """The same cluster through both: refused by both, with the same words."""
    name = name or unique("rf")
    body = cluster_body(size, location, low, high, **({"vmPriority": tier} if tier else {}))
    words = ["compute", "create", "-n", name, "--type", "AmlCompute", "--size", size, "--location", location, "--min-instances", low, "--max-instances", high]
    refused(server, ("PUT", f"{server.ws()}/computes/{name}", body), [*words, *(["--tier", tier] if tier else [])], code, text, status=status)
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
    done = strict.cli("compute", "create", "-n", name, "--type", "AmlCompute", "--size", "Rack", "--location", "westus", "--tier", "low_priority", check=False)
    assert done.returncode == 1 and text in done.stderr, done.stderr
    body["properties"]["properties"]["vmPriority"] = "Spot"
    answer = strict.http("PUT", f"{strict.ws()}/computes/{name}", body)
    assert answer.status_code == 400 and "The tier 'Spot' is not known; it is Dedicated or LowPriority." in answer.text, answer.text
    done = strict.cli("compute", "create", "-n", name, "--type", "AmlCompute", "--tier", "Spot", check=False)
    assert done.returncode != 0 and "tier" in done.stderr and "dedicated" in done.stderr.lower(), done.stderr


def test_a_location_that_is_not_there(strict):
    text = "The location 'atlantis' is not known here. Known are, for example: eastus, westus."
    both(strict, "LocationNotAvailable", text, location="atlantis")
    # Of a workspace, and of a limit.
    group = f"/subscriptions/{strict.subscription}/resourceGroups/{strict.group}"
    answer = strict.http("PUT", f"{group}/providers/Microsoft.MachineLearningServices/workspaces/{unique('ws')}", {"location": "atlantis", "properties": {}})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "LocationNotAvailable" and text in answer.text, answer.text
    done = strict.cli("workspace", "create", "-n", unique("ws"), "--location", "atlantis", check=False)
    assert done.returncode == 1 and text in done.stderr, done.stderr
    done = strict.cli("quota", "set", "--dedicated", "--limit", "4", "--location", "atlantis", check=False)
    assert done.returncode == 1 and "atlantis" in done.stderr, done.stderr
    done = strict.cli("compute", "list-sizes", "--location", "atlantis", check=False)
    assert done.returncode == 1 and "There is no location 'atlantis' on this server." in done.stderr, done.stderr


def test_a_location_stays(strict):
    name = unique("rf")
    strict.make_cluster(name, 0, 1)
    text = f"The location of compute '{name}' is eastus and cannot be changed to westus"
    body = {"location": "westus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2"}}}
    answer = strict.http("PUT", f"{strict.ws()}/computes/{name}", body)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "PropertyChangeNotAllowed" and text in answer.text, answer.text
    done = strict.cli("compute", "create", "-n", name, "--type", "AmlCompute", "--location", "westus", check=False)
    assert done.returncode == 1 and text in done.stderr, done.stderr
    strict.drop_cluster(name)


def test_a_quota_says_which_location_has_room(strict):
    name = unique("rf")
    for location, limit in (("eastus", 4), ("westus", 40)):
        strict.cli("quota", "set", "--dedicated", "--limit", limit, "--location", location)
    try:
        both(strict, "ClusterCoreQuotaReached", "westus has room for 10 such nodes.", high=2, status=409, name=name)
        strict.cli("quota", "set", "--dedicated", "--limit", "none", "--location", "westus")
        both(strict, "ClusterCoreQuotaReached", "westus has room; nothing limits it there.", high=2, status=409, name=name)
        strict.cli("quota", "set", "--dedicated", "--limit", 4, "--location", "westus")
        both(strict, "ClusterCoreQuotaReached", "No other location has room.", high=2, status=409, name=name)
        both(strict, "ClusterMinNodesExceedCoreQuota", "2 nodes of STANDARD_DS3_V2 are 8 cores", low=2, high=2, status=409, name=name)
    finally:
        for location in ("eastus", "westus"):
            strict.cli("quota", "set", "--dedicated", "--limit", "none", "--location", location)


def test_the_location_of_a_workspace_stays(strict):
    text = f"The workspace '{strict.workspace}' is in eastus; its location cannot be changed."
    ask = ("PUT", strict.ws(), {"location": "westus", "properties": {}})
    refused(strict, ask, ["workspace", "create", "-n", strict.workspace, "--location", "westus"], "PropertyChangeNotAllowed", text)
    group = f"/subscriptions/{strict.subscription}/resourceGroups/{strict.group}"
    by_rest(strict, ("PUT", group, {"location": "westus"}), "PropertyChangeNotAllowed", f"The resource group '{strict.group}' is in eastus; its location cannot be changed to westus.")


# --- a cluster ------------------------------------------------------------------------------------------------------------

RULE = "A name has 3 to 24 characters, letters, digits and '-', starts with a letter, and has a letter after its last '-'."


@pytest.mark.parametrize(
    ("name", "why"),
    [("ab", "has 2 characters"), ("a" * 25, "has 25 characters"), ("a_b", "contains '_'"), ("1ab", "does not start with a letter"), ("ab-1", "has no letter after its last '-'")],
)
def test_a_name_that_cannot_be(strict, name, why):
    both(strict, "InvalidResourceName", f"The compute name '{name}' {why}. {RULE}", name=name)


def test_a_name_that_is_taken_in_the_region(strict):
    name, other = unique("rf"), unique("ws")
    strict.make_cluster(name, 0, 1)
    strict.cli("workspace", "create", "-n", other, "--location", "eastus")
    text = f"The compute name '{name}' is already used in eastus by workspace '{strict.workspace}' in resource group '{strict.group}'. Names are unique in a region; choose another."
    words = ["compute", "create", "-n", name, "--type", "AmlCompute", "--location", "eastus", "-w", other]
    refused(strict, ("PUT", f"{strict.ws(workspace=other)}/computes/{name}", cluster_body()), words, "ComputeNameTaken", text, status=409)
    strict.drop_cluster(name)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (3, 2, "minNodeCount is 3 and maxNodeCount is 2; the minimum cannot be above the maximum."),
        (0, 65001, "maxNodeCount is 65001; it must be between 0 and 65000."),
        (-1, 1, "minNodeCount is -1; it must be between 0 and 65000."),
    ],
)
def test_a_scale_that_cannot_be(strict, low, high, text):
    both(strict, "InvalidScaleSettings", text, low=low, high=high)


def test_an_idle_time_that_cannot_be(strict):
    name = unique("rf")
    text = "The idle time is 99999999 seconds; it must be between 0 and 31622400."
    words = ["compute", "create", "-n", name, "--type", "AmlCompute", "--location", "eastus", "-d", "99999999"]
    refused(strict, ("PUT", f"{strict.ws()}/computes/{name}", cluster_body(idle="PT99999999S")), words, "InvalidScaleSettings", text)


def test_all_that_is_wrong_with_a_cluster_is_said_at_once(strict):
    body = cluster_body("Quantum", "atlantis", 3, 2, vmPriority="Spot", neapDedicatedNodeCount="many")
    error = by_rest(strict, ("PUT", f"{strict.ws()}/computes/a_b", body), "BadArgument")
    codes = {detail["code"] for detail in error["details"]}
    assert codes == {"BadArgument", "InvalidScaleSettings", "InvalidResourceName", "LocationNotAvailable", "InvalidVmSize"}, error
    words = ["compute", "create", "-n", "a_b", "--type", "AmlCompute", "--size", "Quantum", "--location", "atlantis", "--min-instances", 3, "--max-instances", 2]
    by_cli(strict, words, "(InvalidScaleSettings)", "(InvalidResourceName)", "(LocationNotAvailable)", "(InvalidVmSize)")


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0p me"
SUBNET = "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/other"
AFTER = "'neap compute update' replaces its nodes one by one; or create another cluster."


@pytest.mark.parametrize(
    ("inner", "flags", "text"),
    [
        ({"vmSize": "STANDARD_DS2_V2"}, ["--size", "STANDARD_DS2_V2"], "The size of compute '{name}' is STANDARD_DS3_V2 and cannot be changed to STANDARD_DS2_V2 here; 'neap compute update' replaces its nodes one by one, or delete it and create it again."),
        ({"vmPriority": "LowPriority"}, ["--tier", "low_priority"], "The tier of compute '{name}' is Dedicated and cannot be changed to LowPriority here; 'neap compute update' replaces its nodes one by one, or delete it and create it again."),
        ({"subnet": {"id": SUBNET}}, ["--subnet", SUBNET], f"The subnet cannot be changed after creation: it is none, and '{SUBNET}' was asked for. {AFTER}"),
        ({"enableNodePublicIp": False}, ["--enable-node-public-ip", "false"], f"The public IP of nodes cannot be changed after creation: it is on, and off was asked for. {AFTER}"),
        ({"remoteLoginPortPublicAccess": "Enabled"}, ["--ssh-public-access-enabled", "true"], f"Public SSH access cannot be changed after creation: it is off, and on was asked for. {AFTER}"),
        ({"userAccountCredentials": {"adminUserName": "me"}}, ["--admin-username", "me", "--ssh-key-value", KEY], f"The SSH user name cannot be changed after creation: it is not set, and a different one was asked for. {AFTER}"),
        ({"userAccountCredentials": {"adminUserName": "me", "adminUserSshPublicKey": KEY}}, ["--admin-username", "me", "--ssh-key-value", KEY], f"The SSH public key cannot be changed after creation: it is not set, and a different one was asked for. {AFTER}"),
        ({"userAccountCredentials": {"adminUserName": "me", "adminUserPassword": "Hunter-22-x"}}, ["--admin-username", "me", "--admin-password", "Hunter-22-x"], f"The SSH password cannot be changed after creation: it is another or not set, and a different one was asked for. {AFTER}"),
    ],
)
def test_what_azure_keeps_for_ever(strict, inner, flags, text):
    name = unique("rf")
    strict.make_cluster(name, 0, 1)
    body = cluster_body()
    body["properties"]["properties"].update(inner)
    words = ["compute", "create", "-n", name, "--type", "AmlCompute", "--location", "eastus", *flags]
    refused(strict, ("PUT", f"{strict.ws()}/computes/{name}", body), words, "PropertyChangeNotAllowed", text.format(name=name))
    by_rest(strict, ("PATCH", f"{strict.ws()}/computes/{name}", {"properties": {"properties": inner}}), "PropertyChangeNotAllowed", text.format(name=name))
    strict.drop_cluster(name)


def test_what_keeps_the_nodes_of_a_cluster_from_being_replaced(strict):
    mixed, small = unique("rf"), unique("rf")
    strict.make_cluster(mixed, 0, 2, vmPriority="LowPriority", neapDedicatedNodeCount=1)
    text = f"The size and tier of compute '{mixed}' cannot be changed: it has, or had, nodes of both tiers (dedicated_instances). Delete it and create it again."
    body = strict.get(f"{strict.ws()}/computes/{mixed}")
    body["properties"]["properties"]["vmSize"] = "STANDARD_DS2_V2"
    refused(strict, ("PUT", f"computes/{mixed}", body), ["compute", "update", "-n", mixed, "--size", "STANDARD_DS2_V2", "--yes"], "PropertyChangeNotAllowed", text)
    strict.make_cluster(small, 0, 1)
    strict.cli("compute", "schedule", "create", small, "-n", "off", "--start", "0 * * * *", "--duration", "2h", "--max", 0)
    job = strict.submit(small, "true", resources={"instanceCount": 1, "properties": {"neap": {"cpus": 3, "memory_gb": 1}}})
    text = f"; '{job}' ask for more. Let them end, cancel them, or choose a larger size."
    body = strict.get(f"{strict.ws()}/computes/{small}")
    body["properties"]["properties"]["vmSize"] = "STANDARD_DS1_V2"
    refused(strict, ("PUT", f"computes/{small}", body), ["compute", "update", "-n", small, "--size", "STANDARD_DS1_V2", "--yes"], "ResourceTooLarge", "A node of STANDARD_DS1_V2 has ", text)
    strict.cli("job", "cancel", "-n", job)
    nowhere = "The Compute with name 'nowhere' was not found."
    refused(strict, ("PUT", "computes/nowhere", cluster_body()), ["compute", "update", "-n", "nowhere", "--size", "STANDARD_DS1_V2"], "ResourceNotFound", nowhere, status=404)
    by_rest(strict, ("PATCH", f"{strict.ws()}/computes/nowhere", {"properties": {}}), "ResourceNotFound", nowhere, status=404)
    for name in (mixed, small):
        strict.drop_cluster(name)


def test_what_stays_is_refused_together(strict):
    """One answer for a size, a tier and a location that all differ."""
    name = unique("rf")
    strict.make_cluster(name, 0, 1)
    body = cluster_body("STANDARD_DS2_V2", "westus", vmPriority="LowPriority")
    error = by_rest(strict, ("PUT", f"{strict.ws()}/computes/{name}", body), "PropertyChangeNotAllowed", "The location of", "The size of", "The tier of")
    assert len(error["details"]) == 3, error
    words = ["compute", "create", "-n", name, "--type", "AmlCompute", "--size", "STANDARD_DS2_V2", "--location", "westus", "--tier", "low_priority"]
    by_cli(strict, words, "The location of", "The size of", "The tier of")
    strict.drop_cluster(name)


def test_a_cluster_that_is_being_deleted(strict, mark):
    name = unique("rf")
    strict.make_cluster(name, 0, 1)
    job = strict.submit(name, "trap '' TERM; while :; do sleep 1; done", environmentVariables={"NEAP_TEST_MARK": mark})
    strict.wait_job(job, "Running")
    answer = strict.http("DELETE", f"{strict.ws()}/computes/{name}?underlyingResourceAction=Delete")
    assert answer.status_code == 202, answer.text
    text = f"The compute '{name}' is being deleted; wait until it is gone."
    refused(strict, ("PUT", f"{strict.ws()}/computes/{name}", cluster_body(high=3)), ["compute", "create", "-n", name, "--type", "AmlCompute", "--location", "eastus", "--max-instances", 3], "ResourceBeingDeleted", text, status=409)
    refused(strict, ("PUT", f"computes/{name}", cluster_body("STANDARD_DS2_V2")), ["compute", "update", "-n", name, "--size", "STANDARD_DS2_V2", "--yes"], "ResourceBeingDeleted", text, status=409)
    window = {"start": "0 20 * * *", "duration": "1h", "max": 0}
    words = ["compute", "schedule", "create", name, "-n", "x", "--start", "0 20 * * *", "--duration", "1h", "--max", 0]
    refused(strict, ("PUT", f"computes/{name}/schedules/x", window), words, "ResourceBeingDeleted", text, status=409)
    strict.drop_cluster(name)


@pytest.mark.parametrize(
    ("inner", "code", "text"),
    [
        ({"osType": "Windows"}, "NotSupported", "Nodes run Linux; 'osType' 'Windows' is not supported."),
        ({"virtualMachineImage": {"id": "x"}}, "NotSupported", "A virtual machine image cannot be chosen; give jobs an environment instead."),
        ({"isolatedNetwork": True}, "NotSupported", "An isolated network is not supported yet; leave 'isolatedNetwork' out."),
        ({"remoteLoginPortPublicAccess": "Ajar"}, "BadArgument", "'Ajar' is not a state of the SSH port: Enabled, Disabled or NotSpecified."),
        ({"userAccountCredentials": {"adminUserSshPublicKey": KEY}}, "BadArgument", "SSH credentials need an 'adminUserName'."),
        ({"scaleSettings": {"maxNodeCount": "two"}}, "BadArgument", "'properties.properties.scaleSettings.maxNodeCount' must be a whole number"),
        ({"scaleSettings": {"maxNodeCount": 1, "nodeIdleTimeBeforeScaleDown": "soon"}}, "InvalidScaleSettings", "'soon' is not an ISO 8601 duration such as PT2M or PT1H30M: it does not begin with P."),
    ],
)
def test_what_only_arm_can_get_wrong(strict, inner, code, text):
    body = cluster_body()
    body["properties"]["properties"].update(inner)
    by_rest(strict, ("PUT", f"{strict.ws()}/computes/{unique('rf')}", body), code, text)


def test_two_locations_and_a_login_that_stays(strict):
    name = unique("rf")
    body = cluster_body()
    body["properties"]["computeLocation"] = "westus"
    by_rest(strict, ("PUT", f"{strict.ws()}/computes/{name}", body), "BadArgument", "'location' is 'eastus' and 'properties.computeLocation' is 'westus'; a cluster is in one location.")
    strict.make_cluster(name, 0, 1)
    body = cluster_body()
    body["properties"]["disableLocalAuth"] = False
    by_rest(strict, ("PUT", f"{strict.ws()}/computes/{name}", body), "PropertyChangeNotAllowed", f"SSH login (disableLocalAuth) cannot be changed after creation: it is true, and false was asked for. {AFTER}")
    text = "The size of a cluster cannot be changed so; 'neap compute update --size' replaces its nodes one by one."
    by_rest(strict, ("POST", f"{strict.ws()}/computes/{name}/resize", {"targetVMSize": "STANDARD_DS2_V2"}), "NotSupported", text)
    strict.drop_cluster(name)


def test_what_only_the_command_line_can_get_wrong(strict, tmp_path):
    by_cli(strict, ["compute", "create", "-n", "cpu"], "without --file, --name and --type are required", "as in: neap compute create -n cpu -t amlcompute --max-instances 4", exit=2)
    by_cli(strict, ["compute", "create", "-f", tmp_path / "none.yml"], "cannot read", "none.yml", exit=2)
    by_cli(strict, ["compute", "create", "-n", "cpu", "-t", "amlcompute", "--tags", "=x"], "--tags =x: a tag is written key=value", exit=2)
    by_cli(strict, ["compute", "create", "-n", "cpu", "-t", "amlcompute", "--tier", "spot"], "tier: `spot` is not one of dedicated, low_priority", exit=2)
    by_cli(strict, ["compute", "create", "-n", "cpu", "-t", "amlcompute", "--max-instances", "many"], "invalid value 'many'", exit=2)
    by_cli(strict, ["compute", "create", "-n", "cpu", "-t", "amlcompute", "--ssh-key-value", KEY], "admin_username", exit=2)
    by_cli(strict, ["compute", "update", "-n", "cpu", "--add", "tags=x"], "--add is for lists, and a cluster has none that can change", "use --set PATH=VALUE", exit=2)
    for verb in ("start", "stop", "restart"):
        by_cli(strict, ["compute", verb, "-n", "cpu"], f"`compute {verb}` is not offered: it is for compute instances, which Neap does not offer", exit=2)
    by_cli(strict, ["compute", "connect-ssh", "-n", "cpu"], "`compute connect-ssh` is not offered: nodes take no logins", exit=2)
    for kind, text in [
        ("computeinstance", "a compute instance is a notebook machine, which Neap does not offer; declare a cluster (type: amlcompute) with max_instances: 1 instead"),
        ("kubernetes", "attaching a Kubernetes cluster as a compute is not offered"),
        ("virtualmachine", "attaching a virtual machine is not offered"),
        ("synapsespark", "Spark pools are not offered"),
        ("toaster", "`toaster` is not a compute type that Neap knows; use `type: amlcompute`"),
    ]:
        by_cli(strict, ["compute", "create", "-n", "cpu", "-t", kind], text, exit=2)
    for settings, text in [
        ("identity.type=user_assigned", "a user_assigned identity needs at least one resource_id"),
        ("network_settings.vnet_name=net", "network_settings.subnet: required when vnet_name is given"),
        ("network_settings.subnet=inner", "network_settings.vnet_name: required, unless subnet is a full resource id"),
    ]:
        by_cli(strict, ["compute", "create", "-n", "cpu", "-t", "amlcompute", "--set", settings], text, exit=2)
