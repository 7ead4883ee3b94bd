"""Prints what it was given, and writes a default output and a named one."""

import argparse
import json
import os
from pathlib import Path

args = argparse.ArgumentParser()
args.add_argument("--rate", type=float)
args.add_argument("--flag")
args.add_argument("--out", type=Path)
given = args.parse_args()

import pieces.steps  # a module of the uploaded folder

print(f"rate={given.rate} flag={given.flag} greeting={os.environ.get('GREETING')}")
print(f"steps={pieces.steps.COUNT}")
Path("outputs").mkdir(exist_ok=True)
Path("outputs/model.json").write_text(json.dumps({"rate": given.rate}))
given.out.mkdir(parents=True, exist_ok=True)
(given.out / "metrics.txt").write_text(f"accuracy {1 - given.rate}\n")
(given.out / "deep").mkdir(exist_ok=True)
(given.out / "deep" / "empty.bin").write_bytes(b"")
