"""Times the ladders on this GPU beside cuBLAS, CUB and PyTorch where they are, and writes a table and its page.

`python3 -m env.baselines.record_ladders` builds CUB's sum with nvcc (`env/baselines/cub.cu`) and has `examples/record_ladders`
time every rung beside a device copy, cuBLAS, CUB and one core of the CPU, in one process and in rounds. In each repetition PyTorch
has its turn too, here. Calls are queued one by one, as programs do it: of calls below some 10 µs the host's own part counts
too, of PyTorch's most. Where the package flash-attn-4 is installed, its kernel is one more peer of attention. Topics may be named.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from env.baselines import pages
from env.baselines.recorder import Recorder
from env.console import tool
from env.paths import ROOT

RECORDER = Recorder("ladders", "gpulab-kernels", "torch_peer", "torch", pages.ladders)
NVCC = ["nvcc", "-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]


def cub(folder: Path) -> list[str]:
    """The option that names the library with CUB's sum; nothing without nvcc."""
    library = folder / "libcub_peer.so"
    if shutil.which("nvcc") is None:
        print("CUB: left out, nvcc is not there (it comes with the CUDA toolkit)")
        return []
    done = subprocess.run([*NVCC, str(ROOT / "env/baselines/cub.cu"), "-o", str(library)], check=False)
    return ["--cub", str(library)] if done.returncode == 0 else []


def main() -> None:
    """Ends badly when something could not be timed."""
    made = RECORDER.parser(__doc__)
    made.add_argument("--quick", action="store_true", help="small sizes and few samples: does it work?")
    made.add_argument("--rust", action="store_true", help="the twins in Rust, too (that takes rustc)")
    made.add_argument("topics", nargs="*", help="folders of kernels; all without any")
    chosen = made.parse_args()
    out = chosen.out.resolve()
    more = ["--errors", str(out.with_name(f"{out.stem}_errors.csv")), *(["--quick"] if chosen.quick else [])]
    sums = not chosen.topics or "reduction" in chosen.topics
    words = [*(["--rust"] if chosen.rust else []), *chosen.topics]
    RECORDER.record(chosen, lambda folder: [*more, *(cub(folder) if sums else [])], words)


if __name__ == "__main__":
    tool(main)
