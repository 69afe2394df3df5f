"""A lesson as a page: the notebook as shipped, with the outputs of its recorded run."""

from __future__ import annotations

import re

from env.book import markdown
from env.book.cells import Outputs, words
from env.book.page import Page
from env.book.records import FOLDER, Record
from env.console import ToolError
from env.kernel_cache import recipe
from env.lint import reading_times
from env.notebooks import Lesson, relative

BUILDS_ON = re.compile(r"\bbuilds on:\s*", re.IGNORECASE)


def read(lesson: Lesson, record: Record | None) -> Page:
    """The page; its links are not resolved yet."""
    first = lesson.notebook.cells[0]
    title = first.source.splitlines()[0].lstrip("# ").strip()
    number = lesson.name.split("_")[0]
    minutes = reading_times.stated(lesson)
    if minutes is None:
        what = f"{relative(lesson.path)} does not state its minutes on both paths"
        raise ToolError(what, "write `About 30 minutes (quick path: 20)` in its first cell")
    page = Page(
        f"lessons/{lesson.name}.html",
        title,
        title.split(" · ", 1)[-1].split(":")[0].split(",")[0],
        [lesson.path, FOLDER / lesson.path.name],
        group=reading_times.PARTS.get(number[0], "more").capitalize(),
        minutes=minutes,
        template="lesson.html",
    )
    lines = recipe.dep_lines(lesson.notebook)
    needs_more = lines is not None and not recipe.serves([recipe.PLAIN], lines)
    page.facts |= {
        "number": number,
        "record": record,
        "notebook": relative(lesson.path),
        "command": f"make lab LESSONS={number}" if needs_more else "make lab",
    }
    if record:
        page.facts["machine"] = markdown.soup(f"[{record.machine}](../{relative(record.folder)}/README.md)")
    _opening(page, first.source)
    outputs = Outputs(lesson.name)
    for cell in lesson.notebook.cells[1:]:
        if cell.cell_type == "markdown":
            page.prose(cell.source)
        elif cell.cell_type == "code" and cell.source.strip():
            shown = record.outputs(cell) if record else None
            page.parts.append(outputs.cell(cell, shown, record is not None))
            page.sections[-1].text += [cell.source, *words(shown or [])]
    return page


def _opening(page: Page, text: str) -> None:
    """The first cell: its title and what is stated below it stand in the page's head."""
    head, _, rest = text.partition("\n\n")
    stated, _, rest = rest.partition("\n\n")
    time, *builds_on = BUILDS_ON.split(stated, maxsplit=1)
    page.prose(head)
    page.parts.clear()
    if builds_on:
        page.facts["time"] = time.strip().rstrip(".")
        page.facts["builds_on"] = markdown.soup(builds_on[0])
        text = rest
    else:
        text = f"{stated}\n\n{rest}"
    page.prose(text)
