"""A checkpoint record that no agent has written.

**Attacker**: a job that can write to the store its checkpoint lies in, or whoever holds its credential.
**Attempt**: a record with links, and files below those links, so that the agent that restores it makes files elsewhere; and
records that are too large, too deep or not about the checkpoint at all.
**Stopped by**: a check of the whole record before anything of it is restored (`crates/agent/src/checkpoint_record.rs`), and
restoring by descriptor without following links (`crates/agent/src/tree.rs`). The job fails with the reason.
"""

import json
import os
import signal

import pytest

from aftermath import assert_replays, assert_serving
from neapserver import FINAL, Server, new_home, remove, unique, wait_until

KEEP = "echo 1 > $AZUREML_CHECKPOINT_DIR/state; echo kept; sleep 600"


@pytest.fixture(scope="module")
def attacked():
    server = Server(new_home("forged"))
    (server.home / "config.yaml").write_text("checkpoint_interval_seconds: 1\n")
    server.up()
    server.make_cluster("spot", 0, 2, "PT60S", vmPriority="LowPriority")
    yield server
    assert_replays(server)
    remove(server.home)


def forge(server, job, change):
    """Rewrites the record of a running job's checkpoint, as it lies in the workspace's store."""
    store = server.get(f"{server.ws()}/datastores/workspaceartifactstore")["properties"]
    asked = {"expirableSecret": True, "expireAfterHours": 1}
    secret = server.http("POST", f"{server.ws()}/datastores/workspaceartifactstore/listSecrets", asked).json()
    url = f"https://{store['accountName']}.blob.core.windows.net/{store['containerName']}/Checkpoints/dcid.{job}/0/current.json?{secret['sasToken'].lstrip('?')}"
    verify = server.vars["REQUESTS_CA_BUNDLE"]
    record = server.session.get(url, verify=verify, timeout=30).json()
    text = json.dumps(change(record))
    answer = server.session.put(url, data=text, headers={"x-ms-blob-type": "BlockBlob"}, verify=verify, timeout=30)
    assert answer.status_code == 201, answer.text


def attack(server, change):
    """The job's status and what it is told, after its node was lost and another one was given what `change` made of its record."""
    resources = {"instanceCount": 1, "properties": {"neap": {"cpus": 0.2, "retry": {"preempted": 1}}}}
    job = server.submit("spot", KEEP, name=unique("forged"), resources=resources)
    wait_until(lambda: server.get(f"{server.nws()}/jobs/{job}/checkpoint")["checkpoint"], "its checkpoint is kept", 60)
    number = server.get(f"{server.nws()}/jobs/{job}/checkpoint")["nodes"][0].removeprefix("n-")
    forge(server, job, change)
    [agent] = [pid for pid, line in server.agents() if line.endswith(f"/nodes/{number}")]
    os.kill(agent, signal.SIGKILL)
    # Ended with a reason, or running again on what was forged.
    wait_until(lambda: server.status(job) in FINAL or server.log(job).count("kept") > 1, f"{job} was restored or refused", 60)
    shown = server.json("job", "show", "-n", job)
    return shown["status"], f"{shown.get('error') or ''} {server.log(job)}"


def test_links_through_links(attacked):
    outside = attacked.home / "outside"
    outside.mkdir()

    def change(record):
        # The links in an order in which each is there when the next is made through it.
        record["links"] = [
            {"name": "checkpoint/a", "target": str(outside)},
            {"name": "checkpoint/a/x", "target": "/etc"},
            {"name": "checkpoint/a/made/y", "target": "/etc"},
        ]
        return record

    status, reason = attack(attacked, change)
    assert [path.name for path in outside.iterdir()] == [], "the agent made files outside of the job's folder"
    assert status == "Failed" and "lies below" in reason, (status, reason)
    assert_serving(attacked, "spot")


def test_names_that_are_no_checkpoint(attacked):
    def change(record):
        record["folders"] = ["checkpoint/../../../../stolen"]
        record["files"][0]["name"] = "venv/bin/python3"
        return record

    status, reason = attack(attacked, change)
    assert status == "Failed" and "not written by Neap" in reason, (status, reason)
    assert_serving(attacked, "spot")
