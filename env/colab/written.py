"""All files that `make colab` writes: the notebooks in `colab/`, and the README's part about them."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

from env.colab.edition import make
from env.colab.settings import Settings, load
from env.console import ToolError
from env.notebooks import ROOT, find
from env.notebooks import load as load_lesson

FOLDER = ROOT / "colab"
README = ROOT / "README.md"
BEGIN, END = "<!-- written by make colab -->", "<!-- end -->"
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
UNTRIED = "We could not run this edition on Colab itself; [docs/colab.md](docs/colab.md) says what was tried instead."


def readme_part(names: list[str], settings: Settings) -> str:
    """The lines between the marks: a badge and a link to each lesson, or how to get them."""
    if not settings.repository:
        text = (
            "In Google Colab: [colab](colab) holds the lessons for its Python runtime. Whoever publishes this repository\n"
            "writes its address into [env/colab/settings.json](env/colab/settings.json); `make colab` then puts the\n"
            "badges here."
        )
        return f"{text} {UNTRIED}"
    badge = f"[![Open in Colab]({BADGE})]({settings.colab(names[0] + '.ipynb')})"
    links = " · ".join(f"[{name.split('_')[0]}]({settings.colab(name + '.ipynb')})" for name in names)
    return f"{badge}\n\nIn Google Colab, without installing anything: {links}.\n{UNTRIED}"


def wanted() -> dict[Path, str]:
    """Each file and what must be in it."""
    settings = load()
    lessons = [load_lesson(path) for path in find()]
    files = {
        FOLDER / f"{lesson.name}.ipynb": nbformat.writes(make(lesson, settings), indent=1) + "\n" for lesson in lessons
    }
    text = README.read_text(encoding="utf-8")
    block = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    if len(block.findall(text)) != 1:
        raise ToolError("README.md lacks its part about Colab", f"put `{BEGIN}` and `{END}` there, a line each")
    part = readme_part([lesson.name for lesson in lessons], settings)
    files[README] = block.sub(lambda _: f"{BEGIN}\n{part}\n{END}", text)
    return files


def stale() -> list[Path]:
    """The files that are not as `make colab` would write them, and notebooks of no lesson."""
    files = wanted()
    changed = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    return changed + sorted(path for path in FOLDER.glob("*.ipynb") if path not in files)
