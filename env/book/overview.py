"""The first page, made of the README: what the course is, how to start, the ways through it, its lessons."""

from __future__ import annotations

import re

from env.book import documents, markdown
from env.book.page import Page
from env.console import ToolError
from env.notebooks import ROOT

README = ROOT / "README.md"
# The sections that the first page shows; the page "About the project" has the whole README.
SHOWN = re.compile(r"^(start|.*\bpaths?\b.*)$", re.IGNORECASE)
ROW = re.compile(r"^\|\s*\[[^\]]*\]\(notebooks/([\w-]+)\.ipynb\)\s*\|([^|]*)\|", re.MULTILINE)


def read(chapters: list[Page]) -> Page:
    """The first page; its links are not resolved yet."""
    text = README.read_text(encoding="utf-8")
    sections = documents.parts(text)
    page = Page("index.html", "gpulab: GPU programming in Rust notebooks", "Overview", [README], "Overview")
    page.template = "index.html"
    page.facts["intro"] = markdown.soup(sections[""])
    for name, section in sections.items():
        if name and SHOWN.match(name):
            page.prose(section)
    seen = {name: markdown.soup(words.strip()) for name, words in ROW.findall(text)}
    for chapter in chapters:
        name = chapter.sources[0].stem
        if name not in seen:
            raise ToolError(f"README.md's table has no row of {name}", "give it one, with what one sees in it")
        paragraph = seen[name].p
        chapter.facts["seen"] = paragraph.decode_contents() if paragraph else ""
    page.facts |= {
        "lessons": chapters,
        "first": chapters[0],
        "quickstart": "docs/quickstart.html" if (ROOT / "docs" / "quickstart.md").is_file() else "",
    }
    return page
