"""The set-up cell's work, once the repository is there: the project's own set-up, then the Rust kernel and `%%rust`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import machine
from .kernel import Kernel
from .magic import Rust, install

ROOT = Path(__file__).resolve().parents[4]
SETTINGS = ROOT / "env" / "colab" / "settings.json"


class SetUpFailed(Exception):
    """The set-up stopped. The text ends with a line `next: …`."""

    def _render_traceback_(self) -> list[str]:
        """The text alone: where in our Python it stopped helps nobody."""
        return str(self).splitlines()


def environment() -> dict[str, str]:
    """This process's, without what would make another Python look for packages in this one's folders."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def dep_lines(lesson: str) -> list[str]:
    """The lesson's lines that load the course's crates."""
    text = (ROOT / "notebooks" / f"{lesson}.ipynb").read_text(encoding="utf-8")
    cells = ("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    return [line for line in next(cells, "").splitlines() if re.match(r":dep\s", line)]


def set_up(lesson: str, bundle: str) -> None:
    """Runs the project's set-up, its lines shown as they come."""
    wanted = {"GPULAB_BUNDLE": bundle} if bundle else {}
    command = [sys.executable, "-u", "-m", "env.setup", "--lessons", lesson]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**environment(), **wanted},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    with process:
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
        except BaseException:
            # It ends what it started, and goes on from there the next time.
            process.terminate()
            raise
    if process.returncode != 0:
        step = "fix what it says above, and run this cell again: it goes on from there"
        raise SetUpFailed(f"the set-up failed (exit status {process.returncode})\nnext: {step}")


def starter(lesson: str) -> Callable[[], Kernel]:
    """Starts the kernel that `make setup` entered for JupyterLab, in the notebooks' folder."""

    def start() -> Kernel:
        spec = ROOT / ".venv" / "share" / "jupyter" / "kernels" / "gpulab-rust" / "kernel.json"
        # The launcher loads the lesson's `:dep` lines ahead of its first cell.
        env = {**environment(), "GPULAB_NOTEBOOK": f"{lesson}.ipynb"}
        return Kernel(json.loads(spec.read_text(encoding="utf-8"))["argv"], ROOT / "notebooks", env)

    return start


def start(lesson: str, shell: Any = None) -> Rust:
    """Makes this runtime ready for a lesson, such as `00_welcome`; `%%rust` cells run after it. Raises `SetUpFailed`."""
    if shell is None:
        from IPython import get_ipython

        shell = get_ipython()
    began = time.monotonic()
    bundle = os.environ.get("GPULAB_BUNDLE") or json.loads(SETTINGS.read_text(encoding="utf-8"))["bundle"]
    parts = machine.missing(ROOT, dep_lines(lesson), bundle)
    total = sum(part.seconds for part in parts) + 2 * machine.READY_S
    print(f"1 of 3: the repository is in {ROOT}")
    once = ", once in a runtime" if parts else ": nothing is missing"
    print(f"2 of 3: set-up for lesson {lesson}; about {machine.minutes(total)} from here{once}")
    for part in parts:
        print(f"        to come: {part.name}, about {machine.minutes(part.seconds)}")
    set_up(lesson, bundle)
    print(f"3 of 3: starting the Rust kernel, about {machine.READY_S} s")
    rust = install(shell, starter(lesson))
    rust.ready(first=True)
    print(f"ready after {time.monotonic() - began:.0f} s")
    for line in machine.found(ROOT, environment()):
        print(f"        {line}")
    return rust
