"""Makes the small ledger that a release leaves behind: `NEAP_BIN=target/release/neap python tests/ledgers/make.py`.

Run it once per release, with that release's binary, and commit the folder it writes. It is never made again: what an
old release wrote must open for ever (`test_old_ledgers.py`).
"""

import json
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from neapserver import Server, wait_until  # noqa: E402

SIZE_BYTES_MAX = 200 * 1024


def story(server):
    """A bit of everything that leaves events."""
    server.environment_id()
    server.make_cluster("steady", 0, 2, "PT2S")
    server.make_cluster("brief", 0, 1, "PT1S")
    server.make_cluster("steady", 0, 3, "PT2S")
    server.submit("steady", "echo done", name="done")
    server.submit("steady", "exit 3", name="failed")
    server.submit("steady", "sleep 600", name="canceled")
    server.submit("steady", "sleep 600", name="timed-out", limits={"jobLimitsType": "Command", "timeout": "PT1S"})
    server.wait_job("canceled", "Running")
    server.http("POST", f"{server.ws()}/jobs/canceled/cancel")
    server.submit("brief", "echo moved; sleep 1", name="moved")
    server.wait_job("moved", "Running")
    server.kill()
    server.up()
    for name in ("done", "failed", "canceled", "timed-out", "moved"):
        server.wait_job(name)
    server.http("DELETE", f"{server.ws()}/jobs/failed")
    server.drop_cluster("brief")
    wait_until(lambda: not server.agents(), "every node is gone")


def main():
    home = Path(tempfile.mkdtemp(prefix="neap-ledger-"))
    server = Server(home)
    server.up()
    story(server)
    release = server.get("/neap/v1/status")["version"]
    expected = {
        "jobs": {job["name"]: job["properties"]["status"] for job in server.get(f"{server.ws()}/jobs")["value"]},
        "clusters": sorted(c["name"] for c in server.get(f"{server.ws()}/computes")["value"]),
    }
    server.down()
    into = HERE / release
    if into.exists():
        sys.exit(f"{into} is there already; a release's ledger is made once")
    (into / "ledger").mkdir(parents=True)
    with sqlite3.connect(home / "ledger" / "neap.db") as db:
        # One file, without what the write-ahead log still holds apart.
        db.execute("vacuum into ?", (str(into / "ledger" / "neap.db"),))
        expected["events"] = db.execute("select max(seq) from events").fetchone()[0]
    # Names, no keys: those are made anew where it is opened.
    (into / "identity").mkdir()
    shutil.copy(home / "identity" / "installation.json", into / "identity" / "installation.json")
    (into / "expected.json").write_text(json.dumps(expected, indent=2, sort_keys=True) + "\n")
    size = sum(f.stat().st_size for f in into.rglob("*") if f.is_file())
    assert size < SIZE_BYTES_MAX, f"{size} bytes"
    shutil.rmtree(home)
    print(f"{into}: {expected['events']} events, {size} bytes")


if __name__ == "__main__":
    main()
