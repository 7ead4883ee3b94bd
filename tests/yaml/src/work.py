"""The work of these files: says what it was given, and writes it to its output folder."""

import pathlib
import sys

print("given", *sys.argv[1:])
if len(sys.argv) > 1:
    out = pathlib.Path(sys.argv[-1])
    if out.is_dir():
        (out / "given.txt").write_text(" ".join(sys.argv[1:-1]))
