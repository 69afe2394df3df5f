#!/usr/bin/env python3
"""The lessons as pages of slides with the recorded outputs (`make slides`): speaker's notes behind S, no network, no kernel."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from env.book.__main__ import set_up
from env.console import tool


def main() -> int:
    """0 when all pages were written and every link leads somewhere."""
    made = argparse.ArgumentParser(prog="python3 -m env.slides", description=__doc__)
    made.add_argument("--out", type=Path, help="the folder (default: dist/slides)")
    chosen = made.parse_args()
    set_up()
    from env import notebooks
    from env.book import broken_links
    from env.slides import reveal

    started = time.monotonic()
    out = (chosen.out or reveal.OUT).resolve()
    lessons = [notebooks.load(path) for path in notebooks.find(os.environ.get("NB", ""))]
    size = reveal.build(lessons, out)
    print(f"slides: {len(lessons)} lessons, {size / 1e6:.1f} MB, {time.monotonic() - started:.1f} s")
    # Without all lessons some links lead to pages that are not there yet.
    broken = [] if os.environ.get("NB") else broken_links.broken(out)
    for line in broken:
        print(f"error: {line}", file=sys.stderr)
    first = lessons[0].name if len(lessons) == 1 else "index"
    print(f"next: open {notebooks.relative(out / f'{first}.html')} in a browser; S shows the notes, ? all keys")
    return 1 if broken else 0


if __name__ == "__main__":
    tool(main)
