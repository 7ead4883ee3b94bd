"""What the server says about itself: metrics, health, alerts, traces and logs, on the real program."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from neapserver import ROOT, holds_for, unique, wait_until

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Inf|NaN)")
SAMPLE = re.compile(rf"({NAME.pattern})(?:\{{(.*)\}})? ({NUMBER.pattern})")


def parse(text):
    """The text format 0.0.4, strictly: {family: (type, {(name, labels): value})}. Anything odd is an AssertionError."""
    assert text.endswith("\n"), "the last line must end"
    families, helped, current, done = {}, set(), None, set()
    for number, line in enumerate(text.split("\n")[:-1], 1):
        where = f"line {number}: {line!r}"
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert NAME.fullmatch(name) and len(line.split(" ", 3)) == 4 and name not in helped, where
            helped.add(name)
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in helped and name not in families and kind in ("counter", "gauge", "histogram"), where
            assert (kind == "counter") == name.endswith("_total"), f"{where}: counters end with _total, others do not"
            if current:
                done.add(current)
            families[name], current = (kind, {}), name
            continue
        found = SAMPLE.fullmatch(line)
        assert found, where
        name, inside, value = found.groups()
        labels, rest = [], inside or ""
        while rest:
            pair = LABEL.match(rest)
            assert pair, where
            labels.append((pair.group(1), re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m.group(1), m.group(1)), pair.group(2))))
            rest = rest[pair.end():]
        assert len({key for key, _ in labels}) == len(labels), where
        kind, samples = families[current]
        allowed = {current} if kind != "histogram" else {current + s for s in ("_bucket", "_sum", "_count")}
        assert name in allowed and name not in done, f"{where}: in the middle of {current}"
        key = (name, tuple(sorted(labels)))
        assert key not in samples, f"{where}: twice"
        samples[key] = float(value.replace("Inf", "inf"))
        assert kind == "gauge" or samples[key] >= 0, where
    for name, (kind, samples) in families.items():
        if kind == "histogram":
            check_histogram(name, samples)
    return families


def check_histogram(name, samples):
    series = {}
    for (sample, labels), value in samples.items():
        if sample == f"{name}_bucket":
            rest = tuple(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((float(dict(labels)["le"].replace("Inf", "inf")), value))
    for labels, buckets in series.items():
        assert buckets == sorted(buckets) and buckets[-1][0] == float("inf"), f"{name}{labels}: bounds ascend to +Inf"
        counts = [count for _, count in buckets]
        assert counts == sorted(counts), f"{name}{labels}: buckets are cumulative"
        assert counts[-1] == samples[(f"{name}_count", labels)] and (f"{name}_sum", labels) in samples
    assert all(key[0].endswith(("_bucket", "_sum", "_count")) for key in samples)


def scrape(server, token=None):
    answer = server.session.get(
        f"{server.url}/metrics", headers={"Authorization": f"Bearer {token or server.token()}"}, verify=server.vars["REQUESTS_CA_BUNDLE"], timeout=20
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parse(answer.text)


def value(families, name, **labels):
    """The sum of the samples that carry these labels."""
    family = next(f for f in (name, *(name.removesuffix(s) for s in ("_bucket", "_sum", "_count"))) if f in families)
    return sum(v for (sample, found), v in families[family][1].items() if sample == name and set(labels.items()) <= set(found))


@pytest.fixture
def receiver():
    """A small HTTP server that keeps what is posted to it, and answers as it is told."""
    got, status = [], {"code": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if status["code"] == 200:
                got.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(status["code"])
            self.end_headers()

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    http.got, http.status, http.url = got, status, f"http://127.0.0.1:{http.server_port}"
    yield http
    http.shutdown()


def test_metrics_are_valid_and_move(server, cluster, mark):
    name = cluster(0, 1, "PT1S")
    before = scrape(server)
    job = server.submit(name, "true", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, "Completed")
    failed = server.submit(name, "exit 3", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(failed, "Failed")
    wait_until(lambda: not server.nodes(name), "the node has gone for idleness", 30)
    wait_until(lambda: value(scrape(server), "neap_nodes_left_total", cluster=name, reason="idle") >= 1, "it is counted")
    after = scrape(server)
    grown = lambda metric, **labels: value(after, metric, **labels) - value(before, metric, **labels)
    assert grown("neap_jobs_submitted_total", cluster=name) == 2
    assert grown("neap_jobs_ended_total", cluster=name, status="Completed") == 1
    assert grown("neap_jobs_ended_total", cluster=name, status="Failed") == 1
    assert grown("neap_nodes_requested_total", cluster=name, reason="jobs_wait") >= 1
    for metric in ("neap_autoscale_delay_seconds_count", "neap_node_boot_seconds_count", "neap_queue_wait_seconds_count", "neap_attempt_staging_seconds_count", "neap_attempt_run_seconds_count"):
        assert grown(metric, cluster=name) >= 1, metric
    assert 0 < value(after, "neap_node_boot_seconds_sum", cluster=name) < 60
    assert grown("neap_ledger_commit_duration_seconds_count") >= 4
    assert grown("neap_events_total", kind="job.submitted") >= 2
    assert grown("neap_provider_call_duration_seconds_count", call="create") >= 1
    assert grown("neap_http_requests_total", face="arm", method="PUT", status="2xx") >= 2
    assert grown("neap_lease_renewals_total") >= 1 or grown("neap_agent_sessions_opened_total") >= 1
    assert value(after, "neap_invariant_checks_total") >= 1 and value(after, "neap_invariant_violations") == 0
    assert value(after, "neap_build_info") == 1 and value(after, "neap_ledger_writable") == 1
    assert value(after, "process_resident_memory_bytes") > 1e6 and value(after, "process_open_fds") > 3
    assert grown("process_cpu_seconds_total") >= 0


def test_a_deleted_cluster_leaves_the_metrics(server):
    name = unique("gone")
    server.make_cluster(name, 0, 1)
    assert value(scrape(server), "neap_cluster_max_nodes", cluster=name) == 1
    server.drop_cluster(name)
    assert not any(name in str(key) for _, samples in scrape(server).values() for key in samples)


def test_who_may_read_metrics(server, own_server):
    token = (server.home / "identity" / "metrics-token").read_text().strip()
    assert (server.home / "identity" / "metrics-token").stat().st_mode & 0o077 == 0
    get = lambda where, path, **headers: requests.get(f"{where.url}{path}", headers=headers, verify=where.vars["REQUESTS_CA_BUNDLE"], timeout=20).status_code
    assert get(server, "/metrics", Authorization=f"Bearer {token}") == 200
    assert get(server, "/metrics") == 401
    assert get(server, "/metrics", Authorization="Bearer wrong") == 401
    assert get(server, "/neap/v1/status", Authorization=f"Bearer {token}") == 401, "it opens nothing else"
    assert get(server, f"{server.ws()}/computes", Authorization=f"Bearer {token}") == 401
    opened = own_server("open", start=False)
    opened.home.joinpath("config.yaml").write_text("metrics: {open: true}\n")
    opened.up()
    assert get(opened, "/metrics") == 200


def test_health_is_one_verdict_and_the_same_as_in_metrics(own_server, mark):
    server = own_server("health", start=False)
    server.home.joinpath("config.yaml").write_text("local: {max_nodes: 1}\nalerts: {queue_delay_seconds: 1}\n")
    server.up()
    name = unique("h")
    server.make_cluster(name, 0, 1, "PT30S")
    first = server.get(f"{server.nws()}/computes/{name}/health")
    assert first["verdict"] == "healthy" and all(s["verdict"] == "healthy" for s in first["signals"])
    assert server.cli("compute", "health", name).stdout.startswith(f"{name} is healthy\n")
    server.submit(name, "sleep 60", environmentVariables={"NEAP_TEST_MARK": mark})
    waiting = server.submit(name, "true", environmentVariables={"NEAP_TEST_MARK": mark})
    health = lambda: server.get(f"{server.nws()}/computes/{name}/health")
    ill = wait_until(lambda: (h := health())["verdict"] != "healthy" and h, "the wait is a sign", 30)
    worst = ill["signals"][0]
    assert worst["signal"] == "oldest_wait" and worst["metric"] == "neap_queue_oldest_wait_seconds" and worst["value"] >= 1
    metrics = scrape(server)
    assert value(metrics, "neap_cluster_health", cluster=name) in (1, 2)
    assert value(metrics, "neap_cluster_health_signal", cluster=name, signal="oldest_wait") in (1, 2)
    assert value(metrics, "neap_queue_oldest_wait_seconds", cluster=name) >= worst["value"]
    assert value(metrics, "neap_queue_depth", cluster=name) == ill["jobs"]["queued"] == 1
    told = server.json("compute", "health", "-n", name)
    assert told["cluster"] == name and told["verdict"] in ("degraded", "failing")
    server.http("POST", f"{server.ws()}/jobs/{waiting}/cancel")
    wait_until(lambda: health()["verdict"] == "healthy", "it is well again", 30)
    assert server.http("GET", f"{server.nws()}/computes/nobody/health").status_code == 404
    assert server.cli("compute", "health", "nobody", check=False).returncode != 0


def test_an_alert_fires_once_survives_a_kill_and_resolves(own_server, receiver, mark):
    server = own_server("alert", start=False)
    server.home.joinpath("config.yaml").write_text(f"alerts: {{webhook: '{receiver.url}/hook-s3cret', queue_delay_seconds: 1, resolve_seconds: 1}}\n")
    server.up()
    name = unique("al")
    server.put(
        f"{server.ws()}/computes/{name}",
        {"location": "eastus", "tags": {"Owner": "ada@example.com"}, "properties": {"computeType": "AmlCompute", "properties": {
            "vmSize": "STANDARD_DS3_V2", "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 1, "nodeIdleTimeBeforeScaleDown": "PT30S"}}}},
    )
    told = lambda alert: [body for _, _, body in receiver.got if body["alerts"][0]["labels"]["alertname"] == alert]
    failed = server.submit(name, "exit 3", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(failed, "Failed")
    wait_until(lambda: told("NeapJobFailure"), "the failure is told", 30)
    receiver.status["code"] = 503
    server.submit(name, "sleep 90", environmentVariables={"NEAP_TEST_MARK": mark})
    waiting = server.submit(name, "true", environmentVariables={"NEAP_TEST_MARK": mark})
    wait_until(lambda: value(scrape(server), "neap_alert_notices_total", result="failed") >= 1, "the receiver is away", 30)
    server.kill()
    receiver.status["code"] = 200
    server.up()
    wait_until(lambda: told("NeapQueueDelay"), "what was owed is told by the next server", 30)
    assert value(scrape(server), "neap_alerts_firing") == 2
    holds_for(lambda: len(told("NeapQueueDelay")) == 1 and len(told("NeapJobFailure")) == 1, "each is told once", 3)
    [notice] = told("NeapQueueDelay")
    alert = notice["alerts"][0]
    assert notice["version"] == "4" and notice["status"] == alert["status"] == "firing"
    assert alert["labels"]["cluster"] == name and alert["labels"]["owner"] == "ada@example.com"
    assert failed in told("NeapJobFailure")[0]["alerts"][0]["annotations"]["summary"]
    server.http("POST", f"{server.ws()}/jobs/{waiting}/cancel")
    wait_until(lambda: len(told("NeapQueueDelay")) == 2, "it resolves", 30)
    resolved = told("NeapQueueDelay")[1]["alerts"][0]
    assert resolved["status"] == "resolved" and resolved["fingerprint"] == alert["fingerprint"] and resolved["startsAt"] == alert["startsAt"]
    assert resolved["endsAt"] > resolved["startsAt"]
    assert "s3cret" not in (server.home / "logs" / "server.log").read_text(), "the webhook's address is a secret"


def test_traces_reach_a_collector(own_server, receiver, mark, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=k1")
    server = own_server("trace")
    name = unique("tr")
    server.make_cluster(name, 0, 1, "PT1S")
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    server.environment_id()
    job = unique("job")
    made = server.http("PUT", f"{server.ws()}/jobs/{job}", server.job_body(name, "true", environmentVariables={"NEAP_TEST_MARK": mark}), headers={"traceparent": f"00-{trace}-{parent}-01"})
    assert made.status_code == 201, made.text
    server.wait_job(job, "Completed")

    def spans():
        return [s for _, _, body in receiver.got for r in body["resourceSpans"] for scope in r["scopeSpans"] for s in scope["spans"]]

    wait_until(lambda: {"command", "attempt", "node.create", "PUT arm"} <= {s["name"] for s in spans()}, "all kinds of spans came", 30)
    mine = {s["name"]: s for s in spans() if s["traceId"] == trace}
    assert {"PUT arm", "command", "attempt"} <= set(mine)
    assert mine["PUT arm"]["parentSpanId"] == parent
    assert mine["command"]["parentSpanId"] == mine["PUT arm"]["spanId"]
    assert mine["attempt"]["parentSpanId"] == mine["command"]["spanId"]
    for span in spans():
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    path, headers, body = receiver.got[0]
    assert path == "/v1/traces" and headers["x-api-key"] == "k1" and headers["content-type"] == "application/json"
    about = {a["key"]: a["value"]["stringValue"] for a in body["resourceSpans"][0]["resource"]["attributes"]}
    assert about["service.name"] == "neap" and about["service.version"]
    wait_until(lambda: value(scrape(server), "neap_trace_spans_exported_total") >= 4, "they are counted")
    receiver.status["code"] = 500
    for _ in range(20):
        assert server.http("GET", f"{server.ws()}/computes/{name}").status_code == 200, "a collector that is ill holds nobody up"


def test_json_logs_name_the_request_and_hold_no_secret(own_server, mark):
    server = own_server("log", start=False)
    environment = server.environment
    server.environment = lambda: {**environment(), "NEAP_LOG": "info", "NEAP_LOG_FORMAT": "json"}
    server.up()
    name = unique("lg")
    server.make_cluster(name, 0, 1, "PT1S")
    job = server.submit(name, "echo hello", environmentVariables={"NEAP_TEST_MARK": mark, "PASSWORD": "hunter2-4711"})
    server.wait_job(job, "Completed")
    correlation = "11111111-2222-4333-8444-555555555555"
    answer = server.http("GET", f"{server.ws()}/computes/{name}", headers={"x-ms-correlation-request-id": correlation})
    wanted = answer.headers["x-ms-request-id"]
    text = (server.home / "logs" / "server.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines and all({"timestamp", "level", "target"} <= set(line) for line in lines)
    [mine] = [line for line in lines if line.get("request_id") == wanted]
    assert mine["correlation_id"] == correlation and mine["status"] == 200 and mine["face"] == "arm" and mine["target"] == "neap::access"
    metrics_token = (server.home / "identity" / "metrics-token").read_text().strip()
    for secret in (server.vars["IDENTITY_HEADER"], server.token(), metrics_token, "hunter2-4711", "sig="):
        assert secret not in text
    server.environment = lambda: {**environment(), "NEAP_LOG_FORMAT": "xml"}
    server.down()
    refused = server.up(check=False)
    assert refused.returncode != 0 and "NEAP_LOG_FORMAT" in refused.stderr
    server.environment = environment


WORD = re.compile(r"\b(?:neap|process)_[a-z0-9_]+\b")


def names_in_files():
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "neap.json").read_text())
    found = {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found.setdefault(f"panel '{panel['title']}'", set()).update(WORD.findall(target["expr"]))
    for variable in dashboard["templating"]["list"]:
        found.setdefault(f"variable {variable['name']}", set()).update(WORD.findall(str(variable["query"])))
    for line in (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text().splitlines():
        if not line.lstrip().startswith("#"):
            found.setdefault("alerts.yml", set()).update(WORD.findall(line))
    found["docs/observability.md"] = set(WORD.findall((ROOT / "docs" / "observability.md").read_text()))
    return found


def test_rules_dashboard_and_page_name_metrics_that_exist(server, cluster):
    cluster(0, 1)
    families = scrape(server)
    exist = set(families)
    for name, (kind, _) in families.items():
        if kind == "histogram":
            exist |= {name + suffix for suffix in ("_bucket", "_sum", "_count")}
    for where, names in names_in_files().items():
        assert names <= exist, f"{where} names what is not there: {sorted(names - exist)}"
    documented = names_in_files()["docs/observability.md"]
    assert set(families) <= documented, f"not in docs/observability.md: {sorted(set(families) - documented)}"


def test_alert_rules_are_whole():
    yaml = pytest.importorskip("yaml")
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    seen = set()
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["alert"] not in seen and rule["expr"] and rule["labels"]["severity"] and rule["annotations"]["summary"]
            seen.add(rule["alert"])
    panels = json.loads((ROOT / "deploy" / "grafana" / "neap.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize(
    "bad",
    ["a 1", "# HELP a_total x\n# TYPE a_total gauge\na_total 1\n", "# HELP a x\n# TYPE a gauge\na{b=\"c\"d} 1\n", "# HELP a x\n# TYPE a gauge\na 1\na 2\n", "# HELP a x\n# TYPE a gauge\nb 1\n"],
)
def test_the_parser_is_strict(bad):
    with pytest.raises((AssertionError, KeyError)):
        parse(bad)
