"""Workspaces and resource groups: the SDK deploys an ARM template, `az` and others use plain PUT."""

import pytest
from azure.ai.ml import MLClient
from azure.ai.ml.entities import AmlCompute, Workspace
from azure.core.exceptions import ResourceNotFoundError
from azure.identity import DefaultAzureCredential

from neapserver import unique, wait_until


def test_create_get_list_delete(ml, server):
    name = unique("ws")
    made = ml.workspaces.begin_create(Workspace(name=name, location="westus", display_name="Team one", description="d", tags={"team": "one"})).result()
    assert (made.name, made.location, made.tags["team"]) == (name, "westus", "one")  # the SDK adds a tag of its own
    assert ml.workspaces.get(name).discovery_url.startswith(server.url)
    assert {name, server.workspace} <= {w.name for w in ml.workspaces.list()}
    assert name in {w.name for w in ml.workspaces.list(scope="subscription")}

    inside = MLClient(DefaultAzureCredential(), server.subscription, server.group, name)
    cluster = inside.compute.begin_create_or_update(AmlCompute(name=unique("in"), max_instances=1)).result()
    assert cluster.location == "westus", "a cluster without a location is where its workspace is"
    assert cluster.name not in [c.name for c in ml.compute.list()]
    inside.compute.begin_delete(cluster.name).wait()

    ml.workspaces.begin_delete(name, delete_dependent_resources=False).wait()
    wait_until(lambda: server.http("GET", server.ws(workspace=name)).status_code == 404, "the workspace is gone")
    with pytest.raises(ResourceNotFoundError):
        ml.workspaces.get(name)


def test_the_default_workspace_is_there(ml, server):
    default = ml.workspaces.get(server.workspace)
    assert default.name == "default" and default.resource_group == "neap"


def test_an_unknown_workspace_is_named(ml):
    with pytest.raises(ResourceNotFoundError) as no:
        ml.workspaces.get("not-there")
    assert "not-there" in str(no.value)


def test_plain_put_and_an_unknown_location(server):
    name = unique("ws")
    assert server.put(server.ws(workspace=name), {"location": "West US", "tags": {"a": "b"}, "properties": {}})["location"] == "westus"
    answer = server.http("PUT", server.ws(workspace=unique("ws")), {"location": "atlantis", "properties": {}})
    assert answer.status_code == 400 and "atlantis" in answer.text
    assert server.http("DELETE", server.ws(workspace=name)).status_code in (200, 202, 204)


def test_resource_groups(server):
    name = unique("rg")
    path = f"/subscriptions/{server.subscription}/resourcegroups/{name}"
    made = server.put(path, {"location": "eastus", "tags": {"k": "v"}})
    assert made["name"] == name and made["properties"]["provisioningState"] == "Succeeded"
    assert server.get(path)["tags"] == {"k": "v"}
    assert name in [g["name"] for g in server.get(f"/subscriptions/{server.subscription}/resourcegroups")["value"]]
    server.put(server.ws(group=name, workspace="inner"), {"location": "eastus", "properties": {}})
    listed = server.get(f"/subscriptions/{server.subscription}/resourceGroups/{name}/providers/Microsoft.MachineLearningServices/workspaces")
    assert [w["name"] for w in listed["value"]] == ["inner"]
    assert server.http("DELETE", server.ws(group=name, workspace="inner")).status_code in (200, 202, 204)
    assert server.http("DELETE", path).status_code in (200, 202, 204)
    wait_until(lambda: server.http("GET", path).status_code == 404, "the resource group is gone")


def test_a_template_of_computes_can_be_deployed_again(server):
    name = unique("tpl")
    path = f"/subscriptions/{server.subscription}/resourcegroups/{server.group}/providers/Microsoft.Resources/deployments/{unique('dep')}"

    def deploy(high):
        template = {
            "$schema": "deploymentTemplate.json#",
            "contentVersion": "1.0.0.0",
            "parameters": {"max": {"type": "int"}},
            "resources": [
                {
                    "type": "Microsoft.MachineLearningServices/workspaces/computes",
                    "apiVersion": "2023-04-01",
                    "name": f"{server.workspace}/{name}",
                    "location": "eastus",
                    "properties": {
                        "computeType": "AmlCompute",
                        "properties": {"vmSize": "STANDARD_DS3_V2", "scaleSettings": {"minNodeCount": 0, "maxNodeCount": "[parameters('max')]"}},
                    },
                }
            ],
        }
        server.put(path, {"properties": {"mode": "Incremental", "template": template, "parameters": {"max": {"value": high}}}})
        wait_until(lambda: server.get(path)["properties"]["provisioningState"] == "Succeeded", "the deployment succeeded")
        return server.cluster(name)["scaleSettings"]["maxNodeCount"]

    assert deploy(2) == 2
    assert deploy(3) == 3, "deploying again updates what may change"
    server.drop_cluster(name)


def test_a_workspace_with_clusters_says_what_deleting_it_takes(ml, server):
    """Deleting a workspace takes its clusters with it, or is refused naming them: either way nothing is orphaned."""
    name = unique("ws")
    server.put(server.ws(workspace=name), {"location": "eastus", "properties": {}})
    inside = f"{server.ws(workspace=name)}/computes/{unique('in')}"
    server.put(inside, {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2"}}})
    answer = server.http("DELETE", server.ws(workspace=name))
    if answer.status_code >= 400:
        assert inside.rsplit("/", 1)[1] in answer.text
        server.http("DELETE", inside)
        wait_until(lambda: server.http("GET", inside).status_code == 404, "the cluster is gone")
        assert server.http("DELETE", server.ws(workspace=name)).status_code in (200, 202, 204)
    wait_until(lambda: server.http("GET", server.ws(workspace=name)).status_code == 404, "the workspace is gone")
