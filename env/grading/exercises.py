"""A lesson's exercises, and the cells that they need of all that stands before them."""

from __future__ import annotations

from dataclasses import dataclass, field

from nbformat import NotebookNode

from env.console import ToolError
from env.grading import symbols
from env.lint import page_rules
from env.notebooks import Lesson, tags

# A picture of an answer is worth so many cells before it, and no more.
MOST_FOR_A_LOOK = 4


@dataclass
class Parts:
    """What of a lesson goes into an assignment, by the cells' numbers in the lesson."""

    given: list[int] = field(default_factory=list)
    section: list[int] = field(default_factory=list)
    checks: list[int] = field(default_factory=list)
    looks: list[int] = field(default_factory=list)
    exercises: list[str] = field(default_factory=list)


def _begins(cell: NotebookNode) -> str:
    """The section that begins with this cell."""
    if cell.cell_type != "markdown":
        return ""
    return next((heading.text for heading in page_rules.headings(cell.source) if heading.level == 2), "")


def parts(lesson: Lesson, only: frozenset[str] = frozenset()) -> Parts:
    """The section Exercise as it is, the checks, the cells that draw what a learner wrote, and what these need.

    `only` names the exercises that are wanted, if not all are.
    """
    found, section = Parts(), ""
    cells = lesson.notebook.cells
    unwanted = _of_others(cells, only) if only else set()
    for number, cell in enumerate(cells):
        section = _begins(cell) or section
        if number in unwanted:
            continue
        if "exercise" in tags(cell):
            found.exercises.append(cell.metadata["exercise"])
        if section == "Exercise" and (cell.cell_type == "markdown" or "expected-error" not in tags(cell)):
            found.section.append(number)
        elif section == "Check" and "check" in tags(cell):
            found.checks.append(number)
        elif section == "Check" and found.checks and cell.cell_type == "code" and _draws(cell):
            found.looks.append(number)
    if not found.exercises:
        raise ToolError(f"{lesson.name} has no exercises", "name lessons that have some, such as LESSONS=10,11")
    answers = {name for n in found.section if "exercise" in tags(cells[n]) for name in symbols.defined(cells[n].source)}
    asking = [*(n for n in found.section if cells[n].cell_type == "code"), *found.checks]
    found.given = needed(cells, asking, found.section[0])
    seen, found.looks = [number for number in found.looks if symbols.used(cells[number].source) & answers], []
    for number in seen:
        more = needed(cells, [*asking, number], found.section[0])
        if len(more) - len(found.given) <= MOST_FOR_A_LOOK:
            found.looks.append(number)
            asking.append(number)
            found.given = more
    return found


def _of_others(cells: list[NotebookNode], only: frozenset[str]) -> set[int]:
    """The cells of exercises that are not in `only`: from the heading before an exercise to its cell, and its check."""
    found, begun = set(), 0
    for number, cell in enumerate(cells):
        if cell.cell_type == "markdown" and page_rules.headings(cell.source):
            begun = number
        if "exercise" in tags(cell) and cell.metadata["exercise"] not in only:
            found |= set(range(begun, number + 1))
        if "check" in tags(cell) and cell.metadata["check"] not in only:
            found.add(number)
    return found


def _draws(cell: NotebookNode) -> bool:
    """Whether a cell behind the checks looks at an answer; one that asks the checks' crate would reveal the solution."""
    return "expected-error" not in tags(cell) and "check" not in symbols.used(cell.source)


def needed(cells: list[NotebookNode], asking: list[int], before: int) -> list[int]:
    """The code cells in front of `before` without which `asking` would not compile, the first one always among them."""
    first = next(n for n, cell in enumerate(cells) if cell.cell_type == "code")
    usable = [
        n
        for n in range(before)
        if cells[n].cell_type == "code" and not {"expected-error", "check"} & set(tags(cells[n]))
    ]
    taken, open_ones = {first}, list(asking)
    while open_ones:
        asks = open_ones.pop()
        wanted = symbols.used(cells[asks].source)
        new = set()
        for name in wanted:
            earlier = [n for n in usable if n < asks and name in symbols.defined(cells[n].source)]
            new |= {earlier[-1]} if earlier else set()
            new |= {n for n in usable if n < asks and name in symbols.extended(cells[n].source)}
        open_ones += sorted(new - taken)
        taken |= new
    return sorted(taken)
