"""init() and run() of a parallel step: one row for each file."""

import pathlib


def init():
    print("ready")


def run(mini_batch):
    return [f"{pathlib.Path(path).name} {len(pathlib.Path(path).read_text())}" for path in mini_batch]
