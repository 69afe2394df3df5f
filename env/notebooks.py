"""The course's notebooks as data: finding them, their cells, their solutions, and writing them safely."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from env.console import ToolError
from env.paths import ROOT, write_text

FOLDER = ROOT / "notebooks"
KERNEL = "gpulab-rust"
VERDICT = "application/vnd.gpulab.verdict+json"
SECTION = re.compile(r"^//\s*exercise:\s*(\S+)\s*$")


@dataclass
class Lesson:
    """One notebook and what belongs to it."""

    path: Path
    notebook: NotebookNode
    solutions: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The notebook's name, such as `02_async_timing`."""
        return self.path.stem

    @property
    def code(self) -> list[NotebookNode]:
        """The code cells, in order."""
        return [cell for cell in self.notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def tags(cell: NotebookNode) -> list[str]:
    """The cell's tags."""
    return list(cell.metadata.get("tags", []))


def first_words(source: str, width: int = 48) -> str:
    """What a cell begins with: its first line that says something, shortened."""
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    said = next((line for line in lines if not line.startswith(("use ", "#[", "%%"))), lines[0] if lines else "")
    return said if len(said) <= width else said[: width - 1].rstrip() + "…"


def find(names: str = "", folder: Path = FOLDER) -> list[Path]:
    """The notebooks in `folder` called `names` (separated by commas; the number is enough); all without names."""
    every = sorted(path for path in folder.glob("*.ipynb") if not path.name.startswith("."))
    if not every:
        raise ToolError(f"there is no notebook in {relative(folder)}", "check out the whole repository again")
    wanted = [name.strip().removesuffix(".ipynb") for name in names.split(",") if name.strip()]
    if not wanted:
        return every
    found = []
    for name in wanted:
        # `12` names 12a, 12b and 12c as well.
        numbered = re.compile(rf"{re.escape(name)}[a-z]?")
        hits = [path for path in every if path.stem == name or numbered.fullmatch(path.stem.split("_")[0])]
        if not hits:
            there = ", ".join(path.stem for path in every)
            raise ToolError(f"no notebook is called `{name}`; there are: {there}", "name one of these, as in NB=00")
        found += [path for path in hits if path not in found]
    return found


def load(path: Path) -> Lesson:
    """Reads a notebook and the solutions beside it."""
    try:
        notebook = nbformat.read(path, as_version=4)
    except OSError as error:
        raise ToolError(f"cannot read {relative(path)}: {error.strerror}", "check the path") from error
    except Exception as error:  # nbformat raises several kinds for a file that is no notebook
        text = f"{relative(path)} is not a notebook: {str(error).splitlines()[0]}"
        raise ToolError(text, "restore it with git, or open it in an editor and correct the JSON") from error
    solutions_file = path.parent / "solutions" / f"{path.stem}.rs"
    text = solutions_file.read_text(encoding="utf-8") if solutions_file.exists() else ""
    return Lesson(path, notebook, sections(text, solutions_file))


def sections(text: str, where: Path) -> dict[str, str]:
    """The solutions by exercise: each section starts with a line `// exercise: name`."""
    found: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        start = SECTION.match(line)
        if start:
            name = start[1]
            if name in found:
                raise ToolError(f"{relative(where)}: two sections `{name}`", "join them or rename one")
            found[name] = []
        elif name is not None:
            found[name].append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def relative(path: Path) -> str:
    """The path as seen from the repository's root, where it lies inside."""
    try:
        return str(path.resolve().relative_to(ROOT)) or "."
    except ValueError:
        return str(path)


def write(path: Path, content: str) -> None:
    """Writes the whole file or nothing; says what to do where it cannot be written."""
    try:
        write_text(path, content)
    except OSError as error:
        fix = "make room on the disk and the folder writable, or choose another: python3 -m env.run --out DIR"
        raise ToolError(f"cannot write {relative(path)}: {error.strerror}", fix) from error


def strip(notebook: NotebookNode) -> bool:
    """Removes what an execution left in a notebook; true when there was something."""
    before = nbformat.writes(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        for key in ("execution", "gpulab", "collapsed", "scrolled", "jupyter"):
            cell.metadata.pop(key, None)
    notebook.metadata.pop("gpulab", None)
    return nbformat.writes(notebook) != before
