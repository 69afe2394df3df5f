#!/usr/bin/env python3
"""Takes the notebooks of one recorded run into another of the same kind of machine: `python3 -m env.run.join_runs FROM INTO`.

For runs on a machine that gives its files back by hand. Copies, plots, rows of metrics.csv and the page's lines of those
notebooks are replaced; all others stay. What failed is not taken.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from env import in_venv
from env.console import ToolError, tool


def join(source: Path, into: Path) -> list[str]:
    """The notebooks that were taken."""
    from env.run import current_text, metrics, provenance

    pages = [folder / "README.md" for folder in (source, into)]
    for page in pages:
        if not page.is_file():
            raise ToolError(
                f"{page.parent} holds no recorded run", "name a folder that `python3 -m env.run --out` wrote"
            )
    machines = [provenance.machine_of(page) for page in pages]
    if machines[0] != machines[1]:
        raise ToolError(f"{source} was run on {machines[0]}, {into} on {machines[1]}", "keep them apart")
    found = [one for one in provenance.entries(source) if not one["failures"] and not one["stopped"]]
    taken = [one["notebook"] for one in found]
    if not taken:
        raise ToolError(f"{source} has no notebook that ran to its end", "see its summary.json")
    for name in taken:
        shutil.copy2(source / f"{name}.ipynb", into)
        current_text.refresh(into / f"{name}.ipynb")
        for old in (into / "plots").glob(f"{name}-*"):
            old.unlink()
        for plot in (source / "plots").glob(f"{name}-*"):
            shutil.copy2(plot, into / "plots")
    metrics.replace(into / "metrics.csv", taken, metrics.read(source / "metrics.csv"))
    all_ = provenance.join(provenance.entries(into), found)
    text = pages[1].read_text(encoding="utf-8")
    provenance.save(into, all_, text[text.index("## The machine") :])
    provenance.save_summary(into, all_)
    return taken


def main() -> None:
    """Says what was taken."""
    made = argparse.ArgumentParser(prog="python3 -m env.run.join_runs", description=__doc__)
    made.add_argument("source", type=Path, metavar="FROM")
    made.add_argument("into", type=Path, metavar="INTO")
    chosen = made.parse_args()
    print("taken:", ", ".join(join(chosen.source, chosen.into)))


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    tool(main, failed=2)
