#!/usr/bin/env python3
"""Draws the pictures of docs/plain-words.md and docs/DESIGN.md into docs/pictures/; with `--check` it only says which are out of date."""

from __future__ import annotations

import sys

from env.paths import ROOT, write_text
from env.pictures import (  # noqa: F401  (each module adds its pictures to the table)
    crate_graph,
    hardware,
    language,
    learning,
    matrix,
    memory,
    more,
    time,
    together,
)
from env.pictures.svg import PICTURES, render

FOLDER = ROOT / "docs" / "pictures"


def stale() -> list[str]:
    """The names of files that are missing, differ from what is drawn now, or are drawn by nobody."""
    there = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")}
    drawn = {name: render(name) for name in PICTURES}
    return sorted(name for name in there.keys() | drawn.keys() if there.get(name) != drawn.get(name))


def main() -> int:
    """0 when all pictures are as drawn, or were written."""
    names = stale()
    if "--check" in sys.argv[1:]:
        for name in names:
            print(f"docs/pictures/{name}.svg is not what env/pictures makes\nnext: python3 -m env.pictures")
        return 1 if names else 0
    for name in names:
        if name in PICTURES:
            write_text(FOLDER / f"{name}.svg", render(name))
        else:
            (FOLDER / f"{name}.svg").unlink()
    print(f"{len(PICTURES)} pictures, {len(names)} written or removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
