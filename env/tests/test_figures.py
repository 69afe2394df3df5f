"""Figures in prose: what counts as one, and each kind of source, right and planted wrong."""

from __future__ import annotations

import nbformat
import pytest
from env import notebooks
from env.lint import figures, quantities


def texts(text: str) -> list[str]:
    return [one.text for one in quantities.find(text)]


def test_numbers_with_units_are_found():
    text = """A load takes 335 ns, 40, 290 and 660 clock cycles at 1.98 GHz; 4.8 TB/s, **12.6** MB, 8–15 GB/s.
    It is 10× faster, 2.5 × as fast, 26 times slower, ten times the memory, 98 % of it, 700 W, half a microsecond,
    1.5 million images/s, 3 · 10⁹ tokens a second, 5 FLOP/byte, 30 seconds and 2000 bytes."""
    assert texts(text) == [
        "335 ns", "40, 290 and 660 clock cycles", "1.98 GHz", "4.8 TB/s", "12.6 MB", "8–15 GB/s", "10×", "2.5 ×",
        "26 times", "ten times", "98 %", "700 W", "half a microsecond", "1.5 million images/s", "3 · 10⁹ tokens a second",
        "5 FLOP/byte", "30 seconds", "2000 bytes",
    ]  # fmt: skip


# Figures that once stood beside other ones in the same lesson's output: each asks for a source now.
STOOD_BESIDE_OTHERS = """The first call takes 15–30 ms; with copies it is 4× as long. A copy took 38/49 ms, a wait 11.1 µs, at 8–15 GB/s.
    It would take a second. One token takes 163 µs, and ten times the memory. The products are 99.7 % of the work; 4.8 and 5.4 ms.
    In 8 bits it is up to four times as fast; grouping 874×; it has 1.6 MB in flight and reaches 81 %; a load takes 335 ns."""


def test_figures_that_contradicted_their_output_would_be_found():
    assert texts(STOOD_BESIDE_OTHERS) == [
        "15–30 ms", "4×", "38/49 ms", "11.1 µs", "8–15 GB/s", "a second", "163 µs", "ten times", "99.7 %", "4.8 and 5.4 ms",
        "four times", "874×", "1.6 MB", "81 %", "335 ns",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["it takes a second launch", "a second a day", "so it took a minute part", "a second"])
def test_a_second_is_not_always_a_time(text):
    assert texts(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "`5 ms`, $6\\,ms$ and $7 ms$, [a page](https://example.org/8ms), <!-- 9 ms -->, https://example.org/10%20ms",
        "```text\n11 ms\n```",
        "$$12 ms$$",
        "a 16×16 tile, 3×3, 1024 × 1024, 4 × n, 256 threads, 32 lanes, lesson 10, 8 bits, in 2017, a 7B model, an H100",
        "16 bytes, a 4-byte word, 128 bytes a line",
        "arrays of 256 MiB, 1 GiB and 4 KiB",
        "in MB (10⁶ bytes), in MiB (2²⁰ bytes), 10¹² operations a second",
        "95 % confidence, at 100 %",
        "1 KiB = 1024 B, 1.5 KB = 1500 B",
        "read three times, 4 times in all, eight times as many sectors, a few hundred thousand times less",
    ],
)
def test_what_is_no_figure(text):
    assert texts(text) == []


def test_a_definition_that_is_wrong_is_a_figure():
    assert texts("1.5 KiB = 1500 B") == ["1.5 KiB", "1500 B"]


def test_names_before_a_number_do_not_join_it():
    assert texts("in lesson 10 and 4 ms") == ["4 ms"]
    assert texts("16,384, or 98.8 %") == ["98.8 %"]


def test_a_column_has_the_unit_of_its_head():
    table = "| rung | GB/s (recorded) | waits |\n| --- | ---: | --- |\n| 01 | 2.3 | 7 |\n| 02 | **860** | a queue |\n"
    assert texts(table) == ["2.3 GB/s", "860 GB/s"]


@pytest.mark.parametrize(
    ("number", "value", "by"),
    [
        ("4.8", 4.8, 0.05),
        ("335", 335, 0.5),
        ("4200", 4200, 50),
        ("10", 10, 0.5),
        ("400,000", 4e5, 2e4),
        ("2¹⁰", 1024, 51.2),
    ],
)
def test_digits_shown(number, value, by):
    assert quantities.value(number) == pytest.approx(value)
    assert quantities.tolerance(number) == pytest.approx(by)


CSV = """experiment,backend,value,unit,us_a_token
"sum: a, b",cuda,2.154,ms,10.5
copy,cuda,4214,GB/s,11
copy,cpu,90,GB/s,12
twice,cuda,5,ms,1
twice,cuda,5,ms,2
"""


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A folder with one recorded file, in place of the course's own."""
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    (tmp_path / "results").mkdir()
    file = tmp_path / "results" / "a.csv"
    file.write_text(CSV)
    return file


def told(text: str, sources: object, tmp_path, code: str = "let launch_us = 5.0;", more: str = "") -> list[str]:
    """The findings of a notebook with this one Markdown cell."""
    first = nbformat.v4.new_markdown_cell("# A lesson\n\nAbout 20 minutes (quick path: 10). Builds on: 00.")
    cell = nbformat.v4.new_markdown_cell(f"{more}{text}", metadata={"figures": sources} if sources is not None else {})
    made = nbformat.v4.new_notebook(cells=[first, cell, nbformat.v4.new_code_cell(code)])
    lesson = notebooks.Lesson(tmp_path / "02_a.ipynb", made)
    return [str(finding) for finding in figures.check(lesson)]


GOOD = {
    "cited": ("4.8 TB/s", "cited: https://www.nvidia.com/en-us/data-center/h200/, table 1"),
    "derived": ("12.6 MB", "derived: 2048 * 1536 * 4 / 1e6"),
    "derived about": ("4200 GB/s", "derived: 42 * 100.3"),
    "derived list": ("8 and 15 GB/s", ["derived: 2 ** 3", "derived: 3 * 5"]),
    "row": ("2.15 ms", "row: results/a.csv experiment=sum: a, b,backend=cuda"),
    "row in another unit": ("4.2 TB/s", "row: results/a.csv experiment=copy,backend=cuda"),
    "row of another column": ("10.5 µs", "row: results/a.csv experiment=sum: a, b -> us_a_token µs"),
    "same value twice": ("5 ms", "row: results/a.csv experiment=twice"),
    "ratio of rows": (
        "47×",
        "derived: {results/a.csv experiment=copy,backend=cuda} / {results/a.csv experiment=copy,backend=cpu}",
    ),
    "given": ("5 µs", "given: let launch_us = 5.0"),
    "given, as an example": ("2 %", "given: an example"),
    "a size, though it needs none": ("16 bytes", "derived: 4 * 4"),
    "what is counted": ("64 warps", "derived: 2048 / 32"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_source_is_enough(name, tmp_path, recorded):
    text, source = GOOD[name]
    assert told(f"It is {text} there.", {text: source}, tmp_path) == []


BAD = {
    "none": ("335 ns", None, "has no source"),
    "another form": ("335 ns", "measured once", "has the source"),
    "cited nowhere": ("335 ns", "cited: NVIDIA", "no address"),
    "derived is off": ("12.7 MB", "derived: 2048 * 1536 * 4 / 1e6", "12.5829"),
    "derived from itself": ("335 ns", "derived: 335", "derives nothing"),
    "derived by a program": ("335 ns", "derived: __import__('os').getpid() * 1", "cannot be computed"),
    "derived from an attribute": ("335 ns", "derived: (1).real * 335", "cannot be computed"),
    "derived too large": ("335 ns", "derived: 9 ** 9 ** 9 ** 9", "cannot be computed"),
    "derived by zero": ("335 ns", "derived: 335 / 0", "cannot be computed"),
    "derived complex": ("335 ns", "derived: (-8) ** 0.5", "cannot be computed"),
    "row changed": ("2.25 ms", "row: results/a.csv experiment=sum: a, b", "2.154 ms"),
    "row missing": ("2.15 ms", "row: results/a.csv experiment=sums", "no row"),
    "row ambiguous": ("90 GB/s", "row: results/a.csv experiment=copy", "choose also by backend"),
    "row by no column": ("90 GB/s", "row: results/a.csv machine=x", "no column `machine`"),
    "row of no column": ("90 µs", "row: results/a.csv backend=cpu -> us µs", "no column `us`"),
    "row in another kind of unit": ("90 ms", "row: results/a.csv backend=cpu", "not in the unit"),
    "row of no number": ("90 ms", "row: results/a.csv backend=cpu -> experiment ms", "no number"),
    "no file": ("90 ms", "row: results/b.csv backend=cpu", "there is no results/b.csv"),
    "file elsewhere": ("90 ms", "row: results/../a.csv backend=cpu", "no CSV file below results/"),
    "given nowhere": ("5 µs", "given: let launch_us = 6.0", "no code cell"),
    "given without a number": ("5 µs", "given: launch_us", "holds no name and number"),
    "given without a name": ("5 µs", "given: 5.0", "holds no name and number"),
    "given outside of exercises": ("5 µs", "given: by the exercise", "no code cell"),
    "measured, in a notebook": ("5 µs", "measured: 2026-11-21, AMD EPYC, 2 cores", "has the source"),
    "two sources for three": ("1, 2 and 3 ms", ["derived: 1 * 1", "derived: 1 * 2"], "2 sources for 3 numbers"),
    "a size that is off": ("16 bytes", "derived: 4 * 5", "`16 bytes` is 20"),
    "one of two is off": ("1 and 3 ms", ["derived: 1 * 1", "derived: 1 * 2"], "`3` of `1 and 3 ms` is 2 ms"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_planted_fault_is_found(name, tmp_path, recorded):
    text, source, wanted = BAD[name]
    found = told(f"It is {text} there.", {text: source} if source is not None else None, tmp_path)
    assert len(found) == 1 and wanted in found[0], found
    assert "02_a.ipynb, cell 2" in found[0] and "next: " in found[0]


def test_a_row_that_changes_is_found(tmp_path, recorded):
    sources = {"90 GB/s": "row: results/a.csv backend=cpu,experiment=copy"}
    assert told("It is 90 GB/s.", sources, tmp_path) == []
    recorded.write_text(CSV.replace("copy,cpu,90", "copy,cpu,100.5"))
    assert "100.5 GB/s" in told("It is 90 GB/s.", sources, tmp_path)[0]


def test_a_key_without_its_text_is_found(tmp_path, recorded):
    found = told(
        "It is 5 µs now.", {"4 µs": "given: let launch_us = 5.0", "5 µs": "given: let launch_us = 5.0"}, tmp_path
    )
    assert len(found) == 1 and "`4 µs`, which is no figure of the text" in found[0] and "remove it" in found[0]


def test_an_exercise_may_give_its_numbers(tmp_path, recorded):
    source = {"5 µs": "given: by the exercise"}
    assert told("A launch takes 5 µs.", source, tmp_path, more="## Exercise: on paper\n\n") == []
    assert told("A launch takes 5 µs.", source, tmp_path, more="## Explanation\n\n") != []


def test_sources_belong_to_text(tmp_path):
    cell = nbformat.v4.new_code_cell("let a = 1;", metadata={"figures": {"1 ms": "cited: https://example.org"}})
    lesson = notebooks.Lesson(tmp_path / "02_a.ipynb", nbformat.v4.new_notebook(cells=[cell]))
    assert "is no Markdown cell" in str(figures.check(lesson)[0])


def test_a_page_has_its_sources_in_a_comment(tmp_path):
    page = tmp_path / "a.md"
    page.write_text(
        '# A\n\n<!-- figures: {"4.8 TB/s": "cited: https://example.org"} -->\nIt has 4.8 TB/s.\nAnd 5 ms.\n'
    )
    found = [str(finding) for finding in figures.check_page(page)]
    assert len(found) == 1 and "line 5: `5 ms` has no source" in found[0]
    for source, wanted in {
        "measured: 2026-11-21, AMD EPYC, 2 cores": "",
        "measured: once": "was measured: `once`",
        "given: 5 ms": "no code cell",
    }.items():
        page.write_text(f'# A\n\n<!-- figures: {{"5 ms": "{source}"}} -->\nIt took 5 ms.\n')
        found = " ".join(map(str, figures.check_page(page)))
        assert wanted in found and bool(wanted) == bool(found), found
    page.write_text("# A\n\n<!-- written by make x -->\nIt took 5 ms.\n<!-- end -->\n")
    assert figures.check_page(page) == []
    page.write_text("# A\n\n<!-- figures: {4.8} -->\n")
    assert "is no JSON" in str(figures.check_page(page)[0])


def test_every_figure_of_the_course_has_its_source():
    assert figures.everything([notebooks.load(path) for path in notebooks.find()]) == []
