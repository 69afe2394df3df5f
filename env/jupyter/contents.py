"""Lessons are opened from `notebooks/` and saved to `my-lessons/`: autosave and outputs leave the checkout as git knows it.

JupyterLab shows one path for both. Whoever deletes a lesson in the file browser deletes the copy, and has the course's again.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

from env import paths, progress

LESSON = re.compile(r"\d\d[a-z]?_\w+\.ipynb")
# The lesson as it was when its copy was made: tells a copy with work in it from one with outputs alone.
BASES = ".lessons"


def sources(notebook: Path) -> list[str]:
    """What stands in the cells; nothing where the file is damaged."""
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        return ["".join(cell["source"]) for cell in cells]
    except (OSError, ValueError, KeyError, TypeError):
        return []


class LessonContents(AsyncLargeFileManager):
    """JupyterLab's files, with copies in front of lessons. GPULAB_EDIT=1 leaves them away, for who writes lessons."""

    def copy_of(self, original: Path) -> Path | None:
        """Where a lesson's copy is, or would be; None for other files."""
        if os.environ.get("GPULAB_EDIT") == "1" or original.parent != paths.NOTEBOOKS:
            return None
        # Below JupyterLab's own folder: others count as hidden.
        folder = Path(os.environ.get("GPULAB_WORK") or paths.ROOT / "my-lessons")
        return folder / original.name if LESSON.fullmatch(original.name) else None

    def _get_os_path(self, path: str) -> str:
        original = Path(super()._get_os_path(path))
        copy = self.copy_of(original)
        if copy is None or not copy.is_file():
            return str(original)
        base = copy.parent / BASES / copy.name
        updated = base.is_file() and original.is_file() and not filecmp.cmp(base, original, shallow=False)
        if updated and sources(copy) == sources(base):
            copy.unlink()
            return str(original)
        return str(copy)

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        """Saves a lesson as a copy, which the first save makes."""
        there = Path(self._get_os_path(path))
        copy = self.copy_of(there)
        if copy is not None and there.is_file() and not copy.is_file():
            base = copy.parent / BASES / copy.name
            base.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(there, base)
            # With its time: JupyterLab asks whether the file has changed since it was opened.
            shutil.copy2(there, copy)
        saved = await super().save(model, path)
        if copy is not None:
            # What a save loses must never be the learner's work.
            with suppress(Exception):
                progress.note(copy, copy.parent / progress.NAME)
        return saved
