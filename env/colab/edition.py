"""One notebook of the Colab edition from the lesson that it is made of."""

from __future__ import annotations

import copy

import nbformat
from nbformat import NotebookNode

from env.colab.badges import rewrite
from env.colab.settings import Settings
from env.notebooks import Lesson

MAGIC = "%%rust\n"
SET_UP = "colab-set-up"
# With "accelerator", Colab offers a GPU runtime by itself.
METADATA = {
    "accelerator": "GPU",
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
NOTE = """\
**The Colab edition of this lesson**, made from `notebooks/{name}.ipynb` by `make colab`. Cells that begin with `%%rust`
are Rust: they run in the same Rust kernel as in JupyterLab, and share their variables.

Run the set-up cell below first. {minutes}
For a GPU of your own: menu Runtime, Change runtime type, T4 GPU. Where a text says `make setup`, run the set-up cell
again. We could not run this edition on Colab itself: what was tried instead is in [docs/colab.md](../docs/colab.md).
"""
PREBUILT = "It takes about 3 minutes the first time in a runtime, and 5 seconds after that."
BUILT = "It takes about 9 minutes the first time in a runtime, most of it for building the Rust kernel, then 5 seconds."
CODE = """\
# @title Set-up: run this cell first {{ display-mode: "form" }}
import pathlib, shutil, subprocess, sys

LESSON, REPOSITORY, BRANCH = "{name}", "{repository}", "{branch}"
RUNTIME = "env/colab/runtime"
here = pathlib.Path.cwd()
# A checkout that this folder lies in is used as it is; otherwise one is made in this folder, once.
root = next((one for one in (here, *here.parents) if (one / RUNTIME).is_dir()), here / "gpulab")
if not (root / RUNTIME).is_dir():
    if not REPOSITORY:
        raise RuntimeError("this copy of the course names no repository\\nnext: see docs/colab.md, `To publish it`")
    print("fetching", REPOSITORY, "(about 10 s)", flush=True)
    part = root.with_name("gpulab.part")
    shutil.rmtree(part, ignore_errors=True)
    clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", BRANCH, REPOSITORY, str(part)]
    done = subprocess.run(clone, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"git could not fetch the course: {{done.stderr.strip()}}\\nnext: run this cell again")
    part.rename(root)
if str(root / RUNTIME) not in sys.path:
    sys.path.insert(0, str(root / RUNTIME))
import gpulab_colab

rust = gpulab_colab.start(LESSON)
"""


def make(lesson: Lesson, settings: Settings) -> NotebookNode:
    """The lesson for a Python runtime: the same cells with the same ids and tags, after a note and a set-up cell."""
    made = nbformat.v4.new_notebook(metadata=copy.deepcopy(METADATA))
    made.metadata["colab"] = {"name": f"{lesson.name}.ipynb", "provenance": [], "gpuType": "T4", "toc_visible": True}
    # The minor version in which cells have ids, whatever nbformat writes by then.
    made.nbformat_minor = 5
    cells = [_cell(cell, settings) for cell in lesson.notebook.cells]
    # After the title, which is the notebook's name in a list of contents.
    at = 1 if cells and cells[0].cell_type == "markdown" else 0
    made.cells = cells[:at] + _start(lesson, settings) + cells[at:]
    return made


def _start(lesson: Lesson, settings: Settings) -> list[NotebookNode]:
    note = NOTE.format(name=lesson.name, minutes=PREBUILT if settings.bundle else BUILT)
    code = CODE.format(name=lesson.name, repository=settings.repository, branch=settings.branch)
    return [
        nbformat.v4.new_markdown_cell(rewrite(note.strip(), settings), id="colab-note"),
        nbformat.v4.new_code_cell(code.rstrip("\n"), id=SET_UP, metadata={"cellView": "form", "tags": [SET_UP]}),
    ]


def _cell(cell: NotebookNode, settings: Settings) -> NotebookNode:
    new = copy.deepcopy(cell)
    if cell.cell_type == "markdown":
        new.source = rewrite(cell.source, settings)
    elif cell.cell_type == "code":
        # A blank cell stays one: the magic alone would be an error.
        new.source = MAGIC + cell.source if cell.source.strip() else cell.source
        new.outputs, new.execution_count = [], None
    return new


def solutions(lesson: Lesson) -> dict[str, str]:
    """The lesson's solutions as cells of the edition."""
    return {name: MAGIC + text for name, text in lesson.solutions.items()}
