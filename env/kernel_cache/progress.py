"""How far the set-up is: written by it, read by a kernel whose first cell waits. Standard library only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from env import paths
from env.kernel_cache import lock


def file() -> Path:
    """Where it stands."""
    return paths.GENERATED / "progress.json"


def lock_file() -> Path:
    """Held by the set-up as long as a kernel may have to wait for it."""
    return paths.GENERATED / "setup.lock"


@dataclass(frozen=True)
class Progress:
    """What the set-up does now, or the error that ended it."""

    phase: str
    done: int = 0
    # None where it cannot be known.
    total: int | None = None
    # Until kernels can start, as far as it can be estimated.
    seconds_left: float | None = None
    # When the set-up began, in seconds since 1970.
    since: float = field(default_factory=time.time)
    pid: int = field(default_factory=os.getpid)
    # What went wrong, and in its last line `next: …`; the set-up has ended then.
    error: str | None = None
    unit: str = "crates"

    def text(self) -> str:
        """One line for people: `building the crates: 12 of 80 crates, about 2 minutes`."""
        counted = (
            f"{self.done} of {self.total} {self.unit}" if self.total else f"{self.done} {self.unit}" * bool(self.done)
        )
        return (
            f"{self.phase}: {', '.join(known)}" if (known := list(filter(None, (counted, self.left())))) else self.phase
        )

    def left(self) -> str:
        """`about 2 minutes`; nothing where there is no estimate."""
        if self.seconds_left is None:
            return ""
        minutes = round(self.seconds_left / 60)
        return f"about {minutes} minute{'s' * (minutes > 1)}" if minutes else "less than a minute"


def read() -> Progress | None:
    """Of the set-up that runs now, or of the last one if that failed; None where there is nothing to wait for."""
    said = paths.read_json(file())
    try:
        found = Progress(**{one.name: said[one.name] for one in fields(Progress)})
    except KeyError:
        return None
    return found if found.error or not lock.is_free(lock_file()) else None


def write(progress: Progress) -> None:
    """Tells it, whole or not at all."""
    paths.write_json(file(), asdict(progress))


@contextmanager
def working() -> Iterator[None]:
    """Holds the lock for one set-up, as two at once wait for each other; what a failed one said is gone with it."""
    with lock.locked(lock_file()):
        write(Progress("beginning"))
        yield
        file().unlink(missing_ok=True)
