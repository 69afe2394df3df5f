"""A lesson's slides as a page for reveal.js, with the outputs of the recorded run; nothing is fetched when it is shown."""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path
from urllib.parse import unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from env.book import code, markdown, records
from env.book import site as book
from env.book.cells import Outputs
from env.book.links import Links
from env.book.page import Page
from env.lint.page_rules import ELSEWHERE
from env.notebooks import FOLDER, ROOT, Lesson
from env.slides import deck, notes

HERE = Path(__file__).resolve().parent
OUT = ROOT / "dist" / "slides"
# A longer source stands beside its plot, a short one above it: a plot gets the width of the screen.
SHORT = 4
# Colours and figures as in the book.
SHARED = ("book.css", "content.css", "code.css", "theme.js", "icon.svg")


class _Links(Links):
    """Lessons link to each other; what else lies in the repository is no slide."""

    def target(self, address: str, source: Path, page: Page) -> str | None:
        if ELSEWHERE.match(address):
            return address
        file = (source.parent / unquote(address).partition("#")[0]).resolve()
        return f"{file.stem}.html" if file.parent == FOLDER and file.suffix == ".ipynb" else None


def _text(source: str, page: Page) -> str:
    tree = markdown.soup(source)
    markdown.frame_tables(tree)
    _Links().apply(tree, page.sources[0], page)
    return f'<div class="prose">{tree}</div>'


def _slide(slide: deck.Slide, page: Page, outputs: Outputs, record: records.Record | None) -> str:
    parts = []
    for cell in slide.cells:
        if cell.cell_type == "markdown":
            parts.append(_text(cell.source, page))
        elif deck.HIDDEN in cell.metadata.get("tags", []):
            parts.append(f"<details><summary>show it</summary>{code.block(cell.source, 'rust')}</details>")
        else:
            shown = record.outputs(cell) if record else None
            parts.append(outputs.cell(cell, shown, record is not None))
    said = [f"<p>{deck.minutes(slide)}</p>"] if slide.starts else []
    said += [str(markdown.soup("\n".join(f"- {point}" for point in slide.notes)))] if slide.notes else []
    if said:
        parts.append(f'<aside class="notes">{"".join(said)}</aside>')
    lines = max((len(cell.source.splitlines()) for cell in slide.cells if cell.cell_type == "code"), default=0)
    kind = "text" if not lines else "beside" if lines > SHORT else "above"
    return f'<section class="{kind}"><div class="slide">{"".join(parts)}</div></section>\n'


def render(lesson: Lesson, record: records.Record | None) -> str:
    """The page of one lesson."""
    slides = deck.slides(lesson, notes.of(lesson))
    page = Page(f"{lesson.name}.html", lesson.name, lesson.name, [lesson.path])
    outputs, columns = Outputs(lesson.name), []
    for at, slide in enumerate(slides):
        if slide.starts or at == 0:
            columns.append("")
        columns[-1] += _slide(slide, page, outputs, record)
    body = "".join(f"<section>\n{column}</section>\n" for column in columns)
    title = lesson.notebook.cells[0].source.splitlines()[0].lstrip("# ").strip()
    machine = f"outputs recorded on {record.machine}" if record else "not recorded yet"
    return _template("slides.html").render(title=title, machine=machine, body=Markup(page.text(body)))


def _template(name: str):
    places = FileSystemLoader(HERE / "templates")
    return Environment(loader=places, autoescape=True, undefined=StrictUndefined).get_template(name)


def build(lessons: list[Lesson], out: Path = OUT) -> int:
    """Writes the pages of these lessons, a list of all that are there, and what they need; the number of bytes."""
    static = out / "static"
    static.mkdir(parents=True, exist_ok=True)
    for file in [*(HERE / "static").iterdir(), *(book.HERE / "static" / name for name in SHARED)]:
        shutil.copyfile(file, static / file.name)
    for lesson in lessons:
        (out / f"{lesson.name}.html").write_text(render(lesson, records.find(lesson)), encoding="utf-8")
    names = sorted(file.stem for file in out.glob("[0-9]*.html"))
    items = "".join(f'<li><a href="{escape(name)}.html">{escape(name)}</a></li>' for name in names)
    (out / "index.html").write_text(_template("index.html").render(items=Markup(items)), encoding="utf-8")
    return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
