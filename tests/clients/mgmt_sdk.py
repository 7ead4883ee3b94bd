"""Run with either management SDK: create, get, list, patch, nodes, delete. Their shapes of PATCH differ on the wire."""

import os
import sys

from azure.identity import DefaultAzureCredential
from azure.mgmt.machinelearningservices import VERSION, MachineLearningServicesMgmtClient

env = os.environ
name, url = sys.argv[1:3]
old = VERSION.startswith("1.0")
client = MachineLearningServicesMgmtClient(DefaultAzureCredential(), env["NEAP_SUBSCRIPTION_ID"], base_url=url, credential_scopes=[f"{url}/.default"])
where = (env["NEAP_RESOURCE_GROUP"], env["NEAP_WORKSPACE"])
operations = client.machine_learning_compute if old else client.compute
from azure.mgmt.machinelearningservices import models

scale = models.ScaleSettings(max_node_count=2, min_node_count=0, node_idle_time_before_scale_down="PT1M")
body = models.ComputeResource(
    location="eastus",
    properties=models.AmlCompute(
        properties=models.AmlComputeProperties(vm_size="STANDARD_DS3_v2", vm_priority="LowPriority", scale_settings=scale)
    ),
)
made = operations.begin_create_or_update(*where, name, body).result()
assert made.name == name and made.properties.provisioning_state == "Succeeded", made
inner = operations.get(*where, name).properties.properties
assert (inner.vm_size, inner.vm_priority, inner.allocation_state, inner.current_node_count) == ("STANDARD_DS3_V2", "LowPriority", "Steady", 0), inner
listed = operations.list_by_workspace(*where) if old else operations.list(*where)
assert name in [c.name for c in listed]

more = models.ScaleSettings(max_node_count=4, min_node_count=0, node_idle_time_before_scale_down="PT2M")
if old:
    change = models.ClusterUpdateParameters(scale_settings=more)
else:
    change = models.ClusterUpdateParameters(properties=models.ScaleSettingsInformation(scale_settings=more))
operations.begin_update(*where, name, change).result()
# Asked again: an answer that is final at once is read twice by the newer client, which loses its type the second time.
changed = operations.get(*where, name).properties.properties
assert changed.scale_settings.max_node_count == 4, changed
nodes = operations.list_nodes(*where, name)
assert list(getattr(nodes, "nodes", nodes) or []) == []
if not old:  # the first release reads the sizes from another key, which the service no longer sends
    assert any(s.name.upper() == "STANDARD_DS3_V2" and s.v_cp_us == 4 for s in client.virtual_machine_sizes.list("eastus").value)
assert list(client.usages.list("eastus")) is not None
operations.begin_delete(*where, name, "Delete").result()
assert name not in [c.name for c in (operations.list_by_workspace(*where) if old else operations.list(*where))]
print("OK", VERSION)
