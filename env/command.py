"""Running other programs: as a step with its last words kept for the error, or for what they print."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from env import paths
from env.console import ToolError

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
    """Runs to the end, giving each line of output to `on_line`. Anything but success is a `ToolError`."""
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
        raise ToolError(f"{failed}: {error}", next_step, loses) from error
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
        raise ToolError(f"{failed} (exit status {process.returncode}):\n{said}", next_step, loses)


def answer(command: list[str | Path], next_step: str, cwd: Path = paths.ROOT, **environment: str) -> str:
    """What a program prints on stdout; a failure is a `ToolError` with its own words."""
    words = [str(part) for part in command]
    settings = {**os.environ, **environment}
    try:
        done = subprocess.run(
            words, cwd=cwd, env=settings, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise ToolError(f"`{words[0]}` could not be started: {error}", next_step) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-1500:]
        raise ToolError(f"`{' '.join(words[:4])} …` failed:\n{said}", next_step)
    return done.stdout.strip()


def free_ports(count: int) -> list[int]:
    """Ports of this machine alone, free a moment ago: for programs that take no others than those they are told."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def stop() -> None:
    """Ends what other threads have started: an interrupt reaches the main thread alone."""
    for process in list(_running):
        process.terminate()


def output(command: list[str | Path], cwd: Path = paths.ROOT) -> str | None:
    """What a program prints on stdout; None where it is missing or fails."""
    try:
        return answer(command, "", cwd)
    except ToolError:
        return None
