"""The Colab edition's notebooks executed with Colab's own versions of IPython, ipykernel and jupyter_client.

What comes of it is judged as a native run is, and compared with that run: every cell has to show the same kinds of output.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from nbformat import NotebookNode

from env import paths
from env.colab import edition
from env.colab.written import FOLDER
from env.command import run
from env.console import ToolError
from env.notebooks import Lesson, first_words, load
from env.run.execute import Failure
from env.run.session import Execution, RunningKernel

PACKAGES = paths.ENV / "colab" / "colab.txt"
PLACE = paths.GENERATED / "colab-python"
SET_UP_S = 3600
# Debugging in notebooks, which nobody does here, is told to say nothing.
QUIET = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def python() -> Path:
    """A Python with the packages of `colab.txt`, made once, of the version that the project's own is of."""
    program, stamp = PLACE / "bin" / "python", PLACE / "gpulab.json"
    wanted = {"packages": PACKAGES.read_text(encoding="utf-8"), "python": sys.version, "folder": str(PLACE)}
    if paths.read_json(stamp) == wanted:
        return program
    print(f"installing what Colab has ({PACKAGES.name}) into {PLACE.relative_to(paths.ROOT)}", flush=True)
    run([sys.executable, "-m", "venv", "--clear", PLACE], "the virtual environment could not be made", "make setup")
    install = [program, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "-r", PACKAGES]
    run(install, "Colab's packages could not be installed", "connect this machine to the internet, and run again")
    paths.write_json(stamp, wanted)
    return program


class ColabKernel(RunningKernel):
    """A Python kernel of its own for one notebook of the edition."""

    def __init__(self, folder: Path, environment: dict[str, str], stop: threading.Event) -> None:
        command = [str(python()), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        super().__init__(folder, {**QUIET, **environment}, stop, command)

    def execute(self, source: str, limit_s: float) -> Execution:
        """As the page would; the set-up cell builds what has changed since the last set-up."""
        return super().execute(source, limit_s if source.startswith(edition.MAGIC) else max(limit_s, SET_UP_S))


def lesson(path: Path) -> Lesson:
    """The edition's notebook of a lesson, with the lesson's solutions as its cells."""
    file = FOLDER / path.name
    if not file.is_file():
        raise ToolError(f"{file.name} is not in colab/", "make colab")
    return Lesson(file, load(file).notebook, edition.solutions(load(path)))


def kinds(cell: NotebookNode) -> set[str]:
    """Which kinds of output a cell shows: streams by name, data by MIME types."""
    found = set()
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            found.add(output.name)
        elif output.output_type == "error":
            found.add(f"error {output.ename}")
        else:
            found.add(f"{output.output_type}: {', '.join(sorted(output.data))}")
    return found


def differences(copy: Path, native: Path) -> list[Failure]:
    """The cells that show other kinds of output than in the executed copy of the lesson itself, if there is one."""
    if not (copy.is_file() and native.is_file()):
        return []
    there = {cell.id: cell for cell in load(native).code}
    found = []
    for number, cell in enumerate(load(copy).code, 1):
        other = there.get(cell.id)
        ran = cell.execution_count is not None and other is not None and other.execution_count is not None
        if ran and cell.source == edition.MAGIC + other.source and kinds(cell) != kinds(other):
            text = f"shows {sorted(kinds(cell))}, and the lesson itself {sorted(kinds(other))}"
            step = "compare both copies; `%%rust` (env/colab/runtime) is to pass on what the kernel sends"
            begins = first_words(cell.source)
            found.append(Failure(native.stem, number, cell.id, begins, f"{text}\nnext: {step}"))
    return found
