"""Every named crash point of the real binary (`crates/crash/src/lib.rs`): die there, start again, and nothing is lost.

All scenarios run when the first test asks, a few at a time; each test then says what became of one of them.
"""

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from neapserver import ROOT, Late, remove, unique, wait_until
from world import ChaosServer, Client, Witness, assert_all_done, assert_ledger, end, persist, send

TABLE = (ROOT / "crates" / "crash" / "src" / "lib.rs").read_text().split("POINTS:", 1)[1].split("];", 1)[0]
POINTS = re.findall(r'\(\s*"(\w+)",\s*"([\w-]+)",', TABLE)
JOBS = 5
AT_ONCE = 3
# Commits happen from the first moment on: the first is the server's own start, a later one is among the jobs.
LATER = {
    "before-commit": 9,
    "in-transaction-before-commit": 10,
    "after-commit-before-publish": 11,
    "after-publish-before-answer": 12,
    "after-answer-before-effects": 13,
    "log-appended-before-acknowledgement": 3,
    "log-acknowledged-before-noted": 3,
    "outputs-stored-before-report": 2,
}
# Passed only after a node has died with a job on it.
AFTER_A_DEATH = {"dead-agent-fenced-before-report", "log-begun-before-append"}
# These are passed by schedules only: `tests/test_schedules.py` dies there.
POINTS = [(who, name) for who, name in POINTS if not name.startswith("schedule-")]
CASES = [(who, name, 1) for who, name in POINTS] + [(who, name, LATER[name]) for who, name in POINTS if name in LATER]


def scenario(case, mark):
    """Returns what happened in words; raises what must not."""
    who, name, nth = case
    server, witness = ChaosServer(), Witness()
    flag = Path(f"{server.home}.crashed")
    try:
        told = play(server, witness, who, f"{name}:{nth}", flag, mark)
    finally:
        for pid, _ in server.processes():
            send(pid, signal.SIGKILL)
        witness.remove()
        remove(server.home)
        flag.unlink(missing_ok=True)
    return told


def play(server, witness, who, order, flag, mark):
    env = {"NEAP_CRASH_AT": order, "NEAP_CRASH_MARK": str(flag)}
    if server.up(check=False, env=env).returncode != 0:
        assert flag.exists(), f"it did not start, and not because of the order\n{server.tail()}"
        server.up()
    back = None

    def mend():
        """What an operator's service manager does: starts the server again when it is gone."""
        nonlocal back
        if not server.is_alive():
            assert flag.exists(), f"the server died unasked\n{server.tail()}"
            began = time.monotonic()
            server.up()
            back = time.monotonic() - began
        return True

    cluster = unique("cp")
    persist(lambda: mend() and server.environment_id(), "an environment is registered")
    persist(lambda: mend() and server.make_cluster(cluster, 0, 2, "PT1S"), "a cluster is made")
    client = Client(server, cluster, mark, witness, prefix="cp", ahead=JOBS, limit=JOBS)
    client.start()
    others = []
    if order.split(":")[0] in AFTER_A_DEATH:
        victim = witness.command("victim", 200, then="echo said victim", again=0)
        persist(lambda: server.submit(cluster, victim, name="victim"), "a job that will lose its node is submitted")
        wait_until(lambda: witness.executions("victim"), "it runs", 30)
        for pid, _ in server.agents():
            send(pid, signal.SIGKILL)
        others.append("victim")
    wait_until(lambda: mend() and not client.is_alive(), "every job is acknowledged", 60)
    client.finish()

    def quiet():
        mend()
        try:
            return not server.agents() and all(server.status(job) == "Completed" for job in [*client.acknowledged, *others])
        except (AssertionError, OSError, ValueError, KeyError):
            return False

    try:
        wait_until(quiet, "all jobs completed and the cluster fell back to zero", 60, 0.1)
    except Late as late:
        seen = {job: server.job(job) for job in client.acknowledged if server.status(job) != "Completed"}
        raise AssertionError(f"{late}\n{seen}\nnodes: {server.nodes(cluster, gone=True)}\n{server.processes()}\n{server.tail()}") from None
    if not flag.exists():
        # What happens only on the way out: the last snapshot.
        server.cli("down", "--grace", "1", check=False, timeout=60)
        assert flag.exists(), f"{order} was never reached"
        wait_until(lambda: not server.is_alive(), "it died where it was told", 10)
        server.up()
    attempts = assert_all_done(server, witness, client.acknowledged, seconds=30)
    if who == "server" and order.split(":")[0] not in AFTER_A_DEATH:
        assert set(attempts) == {1}, f"a server that dies takes no attempt with it: {attempts}"
    assert_all_done(server, witness, others, outputs=False, seconds=30)
    end(server, mark)
    assert_ledger(server, [*client.acknowledged, *others])
    return f"attempts {attempts}" + (f", serving again after {back * 1000:.0f} ms" if back else "")


@pytest.fixture(scope="module")
def outcomes(mark):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {case: pool.submit(scenario, case, mark) for case in CASES}
        yield running


def test_the_table_was_read():
    assert len(POINTS) >= 20, POINTS
    assert {who for who, _ in POINTS} == {"server", "agent", "supervisor"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_nothing_is_lost_at(case, outcomes):
    try:
        print("\n" + outcomes[case].result(timeout=240))
    except Late as late:
        raise AssertionError(f"{case}: {late}") from None
