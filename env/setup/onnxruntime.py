"""ONNX Runtime's library for the lessons that run exported models, with what its CUDA provider needs; TensorRT on wish.

The Python packages of the set-up bring the library for the CPU (and CoreML on a Mac). Where there is an NVIDIA driver, or no
package for this Python, the library comes out of the wheel for Linux: it is the same one for every Python.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import sys
import zipfile
from pathlib import Path

from env import paths
from env.command import run
from env.console import Step, ToolError
from env.setup import cupti, nvrtc

FOLDER = paths.LIBRARIES / "onnxruntime"
# From 1.27 on the wheels are built for CUDA 13; 1.26 is the last one for CUDA 12.
CPU = "onnxruntime==1.31.1"
CUDA_13 = "onnxruntime-gpu==1.31.1"
CUDA_12 = "onnxruntime-gpu==1.26.0"
# The libraries that the CUDA provider loads, by package: those of the oldest driver that the course takes.
NEEDS = {
    CUDA_13: {
        "libcudart.so.13": "nvidia-cuda-runtime==13.0.96",
        "libcublas.so.13": "nvidia-cublas==13.0.2.14",
        "libcurand.so.10": "nvidia-curand==10.4.0.35",
        "libcufft.so.12": "nvidia-cufft==12.0.0.61",
        "libnvJitLink.so.13": "nvidia-nvjitlink==13.0.88",
        "libcudnn.so.9": "nvidia-cudnn-cu13==9.14.0.64",
    },
    CUDA_12: {
        "libcudart.so.12": "nvidia-cuda-runtime-cu12==12.4.127",
        "libcublas.so.12": "nvidia-cublas-cu12==12.4.5.8",
        "libcurand.so.10": "nvidia-curand-cu12==10.3.5.147",
        "libcufft.so.11": "nvidia-cufft-cu12==11.2.1.3",
        "libnvJitLink.so.12": "nvidia-nvjitlink-cu12==12.4.127",
        "libcudnn.so.9": "nvidia-cudnn-cu12==9.14.0.64",
    },
}
# The TensorRT that these wheels are built for; the packages fetch it from NVIDIA when they are installed.
TENSORRT = {CUDA_13: "tensorrt-cu13-libs==10.16.1.11", CUDA_12: "tensorrt-cu12-libs==10.16.1.11"}
# What such a lesson loads.
LINE = ':dep gpulab-onnx = { path = "../crates/onnx" }'
LOSES = "without ONNX Runtime for the GPU lesson 42 runs exported models on the CPU, and names what is missing"


def needed(lines: list[str]) -> bool:
    """Whether a lesson among these sets of `:dep` lines loads `gpulab-onnx`, or the set-up brought it before."""
    loads = any(re.search(r"^:dep\s+gpulab-onnx\b", one, flags=re.MULTILINE) for one in lines)
    return loads or (FOLDER / "onnxruntime.json").is_file()


def package(driver: tuple[int, int] | None, has_python_package: bool) -> str | None:
    """The wheel whose library is wanted; None where the Python package's own is right."""
    if driver is None:
        return None if has_python_package else CPU
    return CUDA_13 if driver >= (13, 0) else CUDA_12


def is_there(library: str) -> bool:
    """Whether a CUDA toolkit has it, or the loader finds it."""
    if any((toolkit / "lib64" / library).exists() for toolkit in cupti.toolkits()):
        return True
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def pip(*arguments: str | Path, failed: str) -> None:
    """pip of the virtual environment."""
    run(
        [paths.VENV_PYTHON, "-m", "pip", *arguments[:1], "--disable-pip-version-check", "--quiet", *arguments[1:]],
        failed,
        "connect this machine to the internet and run `make setup LESSONS=42` again",
        loses=LOSES,
    )


def unpack(wheel: Path, folder: Path) -> list[str]:
    """Puts the wheel's libraries, and nothing else, into the folder; their names."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if re.search(r"/capi/lib[^/]*\.(so|dylib)", f"/{name}")]
        for name in found:
            with archive.open(name) as source, (folder / Path(name).name).open("wb") as target:
                shutil.copyfileobj(source, target)
    if not any("libonnxruntime." in name for name in found):
        raise ToolError(f"{wheel.name} has no libonnxruntime in it", "make clean, then make setup LESSONS=42", LOSES)
    return sorted(Path(name).name for name in found)


def fetch(wanted: str) -> None:
    """Downloads the wheel for Linux and takes the libraries out of it."""
    scratch = paths.GENERATED / "onnxruntime"
    shutil.rmtree(scratch, ignore_errors=True)
    machine = platform.machine()
    tags = [f"--platform=manylinux_2_{glibc}_{machine}" for glibc in (28, 27)]
    only = ["--no-deps", "--only-binary=:all:", "--python-version=3.12", "--implementation=cp", "--abi=cp312"]
    pip("download", *only, *tags, "--dest", scratch, wanted, failed=f"{wanted} could not be downloaded")
    unpack(next(scratch.glob("*.whl")), FOLDER)
    shutil.rmtree(scratch, ignore_errors=True)


def onnxruntime(lines: list[str], wish: str = "") -> None:
    """Brings what is missing for the lessons that begin with these lines; `wish` is TENSORRT=1."""
    if not needed(lines) and not wish:
        return
    step = Step("onnxruntime")
    has_package = any(paths.VENV.glob("lib/python*/site-packages/onnxruntime/capi/libonnxruntime*"))
    wanted = package(nvrtc.driver_cuda(), has_package)
    if wish and wanted not in TENSORRT:
        raise ToolError("TENSORRT=1: there is no NVIDIA driver here", "make setup LESSONS=42, without TENSORRT", LOSES)
    if wanted is None:
        return step.skipped("the Python package's own library, in .venv")
    if sys.platform != "linux":
        raise ToolError(
            "there is no ONNX Runtime 1.31 for this machine", "use Linux, or a Mac with Apple silicon", LOSES
        )
    libraries = [name for file, name in NEEDS.get(wanted, {}).items() if not is_there(file)]
    libraries += [TENSORRT[wanted]] if wish else []
    stamp = FOLDER / "onnxruntime.json"
    before = paths.read_json(stamp)
    # TensorRT stays once it is there.
    libraries += [
        name for name in before.get("libraries", []) if name == TENSORRT.get(wanted) and name not in libraries
    ]
    if before == {"package": wanted, "libraries": libraries} and any(FOLDER.glob("libonnxruntime.*")):
        return step.skipped(wanted)
    step.begin(f"installing {wanted} (250 MB for the GPU)" + (" and CUDA's libraries (1.5 GB)" if libraries else ""))
    with step.heartbeat(lambda: "downloading"):
        if before.get("package") != wanted or not any(FOLDER.glob("libonnxruntime.*")):
            fetch(wanted)
        if plain := [name for name in libraries if name != TENSORRT.get(wanted)]:
            pip("install", "--no-deps", *plain, failed="the CUDA libraries could not be installed")
        if len(plain) < len(libraries):
            # From NVIDIA's own index and no other: one name in two indexes could be anybody's.
            index = ["--index-url", "https://pypi.nvidia.com"]
            pip("install", "--no-deps", *index, TENSORRT[wanted], failed="TensorRT could not be installed")
    paths.write_json(stamp, {"package": wanted, "libraries": libraries})
    return step.done(f"{wanted}, in .gpulab/lib/onnxruntime")


def wish() -> str:
    """What TENSORRT=… asks for."""
    value = os.environ.get("TENSORRT", "")
    if value not in ("", "0", "1"):
        raise ToolError(f"TENSORRT={value} is unknown", "make setup LESSONS=42 TENSORRT=1, or without TENSORRT")
    return value if value == "1" else ""
