"""One page of the book: read first, so that all headings are known, and finished when links can be resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bs4 import BeautifulSoup

from env.book import markdown
from env.book.markdown import Anchors, Section
from env.lint.reading_times import Times


@dataclass
class Page:
    """`out` is the file inside the book's folder; `sources` are the repository's files that links to it may name."""

    out: str
    title: str
    short: str
    sources: list[Path]
    group: str = ""
    minutes: Times | None = None
    template: str = "document.html"
    # Pieces of prose as trees, whose links are resolved later, and finished HTML.
    parts: list[BeautifulSoup | str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    anchors: Anchors = field(default_factory=Anchors)
    # What the template shows beside the body.
    facts: dict[str, object] = field(default_factory=dict)
    pictures: list[str] = field(default_factory=list)
    body: str = ""

    @property
    def up(self) -> str:
        """From this page to the book's folder."""
        return "../" * self.out.count("/")

    def prose(self, text: str) -> BeautifulSoup:
        """Reads a piece of Markdown; the page's headings and words grow by it."""
        tree = markdown.soup(text)
        markdown.name_headings(tree, self.anchors)
        markdown.frame_tables(tree)
        markdown.sections(tree, self.sections)
        self.parts.append(tree)
        return tree

    def picture(self, html: str) -> str:
        """Keeps a drawing out of the tree, which would write its names without capitals; what stands there meanwhile."""
        self.pictures.append(html)
        return f"\ue000{len(self.pictures) - 1}\ue001"

    def text(self, part: BeautifulSoup | str) -> str:
        """A piece as HTML, with its drawings."""
        html = part if isinstance(part, str) else f'<div class="prose">{part}</div>\n'
        for at, picture in enumerate(self.pictures):
            html = html.replace(f"\ue000{at}\ue001", picture)
        return html
