"""`neap secret` and `${{secrets.NAME}}` with the real SDK and the CLI. What must not leak is in attacks/test_canary.py."""

import pytest
from azure.ai.ml import command, dsl
from azure.ai.ml.entities import Environment
from azure.core.exceptions import HttpResponseError

from neapserver import unique, wait_until


@pytest.fixture
def secret(server):
    made = []

    def make(value):
        name = unique("S").replace("-", "_")
        server.cli("secret", "create", "-n", name, "--value-stdin", text=value)
        made.append(name)
        return name

    yield make
    for name in made:
        server.cli("secret", "delete", "-n", name)


def step(line, mark, **variables):
    return command(command=line, environment=Environment(image="library/python:latest"), environment_variables={"NEAP_TEST_MARK": mark, **variables})


def test_the_sdk_submits_a_job_with_a_secret(ml, server, mark, work_cluster, secret, capsys):
    name = secret("sdk-value-123")
    job = step('echo "got $TOKEN, ${#TOKEN} characters"', mark, TOKEN="${{secrets." + name + "}}")
    job.name, job.compute = unique("sec"), work_cluster
    made = ml.jobs.create_or_update(job)
    ml.jobs.stream(made.name)
    assert "got ***, 13 characters" in capsys.readouterr().out
    assert ml.jobs.get(made.name).environment_variables["TOKEN"] == "${{secrets." + name + "}}"
    again = step("true", mark, TOKEN="${{secrets.nowhere}}")
    again.name, again.compute = unique("sec"), work_cluster
    with pytest.raises(HttpResponseError, match="refers to the secret 'nowhere'"):
        ml.jobs.create_or_update(again)


def test_the_sdk_submits_a_pipeline_with_a_secret(ml, server, mark, work_cluster, secret):
    name = secret("pipe-value-123")
    component = step('echo "got $TOKEN, ${#TOKEN} characters"', mark, TOKEN="${{secrets." + name + "}}")

    @dsl.pipeline(default_compute=work_cluster)
    def flow():
        component()

    made = ml.jobs.create_or_update(flow(), experiment_name="suite")
    server.wait_job(made.name, "Completed")
    (child,) = ml.jobs.list(parent_job_name=made.name)
    assert "got ***, 14 characters" in server.log(child.name)


def test_a_value_that_changes_is_used_by_the_next_job(server, mark, work_cluster, secret):
    name = secret("first")
    variables = {"NEAP_TEST_MARK": mark, "TOKEN": "${{secrets." + name + "}}"}
    for value in ("first", "the-second"):
        server.cli("secret", "create", "-n", name, "--value-stdin", text=value)
        job = server.submit(work_cluster, 'echo "${#TOKEN} characters"', environmentVariables=variables)
        server.wait_job(job, "Completed")
        wait_until(lambda: f"{len(value)} characters" in server.log(job), "the job saw the value of its time")


def test_secrets_are_listed_shown_and_deleted(server, secret, tmp_path):
    name = secret("x" * 10)
    file = tmp_path / "key"
    file.write_text("line 1\nline 2\n")
    shown = server.json("secret", "create", "-n", name, "--file", file)
    assert shown["name"] == name and set(shown) == {"name", "created", "modified", "modified_by"}
    assert name in [entry["name"] for entry in server.json("secret", "list")]
    assert server.json("secret", "show", "-n", name) == shown
    assert server.cli("secret", "show", "-n", "nowhere", check=False).returncode == 3
    assert server.cli("secret", "delete", "-n", "nowhere").returncode == 0
    for given, words in [("", "must not be empty"), ("x" * 70_000, "at most 65536"), ("a\0b", "NUL byte")]:
        refused = server.cli("secret", "create", "-n", name, "--value-stdin", text=given, check=False)
        assert refused.returncode == 1 and words in refused.stderr, refused.stderr
    refused = server.cli("secret", "create", "-n", "1x", "--value-stdin", text="v", check=False)
    assert refused.returncode == 1 and "cannot name a secret" in refused.stderr


def test_a_datastore_file_may_name_a_secret(server, secret, tmp_path):
    name = secret("a2V5")
    file = tmp_path / "store.yml"
    text = "name: NAME\ntype: azure_blob\naccount_name: acct\ncontainer_name: cont\ncredentials: {account_key: '${{secrets.SECRET}}'}\n"
    file.write_text(text.replace("NAME", f"store_{name}").replace("SECRET", name))
    server.cli("datastore", "create", "-f", file)
    file.write_text(text.replace("NAME", f"store_{name}").replace("SECRET", "nowhere"))
    refused = server.cli("datastore", "create", "-f", file, check=False)
    assert refused.returncode == 1 and "refers to the secret 'nowhere'" in refused.stderr, refused.stderr
    server.cli("datastore", "delete", "-n", f"store_{name}", "--yes")
