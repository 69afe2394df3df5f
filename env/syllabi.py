#!/usr/bin/env python3
"""Courses made of the lessons: the tables of docs/syllabi.md, with their minutes; `python3 -m env.syllabi` writes them anew.

A unit names its lessons; a lesson with a `~` is taken on the quick path. What a course leaves out follows from that.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from env import in_venv
from env.lint import reading_times
from env.notebooks import ROOT, Lesson, find, load, write
from env.slides import notes

PAGE = ROOT / "docs" / "syllabi.md"
MARK = re.compile(r"(<!-- written by python3 -m env\.syllabi: ([\w-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Course:
    """Units of lessons; `unit` is what one is called, and a class has `minutes` for each."""

    unit: str
    minutes: int
    units: tuple[str, ...]


COURSES = {
    "semester": Course("week", 200, (
        "00 01", "02", "03", "10", "11", "12a 12b", "12c 13", "14 15", "16 17a", "20 21", "30 31a", "40 22~", "41 50~", "60 62",
    )),
    "six-weeks": Course("week", 240, ("00 01 02", "03 10", "11 13", "12a 14", "16 12b", "12c 17a")),
    "two-days": Course("half day", 180, ("00 02~ 03~ 10~", "11~ 13~", "12a~ 14~", "16~ 12c~")),
    "half-day": Course("hour and a half", 95, ("00 10~", "11~")),
}  # fmt: skip


def unit_lessons(unit: str, lessons: list[Lesson]) -> list[tuple[Lesson, bool]]:
    """The lessons of a unit, and whether each is taken quickly."""
    by_number = {lesson.name.partition("_")[0]: lesson for lesson in lessons}
    return [(by_number[word.rstrip("~")], word.endswith("~")) for word in unit.split()]


def minutes(lesson: Lesson, quick: bool) -> float:
    """What a lesson states for that path."""
    said = reading_times.stated(lesson)
    return (said.quick if quick else said.standard) if said else 0.0


def table(course: Course, lessons: list[Lesson]) -> str:
    """The rows of a course, and what it leaves out."""
    rows = [f"| {course.unit} | lessons | minutes | a learner then |", "| --- | --- | ---: | --- |"]
    taken, total = set(), 0.0
    for number, unit in enumerate(course.units, 1):
        parts = unit_lessons(unit, lessons)
        names = [f"[{_short(one)}](../notebooks/{one.name}.ipynb){' (quick path)' * quick}" for one, quick in parts]
        spent = sum(minutes(one, quick) for one, quick in parts)
        goals = "; ".join(f"({one.name.partition('_')[0]}) {_objective(one)}" for one, _ in parts)
        rows.append(f"| {number} | {'<br>'.join(names)} | {spent:.0f} | {goals} |")
        taken |= {one.name for one, _ in parts}
        total += spent
    out = [one.name.partition("_")[0] for one in lessons if one.name not in taken]
    left = f"Left out: lessons {', '.join(out)}." if out else "Nothing is left out."
    return "\n".join([*rows, "", f"{reading_times.hours(total)} in all. {left}", ""])


def _short(lesson: Lesson) -> str:
    return lesson.notebook.cells[0].source.splitlines()[0].lstrip("# ").split(":")[0].split(",")[0].strip()


def _objective(lesson: Lesson) -> str:
    said = notes.of(lesson).objective.rstrip(".")
    return re.sub(r"^a learner ", "", said)


def written(page: str, lessons: list[Lesson]) -> str:
    """The page with its tables as the lessons and their notes have it."""
    return MARK.sub(lambda match: match[1] + table(COURSES[match[2]], lessons), page)


def main() -> int:
    """Writes the tables of the page."""
    write(PAGE, written(PAGE.read_text(encoding="utf-8"), [load(path) for path in find()]))
    return 0


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    sys.exit(main())
