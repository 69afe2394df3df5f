"""What the set-up has to do here, about how long that takes, and what it found."""

from __future__ import annotations

import json
import os
import platform
import runpy
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KERNEL = "evcxr_jupyter"
# Seconds, to tell readers what to expect: in all the 2 and 9 minutes that README's "How fast it is to use" measured on 2
# cores (a free Colab runtime has 2, and was not measured); how they are shared out among the steps is an estimate.
PYTHON_S, RUST_S, KERNEL_S, PREBUILT_S, CRATE_S, READY_S = 30, 30, 420, 20, 60, 5


@dataclass
class Part:
    """One part of the set-up that is still missing."""

    name: str
    seconds: int


# What takes longest of a crate, by its name.
LARGE = {"gpulab-nn": Part("candle for this lesson", 180), "gpulab-tables": Part("polars for this lesson", 180)}


def cargo_bin() -> Path:
    """Where rustup and cargo put programs."""
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "bin"


def has(root: Path, program: str) -> bool:
    """Whether a program is where the set-up looks for it."""
    places = (cargo_bin() / program, root / ".gpulab" / "tools" / "bin" / program)
    return shutil.which(program) is not None or any(place.is_file() for place in places)


def missing(root: Path, lines: list[str], bundle: str) -> list[Part]:
    """What the set-up will add for a lesson with these `:dep` lines: an estimate to show, which decides nothing."""
    parts = [] if (root / ".venv" / "gpulab.json").is_file() else [Part("Python packages", PYTHON_S)]
    if not has(root, "cargo"):
        parts.append(Part("Rust", RUST_S))
    if not has(root, KERNEL):
        parts.append(
            Part("the Rust kernel, prebuilt", PREBUILT_S) if bundle else Part("the Rust kernel, built here", KERNEL_S)
        )
    stamps = [
        json.loads(stamp.read_text("utf-8")) for stamp in (root / ".gpulab" / "warm").glob("[0-9a-f]*-*/warm.json")
    ]
    built = {line for stamp in stamps for one in stamp.get("lines", []) for line in one.splitlines()}
    if not built:
        parts.append(Part("the course's crates", CRATE_S))
    names = [line.split()[1] for line in lines if line not in built]
    parts += [part for name, part in LARGE.items() if name in names]
    return parts


def minutes(seconds: float) -> str:
    """A duration to expect: 5 s, 2 min, 10 min."""
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


def output(command: list[str], environment: dict[str, str]) -> str:
    """What a program prints; empty where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def state(root: Path) -> dict[str, Any]:
    """What the set-up noted about this machine."""
    return json.loads((root / ".gpulab" / "setup.json").read_text(encoding="utf-8"))


def found(root: Path, environment: dict[str, str]) -> list[str]:
    """The GPU and the versions, a line each."""
    libraries = os.pathsep.join(filter(None, [str(root / ".gpulab" / "lib"), environment.get("LD_LIBRARY_PATH", "")]))
    program = [str(root / "target" / "release" / "gpulab"), "verify", "--json"]
    text = output(program, {**environment, "LD_LIBRARY_PATH": libraries})
    rust = " ".join(state(root)["rustc"].split()[:2])
    kernel = runpy.run_path(str(root / "env" / "paths.py"))["EVCXR_VERSION"]
    versions = f"{rust}, {KERNEL} {kernel}, Python {platform.python_version()}"
    if not text:
        return ["`gpulab verify` did not run: what this machine has is not known", versions]
    machine = json.loads(text)
    nvidia = machine["nvidia"]
    gpus = [f"{gpu['name']}, driver {nvidia['driver']} (CUDA {nvidia['cuda']})" for gpu in nvidia["gpus"]]
    nvrtc = [f"NVRTC {tool['version']}" for tool in machine["tools"] if tool["name"] == "NVRTC" and tool["found"]]
    none = [
        "no GPU: what needs one is shown from the recorded run",
        "next, to measure one: menu Runtime, Change runtime type, T4 GPU; then run this cell again",
    ]
    return [*(gpus or none), f"CPU: {machine['short_name']}", ", ".join([versions, *nvrtc])]
