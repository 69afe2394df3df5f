"""Leaves of each notebook the lines that load the crates: lessons.py NOTEBOOKS TARGET.

An image builds what these lines need. Made from the notebooks themselves, that layer would be built anew with each
changed word of a lesson.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path


def loading(notebook: dict) -> dict:
    """A notebook of one cell, or of none: the `:dep` lines of its first code cell."""
    cells = [cell for cell in notebook.get("cells", []) if cell.get("cell_type") == "code"]
    lines = "".join(cells[0].get("source", [])).splitlines() if cells else []
    kept = [line for line in lines if re.match(r"\s*:dep\s", line)]
    return {"cells": [{"cell_type": "code", "source": "\n".join(kept)}] if kept else []}


def main(notebooks: Path, target: Path) -> None:
    """Files of the same names; their times say nothing, or a layer would differ by them."""
    target.mkdir(parents=True)
    for file in sorted(notebooks.glob("*.ipynb")):
        made = target / file.name
        made.write_text(json.dumps(loading(json.loads(file.read_text(encoding="utf-8")))), encoding="utf-8")
        os.utime(made, (0, 0))
    os.utime(target, (0, 0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
