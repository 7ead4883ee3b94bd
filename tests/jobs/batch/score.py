"""A scoring script of a batch endpoint: says of each file what it holds, with the model's word. `bad` raises."""

import os
from pathlib import Path


def init():
    global word
    # The model lies in this folder under the name that its file or folder had when it was registered.
    root = Path(os.environ["AZUREML_MODEL_DIR"])
    found = next(path for path in (root / "model" / "word.txt", root / "word.txt") if path.exists())
    word = found.read_text().strip()
    print("model at", found.relative_to(root), flush=True)


def run(mini_batch):
    rows = []
    for path in map(Path, mini_batch):
        content = path.read_text().strip()
        if content == "bad":
            raise ValueError(f"{path.name} is bad")
        if os.environ.get("WRITE_FILES"):
            Path(os.environ["AZUREML_BI_OUTPUT_PATH"], path.name + ".out").write_text(f"{word} {content}\n")
        rows.append(f"{path.name} {os.environ.get('SAY', word)} {content}")
    return rows
