"""Whether candle is built with CUDA: decided once, by the set-up, so that every notebook is the same file everywhere.

candle's CUDA kernels are compiled by nvcc, so a driver alone does not do. On macOS cargo itself asks for Metal.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

from env import paths

CUDA = "cuda"
# Where toolkits are installed that are not on the PATH.
USUAL = ("/usr/local/cuda", "/opt/cuda")


def toolkit() -> Path | None:
    """The folder of the CUDA toolkit: the one that CUDA_HOME or CUDA_PATH names, that of nvcc, or a usual place."""
    named = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    found = shutil.which("nvcc")
    places = [*filter(None, named), *([str(Path(found).resolve().parent.parent)] if found else []), *USUAL]
    return next((Path(place) for place in places if os.access(Path(place) / "bin" / "nvcc", os.X_OK)), None)


def find(driver: tuple[int, int] | None) -> str:
    """What candle is to be built for beside the CPU: `cuda`, or nothing. `driver` is the CUDA that the driver knows."""
    return CUDA if driver is not None and toolkit() is not None else ""


def libraries() -> list[Path]:
    """Where what candle was linked to lies; candle loads CUDA not at run time, as gpulab itself does, but links to it."""
    folder = toolkit() if paths.read_json(paths.STATE).get("candle") == CUDA else None
    if folder is None:
        return []
    return [*[place for place in (folder / "lib64", folder / "lib") if place.is_dir()][:1], *_stand_in(folder)]


def _stand_in(folder: Path) -> list[Path]:
    """A folder for the loader, where there is no driver: the toolkit's stand-in for one.

    What is linked to libcuda does not load without; the stand-in answers each call with an error, so that there is no GPU.
    """
    if _has_driver():
        return []
    found = [place for name in ("lib64", "lib") if (place := folder / name / "stubs" / "libcuda.so").is_file()]
    if not found:
        return []
    link = paths.GENERATED / "stand-in" / "libcuda.so.1"
    if not link.exists():
        link.unlink(missing_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(found[0])
    return [link.parent]


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def flags(base: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment that has cargo build candle as the set-up decided; `base` are flags for rustc to keep."""
    if paths.read_json(paths.STATE).get("candle") != CUDA:
        return {}
    folder = toolkit()
    found = {"CARGO_ENCODED_RUSTFLAGS": "\x1f".join([*base, "--cfg", "gpulab_cuda"])}
    if folder is None:
        return found
    return {**found, "CUDA_HOME": str(folder), "CUDA_PATH": str(folder), "NVCC": str(folder / "bin" / "nvcc")}


def share_of_cores(jobs: int) -> dict[str, str]:
    """What keeps kernels side by side out of each other's way.

    After each operator candle's threads wait for the slowest of them, and do not sleep: with fewer cores than threads such
    a wait lasts until the system takes the core away, and lesson 22's training took three times the CPU time.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"CANDLE_NUM_THREADS": str(max(1, cores // jobs))} if jobs > 1 else {}
