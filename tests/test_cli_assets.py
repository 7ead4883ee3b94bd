"""Groups of `neap` that keep things by name, sent to a real server: assets archived and restored, datastores, schedules."""

import pytest
import yaml

from neapserver import ROOT, unique

YAML = ROOT / "tests" / "yaml"
SCHEDULES = ROOT / "tests" / "schedules"
COMPONENT = {"type": "command", "command": "echo x", "environment": {"image": "library/python:latest"}}


def register(server, tmp_path, group, name, version):
    """A version of an asset of this kind."""
    if group == "component":
        path = tmp_path / f"component{version}.yml"
        path.write_text(yaml.safe_dump({**COMPONENT, "name": name}))
        return server.json(group, "create", "-f", path, "--version", version)
    if group == "environment":
        return server.json(group, "create", "-n", name, "--version", version, "--image", f"library/python:{version}")
    (tmp_path / "rows.csv").write_text("a,b\n")
    kind = {"data": "uri_file", "model": "custom_model"}[group]
    return server.json(group, "create", "-n", name, "--version", version, "--path", tmp_path / "rows.csv", "--type", kind)


@pytest.mark.parametrize("group", ["component", "data", "environment", "model"])
def test_assets_are_archived_and_restored(server, tmp_path, group):
    name = unique("asset").replace("-", "_")
    for version in ("1", "2"):
        assert register(server, tmp_path, group, name, version)["version"] == version

    def versions(*flags):
        return sorted(row["version"] for row in server.json(group, "list", "-n", name, *flags))

    def names(*flags):
        return [row["name"] for row in server.json(group, "list", "-r", "1000", *flags) if row["name"] == name]

    assert (versions(), names()) == (["1", "2"], [name])
    server.cli(group, "archive", "-n", name, "--version", "1")
    assert (versions(), versions("--archived-only"), versions("--include-archived")) == (["2"], ["1"], ["1", "2"])
    assert server.json(group, "show", "-n", name, "--version", "1")["name"] == name, "what is archived is still there"
    server.cli(group, "restore", "-n", name, "--version", "1")
    assert versions() == ["1", "2"]

    server.cli(group, "archive", "-n", name)
    assert (names(), names("--archived-only"), names("--include-archived")) == ([], [name], [name])
    server.cli(group, "restore", "-n", name)
    assert names() == [name]

    server.cli(group, "archive", "-n", name, "--label", "latest")
    assert versions() == ["1"]
    changed = server.json(group, "update", "-n", name, "--version", "1", "--set", "tags.stage=good", "description=better")
    assert (changed["tags"], changed["description"]) == ({"stage": "good"}, "better")

    nobody = server.cli(group, "archive", "-n", f"{name}_nobody", check=False)
    assert nobody.returncode == 3 and "nobody" in nobody.stderr, nobody.stderr


def test_datastores_are_registered_shown_and_forgotten(server, tmp_path):
    secret = "c2VjcmV0LWtleS1vZi1ub2JvZHk="
    name = unique("store").replace("-", "_")
    path = tmp_path / "store.yml"
    path.write_text(yaml.safe_dump({
        "type": "azure_blob", "name": "written_over", "account_name": "somebody", "container_name": "things",
        "description": "d", "credentials": {"account_key": secret},
    }))  # fmt: skip
    made = server.cli("datastore", "create", "-f", path, "-n", name, "--set", "protocol=https", "-o", "json")
    assert secret not in made.stdout + made.stderr
    shown = server.cli("datastore", "show", "-n", name, "-o", "json")
    assert secret not in shown.stdout
    body = server.json("datastore", "show", "-n", name)
    assert (body["name"], body["type"], body["account_name"], body["container_name"]) == (name, "azure_blob", "somebody", "things")
    listed = {row["name"] for row in server.json("datastore", "list")}
    assert {name, "workspaceblobstore", "workspaceartifactstore"} <= listed
    asked = server.cli("datastore", "delete", "-n", name, check=False)
    assert asked.returncode != 0 and "--yes" in asked.stderr, "nobody is there to be asked"
    server.cli("datastore", "delete", "-n", name, "--yes")
    gone = server.cli("datastore", "show", "-n", name, check=False)
    assert gone.returncode == 3 and name in gone.stderr
    kept = server.cli("datastore", "delete", "-n", "workspaceblobstore", "--yes", check=False)
    assert kept.returncode != 0 and server.json("datastore", "show", "-n", "workspaceblobstore")


@pytest.mark.parametrize("path", sorted(YAML.glob("datastore-*.yml")), ids=lambda path: path.stem)
def test_datastores_with_every_field_are_taken_or_refused_by_name(server, path):
    name = unique("store").replace("-", "_")
    done = server.cli("datastore", "create", "-f", path, "-n", name, check=False)
    if done.returncode == 0:
        assert server.json("datastore", "show", "-n", name)["name"] == name
        server.cli("datastore", "delete", "-n", name, "--yes")
    else:
        assert "error:" in done.stderr and "internal" not in done.stderr.lower(), done.stderr
        assert server.http("GET", f"{server.ws()}/datastores/{name}").status_code == 404


@pytest.fixture
def schedule(server):
    name = unique("nightly")
    server.make_cluster("cpu-cluster", 0, 1, "PT1M")
    server.cli("schedule", "create", "-f", SCHEDULES / "hourly.yml", "-n", name)
    yield name
    server.cli("schedule", "delete", "-n", name, "--yes", check=False)


def test_schedules_are_switched_changed_fired_and_deleted(server, schedule):
    def names(*flags):
        return [row["name"] for row in server.json("schedule", "list", *flags) if row["name"] == schedule]

    shown = server.json("schedule", "show", "-n", schedule)
    assert (shown["is_enabled"], shown["trigger"]["expression"], shown["display_name"]) == (True, "0 * * * *", "every hour")
    assert server.json("schedule", "disable", "-n", schedule)["is_enabled"] is False
    assert (names(), names("--disabled-only"), names("--include-disabled")) == ([], [schedule], [schedule])
    assert server.json("schedule", "enable", "-n", schedule)["is_enabled"] is True
    assert names() == [schedule]

    changed = server.json("schedule", "update", "-n", schedule, "--set", "trigger.expression=30 2 * * *", "tags.team=vision")
    assert changed["trigger"]["expression"] == "30 2 * * *" and changed["tags"] == {"team": "vision"}
    refused = server.cli("schedule", "update", "-n", schedule, "--set", "create_job.compute=other", check=False)
    assert refused.returncode == 2 and "create it again from its file" in refused.stderr
    wrong = server.cli("schedule", "update", "-n", schedule, "--set", "trigger.expression=99 * * * *", check=False)
    assert wrong.returncode != 0 and server.json("schedule", "show", "-n", schedule)["trigger"]["expression"] == "30 2 * * *"

    job = server.json("schedule", "trigger", "-n", schedule)["job_name"]
    server.wait_job(job, "Completed", 120)
    server.cli("schedule", "delete", "-n", schedule, "--yes")
    gone = server.cli("schedule", "show", "-n", schedule, check=False)
    assert gone.returncode == 3 and schedule in gone.stderr
    assert server.status(job) == "Completed", "jobs that it created stay"
