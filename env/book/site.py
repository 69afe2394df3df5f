"""All pages together: read, linked, put into their frame, written; then looked through for what is broken."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from env.book import documents, lessons, overview, records
from env.book.experiments import Experiments, of_lesson
from env.book.links import Links
from env.book.page import Page
from env.console import ToolError
from env.notebooks import ROOT, find, load, relative

HERE = Path(__file__).resolve().parent
OUT = ROOT / "dist" / "book"
# Our own mark: without it a folder is not replaced.
MARK = ".gpulab-book"


@dataclass
class Built:
    """What was written."""

    pages: int
    lessons: dict[str, str]
    bytes: int


def build(out: Path = OUT, experiments: Experiments | None = None) -> Built:
    """Writes the whole book into `out`; an older book there goes."""
    _check_ours(out)
    courses = [(lesson := load(path), records.find(lesson)) for path in find()]
    chapters = [lessons.read(lesson, record) for lesson, record in courses]
    for chapter in chapters:
        chapter.facts["experiments"] = of_lesson(experiments, chapter.sources[0].stem)
    live = [experiments.page()] if experiments else []
    pages = [overview.read(chapters), *chapters, *live, *documents.guides(), *documents.about()]
    links = Links()
    for page in pages:
        links.add(page)
    order = pages[: len(chapters) + 1]
    for before, after in pairwise(order):
        before.facts["next"], after.facts["previous"] = after, before
    for page in pages:
        _finish(page, links)
    frame = Frame(pages)
    written = [(page, frame.render(page)) for page in [*pages, *links.sources.values()]]
    # The old book stays until the new one is whole.
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for page, html in written:
        _write(part / page.out, html.encode())
    for file, place in links.files.items():
        _write(part / unquote(place), file.read_bytes())
    for file in (HERE / "static").iterdir():
        _write(part / "static" / file.name, file.read_bytes())
    _write(part / "static" / "search-index.js", search_index(pages).encode())
    for name, content in (experiments.files() if experiments else {}).items():
        _write(part / name, content)
    _write(part / MARK, b"written by `make book`, which replaces this folder\n")
    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    runs = {lesson.name: record.machine if record else "" for lesson, record in courses}
    return Built(len(written), runs, size)


def search_index(pages: list[Page]) -> str:
    """A script, since a page from a file may fetch nothing: `[page's title, [[address, part's title, words], …]]` for each page."""
    rows = []
    for page in pages:
        parts = []
        for section in page.sections:
            address = page.out if section.level == 1 else f"{page.out}#{section.anchor}"
            parts.append([address, section.title, " ".join(" ".join(section.text).split())])
        rows.append([page.title, parts])
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    # Inside a script's file nothing ends it early; line separators are the one thing that JSON allows and old readers not.
    return f"window.BOOK_INDEX={text.replace(chr(0x2028), ' ').replace(chr(0x2029), ' ')};\n"


def _finish(page: Page, links: Links) -> None:
    """Resolves the links of all pieces, and joins them."""
    for part in page.parts:
        if not isinstance(part, str):
            links.apply(part, page.sources[0], page)
    for name, fact in page.facts.items():
        if hasattr(fact, "find_all"):
            links.apply(fact, page.sources[0], page)
            page.facts[name] = Markup(page.text(str(fact).strip()))
    page.body = "".join(page.text(part) for part in page.parts)


def _check_ours(out: Path) -> None:
    if out.exists() and not (out / MARK).is_file() and (out.is_file() or any(out.iterdir())):
        what = f"{relative(out)} holds what is not the book's"
        raise ToolError(what, "choose an empty folder: python3 -m env.book --out DIR")


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


class Frame:
    """What stands around every page: the head, the list of pages, the parts of this one."""

    def __init__(self, pages: list[Page]) -> None:
        self.environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.groups: dict[str, list[Page]] = {}
        for page in pages:
            if page.group:
                self.groups.setdefault(page.group, []).append(page)

    def render(self, page: Page) -> str:
        """The whole page."""
        contents = [section for section in page.sections if section.level in (2, 3)]
        template = self.environment.get_template(page.template)
        return template.render(page=page, body=Markup(page.body), groups=self.groups, contents=contents, **page.facts)
