"""The contest of kernels: each entry is judged by `gpulab contest` in a process of its own, with limits, and takes its place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env import paths

TASKS = ("transpose", "row_sums")
SOURCE = 20_000
# Seconds of the processor and of the clock, KiB of memory, bytes that it may say.
CPU_S, WALL_S, MEMORY_KIB, SAID = 40, 60, 4 << 20, 8 << 20
LIMITS = f"ulimit -t {CPU_S}; ulimit -f 0; ulimit -c 0"
# CUDA's driver reserves addresses by the terabyte, so with a GPU memory is not limited.
MEMORY = f"ulimit -v {MEMORY_KIB} 2>/dev/null"


class Judge:
    """Judges one entry after the other."""

    def __init__(self, program: Path, tasks: list[str], gpu: bool = False, wall_s: float = WALL_S) -> None:
        self.program, self.tasks, self.gpu, self.wall_s = program, tasks, gpu, wall_s
        self.waiting: set[str] = set()
        self.turn = asyncio.Lock()

    async def of(self, learner: str, task: str, source: str) -> dict[str, Any]:
        """What the program says of an entry."""
        self.waiting.add(learner)
        try:
            async with self.turn:
                return await self._run(task, source)
        finally:
            self.waiting.discard(learner)

    async def _run(self, task: str, source: str) -> dict[str, Any]:
        # Nothing of the teacher's environment, and a folder with nothing in it.
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "GPULAB_HOME") if name in os.environ}
        environment = {**kept, "LD_LIBRARY_PATH": paths.library_path(), "RAYON_NUM_THREADS": "1"}
        with tempfile.TemporaryDirectory(prefix="gpulab-contest-") as folder:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", f'{LIMITS}; {"" if self.gpu else f"{MEMORY};"} exec "$0" contest "$@"', str(self.program), task, *(["--gpu"] if self.gpu else []),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                cwd=folder, env=environment, start_new_session=True)  # fmt: skip
            try:
                said = await asyncio.wait_for(self._said(process, source), self.wall_s)
            except asyncio.TimeoutError:
                said = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                # A process that escaped may hold the pipe open.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._ended(process), 1)
        if said is None:
            return _failed(f"it has not ended after {self.wall_s:g} s", "look at the conditions of its loops")
        try:
            # The kernel may print, a verdict too; the program's comes last, when the kernel has no say any more, and only if it ends well.
            verdict = json.loads(said.rstrip().rsplit(b"\n", 1)[-1])
        except ValueError:
            verdict = None
        if not isinstance(verdict, dict) or process.returncode != 0:
            return _failed("the process that ran it ended without a verdict; it may have needed too much memory or time",
                           "make it smaller, or ask the teacher to look at `gpulab contest`")  # fmt: skip
        return verdict

    @staticmethod
    async def _ended(process: asyncio.subprocess.Process) -> None:
        """asyncio tells of a process' end once its pipe has been read to the end: of one that said too much it would never."""
        assert process.stdout
        while await process.stdout.read(1 << 16):
            pass
        await process.wait()

    @staticmethod
    async def _said(process: asyncio.subprocess.Process, source: str) -> bytes:
        assert process.stdin
        assert process.stdout
        with contextlib.suppress(ConnectionError):
            process.stdin.write(source.encode())
            await process.stdin.drain()
        process.stdin.close()
        said, count = b"", 0
        while part := await process.stdout.read(1 << 16):
            said, count = (said + part)[-(1 << 18) :], count + len(part)
            if count > SAID:
                return b""
        await process.wait()
        return said


def _failed(what: str, step: str) -> dict[str, Any]:
    return {"passed": False, "what": f"{what}\nnext: {step}"}


def text(said: dict[str, Any], place: int | None) -> str:
    """The verdict for a notebook's cell."""
    if not said.get("passed"):
        return f"NOT YET: {said.get('what')}"
    gpu = f", {said['gpu_us']:.1f} µs on the GPU" if said.get("gpu_us") else ""
    rank = f"place {place}" if place else "no place"
    return f"PASS: {rank}, with a traffic of {said['traffic']:,} and {said['instructions']:,} instructions{gpu}"


@dataclass
class Entry:
    """The best entry of a notebook, and how many it has made."""

    name: str
    tries: int = 0
    best: dict[str, Any] | None = None
    at: int = 0


@dataclass
class Board:
    """The places, by task."""

    tasks: list[str]
    entries: dict[str, dict[str, Entry]] = field(default_factory=dict)
    count: int = 0

    def enter(self, task: str, learner: str, name: str, said: dict[str, Any]) -> int | None:
        """Takes a verdict in; the learner's place, where an entry of theirs has passed."""
        entry = self.entries.setdefault(task, {}).setdefault(learner, Entry(name))
        entry.name, entry.tries, self.count = name, entry.tries + 1, self.count + 1
        if said.get("passed") and (entry.best is None or _key(said) < _key(entry.best)):
            entry.best, entry.at = said, self.count
        order = [key for key, _ in self._ranked(task)]
        return order.index(learner) + 1 if learner in order else None

    def leave(self, learner: str) -> None:
        """Deletes what is stored of a notebook."""
        for entries in self.entries.values():
            entries.pop(learner, None)

    def _ranked(self, task: str) -> list[tuple[str, Entry]]:
        passed = [(key, entry) for key, entry in self.entries.get(task, {}).items() if entry.best]
        return sorted(passed, key=lambda one: (*_key(one[1].best), one[1].at))

    def snapshot(self) -> list[dict[str, Any]]:
        """What the page shows."""
        return [
            {"task": task, "tried": len(self.entries.get(task, {})),
             "rows": [{"name": entry.name, "tries": entry.tries, **{key: (entry.best or {}).get(key) for key in ("traffic", "instructions", "gpu_us")}}
                      for _, entry in self._ranked(task)]}
            for task in self.tasks
        ]  # fmt: skip


def _key(said: dict[str, Any]) -> tuple[float, float, float]:
    """Less is better: the time where there is one, then the traffic, then the instructions."""
    return said.get("gpu_us") or 0.0, said["traffic"], said["instructions"]
