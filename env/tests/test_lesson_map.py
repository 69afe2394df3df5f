"""The map of the lessons and the plan for 30 days follow what the lessons state; lessons have one name everywhere."""

from __future__ import annotations

import re

import nbformat
import pytest
from env import lesson_map, notebooks
from env.lint import names


def lesson(name: str, bases: str, minutes: int = 60) -> notebooks.Lesson:
    head = f"# {name[:2]} · Lesson {name}: why\n\nAbout {minutes} minutes (quick path: {minutes // 2}). Builds on: {bases}\n\nMore."
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(head)])
    return notebooks.Lesson(notebooks.FOLDER / f"{name}.ipynb", notebook)


LESSONS = [
    lesson("00_a", "Rust."),
    lesson("01_b", "[00](00_a.ipynb)."),
    lesson("02_c", "[00](00_a.ipynb) (x) and [01](01_b.ipynb). It says nothing of [03](03_d.ipynb)."),
    lesson("03_d", "[00](00_a.ipynb)."),
    lesson("04_e", "[03](03_d.ipynb), [02](02_c.ipynb)."),
]


def test_the_picture_and_the_page_are_as_the_lessons_say():
    lessons = [notebooks.load(path) for path in notebooks.find()]
    advice = "next: python3 -m env.lesson_map"
    assert lesson_map.FILE.read_text(encoding="utf-8") == lesson_map.draw(lessons), advice
    page = lesson_map.PAGE.read_text(encoding="utf-8")
    assert page == lesson_map.written(page, lessons), advice
    assert page.count("<!-- written by python3 -m env.lesson_map") == 2
    assert all(page.count(f"{one.name}.ipynb)") >= 2 for one in lessons)


def test_what_builds_on_what():
    found = lesson_map.Map(LESSONS)
    assert found.stated["02_c"] == ["00_a", "01_b"]
    assert found.drawn("02_c") == ["01_b"]
    assert found.below("04_e") == {"00_a", "01_b", "02_c", "03_d"}
    assert [found.level(name) for name in found.stated] == [0, 1, 2, 1, 3]
    assert found.rows() == [["00_a"], ["01_b", "03_d"], ["02_c"], ["04_e"]]


def test_a_change_of_what_a_lesson_builds_on_shows():
    changed = [*LESSONS[:4], lesson("04_e", "[00](00_a.ipynb).")]
    assert lesson_map.draw(LESSONS) != lesson_map.draw(changed)
    assert lesson_map.bases(LESSONS) != lesson_map.bases(changed)


def test_six_side_by_side_take_two_rows():
    many = [LESSONS[0], *(lesson(f"1{at}_x", "[00](00_a.ipynb).") for at in range(6))]
    assert [len(row) for row in lesson_map.Map(many).rows()] == [1, 3, 3]


def test_thirty_days_hold_every_lesson_in_order():
    plan = lesson_map.plan(LESSONS)
    # Once each, and nowhere before what it builds on.
    assert all(plan.count(f"/{one.name}.ipynb") == 1 for one in LESSONS)
    stated = lesson_map.Map(LESSONS).stated
    assert all(plan.index(base) < plan.index(name) for name, bases in stated.items() for base in bases)
    days = [int(day) for said in re.findall(r"\(days? ([^)]+)\)", plan) for day in re.findall(r"\d+", said)]
    assert days == sorted(days) and max(days) <= 28 and all(day % 7 for day in days)
    assert days[0] == 1 and days[-1] == 27 and "| 29 to 30 |" in plan


TEXTS = {
    "[00 · Lesson 00_a](notebooks/00_a.ipynb)": 0,
    "[00](notebooks/00_a.ipynb), [lesson 00](notebooks/00_a.ipynb), [00 · Other](elsewhere.md)": 0,
    "[00 · Lesson](notebooks/00_a.ipynb)": 1,
    "[Lesson 00_a · 00](notebooks/00_a.ipynb)": 1,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_lesson_has_one_name(text):
    assert len(list(names.wrong(text, {one.name: one for one in LESSONS}))) == TEXTS[text]


def test_names_are_the_same_in_the_course():
    lessons = [notebooks.load(path) for path in notebooks.find()]
    assert [str(one) for one in names.check(lessons)] == []
