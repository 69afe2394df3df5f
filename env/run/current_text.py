"""Gives the executed copies their lessons' text of today: `python3 -m env.run.current_text`.

A sentence is often written after the run, beside what it printed. So text is the lesson's, cell by cell and in its order; code
and outputs are the run's. A code cell that is new since then has no output.
"""

from __future__ import annotations

import copy
from pathlib import Path

from env import in_venv
from env.console import tool
from env.paths import ROOT, RUN

# An executed copy lies one folder deeper than its lesson.
DEEPER = ("](../", "](../../")


def current(copied, lesson):
    """The copy of a run with its lesson's text."""
    ran = {cell.get("id"): cell for cell in copied.cells if cell.cell_type == "code"}
    changed = copy.copy(copied)
    changed.cells = []
    for cell in lesson.cells:
        fresh = copy.deepcopy(cell)
        if cell.cell_type == "code":
            fresh = ran.get(cell.id, fresh)
        else:
            fresh.source = fresh.source.replace(*DEEPER)
        changed.cells.append(fresh)
    return changed


def is_record(folder: Path) -> bool:
    """Whether a folder is kept with the repository; `make run` writes beside these, into one that is not."""
    return folder.resolve().parent == ROOT / "results" and folder.resolve() != RUN


def text_of(path: Path) -> str:
    """What must be in the executed copy of a lesson that is there."""
    import nbformat

    from env.notebooks import FOLDER, load

    return nbformat.writes(current(nbformat.read(path, 4), load(FOLDER / path.name).notebook)) + "\n"


def refresh(path: Path) -> None:
    """Gives a copy that was just written its lesson's text, if that lesson is there."""
    from env.notebooks import FOLDER, write

    if (FOLDER / path.name).is_file():
        write(path, text_of(path))


def wanted() -> dict[Path, str]:
    """Each executed copy under results/ whose lesson is there, and what must be in it."""
    from env.notebooks import find

    lessons = {path.name for path in find()}
    copies = [path for path in sorted((ROOT / "results").glob("*/*.ipynb")) if is_record(path.parent)]
    return {path: text_of(path) for path in copies if path.name in lessons}


def stale(files: dict[Path, str]) -> list[Path]:
    """The copies that have other text than their lesson."""
    return [path for path, text in files.items() if path.read_text(encoding="utf-8") != text]


def main() -> None:
    """Writes what is stale."""
    from env.notebooks import relative, write

    files = wanted()
    old = stale(files)
    for path in old:
        write(path, files[path])
    print(f"written: {', '.join(map(relative, old))}" if old else "the executed copies have their lessons' text")


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    tool(main)
