"""Unpacks the offline bundle beside which it lies, and makes it ready: no network, nothing outside its folder."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from env.console import ToolError, tool

from .archives import about, check_parts, known, unpack
from .target import call, check_machine, configure, find_python, make_environment, settings


def step(text: str, began: float) -> None:
    """One line for one step."""
    print(f"unpack: {text}  ({time.monotonic() - began:.1f} s)", flush=True)


def place(folder: Path, halves: dict[str, list[Path]], infos: dict[str, dict]) -> None:
    """Unpacks both halves, each unless it is there. A course of another commit moves aside: nobody's work is lost."""
    for kind, target in (("base", folder / "tools"), ("course", folder / "gpulab")):
        began, there, new = time.monotonic(), known(target, kind), infos[kind]["key"]
        if there.get("key") == new:
            step(f"{target} is there", began)
            continue
        if target.exists() and kind == "base":
            shutil.rmtree(target)
        elif target.exists():
            aside = target.with_name(f"{target.name}-{there.get('key', 'old')}-{time.strftime('%Y%m%d-%H%M%S')}")
            target.rename(aside)
            print(f"unpack: what was in {target} is now in {aside}")
        unpack(halves[kind], target)
        step(f"{target}", began)


def prepare(arguments: argparse.Namespace, source: Path) -> tuple[Path, dict[str, str]]:
    """Everything up to the user's command: the course's folder, and the environment to run in."""
    began = time.monotonic()
    folder = Path(arguments.to).absolute()
    if re.search(r"[\s:$#%\\\"']", str(folder)):
        raise ToolError(f"the folder's path has a character that some tool trips over: {folder}", "choose another")
    halves = check_parts(source)
    step(f"{sum(map(len, halves.values()))} parts are whole", began)
    infos = {kind: about(parts) for kind, parts in halves.items()}
    check_machine(infos["base"])
    python = find_python(arguments.python, infos["base"]["python"])
    folder.mkdir(parents=True, exist_ok=True)
    place(folder, halves, infos)
    chosen = settings(folder, python, infos["course"]["commit"])
    configure(folder, infos["base"], chosen)
    run = {**os.environ, **chosen, "PATH": f"{chosen['PATH']}:{os.environ.get('PATH', os.defpath)}"}
    if not arguments.only_unpack:
        start = time.monotonic()
        make_environment(folder, python, run)
        step("a virtual environment", start)
        call([python, "-m", "env.setup"], folder / "gpulab", run)
    step("all done", began)
    return folder / "gpulab", run


def main() -> int:
    """0 when the course can run, or what the command after `--` says."""
    parser = argparse.ArgumentParser(prog="unpack.sh", description="Unpacks the gpulab offline bundle beside it.")
    parser.add_argument("--to", default="gpulab-offline", help="the folder to unpack into (default: %(default)s)")
    parser.add_argument("--python", default="", help="the Python to run JupyterLab with")
    parser.add_argument("--only-unpack", action="store_true", help="stop before set-up")
    parser.add_argument("command", nargs="*", help="after --: a command to run in the course's folder")
    arguments = parser.parse_args()
    folder, run = prepare(arguments, Path(sys.argv[0]).absolute().parent)
    if arguments.command:
        return subprocess.run(arguments.command, cwd=folder, env=run, check=False).returncode
    print(f"next: cd {folder} && make lab; no command there asks for a network")
    return 0


def run() -> NoReturn:
    """What `unpack.pyz` calls; it ignores what a function gives back."""
    tool(main)
