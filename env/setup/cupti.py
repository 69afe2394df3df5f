"""CUPTI, NVIDIA's library that records when each kernel runs: for lesson 16's timelines, where there is an NVIDIA GPU."""

from __future__ import annotations

import os
from pathlib import Path

from env import paths
from env.command import run
from env.console import Step
from env.setup import nvrtc

# By the newest CUDA that the driver knows, as for NVRTC; 11 MB each.
CUDA_13 = "nvidia-cuda-cupti==13.0.85"
CUDA_12 = {4: "12.4.127", 5: "12.5.82", 6: "12.6.80", 8: "12.8.90", 9: "12.9.79"}
# Below a toolkit.
FOLDERS = ("extras/CUPTI/lib64", "lib64")
LOSES = "without CUPTI lesson 16 shows the recorded timelines, and not those of this machine's GPU"


def package(driver: tuple[int, int]) -> str:
    """`name==version` for the CUDA version that the driver knows."""
    if driver >= (13, 0):
        return CUDA_13
    known = [minor for minor in CUDA_12 if minor <= driver[1]] or [min(CUDA_12)]
    return f"nvidia-cuda-cupti-cu12=={CUDA_12[max(known)]}"


def toolkits() -> list[Path]:
    """Where a CUDA toolkit may be; the crate looks there, too."""
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return [*named, Path("/usr/local/cuda"), Path("/opt/cuda")]


def library(folders: list[Path]) -> Path | None:
    """The library in the first of these toolkits that has it."""
    found = (file for folder in folders for below in FOLDERS for file in sorted((folder / below).glob("libcupti.so*")))
    return next(found, None)


def cupti() -> None:
    """Installs the package into the virtual environment, unless a toolkit has the library or there is no driver."""
    step = Step("cupti", quiet=True)
    driver = nvrtc.driver_cuda()
    if driver is None:
        return step.skipped("no NVIDIA driver")
    if there := library(toolkits()):
        return step.skipped(str(there))
    wanted = package(driver)
    stamp = paths.LIBRARIES / "cupti.json"
    if paths.read_json(stamp) == {"package": wanted} and any(
        paths.VENV.glob("lib/*/site-packages/nvidia/*/lib/libcupti*")
    ):
        return step.skipped(wanted)
    with step.heartbeat(lambda: "downloading"):
        run(
            [paths.VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps", wanted],
            "CUPTI could not be installed",
            "connect this machine to the internet and run `make setup` again, or install the CUDA toolkit",
            loses=LOSES,
        )
    paths.write_json(stamp, {"package": wanted})
    return step.done(wanted)
