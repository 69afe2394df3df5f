"""Runs the warming cells in the real kernel; set-up calls it with the virtual environment's Python.

usage: python -m env.kernel_cache.first_cells FOLDER TOOLCHAIN EVCXR LINES
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from env import paths
from env.console import ToolError, tool
from env.kernel_cache import recipe
from env.run.judge import checked, text
from env.run.session import RunningKernel

CELL_S = 3600
# One of each kind that lessons use: imports, a variable, a line, a value. Each answer proves that the kind works.
CELLS = (
    ("use gpulab::prelude::*;", ""),
    ("let warm_up = vec![1.0f32; 3];", ""),
    ('println!("{} warm", warm_up.len());', "3 warm"),
    ("warm_up.len()", "3"),
)


def main() -> None:
    """All cells in one kernel, after the `:dep` lines."""
    stop, signals = threading.Event(), (signal.SIGINT, signal.SIGTERM)

    def end(*_: object) -> None:
        # The first one counts: a second one within `set` would wait for the lock that the first one holds.
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        stop.set()

    for number in signals:
        # Not an exception: it could come between the kernel's start and the moment from which it is known here.
        signal.signal(number, end)
    folder, toolchain, evcxr = (Path(argument) for argument in sys.argv[1:4])
    recipe.write_config(folder, None)
    environment = recipe.environment(dict(os.environ), folder, toolchain, evcxr)
    command = [str(evcxr), "--control_file", "{connection_file}"]
    # What cargo says goes on to the set-up, which counts the crates.
    with RunningKernel(paths.NOTEBOOKS, environment, stop, command, log=False) as kernel:
        for source, expected in ((recipe.with_lock(sys.argv[4]), ""), *CELLS):
            done = checked(kernel, source, CELL_S, "see what the kernel printed above")
            if expected not in text(done):
                raise ToolError(f"this cell gave `{text(done)}`, not `{expected}`: {source}", "make setup")


if __name__ == "__main__":
    tool(main)
