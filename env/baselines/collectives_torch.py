"""PyTorch's collectives on all GPUs of this host, one process a GPU, at the sizes of `examples/record_collectives`.

`python3 -m env.baselines.collectives_torch --out FOLDER --commit HASH` adds rows to `collectives.csv` there, as the example does: times of CUDA's
events, the slowest rank's, medians of nine samples; "CUDA graph" is a graph of twenty calls.
"""

from __future__ import annotations

import argparse
import datetime
import os
import socket
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from env.baselines.cuda_clock import timed

SAMPLES = 9
GRAPH_CALLS = 20
REPLAYS = 5
SMALL = 4 << 20
HEADER = "time,commit,lesson,experiment,backend,machine,dtype,size,metric,value,unit,samples,p10,p90"


def library() -> str:
    """Where the NCCL lies that this process has loaded."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in maps if "libnccl" in line}
    return ", ".join(sorted(paths)) or "in PyTorch's own library"


def calls_for(size: int) -> int:
    """As many as in the example."""
    return next((calls for limit, calls in ((1 << 20, 50), (1 << 24, 20), (1 << 28, 5)) if size <= limit), 3)


def sampled(work: Callable[[], object], prepare: Callable[[], object], calls: int) -> list[float]:
    """µs of so many calls, on this rank. One call goes ahead, so that the ranks begin together; the first sample warms up."""
    token, samples = torch.zeros(1, device="cuda"), []
    for _ in range(SAMPLES + 1):
        prepare()
        dist.all_reduce(token)
        torch.cuda.synchronize()
        work()
        samples.append(1e3 * timed(work, calls))
    return samples[1:]


def slowest(samples: list[float]) -> list[float]:
    """Of each sample that of the slowest rank."""
    times = torch.tensor(samples, device="cuda", dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.tolist()


def rank_process(rank: int, ranks: int, port: int, arguments: argparse.Namespace) -> None:
    """One rank."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, timeout=limit, device_id=torch.device("cuda", rank))
    torch.manual_seed(rank)
    rows = []
    for power in range(10, 31, 2):
        size = 1 << power
        whole = torch.empty(size // 4, device="cuda")
        part = torch.rand(size // 4 // ranks, device="cuda")
        works = {"all-reduce": lambda x=whole: dist.all_reduce(x), "broadcast": lambda x=whole: dist.broadcast(x, 0)}
        if part.numel() * ranks == whole.numel():
            works["reduce-scatter"] = lambda x=whole, y=part: dist.reduce_scatter_tensor(y, x)
            works["all-gather"] = lambda x=whole, y=part: dist.all_gather_into_tensor(x, y)

        def prepare(x: torch.Tensor = whole) -> None:
            x.uniform_(0.0, 3e-8)

        for name, work in works.items():
            rows.append((name, size, slowest(sampled(work, prepare, calls_for(size)))))
            if size <= SMALL:
                graph = torch.cuda.CUDAGraph()
                # NCCL's watchdog asks for events meanwhile.
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    for _ in range(GRAPH_CALLS):
                        work()
                samples = slowest([us / GRAPH_CALLS for us in sampled(graph.replay, prepare, REPLAYS)])
                rows.append((f"{name}, CUDA graph", size, samples))
    if rank == 0:
        save(rows, ranks, arguments)
        version = ".".join(str(part) for part in torch.cuda.nccl.version())
        print(f"PyTorch {torch.__version__}, NCCL {version} ({library()}), {len(rows)} rows")
    # Graphs that hold collectives keep `destroy_process_group` waiting; the rows are written.
    dist.barrier()
    torch.cuda.synchronize()
    sys.stdout.flush()
    os._exit(0)


def save(rows: list[tuple[str, int, list[float]]], ranks: int, arguments: argparse.Namespace) -> None:
    """Adds the rows to the file."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    machine, file = torch.cuda.get_device_name(), arguments.out / "collectives.csv"
    lines = [] if file.exists() else [HEADER]
    for name, size, samples in rows:
        low, *_, high = statistics.quantiles(samples, n=10, method="inclusive")
        median = statistics.median(samples)
        lines.append(
            f'{now},{arguments.commit},60_multi_gpu,"{ranks} GPUs: PyTorch: {name}",cuda,{machine},f32,{size},time,'
            f"{median:.4f},µs,{len(samples)},{low:.4f},{high:.4f}"
        )
    with file.open("a", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


def main() -> None:
    """Starts a process a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = torch.cuda.device_count()
    torch.multiprocessing.spawn(rank_process, (ranks, port, arguments), nprocs=ranks)


if __name__ == "__main__":
    main()
