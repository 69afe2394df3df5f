"""`make grade ASSIGNMENT=…  SUBMISSIONS=DIR`: collects what came back, runs it in isolation, and lets nbgrader keep points and feedback.

In DIR lies a folder for each learner, or, for an assignment of one notebook, a file LEARNER.ipynb. Files stay as they are.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env import in_venv

if __name__ == "__main__":
    # Before nbformat is asked for: where `make` calls, only the standard library need be there.
    in_venv.enter("grading")

import nbformat
from nbformat import NotebookNode

from env.console import ToolError, tool
from env.grading import copies, course, restore
from env.grading.assignment import NOTES
from env.grading.isolation import Isolation, Limits
from env.grading.points import Graded, Grading
from env.notebooks import relative, write

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>:root{{color-scheme:light dark}}body{{margin:2rem auto;max-width:52rem;padding:0 1rem;font:1.05rem/1.55 system-ui}}</style>
</head><body><h1>{title}</h1><p>{what}</p></body></html>
"""


@dataclass
class Learner:
    """A learner's submission, by notebook."""

    name: str
    files: dict[str, Path] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    restored: dict[str, restore.Restored] = field(default_factory=dict)
    graded: dict[str, Graded] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def found(place: Path, notebooks: list[str]) -> list[Learner]:
    """The learners whose submissions lie in a folder."""
    if not place.is_dir():
        raise ToolError(f"SUBMISSIONS={place} is no folder", "name the folder with what came back")
    learners = []
    for entry in sorted(place.iterdir()):
        name = entry.stem if entry.is_file() else entry.name
        if name.startswith(".") or (entry.is_file() and len(notebooks) > 1):
            continue
        if not re.fullmatch(r"[\w.@-]+", name):
            raise ToolError(f"`{name}` cannot be a learner's name in nbgrader", f"rename it: {relative(entry)}")
        one = Learner(name)
        for notebook in notebooks:
            file = entry if entry.is_file() else entry / f"{notebook}.ipynb"
            if entry.is_dir() and not file.exists() and len(notebooks) == 1:
                others = sorted(entry.glob("*.ipynb"))
                file = others[0] if len(others) == 1 else file
            one.files[notebook] = file
        if one.name in [other.name for other in learners]:
            raise ToolError(f"{name} has handed in twice in {relative(place)}", "leave the one that counts")
        learners.append(one)
    if not learners:
        raise ToolError(f"there is no submission in {relative(place)}", "a folder for each learner, or LEARNER.ipynb")
    return learners


class Grader:
    """One call of `make grade`."""

    def __init__(self, name: str, place: Path, less: bool, limits: Limits, jobs: int) -> None:
        self.name, self.place, self.limits, self.jobs = name, place, limits, jobs
        folder = place / "release" / name
        files = sorted(folder.glob("*.ipynb")) if name else []
        if not files:
            known = ", ".join(sorted(one.name for one in (place / "release").glob("*"))) or "none yet"
            raise ToolError(
                f"there is no assignment `{name}`; there are: {known}", "make grade ASSIGNMENT=one of these"
            )
        self.releases: dict[str, NotebookNode] = {file.stem: nbformat.read(file, as_version=4) for file in files}
        self.isolation = Isolation(less)

    def restore(self, learner: Learner) -> None:
        """Reads what was handed in; what cannot be read is told, and graded with no points."""
        for notebook, file in learner.files.items():
            try:
                if not file.is_file():
                    raise ToolError(f"{notebook}.ipynb is not there", "hand in the notebook under its name")
                learner.restored[notebook] = restore.restore(self.releases[notebook], restore.read(file))
            except ToolError as error:
                learner.unread[notebook] = str(error)

    def execute(self, learner: Learner) -> Learner:
        """Runs what could be read."""
        for notebook, made in learner.restored.items():
            try:
                learner.graded[notebook] = Grading(made, self.isolation, self.limits).run()
            except ToolError as error:
                learner.failed[notebook] = str(error)
        return learner

    def keep(self, learner: Learner, nbgrader: Any) -> None:
        """Gives nbgrader the restored notebooks and what they gave: points in its gradebook, pages for the learner."""
        from env.grading import nbgrader_steps

        place = self.place / "submitted" / learner.name / self.name
        shutil.rmtree(place, ignore_errors=True)
        for notebook, graded in learner.graded.items():
            nbgrader_steps.READY[learner.name, self.name, notebook] = graded
            bare = restore.restore(self.releases[notebook], json.loads(nbformat.writes(graded.notebook))).notebook
            bare.metadata[NOTES] = {"told": graded.told, "flags": graded.flags}
            write(place / f"{notebook}.ipynb", nbformat.writes(bare) + "\n")
        if learner.graded:
            step = "see its log; nothing of the submission is lost"
            course.done(nbgrader.autograde(self.name, learner.name, force=True), f"grading {learner.name}", step)
            course.done(nbgrader.generate_feedback(self.name, learner.name, force=True), "the feedback", step)
        pages = self.place / "feedback" / learner.name / self.name
        for notebook, why in (learner.unread | learner.failed).items():
            text = why.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "<br>")
            write(pages / f"{notebook}.html", PAGE.format(title=f"{notebook} could not be graded", what=text))


def rows(grader: Grader, learners: list[Learner]) -> list[list[str]]:
    """The table: a row for each learner, without anything that differs from run to run."""
    names = [exercise for release in grader.releases.values() for exercise in restore.answers(release)]
    table = [["learner", *names, "points", "remarks"]]
    for one in learners:
        grades = {grade.exercise: grade for graded in one.graded.values() for grade in graded.grades}
        cells = [f"{grades[name].points:g} {grades[name].verdict}" if name in grades else "-" for name in names]
        remarks = [f"{file.splitlines()[0]}" for file in (*one.unread.values(), *one.failed.values())]
        remarks += [text for graded in one.graded.values() for text in (*graded.told, *graded.flags)]
        total = sum(graded.points() for graded in one.graded.values())
        table.append([one.name, *cells, f"{total:g}", " ".join(remarks)])
    return table


def text(table: list[list[str]]) -> str:
    """The table for a terminal."""
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]) - 1)]
    return "\n".join("  ".join([*(f"{c:<{w}}" for c, w in zip(row, widths, strict=False)), row[-1]]) for row in table)


def grade(grader: Grader, submissions: Path) -> tuple[list[list[str]], list[tuple[str, list[str], str]]]:
    """Grades a folder of submissions: the table, and who is alike."""
    learners = found(submissions, list(grader.releases))
    nbgrader = course.api(grader.place)
    for one in learners:
        grader.restore(one)
    alike = copies.groups(
        {
            one.name: {n: c.source for m in one.restored.values() for n, c in restore.answers(m.notebook).items()}
            for one in learners
        },
        {n: {c.source} for release in grader.releases.values() for n, c in restore.answers(release).items()},
    )
    with ThreadPoolExecutor(grader.jobs) as pool:
        for number, one in enumerate(pool.map(grader.execute, learners), 1):
            grader.keep(one, nbgrader)
            points = sum(graded.points() for graded in one.graded.values())
            took = sum(graded.seconds for graded in one.graded.values())
            print(f"[{number}/{len(learners)}] {one.name}: {points:g} points, {took:.0f} s", flush=True)
    return rows(grader, learners), alike


def main() -> int:
    """Grades what ASSIGNMENT and SUBMISSIONS name; LIMIT is the seconds a cell may take, JOBS how many run at once."""
    course.asked_for()
    place, started = course.folder(), time.monotonic()
    submissions = os.environ.get("SUBMISSIONS", "")
    if not submissions:
        raise ToolError(
            "which submissions?", "make grade ASSIGNMENT=lesson-10 SUBMISSIONS=the folder with what came back"
        )
    try:
        limits = Limits(cell_s=float(os.environ.get("LIMIT") or Limits.cell_s))
        jobs = max(1, int(os.environ.get("JOBS") or 1))
    except ValueError:
        raise ToolError("LIMIT and JOBS are numbers", "make grade … LIMIT=60 JOBS=2") from None
    grader = Grader(os.environ.get("ASSIGNMENT", ""), place, os.environ.get("ISOLATION") == "less", limits, jobs)
    print(f"isolation: {grader.isolation.words}")
    table, alike = grade(grader, Path(submissions).resolve())
    file = place / "grades" / f"{grader.name}.csv"
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    write(file, out.getvalue())
    print("\n" + text(table))
    for exercise, learners, how in alike:
        print(f"alike, `{exercise}`: {', '.join(learners)} ({how}); no points were taken")
    print(f"\n{len(table) - 1} submissions in {time.monotonic() - started:.0f} s: {relative(file)}")
    print(
        f"feedback, a page for each learner: {relative(place / 'feedback')}; gradebook: {relative(place / 'gradebook.db')}"
    )
    return 0


if __name__ == "__main__":
    tool(main)
