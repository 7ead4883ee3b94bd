"""64 writers at once, on everything that has a cap: clusters beneath quotas, jobs beneath budgets, locks put and taken
away, while the server is killed. No answer may be lost, and replayed event by event the log breaks no promise: Q1
(quota), B1 (money), C1 (the bill), N2 (counts), and all the others. NEAP_WRITERS_S=600 for the long form.
"""

import os
import random
import signal
import threading
import time
from collections import Counter

import requests

from neapserver import API, remove, wait_until
from world import SEED, TROUBLE, ChaosServer, persist, send

WRITERS = 64
SECONDS = float(os.environ.get("NEAP_WRITERS_S", "12"))
CLUSTERS = [f"wr{i:02d}x" for i in range(12)]
KINDS = ["resource_group", "workspace", "user", "tag"]
FAMILY_CORES = 80  # of 4 a node: the clusters could hold 12 * 5 * 4
CONFIG = "local: {isolation: 'off', max_nodes: 6}\n"


class Writer(threading.Thread):
    """Does one random thing after another, and remembers what it was told."""

    def __init__(self, server, number, enough):
        super().__init__(daemon=True)
        self.server, self.number, self.enough = server, number, enough
        self.dice = random.Random(SEED * 100 + number)
        self.session = requests.Session()
        self.told, self.refusals, self.submitted, self.error = Counter(), {}, [], None

    def run(self):
        try:
            while not self.enough.is_set():
                self.one()
        except Exception as problem:  # told by the test, not lost in a thread
            self.error = problem

    def one(self):
        doings = [(self.put_cluster, 30), (self.drop_cluster, 6), (self.submit, 40), (self.cancel, 6), (self.quota, 6), (self.lock, 4), (self.budget, 6), (self.read, 10)]
        doing = self.dice.choices([what for what, _ in doings], [weight for _, weight in doings])[0]
        try:
            doing()
        except TROUBLE:
            self.told["broken"] += 1
            time.sleep(0.05)

    def ask(self, method, path, body=None):
        joint = "&" if "?" in path else "?"
        headers = {"Authorization": f"Bearer {self.server.token()}"}
        answer = self.session.request(method, f"{self.server.url}{path}{joint}{API}", json=body, headers=headers, verify=self.server.vars["REQUESTS_CA_BUNDLE"], timeout=20)
        kind = answer.status_code if answer.status_code != 500 else f"500 {answer.text[:300]}"
        self.told[kind] += 1
        if answer.status_code == 400:
            error = answer.json()["error"]
            self.refusals.setdefault(error["code"], error["message"])
        return answer

    def put_cluster(self):
        low = self.dice.choice([0, 0, 0, 1])
        scale = {"minNodeCount": low, "maxNodeCount": self.dice.randint(low, 5), "nodeIdleTimeBeforeScaleDown": "PT1S"}
        tier = {"vmPriority": "LowPriority"} if self.dice.random() < 0.2 else {}
        body = {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2", "scaleSettings": scale, **tier}}}
        self.ask("PUT", f"{self.server.ws()}/computes/{self.dice.choice(CLUSTERS)}", body)

    def drop_cluster(self):
        self.ask("DELETE", f"{self.server.ws()}/computes/{self.dice.choice(CLUSTERS)}?underlyingResourceAction=Delete")

    def submit(self):
        name = f"w{self.number:02d}-{len(self.submitted):05d}-{self.dice.randrange(1 << 30):x}"
        if self.ask("PUT", f"{self.server.ws()}/jobs/{name}", self.server.job_body(self.dice.choice(CLUSTERS), "true")).status_code == 201:
            self.submitted.append(name)

    def cancel(self):
        if self.submitted:
            self.ask("POST", f"{self.server.ws()}/jobs/{self.dice.choice(self.submitted)}/cancel")

    def quota(self):
        """The total goes up and down, also below what is held; the family's limit stays."""
        limit(self, "Total_Cluster_Dedicated_Regional_vCPUs", self.dice.choice([-1, 16, 40, 100]))

    def lock(self):
        path = f"{self.server.ws()}/computes/{self.dice.choice(CLUSTERS)}/providers/Microsoft.Authorization/locks/keep"
        if self.dice.random() < 0.4:
            self.ask("PUT", path, {"properties": {"level": self.dice.choice(["ReadOnly", "CanNotDelete"])}})
        else:
            self.ask("DELETE", path)

    def budget(self):
        kind = self.dice.choice(KINDS)
        name = f"b-{kind.replace('_', '-')}"
        if self.dice.random() < 0.3:
            self.ask("DELETE", f"/neap/v1/budgets/{name}")
        else:
            self.ask("PUT", f"/neap/v1/budgets/{name}", {"amount_usd": self.dice.choice(["0.02", "0.3", "5"]), "period": "total", "scope": self.scope(kind)})

    def scope(self, kind):
        place = {"subscription": self.server.subscription, "resource_group": self.server.group, "workspace": self.server.workspace}
        return {"kind": kind, "user": "admin", "tag": "team", "value": "red", **place}

    def read(self):
        self.ask("GET", f"{self.server.ws()}/computes")


def limit(writer, name, value):
    path = f"/subscriptions/{writer.server.subscription}/providers/Microsoft.MachineLearningServices/locations/eastus/updateQuotas"
    quota = f"/subscriptions/{writer.server.subscription}/quotas/{name}"
    return writer.ask("POST", path, {"value": [{"id": quota, "type": "", "limit": value, "unit": "Count"}]})


def test_64_writers_and_a_killed_server_pass_no_cap(mark):
    server = ChaosServer(config=CONFIG)
    enough = threading.Event()
    try:
        server.up()
        server.environment_id()
        first = Writer(server, 0, enough)
        answer = limit(first, "Standard_DSv2_Family_Cluster_Dedicated_vCPUs", FAMILY_CORES)
        assert answer.json()["value"][0]["status"] == "Success", answer.text
        writers = [Writer(server, number, enough) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        kills, until = 0, time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(min(3.0, SECONDS / 4))
            server.kill_all_servers()
            kills += 1
            server.up()
        enough.set()
        for writer in writers:
            writer.join(60)
            assert not writer.is_alive() and writer.error is None, writer.error
        told = sum((writer.told for writer in writers), Counter())
        surprises = {kind: count for kind, count in told.items() if kind not in (200, 201, 202, 204, 400, 401, 404, 409, 429, 503, "broken")}
        assert not surprises, surprises
        refusals = {code: text for writer in writers for code, text in writer.refusals.items()}
        print(refusals)
        assert told[201] > WRITERS and told[400] + told[409] > 0, f"caps were met: {told}"

        # Nothing that was acknowledged is lost, and what is held stays within the limit that never moved.
        names = [name for writer in writers for name in writer.submitted]
        for name in random.Random(SEED).sample(names, min(200, len(names))):
            assert server.http("GET", f"{server.ws()}/jobs/{name}").status_code == 200, f"{name} was acknowledged and is lost"
        rows = [row for row in server.json("quota", "list", "--location", "eastus") if row["limit"] == FAMILY_CORES]
        assert len(rows) == 1 and 0 < rows[0]["held"] <= FAMILY_CORES, rows
        release(server)
        server.down()
        verified = server.json("verify", "--replay")
        assert verified["clean"] and verified["replayed"], verified
        assert not server.panics(), server.panics()
        print(f"{len(names)} jobs, {sum(told.values())} answers, {kills} kills, {verified['events']} events: {dict(told)}")
    finally:
        enough.set()
        for pid, _ in server.processes():
            send(pid, signal.SIGKILL)
        remove(server.home)


def release(server):
    """Locks and budgets go, then the clusters, so that everything ends."""
    for name in CLUSTERS:
        persist(lambda: server.http("DELETE", f"{server.ws()}/computes/{name}/providers/Microsoft.Authorization/locks/keep"), "the lock goes")
        server.http("DELETE", f"{server.ws()}/computes/{name}?underlyingResourceAction=Delete")
    for kind in KINDS:
        server.http("DELETE", f"/neap/v1/budgets/b-{kind.replace('_', '-')}")
    wait_until(lambda: not server.get(f"{server.ws()}/computes")["value"], "all clusters are gone", 120)
