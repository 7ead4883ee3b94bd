"""The attacker names things: jobs, tags, descriptions, and writes logs. They put terminal sequences, direction overrides and newlines
into them, so that whoever looks (the operator, with `neap job list`, `neap job stream`, `tail server.log`) runs their sequence, or
reads a line that nobody wrote.

Stopped by: `core/src/visible.rs`, where texts are shown: tables, JSON, sentences, errors, followed logs on a terminal, and every
line of the server's log. A program that reads a log gets the bytes as they are.
"""

import os
import pty
import re
import select
import subprocess

import pytest

from aftermath import assert_replays, assert_serving
from neapserver import BINARY, Server, new_home, remove, unique

# Window title, clipboard, cursor, 8-bit CSI, direction override, isolate, backspaces, a forged line.
HOSTILE = "a\u001b]0;owned\u0007b\u001b]52;c;ZWNobw==\u0007c\u001b[2J\u009b31m\u202egpj.exe\u2066\u0008\u0008\nerror: forged\rover"
ACTIVE = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# What this CLI itself sends to a terminal.
OURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def server():
    home = new_home("escapes")
    running = Server(home)
    running.up()
    running.make_cluster("screens", 0, 1, "PT30S")
    yield running
    running.cli("down", "--grace", "1", check=False, timeout=90)
    remove(home)


@pytest.fixture(scope="module")
def job(server):
    """A job that has everything hostile that a job can have, and a log."""
    script = "printf 'x\\033]0;owned\\007y\\033[2Jz \\033[32mgreen\\033[0m \\342\\200\\256rtl\\n'; echo end; exit 3"
    name = server.submit(
        "screens", script, displayName=HOSTILE, description=HOSTILE, experimentName="black-box", tags={"note": HOSTILE, "k\u001b[2Jey": "v"}, properties={"p": HOSTILE}
    )
    server.wait_job(name, "Failed")
    return name


def on_terminal(server, *args):
    """What the CLI writes to a terminal."""
    leader, follower = pty.openpty()
    environment = {k: v for k, v in server.environment().items() if k != "NO_COLOR"}
    process = subprocess.Popen([str(BINARY), *args], env={**environment, "TERM": "xterm"}, stdin=follower, stdout=follower, stderr=follower, close_fds=True)
    os.close(follower)
    seen = b""
    while True:
        ready, _, _ = select.select([leader], [], [], 30)
        assert ready, f"neap {args} says nothing any more: {seen}"
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    process.wait(30)
    os.close(leader)
    # The terminal itself makes CR LF of a newline.
    return seen.decode(errors="replace").replace("\r\n", "\n")


def assert_harmless(text, spinner=False):
    found = ACTIVE.search(OURS.sub("", text))
    assert not found, f"{found!r} in {text!r}"
    assert not re.search(r"(?m)^error: forged", OURS.sub("", text)), text


@pytest.mark.parametrize("output", ["table", "json", "jsonc", "yaml", "yamlc", "tsv", "csv"])
def test_names_on_a_terminal(server, job, output):
    for args in (["job", "show", "-n", job], ["job", "list"], ["job", "show", "-n", job, "--query", "{a: display_name, b: tags}"]):
        shown = on_terminal(server, *args, "-o", output)
        assert shown
        assert_harmless(shown)


def test_sentences_on_a_terminal(server, job):
    for args in (["job", "explain", "-n", job], ["explain", job], ["job", "show", "-n", HOSTILE], ["job", "cancel", "-n", job], ["queue", "screens"], ["compute", "show", "-n", HOSTILE]):
        shown = on_terminal(server, *args)
        assert_harmless(shown)


def test_rows_of_a_table_are_rows(server, job):
    """Also where no terminal is: one row for each job."""
    table = server.cli("job", "list", "-o", "table").stdout
    assert_harmless(table)
    rows = server.cli("job", "list", "-o", "tsv", "--query", "[].{name: name, shown: display_name}").stdout
    assert len(rows.splitlines()) == len(server.json("job", "list")), rows


def test_json_has_the_same_values(server, job):
    shown = server.json("job", "show", "-n", job)
    assert shown["tags"]["note"] == HOSTILE and shown["display_name"] == HOSTILE
    assert "\u202e" not in server.cli("job", "show", "-n", job, "-o", "json").stdout


def test_a_followed_log(server, job):
    shown = on_terminal(server, "job", "stream", "-n", job)
    assert_harmless(shown)
    assert "green" in shown and "\\u001b]0;owned" in shown and "[32m" not in shown.replace("\x1b[32m", "!"), shown
    assert "\x1b[32mgreen" not in shown, "colours of a log are left out"
    # A pipe gets what the job wrote.
    piped = subprocess.run([str(BINARY), "job", "stream", "-n", job], env=server.environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=60).stdout
    assert b"x\x1b]0;owned\x07y\x1b[2Jz \x1b[32mgreen" in piped, piped


def test_the_servers_log_has_a_line_for_each_event(server, job):
    for path in ("/neap/v1/\u001b[2Jx%0aerror:%20forged", f"{server.ws()}/jobs/%1b%5b2J%0aforged"):
        server.http("GET", path)
    server.http("PUT", f"{server.ws()}/datastores/shown", {"properties": {"datastoreType": "S3", "bucket": "b", "endpoint": "http://127.0.0.1:9/\u202e", "credentials": {"credentialsType": "None"}}})
    log = (server.home / "logs" / "server.log").read_text(errors="replace")
    assert_harmless(log.replace("\t", " "))
    for line in log.splitlines():
        assert not line.startswith("error: forged"), line


def test_afterwards(server):
    assert_serving(server, "screens")
    assert_replays(server)
