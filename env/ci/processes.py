"""Runs the commands of the test steps: each with a log, a time limit, and an end for all that it started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

from env.paths import ROOT

GRACE_S = 15


class Commands:
    """Starts commands, and can end them all: a step that hangs, or Ctrl-C, leaves nothing behind."""

    def __init__(self, logs: Path) -> None:
        self.logs, self.lock = logs, threading.Lock()
        self.running: set[subprocess.Popen[bytes]] = set()
        self.stopped = False

    def run(self, name: str, command: list[str], limit_s: float, **environment: str) -> tuple[int, str]:
        """The exit status and the output; -1 and what was printed so far when it took too long."""
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as file:
            with self.lock:
                if self.stopped:
                    return -1, "stopped"
                # A pipe and not the file itself: a test that limits the size of files must still be able to print.
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self.running.add(process)
            copier = threading.Thread(target=shutil.copyfileobj, args=(process.stdout, file), daemon=True)
            copier.start()
            try:
                status = process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                _end(process)
                status = -1
            finally:
                copier.join(timeout=GRACE_S)
                with self.lock:
                    self.running.discard(process)
        output = log.read_text(encoding="utf-8", errors="replace")
        return status, output + (f"\nended after {limit_s:.0f} s" if status == -1 else "")

    def stop(self) -> None:
        """Ends all that runs, and lets nothing new begin."""
        with self.lock:
            self.stopped = True
            running = list(self.running)
        for process in running:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """First a request, so that the notebook runner can end its kernels; then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=GRACE_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return
