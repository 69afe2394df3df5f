"""A lesson's copy that JupyterLab shows as slides, and the page with the teacher's notes on it."""

from __future__ import annotations

import copy
import time
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from env import paths
from env.console import ToolError
from env.notebooks import Lesson, first_words, relative, write
from env.slides import deck, notes

# Beside the notebooks: `:dep` lines name crates from there. Git ignores it.
FOLDER = paths.ROOT / "my-lessons"
# As seen from the last row: the extension jupyterlab-fonts reads it from the notebook. Plots are made larger by the course's
# own extension (env/jupyter/labextension).
STYLES = {
    "--jp-content-font-size1": "clamp(15px, 1.5vw, 30px)",
    "--jp-code-font-size": "clamp(13px, 1.25vw, 24px)",
}


def notebook(lesson: Lesson, slides: list[deck.Slide]) -> NotebookNode:
    """The copy: one cell after the other, each with what the slide begins. Text and code are the lesson's."""
    made = copy.deepcopy(lesson.notebook)
    made.metadata["@deathbeds/jupyterlab-fonts"] = {"styles": {":root": STYLES}}
    made.cells = []
    for slide in slides:
        kind = "slide" if slide.starts or not made.cells else "subslide"
        for at, cell in enumerate(slide.cells):
            # What is on a slide that has begun says nothing: the extension shows no cell of the type `-`.
            if deck.HIDDEN in cell.metadata.get("tags", []):
                cell.metadata["slideshow"] = {"slide_type": "fragment"}
            elif at == 0:
                cell.metadata["slideshow"] = {"slide_type": kind}
            if cell.cell_type == "markdown":
                cell.source = deck.rewrite_links(cell.source, "notebooks")
            made.cells.append(cell)
    return made


def place(lesson: Lesson) -> Path:
    """Where the copy is."""
    return FOLDER / f"slides_{lesson.name}.ipynb"


def make(lesson: Lesson) -> tuple[Path, Path]:
    """Writes the copy and the page of notes. A copy in which somebody has worked is kept under another name."""
    said = notes.of(lesson)
    slides = deck.slides(lesson, said)
    made, file = notebook(lesson, slides), place(lesson)
    if file.is_file():
        try:
            before = [cell.source for cell in nbformat.read(file, as_version=4).cells]
        except Exception as error:  # nbformat raises several kinds for a file that is no notebook
            raise ToolError(f"{relative(file)} is no notebook", f"look at it, and remove it: rm {file}") from error
        if before != [cell.source for cell in made.cells]:
            kept = file.with_name(f"{file.stem}_{time.strftime('%Y-%m-%d_%H%M%S')}.ipynb")
            file.rename(kept)
            print(f"what was changed in the slides since then is kept: {relative(kept)}")
    write(file, nbformat.writes(made) + "\n")
    page = file.with_name(f"notes_{lesson.name}.html")
    write(page, notes_page(lesson, slides))
    return file, page


STYLE = """:root{color-scheme:light dark}body{margin:2rem auto;max-width:52rem;padding:0 1rem;font:1.05rem/1.55 system-ui,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin:1.6rem 0 .4rem}small{opacity:.75;font-weight:400}li{margin:.35rem 0}"""


def notes_page(lesson: Lesson, slides: list[deck.Slide]) -> str:
    """The notes as a page for the teacher's own screen: each section with its minutes, each point with its slide's number and cell."""
    from env.book import markdown

    title = lesson.notebook.cells[0].source.splitlines()[0].lstrip("# ")
    parts = [f"<h1>{title}</h1>"]
    across, down = 0, 0
    for at, slide in enumerate(slides):
        across, down = (across + 1, 1) if slide.starts or at == 0 else (across, down + 1)
        if slide.starts:
            parts.append(f"<h2>{across}. {slide.starts} <small>{deck.minutes(slide)}</small></h2>")
        if slide.notes:
            code = [first_words(cell.source.lstrip("{ \n")) for cell in slide.cells if cell.cell_type == "code"]
            where = f"*{across}.{down}*{f', `{code[0]}`' if code else ''}: " if down > 1 else ""
            parts.append(str(markdown.soup("\n".join(f"- {where}{point}" for point in slide.notes))))
    body = "\n".join(parts)
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Notes: {title}</title>'
    return f"{head}<style>{STYLE}</style></head><body>{body}</body></html>\n"
