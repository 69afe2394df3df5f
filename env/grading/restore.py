"""A submission as it is graded: the release's cells in the release's order, with the learner's answers in them.

Whatever was removed, renamed, moved or added elsewhere changes nothing, and is told.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from env.console import ToolError
from env.grading import symbols
from env.grading.assignment import NOTES

MOST_BYTES = 400 << 20
MOST_ANSWER = 100_000
# What an answer may not hold, by what it is.
REFUSED = {
    "a line that begins with `:`, an evcxr command": re.compile(r"^\s*:[a-z]", re.MULTILINE),
    "a line that begins with `!`, a command of the shell": re.compile(r"^\s*!\s*\w", re.MULTILINE),
    "a file read by the compiler (`include!`)": re.compile(r"\binclude(?:_str|_bytes)?\s*!|#\s*!?\[\s*path\b"),
}
# What no solution of the course needs: worth a look by a person.
UNUSUAL = {
    "reads or writes files": re.compile(r"\bfs\s*::|\bFile\s*::|/proc\b|notebooks/|solutions"),
    "starts programs or ends the process": re.compile(r"\bprocess\s*::|\bCommand\s*::"),
    "asks for the network": re.compile(r"\bnet\s*::|\bTcpStream\b|\bUdpSocket\b"),
    "speaks of verdicts": re.compile(r"EVCXR_BEGIN_CONTENT|vnd\.gpulab|NOT YET|\bVerdict\b"),
    "calls functions of C, or holds assembler of the CPU": re.compile(
        r"extern\s*\"C\"\s*\{|\blibc\b|\bdlsym\b|\btransmute\b"
    ),
}
KERNEL_TEXT = re.compile(r'r(#*)".*?"\1', re.DOTALL)


@dataclass
class Restored:
    """The notebook to execute, what is to be told the learner, and what a person should look at."""

    notebook: NotebookNode
    told: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)


def read(file: Path) -> dict[str, Any]:
    """A submission's JSON, whatever is in it; nbformat's validation of a million outputs would take minutes."""
    if not file.is_file():
        raise ToolError("it is no file", "hand in the notebook itself, a file that ends in .ipynb")
    size = file.stat().st_size
    if size > MOST_BYTES:
        step = "in JupyterLab: Edit, Clear Outputs of All Cells; save, and hand it in again"
        raise ToolError(f"it has {size >> 20} MB, and {MOST_BYTES >> 20} are read", step)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        step = "hand in the notebook as JupyterLab saves it (.ipynb), no page and no archive"
        raise ToolError(f"it is not a notebook: {what}", step) from None
    if not isinstance(found, dict) or not isinstance(found.get("cells"), list):
        raise ToolError("it is JSON, but no notebook of format 4", "open it in JupyterLab, save it, and hand that in")
    return found


def _cells(submission: dict[str, Any]) -> Iterator[tuple[str, str, str, frozenset[str]]]:
    """Of each code cell: its source, nbgrader's id, its own id, and the exercise that its notes name."""
    for cell in submission["cells"]:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        source = "".join(map(str, source)) if isinstance(source, list) else str(source)
        metadata = cell.get("metadata") if isinstance(cell.get("metadata"), dict) else {}
        marks = metadata.get("nbgrader") if isinstance(metadata.get("nbgrader"), dict) else {}
        yield source, str(marks.get("grade_id", "")), str(cell.get("id", "")), symbols.defined(source[:MOST_ANSWER])


def answers(release: NotebookNode) -> dict[str, NotebookNode]:
    """The answer cells of a release, by exercise."""
    noted = {cell.metadata.get(NOTES, {}).get("exercise", ""): cell for cell in release.cells if part(cell) == "answer"}
    noted.pop("", None)
    return noted


def part(cell: NotebookNode) -> str:
    """What the cell is for: `answer`, `check`, `look` or `given`."""
    return cell.metadata.get(NOTES, {}).get("part", "")


def exercise(cell: NotebookNode) -> str:
    """The exercise that it belongs to."""
    return cell.metadata.get(NOTES, {}).get("exercise", "")


def restore(release: NotebookNode, submission: dict[str, Any]) -> Restored:
    """The release with the submission's answers: by nbgrader's id, else by the cell's, else by the names that it defines."""
    made = Restored(copy.deepcopy(release))
    cells = list(_cells(submission))
    used: set[int] = set()
    for name, cell in answers(made.notebook).items():
        by_grade = [n for n, one in enumerate(cells) if one[1] == cell.metadata["nbgrader"]["grade_id"]]
        by_id = [n for n, one in enumerate(cells) if one[2] == cell.id and not one[1]]
        own = symbols.defined(cell.source)
        by_name = [n for n, one in enumerate(cells) if own and own <= one[3] and n not in used and not one[1]]
        found = by_grade or by_id or by_name
        if not found:
            made.told.append(f"`{name}`: there is no answer cell; it was graded as unsolved.")
            continue
        if len(found) > 1:
            made.told.append(f"`{name}`: {len(found)} cells are its answer; the last one was graded.")
        if found is by_name:
            made.told.append(f"`{name}`: its cell had lost its marks, and was found by the names that it defines.")
        used |= set(found)
        source = cells[found[-1]][0]
        if len(source) > MOST_ANSWER:
            made.told.append(f"`{name}`: {len(source)} characters are no answer; it was graded as unsolved.")
            continue
        cell.source = source
        made.flags += [f"{name} {what}" for what, sign in UNUSUAL.items() if sign.search(KERNEL_TEXT.sub('""', source))]
    _others(made, release, cells, used)
    return made


def refused(source: str) -> str:
    """What in an answer keeps it from being run."""
    outside = KERNEL_TEXT.sub('""', source)
    return next((what for what, sign in REFUSED.items() if sign.search(outside)), "")


def _others(
    made: Restored, release: NotebookNode, cells: list[tuple[str, str, str, frozenset[str]]], used: set[int]
) -> None:
    """What became of all other code cells of the submission."""
    locked = [cell for cell in release.cells if cell.cell_type == "code" and part(cell) != "answer"]
    left = [one for n, one in enumerate(cells) if n not in used]
    missing, changed = [], []
    for cell in locked:
        same = [n for n, one in enumerate(left) if one[0].strip() == cell.source.strip()]
        named = [n for n, one in enumerate(left) if cell.metadata["nbgrader"]["grade_id"] in (one[1], one[2])]
        if not same and not named:
            missing.append(cell.id)
        elif not same:
            changed.append(cell.id)
        for n in (same or named)[:1]:
            left.pop(n)
    if missing:
        made.told.append(f"{_count(missing, 'cell')} had been removed and came back: {', '.join(missing)}.")
    if changed:
        made.told.append(f"{_count(changed, 'locked cell')} had been changed and was put back: {', '.join(changed)}.")
    more = [one for one in left if one[0].strip()]
    if more:
        made.told.append(f"{_count(more, 'further code cell')} of yours was not run: answers stand in their own cells.")


def _count(things: list, what: str) -> str:
    return f"{len(things)} {what}{'s' if len(things) != 1 else ''}"
