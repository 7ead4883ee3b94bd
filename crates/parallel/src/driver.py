"""One node's part of a parallel job: runs the entry script's run(mini_batch) in processes of their own.

Neap gives it to every worker as `python driver.py INPUT ARGUMENTS...`. It asks the server for mini-batches, and tells it
what came of each. It needs nothing but the standard library; tables need pandas. What decides (which mini-batch is next,
how often one is tried, when it is over) is the server's.
"""

import http.client
import importlib.util
import json
import logging
import os
import select
import ssl
import subprocess
import sys
import threading
import time
import traceback
from urllib.parse import urlsplit

ERROR_CHARACTERS = 4000
RESULT_BYTES_MAX = 16 * 1024 * 1024
# What one request carries, beyond its last result.
SENT_BYTES_MAX = 16 * 1024 * 1024
ASK_AGAIN_S_MAX = 2.0
log = logging.getLogger("neap.parallel")


def say_level(level):
    logging.basicConfig(level=level, stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s")


# --- the server --------------------------------------------------------------------------------------------------


class Server:
    """Calls that are made again until they are answered: the server may be away for a while."""

    def __init__(self):
        at = urlsplit(os.environ["AZUREML_SERVICE_ENDPOINT"])
        self.host, self.port = at.hostname, at.port
        self.token = os.environ["AZUREML_RUN_TOKEN"]
        self.trust = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
        self.line = None

    def ask(self, what, body):
        content = json.dumps(body).encode()
        headers = {"Authorization": "Bearer " + self.token, "Content-Type": "application/json"}
        pause = 0.05
        while True:
            try:
                if self.line is None:
                    self.line = http.client.HTTPSConnection(self.host, self.port, timeout=60, context=self.trust)
                self.line.request("POST", "/neap/v1/parallel/" + what, content, headers)
                answer = self.line.getresponse()
                text = answer.read()
                if answer.status == 200:
                    return json.loads(text)
                if answer.status != 429 and answer.status < 500:
                    raise SystemExit(f"[neap] The server refused '{what}': {text.decode(errors='replace')}")
                reason = f"status {answer.status}"
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = repr(error)
                if self.line is not None:
                    self.line.close()
                self.line = None
            log.debug("the server does not answer (%s); it is asked again", reason)
            time.sleep(pause)
            pause = min(pause * 2, ASK_AGAIN_S_MAX)


# --- a process that runs the entry script ------------------------------------------------------------------------


def process(requests_fd, answers_fd):
    """Runs in a process of its own: a mini-batch per line in, an answer per line out."""
    requests = os.fdopen(requests_fd, "r", encoding="utf-8")
    answers = os.fdopen(answers_fd, "w", encoding="utf-8")

    def tell(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    settings = json.loads(requests.readline())
    say_level(settings["level"])
    why = not_applied(settings["base"]) if settings["table"] else None
    if why:
        tell({"fatal": why})
        return 1
    try:
        module = load(settings)
        if callable(getattr(module, "init", None)):
            module.init()
    except BaseException:  # noqa: BLE001 - sys.exit() in a script is an error here as well
        tell({"fatal": "The entry script could not be loaded, or its init() failed:\n" + tail(traceback.format_exc())})
        return 1
    tell({"ready": True})
    for line in requests:
        batch = json.loads(line)
        try:
            paths = [os.path.join(settings["base"], name) for name in batch["files"]]
            given = table(paths, settings["base"]) if settings["table"] else paths
            items = len(given)
            tell({"done": {"items": items, **rows_of(module.run(given))}})
        except KeyboardInterrupt:
            return 1
        except BaseException:  # noqa: BLE001
            tell({"failed": tail(traceback.format_exc())})
    if callable(getattr(module, "shutdown", None)):
        module.shutdown()
    return 0


def load(settings):
    path = os.path.abspath(settings["entry"])
    if not os.path.isfile(path):
        raise FileNotFoundError(f"the entry script '{settings['entry']}' is not in the code")
    sys.argv = [path, *settings["arguments"]]
    for folder in (os.getcwd(), os.path.dirname(path)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, "run", None)):
        raise AttributeError(f"the entry script '{settings['entry']}' has no function run(mini_batch)")
    return module


def rows_of(result):
    """What run() returned, as lines of text: a row of a table with blanks between its values, anything else as str()."""
    if hasattr(result, "to_csv"):
        returned, text = len(result), result.to_csv(sep=" ", header=False, index=False)
    elif isinstance(result, (str, bytes, dict)) or not hasattr(result, "__iter__"):
        raise TypeError(f"run() returned {type(result).__name__}; it must return a list or a pandas DataFrame")
    else:
        rows = [str(row) for row in result]
        returned, text = len(rows), "".join(row + "\n" for row in rows)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > RESULT_BYTES_MAX:
        raise ValueError(f"run() returned {size} bytes of rows; {RESULT_BYTES_MAX} is the limit for one mini-batch")
    return {"returned": returned, "rows": text}


# The names that MLTable files have for encodings, where Python's are others.
ENCODINGS = {"utf8": "utf-8", "iso88591": "iso-8859-1", "latin1": "latin-1", "ascii": "ascii", "utf16": "utf-16", "utf32": "utf-32", "utf8bom": "utf-8-sig", "windows1252": "cp1252"}
# Of what an MLTable file may ask for: these are done. `table.rs` has the same list.
APPLIED = ("read_delimited", "read_parquet", "read_json_lines", "keep_columns", "drop_columns")


def definition(base):
    """The text of the MLTable file, if there is one."""
    try:
        with open(os.path.join(base, "MLTable"), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def transformations(text):
    """The name of each transformation of an MLTable file, and the lines that follow it. Of YAML this knows what such files are
    written in: nothing but the standard library is certain to be here."""
    found, inside, depth = [], False, None
    for line in text.splitlines():
        line = line.split(" #")[0].rstrip()
        words = line.lstrip()
        if not words or words.startswith("#"):
            continue
        indent = len(line) - len(words)
        if not inside:
            inside = line == "transformations:"
        elif indent == 0 and not words.startswith("-"):
            break
        elif words.startswith("-") and depth in (None, indent):
            depth = indent
            name, _, rest = words[1:].partition(":")
            found.append((name.strip(), [rest.strip()]))
        elif found:
            found[-1][1].append(words)
    return found


def settings_of(lines):
    """key: value pairs below a transformation."""
    pairs = (line.lstrip("- ").partition(":") for line in lines)
    return {key.strip(): value.strip().strip("'\"").replace("\\t", "\t") for key, _, value in pairs if value.strip()}


def columns_of(lines):
    """Names of columns: one, [one, two], or one to a line after a dash."""
    words = ",".join(line[1:] if line.startswith("-") else line.strip("[]") for line in lines).split(",")
    return [word.strip().strip("[]").strip().strip("'\"") for word in words if word.strip("[] ")]


def not_applied(base):
    """What is wrong with the MLTable file, in words."""
    unknown = [name for name, _ in transformations(definition(base)) if name not in APPLIED]
    if not unknown:
        return None
    return f"The MLTable file asks for {', '.join(unknown)}, which a parallel step does not apply: {', '.join(APPLIED)} are. Do the rest in run(mini_batch)."


def table(paths, base):
    """The rows of these files as one table, as its MLTable file wants them."""
    import pandas

    wanted = transformations(definition(base))
    how = {name: settings_of(lines) for name, lines in wanted}

    def read(path):
        if "read_parquet" in how or path.endswith(".parquet"):
            return pandas.read_parquet(path)
        if "read_json_lines" in how or path.endswith((".jsonl", ".ndjson")):
            return pandas.read_json(path, lines=True)
        said = how.get("read_delimited", {})
        separator = said.get("delimiter") or ("\t" if path.endswith(".tsv") else ",")
        header = None if said.get("header") == "no_header" else 0
        return pandas.read_csv(path, sep=separator, header=header, encoding=ENCODINGS.get(said.get("encoding", "utf8"), "utf-8"))

    rows = pandas.concat([read(path) for path in paths], ignore_index=True)
    for name, lines in wanted:
        if name == "keep_columns":
            rows = rows[columns_of(lines)]
        elif name == "drop_columns":
            rows = rows.drop(columns=columns_of(lines))
    return rows


def tail(text):
    return text if len(text) <= ERROR_CHARACTERS else "..." + text[-ERROR_CHARACTERS:]


# --- the node ----------------------------------------------------------------------------------------------------


class Fatal(Exception):
    """Nothing of the job can work: the entry script itself is wrong."""


class Process:
    """The parent's side of a process. One that hangs or dies is replaced."""

    def __init__(self, settings):
        self.settings = settings
        self.child = None

    def start(self):
        requests_in, requests_out = os.pipe()
        answers_in, answers_out = os.pipe()
        words = [sys.executable, os.path.abspath(__file__), "--process", str(requests_in), str(answers_out)]
        self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=(requests_in, answers_out))
        os.close(requests_in)
        os.close(answers_out)
        self.requests = os.fdopen(requests_out, "wb", buffering=0)
        self.answers, self.unread = answers_in, b""
        self.send(self.settings)
        answer = self.receive(None)
        if answer is None:
            raise Fatal(f"The process of the entry script ended in init(): {self.ended()}.")
        if "fatal" in answer:
            raise Fatal(answer["fatal"])

    def run(self, batch, timeout_s):
        if self.child is None:
            self.start()
        answer = None
        if self.send({"files": batch["files"]}):
            answer = self.receive(time.monotonic() + timeout_s)
        if answer is None:
            hung = self.child.poll() is None and self.hung
            how = f"run() took longer than {timeout_s} s and was ended" if hung else f"the process ended: {self.ended()}"
            self.stop()
            return {"failed": f"mini-batch {batch['number']}: {how}"}
        return answer

    def send(self, message):
        content = json.dumps(message).encode() + b"\n"
        try:
            while content:
                content = content[self.requests.write(content):]
        except OSError:
            return False
        return True

    def receive(self, deadline):
        """A line; nothing if it did not come in time or the process ended."""
        self.hung = False
        while b"\n" not in self.unread:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and (left <= 0 or not select.select([self.answers], [], [], left)[0]):
                self.hung = True
                return None
            piece = os.read(self.answers, 1 << 16)
            if not piece:
                return None
            self.unread += piece
        line, _, self.unread = self.unread.partition(b"\n")
        return json.loads(line)

    def ended(self):
        try:
            code = self.child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def stop(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.requests.close()
            os.close(self.answers)
        self.child = None

    def finish(self):
        """Lets it end by itself: shutdown() may have something to write."""
        if self.child is not None:
            self.requests.close()
            try:
                self.child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
            os.close(self.answers)
        self.child = None


class Node:
    """As many processes as the job asks for, each with a thread that hands it mini-batches."""

    def __init__(self, server, settings, count, timeout_s):
        self.server, self.timeout_s = server, timeout_s
        self.lock = threading.Condition()
        self.waiting, self.finished, self.holding = [], [], set()
        self.fatal, self.ending = None, False
        self.count = count
        self.threads = [threading.Thread(target=self.serve, args=(Process(settings),), daemon=True) for _ in range(count)]

    def serve(self, process):
        try:
            process.start()
            while True:
                with self.lock:
                    self.lock.wait_for(lambda: self.waiting or self.ending)
                    if not self.waiting:
                        break
                    batch = self.waiting.pop(0)
                begun = time.monotonic()
                answer = process.run(batch, self.timeout_s)
                took = time.monotonic() - begun
                if "failed" in answer:
                    log.warning("mini-batch %d failed after %.1f s: %s", batch["number"], took, answer["failed"])
                else:
                    log.info("mini-batch %d: %d in, %d out, %.2f s", batch["number"], answer["done"]["items"], answer["done"]["returned"], took)
                with self.lock:
                    self.finished.append({"number": batch["number"], **answer})
                    self.lock.notify_all()
            process.finish()
        except Fatal as error:
            self.give_up(str(error))
        except Exception:  # noqa: BLE001
            self.give_up("The node's driver failed:\n" + tail(traceback.format_exc()))

    def give_up(self, message):
        with self.lock:
            self.fatal = self.fatal or message
            self.lock.notify_all()

    def work(self):
        for thread in self.threads:
            thread.start()
        while True:
            finished, size = [], 0
            with self.lock:
                while self.finished and size < SENT_BYTES_MAX:
                    finished.append(self.finished.pop(0))
                    size += len(finished[-1].get("done", {}).get("rows", ""))
            self.holding -= {one["number"] for one in finished}
            body = {"finished": finished, "holding": sorted(self.holding), "want": self.count - len(self.holding)}
            answer = self.server.ask("next", body)
            if answer["over"]:
                break
            with self.lock:
                self.waiting += answer["given"]
                self.holding |= {batch["number"] for batch in answer["given"]}
                self.lock.notify_all()
                # All hands full: nothing to ask before one is done. Otherwise others' mini-batches may become free.
                patience = None if len(self.holding) == self.count else answer["wait_ms"] / 1000
                self.lock.wait_for(lambda: self.finished or self.fatal, timeout=patience)
                if self.fatal:
                    break
        with self.lock:
            fatal, self.ending, self.waiting = self.fatal, True, []
            self.lock.notify_all()
        if fatal:
            log.error(fatal)
            self.server.ask("fail", {"message": fatal})
            return 1
        for thread in self.threads:
            # At the end nothing runs, but for what too many failures have made useless.
            thread.join(timeout=5 if self.holding else 90)
        return 0


def listing(base, only, is_table):
    """Names below `base` and sizes of all files, or of the only one."""
    if only is not None:
        return [[only, os.path.getsize(os.path.join(base, only))]]
    found = []
    for folder, folders, names in os.walk(base):
        folders.sort()
        for name in names:
            path = os.path.join(folder, name)
            below = os.path.relpath(path, base)
            if os.path.isfile(path) and not (is_table and below == "MLTable"):
                found.append([below, os.path.getsize(path)])
    return sorted(found)


def processors():
    """Azure ML's default: one process for a GPU, else one per processor."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "") not in ("", "-1"):
        return 1
    return len(os.sched_getaffinity(0))


def serve(given):
    """What the scoring script of a batch endpoint finds in its environment. A model lies in AZUREML_MODEL_DIR under the name
    that its file or folder has where it was registered."""
    os.environ["AZUREML_BI_OUTPUT_PATH"] = os.environ.get("AZURE_ML_OUTPUT_" + given["output"], "")
    if given["model"] is None:
        return
    place = os.environ["AZURE_ML_INPUT_" + given["model"]]
    # A whole container has no name of its own.
    unnamed = os.path.basename(place) == "INPUT_" + given["model"]
    os.environ["AZUREML_MODEL_DIR"] = place if unnamed else os.path.dirname(place)


def main(arguments):
    if arguments[:1] == ["--process"]:
        return process(int(arguments[1]), int(arguments[2]))
    root, arguments = os.path.abspath(arguments[0]), arguments[1:]
    base, only = (os.path.dirname(root), os.path.basename(root)) if os.path.isfile(root) else (root, None)
    server = Server()
    opened = server.ask("open", {})
    say_level(opened["logging_level"])
    if opened.get("batch_endpoint"):
        serve(opened["batch_endpoint"])
    if not opened["begun"]:
        server.ask("list", {"files": listing(base, only, opened["table"])})
    settings = {
        "entry": opened["entry_script"],
        "arguments": arguments,
        "base": base,
        "table": opened["table"],
        "level": opened["logging_level"],
    }
    count = opened["concurrency"] or processors()
    log.info("%d process(es) of %s on this node", count, opened["entry_script"])
    return Node(server, settings, count, opened["timeout_s"]).work()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
