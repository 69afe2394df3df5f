"""`make ptx`: packs the PTX that serves machines without NVRTC, support-crate/ptx.pack.

It holds the course's kernels, and what the notebooks and the solutions of their exercises compile: each is run. With
NB=12 only lesson 12 is, with NB=none no lesson: what the others compile stays as it is in the pack.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from env import paths

RUN = [str(paths.VENV_PYTHON), "-m", "env.run", "--solutions"]
PACK = ["cargo", "run", "--quiet", "-p", "gpulab-kernels", "--example", "pack_ptx", "--"]


def main() -> int:
    """Not 0 when a notebook failed, or a kernel could not be compiled or written."""
    log = paths.GENERATED / "ptx"
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir(parents=True)
    # Without a GPU all is compiled for the simulator.
    lessons = {**os.environ, "GPULAB_PTX_LOG": str(log), "CUDA_VISIBLE_DEVICES": "", "GPULAB_SET_UP": "1"}
    if os.environ.get("NB") != "none" and (status := subprocess.run(RUN, env=lessons, check=False).returncode):
        print("nothing was packed\nnext: see what the notebooks above say", file=sys.stderr)
        return status
    environment = {**os.environ, "LD_LIBRARY_PATH": paths.library_path()}
    return subprocess.run([*PACK, str(log)], cwd=paths.ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
