"""The glossary: terms in bold have an entry, entries have a lesson, and nothing else is asked for."""

from __future__ import annotations

import nbformat
import pytest
from env import notebooks
from env.lint import glossary

PAGE = """# Glossary

- **warp**: 32 threads of a block.
- **bank**, **bank conflict**: A part of shared memory.
- **block**: Threads; many are a **grid**.
"""


def lesson(text: str, name: str = "02_a") -> notebooks.Lesson:
    cells = [
        nbformat.v4.new_markdown_cell("# 02 · A lesson: why\n\nAbout 20 minutes."),
        nbformat.v4.new_markdown_cell(text),
    ]
    return notebooks.Lesson(notebooks.FOLDER / f"{name}.ipynb", nbformat.v4.new_notebook(cells=cells))


def fit(text: str, *lessons: notebooks.Lesson) -> str:
    return glossary.written(text, glossary.Uses(list(lessons)))


def test_entries_get_an_order_and_their_lesson():
    first, second = lesson("Each **warp** of a block.", "02_a"), lesson("**Banks**, **blocks** and a **warp**.", "03_b")
    page = fit(PAGE, first, second)
    lines = [line for line in page.splitlines() if line.startswith("- ")]
    assert [line[4:8] for line in lines] == ["bank", "bloc", "warp"]
    assert lines[0].endswith("[02 · A lesson](../notebooks/03_b.ipynb)")
    assert lines[2].endswith("[02 · A lesson](../notebooks/02_a.ipynb)")
    # In bold counts more than an earlier mention.
    assert lines[1].endswith("(../notebooks/03_b.ipynb)")
    assert fit(page, first, second) == page and "## B" in page
    assert glossary.check([first, second], page) == []


def test_where_a_term_is_nowhere_in_bold_the_lesson_of_that_name_explains_it():
    entry = glossary.Entry(["flash attention"], "In one kernel.", "")
    names = lesson("Next: [31 · Flash attention](31_flash.ipynb).", "12_a")
    uses, named = lesson("Flash attention is fast.", "14_b"), lesson("In one kernel.", "31_flash")
    assert glossary.Uses([names, uses]).first(entry) is uses
    named.notebook.cells[0].source = "# 31 · Flash attention"
    assert glossary.Uses([names, uses, named]).first(entry) is named
    assert glossary.Uses([names]).first(entry) is None


FAULTS = {
    "a term without an entry": ("Each **warp**, **block**, **bank**: a **wavefront**.", "**wavefront** has no entry"),
    "an entry that is not used": ("Each **warp** and **block**.", "no notebook uses **bank**"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    text, wanted = FAULTS[name]
    one = lesson(text)
    found = [str(finding) for finding in glossary.check([one], fit(PAGE, one))]
    assert len(found) == 1 and wanted in found[0] and "next: " in found[0]


def test_a_page_that_is_out_of_date_twice_or_unreadable_is_found():
    one = lesson("Each **warp**, **block**, **bank**.")
    page = fit(PAGE, one)
    assert "out of date" in str(glossary.check([one], page.replace("02_a", "01_b"))[0])
    assert "**warp** stands there twice" in str(glossary.check([one], page + "- **Warps**: again\n"))
    assert "is no entry" in str(glossary.check([one], page + "- warp: again\n"))


@pytest.mark.parametrize(
    "text",
    [
        "**Batch size.** It",
        "**17 times**",
        "**Why is that so?**",
        "**a rule that is a whole sentence**",
        "`**lane**`",
        "**`add`**",
    ],
)
def test_what_is_no_term(text):
    assert glossary.missing(lesson(text), set()) == []


@pytest.mark.parametrize(
    "text", ["**Warps**", "**warp**", "**warp.**", "**bank conflicts**", "**Bank-conflict**", "**grid**"]
)
def test_plural_and_capitals_are_the_same_term(text):
    assert glossary.without_entry([lesson(text)], PAGE) == []


def test_the_glossary_is_as_the_course_is():
    lessons = [notebooks.load(path) for path in notebooks.find()]
    assert glossary.check(lessons) == []
    assert len(glossary.entries(glossary.PAGE.read_text(encoding="utf-8"))) > 150
