"""Numba's CUDA simulator, spoken to line by line by `bench_sim.py`: `matmul 64 3` in, the median seconds of 3 out."""

from __future__ import annotations

import os
import statistics
import sys
import time

# Read when Numba is imported.
os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

import numpy as np
from numba import cuda, float32

TILE = 16


@cuda.jit
def matmul(a, b, c, n):
    """Multiply by tiles of 16 × 16 in shared memory, as crates/warpsim/tests/ptx/matmul_tiled.cu does."""
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * TILE + tx, cuda.blockIdx.y * TILE + ty
    total = float32(0.0)
    for first in range(0, n, TILE):
        a_tile[ty, tx] = a[row, first + tx] if row < n and first + tx < n else 0.0
        b_tile[ty, tx] = b[first + ty, column] if first + ty < n and column < n else 0.0
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    if row < n and column < n:
        c[row, column] = total


@cuda.jit
def vector_add(a, b, c, n):
    """Add two vectors, as crates/warpsim/tests/ptx/vector_add.cu does."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        c[i] = a[i] + b[i]


def launch(what: str, n: int) -> float:
    """Launch once; return the seconds, after the result was checked."""
    shape = (n, n) if what == "matmul" else (n,)
    generator = np.random.default_rng(1)
    a, b = (generator.random(shape, dtype=np.float32) for _ in range(2))
    c = np.zeros(shape, dtype=np.float32)
    if what == "matmul":
        kernel, grid, block = matmul, (-(-n // TILE), -(-n // TILE)), (TILE, TILE)
    else:
        kernel, grid, block = vector_add, -(-n // 256), 256
    arrays = [cuda.to_device(x) for x in (a, b, c)]
    started = time.perf_counter()
    kernel[grid, block](*arrays, n)
    cuda.synchronize()
    seconds = time.perf_counter() - started
    arrays[2].copy_to_host(c)
    if not np.allclose(c, a @ b if what == "matmul" else a + b, rtol=1e-3):
        sys.exit(f"Numba's {what} gave a wrong result")
    return seconds


def main() -> None:
    """Answer until nobody asks."""
    if not cuda.is_available():
        sys.exit("Numba's CUDA simulator is not on")
    for line in sys.stdin:
        what, n, runs = line.split()
        print(statistics.median(launch(what, int(n)) for _ in range(int(runs))), flush=True)


if __name__ == "__main__":
    main()
