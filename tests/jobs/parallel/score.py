"""An entry script whose files say what becomes of them: `bad` raises, `hang` sleeps, `die` ends the process, `flaky` raises once,
`short` has no row."""

import argparse
import os
import time
from pathlib import Path

seen = set()


def init():
    global arguments
    parser = argparse.ArgumentParser()
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--beside")
    arguments, _ = parser.parse_known_args()
    print("init in", os.getpid(), flush=True)


def run(mini_batch):
    rows = []
    for path in map(Path, mini_batch):
        content = path.read_text().strip()
        if content == "bad":
            raise ValueError(f"{path.name} is bad")
        if content == "hang":
            time.sleep(600)
        if content == "die":
            os._exit(7)
        if content == "flaky" and path.name not in seen:
            seen.add(path.name)
            raise RuntimeError(f"{path.name} fails once")
        if content == "short":
            continue
        if arguments.beside:
            Path(arguments.beside, path.name + ".out").write_text(content)
        time.sleep(arguments.pause)
        rows.append(f"{path.name} {content} {os.environ['AZUREML_RUN_ID']}")
    return rows
