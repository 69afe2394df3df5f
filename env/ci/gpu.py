"""Runs the tests that need an NVIDIA GPU (`make test-gpu`): those marked `#[ignore = "needs an NVIDIA GPU"]`.

libtest runs ignored tests by name, not by reason, so the names that are ignored for another reason are skipped: those that
another test starts as a process of its own. `ARGS="-p gpulab"` names crates; all that need no candle without.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from env import paths
from env.command import output
from env.console import ToolError, tool
from env.kernel_cache import candle

MARK = re.compile(r'#\[ignore = "(?P<why>[^"]*)"\]\s*(?:#\[[^\]]*\]\s*)*fn (?P<name>\w+)')
NEEDED = "needs an NVIDIA GPU"
# Not a test: what another test starts as a process of its own.
HELPER = "the other process of"
# Building candle and polars takes minutes; ARGS names them where they are wanted.
CRATES = ["gpulab", "gpulab-kernels", "gpulab-profiling", "gpulab-ranks"]


def ignored() -> dict[str, str]:
    """Why each ignored test is ignored, by its name."""
    folders = (paths.CRATE, paths.ROOT / "crates")
    texts = (file.read_text(encoding="utf-8") for folder in folders for file in folder.rglob("*.rs"))
    return {match["name"]: match["why"] for text in texts for match in MARK.finditer(text)}


def has_gpu() -> bool:
    """Whether NVIDIA's driver shows a GPU."""
    return "GPU 0" in (output(["nvidia-smi", "-L"]) or "")


def main() -> int:
    """0 when at least one test ran and all passed."""
    if not has_gpu():
        raise ToolError("there is no NVIDIA GPU: `nvidia-smi -L` shows none", "run this on a machine with one")
    others = [name for name, why in ignored().items() if why != NEEDED]
    crates = sys.argv[1:] or os.environ.get("ARGS", "").split() or [part for c in CRATES for part in ("-p", c)]
    command = ["cargo", "test", "--locked", *crates, "--tests", "--no-fail-fast", "--", "--ignored"]
    # One at a time: a timeline (CUPTI) sees the work of every test of its process.
    command += ["--test-threads=1", *(part for name in others for part in ("--skip", name))]
    # Where the set-up builds candle with CUDA, its tests do, too.
    environment = {**os.environ, **candle.flags(), "LD_LIBRARY_PATH": paths.library_path(*candle.libraries())}
    done = subprocess.run(command, cwd=paths.ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    ran = sum(int(count) for count in re.findall(r"test result: \w+\. (\d+) passed", done.stdout))
    if done.returncode == 0 and ran == 0:
        raise ToolError("no test ran", f"see that tests are marked `{NEEDED}`")
    return done.returncode


if __name__ == "__main__":
    tool(main)
