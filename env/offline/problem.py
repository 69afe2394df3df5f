"""What stops the making of a bundle, and the commands that it runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class Problem(Exception):
    """An error for the person at the terminal; its last line names the next step."""


def output(command: list[str], cwd: Path, advice: str, **environment: str) -> str:
    """What a command prints; a failure shows its own words and `advice`."""
    settings = {**os.environ, **environment}
    try:
        done = subprocess.run(command, cwd=cwd, env=settings, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Problem(f"`{command[0]}` could not be started: {error}\nnext: {advice}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-1500:]
        raise Problem(f"`{' '.join(command[:4])} …` failed:\n{said}\nnext: {advice}")
    return done.stdout
