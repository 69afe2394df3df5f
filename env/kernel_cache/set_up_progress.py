"""How far the set-up is: written by it, read by a kernel whose first cell waits. Standard library only."""

from __future__ import annotations

import bisect
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from env import paths
from env.console import Step, ToolError, every
from env.kernel_cache import lock

# With less of a step done, its speed says nothing yet about this machine.
FIRST_SHARE = 0.05


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
    # When this began, in seconds since 1970.
    since: float = field(default_factory=time.time)
    pid: int = field(default_factory=os.getpid)
    # What went wrong, and in its last line `next: …`; the set-up has ended then.
    error: str | None = None
    unit: str = "crates"

    def text(self) -> str:
        """One line for people: `building the crates: 12 of 80 crates, about 2 minutes`."""
        return ": ".join(filter(None, [self.phase, self.amount()]))

    def amount(self) -> str:
        """`12 of 80 crates, about 2 minutes`, as far as it is known."""
        known = [
            f"{self.done} of {self.total} {self.unit}" if self.total else f"{self.done} {self.unit}" * bool(self.done)
        ]
        if self.seconds_left is not None:
            minutes = round(self.seconds_left / 60)
            known.append(f"about {minutes} minute{'s' * (minutes > 1)}" if minutes else "less than a minute")
        return ", ".join(filter(None, known))


def read() -> Progress | None:
    """Of the set-up that runs now, or of the last one if that failed; None where there is nothing to wait for."""
    said = paths.read_json(file())
    try:
        found = Progress(**{one.name: said[one.name] for one in fields(Progress)})
    except KeyError:
        return None
    return found if found.error or not lock.is_free(lock_file()) else None


def write(progress: Progress) -> None:
    """Tells it, whole or not at all; on a full disk nothing."""
    with contextlib.suppress(OSError):
        paths.write_json(file(), asdict(progress))


@contextmanager
def working() -> Iterator[None]:
    """For one set-up at a time, a second one waits for the first. Kernels are told how it ended, if that was an error."""
    step = Step("set-up")
    if not lock.is_free(lock_file()) and read():
        step.begin("another one is at work: waiting for it")
    with contextlib.ExitStack() as stack:
        with step.heartbeat(lambda: found.text() if (found := read()) else "waiting"):
            stack.enter_context(lock.locked(lock_file()))
        write(Progress("the set-up looks for what is missing"))
        try:
            yield
        except ToolError as error:
            write(Progress("failed", error=str(error)))
            raise
        except BaseException:
            file().unlink(missing_ok=True)
            raise
        file().unlink(missing_ok=True)


def built(target: Path, since: float = 0.0) -> list[str]:
    """The crates whose library stands in one of cargo's build folders, and was made after a moment, the newest last.

    cargo's own lines come through evcxr with gaps, and of what an interrupted build has done they say nothing.
    """
    times: dict[str, float] = {}
    for file in (file for folder in ("*/deps", "*/*/deps") for file in target.glob(f"{folder}/lib*")):
        # libctx is that of evcxr's own cells.
        if file.suffix in (".rmeta", ".so", ".dylib") and not file.name.startswith("libctx."):
            with contextlib.suppress(OSError):
                times[file.name.removeprefix("lib").split("-")[0]] = file.stat().st_mtime
    return sorted((name for name, time in times.items() if time >= since), key=times.__getitem__)


class Counter:
    """Counts what a long step has done, and estimates how long the rest takes."""

    def __init__(
        self,
        phase: str,
        total: int | None = None,
        unit: str = "crates",
        look: Callable[[], Iterable[str]] = lambda: (),
        expected_s: float | None = None,
        later_s: float = 0.0,
        curve: tuple[int, ...] = (),
    ) -> None:
        """`expected_s` is what it takes on 2 cores, `later_s` what comes after it, before kernels can start.

        `curve` has how many were done after equal shares of a measured build's time: some crates take a minute, and most
        of them a second. `look` gives the names of all that are done; without it they are told (`add`).
        """
        self.phase, self.total, self.unit, self.look = phase, total, unit, look
        self.expected_s, self.later_s, self.curve = expected_s, later_s, curve
        self.names = dict.fromkeys(look())
        self.began = self.at = time.monotonic()
        self.since = time.time()
        self.first = self._share(len(self.names))

    def add(self, *names: str) -> None:
        """These are done; what was counted before is not counted again."""
        if new := dict.fromkeys(name for name in names if name not in self.names):
            self.names |= new
            self.at = time.monotonic()

    def _share(self, done: int) -> float:
        """How much of the time has gone when so many are done."""
        if not self.total:
            return 0.0
        curve = self.curve or (0, self.total)
        done = min(done, self.total) * curve[-1] / self.total
        after = max(1, bisect.bisect_left(curve, done))
        below, above = curve[after - 1], curve[after]
        return (after - 1 + (done - below) / max(above - below, 1)) / (len(curve) - 1)

    def seconds_left(self) -> float | None:
        """By this machine's speed so far, or by the one that was measured."""
        done = len(self.names)
        share, passed = self._share(done), self.at - self.began
        whole = passed / (share - self.first) if share - self.first > FIRST_SHARE else self.expected_s
        if whole is None or not self.total:
            return None
        # The next one is not done yet.
        rest = max(whole * (1 - share) - (time.monotonic() - self.at), whole * (1 - self._share(done + 1)), 0.0)
        return rest + self.later_s * (whole / self.expected_s if self.expected_s else 1)

    def progress(self) -> Progress:
        """As kernels are told."""
        done = min(len(self.names), self.total or len(self.names))
        return Progress(self.phase, done, self.total, self.seconds_left(), self.since, unit=self.unit)

    def text(self) -> str:
        """As the terminal is told."""
        last = next(reversed(self.names), "")
        return ", ".join(filter(None, [self.progress().amount(), last and f"the last one {last}"])) or "downloading"

    def tell(self) -> None:
        """Looks again, and tells kernels that wait."""
        self.add(*self.look())
        write(self.progress())

    @contextmanager
    def told(self, step: Step, kernels: bool = True) -> Iterator[None]:
        """While the block runs, the terminal is told, and kernels that wait."""
        tell = self.tell if kernels else lambda: self.add(*self.look())
        tell()
        with step.heartbeat(self.text), every(1, tell):
            yield
