"""PTX for machines without NVRTC: whether the pack holds all that a notebook has compiled for the simulator."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from env.notebooks import ROOT
from env.paths import CRATE

PACK = CRATE / "ptx.pack"
LOG = "GPULAB_PTX_LOG"
# What a machine without NVRTC, and without a GPU, looks like to the crate.
HIDDEN = {"GPULAB_NVRTC": "none", "CUDA_VISIBLE_DEVICES": ""}


def fresh(name: str) -> Path:
    """The empty folder that keeps what the notebook compiles; below GPULAB_PTX_LOG, where `make ptx` sets that."""
    folder = Path(os.environ.get(LOG) or ROOT / "results" / "run" / "ptx") / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def keys(pack: Path = PACK) -> set[str]:
    """The kernels in the pack. Its first lines say what it holds, one kernel a line, up to an empty one."""
    try:
        head = pack.read_bytes().split(b"\n\n", 1)[0]
    except FileNotFoundError:
        return set()
    return {line.split(" ")[0] for line in head.decode("utf-8").splitlines()[1:]}


def missing(folder: Path, pack: Path = PACK) -> str | None:
    """Which of the kept kernels the pack lacks, with the next step; nothing while `make ptx` collects them."""
    if os.environ.get(LOG) or not folder.is_dir():
        return None
    known = keys(pack)
    lost = [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if path.name not in known]
    names = [name for text in lost for name in re.findall(r"\.entry (\w+)\(", text)]
    if not lost:
        return None
    what = f"{len(lost)} of its sources are not in {pack.name}, which serves machines without NVRTC"
    return f"{what}: {', '.join(names)}\nnext: make ptx NB={folder.name}"
