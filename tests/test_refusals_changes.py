"""Every refusal of schedules of clusters, locks, changes and questions about the past, with its text, through Azure Resource Manager (or Neap's
own REST, where Azure has no words) and through the command line."""

import json

import pytest

from neapserver import unique
from refusing import by_cli, by_rest, cluster_body, job_file, refused

GOOD = {"start": "0 20 * * *", "duration": "1h", "max": 0}
FLAGS = ["--start", "0 20 * * *", "--duration", "1h", "--max", 0]


@pytest.fixture(scope="module")
def compute(strict):
    name = unique("ch")
    strict.make_cluster(name, 0, 2)
    yield name
    strict.drop_cluster(name)


# --- schedules of clusters ----------------------------------------------------------------------------------------------------


def but(**more):
    return {key: value for key, value in {**GOOD, **more}.items() if value is not None}


@pytest.mark.parametrize(
    ("body", "flags", "text"),
    [
        (but(start="0 25 * * *"), ["--start", "0 25 * * *", "--duration", "1h", "--max", 0], "The cron expression '0 25 * * *' of 'start' cannot be used: the hour '25' has '25', which is no number from 0 to 23."),
        (but(start="5-1 * * * *"), ["--start", "5-1 * * * *", "--duration", "1h", "--max", 0], "the minute '5-1' has the range '5-1', which ends before it begins."),
        (but(start="*/0 * * * *"), ["--start", "*/0 * * * *", "--duration", "1h", "--max", 0], "the minute '*/0' has the step '0', which is no number from 1 on."),
        (but(start="noon"), ["--start", "noon", "--duration", "1h", "--max", 0], "The cron expression 'noon' of 'start' cannot be used: it has 1 fields and needs 5: minute, hour, day of month, month, day of week."),
        (but(start="0 0 31 2 *"), ["--start", "0 0 31 2 *", "--duration", "1h", "--max", 0], "The cron expression '0 0 31 2 *' of 'start' cannot be used: it names a day that never comes."),
        (but(start="0 0 * * FUN"), ["--start", "0 0 * * FUN", "--duration", "1h", "--max", 0], "the day of week 'FUN' has 'FUN', which is no number from 0 to 6 or a name such as sunday."),
        (but(start="0 20 * * *" + " " * 1000), ["--start", "0 20 * * *" + " " * 1000, "--duration", "1h", "--max", 0], "' of 'start' cannot be used: it has more than 1000 characters."),
        (but(duration=None, end="x"), ["--start", "0 20 * * *", "--end", "x", "--max", 0], "The cron expression 'x' of 'end' cannot be used: it has 1 fields and needs 5"),
        (but(start=None), ["--duration", "1h", "--max", 0], "'start' is missing: when the window begins, such as '0 20 * * *' for every day at 20:00."),
        (but(duration=None), ["--start", "0 20 * * *", "--max", 0], "'end' or 'duration' is missing: '0 7 * * *' for the next 07:00, or '11h'."),
        (but(duration="long"), ["--start", "0 20 * * *", "--duration", "long", "--max", 0], "The duration \"long\" is not understood: minutes, hours or days from 1m to "),
        (but(time_zone="Mars/Olympus"), [*FLAGS, "--time-zone", "Mars/Olympus"], 'The time zone "Mars/Olympus" is not known'),
        (but(not_on=["2026-02-30"]), [*FLAGS, "--not-on", "2026-02-30"], '"2026-02-30" in \'not_on\' is no date such as 2026-12-25.'),
        (but(not_on=["2026-12-25"], also_on=["2026-12-25"]), [*FLAGS, "--not-on", "2026-12-25", "--also-on", "2026-12-25"], "2026-12-25 is both in 'not_on' and in 'also_on'."),
    ],
)
def test_a_time_that_cannot_be(strict, compute, body, flags, text):
    refused(strict, ("PUT", f"computes/{compute}/schedules/bad", body), ["compute", "schedule", "create", compute, "-n", "bad", *flags], "BadArgument", text)
    assert strict.http("GET", f"{strict.nws()}/computes/{compute}/schedules/bad").status_code == 404


@pytest.mark.parametrize(
    ("body", "flags", "text"),
    [
        (but(max=9), ["--max", 9], "max is 9 and max_instances of compute '{name}' is 2; a schedule's max is between 0 and that, which is what quotas count. Raise max_instances first."),
        (but(max=None, min=3), ["--min", 3], "min is 3 and max_instances of compute '{name}' is 2; a schedule's min is between 0 and that, which is what quotas count. Raise max_instances first."),
        (but(max=None), [], "The schedule says neither 'min' nor 'max'; give one of them, such as max 0."),
        (but(max=1, min=2), ["--min", 2, "--max", 1], "min is 2 and max is 1; the minimum cannot be above the maximum."),
    ],
)
def test_bounds_that_cannot_be(strict, compute, body, flags, text):
    words = ["compute", "schedule", "create", compute, "-n", "bad", "--start", "0 20 * * *", "--duration", "1h", *flags]
    refused(strict, ("PUT", f"computes/{compute}/schedules/bad", body), words, "InvalidScaleSettings", text.format(name=compute))


def test_a_file_with_what_is_not_known(strict, compute, tmp_path):
    file = tmp_path / "window.yml"
    for more, text in [
        ({"end": "0 7 * * *"}, "Give 'end' or 'duration', and not both."),
        ({"colour": "red"}, "'colour' is not known; a schedule has start, end, duration, time_zone, not_on, also_on, min, max, running, enabled."),
        ({"running": "maybe"}, "'running' is finish (what runs is left to end) or stop (it is stopped and waits), not 'maybe'."),
        ({"start": 20}, "'start' is a cron expression in quotes, such as '0 20 * * *'."),
        ({"not_on": "Christmas"}, "'not_on' is a list of dates such as 2026-12-25."),
        ({"not_on": ["2026-12-25"] * 401}, "'not_on' has 401 dates; 400 are allowed."),
    ]:
        file.write_text(json.dumps({"name": "bad", **but(**more)}))
        refused(strict, ("PUT", f"computes/{compute}/schedules/bad", but(**more)), ["compute", "schedule", "create", compute, "-f", file], "BadArgument", text)
    by_cli(strict, ["compute", "schedule", "create", compute, "-n", "bad", *FLAGS, "--running", "maybe"], "invalid value 'maybe'", "[possible values: finish, stop]", exit=2)
    by_cli(strict, ["compute", "schedule", "create", compute, "-f", tmp_path / "none.yml"], "cannot read", "none.yml", exit=2)
    by_cli(strict, ["compute", "schedule", "create", compute, *FLAGS], "the schedule has no name", "give it with --name", exit=2)
    file.write_text("- a list\n")
    by_cli(strict, ["compute", "schedule", "create", compute, "-f", file], "the file must hold a mapping", exit=2)
    by_cli(strict, ["compute", "schedule", "create", compute, "-n", "bad", *FLAGS, "--end", "0 7 * * *"], "cannot be used with", exit=2)
    by_rest(strict, ("PUT", f"computes/{compute}/schedules/bad", ["a list"]), "BadArgument", "must be an object")


def test_names_of_schedules(strict, compute):
    text = "The schedule name 'a b' is not valid: 1 to 200 letters, digits, '-' and '_', starting with a letter or digit."
    refused(strict, ("PUT", f"computes/{compute}/schedules/a%20b", GOOD), ["compute", "schedule", "create", compute, "-n", "a b", *FLAGS], "InvalidResourceName", text)
    text = f"Compute '{compute}' has no schedule 'nope'; 'neap compute schedule list {compute}' shows those it has."
    base = f"computes/{compute}/schedules/nope"
    for ask, verb in [(("GET", base), "show"), (("POST", f"{base}/enable"), "enable"), (("POST", f"{base}/disable"), "disable")]:
        refused(strict, ask, ["compute", "schedule", verb, compute, "-n", "nope"], "ResourceNotFound", text, status=404)
    refused(strict, ("GET", "computes/nowhere/schedules"), ["compute", "schedule", "list", "nowhere"], "ResourceNotFound", "The Compute with name 'nowhere' was not found.", status=404)
    refused(strict, ("PUT", "computes/nowhere/schedules/x", GOOD), ["compute", "schedule", "create", "nowhere", "-n", "x", *FLAGS], "ResourceNotFound", "The Compute with name 'nowhere' was not found.", status=404)
    by_rest(strict, ("POST", base, GOOD), "MethodNotAllowed", "it takes GET, PUT and DELETE.", status=405)


def test_deleting_a_schedule_that_is_not_there_says_which_are(strict, compute):
    text = f"Compute '{compute}' has no schedule 'nope'; 'neap compute schedule list {compute}' shows those it has."
    refused(strict, ("DELETE", f"computes/{compute}/schedules/nope"), ["compute", "schedule", "delete", compute, "-n", "nope"], "ResourceNotFound", text, status=404)


def test_as_many_schedules_as_may_be(strict):
    name = unique("ch")
    strict.make_cluster(name, 0, 2)
    for n in range(32):
        assert strict.http("PUT", f"{strict.nws()}/computes/{name}/schedules/w{n}", GOOD).status_code == 201
    text = f"Compute '{name}' has 32 schedules, which is the limit; delete one that is not needed."
    refused(strict, ("PUT", f"computes/{name}/schedules/more", GOOD), ["compute", "schedule", "create", name, "-n", "more", *FLAGS], "LimitReached", text, status=409)
    assert strict.http("PUT", f"{strict.nws()}/computes/{name}/schedules/w0", GOOD).status_code == 200, "one that is there can be changed"
    strict.drop_cluster(name)


# --- locks ----------------------------------------------------------------------------------------------------------------------


def locks(scope):
    return f"{scope}/providers/Microsoft.Authorization/locks"


def test_a_lock_that_cannot_be(strict, compute):
    lock = ["lock", "create", "-n", "x", "--lock-type"]
    body = {"properties": {"level": "ReadOnly"}}
    text = "The level of a lock is CanNotDelete or ReadOnly, not 'Frozen'."
    refused(strict, ("PUT", f"{locks(strict.ws())}/x", {"properties": {"level": "Frozen"}}), [*lock, "Frozen", "--on", "workspace"], "BadArgument", text)
    by_rest(strict, ("PUT", f"{locks(strict.ws())}/x", {}), "BadArgument", "The level of a lock is CanNotDelete or ReadOnly, not ''.")
    text = "The lock name 'a b' is not valid: 1 to 90 letters, digits, '-', '_', '.', '(' and ')', not ending with '.'."
    refused(strict, ("PUT", f"{locks(strict.ws())}/a%20b", body), ["lock", "create", "-n", "a b", "--lock-type", "ReadOnly", "--on", "workspace"], "InvalidResourceName", text)
    refused(strict, ("PUT", f"{locks(strict.ws() + '/computes/nowhere')}/x", body), [*lock, "ReadOnly", "--compute", "nowhere"], "ResourceNotFound", "The compute 'nowhere' was not found.", status=404)
    answer = strict.http("PUT", f"{locks(strict.ws() + '/computes/nowhere')}/a%20b", {"properties": {"level": "Frozen"}})
    assert answer.status_code == 404 and len(answer.json()["error"]["details"]) == 3, answer.text
    group = f"/subscriptions/{strict.subscription}/resourceGroups/nowhere"
    refused(strict, ("PUT", f"{locks(group)}/x", body), [*lock, "ReadOnly", "--on", "group", "-g", "nowhere"], "ResourceGroupNotFound", "Resource group 'nowhere' could not be found.", status=404)
    error = by_rest(strict, ("PUT", f"{locks(strict.ws(workspace='nowhere'))}/x", body), "ResourceNotFound", "nowhere", status=404)
    by_cli(strict, [*lock, "ReadOnly", "--on", "workspace", "-w", "nowhere"], f"(ResourceNotFound) {error['message']}", exit=3)
    text = "Locks are on resource groups, workspaces and computes here; a subscription or another resource cannot be locked."
    by_rest(strict, ("PUT", f"{locks(f'/subscriptions/{strict.subscription}')}/x", body), "NotSupported", text)
    by_cli(strict, [*lock, "ReadOnly"], "say what to lock", "--compute NAME, --on workspace or --on group; a lock on the group stops scaling, too", exit=2)
    by_cli(strict, [*lock, "ReadOnly", "--on", "subscription"], "invalid value 'subscription'", "[possible values: workspace, group]", exit=2)
    by_cli(strict, ["lock", "create", "-n", "x", "--on", "workspace"], "--lock-type <TYPE>", exit=2)


def test_a_lock_that_is_not_there(strict, compute):
    text = "There is no lock 'nope' on it; 'neap lock list' shows all."
    refused(strict, ("GET", f"{locks(strict.ws())}/nope"), ["lock", "delete", "-n", "nope", "--on", "workspace"], "ResourceNotFound", text, status=404)
    by_cli(strict, ["lock", "delete", "-n", "nope"], "there is no lock 'nope'", "'neap lock list' shows all", exit=3)
    strict.cli("lock", "create", "-n", "twin", "--lock-type", "CanNotDelete", "--compute", compute)
    strict.cli("lock", "create", "-n", "twin", "--lock-type", "CanNotDelete", "--on", "workspace")
    by_cli(strict, ["lock", "delete", "-n", "twin"], "2 locks are called 'twin'", "say which with --compute NAME, --on workspace or --on group", exit=2)
    strict.cli("lock", "delete", "-n", "twin", "--compute", compute)
    strict.cli("lock", "delete", "-n", "twin", "--on", "workspace")


def test_what_is_wrong_with_a_lock_is_said_at_once(strict):
    """The name and the level alike."""
    name = "The lock name 'a b' is not valid"
    level = "The level of a lock is CanNotDelete or ReadOnly, not 'Frozen'."
    by_rest(strict, ("PUT", f"{locks(strict.ws())}/a%20b", {"properties": {"level": "Frozen"}}), "BadArgument", level, name)
    by_cli(strict, ["lock", "create", "-n", "a b", "--lock-type", "Frozen", "--on", "workspace"], level, name)


SCOPES = [(["--compute", "{compute}"], "compute '{compute}'"), (["--on", "workspace"], "workspace '{workspace}'"), (["--on", "group"], "resource group '{group}'")]


@pytest.mark.parametrize(("place", "on"), SCOPES)
@pytest.mark.parametrize("level", ["CanNotDelete", "ReadOnly"])
def test_what_a_lock_stops(strict, compute, tmp_path, place, on, level):
    """Deletions under either, changes under ReadOnly, at each scope; the sentence names the lock, what it is on, and the cure."""
    names = {"compute": compute, "workspace": strict.workspace, "group": strict.group}
    lock, there = unique("lk"), strict.submit(compute, "true")
    flags = [word.format(**names) for word in place]
    strict.cli("lock", "create", "-n", lock, "--lock-type", level, *flags)
    cure = f"the {level} lock '{lock}' on {on.format(**names)} stops that. Whoever may can take it away with 'neap lock delete --name {lock}'."
    deleted, changed = f"It cannot be deleted: {cure}", f"It cannot be changed: {cure}"
    path = f"{strict.ws()}/computes/{compute}"
    group = f"/subscriptions/{strict.subscription}/resourceGroups/{strict.group}"
    try:
        refused(strict, ("DELETE", f"{path}?underlyingResourceAction=Delete"), ["compute", "delete", "-n", compute, "--yes"], "ScopeLocked", deleted, status=409)
        # What lies around it is not deleted either: that would delete it.
        refused(strict, ("DELETE", strict.ws()), ["workspace", "delete", "-n", strict.workspace, "--yes"], "ScopeLocked", deleted, status=409)
        by_rest(strict, ("DELETE", group), "ScopeLocked", deleted, status=409)
        if level == "ReadOnly":
            body = strict.get(path)
            body["properties"]["properties"]["scaleSettings"]["maxNodeCount"] = 1
            refused(strict, ("PUT", path, body), ["compute", "update", "-n", compute, "--max-instances", 1], "ScopeLocked", changed, status=409)
            refused(strict, ("POST", f"computes/{compute}/plan", body), ["plan", "compute", "update", compute, "--max-instances", 1], "ScopeLocked", changed, status=409)
            body["properties"]["properties"]["vmSize"] = "STANDARD_DS2_V2"
            refused(strict, ("PUT", f"computes/{compute}", body), ["compute", "update", "-n", compute, "--size", "STANDARD_DS2_V2", "--yes"], "ScopeLocked", changed, status=409)
            refused(strict, ("PUT", f"computes/{compute}/schedules/x", GOOD), ["compute", "schedule", "create", compute, "-n", "x", *FLAGS], "ScopeLocked", changed, status=409)
            refused(strict, ("POST", f"computes/{compute}/evict", {}), ["compute", "evict", compute], "ScopeLocked", changed, status=409)
        if level == "ReadOnly" and "--on" in flags:
            job = strict.get(f"{strict.ws()}/jobs/{there}")
            job["properties"]["tags"] = {"other": lock}
            refused(strict, ("PUT", f"{strict.ws()}/jobs/{job['name']}", job), ["job", "update", "-n", job["name"], "--set", "tags.q=1"], "ScopeLocked", changed, status=409)
            by_cli(strict, ["job", "archive", "-n", job["name"]], "(ScopeLocked)", changed)
            new = unique("ch")
            words = ["compute", "create", "-n", new, "--type", "AmlCompute", "--location", "eastus"]
            refused(strict, ("PUT", f"{strict.ws()}/computes/{new}", cluster_body()), words, "ScopeLocked", changed, status=409)
            resource = strict.get(strict.ws())
            refused(strict, ("PUT", strict.ws(), {**resource, "tags": {"a": "b"}}), ["workspace", "create", "-n", strict.workspace, "--location", "eastus", "--description", "other"], "ScopeLocked", changed, status=409)
            ask = ("PUT", f"{strict.ws()}/jobs/{unique('job')}", strict.job_body(compute, "true"))
            refused(strict, ask, ["job", "create", "-f", job_file(tmp_path, compute)], "ScopeLocked", changed, status=409)
        if level == "ReadOnly" and "group" in flags:
            other = unique("ws")
            refused(strict, ("PUT", strict.ws(workspace=other), {"location": "eastus", "properties": {}}), ["workspace", "create", "-n", other, "--location", "eastus"], "ScopeLocked", changed, status=409)
            by_rest(strict, ("PUT", group, {"location": "eastus", "tags": {"a": "b"}}), "ScopeLocked", changed, status=409)
    finally:
        strict.cli("lock", "delete", "-n", lock)
        strict.http("POST", f"{strict.ws()}/jobs/{there}/cancel")


# --- changes ----------------------------------------------------------------------------------------------------------------------


def test_going_back_to_what_never_was(strict, compute):
    by_cli(strict, ["compute", "rollback", "-n", compute, "--to", 99], f"{compute} has no revision 99", f"'neap compute history -n {compute}' lists those it has", exit=3)
    by_cli(strict, ["compute", "rollback", "-n", compute, "--to", "first"], "invalid value 'first'", exit=2)
    by_cli(strict, ["compute", "rollback", "-n", compute], "--to <REVISION>", exit=2)


def test_going_back_is_refused_as_any_change(strict):
    name = unique("ch")
    strict.make_cluster(name, 0, 3)
    strict.cli("compute", "update", "-n", name, "--max-instances", 1)
    strict.cli("quota", "set", "--nodes-per-cluster", "--limit", 2, "--location", "eastus")
    text = f"maxNodeCount is 3; subscription {strict.subscription} allows 2 nodes per cluster in eastus."
    by_cli(strict, ["compute", "rollback", "-n", name, "--to", 1, "--yes"], "(ClusterCoreQuotaReached)", text)
    by_rest(strict, ("PUT", f"{strict.ws()}/computes/{name}", cluster_body(high=3)), "ClusterCoreQuotaReached", text, status=409)
    strict.cli("quota", "set", "--nodes-per-cluster", "--limit", "none", "--location", "eastus")
    strict.drop_cluster(name)


def test_a_dry_run_refuses_what_would_be_refused(strict, compute):
    text = "minNodeCount is 5 and maxNodeCount is 2; the minimum cannot be above the maximum."
    body = strict.get(f"{strict.ws()}/computes/{compute}")
    body["properties"]["properties"]["scaleSettings"]["minNodeCount"] = 5
    ask = ("PUT", f"{strict.ws()}/computes/{compute}?neapDryRun=true", body)
    refused(strict, ask, ["compute", "update", "-n", compute, "--min-instances", 5, "--dry-run"], "InvalidScaleSettings", text)
    by_cli(strict, ["compute", "update", "-n", compute, "--size", "Quantum", "--dry-run"], "(InvalidVmSize)", "The VM size 'Quantum' is not known.")
    by_cli(strict, ["compute", "update", "-n", compute, "--set", "name=other"], "the name of a cluster cannot be changed", "create another cluster under the new name", exit=2)
    by_cli(strict, ["compute", "update", "-n", compute, "--remove", "colour"], "--remove colour: the cluster has no such property", exit=2)
    by_cli(strict, ["compute", "delete", "-n", compute], "Nobody is here to answer", "--yes", exit=2)


def test_a_change_reference_is_kept_whole_or_refused(strict):
    name = unique("ch")
    strict.make_cluster(name, 0, 3)
    strict.cli("compute", "update", "-n", name, "--max-instances", 2, "--change-reference", "Änderung № 7")
    assert strict.json("compute", "history", "-n", name)[0]["reference"] == "Änderung № 7"
    strict.drop_cluster(name)


def test_a_change_reference_that_no_header_can_carry(strict, compute):
    words = ["compute", "update", "-n", compute, "--max-instances", 1, "--change-reference", "one\ntwo"]
    by_cli(strict, words, "--change-reference", "one line", exit=2)


def test_a_change_reference_that_is_too_long(strict):
    name = unique("ch")
    strict.make_cluster(name, 0, 3)
    text = "The change reference has 1001 characters; 1000 is the limit."
    long = "x" * 1001
    by_rest(strict, ("PUT", f"{strict.ws()}/computes/{name}", cluster_body(high=2)), "BadArgument", text, headers={"x-neap-change-reference": long})
    by_cli(strict, ["compute", "update", "-n", name, "--max-instances", 2, "--change-reference", long], "(BadArgument)", text)
    strict.drop_cluster(name)


# --- the past -------------------------------------------------------------------------------------------------------------------------


def test_times_that_cannot_be_asked_about(strict, compute):
    arm, own = f"{strict.ws()}/computes/{compute}?neap-at=", f"computes/{compute}/explain?at="
    words = {arm: ["compute", "show", "-n", compute, "--at"], own: ["explain", "cluster", compute, "--at"], "cost?at=": ["cost", "--at"]}
    for path, asked in words.items():
        refused(strict, ("GET", f"{path}2999-01-01T00:00:00Z"), [*asked, "2999-01-01"], "BadArgument", "2999-01-01T00:00:00.000Z is in the future; it is ")
        refused(strict, ("GET", f"{path}2001-01-01T00:00:00Z"), [*asked, "2001-01-01"], "BadArgument", "The log begins at ", ", and 2001-01-01T00:00:00.000Z is before that.")
        by_rest(strict, ("GET", f"{path}then"), "BadArgument", "'then' is not a time such as 2026-11-01T00:00:00Z.")
        by_cli(strict, [*asked, "then"], "--at then: not a time", "write 2026-11-01, 2026-11-01T08:00:00Z, -7d or 12h", exit=2)


def test_the_past_is_read_and_not_changed(strict, compute):
    by_rest(strict, ("DELETE", f"{strict.ws()}/computes/{compute}?neap-at=2026-01-01T00:00:00Z"), "BadArgument", "The past can be read and not changed: 'neap-at' is for GET.")
    text = "This cannot be asked about the past. Clusters, nodes, jobs, schedules and cost can ('neap-at')."
    for path in (f"{strict.ws()}/environments", "/neap/v1/budgets", f"{strict.nws()}/computes/{compute}/diff", f"{strict.nws()}/computes/{compute}/health"):
        by_rest(strict, ("GET", f"{path}?neap-at=2026-01-01T00:00:00Z"), "NotSupported", text)
    by_cli(strict, ["compute", "delete", "-n", compute, "--at", "-1h", "--yes"], "unexpected argument '--at'", exit=2)


def test_what_was_not_there_then(strict):
    at = strict.get(f"{strict.nws()}/cost")["to"]
    name = unique("ch")
    strict.make_cluster(name, 0, 1)
    text = f"The Compute with name '{name}' was not found."
    refused(strict, ("GET", f"{strict.ws()}/computes/{name}?neap-at={at}"), ["compute", "show", "-n", name, "--at", at], "ResourceNotFound", text, status=404)
    strict.drop_cluster(name)


def test_differences_that_cannot_be_asked_for(strict, compute):
    path = f"computes/{compute}/diff"
    now = strict.get(f"{strict.nws()}/cost")["to"]
    begin = strict.get(f"{strict.ws()}/computes/{compute}")["properties"]["createdOn"]
    refused(strict, ("GET", f"{path}?from={now}&to={begin}"), ["diff", compute, "--from", now, "--to", begin], "BadArgument", "'from' is after 'to'.")
    refused(strict, ("GET", f"{path}?from=2001-01-01T00:00:00Z"), ["diff", compute, "--from", "2001-01-01"], "BadArgument", "The log begins at ", ", and 2001-01-01T00:00:00.000Z is before that.")
    refused(strict, ("GET", f"{path}?from={now}&to=2999-01-01T00:00:00Z"), ["diff", compute, "--from", now, "--to", "2999-01-01"], "BadArgument", "2999-01-01T00:00:00.000Z is in the future; it is ")
    refused(strict, ("GET", f"computes/nowhere/diff?from={now}"), ["diff", "nowhere", "--from", now], "ResourceNotFound", "The Compute with name 'nowhere' was not found.", status=404)
    early, late = "2001-01-01T00:00:00.000Z is before that.", "2999-01-01T00:00:00.000Z is in the future; it is "
    answer = strict.http("GET", f"{strict.nws()}/{path}?from=2001-01-01T00:00:00Z&to=2999-01-01T00:00:00Z")
    assert answer.status_code == 400 and early in answer.text and late in answer.text, answer.text
    by_cli(strict, ["diff", compute, "--from", "2001-01-01", "--to", "2999-01-01"], early, late, exit=1)
    by_rest(strict, ("GET", path), "BadArgument", "'from' is missing: a time such as 2026-11-01T00:00:00Z.")
    by_cli(strict, ["diff", compute], "--from <TIME>", exit=2)
    for key in ("from", "to"):
        query = f"from={now}&to=then" if key == "to" else "from=then"
        by_rest(strict, ("GET", f"{path}?{query}"), "BadArgument", "'then' is not a time such as 2026-11-01T00:00:00Z.")
        flags = ["--from", now, "--to", "then"] if key == "to" else ["--from", "then"]
        by_cli(strict, ["diff", compute, *flags], f"--{key} then: not a time", exit=2)
