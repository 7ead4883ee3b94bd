"""A file that is wrong in itself and in what it asks for: both are told in one answer, and nothing is done."""

import json

import pytest

from neapserver import unique
from refusing import by_cli, by_rest

RETIRED = "(InvalidVmSize) The VM size 'Standard_NC6' is of the NC series, which was retired on 2023-08-31; use for example Standard_NC4as_T4_v3."
SCALE = "(InvalidScaleSettings) minNodeCount is 5 and maxNodeCount is 2; the minimum cannot be above the maximum."


def file(folder, **content):
    path = folder / "file.yml"
    path.write_text(json.dumps(content))
    return path


def cluster_file(folder, **more):
    spec = {"name": unique("rf"), "type": "amlcompute", "size": "Standard_NC6", "min_instances": 5, "max_instances": 2, **more}
    return file(folder, **{key: value for key, value in spec.items() if value is not None})


def test_a_cluster_with_an_unknown_key(strict, tmp_path):
    text = "colour: unknown key; the keys here are name, type,"
    said = by_cli(strict, ["compute", "create", "-f", cluster_file(tmp_path, colour="red")], "the specification has 3 problems", text, RETIRED, SCALE, exit=2)
    assert said.count("\n  - ") == 3, said
    assert strict.json("compute", "list") == []


def test_a_misspelt_key_counts_as_what_was_meant(strict, tmp_path):
    words = ["compute", "create", "-f", cluster_file(tmp_path, max_instances=None, max_instnces=2)]
    by_cli(strict, words, "max_instnces: unknown key; did you mean `max_instances`?", RETIRED, SCALE, exit=2)
    words = ["compute", "create", "-f", cluster_file(tmp_path, max_instances=None, max_instnces=6)]
    assert "InvalidScaleSettings" not in by_cli(strict, words, "did you mean `max_instances`?", RETIRED, exit=2)


def test_nothing_is_said_of_what_cannot_be_read(strict, tmp_path):
    words = ["compute", "create", "-f", cluster_file(tmp_path, max_instances="two")]
    said = by_cli(strict, words, "max_instances: must be a whole number, not the text `two`", RETIRED, exit=2)
    assert "InvalidScaleSettings" not in said, "the maximum would be a guess"


def test_a_cluster_without_a_name(strict, tmp_path):
    by_cli(strict, ["compute", "create", "-f", cluster_file(tmp_path, name=None)], "name: required, and not given", RETIRED, SCALE, exit=2)


def test_a_dry_run_and_a_change_tell_the_same(strict, tmp_path):
    by_cli(strict, ["compute", "create", "--dry-run", "-f", cluster_file(tmp_path, colour="red")], "unknown key", RETIRED, SCALE, exit=2)
    name = unique("rf")
    strict.make_cluster(name, 0, 2)
    words = ["compute", "update", "-n", name, "--set", "colour=red", "--min-instances", 5, "--size", "Standard_NC6"]
    by_cli(strict, words, "colour: unknown key", RETIRED, SCALE, exit=2)
    assert strict.cluster(name)["scaleSettings"]["minNodeCount"] == 0
    strict.drop_cluster(name)


def test_without_a_server_the_file_is_told_alone(strict, tmp_path):
    empty = tmp_path / "nobody"
    words = ["--data", empty, "compute", "create", "-f", cluster_file(tmp_path, colour="red")]
    assert "(Invalid" not in by_cli(strict, words, "the specification has 1 problem", "colour: unknown key", exit=2)


@pytest.mark.parametrize("command", [["job", "create"], ["plan"]])
def test_a_job_with_an_unknown_key_and_much_that_is_not_there(strict, tmp_path, command):
    path = file(tmp_path, command="true", compute="azureml:nowhere", environment="azureml:gone:7", colour="red", name="no/name")
    said = by_cli(
        strict,
        [*command, "-f", path],
        "the specification has 4 problems",
        "colour: unknown key; the keys here are command, environment,",
        "(ComputeNotFound) The compute 'nowhere' was not found in this workspace; 'neap compute list' shows those there are.",
        "(EnvironmentNotFound) The environment 'gone' has no version '7' in this workspace.",
        "(InvalidResourceName)",
        exit=2,
    )
    assert said.count("\n  - ") == 4, said
    assert strict.json("job", "list") == []


def test_a_job_without_a_command(strict, tmp_path):
    path = file(tmp_path, compute="azureml:nowhere", environment="azureml:plain:1")
    by_cli(strict, ["job", "create", "-f", path], "command: required, and not given", "(ComputeNotFound)", exit=2)


def test_every_asset_that_is_not_registered(strict, tmp_path):
    path = file(
        tmp_path,
        command="true",
        compute="azureml:nowhere",
        environment="azureml:some@latest",
        inputs={"a": {"type": "uri_file", "path": "azureml:other@latest"}},
    )
    said = by_cli(strict, ["job", "create", "-f", path], "2 assets are not registered", "no environment is registered under the name some", "no data asset is registered under the name other", exit=3)
    assert "neap environment list" in said and "neap data list" in said, said


def test_all_that_is_wrong_with_a_limit_of_a_user(strict):
    error = by_rest(strict, ("PUT", "allowances", {"compute": "nowhere", "jobs": -1}), "BadArgument", "'jobs' is a number from 0 on.", "The Compute with name 'nowhere' was not found.")
    assert len(error["details"]) == 2, error
