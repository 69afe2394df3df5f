"""The course's folder, as nbgrader has it, and the settings that this project writes for nbgrader."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from env import paths
from env.console import ToolError

SETTINGS = "nbgrader_config.py"
# nbgrader's own lists of steps, but: an exercise cell's text is no solution to be cleared; cells are run in isolation, and
# a verdict becomes points.
TEXT = '''"""nbgrader's settings for this course, written by `make assignment`; what you change below the line stays."""

import sys

sys.path.insert(0, {root!r})
c = get_config()
c.CourseDirectory.course_id = "gpulab"
c.CourseDirectory.root = {course!r}
c.GenerateAssignment.preprocessors = [
    "nbgrader.preprocessors.LockCells",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.CheckCellMetadata",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.SaveCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.sanitize_preprocessors = [
    "env.grading.nbgrader_steps.Restored",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.autograde_preprocessors = [
    "env.grading.nbgrader_steps.Executed",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
'''
LINE = "# ---- yours\n"


def folder() -> Path:
    """Where the course is: my-course/ in this checkout, or what COURSE names."""
    return Path(os.environ.get("COURSE") or paths.ROOT / "my-course").resolve()


def asked_for() -> None:
    """nbgrader is a package of the group `grading`, and never a learner's."""
    if importlib.util.find_spec("nbgrader") is None:
        step = "python3 -m env.setup --packages grading, where packages can be fetched; elsewhere: pip install nbgrader"
        raise ToolError("nbgrader is not installed", step)


def write_settings(place: Path) -> None:
    """The settings; lines below `LINE` are the teacher's own."""
    file = place / SETTINGS
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    own = before.partition(LINE)[2]
    text = TEXT.format(root=str(paths.ROOT), course=str(place)) + LINE + own
    if text != before:
        paths.write_text(file, text)


def api(place: Path) -> Any:
    """nbgrader, with the course's settings."""
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import PyFileConfigLoader

    if not (place / SETTINGS).is_file():
        raise ToolError(f"{place} is no course: it has no {SETTINGS}", "make assignment LESSONS=10")
    # nbgrader calls alembic, which is installed beside this Python, by its name alone.
    beside = str(Path(sys.executable).parent)
    if beside not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([beside, os.environ["PATH"]])
    if str(paths.ROOT) not in sys.path:
        sys.path.insert(0, str(paths.ROOT))
    return NbGraderAPI(config=PyFileConfigLoader(SETTINGS, path=str(place)).load_config())


def done(result: dict[str, Any], what: str, next_step: str) -> None:
    """An answer of nbgrader's: its log, where it failed."""
    if not result.get("success"):
        said = str(result.get("log") or result.get("error") or "").strip()[-1500:]
        raise ToolError(f"{what} failed in nbgrader:\n{said}", next_step)
