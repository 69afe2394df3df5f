"""Does the set-up that is missing, then goes on inside the virtual environment. Standard library only."""

from __future__ import annotations

import os
import subprocess
import sys

from env.paths import ROOT, VENV_PYTHON

DONE = "GPULAB_SET_UP"


def chosen_python() -> None:
    """Goes on in the Python that the offline bundle's packages are for, whichever was called."""
    chosen = os.environ.get("GPULAB_PYTHON", "")
    if chosen and os.path.realpath(chosen) != os.path.realpath(sys.executable):
        os.execv(chosen, [chosen, *sys.orig_argv[1:]])


def enter(*packages: str, set_up: bool = True) -> None:
    """Returns only inside `.venv`; ends the process when the set-up fails, or is missing and not asked for.

    `packages` names what is needed beyond a learner's packages: `onnx`, `tests`.
    """
    if os.environ.get(DONE) == "1":
        return
    status = 0
    if set_up:
        command = [sys.executable, "-m", "env.setup", *(word for name in packages for word in ("--packages", name))]
        try:
            status = subprocess.run(command, cwd=ROOT, check=False).returncode
        except KeyboardInterrupt:
            status = 130
    if status != 0:
        sys.exit(status)
    if not VENV_PYTHON.exists():
        sys.exit("error: the virtual environment is missing\nnext: make setup")
    sys.stdout.flush()
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.orig_argv[1:]], {**os.environ, DONE: "1"})
