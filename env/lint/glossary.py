"""The glossary, docs/glossary.md: each term in bold in a notebook has an entry, and each entry is used.

An entry is a line `- **term**, **another name**: definition`, and behind it the lesson in which the term is first in bold
(or, if it never is, the one that is named after it; or else the first that uses it, where naming another lesson is no use).
`python3 -m env.lint.glossary --write` computes that link, and puts the entries in order.

Bold is for terms, and italics are for emphasis. A term has at most three words, of letters; text in bold that ends a
sentence, has a figure in it or begins a point of a list (`**Batch size.** …`) is none.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from env import in_venv

if __name__ == "__main__":
    # Before nbformat is asked for.
    in_venv.enter(set_up=False)

from env.console import tool
from env.lint import page_rules, quantities
from env.lint.notebook_rules import Finding, cell_name
from env.notebooks import ROOT, Lesson, find, load
from env.paths import write_text

PAGE = ROOT / "docs" / "glossary.md"
ENTRY = re.compile(
    r"^- (?P<names>\*\*[^*]+\*\*(?:, \*\*[^*]+\*\*)*): (?P<text>.+?)(?: (?P<link>\[[^\]]+\]\([^)]+\.ipynb\)))?$"
)
BOLD = re.compile(r"\*\*(?P<bold>[^*\n]+(?:\n[^*\n]+)?)\*\*")
# A link to a lesson: what it says is that lesson's name.
TO_LESSON = re.compile(r"\[[^\]]+\]\([^)]+\.ipynb[^)]*\)")
TERM = re.compile(r"[A-Za-zÀ-ÿ][\w'’-]*(?: [A-Za-zÀ-ÿ][\w'’-]*){0,2}")
HEAD = "# Glossary"
INTRO = """The field's terms as this course uses them, each with the lesson where it is first explained. Pictures of most of them are
on [The ideas in plain words](plain-words.md); kernels to copy are in the [quick reference](quick-reference.md)."""


@dataclass
class Entry:
    """One entry: its names, what it says, and the link that stands behind it."""

    names: list[str]
    text: str
    link: str

    @property
    def key(self) -> str:
        """What it is sorted by."""
        return self.names[0].lower()


def entries(page: str) -> list[Entry]:
    """The entries of the page, in its order."""
    found = (ENTRY.match(line) for line in page.splitlines() if line.startswith("- "))
    return [Entry(re.findall(r"\*\*([^*]+)\*\*", one["names"]), one["text"], one["link"] or "") for one in found if one]


def plain(term: str) -> str:
    """A term in one form: small letters, no plural, no hyphens; `sync` and British spellings are as they are."""
    words = " ".join(term.lower().replace("-", " ").replace("’", "'").split()).rstrip(".:,;?!")
    return re.sub(r"(?<=[a-z]{2})(?<!s)s$", "", words)


@cache
def _word(name: str) -> re.Pattern[str]:
    """Where a name stands in prose: whole words, singular or plural."""
    parts = [re.escape(part) for part in re.split(r"[ -]", plain(name))]
    return re.compile(r"(?<![\w-])" + r"[\s-]".join(parts) + r"(?:e?s)?(?![\w])", re.IGNORECASE)


def bold(lesson: Lesson) -> list[tuple[str, str]]:
    """The texts in bold of a lesson, each with its cell."""
    return [
        (" ".join(match["bold"].split()), cell_name(number, cell))
        for number, cell in enumerate(lesson.notebook.cells, 1)
        if cell.cell_type == "markdown"
        for match in BOLD.finditer(_prose(cell.source))
    ]


def _prose(text: str) -> str:
    # Without what no reader sees as words; the signs of bold stay.
    return re.sub(r"`[^`\n]*`", "`", "\n".join(page_rules.prose(text)))


class Uses:
    """What the lessons say, read once: their terms in bold, and their prose."""

    def __init__(self, lessons: list[Lesson]) -> None:
        self.lessons = lessons
        self.bold = [{plain(text) for text, _ in bold(lesson)} for lesson in lessons]
        self.prose = [
            "\n".join(
                quantities.prose(TO_LESSON.sub(" ", cell.source))
                for cell in lesson.notebook.cells
                if cell.cell_type == "markdown"
            )
            for lesson in lessons
        ]

    def first(self, entry: Entry) -> Lesson | None:
        """The first lesson with the term in bold, or else the one of that name, or else the first with it in its prose."""
        names = {plain(name) for name in entry.names}
        patterns = [_word(name) for name in entry.names]
        in_bold = (lesson for lesson, terms in zip(self.lessons, self.bold, strict=True) if names & terms)
        named = (lesson for lesson in self.lessons if any(pattern.search(title(lesson)) for pattern in patterns))
        in_prose = (
            lesson
            for lesson, text in zip(self.lessons, self.prose, strict=True)
            if any(pattern.search(text) for pattern in patterns)
        )
        return next(in_bold, None) or next(named, None) or next(in_prose, None)


def title(lesson: Lesson) -> str:
    """A lesson's short name, as it stands everywhere: what its first heading says up to a colon or comma."""
    heading = next((one.text for one in page_rules.headings(lesson.notebook.cells[0].source)), lesson.name)
    return re.split("[:,]", heading)[0].strip()


def link(lesson: Lesson) -> str:
    """A link from docs/ to a lesson."""
    return f"[{title(lesson)}](../notebooks/{lesson.name}.ipynb)"


def written(page: str, uses: Uses) -> str:
    """The page with its entries in order, each with its lesson's link, below their letters."""
    made = []
    for one in sorted(entries(page), key=lambda one: one.key):
        lesson = uses.first(one)
        names = ", ".join(f"**{name}**" for name in one.names)
        made.append((one.key[0].upper(), f"- {names}: {one.text}{' ' + link(lesson) if lesson else ''}"))
    parts = [
        f"## {letter}\n\n" + "\n".join(line for _, line in lines) for letter, lines in groupby(made, lambda one: one[0])
    ]
    return "\n\n".join([HEAD, INTRO, *parts]) + "\n"


def missing(lesson: Lesson, known: set[str]) -> list[Finding]:
    """The terms in bold that have no entry."""
    found = []
    for text, where in bold(lesson):
        if TERM.fullmatch(text) and plain(text) not in known:
            step = "add a line to docs/glossary.md, or write what is no term in *italics*, then python3 -m env.lint.glossary --write"
            found.append(Finding(lesson.path, where, f"**{text}** has no entry in the glossary", step))
            known = known | {plain(text)}
    return found


def without_entry(lessons: list[Lesson], page: str) -> list[Finding]:
    """Terms without an entry, in all notebooks."""
    known = {plain(name) for one in entries(page) for name in one.names}
    # Terms inside a definition are defined there: `writing to such addresses is a **scatter**`.
    known |= {plain(name) for one in entries(page) for name in re.findall(r"\*\*([^*]+)\*\*", one.text)}
    return [one for lesson in lessons for one in missing(lesson, known)]


def check(lessons: list[Lesson], page: str | None = None) -> list[Finding]:
    """What fails: the page is not as `--write` makes it, a term lacks its entry, or an entry its use."""
    page = PAGE.read_text(encoding="utf-8") if page is None else page
    found = without_entry(lessons, page)
    broken = [line for line in page.splitlines() if line.startswith("- ") and not ENTRY.match(line)]
    found += [Finding(PAGE, "", f"`{line[:60]}` is no entry", "write `- **term**: definition`") for line in broken]
    names = [plain(name) for one in entries(page) for name in one.names]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.append(Finding(PAGE, "", f"**{name}** stands there twice", "keep one"))
    uses = Uses(lessons)
    if page != written(page, uses):
        found.append(
            Finding(PAGE, "", "its order or its lessons are out of date", "python3 -m env.lint.glossary --write")
        )
    unused = [one for one in entries(page) if uses.first(one) is None]
    return found + [
        Finding(PAGE, "", f"no notebook uses **{one.names[0]}**", "remove the entry, or use the term") for one in unused
    ]


def main() -> int:
    """`--write` renews the page first; then what fails is printed."""
    made = argparse.ArgumentParser(
        prog="python3 -m env.lint.glossary", description="The glossary and the terms in bold."
    )
    made.add_argument("--write", action="store_true", help="renew order and lessons in docs/glossary.md")
    lessons = [load(path) for path in find()]
    if made.parse_args().write:
        write_text(PAGE, written(PAGE.read_text(encoding="utf-8"), Uses(lessons)))
    failing = check(lessons)
    for finding in failing:
        print(finding)
    return 1 if failing else 0


if __name__ == "__main__":
    tool(main, failed=2)
