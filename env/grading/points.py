"""Runs a restored submission in isolation and turns verdicts into points that nbgrader reads.

evcxr says "ok" to a panic, shows a verdict as an ordinary value, and knows no exception: nbgrader would give full points to
`NOT YET` and none to a warning on stderr. So each check cell is left with one number for it: what the check gave.
"""

from __future__ import annotations

import copy
import re
import secrets
import threading
import time
from dataclasses import asdict, dataclass

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_output

from env.console import ToolError
from env.grading import restore
from env.grading.assignment import NOTES
from env.grading.isolation import IsolatedKernel, Isolation, Limits
from env.grading.restore import exercise, part
from env.notebooks import VERDICT
from env.run.judge import ANSI, GREEN, RED, complaints, shorten, verdicts
from env.run.session import Execution

CHECK = re.compile(r"^\s*check\s*::\s*(\w+)\s*\((.*)\)\s*;?\s*$", re.DOTALL)
# An answer that ends the kernel costs a new one; so many exercises may do so, and one more start is a fault of the machine.
FAULTS = 2
GIVEN_S = 300.0
MOST_OUTPUT = 20_000
SHOWN = ("text/html", "text/plain", "image/svg+xml", "image/png", VERDICT)


@dataclass
class Grade:
    """What one exercise got, and why."""

    exercise: str
    most: float
    points: float = 0.0
    verdict: str = "not run"
    what: str = ""


@dataclass
class Graded:
    """What came of one notebook."""

    notebook: NotebookNode
    grades: list[Grade]
    told: list[str]
    flags: list[str]
    seconds: float = 0.0
    most_mib: int = 0
    kernels: int = 0

    def points(self) -> float:
        """All of it."""
        return sum(one.points for one in self.grades)

    def summary(self) -> dict[str, object]:
        """Plain data, without what changes from run to run."""
        return {"grades": [asdict(one) for one in self.grades], "told": self.told, "flags": self.flags}


def signed(source: str, word: str) -> str:
    """A check cell that names its crate in full and says its verdict once more behind a word that no answer could know.

    An answer may define a `check` of its own, or print what looks like a verdict: neither is asked.
    """
    found = CHECK.match(source)
    if not found:
        raise ToolError(f"this check cell is no single call of a check: {source}", "let it be `check::name(answer)`")
    call = f"::gpulab_lessons::check::{found[1]}({found[2].strip()})"
    said = f'::std::println!("\\n{word} {{}}", if verdict.passed() {{ 1 }} else {{ 0 }});'
    return f"{{\nlet verdict = {call};\nverdict.evcxr_display();\n{said}\n}}"


class Grading:
    """The execution of one restored notebook."""

    def __init__(self, made: restore.Restored, isolation: Isolation, limits: Limits | None = None) -> None:
        self.made, self.isolation, self.limits = made, isolation, limits or Limits()
        self.stop = threading.Event()
        # What is known while it runs: whose cell ended the kernel, and why; the grades so far; what each cell showed.
        self.lost: dict[str, str] = {}
        self.judged: dict[str, Grade] = {}
        self.shown: dict[str, list[NotebookNode]] = {}
        self.kernels, self.most_mib = 0, 0
        self.cells = [cell for cell in made.notebook.cells if cell.cell_type == "code" and cell.source.strip()]

    def run(self) -> Graded:
        """Executes it. A cell that takes the kernel along ends its exercise alone: all others run in a new kernel."""
        started = time.monotonic()
        for cell in self.cells:
            if part(cell) == "answer" and (why := restore.refused(cell.source)):
                self.lost[exercise(cell)] = f"the answer holds {why}, and was not run"
        faults = 0
        while True:
            try:
                blamed = self._once(started)
            except ToolError as error:
                faults += 1
                if faults >= FAULTS:
                    raise ToolError(f"the isolated kernel gave no answer: {error.what}", error.next_step) from error
                continue
            if not blamed:
                break
        return self._result(time.monotonic() - started)

    def _once(self, started: float) -> bool:
        """One kernel from the top; true when it was lost, and another one has something left to do."""
        self.kernels += 1
        answered = False
        blank = copy.deepcopy(self.made.notebook)
        # The launcher reads the `:dep` lines of the first cell, and nobody's answers.
        blank.cells = [cell for cell in blank.cells if cell.cell_type == "code"][:1]
        import nbformat

        with IsolatedKernel(self.isolation, self.limits, nbformat.writes(blank), self.stop) as kernel:
            for cell in self.cells:
                if not self._wanted(cell):
                    continue
                left = self.limits.whole_s - (time.monotonic() - started)
                word = secrets.token_hex(16)
                source = signed(cell.source, word) if part(cell) == "check" else cell.source
                # The assignment's own cells load the crates; on a busy machine that takes longer than any answer may.
                most = max(self.limits.cell_s, GIVEN_S) if part(cell) == "given" else self.limits.cell_s
                done = kernel.execute(source, max(1.0, min(most, left)))
                self.most_mib = max(self.most_mib, kernel.watch.most_mib)
                why = self._lost(done, kernel.watch.over, left)
                if why:
                    return self._blame(cell, why, bool(left > self.limits.cell_s))
                answered = answered or part(cell) == "answer"
                # Before any answer has run, nobody else can be to blame: no learner gets 0 points for it.
                if not answered and (wrong := complaints(done)):
                    raise ToolError(f"the assignment's own cell `{cell.id}` failed: {shorten(wrong)}", "make setup")
                self._note(cell, done, word)
        return False

    def _wanted(self, cell: NotebookNode) -> bool:
        """Answers that did no harm, checks that have not been asked, and whatever these need."""
        if exercise(cell) in self.lost:
            return False
        return not (part(cell) == "check" and exercise(cell) in self.judged)

    def _lost(self, done: Execution, over: str, left: float) -> str:
        """Why the kernel, or the process that runs the cells in it, is gone."""
        said = complaints(done)
        if over:
            return f"it took {over}, and was ended"
        if done.status == "timeout":
            limit = min(self.limits.cell_s, max(1.0, left))
            return f"it did not come back within {limit:.0f} s, and was ended"
        if done.status in ("died", "stopped"):
            return "it ended the kernel"
        gone = "the process that runs the cells" in said or "the Rust kernel ended" in said
        return "it ended the process that runs the cells: " + shorten(said) if gone else ""

    def _blame(self, cell: NotebookNode, why: str, time_left: bool) -> bool:
        """Notes whose cell it was; true when another kernel is worth its start."""
        name = exercise(cell)
        self.shown[cell.id] = [new_output("stream", name="stdout", text=f"{why}\n")]
        if part(cell) == "look":
            # Pictures come last: nothing is left to be graded.
            return False
        if not name:
            if self.judged:
                return False
            raise ToolError(
                f"the assignment's own cell `{cell.id}` failed: {why}",
                "make setup, then make grade again; LIMIT=300 on a busy machine",
            )
        self.lost[name] = why
        if part(cell) == "check":
            self.judged[name] = Grade(name, self._most(name), 0.0, "ended", why)
        return time_left

    def _note(self, cell: NotebookNode, done: Execution, word: str) -> None:
        """Keeps what a cell showed, and of a check its verdict."""
        self.shown[cell.id] = shown(done, word)
        name = exercise(cell)
        if part(cell) == "check" and name:
            self.judged[name] = judged(name, self._most(name), done, word)

    def _most(self, name: str) -> float:
        found = (cell for cell in self.cells if part(cell) == "check" and exercise(cell) == name)
        return float(next(found).metadata["nbgrader"]["points"])

    def _result(self, seconds: float) -> Graded:
        notebook, grades = self.made.notebook, []
        told = list(self.made.told)
        for number, cell in enumerate(self.cells, 1):
            name = exercise(cell)
            cell.outputs, cell.execution_count = self.shown.get(cell.id, []), number
            if part(cell) != "check":
                continue
            grade = self.judged.get(name) or Grade(name, self._most(name))
            if name in self.lost and name not in self.judged:
                grade.verdict, grade.what = "ended", self.lost[name]
            elif grade.verdict == "not run":
                grade.what = f"the time for one submission, {self.limits.whole_s:.0f} s, was over"
            grades.append(grade)
            cell.outputs = [*cell.outputs, *score(grade)]
        made = Graded(notebook, grades, told, self.made.flags, seconds, self.most_mib, self.kernels)
        notebook.cells.insert(0, head(made, self.isolation.words))
        notebook.metadata[NOTES] = made.summary()
        return made


def judged(name: str, most: float, done: Execution, word: str) -> Grade:
    """The grade of an executed check: by the signed word alone; the words are those of the verdict."""
    printed = "".join(output.get("text", "") for output in done.outputs if output.output_type == "stream")
    answers = re.findall(rf"^{word} ([01])$", printed, flags=re.MULTILINE)
    said = [one for one in verdicts(done) if one.get("exercise") == name]
    passed = answers == ["1"]
    if len(answers) != 1:
        wrong = shorten(complaints(done)) or "the check gave no verdict"
        return Grade(name, most, 0.0, "does not run", wrong)
    # What else was printed as a verdict is somebody's, and nobody's reason.
    fitting = [one for one in said if (one.get("verdict") == GREEN) == passed]
    what = str(fitting[-1].get("what", "")) if fitting else ""
    return Grade(name, most, most if passed else 0.0, GREEN if passed else RED, what)


def shown(done: Execution, word: str = "") -> list[NotebookNode]:
    """A cell's outputs for the feedback: no stderr and no value that nbgrader would take for a grade, and not a million lines."""
    kept, size = [], 0
    for output in done.outputs:
        if size > MOST_OUTPUT:
            kept.append(new_output("stream", name="stdout", text="… and more, which is not shown\n"))
            break
        if output.output_type == "stream":
            text = ANSI.sub("", output.text)
            text = re.sub(rf"^\n?{word} [01]\n", "", text, flags=re.MULTILINE) if word else text
            text = text if len(text) <= MOST_OUTPUT else text[:MOST_OUTPUT] + "\n…\n"
            size += len(text)
            if text.strip():
                kept.append(new_output("stream", name="stdout", text=text))
        elif output.output_type == "error":
            text = ANSI.sub("", "\n".join(output.get("traceback", [])))[:MOST_OUTPUT]
            size += len(text)
            kept.append(new_output("stream", name="stdout", text=text + "\n"))
        else:
            data = {kind: value for kind, value in output.get("data", {}).items() if kind in SHOWN}
            size += sum(len(str(value)) for value in data.values()) // 20
            # nbgrader reads `text/plain` of every value.
            data.setdefault("text/plain", "")
            kept.append(new_output("display_data", data=data))
    return kept


def score(grade: Grade) -> list[NotebookNode]:
    """What nbgrader reads as the points of a check cell: a value whose text is a number."""
    why = (
        [new_output("stream", name="stdout", text=f"{grade.verdict}: {grade.what}\n")]
        if grade.verdict not in (GREEN, RED)
        else []
    )
    shown_as = f"<p><strong>{grade.points:g} of {grade.most:g} points</strong></p>"
    data = {"text/plain": str(float(grade.points)), "text/html": shown_as}
    return [*why, new_output("execute_result", data=data, execution_count=1)]


def head(made: Graded, isolation: str) -> NotebookNode:
    """What stands above the feedback."""
    # nbgrader's page leaves no room between columns.
    rows = "\n".join(
        f"| `{one.exercise}` | {one.points:g} of {one.most:g} | &emsp;{one.verdict} |" for one in made.grades
    )
    lines = [f"## Graded: {made.points():g} of {sum(one.most for one in made.grades):g} points", ""]
    lines += ["| exercise | points | &emsp;verdict |", "| --- | ---: | --- |", rows, ""]
    lines += [f"- {one}" for one in made.told]
    lines += ["", f"Run from the top in the simulator: {isolation}. What each check said stands at the end."]
    cell = new_markdown_cell("\n".join(lines), id="graded")
    return cell
