"""Budgets: jobs wait for money and say so, nothing passes an amount, also when the server is killed, and somebody is told."""

from datetime import datetime, timezone

import pytest

from neapserver import remove, unique, wait_until, Server, new_home

SIZE = "STANDARD_D64S_V3"  # 3.072 dollars an hour
# With the configuration below a node starts with its price for 150 seconds.
LEAST = "0.128001"


@pytest.fixture(scope="module")
def thrifty(mark):
    """A server with short leases and a program that is told of alerts."""
    home = new_home("budget")
    told = home / "told.txt"
    (home / "config.yaml").write_text(
        "lease_ttl_seconds: 10\nstop_grace_seconds: 1\n" f"alerts: {{command: ['/bin/sh', '-c', 'cat >> {told}'], resolve_seconds: 1}}\n"
    )
    server = Server(home)
    server.up()
    yield server
    try:
        server.down()
        server.assert_nothing_left(mark)
        verified = server.cli("verify", "--replay", check=False)
        assert verified.returncode == 0, f"{verified.stdout}{verified.stderr}"
    finally:
        remove(home)


@pytest.fixture
def cluster(thrifty):
    name = unique("bg")
    thrifty.make_cluster(name, 0, 1, "PT1S", size=SIZE)
    yield name
    for budget in thrifty.json("budget", "list"):
        thrifty.cli("budget", "delete", "-n", budget["name"])
    thrifty.drop_cluster(name)


def micro(usd):
    return round(float(usd) * 1_000_000)


def reasons(server, job):
    return " ".join(server.explain(job)["reasons"])


def test_a_job_waits_for_money_with_the_reason_and_runs_when_there_is_more(thrifty, cluster, mark):
    server, env = thrifty, {"environmentVariables": {"NEAP_TEST_MARK": mark}}
    made = server.json("budget", "create", "-n", "cap", "--amount", "0.128000", "--period", "day", "--compute", cluster, "--threshold", "1")
    assert (made["amount_usd"], made["spent_usd"], made["left_usd"], made["at_cap"]) == ("0.128000", "0.000000", "0.128000", "stop_new")
    assert made["on"] == f"compute '{cluster}'" and made["period_end"].endswith("T00:00:00.000Z")
    server.environment_id()
    job = unique("job")
    answer = server.http("PUT", f"{server.ws()}/jobs/{job}", server.job_body(cluster, "sleep 2", **env))
    assert answer.status_code == 201, answer.text
    warning = answer.json()["properties"]["properties"]["neapWarnings"]
    assert "Budget 'cap'" in warning and "it cannot start" in warning, warning
    why = reasons(server, job)
    for part in ("A node takes $0.128001 to be reserved for it", "which is more than the whole of budget 'cap' of $0.128 a day", "neap budget create --name cap --amount", "$0.00 is spent"):
        assert part in why, f"{part}: {why}"
    shown = server.cluster(cluster)
    assert [error["error"]["code"] for error in shown["errors"]] == ["BudgetReached"], shown["errors"]
    assert server.nodes(cluster) == []
    server.cli("budget", "create", "-n", "cap", "--amount", LEAST)
    server.wait_job(job, {"Completed"})
    wait_until(lambda: server.nodes(cluster) == [], "the node is gone", 60)
    budget = server.json("budget", "show", "-n", "cap")
    cost = server.json("cost", "--by", "cluster")
    assert micro(budget["spent_usd"]) == micro(next(row["usd"] for row in cost if row["name"] == cluster)), "what is spent is what the nodes cost"
    assert 0 < micro(budget["spent_usd"]) < micro(LEAST) and budget["reserved_usd"] == "0.000000"
    # Somebody is told.
    text = wait_until(lambda: (server.home / "told.txt").exists() and (server.home / "told.txt").read_text(), "the program is told")
    for part in ("Subject: [firing] NeapBudgetThreshold", "Budget 'cap' on compute", "budget: cap", "threshold: 1"):
        assert part in text, text
    assert "NeapBudgetThreshold" in (server.home / "logs" / "server.log").read_text()
    metrics = server.http("GET", "/metrics").text
    assert 'neap_budget_amount_dollars{budget="cap",period="day"} 0.128001' in metrics
    table = server.cli("budget", "list", "-o", "table").stdout
    assert all(word in table for word in ("Name", "Reserved", "Left", "PeriodEnd", "AtCap", "stop_new")), table


def test_a_tag_without_money_holds_up_nobody_else(thrifty, cluster, mark):
    server, env = thrifty, {"environmentVariables": {"NEAP_TEST_MARK": mark}}
    server.cli("budget", "create", "-n", "poor", "--amount", "0.01", "--tag", "team=poor")
    waits = server.submit(cluster, "true", tags={"team": "poor"}, **env)
    runs = server.submit(cluster, "true", tags={"team": "rich"}, **env)
    server.wait_job(runs, {"Completed"})
    assert server.status(waits) == "Queued" and "budget 'poor'" in reasons(server, waits)
    assert server.json("budget", "show", "-n", "poor")["spent_usd"] == "0.000000"
    server.cli("budget", "delete", "-n", "poor")
    server.wait_job(waits, {"Completed"})


def test_every_budget_in_the_way_is_named_and_the_money_is_as_it_stands(thrifty, cluster, mark):
    server, env = thrifty, {"environmentVariables": {"NEAP_TEST_MARK": mark}}
    server.cli("budget", "create", "-n", "tight", "--amount", "0.2", "--period", "total", "--compute", cluster)
    runs = server.submit(cluster, "sleep 600", **env)
    server.wait_job(runs, {"Running"})
    for name, on in (("tagged", ["--tag", "k=v"]), ("wide", ["--on", "workspace"])):
        server.cli("budget", "create", "-n", name, "--amount", "0.1", "--period", "total", *on)
    server.cli("compute", "update", "-n", cluster, "--max-instances", "2")
    waits = server.submit(cluster, "true", tags={"k": "v"}, **env)
    told = server.explain(waits)
    [only] = [constraint["sentence"] for constraint in told["verdict"]["constraints"] if constraint["kind"] == "budget"]
    assert all(f"budget '{name}' of" in only for name in ("tight", "tagged", "wide")), only

    def spent():
        sentence = next(part for part in server.explain(waits)["reasons"] if part.startswith("Budget 'tight'"))
        return sentence.split(" is spent")[0].split()[-1]

    first = spent()
    wait_until(lambda: spent() != first, "the money goes on while nothing happens", 10)
    for job in (runs, waits):
        server.http("POST", f"{server.ws()}/jobs/{job}/cancel")
        server.wait_job(job, {"Canceled"})


def test_time_that_was_spent_stays_under_the_tags_it_was_spent_under(thrifty, cluster, mark):
    server = thrifty
    job = server.submit(cluster, "sleep 600", tags={"proj": "first"}, environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, {"Running"})
    wait_until(lambda: {row["name"] for row in server.json("cost", "--by", "tag:proj")} >= {"first"}, "it costs something")
    until = server.json("cost", "--by", "job", "--query", "[0]") and datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")[:-4] + "Z"

    def upto():
        return {row["name"]: row["usd"] for row in server.json("cost", "--by", "tag:proj", "--to", until) if row["name"] in ("first", "second")}

    before = upto()
    server.cli("job", "update", "-n", job, "--set", "tags.proj=second")
    wait_until(lambda: "second" in {row["name"] for row in server.json("cost", "--by", "tag:proj")}, "the rest is under the new one")
    after = upto()
    assert set(after) == {"first"} and abs(float(after["first"]) - float(before["first"])) < 0.00001, (before, after)
    server.http("POST", f"{server.ws()}/jobs/{job}/cancel")
    server.wait_job(job, {"Canceled"})


def test_what_ran_before_the_budget_is_stopped_and_the_excess_is_shown(thrifty, cluster, mark):
    server = thrifty
    job = server.submit(cluster, "sleep 600", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, {"Running"})
    server.cli("budget", "create", "-n", "late", "--amount", "0.000001", "--period", "total", "--compute", cluster, "--at-cap", "checkpoint-and-drain")
    server.wait_job(job, {"Queued"})
    assert "budget 'late' of $0.000001 in total has nothing left for its node" in reasons(server, job)
    wait_until(lambda: server.nodes(cluster) == [], "the node is gone", 60)
    budget = server.json("budget", "show", "-n", "late")
    assert micro(budget["excess_usd"]) > 0 and budget["left_usd"] == "0.000000" and budget["at_cap"] == "checkpoint_and_drain"
    assert server.http("POST", f"{server.ws()}/jobs/{job}/cancel").status_code in (200, 202)
    server.wait_job(job, {"Canceled"})


def test_nothing_passes_the_amount_also_when_the_server_is_killed(thrifty, cluster, mark):
    server = thrifty
    server.cli("budget", "create", "-n", "hard", "--amount", LEAST, "--period", "total", "--compute", cluster)
    job = server.submit(cluster, "sleep 600", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, {"Running"})
    reserved = server.json("budget", "show", "-n", "hard")
    assert micro(reserved["spent_usd"]) + micro(reserved["reserved_usd"]) == micro(LEAST) - 1, "the price for 150 seconds; the last micro-unit is for rounding"
    server.kill()
    server.up()
    # Its lease cannot be renewed: it is stopped while there is time to be gone.
    wait_until(lambda: server.status(job) == "Queued", "the job is back in the queue", 150, every=0.5)
    assert "budget 'hard'" in reasons(server, job)
    wait_until(lambda: server.nodes(cluster) == [], "the node is gone", 60)
    cost = next(row["usd"] for row in server.json("cost", "--by", "cluster") if row["name"] == cluster)
    budget = server.json("budget", "show", "-n", "hard")
    assert micro(LEAST) / 3 < micro(cost) <= micro(LEAST), (cost, budget)
    assert budget["excess_usd"] == "0.000000"
    assert server.nodes(cluster) == [], "and no other node is asked for"
    assert server.http("POST", f"{server.ws()}/jobs/{job}/cancel").status_code in (200, 202)
    server.wait_job(job, {"Canceled"})


def test_everything_wrong_is_said_at_once_by_rest_and_by_the_command_line(thrifty, cluster):
    server = thrifty
    body = {"amount_usd": "ten", "period": "year", "at_cap": "ignore", "thresholds": [0], "scope": {"kind": "planet"}}
    answer = server.http("PUT", "/neap/v1/budgets/bad%20name", body)
    assert answer.status_code == 400
    for part in ("'ten' is no amount of dollars", "'period' is day, week, month or total, not 'year'", "'at_cap' is stop_new or checkpoint_and_drain, not 'ignore'", "threshold 0 is not a percentage", "not 'planet'", "budget name 'bad name' is not valid"):
        assert part in answer.text, f"{part}: {answer.text}"
    wrong = server.cli("budget", "create", "-n", "x", "--amount", "1", "--compute", "nowhere", check=False)
    assert wrong.returncode != 0 and "The compute 'nowhere' was not found" in wrong.stderr, wrong.stderr
    none = server.cli("budget", "create", "-n", "x", check=False)
    assert none.returncode != 0 and "needs an amount" in none.stderr and "needs a scope" in none.stderr, none.stderr
    missing = server.cli("budget", "show", "-n", "x", check=False)
    assert missing.returncode != 0 and "There is no budget 'x'" in missing.stderr, missing.stderr
    assert server.cli("budget", "create", "-n", "x", "--amount", "1", "--tag", "team", check=False).returncode == 2
    server.cli("budget", "create", "-n", "x", "--amount", "1", "--on", "workspace", "--period", "week")
    moved = server.cli("budget", "create", "-n", "x", "--on", "group", "--period", "day", check=False)
    assert moved.returncode != 0 and "that cannot be changed" in moved.stderr, moved.stderr
    # A job's own budget must be enough to start it.
    server.cli("budget", "create", "-n", "one", "--amount", "0.01", "--period", "total", "--job", "only-one")
    server.environment_id()
    refused = server.http("PUT", f"{server.ws()}/jobs/only-one", server.job_body(cluster, "true"))
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "BudgetTooSmall", refused.text
    assert "Budget 'one' on job 'only-one' is $0.01 in total" in refused.text and "takes $0.128001 at least" in refused.text
