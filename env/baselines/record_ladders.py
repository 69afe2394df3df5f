"""Times the ladders on this GPU beside cuBLAS, CUB and PyTorch where they are, and writes a table and its page.

`python3 -m env.baselines.record_ladders` builds CUB's sum with nvcc (`env/baselines/cub.cu`) and has `examples/record_ladders` time every
rung beside a device copy, cuBLAS, CUB and one core of the CPU, in one process and in rounds. In each round PyTorch has its
turn too, here, on the same random arrays: the program says `go`, waits for the sample, and goes on. Calls are queued one
by one, as programs do it: of calls below some 10 µs the host's own part counts too, of PyTorch's most. A peer that is not
there is left out, and said so. `--program FILE` runs a program that was built elsewhere; topics may be named.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from env.baselines import ladder_page
from env.paths import ROOT

CARGO = ["cargo", "run", "--quiet", "--release", "-p", "gpulab-kernels", "--example", "record_ladders", "--"]
NVCC = ["nvcc", "-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
# Tables of 2 GiB, two of them, with room to spare.
SHARED = Path("/dev/shm")
ENOUGH = 8 << 30


def build_cub(folder: Path) -> list[str]:
    """The option that names the library with CUB's sum; nothing without nvcc."""
    library = folder / "libcub_peer.so"
    if shutil.which("nvcc") is None:
        print("CUB: left out, nvcc is not there (it comes with the CUDA toolkit)")
        return []
    done = subprocess.run([*NVCC, str(ROOT / "env/baselines/cub.cu"), "-o", str(library)], check=False)
    return ["--cub", str(library)] if done.returncode == 0 else []


class Partner:
    """PyTorch's side of the program's lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job = None

    def answer(self, line: str) -> str:
        """What it says to a line: the ms of a sample to `go` (of another way to `go 1`), else what it will time."""
        from env.baselines import torch_peer

        if line == "go":
            return f"{self.job.sample():.6f}"
        if line.startswith("go "):
            return f"{self.job.others[int(line[3:]) - 1].sample():.6f}"
        self.job = None
        torch_peer.release()
        asked = json.loads(line)
        try:
            self.job = torch_peer.prepare(asked, self.folder)
        except RuntimeError as error:  # such as memory that is short: the rungs are timed without it
            print(f"PyTorch: left out at {asked['topic']} of {asked['size']}: {error}", file=sys.stderr)
        else:
            if self.job is None:
                print(f"PyTorch: left out, it has nothing for {asked['topic']}", file=sys.stderr)
        if self.job is None:
            return "{}"
        ways = [{"name": job.name, "error": job.error} for job in (self.job, *self.job.others)]
        return json.dumps({**ways[0], "others": ways[1:]})


def run(command: list[str], folder: Path) -> int:
    """Runs the program, and answers its lines; its exit status."""
    partner = Partner(folder)
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        for line in program.stdout:
            program.stdin.write(partner.answer(line.strip()) + "\n")
            program.stdin.flush()
    return program.returncode


def main() -> int:
    """1 when something could not be timed."""
    parser = argparse.ArgumentParser(prog="python3 -m env.baselines.record_ladders", description=__doc__)
    parser.add_argument("--program", help="the built example, in place of cargo")
    parser.add_argument("--out", type=Path, default=ROOT / "results/ladders.csv", help="the table to write")
    parser.add_argument("--quick", action="store_true", help="small sizes and few samples: does it work?")
    parser.add_argument("--commit", help="what the program was built from, where there is no git")
    parser.add_argument("topics", nargs="*", help="folders of kernels; all without any")
    chosen = parser.parse_args()
    room = SHARED if SHARED.is_dir() and shutil.disk_usage(SHARED).free > ENOUGH else None
    with tempfile.TemporaryDirectory(dir=room) as name:
        folder = Path(name)
        command = [chosen.program] if chosen.program else CARGO
        out = chosen.out.resolve()
        errors = out.with_name(out.stem + "_errors.csv")
        command += ["--out", str(out), "--errors", str(errors), *build_cub(folder)]
        command += ["--quick"] if chosen.quick else []
        try:
            import torch

            print(f"PyTorch {torch.__version__}", file=sys.stderr)
            command += ["--talk", name]
        except ImportError:
            print("PyTorch: left out, it is not there", file=sys.stderr)
        if run([*command, *chosen.topics], folder) != 0:
            print("error: not everything was timed\nnext: run this on a machine with an NVIDIA GPU", file=sys.stderr)
            return 1
    words = ["env/baselines/record_ladders.py", *chosen.topics, "--out", f"{out.parent.name}/{out.name}"]
    facts = ladder_page.machine(chosen.commit) | {"command": f"`python3 {' '.join(words)}`"}
    page = ladder_page.page(out, errors, facts)
    out.with_suffix(".md").write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
