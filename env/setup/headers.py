"""CUDA's headers for kernels (`cuda_fp16.h`, `mma.h`, `cooperative_groups.h` …), of the version of NVRTC beside them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from env import paths

# The newest of each for a version of NVRTC: CUDA's own headers, and the C++ library that they include.
CUDA_13 = ("nvidia-cuda-runtime==13.0.88", "nvidia-cuda-cccl==13.0.85")
CUDA_12 = {
    4: ("12.4.127", "12.4.127.post1"),
    5: ("12.5.82", "12.5.39.post1"),
    6: ("12.6.77", "12.6.77"),
    8: ("12.8.90", "12.8.90"),
    9: ("12.9.79", "12.9.27"),
}
# What mma.h includes. For CUDA 12 it comes only with all of nvcc (40 MB), and NVRTC needs nothing else of that: its
# crt/mma.h is this one, but for two warnings that are switched off for another compiler.
CRT = "nvidia-cuda-crt==13.0.88"
# All names that any choice installs.
NAMES = ["nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-runtime-cu12", "nvidia-cuda-cccl-cu12"]
# Where these packages put them; of two with one name the first counts.
FOLDERS = ("cuda_runtime/include", "cuda_cccl/include", "cu13/include")


def packages(nvrtc: str) -> list[str]:
    """`name==version` of each package with headers for that version of NVRTC."""
    if nvrtc.startswith("13."):
        return [*CUDA_13, CRT]
    runtime, library = CUDA_12[int(nvrtc.split(".")[1])]
    return [f"nvidia-cuda-runtime-cu12=={runtime}", f"nvidia-cuda-cccl-cu12=={library}", CRT]


def link(site: Path) -> None:
    """One folder with what lies in those of the packages, as relative links: one place for the compiler to look in."""
    shutil.rmtree(paths.HEADERS, ignore_errors=True)
    paths.HEADERS.mkdir(parents=True)
    for folder in FOLDERS:
        for header in sorted((site / "nvidia" / folder).glob("*")):
            place = paths.HEADERS / header.name
            if not place.is_symlink():
                place.symlink_to(os.path.relpath(header, paths.HEADERS))
