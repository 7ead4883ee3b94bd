"""Job schedules by the current azure-ai-ml SDK: put, read, switched on and off, forced, fired by time, and after a crash."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from azure.ai.ml.entities._load_functions import load_schedule
from azure.ai.ml.constants import TimeZone
from azure.ai.ml.entities import CronTrigger, JobSchedule, RecurrencePattern, RecurrenceTrigger
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from neapserver import ROOT, unique, wait_until

FILES = Path(__file__).parent / "schedules"
# The public example collection, where it lies beside the project.
EXAMPLES = ROOT.parent / "shared" / "reference" / "examples" / "schedules"
OURS = [FILES / name for name in ("hourly.yml", "named.yml", "weekly.yml")]
PUBLIC = sorted(EXAMPLES.glob("*-schedule.yml")) if EXAMPLES.exists() else []


@pytest.fixture(scope="module")
def cpu(server):
    """The cluster that the files name."""
    server.make_cluster("cpu-cluster", 0, 2, "PT1M")
    yield "cpu-cluster"
    server.drop_cluster("cpu-cluster")


@pytest.fixture
def schedules(ml):
    yield ml.schedules
    for schedule in ml.schedules.list(list_view_type="All"):
        ml.schedules.begin_delete(schedule.name).wait()


def neap(server, name):
    return server.get(f"{server.ws()}/schedules/{name}")["properties"]["neap"]


def body(server, cluster, command, trigger, **job):
    server.environment_id()
    definition = server.job_body(cluster, command, **job)["properties"]
    return {"properties": {"trigger": trigger, "action": {"actionType": "CreateJob", "jobDefinition": definition}}}


def soon():
    """A recurrence that fires in a few seconds, and then not for hours."""
    start = datetime.now(timezone.utc) + timedelta(seconds=5)
    return {"triggerType": "Recurrence", "frequency": "Hour", "interval": 5, "startTime": start.strftime("%Y-%m-%dT%H:%M:%S")}


def at_once():
    """Without a start it begins when it is put in place."""
    return {"triggerType": "Recurrence", "frequency": "Day", "interval": 1, "schedule": {"hours": [], "minutes": []}}


def name_at(schedule, trigger):
    return f"{schedule}-{trigger['startTime'].replace('-', '').replace(':', '')}Z"


def jobs_of(server, schedule):
    found = server.get(f"{server.ws()}/jobs?listViewType=All")["value"]
    return [job["name"] for job in found if job["properties"]["properties"].get("azureml.scheduleName") == schedule]


# --- by the SDK ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [*OURS, *PUBLIC], ids=lambda file: file.stem)
def test_a_file_is_taken_and_a_forced_trigger_completes(schedules, server, cpu, file):
    asked = load_schedule(file)
    made = schedules.begin_create_or_update(asked).result()
    assert (made.name, made.is_enabled, made.provisioning_state) == (asked.name, True, "Succeeded")
    assert (made.display_name, made.description, type(made.trigger)) == (asked.display_name, asked.description, type(asked.trigger))
    assert made.trigger.time_zone == asked.trigger.time_zone
    # The SDK sends a time as text, and gives back the text.
    assert str(made.trigger.start_time) == str(asked.trigger.start_time)

    got = schedules.get(asked.name)
    assert set(got.create_job.jobs) == set(asked.create_job.jobs)
    assert datetime.fromisoformat(neap(server, asked.name)["nextTime"]) > datetime.now(timezone.utc)

    fired = schedules.trigger(asked.name)
    assert fired.schedule_action_type == "CreateJob" and fired.job_name.startswith(f"{asked.name}-")
    server.wait_job(fired.job_name, "Completed", 120)
    assert server.job(fired.job_name)["properties"]["azureml.scheduleName"] == asked.name
    assert neap(server, asked.name)["lastJob"] == fired.job_name


def test_expressions_are_filled_in_at_each_firing(schedules, server, cpu):
    schedules.begin_create_or_update(load_schedule(FILES / "named.yml")).result()
    first = schedules.trigger("named", schedule_time="2026-01-31T22:00:00+00:00").job_name
    second = schedules.trigger("named", schedule_time="2026-02-01T22:00:00.250+00:00").job_name
    assert (first, second) == ("named-20260131T220000Z", "named-20260201T220000250Z")
    # The same time again is the same job.
    assert schedules.trigger("named", schedule_time="2026-01-31T22:00:00Z").job_name == first
    for job, time in ((first, "2026-01-31T22:00:00Z"), (second, "2026-02-01T22:00:00.25Z")):
        word = server.job(job)["inputs"]["word"]["value"]
        assert word == f"{job} at {time}"
        assert server.job(job)["tags"] == {"from": "a schedule"}
    assert [firing["job"] for firing in neap(server, "named")["firings"]] == [first, second]


def test_switched_off_and_on_listed_and_deleted(schedules, server, cpu):
    one, two = unique("one"), unique("two")
    for name in (one, two):
        file = load_schedule(FILES / "weekly.yml", params_override=[{"name": name}])
        schedules.begin_create_or_update(file).result()

    def names(**view):
        return {schedule.name for schedule in schedules.list(**view)}

    assert names() == {one, two}
    off = schedules.begin_disable(one).result()
    assert off.is_enabled is False and neap(server, one)["nextTime"] is None
    assert (names(), names(list_view_type="DisabledOnly"), names(list_view_type="All")) == ({two}, {one}, {one, two})
    on = schedules.begin_enable(one).result()
    assert on.is_enabled is True and neap(server, one)["nextTime"]

    schedules.begin_delete(two).wait()
    schedules.begin_delete(two).wait()
    assert names() == {one}
    with pytest.raises(ResourceNotFoundError):
        schedules.get(two)
    with pytest.raises(HttpResponseError):
        schedules.trigger(two)


def test_a_reference_to_a_job_is_that_job_with_other_inputs(schedules, ml, server, cpu):
    server.environment_id()
    job = server.submit(cpu, "echo ${{inputs.a}} and ${{inputs.b}}", inputs={key: {"jobInputType": "literal", "value": "1"} for key in "ab"})
    name = unique("again")
    schedule = JobSchedule(name=name, trigger=CronTrigger(expression="0 0 1 1 *"), create_job=f"{server.ws()}/jobs/{job}")
    schedules.begin_create_or_update(schedule).result()
    changed = {"jobType": "Pipeline", "sourceJobId": f"{server.ws()}/jobs/{job}", "inputs": {"b": {"jobInputType": "literal", "value": "2"}}}
    patch = {"properties": {"action": {"actionType": "CreateJob", "jobDefinition": changed}}}
    assert server.http("PATCH", f"{server.ws()}/schedules/{name}", patch).status_code == 200
    again = schedules.trigger(name).job_name
    server.wait_job(again, "Completed")
    assert "1 and 2" in server.log(again)


def test_everything_wrong_is_refused_at_once(schedules, server, cpu):
    name = unique("bad")
    trigger = {"triggerType": "Cron", "expression": "61 * * * 8", "timeZone": "Nowhere", "endTime": "later"}
    asked = body(server, "no-such-cluster", "echo ${{inputs.x}}", trigger)
    answer = server.http("PUT", f"{server.ws()}/schedules/{name}", asked)
    assert answer.status_code == 400, answer.text
    targets = [detail["target"] for detail in answer.json()["error"]["details"]]
    for target in ("trigger.expression", "trigger.timeZone", "trigger.endTime", "action.jobDefinition.command"):
        assert f"properties.{target}" in targets, targets
    assert "no-such-cluster" in answer.text
    assert server.http("GET", f"{server.ws()}/schedules/{name}").status_code == 404
    with pytest.raises(HttpResponseError) as refused:
        schedule = load_schedule(FILES / "hourly.yml", params_override=[{"name": name}])
        schedule.trigger = RecurrenceTrigger(frequency="day", interval=0, schedule=RecurrencePattern(hours=[25], minutes=[0]), time_zone=TimeZone.UTC)
        schedules.begin_create_or_update(schedule).result()
    assert "interval" in str(refused.value) and "25" in str(refused.value)


# --- by time ------------------------------------------------------------------------------------------------------


def test_it_fires_when_its_time_has_come(server, cpu, schedules):
    name = unique("soon")
    trigger = soon()
    server.put(f"{server.ws()}/schedules/{name}", body(server, cpu, "echo fired", trigger))
    job = wait_until(lambda: neap(server, name)["lastJob"], "the schedule has fired")
    assert job == name_at(name, trigger)
    server.wait_job(job, "Completed")
    after = neap(server, name)
    assert (after["dueTime"], len(after["firings"]), after["firings"][0]["forced"]) == (None, 1, False)
    expected = datetime.fromisoformat(trigger["startTime"]).replace(tzinfo=timezone.utc) + timedelta(hours=5)
    assert datetime.fromisoformat(after["nextTime"]) == expected


def test_a_recurrence_without_a_start_fires_at_once(server, cpu, schedules):
    name = unique("now")
    server.put(f"{server.ws()}/schedules/{name}", body(server, cpu, "echo fired", at_once()))
    job = wait_until(lambda: neap(server, name)["lastJob"], "the schedule has fired")
    # What changes nothing about the trigger does not fire it again.
    server.http("PATCH", f"{server.ws()}/schedules/{name}", {"properties": {"description": "kept"}})
    server.wait_job(job, "Completed")
    assert jobs_of(server, name) == [job]


def test_a_refused_job_is_told_and_the_schedule_goes_on(server, cpu, schedules):
    """Somebody else's job has the name that this firing's would have."""
    name, trigger = unique("refused"), soon()
    other = server.submit(cpu, "true", name=name_at(name, trigger))
    server.put(f"{server.ws()}/schedules/{name}", body(server, cpu, "echo", trigger))
    wait_until(lambda: neap(server, name)["firings"], "the schedule has fired")
    told = neap(server, name)
    assert (told["lastJob"], told["dueTime"]) == (None, None) and other in told["lastProblem"]
    assert datetime.fromisoformat(told["nextTime"]) > datetime.now(timezone.utc)


def test_without_its_cluster_it_is_refused_and_can_be_switched_off(server, schedules):
    gone, name = unique("gone"), unique("goes")
    server.make_cluster(gone)
    server.put(f"{server.ws()}/schedules/{name}", body(server, gone, "echo", {"triggerType": "Cron", "expression": "0 0 1 1 *"}))
    server.drop_cluster(gone)
    with pytest.raises(HttpResponseError) as refused:
        schedules.trigger(name)
    assert gone in str(refused.value) and gone in neap(server, name)["lastProblem"]
    off = server.http("PATCH", f"{server.ws()}/schedules/{name}", {"properties": {"isEnabled": False}})
    assert off.status_code == 200, off.text
    on = server.http("PATCH", f"{server.ws()}/schedules/{name}", {"properties": {"isEnabled": True}})
    assert on.status_code == 400 and gone in on.text


# --- through crashes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["schedule-due-before-submit", "schedule-submitted-before-record"])
def test_a_crash_between_due_and_recorded_makes_one_job(own_server, tmp_path, point):
    flag = tmp_path / "crashed"
    server = own_server(point, start=False)
    server.up(env={"NEAP_CRASH_AT": point, "NEAP_CRASH_MARK": str(flag)})
    server.make_cluster("cpu", 0, 1)
    name = unique("once")
    server.put(f"{server.ws()}/schedules/{name}", body(server, "cpu", "echo once", at_once()))
    wait_until(flag.exists, "the server has died at the point")
    wait_until(lambda: server.up(check=False).returncode == 0, "the server is back", 60, 0.5)
    job = wait_until(lambda: neap(server, name)["lastJob"], "the schedule has fired")
    server.wait_job(job, "Completed")
    told = neap(server, name)
    assert (told["dueTime"], len(told["firings"])) == (None, 1)
    assert jobs_of(server, name) == [job]
