"""A class of 30 with planted submissions, graded to the expected table: `python3 -m env.grading.class_of_30 --twice`.

Right and wrong answers, copies, cheats, crashes, endless loops, files that are no notebooks: each with the points it must get.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env import in_venv

if __name__ == "__main__":
    # Before nbformat is asked for: where `make` calls, only the standard library need be there.
    in_venv.enter("grading")

import nbformat
from nbformat import NotebookNode

from env.console import tool
from env.grading import assignment, grade, restore
from env.grading.isolation import Limits
from env.notebooks import Lesson, find, load

NAME = "planted"
POINTS = {"scale": 2.0, "shifted_sectors": 1.0}
KERNEL = """const SCALE: &str = r#"extern "C" __global__ void scale(const float *x, float *y, int n) {{
    {body}
}}"#;"""
STRIDE = "int threads = gridDim.x * blockDim.x;\n    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {{ {do} }}"
FORGED = (
    'EVCXR_BEGIN_CONTENT application/vnd.gpulab.verdict+json\\n{{\\"exercise\\": \\"scale\\", \\"verdict\\": '
    '\\"PASS\\", \\"what\\": \\"\\", \\"hint\\": \\"\\"}}\\nEVCXR_END_CONTENT\\n'
)
NUMBER = "let my_shifted_sectors: Option<f64> = Some({});"
SOLVED = NUMBER.format("163_840.0")


@dataclass
class Planted:
    """A submission, and the points that it must get for `scale` and `shifted_sectors`; None where it cannot be graded."""

    points: tuple[float, float] | None
    scale: str | None = None
    number: str | None = None
    change: Callable[[dict[str, Any]], Any] | None = None


def kernel(do: str = "y[i] = 2.0f * x[i];", body: str = STRIDE) -> str:
    """An answer to `scale`."""
    return KERNEL.format(body=body.format(do=do))


def _without(part: str) -> Callable[[dict[str, Any]], Any]:
    def change(notebook: dict[str, Any]) -> None:
        notebook["cells"] = [cell for cell in notebook["cells"] if cell["metadata"][assignment.NOTES]["part"] != part]

    return change


def _renumbered(notebook: dict[str, Any]) -> None:
    for number, cell in enumerate(notebook["cells"]):
        cell["id"], cell["metadata"] = str(number), {}


def _outputs(notebook: dict[str, Any]) -> None:
    line = {"output_type": "stream", "name": "stdout", "text": "again\n"}
    next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")["outputs"] = [line] * 1_000_000


def _patched(notebook: dict[str, Any]) -> None:
    for cell in notebook["cells"]:
        if cell["metadata"][assignment.NOTES]["part"] == "check":
            cell["source"] = 'println!("PASS")'
            cell["metadata"]["nbgrader"]["points"] = 100


def _more(notebook: dict[str, Any]) -> None:
    extra = {"cell_type": "code", "id": "extra", "metadata": {}, "source": "mod check { }", "outputs": []}
    notebook["cells"].insert(3, {**extra, "execution_count": None})


def submissions(lesson: Lesson) -> dict[str, Planted | str]:
    """The class: a planted submission by learner; a text is a file that is no notebook."""
    right = lesson.solutions["scale"]
    shadow = f'mod check {{ pub fn scale(_: &str) {{ println!("{FORGED}"); }} }}'
    thread = 'std::thread::spawn(|| for _ in 0..400 {{ print!("{forged}"); std::thread::sleep(std::time::Duration::from_millis(20)); }});'
    own = kernel("float twice = x[i] + x[i]; y[i] = twice;")
    return {
        "right-1": Planted((2, 1), right, SOLVED),
        "right-2": Planted((2, 1), kernel(), SOLVED),
        "right-3": Planted((2, 1), kernel("y[i] = x[i] + x[i];"), SOLVED),
        "right-4": Planted((2, 1), kernel("float v = x[i]; y[i] = v * 2.0f;"), SOLVED),
        "right-kernel": Planted((2, 0), kernel("y[i] = x[i] * 2.0f;"), None),
        "right-number": Planted((0, 1), None, SOLVED),
        "unsolved-1": Planted((0, 0)),
        "unsolved-2": Planted((0, 0)),
        "wrong-factor": Planted((0, 1), kernel("y[i] = 3.0f * x[i];"), SOLVED),
        "wrong-number": Planted((2, 0), kernel("y[i] = 2 * x[i];"), NUMBER.format("131_072.0")),
        "wrong-bounds": Planted((0, 0), kernel("y[i + 1] = 2.0f * x[i];"), None),
        "wrong-half": Planted(
            (0, 0), kernel(body="int i = threadIdx.x; if (i < n / 2) {{ y[i] = 2.0f * x[i]; }}"), None
        ),
        "neighbour-a": Planted((2, 1), own, SOLVED),
        "neighbour-b": Planted((2, 1), own.replace("    int threads", "    // mine\n    int  threads"), SOLVED),
        "neighbour-c": Planted((2, 1), own.replace("twice", "doubled").replace("threads", "step"), SOLVED),
        "cheat-shadow": Planted((0, 0), f"{assignment_of(lesson, 'scale')}\n{shadow}", None),
        "cheat-thread": Planted((0, 0), f"{assignment_of(lesson, 'scale')}\n{thread.format(forged=FORGED)}", None),
        "cheat-read": Planted(
            (0, 0), 'const SCALE: &str = include_str!("../notebooks/solutions/10_vector_add.rs");', None
        ),
        "cheat-command": Planted((0, 1), ':dep gpulab-lessons = { path = "../mine" }\n' + right, SOLVED),
        "cheat-check": Planted((0, 0), None, None, _patched),
        "nan": Planted((0, 1), kernel("y[i] = 0.0f / 0.0f;"), SOLVED),
        "nan-number": Planted((2, 0), right, NUMBER.format("f64::NAN")),
        "crash": Planted((0, 1), f"{right}\nstd::process::abort();", SOLVED),
        "endless": Planted((0, 1), f"{right}\nloop {{ std::hint::black_box(()); }}", SOLVED),
        "endless-kernel": Planted((0, 1), kernel(body="while (true) {{ y[0] = x[0]; }}"), SOLVED),
        "memory": Planted((0, 1), f'{right}\nlet all = vec![1u8; 40 << 30]; println!("{{}}", all[7]);', SOLVED),
        "removed": Planted((0, 1), None, SOLVED, lambda one: (_drop_scale(one), _without("check")(one))),
        "renumbered": Planted((2, 1), right, SOLVED, _renumbered),
        "no-notebook": "<!doctype html><p>my answers</p>",
        "million": Planted((2, 1), right, SOLVED, lambda one: (_outputs(one), _more(one))),
    }


def _drop_scale(notebook: dict[str, Any]) -> None:
    notebook["cells"] = [
        cell for cell in notebook["cells"] if cell["metadata"][assignment.NOTES].get("exercise") != "scale"
    ]


def assignment_of(lesson: Lesson, name: str) -> str:
    """An exercise's cell as shipped."""
    return next(cell.source for cell in lesson.notebook.cells if cell.metadata.get("exercise") == name)


def write_class(release: NotebookNode, planted: dict[str, Planted | str], place: Path) -> None:
    """The files that come back."""
    place.mkdir(parents=True)
    for name, one in planted.items():
        if isinstance(one, str):
            (place / f"{name}.ipynb").write_text(one, encoding="utf-8")
            continue
        made = copy.deepcopy(release)
        for exercise, cell in restore.answers(made).items():
            cell.source = {"scale": one.scale, "shifted_sectors": one.number}[exercise] or cell.source
        notebook = json.loads(nbformat.writes(made))
        if one.change:
            one.change(notebook)
        (place / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


def wrong(table: list[list[str]], planted: dict[str, Planted | str]) -> list[str]:
    """Where the table is not the expected one."""
    said = []
    for row in table[1:]:
        one = planted[row[0]]
        got = [cell.split(" ")[0] for cell in row[1:3]]
        wanted = ["-", "-"] if isinstance(one, str) else [f"{points:g}" for points in one.points or ()]
        if got != wanted:
            said.append(f"{row[0]}: {got} instead of {wanted}")
    return said


def main() -> int:
    """Grades the class, or some of it, once or twice; 1 where points are others than expected, or other answers are alike."""
    parser = argparse.ArgumentParser(prog="python3 -m env.grading.class_of_30", description=__doc__)
    parser.add_argument("--only", default="", help="such as right-1,crash")
    parser.add_argument("--twice", action="store_true", help="grade again, and compare")
    chosen = parser.parse_args()
    lesson = load(find("10")[0])
    planted = submissions(lesson)
    names = [name for name in chosen.only.split(",") if name] or list(planted)
    planted = {name: planted[name] for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        place = (Path(temporary) / "course").resolve()
        os.environ["COURSE"] = str(place)
        release = assignment.make([lesson], NAME, POINTS, place) / f"{lesson.name}.ipynb"
        write_class(nbformat.read(release, as_version=4), planted, place / "came-back")
        tables = []
        for _ in range(2 if chosen.twice else 1):
            started = time.monotonic()
            grader = grade.Grader(NAME, place, False, Limits(), 2)
            table, alike = grade.grade(grader, place / "came-back")
            print(grade.text(table))
            print("\n".join(f"alike, {exercise}: {', '.join(who)} ({how})" for exercise, who, how in alike))
            print(f"{len(table) - 1} submissions in {time.monotonic() - started:.0f} s")
            tables.append((table, alike))
    said = [text for table, _ in tables for text in wrong(table, planted)]
    said += ["others are alike the second time"] if tables[-1][1] != tables[0][1] else []
    # What ends an endless loop, the simulator or the limit of time, may depend on how busy the machine is; the points may not.
    for first, again in zip(tables[0][0], tables[-1][0], strict=True):
        if first != again:
            print(f"told otherwise the second time: {first[0]}: {', '.join(first[1:])}; then {', '.join(again[1:])}")
    print("\n".join(said) or "as expected" + (", twice" if chosen.twice else ""))
    return 1 if said else 0


if __name__ == "__main__":
    tool(main)
