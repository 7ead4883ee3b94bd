"""Clients that cannot live in one environment with the current SDK: each runs as a program of its own."""

import json
import subprocess
from pathlib import Path

import pytest

from neapserver import ROOT, unique

HERE = Path(__file__).parent
VENVS = ROOT / ".venv-test"


def run(server, *args, check=True, **more):
    env = {**server.environment(), **server.vars, **more}
    done = subprocess.run([str(a) for a in args], env=env, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL)
    if check:
        assert done.returncode == 0, f"{args}\nstdout: {done.stdout}\nstderr: {done.stderr}\n{server.tail()}"
    return done


def test_older_sdk(server):
    assert run(server, VENVS / "sdk-older/bin/python", "-W", "ignore", HERE / "clients/older_sdk.py", unique("old"), unique("oldjob")).stdout.rstrip().endswith("OK")


@pytest.mark.parametrize("venv", ["mgmt", "mgmt-older"])
def test_management_sdk(server, venv):
    assert "OK" in run(server, VENVS / venv / "bin/python", HERE / "clients/mgmt_sdk.py", unique("mg"), server.url).stdout


def test_npm_client(server):
    ca = server.vars["REQUESTS_CA_BUNDLE"]
    assert "OK" in run(server, "node", HERE / "npm/compute.mjs", unique("npm"), server.url, NODE_EXTRA_CA_CERTS=ca).stdout


@pytest.fixture(scope="module")
def az(server, tmp_path_factory):
    home = tmp_path_factory.mktemp("az")

    def call(*args, check=True):
        done = run(server, VENVS / "az/bin/az", *args, check=check, AZURE_CONFIG_DIR=str(home), AZURE_CORE_COLLECT_TELEMETRY="false", AZURE_CORE_ONLY_SHOW_ERRORS="true")
        return json.loads(done.stdout) if check and done.stdout.strip() else done

    call("cloud", "register", "-n", "Neap", "--endpoint-resource-manager", server.url + "/")
    call("cloud", "set", "-n", "Neap")
    accounts = call("login", "--identity")
    assert accounts[0]["id"] == server.subscription and accounts[0]["state"] == "Enabled"
    return call


@pytest.mark.parametrize("version, kind", [("2019-05-01", list), ("2022-09-01", dict)])
def test_cloud_metadata_is_a_list_in_the_old_version_and_one_cloud_in_the_new(server, version, kind):
    """The SDK takes either. az wants the list from ARM_CLOUD_METADATA_URL, and the one cloud in `cloud register`."""
    answer = server.session.get(f"{server.url}/metadata/endpoints?api-version={version}", verify=server.vars["REQUESTS_CA_BUNDLE"]).json()
    assert isinstance(answer, kind)
    cloud = answer[0] if kind is list else answer
    assert cloud["resourceManager"].rstrip("/") == server.url and cloud["name"] not in ("AzureCloud", "AzureChinaCloud", "AzureUSGovernment")


def test_az_account(az, server):
    assert az("account", "show")["id"] == server.subscription


def test_az_rest(az, server):
    name = unique("azr")
    url = f"{server.ws()}/computes/{name}?api-version=2023-04-01"
    body = {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_v2", "scaleSettings": {"maxNodeCount": 1}}}}
    assert az("rest", "--method", "put", "--url", url, "--body", json.dumps(body))["name"] == name
    assert az("rest", "--method", "get", "--url", url)["properties"]["properties"]["scaleSettings"]["maxNodeCount"] == 1
    assert name in [c["name"] for c in az("rest", "--method", "get", "--url", f"{server.ws()}/computes?api-version=2023-04-01")["value"]]
    wrong = az("rest", "--method", "get", "--url", f"{server.ws()}/computes/not-there?api-version=2023-04-01", check=False)
    assert wrong.returncode != 0 and "not-there" in wrong.stderr
    az("rest", "--method", "delete", "--url", url)


def test_az_resource(az, server):
    name = unique("azr")
    rid = f"{server.ws()}/computes/{name}"
    whole = {"location": "eastus", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_v2", "scaleSettings": {"maxNodeCount": 1}}}}
    made = az("resource", "create", "--id", rid, "--is-full-object", "--properties", json.dumps(whole), "--api-version", "2023-04-01")
    assert made["name"] == name and made["properties"]["provisioningState"] == "Succeeded"
    assert az("resource", "show", "--ids", rid)["name"] == name
    assert az("resource", "show", "--ids", server.ws())["name"] == server.workspace
    assert server.workspace in [r["name"].split("/")[-1] for r in az("resource", "list", "-g", server.group)]
    az("resource", "delete", "--ids", rid)
    assert server.http("GET", rid).status_code == 404


def test_az_groups(az, server):
    assert server.group in [g["name"] for g in az("group", "list")]
