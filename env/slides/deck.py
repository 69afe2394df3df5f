"""A lesson cut into slides. Nothing about slides is written in the notebooks: headings, lengths and exercises say where to cut."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from env.lint import page_rules, reading_times
from env.notebooks import Lesson, tags
from env.slides.notes import IN_CLASS, Notes

# More words than this do not fit on a slide, with a list not more than that; a code cell goes below fewer than these.
MOST_WORDS, MOST_WITH_LIST, FEW_WORDS = 110, 200, 45
LIST = re.compile(r"^\s*(?:[-*|]|\d+\.)\s|^\$\$")
HIDDEN = "solution"


@dataclass
class Slide:
    """Cells that are seen at once. `starts` is the section that begins here; `minutes` are that section's."""

    cells: list[NotebookNode]
    starts: str = ""
    minutes: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def has_code(self) -> bool:
        """Whether a cell is run on it."""
        return any(cell.cell_type == "code" for cell in self.cells)


def minutes(slide: Slide) -> str:
    """How long the section that begins there takes a learner alone."""
    return f"about {max(1, round(slide.minutes))} min to read, run and solve alone"


def _blocks(text: str) -> Iterator[str]:
    """The paragraphs, lists, tables, formulas and code blocks of a text: what blank lines separate, outside fences."""
    block: list[str] = []
    fenced = formula = False
    for line in [*text.splitlines(), ""]:
        fenced ^= bool(page_rules.FENCE.match(line))
        formula ^= line.strip().startswith("$$") and line.count("$$") == 1
        if line.strip() or fenced or formula:
            block.append(line)
        elif block:
            yield "\n".join(block)
            block = []


def pieces(text: str) -> list[str]:
    """A text in parts that fit on a slide: a heading begins one, and stays with what follows it."""
    parts: list[list[str]] = []
    words = 0
    for block in _blocks(text):
        heading = page_rules.HEADING.match(block)
        more = len(block.split())
        only_heading = parts and all(page_rules.HEADING.match(one) for one in parts[-1])
        # A list, a table or a formula belongs to the sentence before it.
        most = MOST_WITH_LIST if LIST.match(block) else MOST_WORDS
        if not parts or (heading and len(heading[1]) <= 3) or (words + more > most and not only_heading):
            parts.append([])
            words = 0
        parts[-1].append(block)
        words += more
    return ["\n\n".join(part) for part in parts]


def _solution(lesson: Lesson, name: str) -> Slide:
    """The solution of an exercise, out of sight until somebody asks for it: in JupyterLab by one more step down."""
    title = new_markdown_cell(f"### A solution of `{name}`", id=f"{HIDDEN}-{name}-title".replace("_", "-"))
    code = new_code_cell(lesson.solutions[name], id=f"{HIDDEN}-{name}".replace("_", "-"))
    code.metadata.update(tags=[HIDDEN])
    return Slide([title, code])


def slides(lesson: Lesson, notes: Notes) -> list[Slide]:
    """The lesson as slides, in order, with what the teacher's notes say of each."""
    found: list[Slide] = []
    for cell in lesson.notebook.cells:
        if cell.cell_type == "markdown":
            new = list(_texts(cell))
        elif cell.source.strip():
            new = _code(cell, found)
        else:
            continue
        if new:
            new[0].notes += notes.before.get(cell.get("id", ""), [])
        elif found:
            found[-1].notes += notes.before.get(cell.get("id", ""), [])
        found += new
        name = cell.metadata.get("exercise")
        if "exercise" in tags(cell) and name in lesson.solutions:
            found.append(_solution(lesson, name))
    minutes = dict(reading_times.sections(lesson))
    for slide in found:
        if slide.starts in minutes:
            slide.minutes = minutes[slide.starts].standard
            slide.notes = notes.sections.get(slide.starts, []) + slide.notes
    if found:
        first = [f"Objective: {notes.objective}"] if notes.objective else []
        found[0].notes = first + notes.sections.get(IN_CLASS, []) + found[0].notes
        found[0].minutes = minutes["head"].standard
    return found


def _texts(cell: NotebookNode) -> Iterator[Slide]:
    for number, part in enumerate(pieces(cell.source), 1):
        one = copy.deepcopy(cell)
        one.source = part
        one.id = cell.id if number == 1 else f"{cell.id[:58]}-{number}"
        begins = [heading.text for heading in page_rules.headings(part) if heading.level == 2]
        yield Slide([one], starts=begins[0] if begins else "")


def _code(cell: NotebookNode, found: list[Slide]) -> list[Slide]:
    """On a slide of its own, unless a short text stands before it: then on that one, and nothing is new."""
    last = found[-1] if found else None
    if last and not last.has_code and len(last.cells[0].source.split()) <= FEW_WORDS:
        last.cells.append(copy.deepcopy(cell))
        return []
    return [Slide([copy.deepcopy(cell)])]


def rewrite_links(text: str, folder: str) -> str:
    """Links to what lies beside the notebooks, seen from a folder beside theirs."""
    return re.sub(r"\]\((?=[\w-]+\.ipynb)", f"](../{folder}/", text)
