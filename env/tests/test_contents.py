"""Lessons that are saved in JupyterLab leave the checkout as it was."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from env import paths

pytest.importorskip("jupyter_server")


def notebook(source: str, output: str = "") -> dict:
    """One code cell; with an output when it has run."""
    shown = [{"output_type": "stream", "name": "stdout", "text": output}] if output else []
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": shown, "source": source}
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


class Lab:
    """JupyterLab's view of a small checkout."""

    def __init__(self, root: Path) -> None:
        from env.jupyter.contents import LessonContents

        (root / "notebooks").mkdir()
        self.lesson, self.copy = root / "notebooks/00_welcome.ipynb", root / "my-lessons/00_welcome.ipynb"
        self.lesson.write_text(json.dumps(notebook("1")))
        self.manager = LessonContents(root_dir=str(root))

    def save(self, content: dict, name: str = "00_welcome.ipynb") -> None:
        model = {"type": "notebook", "format": "json", "content": content}
        asyncio.run(self.manager.save(model, f"notebooks/{name}"))

    def shown(self) -> str:
        return asyncio.run(self.manager.get("notebooks/00_welcome.ipynb"))["content"]["cells"][0]["source"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path / "notebooks")
    for name in ("GPULAB_WORK", "GPULAB_EDIT"):
        monkeypatch.delenv(name, raising=False)
    return Lab(tmp_path)


def test_work_is_saved_beside_the_lesson_and_shown_again(lab: Lab) -> None:
    before = lab.lesson.read_bytes()
    lab.save(notebook("my answer"))
    assert lab.lesson.read_bytes() == before
    assert "my answer" in lab.copy.read_text()
    assert lab.shown() == "my answer"
    asyncio.run(lab.manager.delete_file("notebooks/00_welcome.ipynb"))
    assert lab.shown() == "1"
    assert lab.lesson.read_bytes() == before


def test_a_new_version_of_a_lesson_is_shown_where_no_work_would_be_lost(lab: Lab) -> None:
    lab.save(notebook("1", "an output"))
    lab.lesson.write_text(json.dumps(notebook("2")))
    assert lab.shown() == "2"
    lab.save(notebook("my answer"))
    lab.lesson.write_text(json.dumps(notebook("3")))
    assert lab.shown() == "my answer"


def test_other_notebooks_and_authors_are_left_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    other = lab.lesson.with_name("mine.ipynb")
    lab.save(notebook("5"), other.name)
    assert '"5"' in other.read_text()
    monkeypatch.setenv("GPULAB_EDIT", "1")
    lab.save(notebook("a better lesson"))
    assert "a better lesson" in lab.lesson.read_text()
    assert not lab.copy.exists()
