"""The executed copies under results/: which run a lesson's outputs come from, and on which machine that was."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from env.notebooks import ROOT, Lesson, load

# The first that has the lesson is taken.
RUNS = ("h200", "cpu")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass
class Record:
    """One executed copy of a lesson."""

    notebook: NotebookNode
    folder: Path
    machine: str
    date: str
    on_gpu: bool

    def outputs(self, cell: NotebookNode) -> list[NotebookNode] | None:
        """What this cell showed; None where the lesson's cell is no longer the one that ran."""
        same = [one for one in self.notebook.cells if one.get("id") == cell.id and one.cell_type == "code"]
        if not same or same[0].source.strip() != cell.source.strip():
            return None
        return same[0].outputs


def find(lesson: Lesson, results: Path = ROOT / "results") -> Record | None:
    """The recorded run of a lesson; None where it was not recorded yet."""
    for run in RUNS:
        copy = results / run / lesson.path.name
        if copy.is_file():
            page = results / run / "README.md"
            about = _about(page.read_text(encoding="utf-8") if page.is_file() else "", lesson.name)
            machine = about.get("machine", "a machine that its page does not name")
            date = about.get("date") or about.get("began (UTC)", "")[:10]
            return Record(load(copy).notebook, copy.parent, machine, date, run != "cpu")
    return None


def _about(page: str, name: str) -> dict[str, str]:
    """What a run's page says of one notebook: the row of its own, where the table has one, before what is said of all."""
    said: dict[str, str] = {}
    heads: list[str] = []
    for line in page.splitlines():
        cells = [part.strip() for part in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            heads = []
        elif not heads:
            heads = cells
        elif LINK.sub(r"\1", cells[0]) == name:
            said.update(zip(heads[1:], cells[1:], strict=False))
        elif len(cells) == 2 and heads[0] == "what":
            said.setdefault(cells[0], cells[1])
    return said
