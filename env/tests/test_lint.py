"""Each rule of the lint, broken on purpose in a lesson that otherwise keeps them all."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from env import notebooks, paths
from env.console import ToolError
from env.lint import file_rules, notebook_rules, page_rules

from conftest import KERNELSPEC

LOAD, USE = notebook_rules.LOAD, "use gpulab::prelude::*;"
KERNELS = ':dep gpulab-kernels = { path = "../crates/kernels" }'
FIRST = f"{LOAD}\n{KERNELS}\n{USE}\nuse gpulab_kernels::{{\n    Ladder, Reduction,\n}};"
SOLUTIONS = "// exercise: one\nlet x = 1;\n// exercise: two\nlet y = 2;\n"


def code(source: str, **metadata: object) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell(source, metadata=metadata)


def text(source: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(source)


def cells() -> list[nbformat.NotebookNode]:
    """Cells by place: 0 head, 1 load, 2 question, 3 prediction, 4 guess, 5 sections, 6-9 exercises, 10 next."""
    return [
        text("# Lesson\n\nAbout 20 minutes. Builds on: 00."),
        code(FIRST),
        text("## Question\n\nWhy? See [what comes](#Where-next)."),
        text("## Prediction"),
        code("let guess = 3.0;"),
        text("## Experiment\n\n## Plot\n\n## Explanation\n\n```text\n# not a heading\n```\n\n## Exercise: two of them"),
        code("let x = 0;", tags=["exercise"], exercise="one"),
        code("let y = 0;", tags=["exercise"], exercise="two"),
        text("## Check"),
        code("check(x)", tags=["check"], check="one"),
        code("check(y)", tags=["check"], check="two"),
        text("## Where next"),
    ]


def lint(folder: Path, lesson_cells: list, name: str = "02_lesson", solutions: str = SOLUTIONS) -> list[str]:
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": dict(KERNELSPEC)})
    notebook["cells"] = lesson_cells  # afterwards: new_notebook would repair the ids
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    (folder / "solutions").mkdir(exist_ok=True)
    (folder / "solutions" / f"{name}.rs").write_text(solutions, encoding="utf-8")
    return [str(finding) for finding in notebook_rules.check(notebooks.load(path))]


def change(at: int, **changes: object) -> Callable[[list], None]:
    def do(lesson_cells: list) -> None:
        lesson_cells[at].update(changes)

    return do


def test_a_good_lesson_has_no_finding(tmp_path):
    good = cells()
    good.insert(
        5,
        code(
            "let my_a: Option<f64> = None; // Some(3.0)\nlet my_b: [Option<u64>; 7] = [None; 7];\nlet my_c = (None, None);"
        ),
    )
    good.insert(5, code('lesson.on_gpu("s", |gpu| {\n    println!("{}): {gpu}", f(1));\n    Ok(())\n})?;'))
    assert lint(tmp_path, good) == []


BROKEN: dict[str, tuple[Callable[[list], object], str]] = {
    "output": (change(1, outputs=[nbformat.v4.new_output("stream", text="x")]), "stores an output"),
    "count": (change(1, execution_count=3), "execution count"),
    "times": (lambda c: c[1].metadata.update(gpulab={"seconds": 1}), "times of an execution"),
    "no title": (change(0, source="About 20 minutes. Builds on: 00."), "titles"),
    "two titles": (change(2, source="# Again\n\n## Question"), "has 2 titles"),
    "no minutes": (change(0, source="# Lesson\n\nBuilds on: 00."), "minutes"),
    "no base": (change(0, source="# Lesson\n\nAbout 20 minutes."), "builds on"),
    "section missing": (change(8, source="nothing"), "its sections are"),
    "section order": (lambda c: c.insert(2, c.pop(3)), "its sections are"),
    "first cell": (change(1, source="let a = 1;"), "does not load the support crate"),
    "first cell computes": (change(1, source=FIRST + "\nlet a = 1;"), "does not load the support crate"),
    "first cell mixed": (change(1, source=f"{LOAD}\n{USE}\n{KERNELS}"), "does not load the support crate"),
    "first line another": (change(1, source=f"{KERNELS}\n{LOAD}\n{USE}"), "does not load the support crate"),
    "no prelude": (change(1, source=f"{LOAD}\nuse gpulab::gpu::Gpu;"), "does not use the prelude"),
    "many crates": (change(1, source="\n".join([LOAD, *[KERNELS] * 5, USE])), "loads 6 crates"),
    "crate elsewhere": (
        change(1, source=f'{LOAD}\n:dep gpulab-nn = {{ path = "../crates/onnx" }}\n{USE}'),
        "loads no crate",
    ),
    "no such crate": (
        change(1, source=f'{LOAD}\n:dep gpulab-no = {{ path = "../crates/no" }}\n{USE}'),
        "loads no crate",
    ),
    "crate by version": (change(1, source=f'{LOAD}\n:dep rayon = "1"\n{USE}'), "loads no crate"),
    "long cell": (change(4, source="\n".join(["let guess = 1;"] * 16)), "has 16 lines"),
    "empty cell": (change(4, source=" "), "empty code cell"),
    "printed twice": (
        change(4, source='let g = 3.0;\nprintln!("a (b");\nlesson.on_gpu("s", |_| Ok(println!("c)")))?;'),
        "prints beside `on_gpu`",
    ),
    "no prediction": (change(4, source="guess();"), "no prediction in code"),
    "prediction filled in": (change(4, source="let my_factor: Option<f64> = Some(3.0);"), "`my_factor` is filled in"),
    "predictions filled in": (
        change(4, source="let my_sectors: [Option<f64>; 2] = [None, Some(4.0)];"),
        "is filled in",
    ),
    "a number predicted": (change(4, source="let my_factor = 3.0;"), "`my_factor` is filled in"),
    "unknown tag": (lambda c: c[4].metadata.update(tags=["hidden"]), "tag `hidden`"),
    "tag alone": (lambda c: c[6].metadata.pop("exercise"), "only one of tag `exercise`"),
    "name alone": (lambda c: c[4].metadata.update(expected_error="x"), "only one of tag `expected-error`"),
    "one exercise": (lambda c: (c.pop(10), c.pop(7)), "has 1 exercises"),
    "no check": (lambda c: c.pop(10), "`two` has 1 exercise cells, 0 check cells, 1 solutions"),
    "check first": (lambda c: c.insert(6, c.pop(9)), "checked before its exercise"),
    "link": (change(2, source="## Question\n\n[x](nowhere.md)"), "`nowhere.md`: the target does not exist"),
    "image": (change(2, source="## Question\n\n![x](a.png)"), "`a.png`"),
    "anchor": (change(2, source="## Question\n\n[x](#nowhere)"), "no such heading"),
    "same id": (lambda c: c[4].update(id=c[1].id), "another cell's"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.filterwarnings("ignore")
def test_broken_rule_is_found(name, tmp_path):
    do, wanted = BROKEN[name]
    lesson_cells = cells()
    do(lesson_cells)
    found = lint(tmp_path, lesson_cells)
    assert any(wanted in finding and "02_lesson.ipynb" in finding and "next: " in finding for finding in found), found


def test_welcome_may_be_lighter(tmp_path):
    light = [text("# Hello\n\n5 minutes, builds on nothing"), code(FIRST), text("## Look"), text("## Where next")]
    assert lint(tmp_path, light, "00_welcome", "") == []
    assert lint(tmp_path, light[:-1], "00_welcome", "") != []


def test_missing_or_surplus_solution(tmp_path):
    assert "0 solutions" in " ".join(lint(tmp_path, cells(), solutions="// exercise: one\nx\n"))
    assert "`three`" in " ".join(lint(tmp_path, cells(), solutions=SOLUTIONS + "// exercise: three\n"))
    with pytest.raises(ToolError, match="two sections `one`"):
        lint(tmp_path, cells(), solutions=SOLUTIONS + "// exercise: one\n")


def test_links_of_pages(tmp_path):
    page, other = tmp_path / "a.md", tmp_path / "b.md"
    other.write_text("# B\n\n## `make lab`, twice\n")
    source = '[x](b.md#make-lab-twice) [y](b.md#no) [z](c.md) `[code](d.md)` [w](https://e.org) <img src="f.svg">'
    own = page_rules.headings(source)
    wrong = [target for target in page_rules.links(source) if page_rules.broken(target, page, own)]
    assert wrong == ["b.md#no", "c.md", "f.svg"]


def test_words(tmp_path):
    planted = tmp_path / "planted.md"
    planted.write_text(f"see {Path('/') / 'root' / 'x'}, as in {'issue'} 12 and {'TO' + 'DO'}; a/root/b is fine\n")
    found = [str(finding) for finding in file_rules._words(planted)]
    assert len(found) == 3 and all("line 1" in one for one in found), found


def test_readme_table(tmp_path, monkeypatch):
    waiting = tmp_path / "unrecorded_open.txt"
    waiting.write_text("# none\n")
    monkeypatch.setattr(file_rules, "ROOT", tmp_path)
    monkeypatch.setattr(file_rules, "UNRECORDED", waiting)
    lesson = notebooks.Lesson(tmp_path / "02_a.ipynb", nbformat.v4.new_notebook(cells=[text("# A\n\n20 minutes")]))
    row = "| [02 A](notebooks/02_a.ipynb) | {} | [run](results/h200/02_a.ipynb) |\n"

    def told(page: str) -> list[str]:
        (tmp_path / "README.md").write_text(page)
        return [str(finding) for finding in file_rules._readme([lesson])]

    assert told(row.format(20)) == []
    assert "states 20 minutes" in told(row.format(120))[0]
    assert "no link to an executed copy" in told("| [A](notebooks/02_a.ipynb) | 20 |\n")[0]
    assert "has 2 rows" in told(row.format(20) * 2)[0]
    assert "not in README.md's table" in told("# nothing\n")[0]
    assert "there is none" in told(row.format(20) + "| [B](notebooks/03_b.ipynb) | 1 |\n")[0]


def test_a_step_that_was_not_recorded(tmp_path, monkeypatch):
    waiting = tmp_path / "unrecorded_open.txt"
    waiting.write_text("# none\n")
    monkeypatch.setattr(file_rules, "ROOT", tmp_path)
    monkeypatch.setattr(file_rules, "UNRECORDED", waiting)
    lesson = notebooks.Lesson(tmp_path / "02_a.ipynb", nbformat.v4.new_notebook(cells=[code('l.on_gpu("one", f)?;')]))
    assert 'on_gpu("one", …)' in str(next(file_rules._recorded([lesson])))
    waiting.write_text("02_a: one\n")
    assert list(file_rules._recorded([lesson])) == []
    printed = code('l.on_gpu("one", f)?;')
    printed.outputs = [nbformat.v4.new_output("stream", text="x")]
    notebooks.write(tmp_path / "results/h200/02_a.ipynb", nbformat.writes(nbformat.v4.new_notebook(cells=[printed])))
    assert "`02_a: one` is recorded, or gone" in str(next(file_rules._recorded([lesson])))
    waiting.write_text("# none\n")
    assert list(file_rules._recorded([lesson])) == []


def test_strip_removes_what_ran():
    cell = code("let a = 1;", gpulab={"seconds": 1.0}, tags=["exercise"])
    cell.update(outputs=[nbformat.v4.new_output("stream", text="x")], execution_count=2)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    assert notebooks.strip(notebook) and not notebooks.strip(notebook)
    assert cell.outputs == [] and cell.execution_count is None and cell.metadata == {"tags": ["exercise"]}


def test_files_come_from_git():
    done = subprocess.run(["git", "rev-parse"], cwd=notebooks.ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    assert notebooks.ROOT / "env" / "lab.py" in file_rules.files()


def test_no_two_tools_have_one_name() -> None:
    """Who searches for `steps.py` finds one file."""
    tools = (path for path in paths.ENV.rglob("*.py") if "tests" not in path.parts)
    names = Counter(path.name for path in tools if not path.name.startswith("__"))
    assert [name for name, times in names.items() if times > 1] == []
