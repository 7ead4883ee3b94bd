"""The work of these files: says what it was given, and writes what it read to its last argument."""

import os
import pathlib
import sys

*given, out = sys.argv[1:]
paths = [pathlib.Path(word) for word in given if os.path.exists(word)]
files = sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
words = [word for word in given if not os.path.exists(word)]
print("given", *words, "and", len(files), "files in mode", os.environ.get("MODE"))
out = pathlib.Path(out)
(out / "read.txt" if out.is_dir() else out).write_text("".join(sorted(file.read_text() for file in files)))
