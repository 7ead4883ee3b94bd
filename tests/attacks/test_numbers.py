"""The attacker has an ordinary account, and sends numbers at the edge of what their type holds: money, times, sizes, counts, offsets.
A sum that wraps would make a budget of nothing out of one of everything; one that panics in the only writer would end the server.

Stopped by: limits on each number where it is read (BadArgument), checked and saturating sums behind them, `overflow-checks` in the
release build, and the machine of the writer, which answers a fault of the core with InternalError and goes on.
"""

import copy
import os
import re

import pytest

from aftermath import assert_replays, assert_serving
from neapserver import Server, new_home, remove, unique

EDGES = [0, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, 1e308, -1e308, 0.1, "9" * 400]
LONG = ["PT0S", "-PT1S", "PT9223372036854775807S", "P106751991167D", "PT0.0000000000001S", "P" + "9" * 300 + "D", "PT" + "1H" * 5_000]


@pytest.fixture(scope="module")
def server():
    home = new_home("numbers")
    running = Server(home)
    (home / "store").mkdir()
    (home / "config.yaml").write_text(f"inputs: {{allow: ['{home}/store']}}\n")
    running.up()
    running.environment_id()
    running.make_cluster("sums", 0, 2, "PT30S")
    yield running
    running.cli("down", "--grace", "1", check=False, timeout=90)
    remove(home)


def answered(server, method, path, body=None):
    """Refused or taken, and no fault of the server."""
    answer = server.http(method, path, body)
    assert answer.status_code < 500, f"{method} {path} {str(body)[:300]}: {answer.status_code} {answer.text[:500]}"
    return answer


def each(body, *keys):
    """The body with every edge at a place."""
    for edge in EDGES:
        made = copy.deepcopy(body)
        place = made
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = edge
        yield made


def test_budgets(server):
    path = f"{server.nws()}/budgets"
    body = {"amount_usd": 10, "every": "month", "at_cap": "stop", "thresholds": [50]}
    for key in ("amount_usd", "amount", "thresholds"):
        for edge in EDGES:
            answered(server, "PUT", f"/neap/v1/budgets/{unique('b')}", {**body, key: [edge] if key == "thresholds" else edge})
            answered(server, "PUT", f"{path}/{unique('b')}", {**body, key: [edge] if key == "thresholds" else edge})
    for amount in ("9" * 30, "18446744073709.551616", "-1", "1e30", "nan"):
        made = server.cli("budget", "create", "-n", unique("b"), "--amount", amount, check=False)
        assert made.returncode in (1, 2) and "InternalError" not in made.stderr, made.stderr


def test_quotas(server):
    location = f"/subscriptions/{server.subscription}/providers/Microsoft.MachineLearningServices/locations/eastus"
    for edge in EDGES:
        body = {"value": [{"type": "Microsoft.MachineLearningServices/workspaces/quotas", "unit": "Count", "limit": edge, "id": f"{location}/quotas/standardDSv2Family"}]}
        answered(server, "POST", f"{location}/updateQuotas", body)
        answered(server, "PUT", f"{server.nws()}/quotas/users/someone", {"jobs": edge, "cores": edge})
    for limit in (2**64 - 1, 2**63 - 1, 2**32, -1):
        done = server.cli("quota", "request", "family:standardDSv2Family", "--location", "eastus", "--limit", limit, check=False)
        assert "InternalError" not in done.stderr and done.returncode in (0, 1, 2), done.stderr


def test_clusters(server):
    base = {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2", "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 1, "nodeIdleTimeBeforeScaleDown": "PT2S"}}}}
    scale = ("properties", "properties", "scaleSettings")
    made = set()
    for key in ("minNodeCount", "maxNodeCount"):
        for body in each(base, *scale, key):
            name = unique("e")
            if key == "minNodeCount":
                body["properties"]["properties"]["scaleSettings"]["maxNodeCount"] = body["properties"]["properties"]["scaleSettings"]["minNodeCount"]
            if answered(server, "PUT", f"{server.ws()}/computes/{name}", body).status_code < 300:
                made.add(name)
    for idle in LONG:
        body = copy.deepcopy(base)
        body["properties"]["properties"]["scaleSettings"]["nodeIdleTimeBeforeScaleDown"] = idle
        name = unique("i")
        if answered(server, "PUT", f"{server.ws()}/computes/{name}", body).status_code < 300:
            made.add(name)
    for name in made:
        answered(server, "DELETE", f"{server.ws()}/computes/{name}?underlyingResourceAction=Delete")


def test_jobs(server):
    def job(**more):
        name = unique("j")
        if answered(server, "PUT", f"{server.ws()}/jobs/{name}", server.job_body("sums", "true", **more)).status_code < 300:
            server.http("POST", f"{server.ws()}/jobs/{name}/cancel")

    for edge in EDGES:
        job(resources={"instanceCount": edge})
        job(priority=edge)
        for key in ("cores", "memory_mb", "memoryMb", "gpus", "cpus"):
            job(resources={"instanceCount": 1, "properties": {"neap": {key: edge}}})
        job(resources={"instanceCount": 1, "properties": {"neap": {"retry": {"max": edge, "node_lost": edge, "delay_seconds": edge, "exit_codes": [edge]}}}})
        job(resources={"instanceCount": 1, "shmSize": f"{edge}g"})
        job(distribution={"distributionType": "PyTorch", "processCountPerInstance": edge})
        job(distribution={"distributionType": "TensorFlow", "workerCount": edge, "parameterServerCount": edge})
    for text in LONG:
        job(limits={"jobLimitsType": "Command", "timeout": text})
        job(queueSettings={"jobTier": "Standard", "priority": 1}, limits={"jobLimitsType": "Command", "timeout": text})


def test_sweeps(server):
    for edge in EDGES:
        for limits in ({"maxTotalTrials": edge}, {"maxConcurrentTrials": edge}, {"maxTotalTrials": edge, "maxConcurrentTrials": edge}):
            for space in (["uniform", [0, edge]], ["randint", [edge]], ["qnormal", [0, edge, edge]], ["quniform", [0, edge, 1]]):
                body = {
                    "properties": {
                        "jobType": "Sweep",
                        "computeId": f"{server.ws()}/computes/sums",
                        "objective": {"goal": "Maximize", "primaryMetric": "m"},
                        "samplingAlgorithm": {"samplingAlgorithmType": "Grid", "seed": edge},
                        "earlyTermination": {"policyType": "Bandit", "slackFactor": edge, "evaluationInterval": edge, "delayEvaluation": edge},
                        "searchSpace": {"p": space},
                        "limits": {"jobLimitsType": "Sweep", **limits},
                        "trial": {"command": "true ${{search_space.p}}", "environmentId": f"{server.ws()}/environments/plain/versions/1"},
                    }
                }
                name = unique("s")
                if answered(server, "PUT", f"{server.ws()}/jobs/{name}", body).status_code < 300:
                    server.http("POST", f"{server.ws()}/jobs/{name}/cancel")


def test_pages_and_offsets(server):
    job = server.submit("sums", "echo pages")
    server.wait_job(job, "Completed")
    for edge in EDGES:
        for path in (
            f"{server.nws()}/jobs/{job}/log?offset={edge}&follow=false",
            f"{server.ws()}/jobs?$skip={edge}&$top={edge}",
            f"{server.nws()}/queue?top={edge}",
            f"/neap/v1/events?after={edge}&limit={edge}",
            f"{server.nws()}/cost?from={edge}&to={edge}",
            f"{server.nws()}/computes/sums/nodes?top={edge}",
            f"{server.ws()}/jobs/{job}?at={edge}",
        ):
            answered(server, "GET", path)
        mlflow = f"/mlflow/v1.0{server.ws()}/api/2.0/mlflow"
        answered(server, "POST", f"{mlflow}/runs/search", {"experiment_ids": ["0"], "max_results": edge})
        answered(server, "GET", f"{mlflow}/metrics/get-history?run_id={job}&metric_key=m&max_results={edge}")
        answered(server, "POST", f"{mlflow}/runs/log-metric", {"run_id": job, "key": "m", "value": edge, "timestamp": edge, "step": edge})
        answered(server, "POST", f"{mlflow}/runs/create", {"experiment_id": "0", "start_time": edge})
        answered(server, "POST", f"{mlflow}/runs/update", {"run_id": job, "end_time": edge, "status": "FINISHED"})
        answered(server, "POST", f"{server.nws()}/computes/sums/evict", {"grace_seconds": edge, "simulate": True})


def test_ranges_of_blobs(server):
    store = server.get(f"{server.ws()}/datastores/workspaceblobstore")["properties"]
    base = f"https://{store['accountName']}.blob.core.windows.net/{store['containerName']}"
    headers = {"Authorization": f"Bearer {server.token()}", "x-ms-blob-type": "BlockBlob"}
    verify = server.vars["REQUESTS_CA_BUNDLE"]
    assert server.session.put(f"{base}/numbers.txt", data="0123456789", headers=headers, verify=verify, timeout=20).status_code == 201
    for first in ("0", "5", "9", "10", str(2**63 - 1), str(2**64 - 1), str(2**64), "-1", "-" + str(2**64 - 1)):
        for last in ("", "0", "9", str(2**63 - 1), str(2**64 - 1), str(2**64)):
            answer = server.session.get(f"{base}/numbers.txt", headers={**headers, "x-ms-range": f"bytes={first}-{last}"}, verify=verify, timeout=20)
            assert answer.status_code in (200, 206, 400, 416), f"{first}-{last}: {answer.status_code} {answer.text}"
    for edge in EDGES:
        answer = server.session.get(f"{base}?restype=container&comp=list&maxresults={edge}", headers=headers, verify=verify, timeout=20)
        assert answer.status_code < 500, answer.text


def test_times_of_files(server):
    """Whoever may write to a shared folder may set any time on a file."""
    file = server.home / "store" / "old.txt"
    file.write_text("old")
    body = {"properties": {"datastoreType": "LocalFolder", "path": str(server.home / "store"), "credentials": {"credentialsType": "None"}}}
    assert server.http("PUT", f"{server.ws()}/datastores/times", body).status_code in (200, 201)


    account = re.search(r"neapst\d+", server.get(f"{server.ws()}/datastores/workspaceblobstore")["properties"]["accountName"])[0]
    for seconds in (2**33 * 4, 9_223_372_037, -(2**31), 2**62):
        try:
            os.utime(file, (0, seconds))
        except (OSError, OverflowError):
            continue
        answer = server.http("GET", f"/{account}/~store.times?restype=container&comp=list")
        assert answer.status_code == 200, f"{seconds}: {answer.status_code} {answer.text}"


def test_afterwards(server):
    log = (server.home / "logs" / "server.log").read_text(errors="replace")
    faults = [line for line in log.splitlines() if "panicked" in line or "overflow" in line or "fault in the core" in line]
    assert not faults, faults[:5]
    assert_serving(server, "sums", 120)
    assert_replays(server)
