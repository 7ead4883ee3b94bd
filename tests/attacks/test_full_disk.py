"""The attacker fills the disk of the data folder to the last byte (by a job in a container, or whatever else writes there), so that
nothing can be stopped any more: cancel, delete and `down` have to write to the log first, and `up` does, too.

What stops them: the log's reserve (crates/ledger/src/reserve.rs). It is freed when the disk is full, and only commands that stop, delete
or report may use it (crates/core/src/full_disk.rs); new work is refused.
"""

import pytest

import aftermath
from neapserver import unique, wait_until
from small_disk import fill, server_on, small_disk


@pytest.mark.timeout(180)
def test_on_a_full_disk_work_can_be_stopped_deleted_and_the_server_restarted(mark):
    with small_disk(96) as place, server_on(place, mark) as server:
        cluster, other = unique("fd"), unique("fd")
        server.environment_id()
        server.make_cluster(cluster, 0, 2)
        server.make_cluster(other)
        marked = {"environmentVariables": {"NEAP_TEST_MARK": mark}}
        running = [server.submit(cluster, "sleep 600", name=unique("runs"), **marked) for _ in range(2)]
        for name in running:
            server.wait_job(name, "Running")

        filler = place / "filler"
        fill(filler)
        refused = wait_until(lambda: refusal_of_a_submit(server, cluster, filler), "new work is refused on a full disk", 20, 0.01)
        canceled = server.http("POST", f"{server.ws()}/jobs/{running[0]}/cancel")
        assert canceled.status_code in (200, 202), canceled.text
        server.wait_job(running[0], "Canceled")
        assert "full" in refused and "stopping" in refused, refused
        assert "full" in (server.get("/neap/v1/status")["read_only"] or ""), "the status says why"
        fill(filler)
        deleted = server.http("DELETE", f"{server.ws()}/jobs/{running[0]}")
        assert deleted.status_code in (200, 202, 204), deleted.text
        server.drop_cluster(other)

        fill(filler)
        down = server.cli("down", "--grace", "1", check=False, timeout=90)
        assert down.returncode == 0, f"neap down on a full disk: {down.stdout}{down.stderr}\n{server.tail()}"

        fill(filler)
        up = server.up(check=False)
        assert up.returncode == 0, f"neap up on a full disk: {up.stdout}{up.stderr}"
        assert "disk is full" in up.stderr, up.stderr
        assert server.http("POST", f"{server.ws()}/jobs/{running[1]}/cancel").status_code in (200, 202)
        server.wait_job(running[1], "Canceled")

        filler.unlink()
        wait_until(lambda: refusal_of_a_submit(server, cluster) is None, "new work is taken when there is room", 20)
        aftermath.assert_serving(server, cluster)
        aftermath.assert_replays(server)


def refusal_of_a_submit(server, cluster, filler=None):
    """What the server answers to new work; None if it took it."""
    if filler:
        fill(filler)
    answer = server.http("PUT", f"{server.ws()}/jobs/{unique('new')}", server.job_body(cluster, "true"))
    return answer.json()["error"]["message"] if answer.status_code >= 400 else None
