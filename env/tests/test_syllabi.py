"""The syllabi are as the lessons state, fit into their hours, and take nothing before what it builds on."""

from __future__ import annotations

import re

import pytest
from env import lesson_map, notebooks, syllabi
from env.lint import page_rules

LESSONS = [notebooks.load(path) for path in notebooks.find()]


def test_the_page_is_as_the_lessons_and_their_notes_say() -> None:
    page = syllabi.PAGE.read_text(encoding="utf-8")
    assert page == syllabi.written(page, LESSONS), "next: python3 -m env.syllabi"
    assert sorted(match[2] for match in syllabi.MARK.finditer(page)) == sorted([*syllabi.COURSES, syllabi.DAILY])
    # A change of what a lesson states shows.
    LESSONS[0].notebook.cells[0].source = LESSONS[0].notebook.cells[0].source.replace("25 minutes", "35 minutes")
    assert page != syllabi.written(page, LESSONS)
    LESSONS[0].notebook.cells[0].source = LESSONS[0].notebook.cells[0].source.replace("35 minutes", "25 minutes")


@pytest.mark.parametrize("name", syllabi.COURSES)
def test_a_course_fits_its_hours_and_builds_on_what_came_before(name: str) -> None:
    course = syllabi.COURSES[name]
    builds_on = lesson_map.Map(LESSONS).stated
    units = [syllabi.unit_lessons(unit, LESSONS) for unit in course.units]
    taken = [lesson.name for unit in units for lesson, _ in unit]
    assert len(taken) == len(set(taken))
    for unit in units:
        assert sum(syllabi.minutes(*part) for part in unit) <= course.minutes, unit
    for at, one in enumerate(taken):
        late = [base for base in builds_on[one] if base in taken[at:]]
        assert not late, f"{one} comes before {late}"


def test_the_thirty_days_have_every_lesson_once() -> None:
    rows = [line for line in syllabi.daily(LESSONS).splitlines() if "/notebooks/" in line]
    assert sorted(line.split("/notebooks/")[1].split(".")[0] for line in rows) == [lesson.name for lesson in LESSONS]


def test_what_shows_an_objective_exists_and_what_is_left_out_first_is_not_what_shows_it() -> None:
    questions = set(syllabi.QUESTION.findall(syllabi.EXAM.read_text(encoding="utf-8")))
    quickly = {
        word.rstrip("~")
        for course in syllabi.COURSES.values()
        for word in " ".join(course.units).split()
        if "~" in word
    }
    assert set(syllabi.PARTS) == {syllabi.number(lesson) for lesson in LESSONS}
    for lesson in LESSONS:
        part, own = syllabi.PARTS[syllabi.number(lesson)], syllabi.exercises(lesson)
        for names in (part.shown, part.shown_quick) if part.quick else (part.shown,):
            assert names, f"{lesson.name}: nothing shows its objective"
            assert not set(names) - set(own) - questions, lesson.name
        assert part.quick or syllabi.number(lesson) not in quickly, (
            f"{lesson.name} is taken quickly without an objective"
        )
        headings = [
            one.text
            for cell in lesson.notebook.cells
            if cell.cell_type == "markdown"
            for one in page_rules.headings(cell.source)
        ]
        for piece in part.skip:
            assert piece in own or any(piece in one for one in headings), f"{lesson.name} has no part `{piece}`"
            assert piece not in part.shown, f"{lesson.name}: `{piece}` shows the objective, and is left out first"
        assert syllabi.spared(lesson, part.skip, quick=False) > 0, lesson.name


def test_the_exam_has_questions_on_every_lesson() -> None:
    topics = page_rules.headings(syllabi.EXAM.read_text(encoding="utf-8"))
    named = " ".join(one.text.partition("(")[2] for one in topics if one.level == 2)
    numbers = {syllabi.number(lesson) for lesson in LESSONS}
    covered = set(re.findall(r"\d\d[a-z]?", named))
    for first, last in re.findall(r"(\d\d[a-z]?) to (\d\d[a-z]?)", named):
        covered |= {one for one in numbers if first <= one <= last}
    # 31 stands for 31a and 31b.
    assert not {one for one in numbers if one not in covered and one.rstrip("abc") not in covered}
