"""Real stores for the data suite: Azurite, an S3-compatible server and a plain web server, each on loopback and gone afterwards.

They come from the registries (scripts/setup.sh test); a suite that needs one and finds none skips with a word.
"""

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import threading
from email.utils import formatdate
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests

from neapserver import ROOT, free_port, wait_until

AZURITE = Path(os.environ.get("NEAP_TEST_AZURITE", ROOT / "tests" / "azurite" / "node_modules" / ".bin" / "azurite-blob"))
MOTO = Path(os.environ.get("NEAP_TEST_MOTO", ROOT / ".venv-test" / "s3" / "bin" / "moto_server"))


class Program:
    """A server of another project: started, waited for, ended."""

    def __init__(self, args, env, folder, port):
        self.port = port
        self.log = Path(folder) / f"{Path(args[0]).name}.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen([str(a) for a in args], env={**os.environ, **env}, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=folder)
        try:
            wait_until(self.answers, f"{args[0]} answers on port {port}", 120, 0.2)
        except BaseException:
            self.stop()
            raise

    def answers(self):
        assert self.process.poll() is None, f"it ended: {self.log.read_text(errors='replace')[-2000:]}"
        try:
            requests.get(f"http://127.0.0.1:{self.port}/", timeout=10)
            return True
        except requests.RequestException:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


class Azurite(Program):
    """Azure's own emulator, with an account and a key of the test's."""

    def __init__(self, folder):
        self.account = "neaptest"
        self.key = base64.b64encode(os.urandom(48)).decode()
        port = free_port()
        folder = Path(folder) / "azurite"
        folder.mkdir()
        args = [AZURITE, "--blobHost", "127.0.0.1", "--blobPort", port, "--location", folder, "--silent", "--skipApiVersionCheck"]
        super().__init__(args, {"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"}, folder, port)

    def ask(self, method, path, query=None, data=b"", headers=None):
        """One request under the account's shared key."""
        query = query or {}
        send = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02", **(headers or {})}
        canonical = "".join(f"{k.lower()}:{v}\n" for k, v in sorted(send.items()) if k.lower().startswith("x-ms-"))
        # The account stands twice: once by the rule, once because it is the first part of an emulator's path.
        resource = f"/{self.account}/{self.account}{path}" + "".join(f"\n{k.lower()}:{v}" for k, v in sorted(query.items()))
        length = str(len(data)) if data else ""
        text = f"{method}\n\n\n{length}\n\n{send.get('Content-Type', '')}\n\n\n\n\n\n\n{canonical}{resource}"
        sign = base64.b64encode(hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()).decode()
        send["Authorization"] = f"SharedKey {self.account}:{sign}"
        answer = requests.request(method, f"http://127.0.0.1:{self.port}/{self.account}{path}", params=query, data=data, headers=send, timeout=30)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer

    def make(self, container):
        self.ask("PUT", f"/{container}", {"restype": "container"})

    def put(self, container, name, data):
        self.ask("PUT", f"/{container}/{name}", data=data, headers={"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"})

    def get(self, container, name):
        return self.ask("GET", f"/{container}/{name}").content


class S3(Program):
    """An S3-compatible server; it takes any key."""

    key_id, secret = "AKIATEST", "sixteen-times-a-secret"

    def __init__(self, folder):
        port = free_port()
        super().__init__([MOTO, "-H", "127.0.0.1", "-p", port], {}, folder, port)
        self.url = f"http://127.0.0.1:{port}"

    def make(self, bucket):
        assert requests.put(f"{self.url}/{bucket}", timeout=30).status_code == 200

    def put(self, bucket, key, data):
        assert requests.put(f"{self.url}/{bucket}/{key}", data=data, timeout=30).status_code == 200

    def get(self, bucket, key):
        # Whoever shows a key is let in; what the key is does not matter to it.
        shown = f"AWS4-HMAC-SHA256 Credential={self.key_id}/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
        answer = requests.get(f"{self.url}/{bucket}/{key}", headers={"Authorization": shown}, timeout=60)
        assert answer.status_code == 200, f"{key}: {answer.status_code}"
        return answer.content


class Web:
    """A folder behind plain HTTP. It remembers what it was asked for."""

    def __init__(self, folder):
        asked = self.asked = []

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *args):
                super().__init__(*args, directory=str(folder))

            def log_message(self, *args):
                asked.append(self.path)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def missing(program):
    if program == AZURITE and shutil.which("node") is None:
        return "node is not installed"
    return None if program.exists() else f"{program} is not there; scripts/setup.sh test installs it"
