"""Times the ladders of vector_add and reduction on this GPU, beside CUB and PyTorch where they are, and writes a table.

`python3 env/record_ladders.py` builds CUB's sum with nvcc (`env/peers/cub.cu`), has `examples/record_ladders` time every
rung against it in one process, round by round, and then times PyTorch's own operations on the same GPU. Calls are queued
one by one, as programs do it: of calls below some 10 µs the host's own part counts too, of PyTorch's most. A peer that is
not there is left out, and said so. `--program FILE` runs a program that was built elsewhere.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from paths import ROOT

CARGO = ["cargo", "run", "--quiet", "--release", "-p", "gpulab", "--example", "record_ladders", "--"]
NVCC = ["nvcc", "-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
SAMPLES = 31


def build_cub(folder: Path) -> list[str]:
    """The library with CUB's sum, as the program's second argument; nothing without nvcc."""
    library = folder / "libcub_peer.so"
    if shutil.which("nvcc") is None:
        print("CUB: left out, nvcc is not there (it comes with the CUDA toolkit)")
        return []
    done = subprocess.run([*NVCC, str(ROOT / "env/peers/cub.cu"), "-o", str(library)], check=False)
    return [str(library)] if done.returncode == 0 else []


def torch_rates(topic: str, n: int) -> list[float]:
    """PyTorch's GB/s for that topic, one figure a sample. Arrays past the cache take turns."""
    import torch

    sets = max(2, -(-3 * torch.cuda.get_device_properties(0).L2_cache_size // (4 * n)))
    arrays = [torch.rand(n, device="cuda") * 2 - 1 for _ in range(sets + 1)]
    result, out = torch.empty(1, device="cuda"), torch.empty(n, device="cuda")

    def call(at: int) -> None:
        if topic == "vector_add":
            torch.add(arrays[at % sets], arrays[at % sets + 1], out=out)
        else:
            torch.sum(arrays[at % sets], 0, keepdim=True, out=result)

    moved = (12 if topic == "vector_add" else 4) * n
    calls = max(1, round(4e9 / moved))
    rates = []
    for sample in range(SAMPLES + 1):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for at in range(calls):
            call(sample * calls + at)
        end.record()
        end.synchronize()
        rates.append(moved * calls / start.elapsed_time(end) / 1e6)
    return rates[1:]  # the first warms up


def add_torch(path: Path) -> None:
    """Adds a row for each rung and size against PyTorch, timed after the rungs: the ratio is of the medians."""
    try:
        import torch
    except ImportError:
        print("PyTorch: left out, it is not there")
        return
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rates: dict[tuple[str, int], float] = {}
    added: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        key = (row["topic"], int(row["size"]))
        if key not in rates:
            rates[key] = statistics.median(torch_rates(*key))
            torch.cuda.empty_cache()
            print(f"PyTorch {torch.__version__}: {row['topic']} of {row['size']}: {rates[key]:.1f} GB/s")
        ratio = float(row["value"]) / rates[key]
        added[row["topic"], row["rung"], row["size"]] = {
            **row,
            "peer": "torch",
            "peer_value": f"{rates[key]:.2f}",
            "ratio": f"{ratio:.4f}",
        }
    with path.open("a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n").writerows(added.values())


def main() -> int:
    """1 when the rungs could not be timed."""
    parser = argparse.ArgumentParser(prog="env/record_ladders.py", description=__doc__)
    parser.add_argument("--program", help="the built example, in place of cargo")
    parser.add_argument("--out", type=Path, default=ROOT / "results/ladders.csv", help="the table to write")
    chosen = parser.parse_args()
    program = [chosen.program] if chosen.program else CARGO
    with tempfile.TemporaryDirectory() as folder:
        command = [*program, str(chosen.out.resolve()), *build_cub(Path(folder))]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            print("error: the rungs were not timed\nnext: run this on a machine with an NVIDIA GPU", file=sys.stderr)
            return 1
    add_torch(chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
