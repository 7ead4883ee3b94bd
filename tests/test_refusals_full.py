"""As much as there may be of a thing, and one more: refused with the number, through REST and through the command line."""

from datetime import UTC, datetime

import pytest
import yaml

from neapserver import unique
from refusing import by_cli, fill, job_file, refused

LOCKS_MAX = 10_000
LIMITS_MAX = 10_000
WASTE_JOBS_MAX = 20_000


@pytest.fixture(scope="module")
def roomy(strict):
    """A cluster that nothing ever runs on."""
    name = unique("full")
    strict.make_cluster(name, 0, 0)
    yield name


def test_as_many_limits_of_users_as_may_be(strict):
    path = f"{strict.nws()}/allowances"
    fill(strict, [("PUT", path, {"user": f"u{n}", "jobs": 1}) for n in range(LIMITS_MAX)])
    text = f"There are {LIMITS_MAX} such limits, which is the most."
    refused(strict, ("PUT", path, {"user": "more", "jobs": 1}), ["quota", "user", "--user", "more", "--jobs", 1], "LimitReached", text, status=409)
    strict.cli("quota", "user", "--user", "u0", "--jobs", 2)
    strict.cli("quota", "user", "--user", "u0", "--remove")
    strict.cli("quota", "user", "--user", "more", "--jobs", 1)


def test_waste_of_more_jobs_than_are_run_again(strict, roomy):
    body = strict.job_body(roomy, "true")
    fill(strict, [("PUT", f"{strict.ws()}/jobs/{roomy}-{n}", body) for n in range(WASTE_JOBS_MAX + 1)])
    text = f"'{roomy}' had {WASTE_JOBS_MAX + 1} jobs in this time, and at most {WASTE_JOBS_MAX} are run again; ask about a shorter time."
    refused(strict, ("GET", f"{strict.nws()}/waste?cluster={roomy}"), ["waste", roomy], "LimitReached", text, status=409)


def test_as_many_locks_as_may_be(strict):
    """Last: every lock keeps something of this server from being deleted."""
    locks = f"{strict.ws()}/providers/Microsoft.Authorization/locks"
    fill(strict, [("PUT", f"{locks}/l{n}", {"properties": {"level": "CanNotDelete"}}) for n in range(LOCKS_MAX)])
    text = f"There are {LOCKS_MAX} locks, which is the limit."
    words = ["lock", "create", "-n", "more", "--lock-type", "CanNotDelete", "--on", "workspace"]
    refused(strict, ("PUT", f"{locks}/more", {"properties": {"level": "CanNotDelete"}}), words, "LimitReached", text, status=409)
    assert strict.http("PUT", f"{locks}/l0", {"properties": {"level": "ReadOnly"}}).status_code == 200, "one that is there can be changed"
    assert strict.http("DELETE", f"{locks}/l0").status_code == 200


@pytest.fixture
def small(own_server):
    server = own_server("small", start=False)
    server.home.mkdir(parents=True, exist_ok=True)
    (server.home / "config.yaml").write_text(yaml.safe_dump({"limits": {"waiting_jobs": 3, "past_records": 60}}))
    server.up()
    server.environment_id()
    return server


def test_as_many_jobs_as_may_wait(small, tmp_path):
    name = unique("few")
    small.make_cluster(name, 0, 0)
    for _ in range(3):
        small.submit(name, "true")
    job, body = unique("job"), small.job_body(name, "true")
    text = f"3 jobs wait on compute '{name}' already; 3 is the limit (limits.waiting_jobs in config.yaml)."
    refused(small, ("PUT", f"{small.ws()}/jobs/{job}", body), ["job", "create", "-f", job_file(tmp_path, name)], "LimitReached", text, status=409)
    refused(small, ("POST", f"jobs/{job}/plan", body), ["plan", "-f", tmp_path / "job.yml"], "LimitReached", text, status=409)
    assert small.http("GET", f"{small.ws()}/jobs/{job}").status_code == 404, "nothing of it is kept"
    # A pipeline is taken whole or not at all.
    other = unique("few")
    small.make_cluster(other, 0, 0)
    step = {"type": "command", "command": "true", "environment": "azureml:plain:1"}
    pipeline = {"type": "pipeline", "settings": {"default_compute": f"azureml:{other}"}, "jobs": {f"s{n}": step for n in range(4)}}
    (tmp_path / "pipeline.yml").write_text(yaml.safe_dump(pipeline))
    by_cli(small, ["job", "create", "-f", tmp_path / "pipeline.yml"], f"(LimitReached) 0 jobs wait on compute '{other}', and 4 more are to come; 3 is the limit")
    assert len(small.json("job", "list")) == 3, "nothing of it is kept"


def test_a_past_that_is_too_far_to_go_through(small):
    name = unique("few")
    small.make_cluster(name, 0, 1)
    for n in range(60):
        small.http("PUT", f"{small.nws()}/allowances", {"user": f"u{n}", "jobs": 1})
    text = "records into the log; at most 60 are replayed for a question about the past (limits.past_records in config.yaml)."
    refused(small, ("GET", f"{small.nws()}/waste"), ["waste"], "LimitReached", text, status=409)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    refused(small, ("GET", f"{small.ws()}/computes/{name}?neap-at={now}"), ["compute", "show", "-n", name, "--at", now], "LimitReached", text, status=409)
