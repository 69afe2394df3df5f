"""One name for each lesson: a link to it that has more than its number says what its heading says, up to a colon or comma."""

from __future__ import annotations

import re
from collections.abc import Iterator

from env.lint.glossary import title
from env.lint.notebook_rules import Finding
from env.notebooks import ROOT, Lesson

LINK = re.compile(r"\[([^\]\n]*·[^\]\n]*)\]\((?:[^)\s]*/)?(\d\d[a-z]?_\w+)\.ipynb(?:#[^)]*)?\)")


def wrong(text: str, lessons: dict[str, Lesson]) -> Iterator[tuple[str, str]]:
    """Links with another name than the lesson's, each with that name."""
    for match in LINK.finditer(text):
        lesson = lessons.get(match[2])
        said = " ".join(match[1].split())
        if lesson is not None and said != title(lesson):
            yield said, title(lesson)


def check(lessons: list[Lesson]) -> list[Finding]:
    """All links in notebooks and pages that call a lesson otherwise."""
    known = {lesson.name: lesson for lesson in lessons}
    texts = {
        lesson.path: "\n".join(c.source for c in lesson.notebook.cells if c.cell_type == "markdown")
        for lesson in lessons
    }
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        texts[page] = page.read_text(encoding="utf-8")
    return [
        Finding(path, "", f"calls a lesson `{said}`", f"call it `{named}`")
        for path, text in texts.items()
        for said, named in wrong(text, known)
    ]
