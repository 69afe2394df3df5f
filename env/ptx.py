"""Writes the PTX that ships beside each of the course's kernels (`make ptx`), with the NVRTC that set-up installed."""

from __future__ import annotations

import os
import subprocess
import sys

import paths

COMMAND = ["cargo", "run", "--quiet", "-p", "gpulab-kernels", "--example", "write_ptx"]


def main() -> int:
    """1 when a kernel could not be compiled or written."""
    environment = {**os.environ, "LD_LIBRARY_PATH": paths.library_path()}
    return subprocess.run(COMMAND, cwd=paths.ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
