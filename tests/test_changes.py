"""Schedules of a cluster's minimum and maximum, nodes that are replaced, what hangs on a cluster: by command line and REST."""

import datetime
import json

import pytest

from neapserver import unique, wait_until

ALWAYS = ["--start", "0 * * * *", "--duration", "2h"]


@pytest.fixture
def changed(server):
    """Takes away the locks and clusters that a test made."""
    yield server
    for lock in server.json("lock", "list"):
        assert server.http("DELETE", lock["id"]).status_code == 200
    for cluster in server.get(f"{server.ws()}/computes")["value"]:
        if cluster["name"].startswith("ch"):
            server.drop_cluster(cluster["name"])


def windows(server, cluster, below=""):
    return f"{server.nws()}/computes/{cluster}/schedules{below}"


# --- schedules ----------------------------------------------------------------------------------------------------------


def test_a_window_holds_the_maximum_names_itself_and_lets_go(changed, mark):
    server, name = changed, unique("ch")
    server.make_cluster(name, 0, 2)
    made = server.json("compute", "schedule", "create", name, "-n", "nights", *ALWAYS, "--time-zone", "Europe/Berlin", "--max", 0)
    assert (made["open"], made["max"], made["min"], made["running"], made["time_zone"]) == (True, 0, None, "finish", "Europe/Berlin")
    assert made["next_change"] is None and [span["until"] for span in made["spans"]] == [None], "it does not close as far as can be seen"
    nightly = server.json("compute", "schedule", "create", name, "-n", "later", "--start", "0 3 * * *", "--duration", "10m", "--time-zone", "Europe/Berlin", "--max", 1)
    assert nightly["next_change"]["does"] in ("opens", "closes") and nightly["next_change"]["clock"].endswith("Europe/Berlin")
    server.cli("compute", "schedule", "delete", name, "-n", "later")
    job = server.submit(name, "true", environmentVariables={"NEAP_TEST_MARK": mark})
    why = wait_until(lambda: [why for why in server.explain(job)["reasons"] if "'nights'" in why], "the window is the reason")
    assert why[0].startswith("The schedule 'nights' holds max_instances at 0; 1 node is wanted") and "it is 2 otherwise" in why[0], why
    verdict = server.explain(job)["verdict"]
    assert [[c["kind"] for c in way] for way in verdict["unblocking"]] == [["window"]], verdict
    told = server.cli("explain", "job", job).stdout
    assert "the schedule on max_instances (whatever else is done)" in told, told
    assert "The schedule 'nights' holds max_instances at 0" in server.cli("explain", "cluster", name).stdout
    shown = server.json("compute", "show", "-n", name)
    assert (shown["max_instances"], shown["scale_in_force"]["max"], shown["scale_in_force"]["max_by"]) == (2, 0, "nights")
    resource = server.get(f"{server.ws()}/computes/{name}")
    assert resource["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 2, "ARM says what is declared"
    assert server.http("PUT", f"{server.ws()}/computes/{name}", resource).status_code == 200, "what GET answers can be sent back"
    off = server.json("compute", "schedule", "disable", name, "-n", "nights")
    assert off["enabled"] is False and off["open"] is False
    server.wait_job(job, {"Completed"})
    assert server.json("compute", "schedule", "enable", name, "-n", "nights")["open"] is True
    assert server.json("compute", "show", "-n", name)["scale_in_force"]["max"] == 0
    server.cli("compute", "schedule", "delete", name, "-n", "nights")
    assert "scale_in_force" not in server.json("compute", "show", "-n", name)


def test_the_declared_maximum_stays_held_in_the_quota(changed):
    server, name = changed, unique("ch")
    usages = f"/subscriptions/{server.subscription}/providers/Microsoft.MachineLearningServices/locations/eastus/usages"

    def held():
        rows = server.get(usages)["value"]
        return next(r["currentValue"] for r in rows if r["name"]["value"] == "Total Cluster Dedicated Regional vCPUs")

    before = held()
    server.make_cluster(name, 0, 4)
    server.json("compute", "schedule", "create", name, "-n", "off", *ALWAYS, "--max", 0)
    assert held() == before + 16


def test_a_minimum_is_kept_and_what_overlaps_goes_by_the_rule(changed):
    server, name = changed, unique("ch")
    server.make_cluster(name, 0, 2, "PT0S")
    server.json("compute", "schedule", "create", name, "-n", "office", *ALWAYS, "--min", 1)
    wait_until(lambda: len(server.nodes(name)) == 1, "the minimum is kept")
    server.json("compute", "schedule", "create", name, "-n", "nights", *ALWAYS, "--max", 0)
    server.json("compute", "schedule", "create", name, "-n", "newyear", "--start", "0 0 1 1 *", "--duration", "1d", "--max", 1)
    wait_until(lambda: server.nodes(name) == [], "the lowest maximum wins over the minimum", 60)
    listed = server.get(windows(server, name))
    assert (listed["in_force"]["min"], listed["in_force"]["max"]) == (0, 0)
    assert sorted(w["name"] for w in listed["value"]) == ["newyear", "nights", "office"]
    table = server.cli("compute", "schedule", "list", name, "-o", "table").stdout
    assert all(word in table for word in ("Name", "Does", "nights", "office", "newyear", "01-01 00:00 UTC")), table


@pytest.mark.parametrize("times", [["--start", "* * * * *", "--duration", "1h"], ["--start", "* * * * *", "--end", "59 23 * * *"], ["--start", "*/2 * * * *", "--end", "1-59/2 * * * *"]])
def test_a_window_that_begins_every_minute_is_open_as_any_other(changed, times):
    server, name = changed, unique("ch")
    server.make_cluster(name, 0, 2)
    made = server.json("compute", "schedule", "create", name, "-n", "often", *times, "--max", 0)
    assert made["spans"], made


def test_a_window_that_stops_sends_jobs_back_to_the_queue(changed, mark):
    server, name = changed, unique("ch")
    server.make_cluster(name, 0, 1)
    job = server.submit(name, "sleep 600", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, {"Running"})
    server.json("compute", "schedule", "create", name, "-n", "stop", *ALWAYS, "--max", 0, "--running", "stop")
    server.wait_job(job, {"Queued"})
    assert any("'stop'" in why for why in server.explain(job)["reasons"])
    wait_until(lambda: server.nodes(name) == [], "the node is gone", 60)
    assert server.http("POST", f"{server.ws()}/jobs/{job}/cancel").status_code in (200, 202)
    server.wait_job(job, {"Canceled"})


def test_holidays_come_from_a_file_and_survive_a_kill(own_server, tmp_path):
    server = own_server("windows")
    server.make_cluster("cpu", 0, 2)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    file = tmp_path / "holidays.yml"
    file.write_text(f'name: holidays\nstart: "0 0 29 2 *"\nduration: 1d\nmax: 1\nalso_on: [{today}]\nnot_on: ["2026-01-01"]\n')
    made = server.json("compute", "schedule", "create", "cpu", "-f", file)
    assert made["open"] is True and made["spans"][0]["from"].startswith(today), made
    server.kill()
    server.up()
    shown = server.json("compute", "show", "-n", "cpu")
    assert (shown["scale_in_force"]["max"], shown["scale_in_force"]["max_by"]) == (1, "holidays")
    assert server.json("compute", "schedule", "show", "cpu", "-n", "HOLIDAYS")["not_on"] == ["2026-01-01"]


def test_everything_that_is_wrong_with_a_schedule_is_said_at_once(changed):
    server, name = changed, unique("ch")
    server.make_cluster(name, 0, 2)
    body = {"start": "0 25 * * *", "end": "x", "time_zone": "Mars/Olympus", "max": 9, "colour": "red", "running": "maybe", "not_on": ["2026-02-30"]}
    refused = server.http("PUT", windows(server, name, "/bad"), body)
    assert refused.status_code == 400, refused.text
    parts = (
        "'colour' is not known",
        "'running' is finish",
        'The time zone "Mars/Olympus" is not known',
        "The cron expression '0 25 * * *' of 'start' cannot be used: the hour '25' has '25', which is no number from 0 to 23",
        "it has 1 fields and needs 5",
        '"2026-02-30" in \'not_on\' is no date',
        f"max is 9 and max_instances of compute '{name}' is 2",
    )
    for part in parts:
        assert part in json.loads(refused.text)["error"]["message"] + json.dumps(refused.json()).replace('\\"', '"'), f"{part}: {refused.text}"
    cli = server.cli("compute", "schedule", "create", name, "-n", "bad", "--start", "0 25 * * *", "--end", "x", "--max", 9, check=False)
    assert cli.returncode == 1 and "the hour '25'" in cli.stderr and f"max_instances of compute '{name}' is 2" in cli.stderr, cli.stderr
    nothing = server.cli("compute", "schedule", "create", name, "-n", "bad", *ALWAYS, check=False)
    assert nothing.returncode == 1 and "says neither 'min' nor 'max'" in nothing.stderr, nothing.stderr
    upside = server.cli("compute", "schedule", "create", name, "-n", "bad", *ALWAYS, "--min", 2, "--max", 1, check=False)
    assert upside.returncode == 1 and "min is 2 and max is 1" in upside.stderr, upside.stderr
    called = server.cli("compute", "schedule", "create", name, "-n", "a b", *ALWAYS, "--max", 0, check=False)
    assert called.returncode == 1 and "The schedule name 'a b' is not valid" in called.stderr, called.stderr
    nameless = server.cli("compute", "schedule", "create", name, *ALWAYS, "--max", 0, check=False)
    assert nameless.returncode == 2 and "has no name" in nameless.stderr, nameless.stderr
    for verb in ("show", "enable", "delete"):
        gone = server.cli("compute", "schedule", verb, name, "-n", "nope", check=False)
        assert gone.returncode == 3 and "no schedule 'nope'" in gone.stderr, gone.stderr
    nowhere = server.cli("compute", "schedule", "list", "ch-nope", check=False)
    assert nowhere.returncode == 3, nowhere.stderr
    server.cli("lock", "create", "-n", "still", "--lock-type", "ReadOnly", "--compute", name)
    locked = server.cli("compute", "schedule", "create", name, "-n", "nights", *ALWAYS, "--max", 0, check=False)
    assert locked.returncode == 1 and "ScopeLocked" in locked.stderr and "lock 'still'" in locked.stderr, locked.stderr


# --- nodes that are replaced --------------------------------------------------------------------------------------------


def test_another_size_shows_its_plan_and_replaces_nodes_once_their_jobs_have_ended(changed, mark):
    server, name = changed, unique("ch")
    server.make_cluster(name, 0, 2, "PT600S")
    env = {"environmentVariables": {"NEAP_TEST_MARK": mark}}
    long = server.submit(name, "sleep 600", **env)
    server.wait_job(long, {"Running"})
    path = f"{server.ws()}/computes/{name}"
    body = server.get(path)
    body["properties"]["properties"]["vmSize"] = "STANDARD_DS2_V2"
    arm = server.http("PUT", path, body)
    assert arm.status_code == 400 and arm.json()["error"]["code"] == "PropertyChangeNotAllowed", arm.text
    assert "'neap compute update' replaces its nodes one by one" in arm.text
    plan = server.json("compute", "update", "-n", name, "--size", "Standard_DS2_v2", "--dry-run")
    assert [(c["field"], c["from"], c["to"]) for c in plan["changes"]] == [("size", "STANDARD_DS3_V2", "STANDARD_DS2_V2")]
    roll = plan["roll"]
    assert [node["jobs"] for node in roll["nodes"]] == [[long]] and roll["jobs_running_there"] == [long]
    family = [q for q in roll["quotas"] if q["name"].startswith("Standard DSv2 Family")]
    assert {(q["held_after"] - q["held_before"]) for q in family} == {-4}, roll["quotas"]
    assert roll["price_before"]["node_hour_usd"] != roll["price_after"]["node_hour_usd"]
    assert plan["dependents"]["jobs"]["running"] == 1
    unasked = server.cli("compute", "update", "-n", name, "--size", "Standard_DS2_v2", check=False)
    assert unasked.returncode == 2 and "nodes replaced, one by one" in unasked.stderr and "--yes" in unasked.stderr, unasked.stderr
    assert server.cluster(name)["vmSize"] == "STANDARD_DS3_V2", "nothing was done"
    server.json("compute", "update", "-n", name, "--size", "Standard_DS2_v2", "--yes", "--change-reference", "OPS-17")
    shown = server.json("compute", "show", "-n", name)
    assert shown["size"] == "STANDARD_DS2_V2" and len(shown["rolling"]["old_nodes"]) == 1
    old = server.nodes(name)[0]["node_id"]
    short = server.submit(name, "true", **env)
    server.wait_job(short, {"Completed"})
    assert server.status(long) == "Running", "what runs is left to end"
    assert old in [node["node_id"] for node in server.nodes(name)]
    assert server.http("POST", f"{server.ws()}/jobs/{long}/cancel").status_code in (200, 202)
    server.wait_job(long, {"Canceled"})
    wait_until(lambda: old not in [node["node_id"] for node in server.nodes(name)], "the old node is gone", 60)
    assert "rolling" not in server.json("compute", "show", "-n", name)
    history = server.json("compute", "history", "-n", name)
    assert [(r["revision"], r["size"], r["reference"]) for r in history] == [(2, "STANDARD_DS2_V2", "OPS-17"), (1, "STANDARD_DS3_V2", None)]
    server.cli("compute", "rollback", "-n", name, "--to", "1", "--yes")
    assert server.json("compute", "show", "-n", name)["size"] == "STANDARD_DS3_V2"


def test_a_roll_goes_on_after_a_kill(own_server, mark):
    server = own_server("roll")
    server.make_cluster("cpu", 2, 2, "PT600S")
    wait_until(lambda: [n["state"] for n in server.nodes("cpu")] == ["idle"] * 2, "two nodes are idle", 60)
    before = {node["node_id"] for node in server.nodes("cpu")}
    server.json("compute", "update", "-n", "cpu", "--tier", "low_priority", "--yes")
    server.kill()
    server.up()

    def rolled():
        nodes = server.nodes("cpu")
        return len(nodes) == 2 and all(n["state"] == "idle" for n in nodes) and not before & {n["node_id"] for n in nodes}

    wait_until(rolled, "both nodes were replaced", 120)
    assert "rolling" not in server.json("compute", "show", "-n", "cpu")


def test_what_keeps_nodes_from_being_replaced_is_said(changed, mark):
    server, name = changed, unique("ch")
    server.make_cluster(name, 0, 1)
    unknown = server.cli("compute", "update", "-n", name, "--size", "Standard_Nope", check=False)
    assert unknown.returncode == 1 and "InvalidVmSize" in unknown.stderr and "'Standard_Nope' is not known" in unknown.stderr, unknown.stderr
    moved = server.cli("compute", "update", "-n", name, "--set", "location=westus", check=False)
    assert moved.returncode == 1 and "PropertyChangeNotAllowed" in moved.stderr and "The location of compute" in moved.stderr, moved.stderr
    called = server.cli("compute", "update", "-n", name, "--set", "name=other", check=False)
    assert called.returncode == 2 and "name of a cluster cannot be changed" in called.stderr, called.stderr
    server.cli("compute", "schedule", "create", name, "-n", "off", *ALWAYS, "--max", 0)
    job = server.submit(name, "true", resources={"instanceCount": 1, "properties": {"neap": {"cpus": 3, "memory_gb": 1}}}, environmentVariables={"NEAP_TEST_MARK": mark})
    small = server.cli("compute", "update", "-n", name, "--size", "Standard_DS1_v2", "--yes", check=False)
    assert small.returncode == 1 and "ResourceTooLarge" in small.stderr and f"'{job}' ask for more" in small.stderr, small.stderr
    assert server.http("POST", f"{server.ws()}/jobs/{job}/cancel").status_code in (200, 202)
    server.cli("lock", "create", "-n", "still", "--lock-type", "ReadOnly", "--compute", name)
    locked = server.cli("compute", "update", "-n", name, "--size", "Standard_DS2_v2", "--yes", check=False)
    assert locked.returncode == 1 and "ScopeLocked" in locked.stderr, locked.stderr
    own = server.http("PUT", f"{server.nws()}/computes/{name}", server.get(f"{server.ws()}/computes/{name}"))
    assert own.status_code == 200, "nothing changes: nothing is refused"


# --- what hangs on a cluster --------------------------------------------------------------------------------------------


def test_deleting_names_what_hangs_on_a_cluster(changed, mark):
    server, name = changed, unique("ch")
    server.make_cluster(name, 0, 1)
    server.cli("compute", "schedule", "create", name, "-n", "off", *ALWAYS, "--max", 0)
    server.cli("budget", "create", "-n", f"{name}-b", "--amount", "5", "--compute", name)
    job = server.submit(name, "true", environmentVariables={"NEAP_TEST_MARK": mark})
    schedule = {"properties": {"isEnabled": False, "trigger": {"triggerType": "Cron", "expression": "0 0 1 1 *"}, "action": {"actionType": "CreateJob", "jobDefinition": server.job_body(name, "true")["properties"]}}}
    assert server.http("PUT", f"{server.ws()}/schedules/{name}-s", schedule).status_code == 201
    server.cli("lock", "create", "-n", "keep", "--lock-type", "CanNotDelete", "--compute", name)
    asked = server.cli("compute", "delete", "-n", name, check=False)
    assert asked.returncode == 2, asked.stderr
    for part in ("jobs on it: 0 running, 1 waiting", f"schedules that submit jobs to it: {name}-s", "schedules of its minimum and maximum: off", f"budgets on it: {name}-b", "locks on it: keep", "Nobody is here to answer"):
        assert part in asked.stderr, f"{part}: {asked.stderr}"
    found = server.get(f"{server.nws()}/computes/{name}/dependents")
    assert (found["jobs"]["waiting_names"], found["locks"]) == ([job], ["keep"])
    refused = server.cli("compute", "delete", "-n", name, "--yes", check=False)
    assert refused.returncode == 1 and "ScopeLocked" in refused.stderr
    server.cli("lock", "delete", "-n", "keep")
    server.cli("compute", "delete", "-n", name, "--yes")
    assert server.http("GET", f"{server.ws()}/computes/{name}").status_code == 404
    assert server.http("DELETE", f"{server.ws()}/schedules/{name}-s").status_code == 200
    for words in (["compute", "delete", "-n", name, "--yes"], ["workspace", "delete", "-n", "nowhere", "--yes"]):
        gone = server.cli(*words, check=False)
        assert gone.returncode == 3 and "ResourceNotFound" in gone.stderr, gone.stderr
    nowhere = server.cli("compute", "delete", "-n", name, check=False)
    assert nowhere.returncode == 3, nowhere.stderr


def test_a_quota_near_its_limit_tells_somebody_once_and_resolves(own_server):
    server = own_server("quota", start=False)
    (server.home / "config.yaml").write_text(f"alerts:\n  command: ['/bin/sh', '-c', 'cat >> {server.home}/told.txt']\n  resolve_seconds: 0\n")
    server.up()
    server.cli("quota", "set", "--dedicated", "--level", "workspace", "--location", "eastus", "--limit", 10)
    server.json("compute", "create", "-n", "cpu", "--type", "amlcompute", "--size", "Standard_DS3_v2", "--location", "eastus", "--max-instances", 2, "--tags", "owner=ada@example.com")
    told = server.home / "told.txt"
    text = wait_until(lambda: told.exists() and told.read_text(), "somebody is told")
    for part in ("Subject: [firing] NeapQuotaNearLimit", "8 of 10 of workspace", "most by 'cpu'", "owner: ada@example.com"):
        assert part in text, text
    assert 'neap_quota_held{quota="Total Cluster Dedicated Regional vCPUs",location="eastus"' in server.http("GET", "/metrics").text
    server.cli("quota", "set", "--dedicated", "--level", "workspace", "--location", "eastus", "--limit", 100)
    wait_until(lambda: "Subject: [resolved] NeapQuotaNearLimit" in told.read_text(), "it resolves")
