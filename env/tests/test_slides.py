"""Slides: a lesson is cut by its headings and lengths, solutions stay closed, notes stand where they belong."""

from __future__ import annotations

import nbformat
import pytest
from env import lab, notebooks, paths
from env.console import ToolError
from env.slides import deck, live, notes, reveal, teach
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

TEXT = """# Notes on 09 · Test

Objective: a learner cuts.

## Question
- Ask this.
## Plot
- Before `draw`: ask that,
  on two lines.
- Look here.
## In class
- It is loud.
"""


def lesson(name: str = "09_test") -> notebooks.Lesson:
    """A lesson with a long text, two sections, an exercise and its solution."""
    long = "\n\n".join(["word " * 60] * 3)
    cells = [
        new_markdown_cell("# 09 · Test\n\nAbout 10 minutes (quick path: 5).", id="title"),
        new_code_cell("let x = 1;", id="setup"),
        new_markdown_cell(f"## Question\n\n{long}\n\n```rust\n## no heading\n\nlet y = 2;\n```", id="question"),
        new_markdown_cell("## Plot\n\nSee [10](10_vector_add.ipynb) and [docs](../docs/paths.md).", id="plot"),
        new_code_cell("draw()", id="draw"),
        new_code_cell("draw_again()", id="again"),
        new_code_cell("fn f() {}", id="ex", metadata={"tags": ["exercise"], "exercise": "to_do"}),
    ]
    spec = {"name": notebooks.KERNEL, "display_name": "Rust (gpulab)", "language": "rust"}
    notebook = new_notebook(cells=cells, metadata={"kernelspec": spec})
    return notebooks.Lesson(notebooks.FOLDER / f"{name}.ipynb", notebook, {"to_do": "fn f() { solved() }"})


def words(cells: list, kind: str) -> list[str]:
    """What stands in the cells of a kind."""
    return [word for cell in cells if cell.cell_type == kind for word in cell.source.split()]


def test_a_lesson_is_cut_where_its_headings_and_lengths_say() -> None:
    one = lesson()
    slides = deck.slides(one, notes.read(TEXT))
    assert [slide.starts for slide in slides if slide.starts] == ["Question", "Plot"]
    assert all(len(cell.source.split()) <= 2 * deck.MOST_WORDS for slide in slides for cell in slide.cells)
    # A short text and the cell behind it are seen together; a second cell has a slide of its own.
    assert [[cell.id for cell in slide.cells] for slide in slides if "draw" in str(slide.cells)] == [
        ["plot", "draw"],
        ["again"],
    ]
    assert len({cell.id for slide in slides for cell in slide.cells}) == sum(len(slide.cells) for slide in slides)
    # Nothing is lost, and what looks like a heading in code is none.
    seen = [cell for slide in slides for cell in slide.cells if not cell.id.startswith(deck.HIDDEN)]
    for kind in ("markdown", "code"):
        assert words(seen, kind) == words(one.notebook.cells, kind)


def test_notes_stand_at_their_section_and_at_their_cell() -> None:
    slides = deck.slides(lesson(), notes.read(TEXT))
    said = {slide.starts or slide.cells[0].id: slide.notes for slide in slides}
    assert said["title"] == ["Objective: a learner cuts.", "It is loud."]
    assert said["Question"] == ["Ask this."]
    assert said["Plot"] == ["Look here.", "ask that, on two lines."]
    assert [slide.minutes > 0 for slide in slides if slide.starts] == [True, True]


def test_live_slides_hide_solutions_and_leave_the_lesson_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(live, "FOLDER", tmp_path)
    one = lesson()
    before = nbformat.writes(one.notebook)
    file, page = live.make(one)
    assert nbformat.writes(one.notebook) == before
    made = nbformat.read(file, as_version=4)
    nbformat.validate(made)
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in made.cells]
    assert kinds[0] == "slide" and kinds.count("slide") == 3 and None in kinds and "-" not in kinds
    hidden = [cell for cell in made.cells if cell.metadata.get("slideshow") == {"slide_type": "fragment"}]
    assert [cell.source for cell in hidden] == ["fn f() { solved() }"]
    assert "](../notebooks/10_vector_add.ipynb)" in str(made) and "](../docs/paths.md)" in str(made)
    assert "about" in page.read_text(encoding="utf-8")
    # Made anew as it is; where somebody has worked in it, that is kept.
    live.make(one)
    assert len(list(tmp_path.glob("*.ipynb"))) == 1
    made.cells[1].source = "let x = 2;"
    nbformat.write(made, file)
    live.make(one)
    assert len(list(tmp_path.glob("*.ipynb"))) == 2


def test_pages_hold_notes_solutions_and_links_between_lessons(tmp_path) -> None:
    one = lesson()
    page = reveal.render(one, None)
    assert page.count("<details>") == 1 and page.index("<details>") < page.index("solved")
    assert 'href="10_vector_add.html"' in page and "paths.md" not in page
    size = reveal.build([one], tmp_path)
    assert size > 200_000 and {"reveal.js", "notes.js", "slides.js", "book.css"} <= {
        file.name for file in (tmp_path / "static").iterdir()
    }
    assert "09_test.html" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_every_lesson_has_notes_and_a_planted_fault_is_found(tmp_path, monkeypatch) -> None:
    lessons = [notebooks.load(path) for path in notebooks.find()]
    assert list(notes.check(lessons)) == []
    monkeypatch.setattr(notes, "PLACE", tmp_path)
    (tmp_path / "09_test.md").write_text(TEXT.replace("`draw`", "`gone`").replace("Question", "Quest"))
    (tmp_path / "77_other.md").write_text(TEXT)
    found = [str(finding) for finding in notes.check([lesson()])]
    assert len(found) == 3 and all("next: " in one for one in found)
    assert any("`gone`" in one for one in found) and any("Quest" in one for one in found)
    assert any("is about no lesson" in one for one in found)
    (tmp_path / "09_test.md").unlink()
    assert "is missing" in str(next(notes.check([lesson()])))


@pytest.mark.parametrize("wish", ["12", "zz"])
def test_one_lesson_is_taught_at_a_time(wish: str, monkeypatch) -> None:
    monkeypatch.setenv("NB", wish)
    monkeypatch.setattr(lab.signal, "signal", lambda *_: None)
    with pytest.raises(ToolError, match="next: "):
        teach.main()


def test_live_slides_begin_at_once_and_break_long_lines_until_the_teacher_chooses_otherwise(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(teach, "START", tmp_path / "plugin.jupyterlab-settings")
    monkeypatch.setattr(teach, "NOTEBOOKS", tmp_path / "@jupyterlab" / "tracker.jupyterlab-settings")
    teach.write_settings()
    assert paths.read_json(teach.START)["active"] is True
    assert paths.read_json(teach.NOTEBOOKS)["codeCellConfig"]["lineWrap"] is True
    # As JupyterLab writes it, with comments.
    own = '{\n    // Code Cell Configuration\n    "codeCellConfig": {"lineWrap": false}\n}'
    teach.NOTEBOOKS.write_text(own)
    teach.write_settings()
    assert teach.NOTEBOOKS.read_text() == own


def test_jupyterlab_opens_on_the_slides() -> None:
    place = notebooks.relative(paths.NOTEBOOKS / "10_vector_add.ipynb")
    assert f"--LabApp.default_url=/lab/tree/{place}" in lab.command(8888, place)
    assert place in lab.address(8888, "token", place)
