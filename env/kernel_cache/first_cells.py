"""Runs the warming cells in the real kernel; set-up calls it with the virtual environment's Python.

usage: python -m env.kernel_cache.first_cells FOLDER TOOLCHAIN EVCXR LINES
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from jupyter_client.manager import KernelManager

from env import paths
from env.kernel_cache import recipe

START_S, CELL_S = 300, 3600
ENDINGS = (signal.SIGINT, signal.SIGTERM)
# One of each kind that lessons use: imports, a variable, a line, a value. Each answer proves that the kind works.
CELLS = (
    ("use gpulab::prelude::*;", ""),
    ("let warm_up = vec![1.0f32; 3];", ""),
    ('println!("{} warm", warm_up.len());', "3 warm"),
    ("warm_up.len()", "3"),
)


def run_cell(client: Any, source: str) -> tuple[bool, str]:
    """Whether the cell went well, and what it printed."""
    said: list[str] = []
    good = True

    def hear(message: dict) -> None:
        nonlocal good
        content = message["content"]
        if message["msg_type"] == "stream":
            said.append(content["text"])
            # evcxr answers "ok" to a panic: its text on stderr is what tells.
            good = good and content["name"] != "stderr"
        elif message["msg_type"] == "execute_result":
            said.append(content["data"].get("text/plain", ""))
        elif message["msg_type"] == "error":
            said.append("\n".join(content.get("traceback", [])) or content.get("evalue", ""))

    reply = client.execute_interactive(source, output_hook=hear, timeout=CELL_S, allow_stdin=False)
    return good and reply["content"]["status"] == "ok", "".join(said)


def leave(*_: object) -> NoReturn:
    """By way of `finally`, which ends the kernel. Once: a second signal, of the set-up's group, must not stop that."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    sys.exit("ended by a signal")


def main(folder: Path, toolchain: Path, evcxr: Path, lines: str) -> None:
    """All cells in one kernel, after the `:dep` lines."""
    for number in ENDINGS:
        signal.signal(number, leave)
    manager = KernelManager(kernel_name="python3")
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv = [str(evcxr), "--control_file", "{connection_file}"]
    recipe.write_config(folder, None)
    environment = recipe.environment(dict(os.environ), folder, toolchain, evcxr)
    source = "(the start)"
    try:
        manager.start_kernel(env=environment, cwd=str(paths.NOTEBOOKS))
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=START_S)
        for source, expected in ((lines, ""), *CELLS):
            good, said = run_cell(client, source)
            if not good or expected not in said:
                sys.exit(f"this cell failed: {source}\n{said}")
    except (RuntimeError, TimeoutError) as error:
        # Of a kernel that ends; what it printed stands above.
        sys.exit(f"the Rust kernel ended or did not answer at: {source}\n{error}")
    finally:
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]), sys.argv[4])
