"""Says what is wrong with an executed cell.

The Rust kernel answers "ok" when a cell panics or returns an error through `?`, and only prints the text to
stderr. So its "ok" proves nothing: a cell is good when it printed nothing to stderr either.
"""

from __future__ import annotations

import re

from nbformat import NotebookNode

from env.console import ToolError
from env.notebooks import VERDICT, tags
from env.run.session import Execution, RunningKernel

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
KEPT_LINES = 14
RED, GREEN = "NOT YET", "PASS"
NOT_SAVED = "NOT SAVED: "


def complaints(execution: Execution) -> str:
    """What the cell printed to stderr and the errors it gave, as plain text."""
    parts = []
    for output in execution.outputs:
        if output.output_type == "error":
            trace = "\n".join(output.get("traceback", []))
            value = output.get("evalue", "")
            parts.append(trace if value in ANSI.sub("", trace) else f"{value}\n{trace}")
        elif output.output_type == "stream" and output.name == "stderr":
            parts.append(output.text)
    return ANSI.sub("", "\n".join(part.strip() for part in parts)).strip()


def checked(kernel: RunningKernel, source: str, limit_s: float, next_step: str) -> Execution:
    """Executes a cell that must go well: a failing cell is often a fast one."""
    done = kernel.execute(source, limit_s)
    said = complaints(done)
    if done.status != "ok" or said:
        raise ToolError(f"this cell failed ({done.status}): {source}\n{said or kernel.said()}", next_step)
    return done


def text(execution: Execution) -> str:
    """What the cell printed, and the value it shows, as plain text."""
    parts = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in execution.outputs)
    return "".join(parts)


def verdicts(execution: Execution) -> list[dict[str, str]]:
    """The verdicts of checks among the cell's outputs."""
    return [output.data[VERDICT] for output in execution.outputs if VERDICT in output.get("data", {})]


def unsaved(notebook: NotebookNode) -> str | None:
    """What the crate said when it could not store figures: a cell goes on then, but whoever ran it must know."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            text = output.text if output.output_type == "stream" else ""
            if NOT_SAVED in text:
                lines = text[text.index(NOT_SAVED) :].splitlines()
                end = next((at for at, line in enumerate(lines, 1) if line.startswith("next: ")), len(lines))
                return shorten("\n".join(lines[:end]))
    return None


def shorten(text: str) -> str:
    """The first lines of a long text."""
    lines = text.splitlines()
    cut = [f"… and {len(lines) - KEPT_LINES} more lines"] if len(lines) > KEPT_LINES else []
    return "\n".join(lines[:KEPT_LINES] + cut)


def judge(cell: NotebookNode, execution: Execution, limit_s: float, kernel_said: str = "") -> str | None:
    """What is wrong with this cell's execution, with the next step; None when all is well."""
    text = complaints(execution)
    if execution.status == "timeout":
        step = "make the cell's work smaller, or run with a longer --cell-limit"
        return f"did not finish within {limit_s:.0f} s, so the notebook was stopped here\nnext: {step}"
    if execution.status == "died":
        said = f":\n{kernel_said}" if kernel_said else ""
        return f"the kernel died{said}\nnext: run the cell in JupyterLab; if it dies there too, look for an abort"
    if "expected-error" in tags(cell):
        return _expected(cell, text)
    if text:
        kind, step = _kind(execution, text)
        # The crate's own errors name their next step.
        return f"{kind}:\n{shorten(text)}" + ("" if "\nnext: " in shorten(text) else f"\nnext: {step}")
    if any(output.get("data", {}).get("text/plain", "").strip() == "()" for output in execution.outputs):
        return "shows the value of a loop, `()`\nnext: end the cell's last loop or match with a semicolon"
    if execution.status != "ok":
        return f"the kernel answered `{execution.status}` without a word\nnext: run the cell in JupyterLab"
    return None


def _expected(cell: NotebookNode, text: str) -> str | None:
    wanted = cell.metadata.get("expected_error", "")
    if not wanted:
        return "is tagged `expected-error` but does not say which\nnext: put the text into metadata.expected_error"
    if not text:
        step = "make the cell fail again as its prose says, or take the tag away"
        return f"is tagged `expected-error` but succeeded; `{wanted}` was to be seen\nnext: {step}"
    if wanted not in text:
        step = "fix the cell, or write the text that it now shows into metadata.expected_error"
        return f"failed without the expected text `{wanted}`:\n{shorten(text)}\nnext: {step}"
    return None


def _kind(execution: Execution, text: str) -> tuple[str, str]:
    """What went wrong, and what to do about it."""
    if any(output.output_type == "error" for output in execution.outputs):
        if "the Rust kernel ended" in text:
            return "the kernel died", "see what it printed; run the notebook again"
        if "the process that runs the cells" in text:
            step = "look for an abort, a stack overflow or a bad pointer in what the cell calls"
            return "ended the process that runs the cells", step
        return "does not compile, or the kernel refused it", "fix the line that the compiler names"
    if "panicked at" in text:
        return "panicked", "fix the cause, or return an error with its next step instead of a panic"
    step = "fix the cause; a cell that is to fail carries the tag `expected-error`"
    return "printed to stderr (an error returned by `?` does so)", step


def judge_check(cell: NotebookNode, execution: Execution, wanted: str) -> str | None:
    """What is wrong with the verdict of a check cell, which is to be `wanted`."""
    name = cell.metadata.get("check", "")
    found = verdicts(execution)
    if len(found) != 1:
        step = "let the cell end with the exercise's check, once"
        return f"gave {len(found)} verdicts instead of one on exercise `{name}`\nnext: {step}"
    verdict = found[0]
    if verdict.get("exercise") != name:
        other = verdict.get("exercise")
        return f"judged exercise `{other}` instead of `{name}`\nnext: make metadata.check and the cell agree"
    if verdict.get("verdict") != wanted:
        said = f"{verdict.get('verdict')}: {verdict.get('what', '')}".rstrip(": ")
        if wanted == RED:
            return f"passes unsolved: exercise `{name}` as shipped gave {said}\nnext: let the check reject it"
        return f"stays red: exercise `{name}` with its solution gave {said}\nnext: fix the solution or the check"
    missing = [key for key in ("what", "hint") if wanted == RED and not str(verdict.get(key) or "").strip()]
    if missing:
        step = "a learner needs both: say what is wrong, and hint at how to go on"
        return f"is red for exercise `{name}` without {' and '.join(missing)}\nnext: {step}"
    return None
