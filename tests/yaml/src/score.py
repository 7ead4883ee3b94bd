"""init() and run(): what a parallel step and a batch deployment call."""

import pathlib


def init():
    print("ready")


def run(mini_batch):
    return [f"{pathlib.Path(path).name},{len(pathlib.Path(path).read_text())}" for path in mini_batch]
