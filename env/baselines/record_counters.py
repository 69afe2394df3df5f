"""Records what the GPU's own counters say of the simulator's scenarios, for the test that holds the simulator to them.

`python3 -m env.baselines.record_counters` runs the launches of each table in crates/warpsim/tests/hardware under Nsight Compute (`ncu`)
and writes what it counted to h200/ beside it. With `--from FOLDER` it reads TABLE.csv as `ncu --csv` printed it on
another machine. `--only TABLE` records one table.

The table `hopper` is of the course's rungs that use Hopper's instructions: tensor maps are no argument of a scenario, so each rung is
called by its ladder (`gpulab demo ladder`). It lies in crates/kernels/tests/hardware.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import subprocess
from pathlib import Path

from env.console import ToolError, tool
from env.paths import ROOT, SIMULATOR

FOLDER = SIMULATOR / "tests" / "hardware"
# The simulator's name of each counter, and the metrics whose sum it stands for.
METRICS = {
    "global_load_requests": ["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"],
    "global_load_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
    "global_store_requests": ["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"],
    "global_store_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
    "shared_load_wavefronts": ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"],
    "shared_load_bank_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"],
    "shared_store_wavefronts": ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"],
    "shared_store_bank_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"],
    "shared_atomic_wavefronts": ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum"],
    "shared_atomic_bank_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum"],
    "local_load_requests": ["l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum"],
    "local_load_sectors": ["l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"],
    "local_store_requests": ["l1tex__t_requests_pipe_lsu_mem_local_op_st.sum"],
    "local_store_sectors": ["l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"],
    "global_atomics": [
        "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
        "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    ],
    "shared_atomics": ["smsp__inst_executed_op_shared_atom.sum"],
    # Of the machine code: these lie near what the simulator counts of the PTX.
    "warp_instructions": ["smsp__inst_executed.sum"],
    "thread_instructions": ["smsp__thread_inst_executed.sum"],
    "branches": ["smsp__inst_executed_op_branch.sum"],
    "divergent_branches": ["smsp__sass_branch_targets_threads_divergent.sum"],
}
CARGO = ["cargo", "run", "--quiet", "--release", "-p", "gpulab-kernels", "--example", "record_counters"]
EXAMPLE = [*CARGO, "--", "crates/warpsim/tests"]
COUNTED = ",".join(metric for metrics in METRICS.values() for metric in metrics)
NCU = ["ncu", "--clock-control", "none", "--csv", "--print-units", "base", "--metrics", COUNTED]


# Rungs that use wgmma, and most of them the TMA, and the sizes at which each is called once.
HOPPER = {
    "300x264x200": (
        "matmul_bf16/05_wgmma matmul_bf16/06_tma matmul_bf16/07_warp_specialised matmul_bf16/08_persistent "
        "matmul_bf16/09_tma_store matmul_bf16/10_cluster"
    ),
    "2x512x64 2x300x128": (
        "flash_attention/06_wgmma flash_attention/07_warp_specialised flash_attention/08_overlap "
        "flash_attention/09_ping_pong flash_attention/10_short_softmax"
    ),
}
HOPPER_TABLE = ROOT / "crates" / "kernels" / "tests" / "hardware" / "hopper.csv"
DEMO = ["cargo", "run", "--quiet", "--release", "-p", "gpulab-cli", "--", "demo", "ladder"]


def names(table: str) -> list[str]:
    """The scenarios of a table, in order."""
    lines = (FOLDER / f"{table}.csv").read_text(encoding="utf-8").splitlines()
    return [line.split(";")[0] for line in lines if not line.startswith("#")][1:]


def counted(printed: str) -> list[dict[str, int]]:
    """The counters of each launch, in order, from what ncu printed."""
    table = printed[printed.index('"ID"') :]
    launches: dict[int, dict[str, int]] = {}
    for row in csv.DictReader(io.StringIO(table)):
        launches.setdefault(int(row["ID"]), {})[row["Metric Name"]] = int(row["Metric Value"].replace(",", ""))
    return [launches[number] for number in sorted(launches)]


def counts(command: list[str], needed: str) -> str:
    """What ncu and the command that it runs print; `needed` names the GPU that it takes."""
    done = subprocess.run([*NCU, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0 or '"ID"' not in done.stdout:
        step = f"run this on a machine with {needed} whose counters may be read"
        raise ToolError(f"ncu counted nothing\n{done.stdout[-2000:]}{done.stderr[-2000:]}", step)
    return done.stdout


def run_hopper() -> str:
    """What ncu and the program print of the rungs' calls, one size after the other."""
    measured = ["--nvtx", "--nvtx-include", "measured/", *DEMO]
    calls = [(size, rungs) for sizes, rungs in HOPPER.items() for size in sizes.split()]
    return "\f".join(counts([*measured, size, *rungs.split()], "a Hopper GPU") for size, rungs in calls)


def write_hopper(printed: str, machine: str) -> int:
    """One row a rung and size, over all launches of its call; gives how many rows."""
    rows = []
    sizes = [size for group in HOPPER for size in group.split()]
    for size, part in zip(sizes, printed.split("\f"), strict=True):
        launches = iter(counted(part))
        for rung, count in re.findall(r"gpulab: measured (\S+), (\d+) launches", part):
            call = [next(launches) for _ in range(int(count))]
            sums = [sum(launch[metric] for launch in call for metric in of) for of in METRICS.values()]
            rows.append(";".join([rung, size, *map(str, sums)]))
    head = f"# Counted by Nsight Compute on one {machine}; written by env/baselines/record_counters.py."
    HOPPER_TABLE.parent.mkdir(parents=True, exist_ok=True)
    HOPPER_TABLE.write_text("\n".join([head, ";".join(["rung", "size", *METRICS]), *rows]) + "\n", encoding="utf-8")
    return len(rows)


def write(table: str, launches: list[dict[str, int]], machine: str) -> None:
    """One row a scenario, one column a counter that ncu was asked for."""
    asked = {name: metrics for name, metrics in METRICS.items() if set(metrics) <= set(launches[0])}
    lines = [f"# Counted by Nsight Compute on one {machine}; written by env/baselines/record_counters.py."]
    lines.append(";".join(["name", *asked]))
    for name, launch in zip(names(table), launches, strict=True):
        lines.append(";".join([name, *(str(sum(launch[metric] for metric in of)) for of in asked.values())]))
    (FOLDER / "h200" / f"{table}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python3 -m env.baselines.record_counters", description=__doc__)
    made.add_argument("--from", dest="source", type=Path, help="the folder of what `ncu --csv` printed")
    made.add_argument("--only", help="one table")
    made.add_argument("--machine", default="NVIDIA H200", help="for the first line of each table")
    return made


def main() -> None:
    """Writes the tables, as long as every scenario was counted."""
    chosen = parser().parse_args()
    tables = [chosen.only] if chosen.only else ["hopper", *sorted(path.stem for path in FOLDER.glob("*.csv"))]
    for table in tables:
        if table == "hopper":
            printed = (chosen.source / "hopper.csv").read_text(encoding="utf-8") if chosen.source else run_hopper()
            print(f"hopper: {write_hopper(printed, chosen.machine)} calls recorded")
            continue
        printed = (
            (chosen.source / f"{table}.csv").read_text(encoding="utf-8")
            if chosen.source
            else counts([*EXAMPLE, table], "an NVIDIA GPU")
        )
        launches = counted(printed)
        if len(launches) != len(names(table)):
            what = f"{table} has {len(names(table))} scenarios, and ncu counted {len(launches)}"
            raise ToolError(what, "run the example alone: " + " ".join([*EXAMPLE, table]))
        write(table, launches, chosen.machine)
        print(f"{table}: {len(launches)} launches recorded")


if __name__ == "__main__":
    tool(main)
