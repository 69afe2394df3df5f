"""The syllabi are as the lessons state, fit into their hours, and take nothing before what it builds on."""

from __future__ import annotations

import pytest
from env import lesson_map, notebooks, syllabi

LESSONS = [notebooks.load(path) for path in notebooks.find()]


def test_the_page_is_as_the_lessons_and_their_notes_say() -> None:
    page = syllabi.PAGE.read_text(encoding="utf-8")
    assert page == syllabi.written(page, LESSONS), "next: python3 -m env.syllabi"
    assert sorted(match[2] for match in syllabi.MARK.finditer(page)) == sorted(syllabi.COURSES)
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
