"""Every refusal of budgets, cost and waste, with its text, through Neap's own REST (Azure has no words for them) and through the command line."""

import pytest

from neapserver import unique
from refusing import by_cli, by_rest, job_file, refused

BAD = "/neap/v1/budgets/bad"


def body(**more):
    return {"amount_usd": "1", "scope": {"kind": "user", "user": "me"}, **more}


def without(*keys):
    return {key: value for key, value in body().items() if key not in keys}


@pytest.mark.parametrize(
    ("asked", "flags", "text"),
    [
        (body(amount_usd="lots"), ["--amount", "lots", "--user", "me"], "'lots' is no amount of dollars such as 250 or 12.50."),
        (body(amount_usd="1.2345678"), ["--amount", "1.2345678", "--user", "me"], "'1.2345678' is no amount of dollars such as 250 or 12.50."),
        (body(amount_usd="0"), ["--amount", "0", "--user", "me"], "The amount is $0.00; it must be more than nothing and at most $1000000000.00."),
        (body(amount_usd="1000000001"), ["--amount", "1000000001", "--user", "me"], "The amount is $1000000001.00; it must be more than nothing and at most $1000000000.00."),
        (body(thresholds=[120]), ["--amount", "1", "--user", "me", "--threshold", "120"], "The threshold 120 is not a percentage from 1 to 100."),
        (body(thresholds=[0]), ["--amount", "1", "--user", "me", "--threshold", "0"], "The threshold 0 is not a percentage from 1 to 100."),
        (without("amount_usd"), ["--user", "me"], "A budget needs an amount."),
        (without("scope"), ["--amount", "1"], "A budget needs a scope: a resource group, workspace, cluster, user, tag or job."),
    ],
)
def test_a_budget_that_cannot_be(strict, asked, flags, text):
    refused(strict, ("PUT", BAD, asked), ["budget", "create", "-n", "bad", *flags], "BadArgument", text)
    assert strict.http("GET", BAD).status_code == 404


def test_too_many_thresholds(strict):
    many = list(range(1, 12))
    flags = [word for percent in many for word in ("--threshold", percent)]
    words = ["budget", "create", "-n", "bad", "--amount", "1", "--user", "me", *flags]
    refused(strict, ("PUT", BAD, body(thresholds=many)), words, "LimitReached", "There are 11 thresholds; 10 is the limit.", status=409)


def test_a_budget_on_what_is_not_there(strict):
    place = {"subscription": strict.subscription, "resource_group": strict.group, "workspace": strict.workspace}
    create = ["budget", "create", "-n", "bad", "--amount", "1"]
    text = f"The compute 'nowhere' was not found in workspace '{strict.workspace}'."
    refused(strict, ("PUT", BAD, body(scope={"kind": "cluster", **place, "compute": "nowhere"})), [*create, "--compute", "nowhere"], "ResourceNotFound", text, status=404)
    for scope, flags in [({"kind": "user", "user": " "}, ["--user", " "]), ({"kind": "tag", "tag": "", "value": "x"}, ["--tag", "=x"]), ({"kind": "job", **place, "job": " "}, ["--job", " "])]:
        text = f"The {scope['kind']} that the budget is to be on has no name."
        by_rest(strict, ("PUT", BAD, body(scope=scope)), "BadArgument", text)
        assert strict.cli(*create, *flags, check=False).returncode in (1, 2)
    group = {"kind": "resource_group", "subscription": strict.subscription, "resource_group": "nowhere"}
    text = "The resource group 'nowhere' that the budget is to be on was not found."
    refused(strict, ("PUT", BAD, body(scope=group)), [*create, "--on", "group", "-g", "nowhere"], "ResourceNotFound", text, status=404)
    error = by_rest(strict, ("PUT", BAD, body(scope={"kind": "workspace", **place, "workspace": "nowhere"})), "ResourceNotFound", "nowhere", status=404)
    assert len(error["details"]) == 1, "that it needs a scope is not so"
    by_cli(strict, [*create, "--on", "workspace", "-w", "nowhere"], error["message"], exit=3)


def test_a_key_that_no_budget_has(strict):
    error = by_rest(strict, ("PUT", BAD, body(periode="day", scope={"kind": "user", "user": "ann", "team": "red"})), "BadArgument", "'periode' is not known; a budget has amount_usd, period, at_cap, thresholds, scope.", "'scope.team' is not known; the scope of a budget has kind,")
    assert len(error["details"]) == 2, error
    assert strict.http("GET", BAD).status_code == 404
    # What was answered can be sent back.
    made = strict.http("PUT", "/neap/v1/budgets/again", body(scope={"kind": "user", "user": "ann"}))
    assert made.status_code == 201 and strict.http("PUT", "/neap/v1/budgets/again", made.json()).status_code == 200, made.text
    strict.cli("budget", "delete", "-n", "again")
    assert strict.http("GET", "/neap/v1/budgets/again").status_code == 404


def test_words_that_only_rest_can_get_wrong(strict):
    """The command line knows the words, and says so before it asks."""
    by_rest(strict, ("PUT", BAD, body(period="year")), "BadArgument", "'period' is day, week, month or total, not 'year'.")
    by_cli(strict, ["budget", "create", "-n", "bad", "--amount", "1", "--user", "me", "--period", "year"], "invalid value 'year'", "[possible values: day, week, month, total]", exit=2)
    by_rest(strict, ("PUT", BAD, body(at_cap="ignore")), "BadArgument", "'at_cap' is stop_new or checkpoint_and_drain, not 'ignore'.")
    by_cli(strict, ["budget", "create", "-n", "bad", "--amount", "1", "--user", "me", "--at-cap", "ignore"], "invalid value 'ignore'", "stop-new, checkpoint-and-drain", exit=2)
    by_rest(strict, ("PUT", BAD, body(thresholds="half")), "BadArgument", "'thresholds' is a list of percentages such as [50, 80, 100].")
    by_cli(strict, ["budget", "create", "-n", "bad", "--amount", "1", "--user", "me", "--threshold", "half"], "invalid value 'half'", exit=2)
    by_rest(strict, ("PUT", BAD, body(scope={"kind": "planet"})), "BadArgument", "'scope.kind' is resource_group, workspace, cluster, user, tag or job, not 'planet'.")
    by_cli(strict, ["budget", "create", "-n", "bad", "--amount", "1", "--on", "planet"], "invalid value 'planet'", "[possible values: workspace, group]", exit=2)
    by_cli(strict, ["budget", "create", "-n", "bad", "--amount", "1", "--tag", "team"], "--tag team: not a tag", "write --tag NAME=VALUE", exit=2)
    by_cli(strict, ["budget", "create", "-n", "bad", "--amount", "1", "--user", "me", "--job", "it"], "cannot be used with", exit=2)
    by_rest(strict, ("POST", BAD, body()), "MethodNotAllowed", "POST is not possible on /neap/v1/budgets/bad; it takes GET, PUT and DELETE.", status=405)


def test_the_name_of_a_budget_and_what_stays(strict):
    text = "The budget name 'a b' is not valid: 1 to 90 letters, digits, '-', '_' and '.'."
    refused(strict, ("PUT", "/neap/v1/budgets/a%20b", body()), ["budget", "create", "-n", "a b", "--amount", "1", "--user", "me"], "InvalidResourceName", text)
    strict.cli("budget", "create", "-n", "fixed", "--amount", "1", "--period", "week", "--user", "me")
    on = "Budget 'fixed' is on user 'me', and that cannot be changed; delete it first, or choose another name."
    per = "Budget 'fixed' is per week, and that cannot be changed; delete it first, or choose another name."
    asked = body(scope={"kind": "user", "user": "you"}, period="day")
    refused(strict, ("PUT", "/neap/v1/budgets/fixed", asked), ["budget", "create", "-n", "fixed", "--user", "you", "--period", "day"], "PropertyChangeNotAllowed", on, per)
    strict.cli("budget", "delete", "-n", "fixed")
    gone = "There is no budget 'fixed'; 'neap budget list' shows those there are."
    refused(strict, ("GET", "/neap/v1/budgets/fixed"), ["budget", "show", "-n", "fixed"], "ResourceNotFound", gone, status=404)
    refused(strict, ("DELETE", "/neap/v1/budgets/fixed"), ["budget", "delete", "-n", "fixed"], "ResourceNotFound", gone, status=404)


def test_a_budget_too_small_for_its_job(strict, tmp_path):
    name, job = unique("rf"), unique("job")
    strict.make_cluster(name, 0, 1)
    strict.cli("budget", "create", "-n", "tiny", "--amount", "0.000001", "--period", "total", "--job", job)
    text = f"Budget 'tiny' on job '{job}' is $0.000001 in total and starting the job on compute '{name}' takes $"
    ask = ("PUT", f"{strict.ws()}/jobs/{job}", strict.job_body(name, "true"))
    refused(strict, ask, ["job", "create", "-f", job_file(tmp_path, name, name=job)], "BudgetTooSmall", text, " at least: it cannot start. Raise the budget with 'neap budget create --name tiny --amount'", status=409)
    by_rest(strict, ("POST", f"jobs/{job}/plan", strict.job_body(name, "true")), "BudgetTooSmall", text, status=409)
    strict.cli("budget", "delete", "-n", "tiny")
    strict.drop_cluster(name)


def test_cost_that_cannot_be_asked_for(strict):
    for query, flags, text in [
        ("by=moon", ["--by", "moon"], "Cost is summed by cluster, job, user, cause, node or tag:NAME, not by 'moon'."),
        ("by=tag:", ["--by", "tag:"], "Cost is summed by cluster, job, user, cause, node or tag:NAME, not by 'tag:'."),
    ]:
        refused(strict, ("GET", f"{strict.nws()}/cost?{query}"), ["cost", *flags], "BadArgument", text)
    for key in ("from", "to"):
        by_rest(strict, ("GET", f"cost?{key}=yesterday"), "BadArgument", "'yesterday' is not a time such as 2026-11-01T00:00:00Z.")
        by_cli(strict, ["cost", f"--{key}", "yesterday"], f"--{key} yesterday: not a time", "write 2026-11-01, 2026-11-01T08:00:00Z, -7d or 12h", exit=2)
    both = by_rest(strict, ("GET", "cost?from=then&to=now&by=moon"), "BadArgument", "'then' is not a time", "'now' is not a time", "not by 'moon'")
    assert len(both["details"]) == 3, both


def test_cost_of_a_time_that_runs_backwards(strict):
    text = "From 2026-02-01T00:00:00.000Z to 2026-01-01T00:00:00.000Z is no time at all."
    refused(strict, ("GET", "cost?from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z"), ["cost", "--from", "2026-02-01", "--to", "2026-01-01"], "BadArgument", text)


def test_waste_that_cannot_be_asked_for(strict):
    text = "From 2026-02-01T00:00:00.000Z to 2026-01-01T00:00:00.000Z is no time at all."
    refused(strict, ("GET", "waste?from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z"), ["waste", "--from", "2026-02-01", "--to", "2026-01-01"], "BadArgument", text)
    refused(strict, ("GET", "waste?cluster=nowhere"), ["waste", "nowhere"], "ResourceNotFound", "The Compute with name 'nowhere' was not found.", status=404)
    by_rest(strict, ("GET", "waste?from=then"), "BadArgument", "'then' is not a time such as 2026-11-01T00:00:00Z.")
    by_cli(strict, ["waste", "--from", "then"], "--from then: not a time", "write 2026-11-01, 2026-11-01T08:00:00Z, -7d or 12h", exit=2)


def test_as_many_budgets_as_may_be(strict):
    for n in range(1000):
        assert strict.http("PUT", f"/neap/v1/budgets/b{n}", body(scope={"kind": "user", "user": f"u{n}"})).status_code == 201
    text = "There are 1000 budgets, which is the limit."
    refused(strict, ("PUT", BAD, body()), ["budget", "create", "-n", "bad", "--amount", "1", "--user", "me"], "LimitReached", text, status=409)
    assert strict.http("PUT", "/neap/v1/budgets/b0", {"amount_usd": "2"}).status_code == 200, "one that is there can be changed"


def test_waste_of_too_many_clusters(strict):
    names = [unique("ws") for _ in range(51)]
    for name in names:
        strict.make_cluster(name, 0, 1)
    text = "There are 51 clusters and at most 50 are looked at at once; name one."
    refused(strict, ("GET", "waste"), ["waste"], "LimitReached", text, status=409)
    assert strict.cli("waste", names[0]).returncode == 0
