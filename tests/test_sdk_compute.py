"""Every compute call of the current azure-ai-ml SDK, and the rules of AmlCompute, seen from outside."""

import pytest
from azure.ai.ml import load_compute
from azure.ai.ml.entities import (
    AmlCompute,
    AmlComputeSshSettings,
    ComputeInstance,
    IdentityConfiguration,
    ManagedIdentityConfiguration,
    NetworkSettings,
    VirtualMachineCompute,
    VirtualMachineSshSettings,
)
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from neapserver import SHARED, unique, wait_until

USER_IDENTITY = "/subscriptions/0/resourceGroups/rg/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id1"


@pytest.fixture
def named(server):
    """Hands out cluster names and deletes what was made under them."""
    names = []

    def make(prefix="s"):
        names.append(unique(prefix))
        return names[-1]

    yield make
    for name in names:
        if server.http("GET", f"{server.ws()}/computes/{name}").status_code == 200:
            server.drop_cluster(name)


def refused(answer, status=400):
    assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
    error = answer.json()["error"]
    words = " ".join([error["message"], *(d["message"] for d in error.get("details") or [])])
    return error, words


def aml_body(location="eastus", **properties):
    return {"location": location, "properties": {"computeType": "AmlCompute", "properties": properties}}


# --- the usual lines --------------------------------------------------------------------------------------------


def test_the_usual_lines(ml, named):
    name = named("cpu")
    made = ml.compute.begin_create_or_update(
        AmlCompute(name=name, size="STANDARD_DS3_v2", location="westus", min_instances=0, max_instances=2, idle_time_before_scale_down=120)
    ).result()
    assert (made.name, made.size, made.location) == (name, "STANDARD_DS3_V2", "westus")
    assert (made.min_instances, made.max_instances, made.idle_time_before_scale_down) == (0, 2, 120)
    assert made.provisioning_state == "Succeeded" and made.tier == "dedicated"
    assert ml.compute.get(name).id == made.id
    assert name in [c.name for c in ml.compute.list()]
    assert name in [c.name for c in ml.compute.list(compute_type="amlcompute")]
    assert list(ml.compute.list_nodes(name)) == []

    fetched = ml.compute.get(name)
    fetched.max_instances, fetched.idle_time_before_scale_down, fetched.tags = 3, 60, {"team": "x"}
    updated = ml.compute.begin_update(fetched).result()
    assert (updated.max_instances, updated.idle_time_before_scale_down, updated.tags) == (3, 60, {"team": "x"})

    ml.compute.begin_delete(name).wait()
    with pytest.raises(ResourceNotFoundError) as gone:
        ml.compute.get(name)
    assert name in str(gone.value)


def test_defaults(ml, named, server):
    name = named()
    made = ml.begin_create_or_update(AmlCompute(name=name)).result()
    assert (made.size, made.tier, made.min_instances, made.max_instances, made.idle_time_before_scale_down) == ("STANDARD_DS3_V2", "dedicated", 0, 4, 120)
    assert made.location == ml.workspaces.get(server.workspace).location
    wire = server.get(f"{server.ws()}/computes/{name}")
    assert wire["type"] == "Microsoft.MachineLearningServices/workspaces/computes"
    inner = wire["properties"]["properties"]
    assert inner["enableNodePublicIp"] is True and inner["osType"] == "Linux"
    assert (inner["currentNodeCount"], inner["targetNodeCount"], inner["allocationState"]) == (0, 0, "Steady")
    assert inner["nodeStateCounts"]["idleNodeCount"] == 0


@pytest.mark.parametrize(
    "given, wire",
    [("low_priority", "LowPriority"), ("LowPriority", "LowPriority"), ("lowpriority", "LowPriority"), ("Dedicated", "Dedicated"), ("dedicated", "Dedicated"), (None, "Dedicated")],
)
def test_tier_is_read_in_any_case_and_answered_canonically(ml, named, server, given, wire):
    name = named()
    made = ml.compute.begin_create_or_update(AmlCompute(name=name, tier=given)).result()
    assert made.tier == {"LowPriority": "low_priority", "Dedicated": "dedicated"}[wire]
    assert server.cluster(name)["vmPriority"] == wire


@pytest.mark.parametrize("word", ["SystemAssigned", "system_assigned"])
def test_system_identity(ml, named, word):
    made = ml.compute.begin_create_or_update(AmlCompute(name=named(), identity=IdentityConfiguration(type=word))).result()
    assert made.identity.type.lower().replace("_", "") == "systemassigned"
    assert made.identity.principal_id and made.identity.tenant_id


def test_user_identity(ml, named, server):
    name = named()
    identity = IdentityConfiguration(type="UserAssigned", user_assigned_identities=[ManagedIdentityConfiguration(resource_id=USER_IDENTITY)])
    made = ml.compute.begin_create_or_update(AmlCompute(name=name, identity=identity)).result()
    assert [i.resource_id for i in made.identity.user_assigned_identities] == [USER_IDENTITY]
    kept = server.get(f"{server.ws()}/computes/{name}")["identity"]["userAssignedIdentities"][USER_IDENTITY]
    assert kept["principalId"] and kept["clientId"]


def test_identity_can_be_changed(ml, named):
    name = named()
    ml.compute.begin_create_or_update(AmlCompute(name=name)).result()
    fetched = ml.compute.get(name)
    fetched.identity = IdentityConfiguration(type="SystemAssigned")
    assert ml.compute.begin_update(fetched).result().identity.principal_id


def test_ssh_settings_are_kept_and_the_password_never_returned(ml, named, server):
    name = named()
    ssh = AmlComputeSshSettings(admin_username="azureuser", admin_password="Correct-Horse-9", ssh_key_value="ssh-rsa AAAA")
    made = ml.compute.begin_create_or_update(AmlCompute(name=name, ssh_settings=ssh)).result()
    assert made.ssh_settings.admin_username == "azureuser"
    wire = server.http("GET", f"{server.ws()}/computes/{name}")
    assert "Correct-Horse-9" not in wire.text
    warnings = wire.json()["properties"]["properties"]["neapWarnings"]
    assert any("ssh" in w.lower() for w in warnings), warnings


@pytest.mark.parametrize("full", [False, True])
def test_network_settings(ml, named, server, full):
    name = named()
    subnet_id = f"/subscriptions/{server.subscription}/resourceGroups/{server.group}/providers/Microsoft.Network/virtualNetworks/vn/subnets/sn"
    network = NetworkSettings(subnet=subnet_id) if full else NetworkSettings(vnet_name="vn", subnet="sn")
    ml.compute.begin_create_or_update(AmlCompute(name=name, network_settings=network)).result()
    inner = server.cluster(name)
    assert inner["subnet"]["id"].lower() == subnet_id.lower()
    assert inner["neapWarnings"]
    # The SDK sends `subnet: {}` when it updates such a cluster: that means unchanged.
    fetched = ml.compute.get(name)
    fetched.max_instances = 1
    ml.compute.begin_update(fetched).result()
    assert server.cluster(name)["subnet"]["id"].lower() == subnet_id.lower()


def test_no_public_ip_tags_and_description(ml, named, server):
    name = named()
    ml.compute.begin_create_or_update(AmlCompute(name=name, enable_node_public_ip=False, tags={"a": "b"}, description="for tests")).result()
    wire = server.get(f"{server.ws()}/computes/{name}")
    assert wire["properties"]["properties"]["enableNodePublicIp"] is False
    assert wire["tags"] == {"a": "b"} and wire["properties"]["description"] == "for tests"


# --- nodes, sizes, usage ----------------------------------------------------------------------------------------


def test_list_nodes_fills_the_snake_case_attributes_too(ml, named):
    name = named()
    ml.compute.begin_create_or_update(AmlCompute(name=name, min_instances=1, max_instances=1)).result()
    nodes = wait_until(lambda: [n for n in ml.compute.list_nodes(name) if n.node_state == "idle"], "one node is idle")
    assert len(nodes) == 1 and nodes[0].node_id.startswith("n-")


def test_list_sizes(ml):
    sizes = {s.name.upper(): s for s in ml.compute.list_sizes()}
    assert len(sizes) > 100
    assert sizes["STANDARD_DS3_V2"].v_cp_us == 4 and sizes["STANDARD_DS3_V2"].memory_gb == 14
    assert sizes["STANDARD_NC6S_V3"].gpus == 1
    assert len(list(ml.compute.list_sizes(location="westus"))) > 100


def test_list_usage(ml, named):
    ml.compute.begin_create_or_update(AmlCompute(name=named(), size="STANDARD_DS3_v2", max_instances=2)).result()
    used = [u for u in ml.compute.list_usage() if u.current_value]
    assert used, "a cluster at zero nodes still holds its maximum"
    assert list(ml.compute.list_usage(location="westus2"))


# --- updates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, word",
    [
        ({"size": "STANDARD_DS2_v2"}, "size"),
        ({"tier": "low_priority"}, "tier"),
        ({"location": "westus"}, "location"),
        ({"enable_node_public_ip": False}, "public"),
        ({"network_settings": NetworkSettings(vnet_name="other", subnet="sn")}, "subnet"),
    ],
    ids=lambda v: v if isinstance(v, str) else "-".join(v),
)
def test_what_cannot_change_is_refused_in_words(ml, named, change, word):
    name = named()
    base = dict(name=name, location="eastus", size="STANDARD_DS3_v2", tier="dedicated", max_instances=2)
    ml.compute.begin_create_or_update(AmlCompute(**base)).result()
    with pytest.raises(HttpResponseError) as no:
        ml.compute.begin_create_or_update(AmlCompute(**{**base, **change})).result()
    assert no.value.status_code in (400, 409)
    assert word in str(no.value).lower() and "change" in str(no.value).lower(), str(no.value)


def test_max_zero_is_legal_and_idle_zero_means_zero(server, named):
    name = named()
    server.make_cluster(name, 0, 0, "PT0S")
    scale = server.cluster(name)["scaleSettings"]
    assert scale["maxNodeCount"] == 0
    assert scale["nodeIdleTimeBeforeScaleDown"] == "PT0S"


def test_absent_idle_time_means_two_minutes(server, named):
    name = named()
    server.put(f"{server.ws()}/computes/{name}", aml_body(vmSize="standard_ds3_v2", scaleSettings={"maxNodeCount": 1}))
    inner = server.cluster(name)
    assert inner["scaleSettings"]["nodeIdleTimeBeforeScaleDown"] == "PT2M"
    assert inner["vmSize"] == "STANDARD_DS3_V2"


def test_location_is_read_as_people_write_it(server, named):
    name = named()
    server.put(f"{server.ws()}/computes/{name}", aml_body(location="West US", vmSize="STANDARD_DS3_V2"))
    assert server.get(f"{server.ws()}/computes/{name}")["location"] == "westus"


def test_a_get_sent_back_as_put_is_accepted(ml, named, server):
    name = named()
    ml.compute.begin_create_or_update(
        AmlCompute(
            name=name,
            tier="low_priority",
            tags={"a": "b"},
            identity=IdentityConfiguration(type="SystemAssigned"),
            ssh_settings=AmlComputeSshSettings(admin_username="u", admin_password="pw-Correct-1"),
            network_settings=NetworkSettings(vnet_name="vn", subnet="sn"),
        )
    ).result()
    before = server.get(f"{server.ws()}/computes/{name}")
    answer = server.put(f"{server.ws()}/computes/{name}", before)
    volatile = {"modifiedOn"}
    strip = lambda body: {k: v for k, v in body["properties"].items() if k not in volatile}
    assert strip(server.get(f"{server.ws()}/computes/{name}")) == strip(before) and answer["name"] == name


@pytest.mark.parametrize("shape", ["properties", "properties.properties"])
def test_patch_in_both_shapes(server, named, shape):
    name = named()
    server.make_cluster(name, 0, 2)
    scale = {"scaleSettings": {"minNodeCount": 0, "maxNodeCount": 5, "nodeIdleTimeBeforeScaleDown": "PT5M"}}
    body = {"properties": scale} if shape == "properties" else {"properties": {"properties": scale}}
    answer = server.http("PATCH", f"{server.ws()}/computes/{name}", body)
    assert answer.status_code == 200, answer.text
    assert server.cluster(name)["scaleSettings"]["maxNodeCount"] == 5


# --- refusals ---------------------------------------------------------------------------------------------------


def test_every_problem_is_told_at_once(server):
    body = aml_body(location="atlantis", vmSize="STANDARD_NOPE_9", scaleSettings={"minNodeCount": 5, "maxNodeCount": 2, "nodeIdleTimeBeforeScaleDown": "-PT5S"})
    error, words = refused(server.http("PUT", f"{server.ws()}/computes/{unique('bad')}", body))
    assert len(error["details"]) >= 4, error
    for word in ("atlantis", "STANDARD_NOPE_9", "idle"):
        assert word.lower() in words.lower(), (word, words)
    assert "min" in words.lower() and "max" in words.lower()
    assert error["additionalInfo"][0]["info"]["help"].startswith("docs/errors/")


@pytest.mark.parametrize(
    "name, good",
    [
        ("abc", True),
        ("Cpu-Cluster", True),
        ("a1b", True),
        ("a" * 24, True),
        ("gpu-2x", True),
        ("ab", False),
        ("a" * 25, False),
        ("1abc", False),
        ("-abc", False),
        ("abc-", False),
        ("abc-12", False),
        ("ab_c", False),
        ("ab.c", False),
        ("abcé", False),
    ],
)
def test_name_rules(server, name, good):
    body = aml_body(vmSize="STANDARD_DS3_V2", scaleSettings={"maxNodeCount": 1})
    answer = server.http("PUT", f"{server.ws()}/computes/{name}", body)
    if good:
        assert answer.status_code in (200, 201), answer.text
        server.drop_cluster(name)
    else:
        refused(answer)


def test_a_name_is_taken_in_its_region_across_workspaces_without_regard_to_case(server, named):
    name, other = named("Dup"), unique("ws")
    server.make_cluster(name)
    server.put(server.ws(workspace=other), {"location": "eastus", "properties": {}})
    body = aml_body(vmSize="STANDARD_DS3_V2")
    error, words = refused(server.http("PUT", f"{server.ws(workspace=other)}/computes/{name.upper()}", body), 409)
    assert name.lower() in words.lower()
    elsewhere = server.http("PUT", f"{server.ws(workspace=other)}/computes/{name}", aml_body(location="westus", vmSize="STANDARD_DS3_V2"))
    assert elsewhere.status_code in (200, 201), elsewhere.text
    assert server.http("DELETE", server.ws(workspace=other)).status_code in (200, 202, 204)


def test_compute_instance_and_attached_machines_are_refused_with_what_to_use(ml):
    with pytest.raises(HttpResponseError) as no:
        ml.compute.begin_create_or_update(ComputeInstance(name=unique("ci"), size="Standard_DS3_v2")).result()
    assert "cluster" in str(no.value).lower()
    vm = "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/vm"
    ssh = VirtualMachineSshSettings(admin_username="u", admin_password="p")
    with pytest.raises(HttpResponseError) as no:
        ml.compute.begin_attach(VirtualMachineCompute(name=unique("vm"), resource_id=vm, ssh_settings=ssh)).result()
    assert "cluster" in str(no.value).lower()


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_start_stop_restart_are_refused_with_a_sentence(ml, named, server, verb):
    name = named()
    server.make_cluster(name)
    with pytest.raises(HttpResponseError) as no:
        getattr(ml.compute, f"begin_{verb}")(name).wait()
    assert len(str(no.value)) > 40


def test_delete_of_what_is_not_there_is_no_error(ml):
    ml.compute.begin_delete(unique("none")).wait()


def test_create_on_an_unknown_workspace_says_so(server):
    answer = server.http("PUT", f"{server.ws(workspace='nowhere')}/computes/abc", aml_body(vmSize="STANDARD_DS3_V2"))
    _, words = refused(answer, 404)
    assert "nowhere" in words


def test_delete_cancels_the_jobs_of_the_cluster_with_the_reason(server, cluster):
    name = cluster(0, 1)
    running = server.submit(name, "sleep 300")
    waiting = server.submit(name, "sleep 300")
    server.wait_job(running, "Running")
    server.drop_cluster(name)
    for job in (running, waiting):
        server.wait_job(job, "Canceled")
        assert "delet" in str(server.job(job)).lower(), server.job(job)
    # The name is free again.
    server.make_cluster(name)


def test_paths_and_api_versions_are_taken_as_they_come(server, named):
    name = named()
    server.make_cluster(name)
    odd = f"{server.ws()}/computes/{name}".replace("resourceGroups", "resourcegroups").replace("Microsoft.MachineLearningServices", "microsoft.machinelearningservices")
    for path in (odd, "/" + odd):
        answer = server.session.get(f"{server.url}{path}?api-version=1999-01-01", headers={"Authorization": f"Bearer {server.token()}"}, verify=server.vars["REQUESTS_CA_BUNDLE"])
        assert answer.status_code == 200 and answer.json()["name"] == name, (path, answer.text)


# --- the public examples ----------------------------------------------------------------------------------------

EXAMPLES = sorted((SHARED / "reference" / "examples" / "compute").glob("cluster-*.yml"))


@pytest.mark.skipif(not EXAMPLES, reason="the collection of public examples is not beside the checkout")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_public_examples_through_load_compute(ml, server, path):
    wanted = load_compute(str(path))
    try:
        made = ml.compute.begin_create_or_update(wanted).result()
        assert made.name == wanted.name and made.provisioning_state == "Succeeded"
    finally:
        server.drop_cluster(wanted.name)
