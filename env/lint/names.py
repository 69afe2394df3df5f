"""One name for each lesson: a link to it that has more than its number says what its heading says, up to a colon or comma."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from env.lint.figures import listed, still_open
from env.lint.glossary import title
from env.lint.notebook_rules import Finding
from env.notebooks import ROOT, Lesson, relative

OPEN = Path(__file__).with_name("names_open.txt")
LINK = re.compile(r"\[([^\]\n]*·[^\]\n]*)\]\((?:[^)\s]*/)?(\d\d[a-z]?_\w+)\.ipynb(?:#[^)]*)?\)")


def wrong(text: str, lessons: dict[str, Lesson]) -> Iterator[tuple[str, str]]:
    """Links with another name than the lesson's, each with that name."""
    for match in LINK.finditer(text):
        lesson = lessons.get(match[2])
        said = " ".join(match[1].split())
        if lesson is not None and said != title(lesson):
            yield said, title(lesson)


def everything(lessons: list[Lesson]) -> dict[str, list[Finding]]:
    """All links that call a lesson otherwise, by notebook and page."""
    known = {lesson.name: lesson for lesson in lessons}
    texts = {
        lesson.name: (lesson.path, "\n".join(c.source for c in lesson.notebook.cells if c.cell_type == "markdown"))
        for lesson in lessons
    }
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        texts[relative(page)] = (page, page.read_text(encoding="utf-8"))
    return {
        name: [
            Finding(path, "", f"calls a lesson `{said}`", f"call it `{named}`") for said, named in wrong(text, known)
        ]
        for name, (path, text) in texts.items()
    }


def check(lessons: list[Lesson]) -> list[Finding]:
    """What fails: a link with another name where the notebook or page is not on the list of open ones."""
    return listed(everything(lessons), still_open(OPEN), OPEN)
