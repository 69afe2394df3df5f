"""Does the set-up that is missing, then goes on inside the virtual environment. Standard library only."""

from __future__ import annotations

import os
import subprocess
import sys

from env.paths import ROOT, VENV_PYTHON

DONE = "GPULAB_SET_UP"


def enter(set_up: bool = True) -> None:
    """Returns only inside `.venv`; ends the process when the set-up fails, or is missing and not asked for."""
    if os.environ.get(DONE) == "1":
        return
    status = 0
    if set_up:
        try:
            status = subprocess.run([sys.executable, "-m", "env.setup"], cwd=ROOT, check=False).returncode
        except KeyboardInterrupt:
            status = 130
    if status != 0:
        sys.exit(status)
    if not VENV_PYTHON.exists():
        sys.exit("error: the virtual environment is missing\nnext: make setup")
    sys.stdout.flush()
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.orig_argv[1:]], {**os.environ, DONE: "1"})
