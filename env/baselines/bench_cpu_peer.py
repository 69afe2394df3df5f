"""The peers of `bench_cpu.py`, spoken to line by line: `matmul 1024` or `sum 134217728` in, the median ms out."""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

# Each loop reads every byte once; the fastest of them is the read bandwidth that plain code reaches on this CPU.
C_LOOPS = r"""
#include <stddef.h>
#include <stdint.h>
double add_floats(const float *x, size_t n) {
    float s = 0;
    #pragma omp parallel for simd reduction(+ : s) schedule(static)
    for (size_t i = 0; i < n; i++) s += x[i];
    return s;
}
double add_integers(const float *x, size_t n) {
    const uint64_t *y = (const uint64_t *)x;
    uint64_t s = 0;
    #pragma omp parallel for simd reduction(+ : s) schedule(static)
    for (size_t i = 0; i < n / 2; i++) s += y[i];
    return (double)s;
}
double largest(const float *x, size_t n) {
    float s = 0;
    #pragma omp parallel for simd reduction(max : s) schedule(static)
    for (size_t i = 0; i < n; i++) s = x[i] > s ? x[i] : s;
    return s;
}
double add_floats_far(const float *x, size_t n) {
    float s = 0;
    #pragma omp parallel for reduction(+ : s) schedule(static)
    for (size_t block = 0; block < n / 1024; block++) {
        const float *y = x + block * 1024;
        for (int i = 0; i < 1024; i += 16) __builtin_prefetch(y + i + 4096, 0, 0);
        float part = 0;
        for (int i = 0; i < 1024; i++) part += y[i];
        s += part;
    }
    return s;
}
"""
LOOPS = ["add_floats", "add_integers", "largest", "add_floats_far"]


def median_ms(work: Callable[[], object]) -> float:
    """Return the median milliseconds of 7 calls, in batches of at least 0.2 ms, after three to warm up."""
    for _ in range(3):
        start = time.perf_counter()
        work()
        once = time.perf_counter() - start
    batch = max(1, int(0.2e-3 / once))
    samples = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(batch):
            work()
        samples.append((time.perf_counter() - start) * 1e3 / batch)
    return statistics.median(samples)


def compiled_loops() -> list[Callable[[ctypes.c_void_p, ctypes.c_size_t], float]]:
    """Compile the C loops for this CPU and load them."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "loops.c", Path(folder) / "loops.so"
        source.write_text(C_LOOPS)
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
    functions = [getattr(loaded, name) for name in LOOPS]
    for function in functions:
        function.restype = ctypes.c_double
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return functions


def main() -> None:
    """Answer until the other end closes."""
    random = np.random.default_rng(1)
    loops = compiled_loops()
    for line in sys.stdin:
        what, size = line.split()
        n = int(size)
        if what == "matmul":
            a, b = (random.uniform(-1, 1, (n, n)).astype(np.float32) for _ in range(2))
            c = np.empty_like(a)
            answer = median_ms(lambda a=a, b=b, c=c: np.matmul(a, b, out=c))
        else:
            x = random.random(n, np.float32)
            answer = min(median_ms(lambda loop=loop, x=x, n=n: loop(x.ctypes.data, n)) for loop in loops)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
