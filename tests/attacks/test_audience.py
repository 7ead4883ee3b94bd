"""The attacker runs another service, for which a user asked this server for a token, and shows that token here with its own name
in the Host header. The server took the header's word for the audience, and remembered the token as good.

Stopped by: the audience check (`faces/audience.rs`), which goes by the configuration and never by the request.
"""

import pytest
import requests
from aftermath import assert_replays, assert_serving
from neapserver import API, Server, new_home, remove

CONFIGURED = "https://neap.example.com:8443"


@pytest.fixture(scope="module")
def attacked(mark):
    server = Server(new_home("audience"))
    server.up()
    yield server
    server.cli("down", "--grace", "1", check=False, timeout=90)
    server.assert_nothing_left(mark)
    remove(server.home)


def token_for(server, resource):
    answer = requests.get(
        server.vars["IDENTITY_ENDPOINT"],
        params={"api-version": "2019-08-01", "resource": resource},
        headers={"X-IDENTITY-HEADER": server.vars["IDENTITY_HEADER"]},
        verify=server.vars["REQUESTS_CA_BUNDLE"],
        timeout=10,
    )
    answer.raise_for_status()
    return answer.json()["access_token"]


def ask(server, token, host=None, path=None):
    headers = {"Authorization": f"Bearer {token}"} | ({"Host": host} if host else {})
    url = f"{server.url}{path or server.ws() + '/computes'}?{API}"
    return requests.get(url, headers=headers, verify=server.vars["REQUESTS_CA_BUNDLE"], timeout=10)


@pytest.mark.parametrize("host", ["vault.example.com", "vault.example.com:443", "management.example.com"])
def test_the_host_header_says_nothing_about_the_audience(attacked, host):
    token = token_for(attacked, f"https://{host}")
    for path in (None, "/neap/v1/status", "/metrics", f"/mlflow/v1.0{attacked.ws()}/api/2.0/mlflow/experiments/search", "/neapst1/azureml/x"):
        for _ in range(2):
            refused = ask(attacked, token, host, path)
            assert refused.status_code in (401, 403), f"{path}: {refused.status_code} {refused.text}"
    assert "not for this server" in ask(attacked, token, host).text
    assert ask(attacked, token).status_code == 401, "nor is the token remembered"


def test_tokens_for_the_servers_own_names_open_it(attacked):
    for resource in (attacked.url, f"https://localhost:{attacked.port}", f"https://[::1]:{attacked.port}/", "https://management.azure.com/", "https://ml.azure.com"):
        assert ask(attacked, token_for(attacked, resource)).status_code == 200, resource
    assert ask(attacked, token_for(attacked, attacked.url), "vault.example.com").status_code == 200, "the host does not matter"
    assert ask(attacked, token_for(attacked, CONFIGURED)).status_code == 401
    assert "audiences" in ask(attacked, token_for(attacked, CONFIGURED), "neap.example.com:8443").text, "it says what to do"


def test_afterwards(attacked):
    assert_serving(attacked)
    assert_replays(attacked)


def test_names_can_be_configured(own_server):
    server = own_server("names", start=False)
    (server.home / "config.yaml").write_text(f"audiences: ['{CONFIGURED}']\n")
    server.up()
    assert ask(server, token_for(server, CONFIGURED)).status_code == 200
