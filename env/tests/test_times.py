"""The minutes of lessons: what counts, what is found wrong, and how README gets the sums."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from env import notebooks
from env.lint import minutes, reading_times

WORDS = "word " * 1000


def lesson(*cells, name: str = "10_lesson", head: str = "About 20 minutes (quick path: 5)") -> notebooks.Lesson:
    first = nbformat.v4.new_markdown_cell(f"# Lesson\n\n{head}. Builds on: 00.")
    return notebooks.Lesson(Path(f"{name}.ipynb"), nbformat.v4.new_notebook(cells=[first, *cells]))


def text(source: str):
    return nbformat.v4.new_markdown_cell(source)


def exercise():
    return nbformat.v4.new_code_cell("let x = 0;", metadata={"tags": ["exercise"], "exercise": "one"})


def test_each_path_counts_what_it_does():
    plain = reading_times.estimate(lesson(text(f"## Explanation\n\n{WORDS}")))
    assert (plain.standard, plain.quick) == (5, 5)
    long = reading_times.estimate(lesson(text(f"## Question\n\n{WORDS * 4}"), text(f"## Explanation\n\n{WORDS * 4}")))
    assert (long.standard, long.quick) == (40, 20)
    solved = reading_times.estimate(lesson(text("## Exercise"), *(exercise() for _ in range(5))))
    assert (solved.standard, solved.quick) == (40, 30)
    assert (
        reading_times.estimate(lesson(text("## Exercise"), *(exercise() for _ in range(5)), name="02_lesson")).quick
        == 5
    )
    shown = [nbformat.v4.new_code_cell('ladder.diff("02")') for _ in range(10)]
    assert reading_times.estimate(lesson(*shown)).standard == 20
    optional = [text(f"### 3. More (optional)\n\n{WORDS}"), exercise(), text(f"### 4. On\n\n{WORDS}")]
    further = lesson(text(f"## Experiment\n\n{WORDS}"), *optional)
    assert str(reading_times.estimate(further)) == "About 10 minutes (quick path: 5; optional sections: 15)"
    checked = lesson(text("## Check"), text("### Optional exercises"), exercise(), name="02_lesson")
    assert reading_times.estimate(checked) == reading_times.Times(5, 5, 10)
    deeper = lesson(text("## Going deeper (optional)"), text(f"### More\n\n{WORDS}"), text(f"## Where next\n\n{WORDS}"))
    assert str(reading_times.estimate(deeper)) == "About 5 minutes (quick path: 5; optional sections: 5)"
    fenced = text(f"## Question\n\n```text\n{WORDS * 9}\n```")
    assert reading_times.estimate(lesson(fenced)).standard == 5


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("About 40 minutes (quick path: 20)", None),
        ("About 50 minutes (quick path: 30)", None),
        ("About 40 minutes", "both paths"),
        ("About 20 minutes (quick path: 20)", "states 20 minutes, and what it holds takes about 40"),
        ("About 40 minutes (quick path: 40)", "states 40 quick minutes"),
        ("About 40 minutes (quick path: 20; optional sections: 30)", "states 30 optional minutes"),
    ],
)
def test_a_statement_that_is_off_is_found(head, problem):
    long = lesson(text(f"## Question\n\n{WORDS * 4}"), text(f"## Explanation\n\n{WORDS * 4}"), head=head)
    assert (reading_times.wrong(long) or "") == "" if problem is None else problem in reading_times.wrong(long)


def test_readme_gets_the_sums():
    lessons = [lesson(name=name) for name in ("01_a", "02_b", "10_c", "30_d")]
    rows = reading_times.table(lessons)
    assert rows[0] == "| first steps | 01 to 02 | 40 min | 10 min | 0 min |"
    assert "| **the kernel part** | 01 to 10 | 1 h | 15 min | 0 min |" in rows
    assert rows[-1] == "| **all of it** | 01 to 30 | 1 h 20 min | 20 min | 0 min |"
    page = "| [A](notebooks/01_a.ipynb) | 3 things | 7 | [on a CPU](x) |\n\n"
    page += "| part | lessons | standard path | quick path | optional sections |\n| --- | --- | ---: | ---: | ---: |\n| old |\n\nend\n"
    written = minutes.with_sums(page, lessons, rows)
    assert "| 3 things | 20 | [on" in written and "| old |" not in written and written.endswith(f"{rows[-1]}\n\nend\n")


def test_the_kernel_part_is_as_long_as_promised():
    kernel_part = [
        one for one in map(notebooks.load, notebooks.find()) if one.name.startswith(reading_times.KERNEL_PART)
    ]
    stated = [reading_times.stated(one) for one in kernel_part]
    assert 12 <= sum(one.standard for one in stated) / 60 <= 16.5 and 6 <= sum(one.quick for one in stated) / 60 <= 9
