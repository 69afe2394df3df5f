"""Our two steps among nbgrader's: a submission is restored, and then executed in isolation."""

from __future__ import annotations

import json
import os
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from env.grading import course, restore
from env.grading.assignment import NOTES
from env.grading.isolation import Isolation, Limits
from env.grading.points import Graded, Grading

# What `make grade` has executed before, several at once: by student, assignment and notebook.
READY: dict[tuple[str, str, str], Graded] = {}


def release(assignment: str, notebook: str) -> NotebookNode:
    """The notebook as it was handed out."""
    file = course.folder() / "release" / assignment / f"{notebook}.ipynb"
    if not file.is_file():
        # nbgrader starts in the course's folder.
        file = file.relative_to(course.folder())
    return nbformat.read(file, as_version=4)


class Restored(NbGraderPreprocessor):
    """The release's cells with the submission's answers in them."""

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        """Of a notebook that `make grade` has restored, the notes stay."""
        if NOTES in nb.metadata:
            return nb, resources
        named = resources["nbgrader"]
        made = restore.restore(release(named["assignment"], named["notebook"]), json.loads(nbformat.writes(nb)))
        made.notebook.metadata[NOTES] = {"told": made.told, "flags": made.flags}
        return made.notebook, resources


class Executed(NbGraderPreprocessor):
    """Executes the answers and their checks in isolation; each check's points become what nbgrader reads."""

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        """By `make grade` it has been done before."""
        named = resources["nbgrader"]
        graded = READY.get((named["student"], named["assignment"], named["notebook"]))
        if graded is None:
            notes = nb.metadata.get(NOTES, {})
            made = restore.Restored(nb, list(notes.get("told", [])), list(notes.get("flags", [])))
            graded = Grading(made, Isolation(os.environ.get("ISOLATION") == "less"), Limits()).run()
        return graded.notebook, resources
