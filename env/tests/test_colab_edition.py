"""The Colab edition's notebooks, the README's part about them, and the set-up cell's way to a checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from env import notebooks
from env.colab import badges, edition, settings, written
from env.console import ToolError
from env.run import in_colab

UNSET = settings.Settings("", "", "main", "")
SET = settings.Settings("someone", "course", "main", "https://github.com/someone/course/releases/latest/download/")


@pytest.fixture
def lesson(tmp_path: Path) -> notebooks.Lesson:
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "gpulab-rust", "display_name": "Rust (gpulab)"}}
    )
    made = (
        nbformat.v4.new_markdown_cell("# A title", id="title"),
        nbformat.v4.new_code_cell(':dep gpulab = { path = "../support-crate" }\nlet a = 1;', id="first"),
        nbformat.v4.new_code_cell("a", id="exercise", metadata={"tags": ["exercise"], "exercise": "one"}),
        nbformat.v4.new_code_cell(" \n", id="blank"),
    )
    notebook.cells += made
    return notebooks.Lesson(tmp_path / "07_new.ipynb", notebook, {"one": "a + 1"})


def test_cells_keep_their_ids_tags_and_sources(lesson: notebooks.Lesson) -> None:
    made = edition.make(lesson, UNSET)
    nbformat.validate(made)
    assert [cell.id for cell in made.cells] == ["title", "colab-note", edition.SET_UP, "first", "exercise", "blank"]
    *_, first, exercise, blank = made.cells
    assert first.source == "%%rust\n" + lesson.code[0].source and blank.source == " \n"
    assert exercise.metadata == {"tags": ["exercise"], "exercise": "one"}
    assert made.metadata.kernelspec.name == "python3" and made.metadata.accelerator == "GPU"
    assert edition.solutions(lesson) == {"one": "%%rust\na + 1"}
    assert lesson.notebook.cells[1].source.startswith(":dep"), "the lesson itself is as it was"
    compile(made.cells[2].source, "set-up", "exec")


@pytest.mark.parametrize(
    ("target", "unset", "address"),
    [
        ("01_detection.ipynb", "01_detection.ipynb", "https://colab.research.google.com/github/someone/course/blob/main/colab/01_detection.ipynb"),
        ("01_detection.ipynb#Plot", "01_detection.ipynb#Plot", "https://colab.research.google.com/github/someone/course/blob/main/colab/01_detection.ipynb"),
        ("../docs/DESIGN.md#adding-a-lesson", "../docs/DESIGN.md#adding-a-lesson", "https://github.com/someone/course/blob/main/docs/DESIGN.md#adding-a-lesson"),
        ("solutions/01_detection.rs", "../notebooks/solutions/01_detection.rs", "https://github.com/someone/course/blob/main/notebooks/solutions/01_detection.rs"),
        ("../docs/a.svg", "../docs/a.svg", "https://raw.githubusercontent.com/someone/course/main/docs/a.svg"),
        ("https://doc.rust-lang.org/x", "https://doc.rust-lang.org/x", "https://doc.rust-lang.org/x"),
        ("#plot", "#plot", "#plot"),
        ("attachment:a.png", "attachment:a.png", "attachment:a.png"),
    ],
)  # fmt: skip
def test_links_lead_somewhere_from_colab(target: str, unset: str, address: str) -> None:
    for given, expected in ((UNSET, unset), (SET, address)):
        assert badges.rewrite(f"a [b]({target}) c", given) == f"a [b]({expected}) c"
        assert badges.rewrite(f'<img src="{target}">', given) == f'<img src="{expected}">'
        assert badges.rewrite(f'[b]({target} "d") ![e]({target})', given) == f'[b]({expected} "d") ![e]({expected})'


def test_code_in_prose_is_left_alone() -> None:
    text = "`[a](01_x.ipynb)` and ``[a](b`.md)`` and $x$\n```rust\nlet a = [b](c.md);\n```\n~~~\n[d](e.md)\n~~~"
    assert badges.rewrite(text, SET) == text


def test_settings_name_what_colab_cannot_use(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    good = {"repository": "https://github.com/a-b/c.d.git", "branch": "main", "bundle": "file:///x/"}
    file.write_text(json.dumps(good))
    found = settings.load(file)
    assert (found.owner, found.name, found.repository) == ("a-b", "c.d", "https://github.com/a-b/c.d")
    wrong = [("repository", "https://example.com/a/b"), ("repository", "a/b"), ("branch", "a b"), ("branch", "")]
    for name, value in [*wrong, ("bundle", "https://x/y"), ("bundle", "x")]:
        file.write_text(json.dumps({**good, name: value}))
        with pytest.raises(ToolError, match="next: "):
            settings.load(file)
    file.write_text('{"repository": ""}')
    with pytest.raises(ToolError, match="damaged"):
        settings.load(file)


def test_the_readme_has_badges_once_there_is_an_address() -> None:
    assert (
        "settings.json" in written.readme_part(["00_welcome"], UNSET)
        and "badge" not in written.readme_part([], UNSET).split("badges")[0]
    )
    part = written.readme_part(["00_welcome", "01_detection"], SET)
    assert part.count("colab.research.google.com/github/someone/course/blob/main/colab/") == 3
    assert written.UNTRIED in part


def test_what_is_stale_is_named_and_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# a\n{written.BEGIN}\nold\n{written.END}\nz\n")
    monkeypatch.setattr(written, "README", readme)
    monkeypatch.setattr(written, "FOLDER", tmp_path / "colab")
    lessons = len(notebooks.find())
    assert len(written.stale()) == lessons + 1
    for path, text in written.wanted().items():
        notebooks.write(path, text)
    assert written.stale() == []
    copy = tmp_path / "colab" / "00_welcome.ipynb"
    copy.write_text(copy.read_text().replace("%%rust", "%%rusty", 1))
    (tmp_path / "colab" / "99_gone.ipynb").write_text("{}")
    assert [path.name for path in written.stale()] == ["00_welcome.ipynb", "99_gone.ipynb"]
    readme.write_text("# a\n")
    with pytest.raises(ToolError, match="lacks its part"):
        written.stale()


def git(folder: Path, *words: str) -> None:
    """Runs git as somebody."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def run_set_up(folder: Path, repository: str) -> subprocess.CompletedProcess[str]:
    """Runs the set-up cell's Python in a folder."""
    code = edition.CODE.format(name="00_welcome", repository=repository, branch="main")
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


def test_the_set_up_cell_takes_the_checkout_that_it_lies_in_and_fetches_one_otherwise(tmp_path: Path) -> None:
    source = tmp_path / "source"
    package = source / "env/colab/runtime/gpulab_colab"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def start(lesson):\n    print(lesson, __file__)\n")
    git(source, "init", "--quiet", "--initial-branch", "main")
    git(source, "add", ".")
    git(source, "commit", "--quiet", "-m", "a")
    address = source.as_uri()

    inside = run_set_up(source / "env", address)
    assert str(package) in inside.stdout and "fetching" not in inside.stdout, inside.stderr
    content = tmp_path / "content"
    content.mkdir()
    assert "next: " in run_set_up(content, "").stderr
    lost = run_set_up(content, (tmp_path / "nowhere").as_uri())
    assert "does not appear to be a git repository" in lost.stderr or "does not exist" in lost.stderr
    assert "next: " in lost.stderr
    # What an interrupted fetch left behind is in nobody's way.
    (content / "gpulab.part").mkdir(exist_ok=True)
    first, second = run_set_up(content, address), run_set_up(content, address)
    assert "fetching" in first.stdout and "fetching" not in second.stdout
    assert f"00_welcome {content / 'gpulab' / 'env'}" in second.stdout, second.stderr
    assert [path.name for path in content.iterdir()] == ["gpulab"]


def test_outputs_of_another_kind_are_found(tmp_path: Path) -> None:
    def write(name: str, source: str, *outputs: dict) -> Path:
        made = [nbformat.v4.new_output(**output) for output in outputs]
        cell = nbformat.v4.new_code_cell(source, id="one", outputs=made, execution_count=1)
        path = tmp_path / name
        path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=[cell])))
        return path

    shown = {"output_type": "execute_result", "data": {"image/svg+xml": "<svg/>"}, "execution_count": 1}
    native = write("native.ipynb", "a", {"output_type": "stream", "name": "stdout", "text": "x"}, shown)
    same = write("same.ipynb", "%%rust\na", {"output_type": "stream", "name": "stdout", "text": "y"}, shown)
    other = write("other.ipynb", "%%rust\na", {"output_type": "stream", "name": "stderr", "text": "x"}, shown)
    changed = write("changed.ipynb", "%%rust\nb")
    assert in_colab.differences(same, native) == [] == in_colab.differences(changed, native)
    (failure,) = in_colab.differences(other, native)
    assert failure.cell_id == "one" and "stderr" in str(failure) and "next: " in str(failure)
    assert in_colab.differences(same, tmp_path / "none.ipynb") == []
