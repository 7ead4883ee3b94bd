"""Attacker: somebody who got hold of the URLs that an agent was given for one attempt (memory of the agent, a core dump, a stolen
node), and of the node's key. They try to use them after the attempt has ended, was canceled or deleted; without or with an old
pass; for other operations than they were signed for; and for other files, by spelling their names differently.

The blob face stops them (crates/faces/src/blob/request.rs): the signature names the attempt, and the server asks its own state
whether that attempt lives (live.rs). The second layer is the node's pass, which lasts minutes and comes with each lease renewal.
"""

import time

import pytest

from aftermath import assert_replays, assert_serving
from neapserver import Server, new_home, remove, unique, wait_until
from stolen_node import idle_node

LEASE_S = 5
# What control/limits.rs adds to the lease.
PASS_S = LEASE_S + 2
OUTPUT = {"o": {"jobOutputType": "uri_folder"}}


@pytest.fixture(scope="module")
def server(mark):
    home = new_home("urls")
    (home / "config.yaml").write_text(f"lease_ttl_seconds: {LEASE_S}\n")
    running = Server(home)
    running.up()
    running.cluster = unique("urls")
    running.make_cluster(running.cluster, 1, 1, "PT10M")
    yield running
    running.cli("down", "--grace", "1", check=False, timeout=90)
    running.assert_nothing_left(mark)
    remove(home)


@pytest.fixture(scope="module")
def node(server):
    stolen = idle_node(server, server.cluster)
    yield stolen
    stolen.give_back()


@pytest.fixture
def attempt(server, node):
    """An attempt that the stolen node was ordered to run, and runs."""
    job = server.submit(server.cluster, "true", name=unique("victim"), outputs=OUTPUT)
    order = node.hear("start")
    node.report(order["attempt"], 1, what="started", properties={})
    yield job, order["attempt"], order["spec"]
    if server.http("GET", f"{server.ws()}/jobs/{job}").status_code == 200 and server.status(job) not in ("Completed", "Canceled", "Failed"):
        node.report(order["attempt"], 9, what="ended", exit={"how": "success"})
        server.wait_job(job)


def every_url(spec):
    return {"artifacts": spec["artifacts"], "output": spec["outputs"]["o"]["at"], "checkpoint": spec["checkpoint"]["at"]}


def assert_dead(node, spec, when):
    for name, folder in every_url(spec).items():
        for what, answer in (
            ("write", node.put(folder, "late.txt")),
            ("stage", node.put(folder, "late.txt", query="&comp=block&blockid=AAAA")),
            ("read", node.ask("GET", folder, "early.txt")),
            ("list", node.list(folder)),
            ("delete", node.ask("DELETE", folder, "early.txt")),
        ):
            assert answer.status_code == 403, f"{when}: {what} of {name} was answered {answer.status_code} {answer.text[:200]}"


def test_the_urls_of_an_attempt_die_with_it(server, node, attempt):
    job, ref, spec = attempt
    for folder in every_url(spec).values():
        assert node.put(folder, "early.txt", b"early").status_code == 201
        assert node.ask("GET", folder, "early.txt").content == b"early"
        assert "early.txt" in node.list(folder).text
    node.report(ref, 2, what="finalizing")
    wait_until(lambda: server.status(job) == "Finalizing", "the job stores its outputs", 20)
    assert node.put(spec["outputs"]["o"]["at"], "last.txt").status_code == 201, "outputs are stored while the attempt is finalizing"
    node.report(ref, 3, what="ended", exit={"how": "success"})
    server.wait_job(job, "Completed")
    assert_dead(node, spec, "after the end")
    assert server.output(job, "o", "late.txt") is None and server.output(job, "o", "early.txt") == b"early"
    assert server.http("DELETE", f"{server.ws()}/jobs/{job}").status_code in (200, 202)
    wait_until(lambda: server.http("GET", f"{server.ws()}/jobs/{job}").status_code == 404, "the job is deleted", 30)
    assert_dead(node, spec, "after the deletion")


def test_they_die_when_the_job_is_canceled(server, node, attempt):
    job, ref, spec = attempt
    assert server.http("POST", f"{server.ws()}/jobs/{job}/cancel").status_code in (200, 202)
    node.hear("stop")
    assert node.put(spec["artifacts"], "logs/said.txt").status_code == 201, "what it has is stored until it has stopped"
    node.report(ref, 2, what="ended", exit={"how": "stopped"})
    server.wait_job(job, "Canceled")
    assert_dead(node, spec, "after the cancellation")


def test_they_open_what_they_were_signed_for_and_nothing_else(server, node, attempt):
    job, ref, spec = attempt
    artifacts, output, checkpoint = every_url(spec).values()
    other = server.submit(server.cluster, "true", name=unique("bystander"))
    for folder in (artifacts, output):
        assert node.put(folder, "kept.txt").status_code == 201
        assert node.ask("DELETE", folder, "kept.txt").status_code == 403, "these may be written, not deleted"
    assert node.put(checkpoint, "c").status_code == 201 and node.ask("DELETE", checkpoint, "c").status_code == 202
    assert node.put(artifacts, "user_logs/std_log.txt", b"forged").status_code == 403, "the log is the server's to write"
    assert node.put(artifacts, "user_logs/std_log.txt", b"forged", query="&comp=block&blockid=AAAA").status_code == 403
    theirs = f"ExperimentRun/dcid.{other}/"
    mine = artifacts["prefix"]
    for name in (
        f"../dcid.{other}/x",
        f"%2e%2e/dcid.{other}/x",
        f"%2E%2E%2Fdcid.{other}%2Fx",
        f"..%2fdcid.{other}/x",
        f"%252e%252e/dcid.{other}/x/../../../../{theirs}x",
        "./x",
    ):
        assert node.put(artifacts, name).status_code in (400, 403), name
    for prefix in (theirs, mine.replace("ExperimentRun", "experimentrun"), mine.replace("/dcid", "//dcid"), f"/{mine}", mine.replace(job, job.upper()), ""):
        assert node.put({**artifacts, "prefix": prefix}, "x").status_code in (400, 403), prefix
        assert node.list({**artifacts, "prefix": prefix}).status_code in (400, 403), prefix
    for container in ("azureml-blobstore", "AZUREML", "azureml%2f", "azureml%2FExperimentRun", "~file", "azureml%00"):
        url = artifacts["container_url"].rsplit("/", 1)[0] + "/" + container
        assert node.put({**artifacts, "container_url": url}, "x").status_code in (400, 403, 404), container
    for change in (("sp=", "sp=d"), ("sr=d", "sr=c"), ("sdd=2", "sdd=1"), (f"neap-attempt={ref['job']}.", "neap-attempt=9999."), ("sig=", "sig=A")):
        assert node.put({**artifacts, "sas": artifacts["sas"].replace(*change)}, "x").status_code == 403, change
    assert node.put({**artifacts, "sas": artifacts["sas"].replace(f"neap-attempt={ref['job']}.{ref['attempt']}", "")}, "x").status_code == 403
    server.http("POST", f"{server.ws()}/jobs/{other}/cancel")


def test_without_a_fresh_pass_they_open_nothing(server, node, attempt):
    _, _, spec = attempt
    old = node.url_pass
    for without in (None, "", "1.AAAA", (old or "")[:-2]):
        assert node.put(spec["artifacts"], "x", url_pass=without).status_code == 403, without
    assert node.put(spec["artifacts"], "x", url_pass=old).status_code == 201
    wait_until(lambda: node.put(spec["artifacts"], "x", url_pass=old).status_code == 403, "the old pass has expired", PASS_S + 10, 0.2)
    refused = node.put(spec["artifacts"], "x", url_pass=old)
    assert refused.headers["x-ms-error-code"] == "AttemptUrlExpired"
    assert node.put(spec["artifacts"], "x").status_code == 201, "the lease was renewed, and with it the pass"


def test_a_job_longer_than_a_pass_stores_its_outputs_and_a_killed_server_does_not_matter(server, node):
    """No attack: what the layers must not break. The true agent is back."""
    node.give_back()
    job = server.submit(server.cluster, f"echo begun; sleep {PASS_S + 2}; echo done > ${{{{outputs.o}}}}/x; mkdir -p outputs; echo kept > outputs/y", outputs=OUTPUT)
    began = wait_until(lambda: server.status(job) == "Running" and time.monotonic(), "the job runs", 60)
    server.kill()
    server.up()
    server.wait_job(job, "Completed", 60)
    assert time.monotonic() - began > PASS_S
    assert server.output(job, "o", "x") == b"done\n"


def test_the_server_is_as_before(server):
    assert_serving(server, server.cluster)
    assert_replays(server)
