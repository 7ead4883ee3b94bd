"""Locations with room and prices of their own, and what is said of data that lies elsewhere: through ARM and the command line."""

import pytest

from neapserver import unique, wait_until

CONFIG = """
locations:
  - {name: eastus, max_nodes: 1}
  - {name: westus, max_cores: 12, price_factor: 2, prices: {Standard_DS12_v2: {dedicated: 0.7}}, latency_ms: {eastus: 60}}
  - uksouth
charges: {transfer_gb: 0.02, storage_gb_month: 900, sample_seconds: 1}
"""


@pytest.fixture(scope="module")
def places(mark):
    from neapserver import Server, new_home, remove

    home = new_home("places")
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(CONFIG)
    server = Server(home)
    server.up()
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.assert_nothing_left(mark)
    remove(home)


def create(server, name, *more, location="eastus", check=True):
    size = [] if "--size" in more else ["--size", "Standard_DS3_v2"]
    return server.cli("compute", "create", "-n", name, "--type", "AmlCompute", "--location", location, "--max-instances", "2", *size, *more, check=check)


def test_a_location_that_is_full_is_a_stated_reason_with_where_there_is_room(places):
    server, one, other = places, unique("pl"), unique("pl")
    create(server, one)
    create(server, other)
    running = server.submit(one, "sleep 60")
    server.wait_job(running, "Running")
    waits = server.submit(other, "true")
    told = server.json("explain", "job", waits)
    verdict = told["verdict"]
    assert [c["kind"] for c in verdict["constraints"]] == ["location"], told
    sentence = verdict["constraints"][0]["sentence"]
    assert "eastus has 1 (locations in config.yaml), of which 1 are in use, over all clusters." in sentence, sentence
    assert sentence.endswith("westus has room for 3 such nodes."), sentence
    assert "westus has room for 3 such nodes." in told["reasons"], told
    # The ARM face says it as an error of the cluster.
    shown = server.get(f"{server.ws()}/computes/{other}")["properties"]["properties"]["errors"]
    assert shown[0]["error"]["code"] == "LocationCapacityReached" and "eastus has 1" in shown[0]["error"]["message"], shown
    # Room that comes free is used.
    server.cli("job", "cancel", "-n", running)
    server.cli("compute", "delete", "-n", one, "--yes")
    server.wait_job(waits, "Completed")
    server.cli("compute", "delete", "-n", other, "--yes")


def test_more_at_once_than_a_location_has_is_refused(places, tmp_path):
    server, name = places, unique("pl")
    create(server, name)
    words = "The job asks for 2 nodes at once and eastus has at most 1 of size STANDARD_DS3_V2 (locations in config.yaml); ask for fewer, or use a compute elsewhere. westus has room for 3 such nodes."
    server.environment_id()
    answer = server.http("PUT", f"{server.ws()}/jobs/{unique('job')}", server.job_body(name, "true", resources={"instanceCount": 2}))
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "ResourceTooLarge" and words in answer.text, answer.text
    spec = tmp_path / "job.yml"
    spec.write_text(f"command: 'true'\ncompute: azureml:{name}\nenvironment: azureml:plain:1\nresources: {{instance_count: 2}}\n")
    refused = server.cli("job", "create", "-f", spec, check=False)
    assert refused.returncode == 1 and words in refused.stderr, refused.stderr
    server.cli("compute", "delete", "-n", name, "--yes")


def test_prices_of_a_location(places):
    def price(size, location):
        (row,) = server.json("compute", "list-sizes", "--location", location, "--query", f"[?name=='{size}']")
        return row["estimated_vm_prices"]["values"][0]["retail_price"]

    server = places
    assert price("Standard_DS3_v2", "westus") == pytest.approx(2 * price("Standard_DS3_v2", "uksouth"))
    assert price("Standard_DS12_v2", "westus") == 0.7


def test_a_compute_elsewhere_is_allowed_and_warned_about(places):
    server, name = places, unique("pl")
    made = create(server, name, location="westus")
    words = "each request takes 60 ms longer, and a gigabyte across costs 0.02 USD"
    assert f"The compute is in westus and its workspace in eastus: its jobs read and write their data across; {words}." in made.stderr, made.stderr
    shown = server.get(f"{server.ws()}/computes/{name}")["properties"]["properties"]["neapWarnings"]
    assert any(words in warning for warning in shown), shown

    job = unique("job")
    server.environment_id()
    body = server.job_body(name, "true")
    answer = server.http("PUT", f"{server.ws()}/jobs/{job}", body)
    assert answer.status_code == 201, answer.text
    said = f"Compute '{name}' is in westus and the workspace's storage in eastus: {words}."
    assert said in answer.json()["properties"]["properties"]["neapWarnings"], answer.text
    server.wait_job(job, "Completed")
    assert said in server.log(job)
    # The command line says it on stderr.
    again = server.cli("job", "create", "--from", job, "-n", unique("job"), check=False)
    assert said in again.stderr, again.stderr
    server.cli("compute", "delete", "-n", name, "--yes")


def test_an_unknown_location_is_refused_by_both(places):
    server = places
    refused = create(server, unique("pl"), location="atlantis", check=False)
    assert refused.returncode == 1 and "The location 'atlantis' is not known here. Known are, for example: eastus, westus, uksouth." in refused.stderr, refused.stderr
    body = {"location": "atlantis", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "Standard_DS3_v2"}}}
    answer = server.http("PUT", f"{server.ws()}/computes/{unique('pl')}", body)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "LocationNotAvailable", answer.text
    assert "The location 'atlantis' is not known here." in answer.text


def test_a_wrong_location_stops_the_start_and_is_named(own_server):
    server = own_server("places", start=False)
    server.home.mkdir(exist_ok=True)
    (server.home / "config.yaml").write_text("locations: [{name: a, price_factor: -1, latency_ms: {b: 1}}, a]\ncharges: {transfer_gb: -1}\n")
    failed = server.up(check=False)
    for part in (
        "line 1: locations[1]: 'a' is there twice",
        "line 1: locations[0].price_factor: must be 0 to 1000",
        "line 1: locations[0].latency_ms.b: 'b' is no location here",
        "line 2: charges.transfer_gb: must be 0 to",
    ):
        assert failed.returncode != 0 and part in failed.stderr, failed.stderr


def test_storage_and_transfer_stand_beside_what_nodes_cost(places):
    server, far, near = places, unique("pl"), unique("pl")
    create(server, far, location="westus")
    create(server, near)
    megabytes = "mkdir -p outputs && head -c 3000000 /dev/urandom > outputs/data"
    there = server.submit(far, megabytes)
    server.wait_job(there, "Completed")
    server.cli("compute", "delete", "-n", far, "--yes")
    here = server.submit(near, megabytes)
    server.wait_job(here, "Completed")

    (row,) = [r for r in server.json("cost", "--by", "job") if r["name"] == there and r["kind"] == "transfer"]
    assert row["unit"] == "GB" and 0.003 <= row["quantity"] < 0.0031, row
    assert row["micro_usd"] == int(row["quantity"] * 20_000), row
    assert not [r for r in server.json("cost", "--by", "job") if r["name"] == here and r["kind"] == "transfer"], "nothing goes across"

    def storage():
        found = [r for r in server.json("cost", "--by", "cause") if r["kind"] == "storage"]
        return found[0] if found and found[0]["micro_usd"] > 0 else None

    row = wait_until(storage, "storage is on the bill", 30)
    assert row["name"] == "storage" and row["unit"] == "GB-month"
    assert row["usd"] == f"{row['micro_usd'] / 1e6:.6f}"
    # What nodes cost is what it was: the sums by cause and by node are the same, to the micro-dollar. They are asked for
    # one after the other, so no node may change in between.
    server.cli("compute", "delete", "-n", near, "--yes")
    at = server.get(f"{server.nws()}/cost?by=cause&to=2100-01-01T00:00:00Z")["to"]
    sums = [server.get(f"{server.nws()}/cost?by={by}&to={at}")["total_micro_usd"] for by in ("cause", "node", "user", "cluster")]
    assert len(set(sums)) == 1, sums
    whole = server.get(f"{server.nws()}/cost?by=cause&to={at}")
    assert whole["beside"]["total_micro_usd"] == sum(r["micro_usd"] for r in whole["beside"]["rows"])
    told = server.cli("cost", "--by", "cause", "-o", "csv")
    assert told.stdout.splitlines()[0] == "name,kind,usd,node_hours,quantity,unit" and "storage,storage," in told.stdout
    assert "beside them (storage, transfer)" in told.stderr, told.stderr
