// Drives the official JavaScript client: create, get, list, nodes, sizes, update, delete. Arguments: cluster name, server URL.
import assert from "node:assert/strict";
import { AzureMachineLearningWorkspaces } from "@azure/arm-machinelearning";
import { DefaultAzureCredential } from "@azure/identity";

const [name, endpoint] = process.argv.slice(2);
const { NEAP_SUBSCRIPTION_ID: subscription, NEAP_RESOURCE_GROUP: group, NEAP_WORKSPACE: workspace } = process.env;
const client = new AzureMachineLearningWorkspaces(new DefaultAzureCredential(), subscription, { endpoint });
const all = async (pages) => { const found = []; for await (const one of pages) found.push(one); return found; };

const made = await client.computeOperations.beginCreateOrUpdateAndWait(group, workspace, name, {
  location: "eastus",
  properties: {
    computeType: "AmlCompute",
    properties: { vmSize: "STANDARD_DS3_v2", vmPriority: "LowPriority", scaleSettings: { maxNodeCount: 2, minNodeCount: 0, nodeIdleTimeBeforeScaleDown: "PT2M" } },
  },
}, { updateIntervalInMs: 100 });
assert.equal(made.properties.provisioningState, "Succeeded");
const got = await client.computeOperations.get(group, workspace, name);
assert.equal(got.properties.properties.vmSize, "STANDARD_DS3_V2");
assert.equal(got.properties.properties.vmPriority, "LowPriority");
assert.ok((await all(client.computeOperations.list(group, workspace))).some((c) => c.name === name));
assert.deepEqual(await all(client.computeOperations.listNodes(group, workspace, name)), []);
const sizes = await client.virtualMachineSizes.list("eastus");
assert.ok(sizes.value.some((s) => s.name.toUpperCase() === "STANDARD_DS3_V2" && s.vCPUs === 4));
const changed = await client.computeOperations.beginUpdateAndWait(group, workspace, name, {
  properties: { scaleSettings: { maxNodeCount: 3, minNodeCount: 0 } },
}, { updateIntervalInMs: 100 });
assert.equal(changed.properties.properties.scaleSettings.maxNodeCount, 3);
await client.computeOperations.beginDeleteAndWait(group, workspace, name, "Delete", { updateIntervalInMs: 100 });
await assert.rejects(client.computeOperations.get(group, workspace, name), (e) => e.statusCode === 404);
console.log("OK");
