"""What must be true after every attack: the server serves, the ledger replays, other jobs run, and the attacker knows why.

Each file in this folder is one attack. Its docstring says who the attacker is, what they try, and which layer stops them.
"""

from neapserver import FINAL, unique, wait_until


def assert_other_jobs_run(server, cluster, seconds=60):
    """A job that has nothing to do with the attack starts and completes on the same cluster."""
    name = server.submit(cluster, "echo bystander", name=unique("bystander"))
    server.wait_job(name, "Completed", seconds)
    assert "bystander" in server.log(name)


def assert_serving(server, cluster=None, seconds=60):
    """The server answers, its health is good, no node is stuck, and (given a cluster) other jobs run there."""
    assert server.http("GET", f"{server.ws()}/computes").status_code == 200
    if cluster:
        assert_other_jobs_run(server, cluster, seconds)

        def healthy():
            return all(node.get("nodeState", node.get("state")) not in ("unusable", "silent") for node in server.nodes(cluster))

        wait_until(healthy, f"every node of {cluster} is healthy or replaced", seconds)


def reason_of(server, job, seconds=60):
    """Waits for the attacker's job to end, and returns (status, everything it is told about why)."""
    wait_until(lambda: server.status(job) in FINAL, f"{job} has ended", seconds)
    shown = server.json("job", "show", "-n", job)
    return shown["status"], f"{shown.get('error') or ''} {server.log(job)}"


def assert_replays(server):
    """Stops the server and replays its ledger from the first event. The server is down afterwards."""
    server.cli("down", "--grace", "1", check=False, timeout=90)
    verified = server.cli("verify", "--replay", check=False, timeout=120)
    assert verified.returncode == 0, f"neap verify --replay: {verified.stdout}{verified.stderr}"
