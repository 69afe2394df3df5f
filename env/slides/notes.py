"""A teacher's notes on a lesson, `notebooks/notes/NN_slug.md`: what to ask, which predictions are wrong and why, what to look at.

Below the title stands the objective; then sections named as the lesson's. A point that begins with "Before `cell`:" belongs to
the cell of that id, any other one to the section. `In class` is no section of a lesson: it says what goes wrong there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from env.lint import page_rules
from env.lint.notebook_rules import Finding
from env.notebooks import FOLDER, Lesson

PLACE = FOLDER / "notes"
IN_CLASS = "In class"
OBJECTIVE = "Objective: "
BEFORE = re.compile(r"^Before `([\w-]+)`: ")
# Lines that say something. Longer ones nobody reads while standing in front of a class.
LEAST, MOST = 8, 25


@dataclass
class Notes:
    """What is said of the whole lesson, of each section and before single cells, as pieces of Markdown."""

    objective: str = ""
    sections: dict[str, list[str]] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)


def file_of(lesson: Lesson) -> Path:
    """Where the notes on a lesson are."""
    return PLACE / f"{lesson.name}.md"


def read(text: str) -> Notes:
    """The notes of a page."""
    notes = Notes()
    points: list[str] | None = None
    for line in text.splitlines():
        heading = page_rules.HEADING.match(line)
        if heading and len(heading[1]) == 2:
            points = notes.sections.setdefault(heading[2], [])
        elif line.startswith(OBJECTIVE):
            notes.objective = line.removeprefix(OBJECTIVE).strip()
        elif line.startswith("- ") and points is not None:
            points.append(line.removeprefix("- ").strip())
        elif line.startswith("  ") and points:
            points[-1] += " " + line.strip()
    for section, points in notes.sections.items():
        for point in points:
            if of_cell := BEFORE.match(point):
                notes.before.setdefault(of_cell[1], []).append(point[of_cell.end() :])
        notes.sections[section] = [point for point in points if not BEFORE.match(point)]
    return notes


def of(lesson: Lesson) -> Notes:
    """The notes on a lesson; empty ones where there are none."""
    file = file_of(lesson)
    return read(file.read_text(encoding="utf-8")) if file.is_file() else Notes()


def check(lessons: list[Lesson]) -> Iterator[Finding]:
    """Every lesson has notes, short ones, and what they name is in the lesson."""
    for lesson in lessons:
        file = file_of(lesson)
        if not file.is_file():
            step = (
                "write what to ask, what is predicted wrongly and why, and what to look at; a neighbour shows the form"
            )
            yield Finding(file, "", "is missing: each lesson has a teacher's notes", step)
            continue
        text = file.read_text(encoding="utf-8")
        notes, length = read(text), sum(bool(line.strip()) for line in text.splitlines())
        if not LEAST <= length <= MOST:
            yield Finding(file, "", f"has {length} lines that say something", f"have {LEAST} to {MOST}")
        if not notes.objective:
            yield Finding(file, "", "has no objective", f"write a line `{OBJECTIVE}…` below the title")
        if IN_CLASS not in notes.sections:
            yield Finding(file, "", f"has no section `{IN_CLASS}`", "say there what goes wrong in front of a class")
        cells = (cell for cell in lesson.notebook.cells if cell.cell_type == "markdown")
        own = {one.text for cell in cells for one in page_rules.headings(cell.source) if one.level == 2}
        for name in set(notes.sections) - {IN_CLASS, *own}:
            yield Finding(file, f"section {name}", "is no section of the lesson", f"name one, or `{IN_CLASS}`")
        for name in set(notes.before) - {cell.get("id") for cell in lesson.notebook.cells}:
            yield Finding(file, f"before `{name}`", "names no cell of the lesson", "name a cell's id")
    names = {lesson.name for lesson in lessons}
    for file in sorted(PLACE.glob("*")):
        if file.suffix != ".md" or file.stem not in names:
            yield Finding(file, "", "is about no lesson", "name it after its notebook, or remove it")
