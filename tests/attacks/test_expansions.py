"""The attacker has an ordinary account, and sends small things that become large: pipelines of pipelines, texts that name themselves,
YAML aliases, deep JSON, endless spaces and dates, patterns with many stars, compressed bodies.

Stopped by: a bound on the output of every expansion. Each request is answered soon, with 4xx and the limit in its words, and the
server's memory stays where it was.
"""

import gzip
import time
from pathlib import Path

import pytest

from aftermath import assert_replays, assert_serving, reason_of
from neapserver import Server, new_home, remove, unique

SECONDS = 8
BYTES = 300 << 20


@pytest.fixture(scope="module")
def server():
    home = new_home("expand")
    running = Server(home)
    running.up()
    running.environment_id()
    running.make_cluster("small", 0, 1, "PT30S")
    yield running
    running.cli("down", "--grace", "1", check=False, timeout=90)
    remove(home)


def resident(server):
    try:
        lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    except OSError:
        pytest.fail("the server is gone")
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


@pytest.fixture
def bounded(server):
    """What is asked within the test is answered soon, and takes no more than some memory."""
    before, began = resident(server), time.monotonic()
    yield
    took = time.monotonic() - began
    grown = resident(server) - before
    assert took < SECONDS and grown < BYTES, f"{took:.1f} s, {grown >> 20} MB"


def put(server, path, body, **kwargs):
    return server.http("PUT", f"{server.ws()}/{path}", body, timeout=SECONDS + 10, **kwargs)


def component(server, name, spec):
    answer = put(server, f"components/{name}/versions/1", {"properties": {"componentSpec": {"name": name, "version": "1", **spec}}})
    assert answer.status_code in (200, 201), answer.text
    return f"{server.ws()}/components/{name}/versions/1"


def pipeline(server, jobs, **more):
    body = {"properties": {"jobType": "Pipeline", "computeId": f"{server.ws()}/computes/small", "jobs": jobs, **more}}
    return put(server, f"jobs/{unique('bomb')}", body)


def leaf(server):
    return component(server, unique("leaf"), {"type": "command", "command": "echo ${{inputs.x}}", "inputs": {"x": {"type": "string"}}, "environment": f"{server.ws()}/environments/plain/versions/1"})


def refused(answer, *words):
    assert 400 <= answer.status_code < 500, f"{answer.status_code} {answer.text[:500]}"
    assert any(word in answer.text for word in words), answer.text[:2_000]
    assert len(answer.text) < 2 << 20


# --- pipelines ------------------------------------------------------------------------------------------------------------------


def test_pipelines_within_pipelines_do_not_multiply(server, bounded):
    inner = leaf(server)
    for _ in range(7):
        jobs = {f"s{n}": {"type": "pipeline", "componentId": inner, "inputs": {"x": {"value": "${{parent.inputs.x}}"}}} for n in range(12)}
        for job in jobs.values():
            if "leaf" in inner:
                job["type"] = "command"
        inner = component(server, unique("layer"), {"type": "pipeline", "inputs": {"x": {"type": "string"}}, "jobs": jobs})
    answer = pipeline(server, {"top": {"type": "pipeline", "componentId": inner, "inputs": {"x": {"value": "1"}}}})
    refused(answer, "10000 steps")


def test_texts_of_pipelines_do_not_double(server, bounded):
    inner, doubled = leaf(server), "${{parent.inputs.x}}${{parent.inputs.x}}${{parent.inputs.x}}${{parent.inputs.x}}"
    kind = "command"
    for _ in range(10):
        inner = component(server, unique("text"), {"type": "pipeline", "inputs": {"x": {"type": "string"}}, "jobs": {"s": {"type": kind, "componentId": inner, "inputs": {"x": {"value": doubled}}}}})
        kind = "pipeline"
    answer = pipeline(server, {"top": {"type": "pipeline", "componentId": inner, "inputs": {"x": {"value": "y" * 2_000}}}})
    refused(answer, "64 MB", "bytes")


def test_a_long_chain_of_steps_is_put_in_order(server, bounded):
    """The time grows with the length, not with its cube."""
    jobs = {"s0": {"type": "nothing"}}
    for n in range(1, 6_000):
        jobs[f"s{n}"] = {"type": "nothing", "inputs": {"x": {"value": f"${{{{parent.jobs.s{n - 1}.outputs.o}}}}"}}}
    refused(pipeline(server, dict(reversed(jobs.items()))), "is not known")


def test_open_expressions_are_read_once(server, bounded):
    refused(pipeline(server, {"s": {"type": "command", "command": "echo " + "${{" * 900_000, "environmentId": "azureml:none:1"}}), "none", "bytes")


# --- documents ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["jobs/deep", "computes/deep", "environments/deep/versions/1", "datastores/deep", "schedules/deep", "batchEndpoints/deep"])
def test_deep_json(server, bounded, path):
    for text in ("[" * 1_000_000, '{"a":' * 500_000, '{"properties":' + "[" * 120 + "]" * 120 + "}"):
        answer = server.session.put(
            f"{server.url}{server.ws()}/{path}?api-version=2024-10-01",
            data=text,
            headers={"Authorization": f"Bearer {server.token()}", "Content-Type": "application/json"},
            verify=server.vars["REQUESTS_CA_BUNDLE"],
            timeout=SECONDS,
        )
        refused(answer, "")


def billion_laughs():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "conda",
    [
        f"{billion_laughs()}\nname: x\ndependencies: *a9\n",
        "name: x\ndependencies: " + "[" * 200_000 + "]" * 200_000 + "\n",
        "name: x\ndependencies:\n" + "".join(f"{' ' * n}- \n" for n in range(1, 800)),
        "name: x\ndependencies:\n- pip:\n" + "  - x\n" * 200_000,
    ],
    ids=["aliases", "depth", "steps", "many"],
)
def test_conda_files(server, bounded, conda):
    name = unique("yaml")
    made = put(server, f"environments/{name}/versions/1", {"properties": {"condaFile": conda}})
    assert made.status_code < 500, made.text
    if made.status_code < 300:
        body = server.job_body("small", "true")
        body["properties"]["environmentId"] = f"{server.ws()}/environments/{name}/versions/1"
        answer = put(server, f"jobs/{unique('yaml')}", body)
        assert answer.status_code < 500, answer.text
        if answer.status_code < 300:
            server.http("POST", f"{server.ws()}/jobs/{answer.json()['name']}/cancel")


def test_specifications_of_the_cli(server, tmp_path):
    for name, text in {"laughs": billion_laughs(), "deep": "a: " + "[" * 100_000, "self": "a: &a [*a]\n"}.items():
        file = tmp_path / f"{name}.yml"
        file.write_text(f"{text}\ncommand: true\n")
        answer = server.cli("job", "create", "-f", file, check=False, timeout=SECONDS)
        assert answer.returncode == 2, f"{name}: {answer.returncode} {answer.stderr[:500]}"


def test_a_compressed_body_is_not_unpacked(server, bounded):
    packed = gzip.compress(b'{"properties": "' + b" " * (256 << 20) + b'"}')
    answer = server.session.put(
        f"{server.url}{server.ws()}/jobs/packed?api-version=2024-10-01",
        data=packed,
        headers={"Authorization": f"Bearer {server.token()}", "Content-Type": "application/json", "Content-Encoding": "gzip"},
        verify=server.vars["REQUESTS_CA_BUNDLE"],
        timeout=SECONDS,
    )
    refused(answer, "JSON", "Encoding")


# --- spaces, dates, filters -------------------------------------------------------------------------------------------------------


def sweep(server, space, algorithm="Grid", **limits):
    return put(
        server,
        f"jobs/{unique('space')}",
        {
            "properties": {
                "jobType": "Sweep",
                "computeId": f"{server.ws()}/computes/small",
                "objective": {"goal": "Maximize", "primaryMetric": "m"},
                "samplingAlgorithm": {"samplingAlgorithmType": algorithm},
                "searchSpace": space,
                "limits": {"jobLimitsType": "Sweep", "maxTotalTrials": 2, "maxConcurrentTrials": 1, **limits},
                "trial": {"command": "true ${{search_space.p0}}", "environmentId": f"{server.ws()}/environments/plain/versions/1"},
            }
        },
    )


def test_a_command_of_a_trial_does_not_multiply(server, bounded):
    """500 KB of places, each filled with 400 KB: ten gigabytes for the first trial."""
    space = {"p0": ["choice", [["x" * 400_000]]]}
    body = {
        "properties": {
            "jobType": "Sweep",
            "computeId": f"{server.ws()}/computes/small",
            "objective": {"goal": "Maximize", "primaryMetric": "m"},
            "samplingAlgorithm": {"samplingAlgorithmType": "Random"},
            "searchSpace": space,
            "limits": {"jobLimitsType": "Sweep", "maxTotalTrials": 1, "maxConcurrentTrials": 1},
            "trial": {"command": "echo " + "${{search_space.p0}}" * 25_000, "environmentId": f"{server.ws()}/environments/plain/versions/1"},
        }
    }
    refused(put(server, f"jobs/{unique('trial')}", body), "131072")


def test_a_command_of_a_job_does_not_multiply(server):
    """The same on the node, with an input: the agent would take the memory."""
    job = server.submit("small", "echo " + "${{inputs.x}}" * 10_000, inputs={"x": {"jobInputType": "literal", "value": "y" * 100_000}})
    status, told = reason_of(server, job, 30)
    assert status == "Failed" and "131072 bytes" in told, told[-500:]


def nested_choice(depth):
    return ["choice", [[{"a": nested_choice(depth - 1), "b": nested_choice(depth - 1)}, 1]]] if depth else ["choice", [[1, 2]]]


@pytest.mark.parametrize("algorithm", ["Grid", "Random", "Bayesian"])
@pytest.mark.parametrize(
    "space",
    [
        {f"p{n}": ["choice", [list(range(50))]] for n in range(100)},
        {f"p{n}": ["choice", [list(range(10_001))]] for n in range(2)},
        {"p0": nested_choice(12)},
        {"p0": ["randint", [2**63]], "p1": ["randint", [2**64 - 1]]},
        {"p0": ["quniform", [-1e308, 1e308, 1e-308]], "p1": ["qlognormal", [700, 700, 1e-300]]},
        {"p0": ["choice", [["x" * 1_000_000, "y"]]]},
    ],
    ids=["product", "values", "nested", "integers", "floats", "texts"],
)
def test_search_spaces(server, bounded, space, algorithm):
    for limits in ({}, {"maxTotalTrials": 2**31 - 1, "maxConcurrentTrials": 2**31 - 1}):
        answer = sweep(server, space, algorithm, **limits)
        assert answer.status_code < 500, answer.text[:500]
        if answer.status_code < 300:
            server.http("POST", f"{server.ws()}/jobs/{answer.json()['name']}/cancel")


@pytest.mark.parametrize(
    "trigger",
    [
        {"triggerType": "Cron", "expression": "0 0 30 2 *"},
        {"triggerType": "Cron", "expression": "0 0 29 2 1", "startTime": "9998-01-01T00:00:00"},
        {"triggerType": "Cron", "expression": "*/1 " * 400},
        {"triggerType": "Cron", "expression": ",".join(["*"] * 400) + " * * * *"},
        {"triggerType": "Cron", "expression": "* * * * *", "startTime": "0001-01-01T00:00:00"},
        {"triggerType": "Cron", "expression": "* * * * *", "startTime": "-9999-01-01T00:00:00", "endTime": "9999-12-31T23:59:59"},
        {"triggerType": "Recurrence", "frequency": "Minute", "interval": 1, "startTime": "0001-01-01T00:00:00"},
        {"triggerType": "Recurrence", "frequency": "Month", "interval": 2**31 - 1},
        {"triggerType": "Recurrence", "frequency": "Month", "interval": 1000, "schedule": {"hours": [0] * 10_000, "minutes": list(range(60)) * 500, "monthDays": [31]}},
    ],
    ids=range(9),
)
def test_dates(server, bounded, trigger):
    action = {"actionType": "CreateJob", "jobDefinition": server.job_body("small", "true")["properties"]}
    name = unique("when")
    answer = put(server, f"schedules/{name}", {"properties": {"trigger": {"timeZone": "UTC", **trigger}, "action": action, "isEnabled": True}})
    assert answer.status_code < 500, answer.text[:500]
    server.http("POST", f"{server.ws()}/schedules/{name}/disable")
    server.http("DELETE", f"{server.ws()}/schedules/{name}")


def test_windows(server, bounded):
    for window in (
        {"start": "0 0 29 2 1", "duration": "PT1M"},
        {"start": "* * * * *", "duration": "P31D"},
        {"start": "* * * * *", "duration": "P99999999999999D"},
        {"start": "* * * * *", "duration": "PT1H", "except": [f"2{n:03}-01-01" for n in range(1_000)]},
    ):
        answer = server.http("PUT", f"{server.nws()}/computes/small/schedules/{unique('w')}", {**window, "min": 0, "timezone": "UTC"}, timeout=SECONDS)
        assert answer.status_code < 500, answer.text[:500]


def test_filters(server, bounded):
    search = f"/mlflow/v1.0{server.ws()}/api/2.0/mlflow/runs/search"
    for text in (
        "metrics.a > 1 and " * 3_000 + "metrics.a > 1",
        "(" * 100_000,
        "tags.a LIKE '" + "%a" * 5_000 + "'",
        "tags.a LIKE '" + "%_" * 7_000 + "b'",
        "tags.a IN (" + ",".join(["'x'"] * 5_000) + ")",
        "'" * 16_000,
        "!" * 16_000,
        "`" * 16_000,
    ):
        answer = server.http("POST", search, {"experiment_ids": ["0"], "filter": text, "max_results": 2**31 - 1})
        assert answer.status_code < 500 and len(answer.text) < 200_000, f"{answer.status_code} {answer.text[:300]}"
    batch = {"run_id": "none", "metrics": [{"key": "m", "value": 1, "timestamp": 1, "step": n} for n in range(30_000)]}
    answer = server.http("POST", search.replace("runs/search", "runs/log-batch"), batch)
    assert 400 <= answer.status_code < 500, answer.text[:300]


def test_tags_and_names(server, bounded):
    for more in (
        {"tags": {f"k{n}": "v" for n in range(1_000)}},
        {"tags": {"k": "v" * 100_000}},
        {"properties": {f"k{n}": "v" for n in range(1_000)}},
        {"properties": {"k" * 100_000: "v"}},
        {"displayName": "d" * 1_000_000},
        {"description": "d" * 2_000_000},
        {"experimentName": "e" * 100_000},
        {"environmentVariables": {f"K{n}": "v" * 100 for n in range(30_000)}},
    ):
        answer = put(server, f"jobs/{unique('tag')}", server.job_body("small", "true", **more))
        assert 400 <= answer.status_code < 500, f"{list(more)} {answer.status_code} {answer.text[:300]}"
        assert len(answer.text) < 100_000, len(answer.text)
    for name in ("n" * 256, "%2e%2e", "a%00b", "a%0ab", "%1b%5b2J", "%e2%80%aex"):
        for kind in ("jobs", "computes"):
            answer = put(server, f"{kind}/{name}", server.job_body("small", "true"))
            assert 400 <= answer.status_code < 500, f"{kind}/{name} {answer.status_code} {answer.text[:300]}"
    for kind, body in {
        "environments": {"properties": {"image": "x"}},
        "data": {"properties": {"dataType": "uri_file", "dataUri": "azureml://datastores/workspaceblobstore/paths/x"}},
        "models": {"properties": {"modelUri": "azureml://datastores/workspaceblobstore/paths/x"}},
        "components": {"properties": {"componentSpec": {"type": "command", "command": "true", "name": "x"}}},
        "codes": {"properties": {"codeUri": "azureml://datastores/workspaceblobstore/paths/x"}},
    }.items():
        for name, version in ((f"{'n' * 300}", "1"), ("ok", "9" * 300), ("a%0ab", "1"), ("%1b%5b2J", "1"), ("ok", "%1b%5b2J")):
            answer = put(server, f"{kind}/{name}/versions/{version}", body)
            assert 400 <= answer.status_code < 500, f"{kind}/{name}/{version} {answer.status_code} {answer.text[:300]}"
        many = {**body["properties"], "tags": {f"k{n}": "v" for n in range(1_000)}}
        answer = put(server, f"{kind}/{unique('many')}/versions/1", {"properties": many})
        assert 400 <= answer.status_code < 500, f"{kind} {answer.status_code} {answer.text[:300]}"


# --- the agent ------------------------------------------------------------------------------------------------------------------


def test_a_table_with_many_stars(server):
    """The agent looks for the files that a table names, with its own rights."""
    store = server.get(f"{server.ws()}/datastores/workspaceblobstore")["properties"]
    base = f"https://{store['accountName']}.blob.core.windows.net/{store['containerName']}/table"
    headers = {"Authorization": f"Bearer {server.token()}", "x-ms-blob-type": "BlockBlob"}
    for name, text in {"MLTable": "paths:\n  - pattern: '" + "*a" * 30 + "b'\n", "a" * 200: "data"}.items():
        answer = server.session.put(f"{base}/{name}", data=text, headers=headers, verify=server.vars["REQUESTS_CA_BUNDLE"], timeout=20)
        assert answer.status_code == 201, answer.text
    job = server.submit("small", "ls ${{inputs.t}}", inputs={"t": {"jobInputType": "mltable", "mode": "EvalMount", "uri": "azureml://datastores/workspaceblobstore/paths/table/"}})
    status, told = reason_of(server, job, 20)
    assert status == "Failed" and "there is none" in told, told


def test_afterwards(server):
    log = (server.home / "logs" / "server.log").read_text(errors="replace")
    assert "panicked" not in log and "overflow" not in log, [line for line in log.splitlines() if "panicked" in line or "overflow" in line][:5]
    assert_serving(server, "small", 120)
    assert_replays(server)
