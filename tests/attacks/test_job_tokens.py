"""Attacker: a job. It shows its own MLflow token, which every job has in its environment, and tries to read, change and delete what
another job of the same workspace logged: its run, metrics, tags, files, models, and the experiments of the workspace. It also
guesses user names beside the installation's secret, and stores a page that is to run in the owner's browser.

The MLflow face stops it: crates/faces/src/mlflow/rights.rs is the table of what a job's token may do, access.rs what each right
means. An endpoint without a row is not served. Pages are stopped by the headers of the blob face (crates/faces/src/blob/answer.rs).
"""

import json

import pytest
import requests

from aftermath import assert_replays, assert_serving
from neapserver import Server, new_home, remove, unique, wait_until

FILES = "artifacts"


class Run:
    """A job that has said its token, and waits."""

    def __init__(self, server, folder, experiment):
        self.server, self.experiment_name = server, experiment
        self.place = folder / unique("token")
        self.job = server.submit(
            server.cluster,
            f'printf %s "$MLFLOW_TRACKING_TOKEN $MLFLOW_EXPERIMENT_ID" > {self.place}.new; mv {self.place}.new {self.place}; while [ -e {self.place} ]; do sleep 0.05; done',
            name=unique("job"), experimentName=experiment,
        )

    def begin(self):
        wait_until(self.place.exists, f"{self.job} has said its token", 60)
        self.token, self.experiment = self.place.read_text().split()
        return self

    def ask(self, method, path, body=None, token=None, auth=None, **kwargs):
        """`path` is behind `/api/2.0/`."""
        headers = {} if auth else {"Authorization": f"Bearer {token or self.token}"}
        url = f"{self.server.url}/mlflow/v1.0{self.server.ws()}/api/2.0/{path}"
        with requests.Session() as session:
            session.trust_env = False
            return session.request(method, url, json=body, headers=headers, auth=auth, verify=self.server.vars["REQUESTS_CA_BUNDLE"], timeout=30, **kwargs)

    def must(self, method, path, body=None, **kwargs):
        answer = self.ask(method, path, body, **kwargs)
        assert answer.status_code == 200, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.content

    def log_something(self):
        self.must("POST", "mlflow/runs/log-metric", {"run_id": self.job, "key": "loss", "value": 0.5, "timestamp": 1, "step": 1})
        self.must("POST", "mlflow/runs/log-parameter", {"run_id": self.job, "key": "rate", "value": "1"})
        self.must("POST", "mlflow/runs/set-tag", {"run_id": self.job, "key": "team", "value": "tide"})
        self.must("POST", "mlflow/runs/log-batch", {"run_id": self.job, "metrics": [{"key": "m", "value": 1, "timestamp": 2, "step": 2}], "tags": [{"key": "t", "value": "v"}]})
        self.must("PUT", f"mlflow-artifacts/{FILES}/ExperimentRun/dcid.{self.job}/notes/a.txt", data=b"mine")
        child = self.must("POST", "mlflow/runs/create", {"experiment_id": self.experiment, "run_name": "child", "tags": [{"key": "mlflow.parentRunId", "value": self.job}]})
        self.child = child["run"]["info"]["run_id"]
        self.must("POST", "mlflow/runs/log-metric", {"run_id": self.child, "key": "loss", "value": 9, "timestamp": 1, "step": 1})
        self.must("PUT", f"mlflow-artifacts/{FILES}/ExperimentRun/dcid.{self.child}/a.txt", data=b"child")
        model = self.must("POST", "mlflow/logged-models", {"experiment_id": self.experiment, "name": "net", "source_run_id": self.child})
        self.model = model["model"]["info"]["model_id"]
        self.must("PUT", f"mlflow-artifacts/{FILES}/LoggedModels/{self.model}/MLmodel", data=b"flavors")
        self.must("PATCH", f"mlflow/logged-models/{self.model}", {"status": "LOGGED_MODEL_READY"})
        self.must("POST", "mlflow/runs/outputs", {"run_id": self.job, "models": [{"model_id": self.model, "step": 1}]})
        return self

    def everything(self):
        """What the owner sees of it."""
        owner = {"token": self.server.token()}
        files = [self.must("GET", f"mlflow-artifacts/{FILES}", params={"path": f}, **owner) for f in (f"ExperimentRun/dcid.{self.job}", f"ExperimentRun/dcid.{self.job}/notes", f"ExperimentRun/dcid.{self.child}", f"LoggedModels/{self.model}")]
        return json.dumps(
            [self.must("GET", "mlflow/runs/get", params={"run_id": run}, **owner)["run"] for run in (self.job, self.child)]
            + [self.must("GET", "mlflow/experiments/get", params={"experiment_id": self.experiment}, **owner)["experiment"], self.must("GET", f"mlflow/logged-models/{self.model}", **owner), files],
            sort_keys=True,
        )


@pytest.fixture(scope="module")
def server(mark):
    home = new_home("tokens")
    # The jobs hand their tokens over by files of the host.
    (home / "config.yaml").write_text("local: {isolation: off}\n")
    running = Server(home)
    running.up()
    running.cluster = unique("tok")
    running.make_cluster(running.cluster, 2, 2, "PT10M")
    yield running
    running.cli("down", "--grace", "1", check=False, timeout=90)
    running.assert_nothing_left(mark)
    remove(home)


@pytest.fixture(scope="module")
def two(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    both = [Run(server, folder, "tides"), Run(server, folder, "winds")]
    attacker, victim = [run.begin().log_something() for run in both]
    yield attacker, victim
    for run in both:
        run.place.unlink(missing_ok=True)


def attacks(a, b):
    """(method, path, body or query) of everything that reads, changes or deletes what is B's, with A's token."""
    theirs = (b.job, b.child)
    for run in theirs:
        yield "GET", "mlflow/runs/get", {"run_id": run}
        yield "GET", "mlflow/metrics/get-history", {"run_id": run, "metric_key": "loss"}
        yield "GET", "mlflow/metrics/get-history-bulk-interval", {"run_ids": [a.job, run], "metric_key": "loss"}
        yield "GET", "mlflow/artifacts/list", {"run_id": run}
        yield "POST", "mlflow/runs/update", {"run_id": run, "run_name": "owned", "status": "FAILED"}
        yield "POST", "mlflow/runs/update", {"run_uuid": run, "run_name": "owned"}
        yield "POST", "mlflow/runs/delete", {"run_id": run}
        yield "POST", "mlflow/runs/restore", {"run_id": run}
        yield "POST", "mlflow/runs/log-metric", {"run_id": run, "key": "loss", "value": 0, "timestamp": 9, "step": 9}
        yield "POST", "mlflow/runs/log-parameter", {"run_id": run, "key": "owned", "value": "1"}
        yield "POST", "mlflow/runs/log-batch", {"run_id": run, "tags": [{"key": "owned", "value": "1"}]}
        yield "POST", "mlflow/runs/set-tag", {"run_id": run, "key": "owned", "value": "1"}
        yield "POST", "mlflow/runs/delete-tag", {"run_id": run, "key": "team"}
        yield "POST", "mlflow/runs/log-inputs", {"run_id": run, "datasets": [{"dataset": {"name": "d", "digest": "d", "source_type": "s", "source": "s"}}]}
        yield "POST", "mlflow/runs/outputs", {"run_id": run, "models": [{"model_id": a.model}]}
        yield "POST", "mlflow/runs/log-model", {"run_id": run, "model_json": '{"artifact_path": "m"}'}
        yield "POST", "mlflow/runs/create", {"experiment_id": a.experiment, "tags": [{"key": "mlflow.parentRunId", "value": run}]}
        yield "POST", "mlflow/runs/set-tag", {"run_id": a.child, "key": "mlflow.parentRunId", "value": run}
        yield "POST", "mlflow/runs/log-batch", {"run_id": a.child, "tags": [{"key": "mlflow.parentRunId", "value": run}]}
        yield "POST", "mlflow/logged-models", {"experiment_id": a.experiment, "name": "x", "source_run_id": run}
        folder = f"ExperimentRun/dcid.{run}"
        yield "GET", f"mlflow-artifacts/{FILES}", {"path": folder}
        yield "GET", f"mlflow-artifacts/{FILES}", {"path": f"/{folder}/notes/"}
        for file in ("notes/a.txt", "a.txt", "outputs/x", "%6eotes/a.txt"):
            yield "GET", f"mlflow-artifacts/{FILES}/{folder}/{file}", None
            yield "PUT", f"mlflow-artifacts/{FILES}/{folder}/{file}", None
            yield "DELETE", f"mlflow-artifacts/{FILES}/{folder}/{file}", None
        yield "DELETE", f"mlflow-artifacts/{FILES}/{folder}", None
        yield "DELETE", f"mlflow-artifacts/{FILES}/ExperimentRun%2Fdcid.{run}%2Fnotes", None
        for step in ("create", "complete", "abort"):
            yield "POST", f"mlflow-artifacts/mpu/{step}/{folder}/notes", {"path": "a.txt", "num_parts": 1, "upload_id": "u", "parts": []}
        # Through its own folder, spelled in ways that lead elsewhere.
        for way in (f"ExperimentRun/dcid.{a.job}/..%2fdcid.{run}/a.txt", f"ExperimentRun/dcid.{a.job}/%2e%2e/dcid.{run}/a.txt", f"ExperimentRun/dcid.{a.job}%5c..%5cdcid.{run}/a.txt", f"experimentrun/dcid.{run}/a.txt"):
            yield "PUT", f"mlflow-artifacts/{FILES}/{way}", None
    yield "GET", "mlflow/experiments/get", {"experiment_id": b.experiment}
    yield "GET", "mlflow/experiments/get-by-name", {"experiment_name": b.experiment_name}
    for experiment in (a.experiment, b.experiment, "0"):
        yield "POST", "mlflow/experiments/update", {"experiment_id": experiment, "new_name": "owned"}
        yield "POST", "mlflow/experiments/delete", {"experiment_id": experiment}
        yield "POST", "mlflow/experiments/restore", {"experiment_id": experiment}
        yield "POST", "mlflow/experiments/set-experiment-tag", {"experiment_id": experiment, "key": "owned", "value": "1"}
        yield "POST", "mlflow/experiments/delete-experiment-tag", {"experiment_id": experiment, "key": "x"}
    yield "POST", "mlflow/experiments/create", {"name": "mine"}
    yield "POST", "mlflow/runs/create", {"experiment_id": b.experiment}
    yield "POST", "mlflow/runs/create", {}
    yield "POST", "mlflow/logged-models", {"experiment_id": b.experiment, "name": "x"}
    yield "PATCH", f"mlflow/logged-models/{b.model}", {"status": "LOGGED_MODEL_UPLOAD_FAILED"}
    yield "DELETE", f"mlflow/logged-models/{b.model}", None
    yield "POST", f"mlflow/logged-models/{b.model}/params", {"params": [{"key": "owned", "value": "1"}]}
    yield "PATCH", f"mlflow/logged-models/{b.model}/tags", {"tags": [{"key": "owned", "value": "1"}]}
    yield "DELETE", f"mlflow/logged-models/{b.model}/tags/x", None
    yield "POST", "mlflow/runs/log-metric", {"run_id": a.job, "key": "loss", "value": 0, "timestamp": 9, "step": 9, "model_id": b.model}
    yield "POST", "mlflow/runs/log-batch", {"run_id": a.job, "metrics": [{"key": "loss", "value": 0, "timestamp": 9, "step": 9, "model_id": b.model}]}
    yield "POST", "mlflow/runs/outputs", {"run_id": a.job, "models": [{"model_id": b.model}]}
    yield "PUT", f"mlflow-artifacts/{FILES}/LoggedModels/{b.model}/MLmodel", None
    yield "DELETE", f"mlflow-artifacts/{FILES}/LoggedModels/{b.model}", None
    yield "POST", f"mlflow-artifacts/mpu/create/LoggedModels/{b.model}", {"path": "MLmodel", "num_parts": 1}
    # Where the agent keeps checkpoints, and where code and data lie.
    for place in (f"Checkpoints/dcid.{b.job}/0/current.json", f"Checkpoints/dcid.{a.job}/0/current.json", "x", "../azureml-blobstore/x", f"ExperimentRun/dcid.{a.job}/user_logs/std_log.txt"):
        yield "PUT", f"mlflow-artifacts/{FILES}/{place}", None
    # The log of its own doings.
    for log in ("user_logs", "user_logs/std_log.txt"):
        yield "DELETE", f"mlflow-artifacts/{FILES}/ExperimentRun/dcid.{a.job}/{log}", None
    # What has no row in the table.
    yield "POST", "mlflow/gateway/start-update", {}
    yield "GET", f"mlflow-artifacts/presigned/{FILES}/ExperimentRun/dcid.{b.job}/notes/a.txt", None
    yield "POST", "mlflow/registered-models/create", {"name": "x"}


def test_a_jobs_token_reaches_nothing_of_another_job(two):
    attacker, victim = two
    before, own = victim.everything(), attacker.everything()
    through = []
    for method, path, what in attacks(attacker, victim):
        more = {"params": what} if method == "GET" else {"data": b"owned"} if method == "PUT" else {}
        answer = attacker.ask(method, path, None if more else what, **more)
        if answer.status_code not in (400, 403, 404, 501):
            through.append(f"{method} {path} {what}: {answer.status_code} {answer.text[:120]}")
    assert not through, f"{len(through)} attacks went through:\n" + "\n".join(through)
    assert victim.everything() == before
    assert attacker.everything() == own
    refused = attacker.ask("POST", "mlflow/runs/delete", {"run_id": victim.child})
    assert refused.status_code == 403 and refused.json()["error_code"] == "PERMISSION_DENIED"
    assert attacker.job in refused.json()["message"] and victim.child in refused.json()["message"]


def test_a_search_shows_a_job_its_own_runs_and_experiment(two):
    attacker, victim = two
    everywhere = {"experiment_ids": [attacker.experiment, victim.experiment, "0"], "run_view_type": "ALL"}
    found = [run["info"]["run_id"] for run in attacker.must("POST", "mlflow/runs/search", everywhere)["runs"]]
    assert sorted(found) == sorted([attacker.job, attacker.child])
    aimed = {**everywhere, "filter": f"run_id = '{victim.job}' AND metrics.loss > 0"}
    assert not attacker.must("POST", "mlflow/runs/search", aimed)["runs"]
    experiments = attacker.must("POST", "mlflow/experiments/search", {"view_type": "ALL", "max_results": 100})["experiments"]
    assert [experiment["name"] for experiment in experiments] == ["tides"]


def test_a_job_still_does_its_own_work(two):
    attacker, victim = two
    mine = f"ExperimentRun/dcid.{attacker.job}"
    assert attacker.must("GET", f"mlflow-artifacts/{FILES}/{mine}/notes/a.txt") == b"mine"
    assert attacker.must("GET", "mlflow/experiments/get-by-name", params={"experiment_name": "tides"})["experiment"]["experiment_id"] == attacker.experiment
    attacker.must("POST", "mlflow/runs/update", {"run_id": attacker.child, "status": "FINISHED"})
    attacker.must("POST", "mlflow/runs/delete", {"run_id": attacker.child})
    attacker.must("POST", "mlflow/runs/restore", {"run_id": attacker.child})
    attacker.must("PATCH", f"mlflow/logged-models/{attacker.model}/tags", {"tags": [{"key": "k", "value": "v"}]})
    attacker.must("DELETE", f"mlflow-artifacts/{FILES}/{mine}/notes")
    # Logged models are assets of the workspace: they may be loaded, and named as inputs.
    attacker.must("GET", f"mlflow/logged-models/{victim.model}")
    assert attacker.must("GET", f"mlflow-artifacts/{FILES}/LoggedModels/{victim.model}/MLmodel") == b"flavors"
    attacker.must("POST", "mlflow/runs/log-inputs", {"run_id": attacker.job, "models": [{"model_id": victim.model}]})


def test_only_the_documented_user_goes_with_the_secret(two):
    attacker, _ = two
    secret = attacker.server.vars["MLFLOW_TRACKING_PASSWORD"]
    assert attacker.server.vars["MLFLOW_TRACKING_USERNAME"] == "neap"
    for user in ("", "owner", "admin", "NEAP", "neap ", "neap\0", attacker.job):
        answer = attacker.ask("GET", "mlflow/experiments/search", auth=(user, secret))
        assert answer.status_code == 401 and secret not in answer.text, (user, answer.status_code)
    assert attacker.ask("GET", "mlflow/experiments/search", auth=("neap", secret[:-1])).status_code == 401
    assert attacker.ask("GET", "mlflow/experiments/search", auth=("neap", secret)).status_code == 200


@pytest.mark.parametrize("name,kind", [("page.html", "text/html"), ("picture.svg", "image/svg+xml"), ("page.xhtml", "application/xhtml+xml"), ("sniffed", "text/plain")])
def test_what_a_job_stores_is_no_page_of_this_server(two, name, kind):
    attacker, _ = two
    path = f"mlflow-artifacts/{FILES}/ExperimentRun/dcid.{attacker.job}/{name}"
    page = b"<html xmlns='http://www.w3.org/1999/xhtml'><script>alert(1)</script></html>"
    with requests.Session() as session:
        session.trust_env = False
        url = f"{attacker.server.url}/mlflow/v1.0{attacker.server.ws()}/api/2.0/{path}"
        put = session.put(url, data=page, headers={"Authorization": f"Bearer {attacker.token}", "Content-Type": kind}, verify=attacker.server.vars["REQUESTS_CA_BUNDLE"], timeout=30)
        assert put.status_code == 200, put.text
        shown = session.get(url, headers={"Authorization": f"Bearer {attacker.token}"}, verify=attacker.server.vars["REQUESTS_CA_BUNDLE"], timeout=30)
    assert shown.content == page
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert shown.headers["content-disposition"] == "attachment"
    assert "sandbox" in shown.headers["content-security-policy"] and "script" not in shown.headers["content-security-policy"]
    assert "set-cookie" not in shown.headers


def test_what_was_signed_for_a_job_dies_with_it(two):
    """Last of this file's attacks: the attacker's job ends. Its token, and URLs for parts of files, are worth nothing then."""
    attacker, victim = two
    folder = f"ExperimentRun/dcid.{attacker.job}/parts"
    parts = attacker.must("POST", f"mlflow-artifacts/mpu/create/{folder}", {"path": "big.bin", "num_parts": 2})
    first, second = (part["url"] for part in parts["credentials"])
    ca = attacker.server.vars["REQUESTS_CA_BUNDLE"]
    assert requests.put(first, data=b"one", verify=ca, timeout=30).status_code == 201
    attacker.place.unlink()
    attacker.server.wait_job(attacker.job, "Completed")
    assert requests.put(second, data=b"two", verify=ca, timeout=30).status_code == 403
    assert attacker.ask("GET", "mlflow/runs/get", params={"run_id": attacker.job}).status_code == 401
    assert attacker.ask("PUT", f"mlflow-artifacts/{FILES}/{folder}/late", data=b"late").status_code == 401
    victim.must("GET", "mlflow/runs/get", params={"run_id": victim.job})


def test_the_server_is_as_before(server, two):
    for run in two:
        run.place.unlink(missing_ok=True)
        server.wait_job(run.job, "Completed")
    assert_serving(server, server.cluster)
    assert_replays(server)
