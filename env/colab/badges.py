"""Links of a lesson's prose, made to work from Colab, where a notebook has no neighbours."""

from __future__ import annotations

import os
import re
from pathlib import Path

from env.colab.settings import Settings
from env.lint import page_rules
from env.notebooks import FOLDER, ROOT

PICTURES = (".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp")
# Code first: what looks like a link inside it is none.
LINK = re.compile(
    r"(?P<code>(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<before>\]\(\s*<?)(?P<target>[^)\s>]+)"
    r"|(?P<tag><(?:a|img)\b[^>]*?\b(?:href|src)=\")(?P<source>[^\"]+)",
    re.IGNORECASE,
)


def rewrite(text: str, settings: Settings, folder: Path = FOLDER) -> str:
    """A Markdown cell of a notebook in `folder`, its links to the repository's files rewritten."""
    lines, fenced = [], False
    for line in text.split("\n"):
        if page_rules.FENCE.match(line):
            fenced = not fenced
        lines.append(line if fenced else LINK.sub(lambda found: _one(found, settings, folder), line))
    return "\n".join(lines)


def _one(found: re.Match[str], settings: Settings, folder: Path) -> str:
    if found["code"]:
        return found[0]
    before, target = found["before"] or found["tag"], found["target"] or found["source"]
    return before + new_target(target, settings, folder)


def new_target(target: str, settings: Settings, folder: Path = FOLDER) -> str:
    """Where a link of a notebook in `folder` leads from the edition's notebook."""
    if page_rules.ELSEWHERE.match(target) or target.startswith(("#", "//")):
        return target
    path, mark, anchor = target.partition("#")
    place = (folder / path).resolve().relative_to(ROOT)
    lesson = (ROOT / place).parent == FOLDER and place.suffix == ".ipynb"
    if not settings.repository:
        # Right where the repository itself is looked at; in Colab such a link leads nowhere.
        there = Path("colab") / place.name if lesson else place
        return os.path.relpath(ROOT / there, ROOT / "colab") + mark + anchor
    if lesson:
        # Colab numbers its headings itself.
        return settings.colab(place.name)
    if place.suffix.lower() in PICTURES:
        return settings.raw(place.as_posix())
    return settings.page(place.as_posix()) + mark + anchor
