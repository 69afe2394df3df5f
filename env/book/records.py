"""The executed copies under results/: a lesson's outputs, and on which machine and day they were recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from env.notebooks import ROOT, Lesson, load
from env.run import provenance

FOLDER = ROOT / "results" / "h200"


@dataclass
class Record:
    """One executed copy of a lesson."""

    notebook: NotebookNode
    folder: Path
    machine: str
    date: str

    def outputs(self, cell: NotebookNode) -> list[NotebookNode] | None:
        """What this cell showed; None where the lesson's cell is no longer the one that ran."""
        same = [one for one in self.notebook.cells if one.get("id") == cell.id and one.cell_type == "code"]
        if not same or same[0].source.strip() != cell.source.strip():
            return None
        return same[0].outputs


def find(lesson: Lesson, folder: Path = FOLDER) -> Record | None:
    """The recorded run of a lesson; None where it was not recorded yet."""
    copy = folder / lesson.path.name
    if not copy.is_file():
        return None
    began = {entry["notebook"]: entry["run"]["began"] for entry in provenance.entries(folder)}
    machine = provenance.machine_of(folder / "README.md") or "a machine that its page does not name"
    return Record(load(copy).notebook, folder, machine, began.get(lesson.name, "")[:10])
