"""How fast the simulator is: the benchmark, the same launches from a notebook's cell, and Numba's CUDA simulator.

    python3 -m env.baselines.bench_sim --cores 2            the benchmark beside a cell, interleaved
    python3 -m env.baselines.bench_sim --cores 2 --numba    and Numba's simulator, in an environment of its own under .gpulab/

The benchmark and the cell run the same Rust file (crates/warpsim/benches/throughput/measure.rs): the benchmark built by
`cargo bench`, the cell as the notebooks build what they use. `launch` is a cell's `kernel.launch` on `Gpu::simulated()`,
which always counts and checks. Ratios are medians over the rounds: of the medians of the launches, and of the fastest,
which other programs on the machine disturb least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

from env import in_venv
from env.console import ToolError

if __name__ == "__main__":
    in_venv.enter(set_up=not {"-h", "--help"} & set(sys.argv[1:]))

from env import paths
from env.baselines.asked import Asked, own_python, usable_cores
from env.console import tool
from env.notebooks import FOLDER
from env.run.judge import checked, text
from env.run.session import RunningKernel

BENCH = paths.SIMULATOR / "benches" / "throughput"
PEER = paths.ENV / "baselines" / "bench_sim_peer.py"
NUMBA = paths.GENERATED / "bench_sim"
LAUNCHES = 7
CELL_LIMIT_S = 600
MODES = ("off", "counters", "checks")
# A cell may take this much longer than the benchmark; Numba must take this much longer than the simulator.
CELL_LIMIT, NUMBA_LIMIT = 1.2, 3000
CASES = (("matmul", 256), ("vector_add", 1 << 20))
# Numba's simulator runs a system thread for each of the kernel's: it takes seconds for these.
NUMBA_CASES = (("matmul", 64), ("vector_add", 1 << 14))
CELLS = (
    ':dep gpulab = { path = "../support-crate" }\n:dep warpsim = { path = "../crates/warpsim" }',
    "use gpulab::prelude::*;",
    f'#[path = "{BENCH / "cases.rs"}"] mod cases;\n#[path = "{BENCH / "measure.rs"}"] mod measure;',
    f"""fn launches(name: &str, n: usize, runs: usize) -> gpulab::error::Result<String> {{
    let file = if name == "matmul" {{ "matmul_tiled" }} else {{ "vector_add" }};
    let ptx = std::fs::read_to_string(format!("{paths.SIMULATOR}/tests/ptx/{{file}}.ptx")).expect("a test's kernel");
    let gpu = Gpu::simulated()?;
    let kernel = gpu.load_ptx(&ptx)?.kernel(name)?;
    let count = if name == "matmul" {{ n * n }} else {{ n }};
    let (a, b) = (gpu.to_device(&vec![0.5_f32; count])?, gpu.to_device(&vec![0.25_f32; count])?);
    let mut c = gpu.zeros::<f32>(count)?;
    let table = LaunchConfig::for_table(n, n, (16, 16));
    let config = if name == "matmul" {{ table }} else {{ LaunchConfig::for_elements(n, 256) }};
    let mut seconds = Vec::new();
    for _ in 0..=runs {{
        let start = std::time::Instant::now();
        kernel.launch(config, (&a, &b, &mut c, n as i32))?;
        seconds.push(start.elapsed().as_secs_f64());
    }}
    // As in the benchmark, the first one is not timed.
    seconds.remove(0);
    seconds.sort_by(f64::total_cmp);
    Ok(format!("{{}} {{}}", seconds[runs / 2], seconds[0]))
}}""",
)


class Notebook:
    """A notebook's kernel with the measuring code loaded."""

    def __init__(self, kernel: RunningKernel) -> None:
        self.kernel = kernel
        for cell in CELLS:
            self.run(cell)

    def run(self, cell: str) -> list[float]:
        """Runs a cell that must go well; the numbers that it printed."""
        return [float(word) for word in text(checked(self.kernel, cell, CELL_LIMIT_S, "make setup")).split()]

    def ask(self, question: str) -> list[float]:
        """The seconds of the benchmark's own code in a cell."""
        code = f'measure::answer("{question}", "{paths.SIMULATOR}").expect("an answer")'
        return self.run(f'println!("{{}}", {code});')

    def launch(self, name: str, n: int) -> list[float]:
        """The seconds of `kernel.launch`."""
        return self.run(f'println!("{{}}", launches("{name}", {n}, {LAUNCHES}).expect("it runs"));')


def benchmark() -> list[str]:
    """Build the benchmark; return its command."""
    build = ["cargo", "bench", "--quiet", "-p", "warpsim", "--bench", "throughput", "--no-run"]
    run = subprocess.run(
        [*build, "--message-format=json"], cwd=paths.ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if run.returncode:
        raise ToolError("the benchmark does not build", "cargo bench -p warpsim")
    built = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    # The crate's own program is built beside it.
    programs = [one["executable"] for one in built if one.get("target", {}).get("name") == "throughput"]
    return [next(filter(None, programs)), "--ask"]


def verdict(ratio: float, limit: float, most: bool) -> str:
    """Say whether a limit was kept."""
    return "kept" if (ratio <= limit if most else ratio >= limit) else "exceeded" if most else "not reached"


def beside_a_cell(bench: Asked, notebook: Notebook, cores: list[int], rounds: int) -> None:
    """Print the table of the benchmark and the cell."""
    print("| kernel | looked at | cores | benchmark, ms | cell, ms | cell / benchmark | of the fastest | limit | |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for name, n in CASES:
        for count in sorted({1, len(cores)}):
            for mode in (*MODES, "launch"):
                # `kernel.launch` takes all cores that it may use.
                if mode == "launch" and count != len(cores):
                    continue
                question = f"{name} {n} {'checks' if mode == 'launch' else mode} {count} {LAUNCHES}"
                turns = []
                for _ in range(rounds):
                    cell = notebook.launch(name, n) if mode == "launch" else notebook.ask(question)
                    turns.append((bench.ask(question), cell))
                ours, theirs = (statistics.median(median for median, *_ in side) * 1e3 for side in zip(*turns))
                ratio = statistics.median(cell[0] / own[0] for own, cell in turns)
                least = statistics.median(cell[1] / own[1] for own, cell in turns)
                line = f"| {name} {n} | {mode} | {count} | {ours:.1f} | {theirs:.1f} | {ratio:.2f} | {least:.2f} "
                print(f"{line}| {CELL_LIMIT:g} | {verdict(least, CELL_LIMIT, True)} |", flush=True)


def beside_numba(bench: Asked, peer: Asked, cores: list[int], rounds: int) -> None:
    """Print the table of the simulators."""
    print("\n| kernel | cores | Numba's simulator, s | looked at | warpsim, ms | ratio | limit | |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | --- |")
    for name, n in NUMBA_CASES:
        turns: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
        for _ in range(rounds):
            theirs = peer.ask(f"{name} {n} 1")[0]
            for mode in MODES:
                own = bench.ask(f"{name} {n} {mode} {len(cores)} 31")[0]
                turns[mode].append((own, theirs))
        for mode, times in turns.items():
            own, theirs = (statistics.median(side) for side in zip(*times))
            ratio = statistics.median(theirs / own for own, theirs in times)
            line = f"| {name} {n} | {len(cores)} | {theirs:.2f} | {mode} | {own * 1e3:.2f} | {ratio:.0f} "
            print(f"{line}| {NUMBA_LIMIT} | {verdict(ratio, NUMBA_LIMIT, False)} |", flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cores", type=int, help="how many cores to use; without it, all that are usable")
    made.add_argument("--rounds", type=int, default=5, help="how many times the sides take turns")
    made.add_argument("--numba", action="store_true", help="also Numba's CUDA simulator (downloads Numba)")
    return made


def main() -> None:
    """Measure and print. Speed is recorded, so a limit that was exceeded is no failure."""
    options = parser().parse_args()
    # The last ones: what else runs usually starts on the first.
    cores = usable_cores()
    cores = cores[-(options.cores or len(cores)) :]
    command = benchmark()
    other = [own_python(NUMBA, "numba"), str(PEER)] if options.numba else None
    if hasattr(os, "sched_setaffinity"):
        # All that is started from here on stays on these.
        os.sched_setaffinity(0, cores)
    bench = Asked(command, cores)
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "not known"
    print(f"Medians of {options.rounds} rounds of {LAUNCHES} launches; load of the machine before: {load}.\n")
    with RunningKernel(FOLDER, dict(os.environ)) as kernel:
        beside_a_cell(bench, Notebook(kernel), cores, options.rounds)
    if other:
        peer = Asked(other, cores)
        beside_numba(bench, peer, cores, options.rounds)
        peer.close()
    bench.close()


if __name__ == "__main__":
    tool(main)
