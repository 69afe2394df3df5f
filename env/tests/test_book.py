"""The book's pieces: Markdown, code, figures, cells, recorded runs, links. Planted faults are found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from env.book import cells, code, plots, records, site
from env.book.links import Links
from env.book.page import Page
from env.console import ToolError
from env.notebooks import ROOT, VERDICT, Lesson
from nbformat.v4 import new_code_cell, new_notebook, new_output

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10" role="img" aria-label="one bar" color="#1a1a1a">'
    '<rect width="100%" height="100%" fill="#ffffff"/>\n<path d="M0 0h5"/></svg>'
)


def page(source: str = "docs/page.md", out: str = "docs/page.html") -> Page:
    return Page(out, "A page", "A page", [ROOT / source])


def resolved(text: str, links: Links, one: Page) -> str:
    tree = one.prose(text)
    links.add(one)
    links.apply(tree, one.sources[0], one)
    return one.text(tree)


def test_markdown_is_read_as_jupyterlab_reads_it():
    one = page()
    one.prose("# Title\n\nSee $a_0$.\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n\n```rust\nlet x = 1;\n```\n")
    html = one.text(one.parts[0])
    assert "<math" in html and "$" not in html
    assert '<div class="table" tabindex="0"><table>' in html
    assert '<pre class="code" tabindex="0"><code><span class="kd">let</span>' in html


def test_headings_get_the_anchors_that_links_say():
    one = page()
    one.prose("# Title\n\n## Where 17 comes from\n\nwords\n\n## `a[i]`\n\n## Same\n\n### Same\n")
    assert [section.anchor for section in one.sections] == ["title", "where-17-comes-from", "ai", "same", "same-1"]
    assert one.anchors.of["Where-17-comes-from"] == "where-17-comes-from"
    assert one.sections[1].text == ["words"]


def test_kernels_inside_rust_have_the_colours_of_cuda_c():
    shown = code.coloured('const K: &str = r#"__global__ void k(int n) { return; }"#; let s = r#"text"#;', "rust")
    assert '<span class="kt">void</span>' in shown
    assert '<span class="s">r#"text"#</span>' in shown
    assert code.coloured("a < b", "no such language") == "a &lt; b"


def test_a_file_has_lines_to_link_to():
    shown = code.file_block("fn main() {\n}\n", "main.rs")
    assert 'id="L2"' in shown and 'id="L3"' not in shown


def test_colours_of_a_terminal_become_the_pages():
    shown = cells.coloured("\x1b[38;5;54mb\x1b[0m\x1b[38;5;54mu\x1b[0m\x1b[38;5;249mg\x1b[0m\x1b[31mred\x1b[0m <b>")
    assert '75% var(--ink-light))">bu</span>' in shown
    assert '<span class="ansi-faint">g</span>' in shown
    assert '<span class="ansi-red-fg">red</span> &lt;b&gt;' in shown


def test_a_plot_takes_the_pages_colours():
    shown = plots.inline(SVG, "a-cell")
    assert "#ffffff" not in shown and "#1a1a1a" not in shown
    assert 'viewBox="0 0 10 10"' in shown and 'aria-label="one bar"' in shown


def test_two_plots_of_a_page_keep_their_parts_apart():
    drawn = SVG.replace("<path", '<clipPath id="a"/><path clip-path="url(#a)"')
    shown = plots.inline(drawn, "one") + plots.inline(drawn, "two")
    assert shown.count('id="one-a"') == shown.count("url(#two-a)") == 1


def test_a_description_is_found_under_its_new_name():
    drawn = SVG.replace("<svg", '<svg aria-describedby="d"').replace("\n<path", '\n<desc id="d">1 ms</desc><path')
    shown = plots.inline(drawn, "a cell")
    assert 'aria-describedby="a-cell-d"' in shown and '<desc id="a-cell-d">1 ms</desc>' in shown


@pytest.mark.parametrize(
    ("svg", "said"),
    [
        ("no picture", "no SVG"),
        (SVG.replace('aria-label="one bar"', ""), "no label"),
        (SVG.replace("<path", "<style>p{color:red}</style><path"), "styles for p"),
    ],
)
def test_a_plot_that_cannot_be_shown_is_named(svg: str, said: str):
    with pytest.raises(ToolError, match=said) as found:
        plots.inline(svg, "a-cell")
    assert "\nnext: " in str(found.value)


def test_a_label_of_the_page_stands_in():
    shown = plots.inline(SVG.replace('aria-label="one bar"', ""), "a-cell", 'the "text"')
    assert 'aria-label="the &quot;text&quot;"' in shown


def cell(source: str, tag: str = "", name: str = "") -> nbformat.NotebookNode:
    kept = {"tags": [tag], tag.replace("-", "_"): name} if tag else {}
    return new_code_cell(source, id=f"cell-{name or 'x'}", metadata=kept)


def test_cells_say_what_they_are_for():
    outputs = cells.Outputs("10_lesson")
    error = [new_output("stream", name="stderr", text="out of bounds\n")]
    assert "Fails on purpose" in outputs.cell(cell("bad()", "expected-error", "bounds"), error, True)
    assert "Exercise <code>axpy</code>" in outputs.cell(cell("fix()", "exercise", "axpy"), [], True)
    verdict = new_output("execute_result", {"text/html": "<div>NOT YET</div>", VERDICT: {}})
    assert "before anybody solved it" in outputs.cell(cell("check()", "check", "axpy"), [verdict], True)
    assert "Check of <code>axpy</code></p>" in outputs.cell(cell("check()", "check", "axpy"), [], False)


def test_a_changed_cell_has_no_output_but_a_note():
    outputs = cells.Outputs("10_lesson")
    assert cells.CHANGED in outputs.cell(cell("new()"), None, True)
    assert cells.CHANGED not in outputs.cell(cell("new()"), None, False)


def test_outputs_are_shown_in_their_best_form():
    outputs = cells.Outputs("10_lesson")
    picture = new_output("display_data", {"image/svg+xml": SVG, "image/png": "AAAA", "text/plain": "()"})
    assert "<svg" in outputs.output(picture, "x") and "AAAA" not in outputs.output(picture, "x")
    styled = new_output("display_data", {"text/html": "<style>.k{}</style><p>t</p>"})
    assert "<style>" in outputs.output(styled, "x")
    assert "<style>" not in outputs.output(styled, "y")
    assert "tall" in outputs.output(new_output("stream", name="stdout", text="line\n" * 60), "x")
    assert outputs.output(new_output("execute_result", {"text/plain": "()"}), "x") == ""
    with pytest.raises(ToolError, match="application/x-unknown"):
        outputs.output(new_output("display_data", {"application/x-unknown": "?"}), "x")


def test_keys_and_screen_readers_reach_what_is_recorded():
    recorded = [path.read_text(encoding="utf-8").replace('\\"', '"') for path in (ROOT / "results").glob("*/*.ipynb")]
    assert any('role="group" aria-label="lines of the message"' in text for text in recorded)
    unreached = re.compile(r'<th></th>|<pre style="[^"]*overflow-x:auto[^"]*">')
    assert [found for text in recorded for found in unreached.findall(text)] == []


def test_a_record_names_its_machine_and_day(tmp_path: Path):
    lesson = Lesson(Path("10_lesson.ipynb"), new_notebook())
    assert records.find(lesson, tmp_path) is None
    (tmp_path / "10_lesson.ipynb").write_text(nbformat.writes(new_notebook(cells=[cell("old()")])), encoding="utf-8")
    (tmp_path / "README.md").write_text("| what | |\n| --- | --- |\n| machine | a GPU |\n", encoding="utf-8")
    run = {"notebook": "10_lesson", "run": {"began": "2026-03-04T05:06:07Z"}}
    (tmp_path / "summary.json").write_text(json.dumps([run]), encoding="utf-8")
    found = records.find(lesson, tmp_path)
    assert found and (found.machine, found.date) == ("a GPU", "2026-03-04")
    assert found.outputs(cell("old()")) == []
    assert found.outputs(cell("new()")) is None
    assert found.outputs(cell("old()", "check", "other")) is None


def test_links_lead_to_the_books_pages():
    links = Links()
    lesson = Page("lessons/10_vector_add.html", "t", "t", [ROOT / "notebooks" / "10_vector_add.ipynb"])
    lesson.prose("# T\n\n## Where 17 comes from\n")
    links.add(lesson)
    text = "[a](../notebooks/10_vector_add.ipynb#Where-17-comes-from) [b](#own) [c](https://example.org/) [d](../env)"
    html = resolved(f"# Title\n\n{text}\n\n## Own\n", links, page())
    assert 'href="../lessons/10_vector_add.html#where-17-comes-from"' in html
    assert 'href="#own"' in html
    assert 'class="web" href="https://example.org/"' in html
    assert '<span class="outside" title="in the course\'s folder">d</span>' in html


def test_what_is_linked_comes_along_but_no_solution():
    links = Links()
    html = resolved(
        "# T\n\n[a](../support-crate/src/lib.rs) [b](../results/h200/ladders.csv) [c](../notebooks/solutions/10_vector_add.rs)",
        links,
        page(),
    )
    assert 'href="../source/support-crate/src/lib.rs.html"' in html
    assert 'href="../files/results/h200/ladders.csv"' in html
    assert "solutions" not in html
    assert list(links.sources) == [ROOT / "support-crate" / "src" / "lib.rs"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a](#nowhere)", "no such heading"),
        ("![](../results/h200/plots/00_welcome-first-plot.png)", "no alternative text"),
        ("![a plot](missing.png)", "not in the repository"),
        ("![a plot](https://example.org/plot.png)", "not in the repository"),
    ],
)
def test_a_link_that_leads_nowhere_stops_the_book(text: str, said: str):
    with pytest.raises(ToolError, match=said):
        resolved(f"# T\n\n{text}", Links(), page())


def test_a_picture_is_drawn_in_the_page():
    html = resolved("# T\n\n![Bars](../results/h200/plots/00_welcome-first-plot.png)", Links(), page())
    assert '<div class="figure"' in html and "viewBox" in html and "<img" not in html


def test_the_index_has_each_part_with_its_words():
    one = page()
    one.parts.append(one.prose("# Title\n\nFirst  words.\n\n## Part\n\nIts `a[i]`.\n"))
    made = site.search_index([one])
    assert made == (
        'window.BOOK_INDEX=[["A page",[["docs/page.html","Title","First words."],'
        '["docs/page.html#part","Part","Its a[i]."]]]];\n'
    )


def test_a_comment_at_the_end_is_one():
    assert '<span class="c1"># in this folder</span>' in code.coloured("make lab  # in this folder", "sh")


@pytest.mark.parametrize(("text", "said"), [("$a_$", "MissingSuper"), (r"$\nosuch{a}$", "nosuch` is not known")])
def test_a_formula_that_cannot_be_drawn_is_named(text: str, said: str):
    with pytest.raises(ToolError, match=said):
        page().prose(f"# T\n\n{text}")
