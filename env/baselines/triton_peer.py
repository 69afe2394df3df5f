"""Triton's side of the programs on tiles, and PyTorch's, on the arrays of `examples/record_tiles`.

Of each kernel all settings that fit are compiled (several at a time) and timed, as `triton.autotune` does; the fastest one, whatever
its design, takes part.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product as pairs
from pathlib import Path

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from env.baselines import cutile_peer, torch_peer, triton_kernels
from env.baselines.cuda_clock import timed
from env.baselines.torch_peer import Call, Job, Make, Tensors

# Compilers that work at the same time.
WORKERS = 12
# Calls of which each setting's time is the mean; the fastest settings are timed again, longer.
FEW, MANY, FINALISTS = 5, 30, 3

# A setting: its name, and the call on some arrays; with `warmup` it is only compiled.
Setting = tuple[str, Callable[..., Tensors]]


def launched(
    kernel: triton.JITFunction, programs: tuple[int, ...], arguments: tuple, out: torch.Tensor, **settings: object
) -> Callable[..., Tensors]:
    """A launch that fills `out`, or with `warmup` its compilation."""

    def call(warmup: bool = False) -> Tensors:
        if warmup:
            kernel.warmup(*arguments, grid=programs, **settings)
        else:
            kernel[programs](*arguments, **settings)
        return [out]

    return call


def softmax_settings(size: list[int], inputs: Tensors) -> Iterator[Setting]:
    """A row a program, or as many programs as fit, each with many rows and the next ones' loads in flight."""
    rows, columns = size
    x, y = inputs[0].view(rows, columns), torch.empty(rows, columns, device="cuda", dtype=inputs[0].dtype)
    width = triton.next_power_of_2(columns)
    multiprocessors = torch.cuda.get_device_properties("cuda").multi_processor_count
    grids = [(rows, 1), *((multiprocessors * each, stages) for each in (2, 4, 8) for stages in (1, 2, 4))]
    for (programs, stages), warps in pairs(grids, (4, 8, 16)):
        settings = {"WIDTH": width, "STAGES": stages, "num_warps": warps}
        call = launched(triton_kernels.softmax, (programs,), (x, y, rows, columns), y, **settings)
        yield f"programs={programs} stages={stages} warps={warps}", call


def product_settings(size: list[int], inputs: Tensors) -> Iterator[Setting]:
    m, n, k = size
    a, b = inputs[0].view(m, k), inputs[1].view(k, n)
    c = torch.empty(m, n, device="cuda", dtype=a.dtype)
    multiprocessors = torch.cuda.get_device_properties("cuda").multi_processor_count
    for tile_m, tile_n, tile_k, stages, warps in [
        (128, 256, 64, 3, 8), (128, 256, 64, 4, 8), (256, 128, 64, 3, 8), (256, 128, 64, 4, 8), (128, 128, 64, 4, 4),
        (128, 128, 64, 5, 8), (128, 128, 128, 3, 8), (128, 256, 128, 2, 8),
    ]:  # fmt: skip
        tiles = triton.cdiv(m, tile_m) * triton.cdiv(n, tile_n)
        for halves, programs in pairs((False, True), (min(multiprocessors, tiles), tiles)):
            maps = (
                TensorDescriptor.from_tensor(a, [tile_m, tile_k]),
                TensorDescriptor.from_tensor(b, [tile_k, tile_n]),
                TensorDescriptor.from_tensor(c, [tile_m, tile_n // 2 if halves else tile_n]),
            )
            call = launched(
                triton_kernels.product, (programs,), (*maps, m, n, k), c,
                M=tile_m, N=tile_n, K=tile_k, BAND=8, HALVES=halves, FLATTEN=programs < tiles,
                num_stages=stages, num_warps=warps,
            )  # fmt: skip
            name = f"TMA {tile_m}x{tile_n}x{tile_k} stages={stages} warps={warps} halves={halves} programs={programs}"
            yield name, call
        call = launched(
            triton_kernels.product_by_pointers, (tiles,), (a, b, c, m, n, k), c,
            M=tile_m, N=tile_n, K=tile_k, BAND=8, num_stages=stages, num_warps=warps,
        )  # fmt: skip
        name = f"pointers {tile_m}x{tile_n}x{tile_k} stages={stages} warps={warps}"
        yield name, call


def attention_settings(causal: bool) -> Callable[[list[int], Tensors], Iterator[Setting]]:
    def settings(size: list[int], inputs: Tensors) -> Iterator[Setting]:
        heads, length, width = size
        q, k, v = (x.view(heads * length, width) for x in inputs)
        o = torch.empty_like(q)
        for queries, keys, stages, warps in [
            (128, 128, 2, 8), (128, 128, 3, 8), (128, 64, 2, 8), (128, 64, 3, 8), (128, 64, 4, 8), (128, 64, 3, 4),
            (128, 32, 4, 4), (64, 64, 3, 4), (64, 64, 4, 4), (64, 128, 2, 4), (64, 128, 3, 4),
        ]:  # fmt: skip
            if causal and queries < keys:
                continue
            maps = [
                TensorDescriptor.from_tensor(x, [rows, width])
                for x, rows in ((q, queries), (k, keys), (v, keys), (o, queries))
            ]
            call = launched(
                triton_kernels.attention, (length // queries, heads), (*maps, length, width**-0.5), o,
                HEAD=width, QUERIES=queries, KEYS=keys, CAUSAL=causal, num_stages=stages, num_warps=warps,
            )  # fmt: skip
            name = f"queries={queries} keys={keys} stages={stages} warps={warps}"
            yield name, call

    return settings


def compiled(settings: list[Setting]) -> list[Setting]:
    """Those that compile for this GPU."""

    def one(setting: Setting) -> Setting | None:
        try:
            setting[1](warmup=True)
        except Exception as error:  # noqa: BLE001 - of a compiler: whatever it is, this setting takes no part
            print(f"Triton: left out: {setting[0]}: {str(error).splitlines()[:1]}", file=sys.stderr)
            return None
        return setting

    # The first one alone: it makes what all of them need.
    first, *rest = settings
    with ThreadPoolExecutor(WORKERS) as pool:
        return [setting for setting in [one(first), *pool.map(one, rest)] if setting]


def runs(setting: Setting, calls: int) -> float:
    """The ms of a call; infinite for one that needs more than the GPU has."""
    try:
        timed(setting[1], 1)
        return timed(setting[1], calls)
    except triton.runtime.errors.OutOfResources:
        return float("inf")


def tuned(settings: Callable[[list[int], Tensors], Iterator[Setting]]) -> Make:
    """The fastest setting, found on the first arrays."""
    found: list[str] = []

    def make(topic: str, size: list[int], inputs: Tensors) -> Call:
        all_settings = list(settings(size, inputs))
        if not found:
            times = sorted((runs(setting, FEW), setting) for setting in compiled(all_settings))
            again = sorted((runs(setting, MANY), setting) for _, setting in times[:FINALISTS])
            for ms, (name, _) in times[:6]:
                print(f"Triton {topic}: {ms:.4f} ms {name}", file=sys.stderr)
            found.append(again[0][1][0])
            print(f"Triton {topic}: chosen {again[0][0]:.4f} ms {found[0]}", file=sys.stderr)
        return next(call for name, call in all_settings if name == found[0])

    return make


SETTINGS: dict[str, Callable[[list[int], Tensors], Iterator[Setting]]] = {
    "softmax": softmax_settings,
    "matmul_bf16": product_settings,
    "flash_attention": attention_settings(False),
    "flash_attention_causal": attention_settings(True),
}


class Partner(torch_peer.Partner):
    """Triton first, then PyTorch's ways: its own softmax, cuBLAS, FlashAttention-2, cuDNN; then cuTile, where its program is there."""

    def __init__(self, folder: Path, cutile: Path | None = None) -> None:
        super().__init__(folder)
        self.cutile = cutile_peer.Program(cutile, folder) if cutile else None

    def prepare(self, asked: dict) -> Job | None:
        topic = asked["topic"]
        name = {"matmul_bf16": "cuBLAS by torch"}.get(topic) or torch_peer.NAMES.get(topic, "torch")
        ways = {name: torch_peer.TOPICS[topic], **torch_peer.OTHERS.get(topic, {})}
        job = torch_peer.jobs(asked, self.folder, {f"Triton {triton.__version__}": tuned(SETTINGS[topic]), **ways})
        job.others += self.cutile.jobs(asked) if self.cutile else []
        return job
