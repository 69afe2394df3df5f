"""`make assignment LESSONS=10,11`: the lessons' exercises as an nbgrader assignment, its source and what learners get."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path

from env import in_venv

if __name__ == "__main__":
    # Before nbformat is asked for: where `make` calls, only the standard library need be there.
    in_venv.enter("grading")

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

from env.console import ToolError, tool
from env.grading import course, exercises
from env.notebooks import Lesson, find, load, relative, tags, write

POINTS = 2.0
# What this project notes in a cell: `part` is `answer`, `check`, `look` or `given`.
NOTES = "gpulab_grading"
RULES = """**Before you begin.** Save this notebook in the folder `my-lessons` of the course, beside the folder `notebooks`: its first
cell loads the course's crates from there, in the kernel *Rust (gpulab)*.

- Write each answer into its own cell, helper functions too. All other cells are put back to this state before they are
  graded, and cells that you add are not run.
- The checks at the end are the ones that grade: each gives its points for `PASS`. Run them as often as you like.
- They run once more when your notebook is graded: from the top, without network, in the simulator, with limits on time
  and memory. A cell that ends the kernel or never comes back costs its own exercise and no other.
- An answer is Rust, with CUDA C in it where the exercise says so: no line that begins with `:`, no `include_str!`.
"""


def points_of(text: str) -> tuple[float, dict[str, float]]:
    """`POINTS=2` is for each exercise; `POINTS=2,planes=4` gives one of them more."""
    each, named = POINTS, {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 < number < 1000 or bool(equals) != bool(name):
            raise ToolError(f"POINTS: `{part}` is no number of points", "POINTS=2, or POINTS=2,planes=4")
        if name:
            named[name] = number
        else:
            each = number
    return each, named


def marked(
    cell: NotebookNode, grade_id: str, part: str, exercise: str = "", points: float | None = None
) -> NotebookNode:
    """A copy of a lesson's cell with nbgrader's marks: locked, unless it holds an answer."""
    made = copy.deepcopy(cell)
    made.metadata.pop("figures", None)
    kind = {"schema_version": 3, "grade_id": grade_id, "task": False, "cell_type": made.cell_type}
    kind |= {"grade": part == "check", "solution": part == "answer", "locked": part != "answer"}
    if points is not None:
        kind["points"] = points
    made.metadata["nbgrader"] = kind
    made.metadata[NOTES] = {"part": part, **({"exercise": exercise} if exercise else {})}
    if made.cell_type == "code":
        made.outputs, made.execution_count = [], None
    return made


def notebook(lesson: Lesson, points: dict[str, float], name: str) -> NotebookNode:
    """The assignment's notebook of one lesson, as nbgrader wants its source: of the exercises that have points."""
    found, cells = exercises.parts(lesson, frozenset(points)), lesson.notebook.cells
    title = re.sub(r"^#\s*", "", cells[0].source.splitlines()[0])
    rows = "\n".join(f"| `{one}` | {points[one]:g} |" for one in found.exercises)
    table = (
        f"| exercise | points |\n| --- | ---: |\n{rows}\n| **together** | {sum(points[x] for x in found.exercises):g} |"
    )
    head = f"# {name}: exercises of {title}\n\n{table}\n\n{RULES}"
    given = "## Given\n\nCells of the lesson that the exercises build on. Run them first."

    def text(source: str, grade_id: str) -> NotebookNode:
        return marked(new_markdown_cell(source, id=grade_id), grade_id, "given")

    def taken(number: int) -> NotebookNode:
        cell = cells[number]
        known = cell.metadata.get("exercise") or cell.metadata.get("check") or ""
        part = next((tag for tag in ("exercise", "check") if tag in tags(cell)), "given")
        part = {"exercise": "answer"}.get(part, "look" if number in found.looks else part)
        made = marked(cell, cell.id, part, known, points[known] if part == "check" else None)
        if cell.cell_type == "markdown":
            made.source = re.sub(r"\]\((?=[\w-]+\.ipynb)", "](../notebooks/", made.source)
        return made

    check = "## Check\n\n`NOT YET` says what is wrong, and where; `.hint()` behind a check says more, and is put back when you are graded."
    made = [text(head, "assignment"), text(given, "given"), *map(taken, found.given), *map(taken, found.section)]
    made += [text(check, "checks"), *map(taken, found.checks)]
    if found.looks:
        made += [text("A look at what you wrote.", "looks"), *map(taken, found.looks)]
    return new_notebook(cells=made, metadata=copy.deepcopy(lesson.notebook.metadata))


def every_exercise(
    lessons: list[Lesson], each: float, named: dict[str, float], only: tuple[str, ...] = ()
) -> dict[str, float]:
    """The points of all exercises, or of those in `only`; a name that is none of them is a mistake."""
    known = [name for lesson in lessons for name in exercises.parts(lesson).exercises]
    if wrong := [name for name in (*named, *only) if name not in known]:
        step = "name one of these"
        raise ToolError(f"`{wrong[0]}` is no exercise of these lessons; they have {', '.join(known)}", step)
    return {name: named.get(name, each) for name in known if name in only or not only}


def make(lessons: list[Lesson], name: str, points: dict[str, float], place: Path) -> Path:
    """Writes the course's settings and the source, and lets nbgrader make the release; the folder of that."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ToolError(
            f"ASSIGNMENT={name} is no name for an assignment", "letters, digits, - and _ only: ASSIGNMENT=week-3"
        )
    course.write_settings(place)
    nbgrader = course.api(place)
    source = place / "source" / name
    for lesson in lessons:
        write(source / f"{lesson.name}.ipynb", nbformat.writes(notebook(lesson, points, name)) + "\n")
    wanted = {f"{lesson.name}.ipynb" for lesson in lessons}
    if more := sorted(file.name for file in source.glob("*.ipynb") if file.name not in wanted):
        step = f"give the new one another name, ASSIGNMENT=…, or remove the old one: {relative(source)}"
        raise ToolError(f"assignment {name} already has {', '.join(more)}, too", step)
    step = "an assignment that was handed in keeps its cells; give a changed one another name: ASSIGNMENT=…"
    course.done(nbgrader.generate_assignment(name, force=True), f"the release of {name}", step)
    return place / "release" / name


def main() -> int:
    """Makes the assignment that LESSONS, ASSIGNMENT and POINTS describe."""
    course.asked_for()
    lessons = [load(path) for path in find(os.environ.get("LESSONS") or "10")]
    lessons = [one for one in lessons if any("exercise" in tags(cell) for cell in one.notebook.cells)]
    if not lessons:
        raise ToolError("these lessons have no exercises", "name others: make assignment LESSONS=10,11")
    name = os.environ.get("ASSIGNMENT") or "lesson-" + "-".join(one.name.split("_")[0] for one in lessons)
    only = tuple(filter(None, (one.strip() for one in os.environ.get("EXERCISES", "").split(","))))
    points = every_exercise(lessons, *points_of(os.environ.get("POINTS", "")), only)
    lessons = [one for one in lessons if set(exercises.parts(one).exercises) & set(points)]
    release = make(lessons, name, points, course.folder())
    print(f"{name}: {len(points)} exercises, {sum(points.values()):g} points\n  for learners: {relative(release)}")
    print(f"next: hand it out; then make grade ASSIGNMENT={name} SUBMISSIONS=a folder with what came back")
    return 0


if __name__ == "__main__":
    tool(main)
