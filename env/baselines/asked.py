"""Programs of two sides that are asked line by line, interleaved, on the same cores."""

from __future__ import annotations

import os
import platform
import subprocess
import venv
from pathlib import Path

from env.console import ToolError


def usable_cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def processor() -> str:
    """The CPU's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return name or platform.processor() or "unknown"


def own_python(folder: Path, package: str) -> str:
    """A Python with one package that the course does not need."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=False).returncode:
        raise ToolError(f"{package} could not be installed", "connect this machine to the internet, and run again")
    return str(python)


class Asked:
    """A program that answers a line with numbers, on these cores with as many threads."""

    def __init__(self, command: list[str], cores: list[int]) -> None:
        names = ("RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(len(cores)))}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.child = subprocess.Popen(command, text=True, env=environment, **pipes)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.child.pid, cores)

    def ask(self, question: str) -> list[float]:
        """The numbers of its answer."""
        answer = ""
        try:
            self.child.stdin.write(question + "\n")
            self.child.stdin.flush()
            answer = self.child.stdout.readline()
            numbers = [float(word) for word in answer.split()]
        except (BrokenPipeError, ValueError):
            numbers = []
        if not numbers:
            raise ToolError(f"{self.child.args[0]} answered {question!r} with {answer!r}", "read its own words above")
        return numbers

    def close(self) -> None:
        """Ends it by closing what it reads."""
        self.child.stdin.close()
        self.child.wait()
