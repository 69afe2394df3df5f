"""What a run leaves for readers: the executed copy, its HTML page, its plots; without paths of this machine."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from env.notebooks import ROOT, write
from env.run import current_text, redraw


def save_copy(notebook: NotebookNode, folder: Path, name: str) -> None:
    """Writes the executed copy as `<name>.ipynb`, its plots as pictures; one of the repository's records as they are kept."""
    path = folder / f"{name}.ipynb"
    write(path, nbformat.writes(redraw.with_pictures(notebook)) + "\n")
    if current_text.is_record(folder):
        current_text.refresh(path)


def save_page(notebook: NotebookNode, folder: Path, name: str) -> None:
    """Writes the executed copy as an HTML page."""
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter().from_notebook_node(notebook, resources={"metadata": {"name": name}})
    write(folder / f"{name}.html", page)


def save_plots(notebook: NotebookNode, folder: Path, name: str) -> int:
    """Writes each plot as SVG and PNG, named after its cell; says how many there are."""
    for old in folder.glob(f"{name}-*.*"):
        if old.suffix in (".svg", ".png"):
            old.unlink()
    plots = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if svg := output.get("data", {}).get(redraw.SVG):
                plots.append(folder / f"{name}-{cell.id}.svg")
                write(plots[-1], svg)
    redraw.beside(plots)
    return len(plots)


def without_machine_paths(value: Any) -> Any:
    """The same value with the repository's root as `.` and the home folder as `~` in every text."""
    if isinstance(value, str):
        return _replace(value)
    if isinstance(value, list):
        return [without_machine_paths(item) for item in value]
    if isinstance(value, dict):
        changed = {key: without_machine_paths(item) for key, item in value.items()}
        return type(value)(changed)
    return value


def _replace(text: str) -> str:
    home = os.path.expanduser("~")
    places = {(str(ROOT), "."), (os.path.realpath(ROOT), "."), (home, "~"), (os.path.realpath(home), "~")}
    # The longest first: the repository may lie in the home folder.
    for place, sign in sorted(places, key=lambda item: -len(item[0])):
        if len(place) < 2:
            continue
        for spelling in {place, html.escape(place)}:
            text = re.sub(re.escape(spelling) + r"(?![\w.-])", sign, text)
    return text


def clean_outputs(notebook: NotebookNode) -> None:
    """Takes this machine's paths out of the outputs; sources are the author's and stay."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = without_machine_paths(cell.outputs)
