"""What set-up says: one line when a long step begins, one when a step is done, skipped or failed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

_lock = threading.Lock()
NAME_WIDTH = 18


class ToolError(Exception):
    """What keeps a tool from its work, and what to do about it. `loses` names what the course loses without an optional part."""

    def __init__(self, what: str, next_step: str = "", loses: str = "") -> None:
        # All of them: an error of a worker process is made again here.
        super().__init__(what, next_step, loses)
        if not next_step:
            what, _, next_step = what.partition("\nnext: ")
        self.what, self.next_step, self.loses = what, next_step, loses

    def __str__(self) -> str:
        return f"{self.what}\nnext: {self.next_step}"


def say(name: str, text: str) -> None:
    """One whole line; two rows of steps run side by side."""
    first, *rest = text.splitlines() or [""]
    lines = [f"  {name:<{NAME_WIDTH}}{first}", *(" " * (NAME_WIDTH + 2) + line for line in rest)]
    with _lock:
        print("\n".join(lines), flush=True)


def problem(error: ToolError) -> None:
    """An error and its next step, on stderr."""
    with _lock:
        print(f"error: {error}", file=sys.stderr, flush=True)


def tool(main: Callable[[], int | None], failed: int = 1) -> NoReturn:
    """Ends the process with what `main` gives back: every tool's last line. `failed` is the status after an error."""
    try:
        status = main() or 0
    except ToolError as error:
        problem(error)
        status = failed
    except OSError as error:
        problem(ToolError(str(error), "see that the folder is writable and its disk has room, and run again"))
        status = failed
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        status = 130
    sys.exit(status)


def seconds(value: float) -> str:
    """A duration for people: 0.4 s, 83 s, 7 min 5 s."""
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 120 else f"{int(value // 60)} min {int(value % 60)} s"


class Step:
    """One step of the set-up: times itself, and says how it went."""

    def __init__(self, name: str, quiet: bool = False) -> None:
        """`quiet` says nothing when there is nothing to do."""
        self.name, self.started, self.quiet = name, time.monotonic(), quiet

    def begin(self, what: str) -> None:
        """What is being done now; for steps that take more than a moment."""
        say(self.name, f"{what} ...")

    def done(self, what: str) -> None:
        """It is done: what is there now, and how long it took."""
        say(self.name, f"{seconds(time.monotonic() - self.started):<8} {what}")

    def skipped(self, why: str) -> None:
        """Nothing to do."""
        if not self.quiet:
            say(self.name, f"skipped: already there ({why})")

    @contextmanager
    def heartbeat(self, text: Callable[[], str]) -> Iterator[None]:
        """Says every 20 s that it is still at work, while the block runs."""
        with every(20, lambda: say(self.name, f"... {seconds(time.monotonic() - self.started)}: {text()}")):
            yield


@contextmanager
def every(period_s: float, call: Callable[[], None]) -> Iterator[None]:
    """Calls it again and again while the block runs."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(period_s):
            call()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
