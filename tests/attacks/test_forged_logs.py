"""The attacker has root on a node, and so its key and certificate. They write into the log of a job that another node runs,
report that it ended, and claim its services.

Stopped by: the session with the agent (`control/session.rs`), which stores logs of the node's own attempts only; the core, which
takes reports of an attempt from the nodes that it runs on; `control/services.rs`.
"""

import pytest
from aftermath import assert_other_jobs_run, assert_replays
from neapserver import Server, new_home, remove, unique, wait_until
from visitor import AGENT, connect, log_frame, message, read_message

FACTS = {"hostname": "forged", "agent_version": "0", "pid": 1, "cpus_milli": 1000, "memory_mb": 1000, "gpus": 0}
FORGED = b"FORGED BY ANOTHER NODE\n"


@pytest.fixture(scope="module")
def attacked(mark):
    server = Server(new_home("forge"))
    server.up()
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.assert_nothing_left(mark)
    remove(server.home)


def enter(server, node):
    """The attacker's connection as this node, past the welcome."""
    number = int(node.removeprefix("n-"))
    folder = next(path.parent for path in server.home.rglob("node.pem") if path.parent.name.endswith(f"n-{number}") or path.parent.name == str(number))
    stream = connect(server, AGENT, (folder / "node.pem", folder / "node.key"))
    stream.sendall(message(type="hello", protocol=2, node=number, facts=FACTS, attempts=[]))
    wait_until(lambda: read_message(stream)["type"] == "welcome", "the node is welcome")
    return stream


def test_a_node_writes_its_own_logs_only(attacked, mark):
    mine, theirs = unique("ca"), unique("cb")
    for cluster in (mine, theirs):
        attacked.make_cluster(cluster, 1, 1, "PT5M")
    variables = {"NEAP_TEST_MARK": mark}
    ended = attacked.submit(theirs, "echo mine alone", environmentVariables=variables)
    attacked.wait_job(ended, "Completed")
    running = attacked.submit(theirs, "echo mine alone; sleep 600", environmentVariables=variables)
    wait_until(lambda: "mine alone" in attacked.log(running), "the victim has written something")
    node = wait_until(lambda: attacked.nodes(mine), "the attacker's node")[0]["node_id"]
    logs = {job: attacked.log(job) for job in (ended, running)}
    with enter(attacked, node) as stream:
        # Which number a job has is no secret.
        for job in range(1, 8):
            for text in logs.values():
                stream.sendall(log_frame(job, 1, len(text.encode()), FORGED))
            stream.sendall(message(type="report", attempt={"job": job, "attempt": 1}, number=99, body={"what": "ended", "exit": {"how": "success"}}))
            stream.sendall(message(type="services", attempt={"job": job, "attempt": 1}, services=[]))
        stream.sendall(message(type="heartbeat", sent_boot_ms=4711))
        # Everything before it has been taken in by then.
        wait_until(lambda: (m := read_message(stream)) and m.get("sent_boot_ms") == 4711, "the server goes on", every=0)
        for job, text in logs.items():
            assert attacked.log(job) == text, "another node's words are in the log"
        assert attacked.status(running) == "Running"
    assert_other_jobs_run(attacked, mine)
    attacked.http("POST", f"{attacked.ws()}/jobs/{running}/cancel")
    attacked.wait_job(running, "Canceled")
    assert_replays(attacked)
