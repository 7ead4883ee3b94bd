"""Random faults on real processes during a stream of jobs: kill -9 and SIGSTOP of server and agents, a broken network
between them, a full disk, leases that end. `make chaos` is the long form: NEAP_CHAOS_KILLS=1000.

After each round: every acknowledged job completed, accepted once, no two executions of it alive together, nothing
left running, the ledger clean.
"""

import errno
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from neapserver import free_port, remove, unique, wait_until
from proxy import DOWN, UP, FaultProxy
from world import SEED, ChaosServer, Client, Witness, assert_all_done, assert_ledger, end, persist, send

KILLS = int(os.environ.get("NEAP_CHAOS_KILLS", "25"))
ROUND = 50  # kills on one data folder
LEASE_S = 5
MARGIN_S = 2  # what the server adds to a lease before it lets go of a node


class Faults:
    """Each method is one fault, begun and ended. `kills` counts processes ended with -9."""

    def __init__(self, server, proxy, dice):
        self.server, self.proxy, self.dice = server, proxy, dice
        self.kills = 0
        self.done = {}

    def one(self):
        fault = self.dice.choices(
            [self.server_dies, self.server_dies_twice, self.agent_dies, self.server_stops, self.agent_stops, self.network],
            [40, 8, 30, 7, 8, 7],
        )[0]
        self.done[fault.__name__] = self.done.get(fault.__name__, 0) + 1
        fault()

    def server_dies(self):
        assert self.server.is_alive(), f"the server died unasked\n{self.server.tail()}"
        self.kills += self.server.kill_all_servers()
        if self.dice.random() < 0.3:
            time.sleep(self.dice.uniform(0, 1.0))  # it stays away for a while
        self.server.up()

    def server_dies_twice(self):
        self.kills += self.server.kill_all_servers()
        starting = self.server.begin_up()
        wait_until(lambda: self.server.server_processes() or starting.poll() is not None, "it begins to start", 10, 0.001)
        time.sleep(self.dice.uniform(0.0, 0.2))
        self.kills += self.server.kill_all_servers()
        starting.wait(20)
        self.server.kill_all_servers()
        self.server.up()

    def agent_dies(self):
        agents = self.server.agents()
        if agents:
            self.kills += send(self.dice.choice(agents)[0], signal.SIGKILL)

    def server_stops(self):
        self.stop([self.server.pid], self.dice.uniform(0.05, 2.5))

    def agent_stops(self):
        agents = self.server.agents()
        if agents:
            self.stop([self.dice.choice(agents)[0]], self.dice.choice([0.1, 0.6, 2.5]))

    def stop(self, pids, seconds):
        for pid in pids:
            send(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in pids:
            send(pid, signal.SIGCONT)

    def network(self):
        act = self.dice.choice([
            self.proxy.cut, self.proxy.refuse, lambda: self.proxy.delay(0.3),
            lambda: self.proxy.stall(UP), lambda: self.proxy.stall(DOWN), lambda: self.proxy.stall(UP, DOWN),
        ])
        act()
        time.sleep(self.dice.uniform(0.1, 2.0))
        self.proxy.flow()


def play_round(kills, seed, mark):
    dice = random.Random(seed)
    port, dial = free_port(), free_port()
    proxy = FaultProxy(dial, port)
    server = ChaosServer(config=f"lease_ttl_seconds: {LEASE_S}\nlocal: {{agent_dial: '127.0.0.1:{dial}'}}\n", port=port)
    witness = Witness()
    try:
        server.up()
        server.environment_id()
        cluster = unique("ch")
        server.make_cluster(cluster, 0, 3, "PT20S")
        client = Client(server, cluster, mark, witness, dice=random.Random(seed + 1))
        client.start()
        faults = Faults(server, proxy, dice)
        while faults.kills < kills:
            time.sleep(dice.uniform(0.0, 0.4))  # the moment of the fault, not something to wait for
            faults.one()
            assert client.error is None, client.error
        client.finish()
        attempts = assert_all_done(server, witness, client.acknowledged)
        assert proxy.connections > 0, "agents dialled the proxy"
        end(server, mark)
        assert_ledger(server, client.acknowledged)
        return faults, client, attempts, server.starts
    except BaseException:
        print(server.tail(80))
        raise
    finally:
        for pid, _ in server.processes():
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGKILL)
        proxy.close()
        witness.remove()
        remove(server.home)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_random_faults_during_a_stream_of_jobs(mark):
    print(f"\nseed {SEED} (NEAP_TEST_SEED={SEED} repeats the choices), {KILLS} kills")
    killed, jobs, resent, starts, total, number = 0, 0, 0, [], {}, 0
    while killed < KILLS:
        faults, client, attempts, took = play_round(min(ROUND, KILLS - killed), SEED + number, mark)
        number += 1
        killed += faults.kills
        jobs += len(client.acknowledged)
        resent += client.resent
        starts += took
        for fault, times in faults.done.items():
            total[fault] = total.get(fault, 0) + times
        starts.sort()
        print(
            f"round {number}: {killed} kills, {jobs} jobs acknowledged and completed once, {resent} requests resent, attempts {attempts}, "
            f"serving again: median {starts[len(starts) // 2] * 1000:.0f} ms, worst {starts[-1] * 1000:.0f} ms; {total}", flush=True
        )
    assert jobs >= killed / 2, "the stream of jobs was thinner than the faults"


# --- leases -------------------------------------------------------------------------------------------------------------


def one_long_job(server, mark, witness, high=2):
    """A job that would run for minutes; the one that follows it after a loss is short."""
    server.up()
    cluster = unique("ls")
    server.make_cluster(cluster, 0, high, "PT30S")
    job = server.submit(cluster, witness.command("long", 4000, again=5), name="long", environmentVariables={"NEAP_TEST_MARK": mark})
    wait_until(lambda: witness.executions(job), "it runs", 30)
    return cluster, job


def assert_moved_after_the_lease(server, witness, job, began):
    """The first execution ended by its own lease, and only then did another begin."""
    server.wait_job(job, "Completed", 90)
    runs = witness.assert_one_at_a_time(job, int(server.job(job)["properties"]["neap.attempt"]))
    assert len(runs) == 2, runs
    (_, ended), (again, _) = runs
    print(f"\nthe first execution ended {ended - began:.2f} s after the fault, the next began {again - ended:.2f} s later")
    # Ticks are 50 ms apart and the lease was renewed at most a heartbeat before the fault.
    assert ended - began < LEASE_S + 1.0, f"a stale execution went on for {ended - began:.2f} s"
    return runs


def test_an_agent_stopped_for_longer_than_its_lease(chaos_server, mark, witness):
    """SIGSTOP of the agent alone: its attempts must be ended by the supervisor's own timer, before others start."""
    server = chaos_server(config=f"lease_ttl_seconds: {LEASE_S}\n")
    _, job = one_long_job(server, mark, witness)
    pid = server.agents()[0][0]
    began = time.time()
    send(pid, signal.SIGSTOP)
    try:
        assert_moved_after_the_lease(server, witness, job, began)
    finally:
        send(pid, signal.SIGCONT)
    end(server, mark)
    assert_ledger(server, [job])


@pytest.mark.parametrize("directions", [(UP,), (DOWN,), (UP, DOWN)], ids=lambda d: "+".join(d))
def test_a_half_open_network_for_longer_than_a_lease(directions, chaos_server, mark, witness):
    port, dial = free_port(), free_port()
    proxy = FaultProxy(dial, port)
    try:
        server = chaos_server(config=f"lease_ttl_seconds: {LEASE_S}\nlocal: {{agent_dial: '127.0.0.1:{dial}'}}\n", port=port)
        _, job = one_long_job(server, mark, witness)
        began = time.time()
        proxy.stall(*directions)
        wait_until(lambda: time.time() - witness.executions(job)[0][1] > 0.5, "the cut-off execution ended by itself", LEASE_S + 5)
        proxy.flow()
        assert_moved_after_the_lease(server, witness, job, began)
        end(server, mark)
        assert_ledger(server, [job])
    finally:
        proxy.close()


def test_a_short_break_of_the_network_costs_nothing(chaos_server, mark, witness):
    port, dial = free_port(), free_port()
    proxy = FaultProxy(dial, port)
    try:
        server = chaos_server(config=f"local: {{agent_dial: '127.0.0.1:{dial}'}}\n", port=port)
        server.up()
        cluster = unique("br")
        server.make_cluster(cluster, 0, 1, "PT30S")
        lines = 60
        job = server.submit(
            cluster, witness.command("broken", lines, then=f"for i in $(seq {lines}); do echo line $i; done"), name="broken", environmentVariables={"NEAP_TEST_MARK": mark}
        )
        wait_until(lambda: witness.executions(job), "it runs", 30)
        for act in (proxy.cut, lambda: proxy.stall(UP), proxy.flow, lambda: proxy.stall(DOWN), proxy.flow, proxy.cut):
            act()
            time.sleep(0.4)
        server.wait_job(job, "Completed", 60)
        assert server.job(job)["properties"]["neap.attempt"] == "1"
        assert [x for x in server.log(job).splitlines() if x.startswith("line ")] == [f"line {i}" for i in range(1, lines + 1)]
        end(server, mark)
        assert_ledger(server, [job])
    finally:
        proxy.close()


# --- the disk ------------------------------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_during_a_stream_of_jobs(mark, witness):
    """Full, killed while full, and emptied again: what was acknowledged is there, and what can run has run."""
    place = Path("/tmp") / unique("neap-full")
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "tmpfs", str(place)], capture_output=True, text=True)
    if mounted.returncode != 0:
        place.rmdir()
        pytest.skip(f"a small file system needs the right to mount: {mounted.stderr.strip()}")
    server = ChaosServer(home=place / "data")
    filler = place / "filler"
    try:
        server.up()
        server.environment_id()
        cluster = unique("fd")
        server.make_cluster(cluster, 0, 2, "PT30S")
        client = Client(server, cluster, mark, witness, prefix="fd", outputs=False)
        client.start()
        wait_until(lambda: len(client.acknowledged) >= 10, "jobs are under way", 30)
        for turn in range(2):
            fill(filler)
            time.sleep(1.0)  # how long it stays full
            if turn == 1:
                server.kill_all_servers()
                # It may refuse to start while nothing can be written; it must say why.
                started = server.up(check=False)
                assert started.returncode == 0 or any(w in started.stderr.lower() for w in ("space", "full", "disk")), started.stderr
            filler.unlink()
            if not server.is_alive():
                server.kill_all_servers()
                server.up()
            enough = len(client.acknowledged) + 10
            wait_until(lambda: len(client.acknowledged) >= enough or client.error, "jobs are acknowledged again", 60)
        client.finish()
        failed = []
        for name in client.acknowledged:
            if server.wait_job(name, {"Completed", "Failed"}, 120) == "Failed":
                failed.append(name)
                words = str(server.job(name)).lower()
                assert "space" in words or "disk" in words, f"{name} failed for another reason: {words}"
            witness.assert_one_at_a_time(name, int(server.job(name)["properties"]["neap.attempt"]))
        print(f"\n{len(client.acknowledged)} jobs acknowledged, {len(failed)} failed and say that the disk was full")
        end(server, mark)
        assert_ledger(server, client.acknowledged)
    finally:
        for pid, _ in server.processes(mark):
            send(pid, signal.SIGKILL)
        # Lazily: what is still on its way out must not hide what the test has to say.
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.rmdir()


def fill(path):
    """Writes until nothing more can be written; unbuffered, as a buffer left over would be written again at the close."""
    with path.open("ab", buffering=0) as out:
        try:
            while True:
                out.write(b"\0" * 65536)
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
