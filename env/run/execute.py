"""Executes one notebook in one kernel, as shipped and, where asked, with its solutions."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import nbformat
from nbformat import NotebookNode

from env.console import ToolError
from env.notebooks import Lesson, first_words, tags
from env.run.judge import GREEN, RED, judge, judge_check
from env.run.session import Execution, RunningKernel

# notebook, number of the code cell, how many there are, seconds, what to call the cell
Progress = Callable[[str, int, int, float, str], None]


@dataclass
class Failure:
    """One thing that went wrong, and where."""

    notebook: str
    cell: int
    cell_id: str
    begins: str
    text: str

    def __str__(self) -> str:
        where = f"{self.notebook}, code cell {self.cell} (id {self.cell_id}) `{self.begins}`" if self.cell else ""
        return f"{where or self.notebook}: {self.text}"


@dataclass
class Outcome:
    """What came of one notebook."""

    notebook: str
    cells: int = 0
    seconds: float = 0.0
    plots: int = 0
    rows: int = 0
    red: list[str] = field(default_factory=list)
    green: list[str] = field(default_factory=list)
    exercises: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    stopped: bool = False

    def fail(self, text: str, cell: NotebookNode | None = None, number: int = 0) -> None:
        """Notes what went wrong, and in which cell."""
        begins = first_words(cell.source) if cell else ""
        self.failures.append(Failure(self.notebook, number, cell.get("id", "") if cell else "", begins, text))

    def summary(self) -> dict[str, object]:
        """Plain data, for other tools."""
        return asdict(self)


class Run:
    """The execution of one notebook. `executed` holds the copy with outputs, as far as it came."""

    def __init__(
        self,
        lesson: Lesson,
        solutions: bool,
        cell_limit_s: float,
        progress: Progress,
        keep_going: bool = False,
        kernel: type[RunningKernel] = RunningKernel,
    ) -> None:
        self.lesson, self.solutions, self.keep_going = lesson, solutions, keep_going
        self.limit_s, self.progress, self.kernel = cell_limit_s, progress, kernel
        self.executed: NotebookNode = copy.deepcopy(lesson.notebook)
        for cell in self.executed.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        self.outcome = Outcome(lesson.name)

    def run(self, environment: dict[str, str], stop: threading.Event) -> Outcome:
        """Executes all cells; a failing cell ends the notebook (unless told otherwise), a wrong verdict does not."""
        started = time.monotonic()
        cells = [cell for cell in self.executed.cells if cell.cell_type == "code" and cell.source.strip()]
        self._check_names(cells)
        try:
            with self.kernel(self.lesson.path.parent, environment, stop) as kernel:
                self._cells(cells, kernel)
        except ToolError as problem:
            self.outcome.fail(str(problem))
        except KeyboardInterrupt:
            self.outcome.stopped = True
        self.outcome.seconds = time.monotonic() - started
        self.executed.metadata["gpulab"] = {"seconds": round(self.outcome.seconds, 2)}
        return self.outcome

    def _cells(self, cells: list[NotebookNode], kernel: RunningKernel) -> None:
        for number, cell in enumerate(cells, 1):
            done = kernel.execute(cell.source, self.limit_s)
            _fill(cell, done, number)
            self.outcome.cells = number
            self.progress(self.lesson.name, number, len(cells), done.seconds, first_words(cell.source))
            if done.status == "stopped":
                raise KeyboardInterrupt
            wrong = judge(cell, done, self.limit_s, kernel.said() if done.status == "died" else "")
            if wrong:
                self.outcome.fail(wrong, cell, number)
                if not self.keep_going or done.status in ("died", "timeout"):
                    return
                continue
            if "check" in tags(cell) and not self._check(kernel, number, len(cells), cell, done):
                return

    def _check(self, kernel: RunningKernel, number: int, count: int, cell: NotebookNode, done: Execution) -> bool:
        """Judges a check cell, then proves the solution of its exercise. False when the kernel is lost."""
        name = cell.metadata.get("check", "")
        self._verdict(cell, number, done, RED, self.outcome.red)
        if not self.solutions or name not in self.lesson.solutions:
            return True
        for source, what in ((self.lesson.solutions[name], f"solution `{name}`"), (cell.source, f"check `{name}`")):
            done = kernel.execute(source, self.limit_s)
            self.progress(self.lesson.name, number, count, done.seconds, what)
            if done.status == "stopped":
                raise KeyboardInterrupt
            wrong = judge(nbformat.v4.new_code_cell(source), done, self.limit_s)
            if wrong:
                self.outcome.fail(f"with the solution, {what} {wrong}", cell, number)
                return False
        self._verdict(cell, number, done, GREEN, self.outcome.green)
        return True

    def _verdict(self, cell: NotebookNode, number: int, done: Execution, wanted: str, good: list[str]) -> None:
        if wrong := judge_check(cell, done, wanted):
            self.outcome.fail(wrong, cell, number)
        else:
            good.append(cell.metadata.get("check", ""))

    def _check_names(self, cells: list[NotebookNode]) -> None:
        """Every exercise has its check and its solution, and no solution is without an exercise."""
        exercises = [cell.metadata.get("exercise", "") for cell in cells if "exercise" in tags(cell)]
        checks = [cell.metadata.get("check", "") for cell in cells if "check" in tags(cell)]
        self.outcome.exercises = exercises
        wrong = [f"exercise `{name}` has no check cell" for name in exercises if name not in checks]
        wrong += [f"check `{name}` has no exercise cell" for name in checks if name not in exercises]
        if self.solutions:
            file = f"solutions/{self.lesson.name}.rs"
            known = self.lesson.solutions
            wrong += [f"{file} has no section `// exercise: {name}`" for name in exercises if name not in known]
            wrong += [f"{file} solves `{name}`, which is no exercise" for name in known if name not in exercises]
        for text in wrong:
            self.outcome.fail(f"{text}\nnext: give notebook and solutions the same names")


def _fill(cell: NotebookNode, done: Execution, number: int) -> None:
    """Puts the outputs into the copy. Cells are counted from 1; evcxr itself starts at 2."""
    cell.outputs, cell.execution_count = done.outputs, number
    for output in cell.outputs:
        if "execution_count" in output:
            output["execution_count"] = number
    cell.metadata["gpulab"] = {"seconds": round(done.seconds, 3)}
