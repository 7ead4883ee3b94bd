"""A training loop that can be interrupted at any time: it saves its state in steps and when it is warned, and begins with it.

The state is written beside and renamed, so that there is always a whole one.
"""

import argparse
import json
import os
import random
import signal
import time
from pathlib import Path

FOLDER = Path(os.environ.get("AZUREML_CHECKPOINT_DIR", "."))
STATE = FOLDER / "state.json"


def save(state):
    beside = STATE.with_suffix(".new")
    beside.write_text(json.dumps(state))
    beside.rename(STATE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=5, help="save after this many steps")
    given = parser.parse_args()

    state = json.loads(STATE.read_text()) if STATE.exists() else {"step": 0, "loss": 1.0}
    print(f"begins at step {state['step']} of {given.steps}")
    warned = []
    signal.signal(signal.SIGTERM, lambda *_: warned.append(True))

    while state["step"] < given.steps:
        time.sleep(1)
        state = {"step": state["step"] + 1, "loss": state["loss"] * random.uniform(0.9, 0.99)}
        print(f"step {state['step']} loss {state['loss']:.4f}")
        if warned or state["step"] % given.every == 0:
            save(state)
        if warned:
            print("the node is taken back: saved")
            raise SystemExit(0)

    save(state)
    Path("outputs").mkdir(exist_ok=True)
    Path("outputs/model.json").write_text(json.dumps(state))


if __name__ == "__main__":
    main()
