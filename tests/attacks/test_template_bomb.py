"""The attacker may deploy. They send an ARM template of a few kilobytes whose expressions double with every line: 145 KB took 3 GB.

Stopped by: the allowance of the evaluator (crates/faces/src/arm/deployments/allowance.rs): steps and bytes are counted over the
whole template, and paid before they are made; depth and the sections of a template have limits of their own.
"""

import os
import time
from pathlib import Path

import pytest

from aftermath import assert_replays, assert_serving
from neapserver import Server, new_home, remove

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def server():
    home = new_home("bomb")
    running = Server(home)
    running.up()
    running.make_cluster("bystanders", 0, 1, "PT30S")
    yield running
    running.cli("down", "--grace", "1", check=False, timeout=90)
    remove(home)


def peak(server):
    """The most memory that the server has ever had, in bytes."""
    line = next(l for l in Path(f"/proc/{server.pid}/status").read_text().splitlines() if l.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def deploy(server, template, parameters=None, how="PUT", verb=""):
    path = f"/subscriptions/{server.subscription}/resourceGroups/{server.group}/providers/Microsoft.Resources/deployments/bomb{verb}"
    return server.http(how, path, {"properties": {"mode": "Incremental", "template": template, "parameters": parameters or {}}}, timeout=60)


def workspace(tag):
    return {"type": "Microsoft.MachineLearningServices/workspaces", "name": "made", "location": "eastus", "tags": {"t": tag}}


def doubling(lines):
    return {"v0": "x" * 10_000, **{f"v{n}": f"[concat(variables('v{n - 1}'), variables('v{n - 1}'))]" for n in range(1, lines)}}


def nested_concat():
    """One expression, and no variables: each level repeats what is inside of it."""
    text = "parameters('p')"
    for _ in range(6):
        text = f"concat({','.join([text] * 6)})"
    return f"[{text}]"


BOMBS = {
    "variables that double": ({"variables": doubling(60), "resources": [workspace("[variables('v14')]")]}, "tags.t"),
    "variables that never end": ({"variables": doubling(60), "resources": [workspace("[variables('v45')]")]}, "tags.t"),
    "nested concat": ({"parameters": {"p": {"type": "string", "defaultValue": "y" * 100_000}}, "resources": [workspace(nested_concat())]}, "tags.t"),
    "replace": ({"variables": {"a": "a" * 60_000}, "resources": [workspace("[replace(variables('a'), 'a', variables('a'))]")]}, "tags.t"),
    "format": ({"variables": {"f": "{0}" * 20_000, "a": "a" * 60_000}, "resources": [workspace("[format(variables('f'), variables('a'))]")]}, "tags.t"),
    "json": ({"variables": {"j": "1," * 1_000_000}, "resources": [workspace("[string(json(concat('[', variables('j'), '1]')))]")]}, "tags.t"),
    "a name": ({"variables": doubling(60), "resources": [{**workspace(""), "name": "[variables('v14')]"}]}, "name"),
    "a condition": ({"variables": doubling(60), "resources": [{**workspace(""), "condition": "[empty(variables('v14'))]"}]}, "condition"),
    "outputs": ({"variables": doubling(60), "resources": [workspace("")], "outputs": {"o": {"type": "string", "value": "[variables('v14')]"}}}, "outputs.o"),
    "parameters": ({"parameters": {"p": {"type": "string", "defaultValue": "[variables('v14')]"}}, "variables": doubling(60), "resources": [workspace("")]}, "parameters"),
    "too many resources": ({"resources": [workspace("")] * 20_000}, "resources"),
    "itself": ({"variables": {"a": "[variables('b')]", "b": "[variables('a')]"}, "resources": [workspace("[variables('a')]")]}, "tags.t"),
    "a deep expression": ({"resources": [workspace("[" + "not(" * 400_000 + "true()" + ")" * 400_000 + "]")]}, "tags.t"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_template_is_refused_before_it_grows(server, name):
    template, field = BOMBS[name]
    before, began = peak(server), time.monotonic()
    for how, verb in (("POST", "/validate"), ("PUT", "")):
        answer = deploy(server, template, how=how, verb=verb)
        assert answer.status_code == 400, f"{answer.status_code} {answer.text[:500]}"
        error = answer.json()["error"]
        assert error["code"] in ("BadArgument", "ValidationError", "UserError"), error
        assert field in answer.text and len(answer.text) < 20_000, answer.text[:2_000]
    # The request itself may have four megabytes; what it is worth in memory is some tens.
    assert peak(server) - before < 200 << 20, f"{peak(server) - before} bytes"
    assert time.monotonic() - began < 10


def test_an_ordinary_template_is_deployed(server):
    template = {
        "parameters": {"name": {"type": "string"}, "many": {"type": "object", "defaultValue": {}}},
        "variables": {"tag": "[concat('for ', parameters('name'))]", "long": "z" * 200_000},
        "resources": [{**workspace("[variables('tag')]"), "name": "[parameters('name')]"}],
        "outputs": {"o": {"type": "int", "value": "[length(variables('long'))]"}},
    }
    answer = deploy(server, template, {"name": {"value": "ordinary"}})
    assert answer.status_code in (200, 201), answer.text
    assert answer.json()["properties"]["outputs"]["o"]["value"] == 200_000


def test_afterwards(server):
    assert_serving(server, "bystanders")
    assert_replays(server)
