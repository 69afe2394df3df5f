"""What the commands share that time an example of a crate on this GPU interleaved with a peer in this process.

The program says a line, waits for the peer's answer, and goes on: both work on the same arrays, which lie in a folder in
memory. A peer whose package is not there is left out, and said so. `--program FILE` runs a program that was built elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

from env.baselines.pages import Facts
from env.command import output
from env.console import ToolError
from env.paths import ROOT

SHARED = Path("/dev/shm")
# Tables of 2 GiB, two of them, with room to spare.
ENOUGH = 8 << 30


def machine(commit: str | None) -> Facts:
    """Where and when this is."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    gpu = output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]) or ""
    name, _, driver = gpu.partition("\n")[0].partition(", ")
    commit = commit or output(["git", "rev-parse", "--short", "HEAD"]) or "unknown"
    facts = {"commit": commit, "ended (UTC)": now, "GPU": name or "unknown", "driver": driver or "unknown"}
    if find_spec("torch") is None:
        return facts | {"PyTorch": "not there"}
    import torch

    facts |= {"PyTorch": torch.__version__, "CUDA": torch.version.cuda}
    with contextlib.suppress(metadata.PackageNotFoundError):
        facts["flash-attn-4"] = metadata.version("flash-attn-4")
    return facts


def talk(command: list[str], answer: Callable[[str], str | None], environment: dict[str, str] | None = None) -> int:
    """Runs the program, and answers its lines; its exit status."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, env=environment, **pipes) as program:
        for line in program.stdout:
            if (said := answer(line.strip())) is not None:
                program.stdin.write(said + "\n")
                program.stdin.flush()
    return program.returncode


@dataclass
class Recorder:
    """One table: the crate whose example `record_NAME` is run, the peer's module and what that needs, and the page;
    `settings` are keyword arguments of the peer's `Partner`."""

    name: str
    crate: str
    peer: str
    package: str
    page: Callable[[Path, Facts], str]
    settings: dict[str, object] = field(default_factory=dict)

    def parser(self, about: str | None) -> argparse.ArgumentParser:
        """The options that all have."""
        made = argparse.ArgumentParser(prog=f"python3 -m env.baselines.record_{self.name}", description=about)
        made.add_argument("--program", help="the built example, in place of cargo")
        made.add_argument("--out", type=Path, default=ROOT / f"results/{self.name}.csv", help="the table to write")
        made.add_argument("--commit", help="what the program was built from, where there is no git")
        return made

    def main(self, about: str | None, options: dict[str, str]) -> None:
        """A command with `options` that are the program's own, each with its help: handed on as they were typed."""
        made = self.parser(about)
        for option, text in options.items():
            made.add_argument(option, help=text, **({"action": "store_true"} if option == "--quick" else {}))
        chosen = made.parse_args()
        typed = {option: value for option in options if (value := getattr(chosen, option.removeprefix("--")))}
        words = [word for pair in typed.items() for word in pair if word is not True]
        self.record(chosen, lambda _folder: [], words)

    def partner(self, folder: Path) -> Callable[[str], str | None] | None:
        """What answers the program."""
        if find_spec(self.package) is None:
            print(f"{self.package}: left out, it is not there", file=sys.stderr)
            return None
        print(f"{self.package} {import_module(self.package).__version__}", file=sys.stderr)
        return import_module(f"env.baselines.{self.peer}").Partner(folder, **self.settings).answer

    def record(self, chosen: argparse.Namespace, more: Callable[[Path], list[str]], words: list[str]) -> Facts:
        """Writes the table and its page; `more` are arguments of this program alone, `words` what was named to it."""
        out = chosen.out.resolve()
        cargo = ["cargo", "run", "--quiet", "--release", "-p", self.crate, "--example", f"record_{self.name}", "--"]
        room = SHARED if SHARED.is_dir() and shutil.disk_usage(SHARED).free > ENOUGH else None
        with tempfile.TemporaryDirectory(dir=room) as name:
            folder = Path(name)
            command = [*([chosen.program] if chosen.program else cargo), "--out", str(out), *more(folder)]
            partner = self.partner(folder)
            command += ["--talk", name] if partner else []
            environment = {**os.environ, **({"GPULAB_COMMIT": chosen.commit} if chosen.commit else {})}
            if talk([*command, *words], partner or (lambda line: None), environment) != 0:
                raise ToolError("not everything was timed", "run this on a machine with an NVIDIA GPU")
        typed = ["python3 -m", f"env.baselines.record_{self.name}", *words, "--out", f"{out.parent.name}/{out.name}"]
        facts = machine(chosen.commit) | {"command": f"`{' '.join(typed)}`"}
        out.with_suffix(".md").write_text(self.page(out, facts), encoding="utf-8")
        return facts
