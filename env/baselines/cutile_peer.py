"""cuTile's side of the programs on tiles: a program in Rust (`env/baselines/cutile`) that answers the recorder's own lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


class Job:
    """What the program has prepared: it looks like one of `torch_peer`'s jobs."""

    def __init__(self, program: Program, name: str, error: float) -> None:
        self.program = program
        self.name = name
        self.error = error

    def sample(self) -> float:
        """The ms of a call."""
        return float(self.program.ask("go"))


class Program:
    """The built program: it sees the arrays in the same folder."""

    def __init__(self, program: Path, folder: Path) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([str(program), "--talk", str(folder)], text=True, **pipes)

    def ask(self, line: str) -> str:
        """Its answer to a line."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("cuTile's program has ended: its last lines say why")
        return answer.strip()

    def jobs(self, asked: dict) -> list[Job]:
        """Its way to do what is asked; none where it has nothing, and says so on stderr."""
        try:
            answer = json.loads(self.ask(json.dumps(asked)))
        except (RuntimeError, BrokenPipeError, ValueError) as error:  # the other peers take part all the same
            print(f"cuTile: left out at {asked['topic']}: {error}", file=sys.stderr)
            return []
        return [Job(self, answer["name"], answer["error"])] if answer else []
