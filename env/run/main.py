"""Executes notebooks side by side, each in a kernel of its own, saves what they gave and judges it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

from env.console import ToolError
from env.kernel_cache.candle import share_of_cores
from env.notebooks import FOLDER, ROOT, find, load, relative
from env.paths import RUN
from env.run import exports, in_colab, metrics, provenance, redraw, without_nvrtc
from env.run.execute import Outcome, Run
from env.run.judge import unsaved
from env.run.session import RunningKernel


def parser() -> argparse.ArgumentParser:
    """The command line; NB in the environment names notebooks, as in `make run NB=02`."""
    made = argparse.ArgumentParser(prog="python3 -m env.run", description=__doc__)
    made.add_argument("names", nargs="?", default=os.environ.get("NB", ""), help="such as 00,02 (default: all)")
    made.add_argument("--solutions", action="store_true", help="also prove each exercise's solution")
    made.add_argument("--keep-going", action="store_true", help="go on in a notebook after a failing cell")
    made.add_argument("--out", type=Path, default=RUN, help="where copies go; elsewhere: a recorded run")
    made.add_argument("--jobs", type=int, help="notebooks side by side (default: 2; 1 in a recorded run)")
    made.add_argument("--cell-limit", type=float, default=300.0, metavar="S", help="seconds a cell may take")
    made.add_argument("--html", action=argparse.BooleanOptionalAction, help="write HTML pages (recorded: off)")
    made.add_argument("--colab", action="store_true", help="the Colab edition, with Colab's Python packages")
    made.add_argument("--without-nvrtc", action="store_true", help="as on a machine without NVRTC and without a GPU")
    made.add_argument("--no-provenance", dest="provenance", action="store_false", help=argparse.SUPPRESS)
    made.add_argument("--folder", type=Path, default=FOLDER, help=argparse.SUPPRESS)
    return made


def options(arguments: list[str]) -> argparse.Namespace:
    """What was asked for, with what follows from it."""
    chosen = parser().parse_args(arguments)
    chosen.out = chosen.out.resolve()
    chosen.recorded = chosen.out != RUN
    # Beside the lessons' own copies, with which the Colab edition is compared.
    chosen.beside = "colab" if chosen.colab else "without-nvrtc" if chosen.without_nvrtc else ""
    if chosen.beside:
        chosen.out, chosen.recorded = RUN / chosen.beside, False
    chosen.jobs = max(1, chosen.jobs or (1 if chosen.recorded else 2))
    chosen.html = not chosen.recorded if chosen.html is None else chosen.html
    return chosen


class Runner:
    """One call of `make run`."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.stop, self.lock = threading.Event(), threading.Lock()
        results = os.environ.get("GPULAB_RESULTS")
        own = chosen.recorded or chosen.beside
        self.results = chosen.out if own else Path(results or ROOT / "results").resolve()
        self.metrics = self.results / "metrics.csv"

    def progress(self, name: str, number: int, count: int, seconds: float, what: str) -> None:
        """The line of one cell."""
        with self.lock:
            print(f"{name:<22} [{number:>2}/{count}] {seconds:7.2f} s  {what}", flush=True)

    def one(self, path: Path) -> Outcome:
        """Executes one notebook and saves what it gave."""
        name = path.stem
        if self.stop.is_set():
            return Outcome(name, stopped=True)
        before = metrics.rows_by_lesson(self.metrics)[name]
        lesson, kernel = (
            (in_colab.lesson(path), in_colab.ColabKernel) if self.chosen.colab else (load(path), RunningKernel)
        )
        limits = (self.chosen.solutions, self.chosen.cell_limit)
        run = Run(lesson, *limits, self.progress, self.chosen.keep_going, kernel)
        # JupyterLab names the notebook to its kernel in the same way; the launcher goes by it.
        environment = {**share_of_cores(self.chosen.jobs), **os.environ}
        environment |= {"GPULAB_RESULTS": str(self.results), "JPY_SESSION_NAME": str(path)}
        # Where nothing compiles, there is nothing to keep; the same lesson may be running beside, and keep what it compiles.
        compiled = None if self.chosen.without_nvrtc else without_nvrtc.fresh(name)
        environment |= {without_nvrtc.LOG: str(compiled)} if compiled else without_nvrtc.HIDDEN
        outcome = run.run(environment, self.stop)
        # Whether the pack has all sources is a question to the repository, which `make test` asks: a recorded run tells of a GPU.
        repository = not self.chosen.colab and not self.chosen.recorded
        if compiled and repository and (unpacked := without_nvrtc.missing(compiled)):
            outcome.fail(unpacked)
        if lost := unsaved(run.executed):
            outcome.fail(lost)
        # A disk that is full by now must not hide what the cells gave.
        try:
            self.save(run, outcome, before)
            if self.chosen.colab:
                outcome.failures += in_colab.differences(self.chosen.out / path.name, RUN / path.name)
        except ToolError as problem:
            outcome.fail(str(problem))
        return outcome

    def save(self, run: Run, outcome: Outcome, rows_before: int) -> None:
        """Counts the new rows, and writes the copy, its page and its plots."""
        name = outcome.notebook
        outcome.rows = metrics.rows_by_lesson(self.metrics)[name] - rows_before
        exports.clean_outputs(run.executed)
        exports.save_copy(run.executed, self.chosen.out, name)
        outcome.plots = exports.save_plots(run.executed, self.chosen.out / "plots", name)
        if self.chosen.html:
            exports.save_page(run.executed, self.chosen.out, name)

    def all(self, paths: list[Path]) -> list[Outcome]:
        """Executes all notebooks; Ctrl-C ends every kernel and still reports what was done."""
        pool = ThreadPoolExecutor(self.chosen.jobs)
        # Side by side the last lessons begin first: they take longest, and at the end no core waits for one of them.
        order = paths if self.chosen.jobs == 1 else paths[::-1]
        futures: dict[Path, Future[Outcome]] = {path: pool.submit(self.one, path) for path in order}
        try:
            while not all(future.done() for future in futures.values()):
                time.sleep(0.1)
        except KeyboardInterrupt:
            print("\nstopping: the kernels are being ended", flush=True)
        finally:
            self.stop.set()
            pool.shutdown(wait=True)
        return [_result(path, futures[path]) for path in paths]


def _result(path: Path, future: Future[Outcome]) -> Outcome:
    if (error := future.exception()) is None:
        return future.result()
    outcome = Outcome(path.stem)
    outcome.fail(str(error) if isinstance(error, ToolError) else f"{error!r}\nnext: a fault of the runner; report it")
    return outcome


def table(outcomes: list[Outcome]) -> str:
    """The table at the end of a run."""
    lines = [f"{'notebook':<22} cells seconds plots rows  verdicts"]
    for one in outcomes:
        verdicts = f"{len(one.red)} NOT YET" if one.red else "-"
        verdicts += f", {len(one.green)} PASS with the solution" if one.green else ""
        state = "  FAILED" if one.failures else "  stopped" if one.stopped else ""
        figures = f"{one.cells:>5} {one.seconds:>7.1f} {one.plots:>5} {one.rows:>4}"
        lines.append(f"{one.notebook:<22} {figures}  {verdicts}{state}")
    return "\n".join(lines)


def report(outcomes: list[Outcome], out: Path, seconds: float) -> int:
    """Prints the table and the failures; the exit status."""
    print("\n" + table(outcomes))
    for one in outcomes:
        for failure in one.failures:
            print("\nFAILED " + str(failure).replace("\n", "\n       "))
    bad = sum(bool(one.failures) for one in outcomes)
    stopped = any(one.stopped for one in outcomes)
    end = f"{len(outcomes)} notebooks in {seconds:.0f} s, {bad} failed; copies, pages and plots: {relative(out)}"
    print(f"\n{end}", flush=True)
    return 130 if stopped else 1 if bad else 0


def main(arguments: list[str] | None = None) -> int:
    """Runs; 0 when all is well, 1 when a notebook failed, 130 after Ctrl-C."""
    chosen = options(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started, began = time.monotonic(), datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    paths = find(chosen.names, chosen.folder)
    runner = Runner(chosen)
    before: list[dict] = []
    if chosen.recorded and chosen.provenance:
        provenance.check_replaces(chosen.out)
        before = provenance.entries(chosen.out)
    # Fails now rather than after minutes, where nothing can be written.
    provenance.save_summary(chosen.out, before)
    if redraw.fonts_missing():
        print(
            "no font is installed: plots are saved as SVG only (next: python3 -m env.run.redraw FOLDER where there is one)"
        )
    if chosen.colab:
        in_colab.python()
    outcomes = runner.all(paths)
    found = [one.summary() for one in outcomes]
    if chosen.recorded:
        good = [one.notebook for one in outcomes if not one.failures and not one.stopped]
        metrics.keep_latest(runner.metrics, good, began)
        if chosen.provenance:
            found = provenance.join(before, provenance.recorded(chosen.out, began, outcomes))
            provenance.save(chosen.out, found, provenance.machine_section())
    provenance.save_summary(chosen.out, found)
    return report(outcomes, chosen.out, time.monotonic() - started)
