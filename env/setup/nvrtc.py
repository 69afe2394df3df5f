"""NVRTC, NVIDIA's compiler for kernels in CUDA C, with CUDA's headers, from Python packages: no CUDA toolkit needed."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from pathlib import Path

from env import paths
from env.command import output, run
from env.console import Step, ToolError
from env.setup import headers

CUDA_13 = ("nvidia-cuda-nvrtc", "13.0.88")
# By the newest CUDA that the driver knows: PTX of a newer compiler is refused by an older driver.
CUDA_12 = {4: "12.4.127", 5: "12.5.82", 6: "12.6.85", 8: "12.8.93", 9: "12.9.86"}
# What a lesson's GPU parts begin with.
GPU_PART = re.compile(r"\blesson\.(on_gpu|measure|measure_if_allowed|measure_trace|measure_memory|measure_spans)\(")


def loses() -> str:
    """What the course is without NVRTC, with the lessons that it changes."""
    files = sorted(paths.NOTEBOOKS.glob("*.ipynb"))
    lessons = [file.stem.split("_")[0] for file in files if GPU_PART.search(file.read_text(encoding="utf-8"))]
    return (
        f"without NVRTC no kernel in CUDA C compiles: in lessons {', '.join(lessons)} the GPU cells show the recorded\n"
        "run only, and `make test` does not compile the course's kernels"
    )


def check_wish(wish: str) -> None:
    """Whether NVRTC=… names a version, before anything is installed."""
    if wish not in ("", "12", "13"):
        raise ToolError(f"NVRTC={wish} is unknown", "make setup NVRTC=12, or NVRTC=13, or neither")


def package(wish: str, driver: tuple[int, int] | None) -> tuple[str, str]:
    """The package and its version, for NVRTC=12 or 13 (or nothing) and the CUDA version that the driver knows."""
    if wish == "13" or (wish == "" and (driver is None or driver >= (13, 0))):
        return CUDA_13
    newest = driver[1] if driver and driver[0] == 12 else max(CUDA_12)
    known = [minor for minor in CUDA_12 if minor <= newest]
    if (driver and driver[0] < 12) or not known:
        text = f"the NVIDIA driver knows CUDA {driver[0]}.{driver[1]} only; the course needs 12.4" if driver else ""
        raise ToolError(text, "update the NVIDIA driver to 550 or newer", loses())
    return "nvidia-cuda-nvrtc-cu12", CUDA_12[max(known)]


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that this machine's NVIDIA driver knows; None where there is no driver.

    GPULAB_DRIVER=13.0 answers for a driver that comes later: a container's image is built where there is none.
    """
    if match := re.fullmatch(r"(\d+)\.(\d+)", os.environ.get("GPULAB_DRIVER", "")):
        return int(match[1]), int(match[2])
    try:
        version = ctypes.c_int(0)
        # Answers without touching a GPU.
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value:
            return version.value // 1000, version.value % 1000 // 10
    except (OSError, AttributeError):
        pass
    return None


def find_libraries(site: Path) -> tuple[Path, Path]:
    """The compiler and its helper library among the installed packages."""
    compilers = sorted(site.glob("nvidia/*/lib/libnvrtc.so.*[0-9]"))
    for compiler in reversed(compilers):
        helpers = sorted(compiler.parent.glob("libnvrtc-builtins.so*"))
        if helpers:
            return compiler, helpers[-1]
    raise ToolError("the NVRTC package has no libnvrtc.so in it", "make clean, then make setup", loses())


def link(compiler: Path, helper: Path) -> None:
    """Links both under the names that programs look for, away with those of another version."""
    paths.LIBRARIES.mkdir(parents=True, exist_ok=True)
    for old in paths.LIBRARIES.glob("libnvrtc*"):
        old.unlink()
    # cudarc asks for `libnvrtc.so`; NVRTC itself asks for its helper by full name.
    for name, target in (("libnvrtc.so", compiler), (compiler.name, compiler), (helper.name, helper)):
        if not (paths.LIBRARIES / name).is_symlink():
            (paths.LIBRARIES / name).symlink_to(os.path.relpath(target, paths.LIBRARIES))


def is_there(stamp: Path, wanted: dict) -> bool:
    """Whether just these packages were installed and linked."""
    linked = (paths.LIBRARIES / "libnvrtc.so", paths.HEADERS / "cuda_fp16.h")
    return paths.read_json(stamp) == wanted and all(file.exists() for file in linked)


def nvrtc() -> None:
    """Installs both into the virtual environment and links them into .gpulab/lib and .gpulab/include."""
    step = Step("nvrtc")
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return step.done("not for this system: kernels in CUDA C are shown from the recorded run")
    stamp = paths.LIBRARIES / "nvrtc.json"
    name, version = package(os.environ.get("NVRTC", ""), driver_cuda())
    packages = [f"{name}=={version}", *headers.packages(version)]
    wanted = {"packages": packages}
    if is_there(stamp, wanted):
        return step.skipped(f"{name} {version}, with CUDA's headers")
    step.begin(f"installing {name} {version} and CUDA's headers (95 MB)")
    pip = [paths.VENV_PYTHON, "-m", "pip"]
    known = ["nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", *headers.NAMES]
    others = [other for other in known if other not in {one.split("==")[0] for one in packages}]
    output([*pip, "uninstall", "--yes", "--quiet", *others])
    with step.heartbeat(lambda: "downloading"):
        run(
            [*pip, "install", "--disable-pip-version-check", "--quiet", "--no-deps", *packages],
            f"{name} and CUDA's headers could not be installed",
            "connect this machine to the internet and run `make setup` again; without internet, see `make bundle`",
            loses=loses(),
        )
    site = Path(output([paths.VENV_PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]) or "")
    link(*find_libraries(site))
    headers.link(site)
    paths.write_json(stamp, wanted)
    return step.done(f"{name} {version} and CUDA's headers, linked in .gpulab/lib and .gpulab/include")
