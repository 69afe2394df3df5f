#!/usr/bin/env python3
"""The course as static pages (`make book`): all lessons with the outputs of the recorded run, to be read without a server."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from env import in_venv
from env.console import ToolError, tool


def set_up() -> None:
    """Goes on inside the virtual environment; the Rust kernel is not needed, so that it is not built."""
    from env.setup import python

    if os.environ.get(in_venv.DONE) != "1":
        python.check_version()
        python.environment()
    in_venv.enter(set_up=False)


def main() -> int:
    """0 when all pages were written and every link leads somewhere; 3 when they were to be looked at without a browser."""
    made = argparse.ArgumentParser(prog="python3 -m env.book", description=__doc__)
    made.add_argument("--out", type=Path, help="the folder (default: dist/book)")
    made.add_argument("--look", action="store_true", help="then drive it in a browser, with screenshots")
    made.add_argument("--no-experiments", action="store_true", help="leave out the page that cargo has to compile")
    chosen = made.parse_args()
    set_up()
    from env.book import broken_links, experiments, look, site
    from env.ci.browser import SKIPPED, chromium
    from env.notebooks import ROOT, relative

    live = None
    try:
        live = None if chosen.no_experiments else experiments.made()
    except ToolError as error:
        # All else can be read without them.
        print(f"the page of experiments is left out: {error}", file=sys.stderr)
    started = time.monotonic()
    out = (chosen.out or site.OUT).resolve()
    built = site.build(out, live)
    broken = broken_links.broken(out)
    for line in broken:
        print(f"error: {line}", file=sys.stderr)
    machines = Counter(machine or "no recorded run yet" for machine in built.lessons.values())
    for machine, count in machines.items():
        print(f"{count:3} {'lesson' if count == 1 else 'lessons'}: {machine}")
    print(f"book: {built.pages} pages, {built.bytes / 1e6:.1f} MB, {time.monotonic() - started:.1f} s")
    if broken:
        return 1
    if not chosen.look:
        print(f"next: open {relative(out / 'index.html')} in a browser")
    elif browser := chromium():
        print(look.look(out, browser, ROOT / "results" / "run" / "screens"))
    else:
        print(
            "not looked at: no Chromium on PATH\nnext: install it (Debian: apt-get install chromium), or set CHROMIUM"
        )
        return SKIPPED
    return 0


if __name__ == "__main__":
    tool(main)
