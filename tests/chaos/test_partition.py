"""A true partition: packets between agents and server are dropped by nftables, in a network namespace that holds both."""

import ctypes
import os
import shutil
import subprocess
import time

import pytest

from neapserver import share, unique, wait_until
from test_chaos import LEASE_S, assert_moved_after_the_lease
from world import assert_ledger, end

CLONE_NEWNET = 0x40000000
# Agents dial the server by this address, everybody else by 127.0.0.1: so the rules tell them apart.
AGENTS_WAY = "127.0.0.9"


@pytest.fixture
def own_network():
    """This thread, and what it starts, in a network namespace of its own. Needs root and nft."""
    if os.geteuid() != 0 or not shutil.which("nft") or not shutil.which("ip"):
        pytest.skip("a partition needs root, and the programs nft and ip")
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as home:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"no network namespace can be made here: {os.strerror(ctypes.get_errno())}")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            tried = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True)
            if tried.returncode != 0:
                pytest.skip(f"nftables does not work here: {tried.stderr.strip()}")
            yield
        finally:
            assert libc.setns(home.fileno(), CLONE_NEWNET) == 0


def nft(text):
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)


def drop(*rules):
    lines = "\n".join(f"{rule} drop" for rule in rules)
    nft(f"table inet cut {{\nchain both {{\ntype filter hook output priority 0\n{lines}\n}}\n}}\n")


def heal():
    nft("delete table inet cut")


TO_SERVER, TO_AGENT = f"ip daddr {AGENTS_WAY}", f"ip saddr {AGENTS_WAY}"


@pytest.mark.parametrize("rules", [(TO_SERVER, TO_AGENT), (TO_SERVER,), (TO_AGENT,)], ids=["both-ways", "to-the-server", "to-the-agent"])
def test_a_partition_for_longer_than_a_lease(rules, own_network, chaos_server, mark, witness):
    server = chaos_server(config="")
    (server.home / "config.yaml").write_text(f"lease_ttl_seconds: {LEASE_S}\nlocal: {{agent_dial: '{AGENTS_WAY}:{server.port}'}}\n")
    share(server.home)
    server.listen = "0.0.0.0"
    server.up()
    cluster = unique("pt")
    server.make_cluster(cluster, 0, 2, "PT30S")
    job = server.submit(cluster, witness.command("long", 4000, again=5), name="long", environmentVariables={"NEAP_TEST_MARK": mark})
    wait_until(lambda: witness.executions(job), "it runs", 30)
    began = time.time()
    drop(*rules)
    wait_until(lambda: time.time() - witness.executions(job)[0][1] > 0.5, "the cut-off execution ended by itself", LEASE_S + 5)
    heal()
    assert_moved_after_the_lease(server, witness, job, began)
    end(server, mark)
    assert_ledger(server, [job])


def test_a_partition_shorter_than_the_lease_costs_nothing(own_network, chaos_server, mark, witness):
    server = chaos_server(config="")
    (server.home / "config.yaml").write_text(f"local: {{agent_dial: '{AGENTS_WAY}:{server.port}'}}\n")
    share(server.home)
    server.listen = "0.0.0.0"
    server.up()
    cluster = unique("pt")
    server.make_cluster(cluster, 0, 1, "PT30S")
    job = server.submit(cluster, witness.command("short", 120, then="echo survived"), name="short", environmentVariables={"NEAP_TEST_MARK": mark})
    server.wait_job(job, "Running")
    drop(TO_SERVER, TO_AGENT)
    node = server.nodes(cluster)[0]["node_id"]
    wait_until(lambda: time.time() - witness.executions(job)[0][0] > 3.5, "the partition has lasted longer than the silence that is noticed", 20)
    assert server.nodes(cluster)[0]["node_id"] == node, "a silent node keeps its job until its lease ends"
    heal()
    server.wait_job(job, "Completed", 60)
    assert server.job(job)["properties"]["neap.attempt"] == "1"
    assert "survived" in server.log(job).splitlines()
    end(server, mark)
    assert_ledger(server, [job])
