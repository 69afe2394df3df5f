"""What the lint needs to know of Markdown: headings with their anchors, and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

FENCE = re.compile(r"^\s*(```|~~~)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HTML_LINK = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"", re.IGNORECASE)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass
class Heading:
    """A heading: how deep, and its text."""

    level: int
    text: str

    @property
    def plain(self) -> str:
        """Its text without Markdown's signs."""
        return re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", self.text)

    @property
    def slug(self) -> str:
        """GitHub's form of a link to it."""
        return re.sub(r"[^\w\- ]", "", self.plain.lower()).replace(" ", "-")

    @property
    def anchors(self) -> set[str]:
        """What a link to it may say: GitHub's form, and JupyterLab's."""
        return {self.slug, self.plain.replace(" ", "-")}


def prose(text: str) -> list[str]:
    """The lines outside fenced code."""
    lines, fenced = [], False
    for line in text.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            lines.append(line)
    return lines


def headings(text: str) -> list[Heading]:
    """The headings, in order."""
    found = (HEADING.match(line) for line in prose(text))
    return [Heading(len(match[1]), match[2]) for match in found if match]


def links(text: str) -> list[str]:
    """The targets of links and images that are not inside code."""
    plain = CODE.sub("", "\n".join(prose(text)))
    return LINK.findall(plain) + HTML_LINK.findall(plain)


def broken(target: str, source: Path, own: list[Heading]) -> str | None:
    """What is wrong with a link in `source`, whose headings are `own`; None for a good one and for web pages."""
    if ELSEWHERE.match(target) or target.startswith("//"):
        return None
    path, _, anchor = unquote(target).partition("#")
    file = (source.parent / path).resolve() if path else source
    if not file.exists():
        return "the target does not exist"
    if not anchor:
        return None
    there = own if file == source else headings_of(file)
    if there is not None and not any(anchor in heading.anchors for heading in there):
        return "the target has no such heading"
    return None


def headings_of(file: Path) -> list[Heading] | None:
    """The headings of a Markdown file or a notebook; None for other files, whose anchors are not checked."""
    if file.suffix == ".md":
        return headings(file.read_text(encoding="utf-8"))
    if file.suffix == ".ipynb":
        from env.notebooks import load

        cells = load(file).notebook.cells
        return [one for cell in cells if cell.cell_type == "markdown" for one in headings(cell.source)]
    return None
