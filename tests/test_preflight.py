"""What would fail on a node is said before there is one: all of it in one answer, through ARM and through the CLI."""

import json
from pathlib import Path

import pytest

from neapserver import Server, unique


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    (folder / "in").mkdir()
    (folder / "in" / "small.csv").write_text("a,b\n")
    # A file with nothing in it that is as large as no disk.
    with open(folder / "in" / "huge.bin", "wb") as file:
        file.truncate(1 << 43)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory, places):
    home = tmp_path_factory.mktemp("preflight")
    (home / "config.yaml").write_text(f"inputs:\n  allow: [{places}/in]\n")
    server = Server(home=home)
    server.up()
    server.environment_id()
    yield server
    server.down()


@pytest.fixture(scope="module")
def cluster(server):
    name = unique("pf")
    server.make_cluster(name, 0, 2, "PT1S")
    return name


def bad_properties(server, places):
    """Each is wrong in another way."""
    return {
        "environmentId": f"{server.ws()}/environments/none/versions/7",
        "codeId": f"{server.ws()}/codes/none/versions/1",
        "resources": {"instanceCount": 9},
        "identity": {"identityType": "Managed", "clientId": "0000-nobody"},
        "inputs": {
            "store": {"jobInputType": "uri_folder", "uri": "azureml://datastores/nowhere/paths/x/"},
            "lost": {"jobInputType": "uri_file", "uri": "azureml://datastores/workspaceblobstore/paths/not/there.csv"},
            "secret": {"jobInputType": "uri_file", "uri": "file:///etc/shadow"},
            "web": {"jobInputType": "uri_file", "uri": "http://127.0.0.1:9/nothing-listens.csv"},
            "huge": {"jobInputType": "uri_file", "uri": f"file://{places}/in/huge.bin"},
        },
    }


EXPECTED = [
    ("EnvironmentNotFound", "The environment 'none' has no version '7' in this workspace."),
    ("CodeNotFound", "The code 'none' has no version '1' in this workspace."),
    ("DatastoreNotFound", "There is no datastore 'nowhere' in this workspace."),
    ("BadArgument", "There is nothing at 'not/there.csv', where the input 'lost' should be."),
    ("BadArgument", "'/etc/shadow' is not below a folder of inputs.allow in the server's configuration."),
    ("BadArgument", "The input 'web' cannot be read: "),
    ("ResourceTooLarge", "The inputs have 8388608 MB, and "),
    ("BadArgument", "The identity '0000-nobody' is not one of compute "),
    ("ResourceTooLarge", "The job asks for 9 nodes at once and max_instances of compute "),
]


def test_all_that_is_wrong_is_in_one_answer_of_arm(server, cluster, places):
    name = unique("bad")
    answer = server.http("PUT", f"{server.ws()}/jobs/{name}", server.job_body(cluster, "true", **bad_properties(server, places)))
    assert answer.status_code in (400, 404), answer.text
    details = answer.json()["error"]["details"]
    for code, words in EXPECTED:
        assert any(d["code"] == code and d["message"].startswith(words) for d in details), f"{code}: {words}\n{json.dumps(details, indent=1)}"
    assert all(d["target"] for d in details), details
    assert server.http("GET", f"{server.ws()}/jobs/{name}").status_code == 404
    assert server.nodes(cluster, gone=True) == [], "no node was asked for"


def test_the_cli_says_all_of_it(server, cluster, places, tmp_path):
    job = {
        "command": "echo ${{inputs.store}} ${{inputs.lost}} ${{inputs.web}}",
        "environment": "azureml:none:7",
        "compute": f"azureml:{cluster}",
        "resources": {"instance_count": 9},
        "identity": {"type": "managed", "client_id": "0000-nobody"},
        "inputs": {
            "store": {"type": "uri_folder", "path": "azureml://datastores/nowhere/paths/x/"},
            "lost": {"type": "uri_file", "path": "azureml://datastores/workspaceblobstore/paths/not/there.csv"},
            "web": {"type": "uri_file", "path": "http://127.0.0.1:9/nothing-listens.csv"},
        },
    }
    path = tmp_path / "job.yml"
    path.write_text(json.dumps(job))
    for command in (("job", "create"), ("plan",)):
        refused = server.cli(*command, "-f", path, check=False)
        assert refused.returncode in (1, 3), refused
        for words in (
            "The environment 'none' has no version '7'", "no datastore 'nowhere'", "where the input 'lost' should be", "The input 'web' cannot be read",
            "The identity '0000-nobody' is not one of compute", "The job asks for 9 nodes at once",
        ):
            assert words in refused.stderr, f"{command}: {words}\n{refused.stderr}"


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU, so there is nothing to refuse")
def test_a_gpu_that_is_not_there_is_said_with_the_rest(server):
    name = unique("pf")
    server.make_cluster(name, 0, 1, "PT1S", size="STANDARD_NC24ADS_A100_V4")
    answer = server.http("PUT", f"{server.ws()}/jobs/{unique('bad')}", server.job_body(name, "true", environmentId=f"{server.ws()}/environments/none/versions/7"))
    codes = {d["code"] for d in answer.json()["error"]["details"]}
    assert codes == {"GpuNotAvailable", "EnvironmentNotFound"}, answer.text


def test_what_is_there_is_taken(server, cluster, places):
    name = server.submit(cluster, "cat ${{inputs.small}}", inputs={"small": {"jobInputType": "uri_file", "uri": f"file://{places}/in/small.csv"}})
    server.wait_job(name, {"Completed"})
