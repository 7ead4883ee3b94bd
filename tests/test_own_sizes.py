"""Sizes and prices of the installation's own, from its configuration."""

CONFIG = """
sizes:
  - {name: Rack-2x, family: rack, cores: 1, memory_gb: 2, price: 3600, locations: [westus]}
  - {name: Desk, cores: 2, memory_gb: 4, price: 7.2, low_priority_price: 1.5}
prices:
  Standard_DS3_v2: {dedicated: 0.5}
"""


def create(server, name, size, *more, location="westus"):
    return server.cli("compute", "create", "-n", name, "--type", "AmlCompute", "--size", size, "--location", location, "--max-instances", "1", *more, check=False)


def test_own_sizes_and_prices(own_server):
    server = own_server("sizes", start=False)
    server.home.mkdir(exist_ok=True)
    (server.home / "config.yaml").write_text(CONFIG)
    server.up()
    listed = {size["name"]: size for size in server.json("compute", "list-sizes", "--location", "westus")}
    assert listed["Rack-2x"]["v_cp_us"] == 1 and listed["Rack-2x"]["low_priority_capable"] is False
    assert listed["Standard_DS3_v2"]["estimated_vm_prices"]["values"][0]["retail_price"] == 0.5
    elsewhere = {size["name"] for size in server.json("compute", "list-sizes", "--location", "eastus")}
    assert "Desk" in elsewhere and "Rack-2x" not in elsewhere

    refused = create(server, "os-far", "Rack-2x", location="eastus")
    assert refused.returncode == 1 and "is not offered in eastus; it is in westus" in refused.stderr, refused.stderr
    refused = create(server, "os-low", "Rack-2x", "--tier", "low_priority")
    assert refused.returncode == 1 and "has no low-priority tier" in refused.stderr, refused.stderr
    assert create(server, "os-low", "Desk", "--tier", "low_priority").returncode == 0

    assert create(server, "os-rack", "rack-2X").returncode == 0
    job = server.submit("os-rack", "sleep 1")
    server.wait_job(job, "Completed")
    (row,) = server.json("cost", "--by", "job", "--query", f"[?name=='{job}']")
    per_ms = row["micro_usd"] / row["node_ms"]
    assert abs(per_ms - 1000) < 1, "3600 USD an hour is a dollar a second"

    # Its family has a quota of its own.
    done = server.cli("quota", "set", "--family", "rack", "--location", "westus", "--limit", "1", check=False)
    assert done.returncode == 0, done.stderr
    refused = create(server, "os-more", "Rack-2x")
    assert refused.returncode == 1 and "Quota" in refused.stderr, refused.stderr


def test_a_wrong_size_stops_the_start_and_is_named(own_server):
    server = own_server("sizes", start=False)
    server.home.mkdir(exist_ok=True)
    (server.home / "config.yaml").write_text("sizes: [{name: 'a b', cores: 0, memory_gb: 1}]\nprices: {Nope: {dedicated: 1}}\n")
    failed = server.up(check=False)
    assert failed.returncode != 0 and "sizes[0].name: must be 1 to 64 letters" in failed.stderr, failed.stderr
    assert "prices.Nope: is not in the catalogue" in failed.stderr, failed.stderr
    assert "prices.Nope: is not in the catalogue" in server.cli("doctor").stdout
    (server.home / "config.yaml").write_text("local: {emulate_gpus: 3}\nenvironments: {engine: none}\n")
    found = server.cli("doctor").stdout
    assert "3 pretended in place of the machine's" in found and "switched off (environments.engine: none)" in found, found
