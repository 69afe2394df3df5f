"""Grading: what an assignment holds, what a submission is restored to, and what a check's outputs are worth."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from env.console import ToolError
from env.grading import assignment, class_of_30, copies, course, exercises, isolation, restore, symbols
from env.grading.points import Grade, Graded, head, judged, score, shown, signed
from env.notebooks import VERDICT, Lesson, find, load
from env.run.session import Execution
from nbformat import NotebookNode
from nbformat.v4 import new_output

WORD = "f00d"


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    """Lesson 10, whose exercises need little."""
    return load(find("10")[0])


@pytest.fixture(scope="module")
def release(lesson: Lesson) -> NotebookNode:
    """Its assignment."""
    return assignment.notebook(lesson, dict.fromkeys(exercises.parts(lesson).exercises, 2.0), "week-1")


def submitted(release: NotebookNode, **answers: str) -> dict:
    """The release as a learner hands it in."""
    made = json.loads(nbformat.writes(release))
    for cell in made["cells"]:
        notes = cell["metadata"][assignment.NOTES]
        if notes["part"] == "answer" and notes["exercise"] in answers:
            cell["source"] = answers[notes["exercise"]]
    return made


def test_names_of_a_cell() -> None:
    source = (
        'use a::{b, c as d};\nconst K: &str = r#"int hidden = 1;"#;\nlet (mut x, y) = f(z);\nfn g() { let inner = 1; }'
    )
    assert {"b", "d", "K", "x", "y", "g"} <= symbols.defined(source)
    assert not {"hidden", "inner", "f", "z", "c"} & symbols.defined(source)
    assert {"f", "z"} <= symbols.used(source)
    assert "gpu" in symbols.used('println!("{gpu}");')


@pytest.mark.parametrize("path", find(), ids=lambda path: path.stem)
def test_every_lesson_with_exercises_makes_an_assignment(path: Path) -> None:
    lesson = load(path)
    if not any("exercise" in cell.metadata for cell in lesson.notebook.cells):
        return
    known = exercises.parts(lesson).exercises
    made = assignment.notebook(lesson, dict.fromkeys(known, 1.0), "all")
    nbformat.validate(made)
    grade_ids = [cell.metadata["nbgrader"]["grade_id"] for cell in made.cells]
    assert len(set(grade_ids)) == len(grade_ids)
    assert sorted(restore.answers(made)) == sorted(known)
    checks = [cell for cell in made.cells if restore.part(cell) == "check"]
    assert sorted(restore.exercise(cell) for cell in checks) == sorted(known)
    for cell in checks:
        assert f"::gpulab_lessons::check::{restore.exercise(cell)}(" in signed(cell.source, WORD)
    # No solution goes out, and each of them may be handed in.
    handed_out = "\n".join(cell.source for cell in made.cells)
    for name, solution in lesson.solutions.items():
        assert solution not in handed_out
        assert not restore.refused(solution), name


def test_marks_and_locks(lesson: Lesson, release: NotebookNode) -> None:
    for cell in release.cells:
        marks, part = cell.metadata["nbgrader"], restore.part(cell)
        assert marks["solution"] == (part == "answer")
        assert marks["grade"] == (part == "check")
        assert marks["locked"] == (part != "answer")
    assert "own-scale" in [cell.id for cell in release.cells]
    one = assignment.notebook(lesson, {"planes": 3.0}, "planes")
    assert list(restore.answers(one)) == ["planes"]
    assert "### scale" not in "\n".join(cell.source for cell in one.cells)


def test_points() -> None:
    assert assignment.points_of("2,planes=4") == (2.0, {"planes": 4.0})
    for text in ("x", "-1", "planes=", "=3", "nan"):
        with pytest.raises(ToolError, match="is no number of points"):
            assignment.points_of(text)


def test_an_untouched_submission_is_restored_as_it_was(release: NotebookNode) -> None:
    made = restore.restore(release, submitted(release))
    assert (made.told, made.flags) == ([], [])
    assert made.notebook.cells == release.cells


def test_removed_renumbered_and_added_cells(lesson: Lesson, release: NotebookNode) -> None:
    right = lesson.solutions["scale"]
    one = submitted(release, scale=right)
    class_of_30._renumbered(one)
    made = restore.restore(release, one)
    assert restore.answers(made.notebook)["scale"].source == right
    assert any("lost its marks" in text for text in made.told)
    one = submitted(release, planes="fn planes() {}")
    class_of_30._without("check")(one)
    class_of_30._drop_scale(one)
    class_of_30._more(one)
    made = restore.restore(release, one)
    told = "\n".join(made.told)
    assert "`scale`: there is no answer cell" in told
    assert "cells had been removed and came back" in told
    assert "1 further code cell of yours was not run" in told
    assert restore.answers(made.notebook)["planes"].source == "fn planes() {}"
    one = submitted(release)
    class_of_30._patched(one)
    made = restore.restore(release, one)
    assert made.notebook.cells == release.cells
    assert "had been changed and was put back" in "\n".join(made.told)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!doctype html>", "it is not a notebook"),
        (b"\xff\xfe", "it is not a notebook"),
        (b"[" * 100_000, "it is not a notebook"),
        (b'{"worksheets": []}', "no notebook of format 4"),
        (None, "it is no file"),
    ],
)
def test_what_is_no_notebook_is_told(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "a.ipynb"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ToolError, match=said) as raised:
        restore.read(file)
    assert raised.value.next_step


def test_odd_cells_are_read(release: NotebookNode) -> None:
    odd = [None, 3, {}, {"cell_type": "code", "source": 7}, {"cell_type": "code", "metadata": [], "source": ["a", 1]}]
    made = restore.restore(release, {"cells": odd})
    assert len([text for text in made.told if "there is no answer cell" in text]) == 3


def test_refused_and_unusual_answers(release: NotebookNode) -> None:
    assert "evcxr command" in restore.refused(':dep serde = "1"\nlet x = 1;')
    assert "include" in restore.refused('const A: &str = include_str!("../notebooks/solutions/10.rs");')
    assert not restore.refused('const A: &str = r#"\n: include_str!(x)\n#include <mma.h>"#;')
    made = restore.restore(release, submitted(release, scale='let a = std::fs::read("/etc/passwd");'))
    assert made.flags == ["scale reads or writes files"]


def _done(passed: str, *outputs: NotebookNode, word: str = WORD) -> Execution:
    return Execution([*outputs, new_output("stream", name="stdout", text=f"\n{word} {passed}\n")])


def _verdict(verdict: str, what: str = "") -> NotebookNode:
    data = {VERDICT: {"exercise": "scale", "verdict": verdict, "what": what}, "text/html": "<b>it</b>"}
    return new_output("execute_result", data=data, execution_count=2)


def test_only_the_signed_word_counts() -> None:
    assert judged("scale", 2.0, _done("1", _verdict("PASS")), WORD) == Grade("scale", 2.0, 2.0, "PASS", "")
    red = judged("scale", 2.0, _done("0", _verdict("PASS"), _verdict("NOT YET", "line 3")), WORD)
    assert red == Grade("scale", 2.0, 0.0, "NOT YET", "line 3")
    # A forged verdict, a word of another cell, and two answers are worth nothing.
    for done in (
        Execution([_verdict("PASS")]),
        _done("1", _verdict("PASS"), word="beef"),
        _done("1", new_output("stream", name="stdout", text=f"{WORD} 1\n")),
    ):
        assert judged("scale", 2.0, done, WORD).points == 0


def test_the_feedback_begins_with_what_each_exercise_got() -> None:
    made = Graded(nbformat.v4.new_notebook(), [Grade("scale", 2.0, 2.0, "PASS"), Grade("planes", 4.0)], ["moved"], [])
    said = head(made, "walls").source
    assert said.startswith("## Graded: 2 of 6 points\n") and "- moved" in said and "in the simulator: walls." in said
    # A space that the page keeps: its columns have none between them.
    assert "| `scale` | 2 of 2 | &emsp;PASS |" in said and "| `planes` | 0 of 4 | &emsp;not run |" in said


def test_nbgrader_reads_the_points() -> None:
    """Its traps: stderr is 0 points, a value without text a KeyError, `NOT YET` full points."""
    outputs = [_verdict("NOT YET", "x"), new_output("stream", name="stderr", text="warning\n")]
    outputs.append(new_output("error", ename="e", evalue="v", traceback=["\x1b[31mred\x1b[0m"]))
    kept = [*shown(_done("1", *outputs), WORD), *score(Grade("scale", 2.0, 1.5, "PASS"))]
    assert all(output.output_type != "error" and output.get("name") != "stderr" for output in kept)
    assert [output.data["text/plain"] for output in kept if output.output_type == "execute_result"] == ["1.5"]
    assert all("text/plain" in output.data for output in kept if "data" in output)
    assert WORD not in str(kept)
    many = [new_output("stream", name="stdout", text="x" * 30_000)] * 50
    assert len(str(shown(Execution(many)))) < 60_000


def test_copies_are_found_and_the_release_is_none(lesson: Lesson, release: NotebookNode) -> None:
    right, handed_out = lesson.solutions["scale"], class_of_30.assignment_of(lesson, "scale")
    answers = {
        "a": {"scale": right},
        "b": {"scale": right.replace("int threads", "// mine\n   int threads")},
        "c": {"scale": right.replace("threads", "step")},
        "d": {"scale": handed_out},
        "e": {"scale": handed_out, "shifted_sectors": "let my_shifted_sectors: Option<f64> = Some(1.0);"},
        "f": {"shifted_sectors": "let my_shifted_sectors: Option<f64> = Some(1.0);"},
    }
    found = copies.groups(answers, {"scale": {handed_out}})
    assert found == [("scale", ["a", "b"], "the same"), ("scale", ["a", "b", "c"], "the same but for names")]


def test_the_planted_class_is_thirty(lesson: Lesson) -> None:
    assert len(class_of_30.submissions(lesson)) == 30


def test_without_nbgrader_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ToolError, match="nbgrader is not installed") as raised:
        course.asked_for()
    assert "pip install nbgrader" in raised.value.next_step


def test_settings_keep_what_the_teacher_wrote(tmp_path: Path) -> None:
    course.write_settings(tmp_path)
    file = tmp_path / course.SETTINGS
    file.write_text(file.read_text() + "c.Exchange.root = '/srv'\n")
    course.write_settings(tmp_path)
    assert file.read_text().endswith("yours\nc.Exchange.root = '/srv'\n")
    compile(file.read_text(), str(file), "exec")


def test_without_walls_nothing_is_graded_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "bubblewrap", lambda: "")
    with pytest.raises(ToolError, match="cannot be isolated") as raised:
        isolation.Isolation()
    assert "bubblewrap" in raised.value.next_step
    assert "ALL FILES" in isolation.Isolation(less=True).words


def test_walls_show_no_solution(tmp_path: Path) -> None:
    for name in ("kernels", "graded", "run"):
        (tmp_path / name).mkdir()
    for name in isolation.LOCKS:
        (tmp_path / name).touch()
    walls = isolation._walls(tmp_path)
    from env import paths

    bound = [Path(walls[at + 1]) for at, word in enumerate(walls) if word == "--ro-bind"]
    assert paths.ROOT / "crates" in bound
    for hidden in (
        paths.ROOT,
        paths.ROOT / "notebooks",
        paths.ROOT / "notebooks" / "solutions",
        Path.home(),
        Path("/etc"),
    ):
        assert hidden not in bound
    assert walls[walls.index(str(paths.ROOT / "crates/lessons/tests")) - 1] == "--tmpfs"
    if program := isolation.bubblewrap():
        # Only where it is installed: a process behind the walls sees neither network nor solutions.
        listing = "import os; print(sorted(os.listdir('/sys/class/net')) if os.path.isdir('/sys') else [])"
        limits = isolation.Limits()
        one = isolation.Isolation.__new__(isolation.Isolation)
        one.program, one.network = program, []
        paths.KERNELS.mkdir(parents=True, exist_ok=True)
        for name in isolation.LOCKS:
            (paths.GENERATED / name).touch()
        python = [str(paths.VENV_PYTHON), "-I", "-c"]
        code = (
            f"{listing}; print(os.path.exists({str(paths.ROOT / 'notebooks')!r}), os.path.isdir({str(paths.CRATES)!r}))"
        )
        code += "; import socket; s = socket.socket(); s.settimeout(1)"
        code += "\ntry: s.connect(('192.0.2.1', 80)); print('net')\nexcept OSError as e: print(e.errno)"
        from env.command import answer

        said = answer(one.command([*python, code], tmp_path, limits), "").splitlines()
        assert said[:2] == ["[]", "False True"]
        assert said[2] in ("101", "113"), said
    assert shutil.which("bwrap") or not isolation.bubblewrap()


def test_descendants_are_counted() -> None:
    import os

    with subprocess.Popen(["sh", "-c", "sleep 5 & sleep 5"]) as shell:
        found: dict[int, int] = {}
        for _ in range(100):
            found = isolation.descendants(os.getpid())
            if len(found) >= 3:
                break
        assert shell.pid in found
        for one in found:
            if one not in (os.getpid(),):
                os.kill(one, 9)


def test_hub_values_and_settings() -> None:
    """What a class relies on in the values for Kubernetes; settings that Python can read."""
    import yaml
    from env import paths

    text = (paths.ENV / "hub" / "values.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    seat = values["singleuser"]
    assert set(values) <= {"hub", "prePuller", "scheduling", "cull", "singleuser"}
    assert values["prePuller"]["hook"]["enabled"]
    assert values["prePuller"]["continuous"]["enabled"]
    assert {"limit", "guarantee"} <= set(seat["memory"])
    assert {"limit", "guarantee"} <= set(seat["cpu"])
    slugs = [profile["slug"] for profile in seat["profileList"]]
    assert len(set(slugs)) == len(slugs)
    assert sum(bool(profile.get("default")) for profile in seat["profileList"]) == 1
    for profile in seat["profileList"][1:]:
        (name,) = profile["kubespawner_override"]["extra_resource_limits"]
        assert name.startswith("nvidia.com/")
    settings = paths.ENV / "hub" / "jupyterhub_config.py"
    compile(settings.read_text(encoding="utf-8"), str(settings), "exec")
