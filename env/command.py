"""Running a program as part of a step, with its last words kept for the error."""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from env import paths
from env.console import SetupError

# What runs now, in whichever thread.
_running: set[subprocess.Popen] = set()
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def run(
    command: list[str | Path],
    failed: str,
    next_step: str,
    env: Mapping[str, str] | None = None,
    cwd: Path = paths.ROOT,
    on_line: Callable[[str], None] = lambda line: None,
    loses: str = "",
) -> None:
    """Runs to the end, giving each line of output to `on_line`. Anything but success is a `SetupError`."""
    last: deque[str] = deque(maxlen=12)
    try:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise SetupError(f"{failed}: {error}", next_step, loses) from error
    assert process.stdout is not None
    _running.add(process)
    with process:
        try:
            for line in process.stdout:
                text = COLOURS.sub("", line).rstrip()
                if text:
                    last.append(text)
                    on_line(text)
        except BaseException:
            # Ended by a signal: what was started must not outlive us.
            process.terminate()
            raise
        finally:
            _running.discard(process)
    if process.returncode != 0:
        said = "\n".join(f"  {line}" for line in last)
        raise SetupError(f"{failed} (exit status {process.returncode}):\n{said}", next_step, loses)


def stop() -> None:
    """Ends what other threads have started: an interrupt reaches the main thread alone."""
    for process in list(_running):
        process.terminate()


def output(command: list[str | Path], cwd: Path = paths.ROOT) -> str | None:
    """What a program prints on stdout; None where it is missing or fails."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            check=False,
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
