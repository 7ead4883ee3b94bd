"""Lists every input file it finds with its size and hash."""

import hashlib
import sys
from pathlib import Path

for argument in sys.argv[1:]:
    root = Path(argument)
    for path in sorted(p for p in [root, *root.rglob("*")] if p.is_file()):
        print(f"{path.name} {path.stat().st_size} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}")
