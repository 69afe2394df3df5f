"""PyTorch's data parallel training step of GPT-2 beside `examples/data_parallel_gpt`: DistributedDataParallel over NCCL.

`torchrun --nproc-per-node gpu -m env.baselines.gpt_ddp_torch [--out gpt_ddp_torch.csv] [--seconds 60] [--ways parallel,bf16] [--modes eager,compiled]`
times 8 × 1024 tokens on each GPU, eager and compiled: rank 0 alone; all ranks with their gradients averaged in buckets (`gradient_as_bucket_view`); the same with gradients rounded to bf16 on their
way (`bf16_compress_hook`); and all ranks with parameters, gradients and AdamW's state sharded (FSDP2's `fully_shard` on each layer, weights gathered in
bf16, gradients added up in f32: ZeRO's stage 3). Model, AdamW and settings are those of `gpt_step_torch`. A time is the slowest rank's, by CUDA events.
Name `sharded` in a call of its own: compiled beside it, in one process, a step of the model of one GPU took 31 ms, and 19 without it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from env.baselines.cuda_clock import timed
from env.baselines.gpt_step_torch import CONTEXT, Trainer, tokens_of

BATCH, ROUNDS, CALLS = 8, 12, 4


class Parallel(Trainer):
    """The same model and optimizer; gradients are averaged over all ranks."""

    def __init__(self, compiled: bool, rounded: bool = False) -> None:
        super().__init__(False)
        self.call = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        if rounded:
            self.call.register_comm_hook(None, bf16_compress_hook)
        if compiled:
            self.call = torch.compile(self.call)


class Sharded(Trainer):
    """The same model with parameters, gradients and AdamW's state shared out over all ranks, gathered layer by layer."""

    def prepare(self, model: nn.Module) -> nn.Module:
        """Each layer is one group of parameters, the table and the last norm are another."""
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.h:
            fully_shard(block, mp_policy=policy)
        return fully_shard(model, mp_policy=policy)


NAMES = {"parallel": "data parallel", "bf16": "data parallel, sums in bf16", "sharded": "sharded"}
MAKE: dict[str, Callable[[bool], Trainer]] = {
    "parallel": Parallel,
    "bf16": lambda compiled: Parallel(compiled, rounded=True),
    "sharded": Sharded,
}


def slowest(ms: float) -> float:
    """The largest of all ranks."""
    one = torch.tensor([ms], device="cuda")
    dist.all_reduce(one, op=dist.ReduceOp.MAX)
    return one.item()


def main() -> None:
    """Eager, then compiled."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--out", type=Path, default=Path("gpt_ddp_torch.csv"))
    made.add_argument("--seconds", type=float, default=60)
    made.add_argument("--ways", default="parallel,bf16", help="of parallel, bf16, sharded")
    made.add_argument("--modes", default="eager,compiled")
    chosen = made.parse_args()
    begin = time.time()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    ranks = dist.get_world_size()
    torch.set_float32_matmul_precision("high")
    rows = ["ranks,way,what,value,unit,samples,p10,p90"]
    for compiled in (mode == "compiled" for mode in chosen.modes.split(",")):
        if slowest(time.time() - begin) > chosen.seconds:
            if rank == 0:
                print("no time was left for more")
            break
        name = "PyTorch compiled" if compiled else "PyTorch eager"
        tokens = tokens_of(BATCH, 100 + rank)
        alone = Trainer(compiled)
        trainers = {NAMES[way]: MAKE[way](compiled) for way in chosen.ways.split(",")}
        for _ in range(4):
            for trainer in (alone, *trainers.values()):
                trainer.step(tokens)
        times: dict[str, list[float]] = {name: [] for name in ("one GPU alone", *trainers)}
        for _ in range(ROUNDS):
            slowest(0.0)
            ms = timed(partial(alone.step, tokens), CALLS) if rank == 0 else 0.0
            times["one GPU alone"].append(slowest(ms))
            for way, trainer in trainers.items():
                times[way].append(slowest(timed(partial(trainer.step, tokens), CALLS)))
        if rank == 0:
            base = statistics.median(times["one GPU alone"])
            for way, samples in times.items():
                ms, low, high = (float(np.percentile(samples, share)) for share in (50, 10, 90))
                label = f"{name}: {way.replace(',', '')}"
                rows.append(f"{ranks},{label},a step,{ms:.5f},ms,{len(samples)},{low:.5f},{high:.5f}")
                rows.append(
                    f"{ranks},{label},efficiency,{base / ms:.5f},of one GPU alone,1,{base / ms:.5f},{base / ms:.5f}"
                )
                rate = BATCH * CONTEXT * (1 if way == "one GPU alone" else ranks) / ms * 1e3
                print(f"  {name}: {way:27} {ms:8.3f} ms {rate:9.0f} tokens/s, efficiency {base / ms:.3f}", flush=True)
            chosen.out.write_text("\n".join(rows) + "\n", encoding="utf-8")
        del alone, trainer, trainers
        torch.cuda.empty_cache()
        torch._dynamo.reset()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
