"""Softmax, a matrix product and attention in Triton, designed as in Triton's tutorials 02, 09 and 06."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, y, rows, columns, WIDTH: tl.constexpr, STAGES: tl.constexpr):
    """Rows of up to WIDTH numbers, each as one tile; one grid further each time."""
    at = tl.arange(0, WIDTH)
    there = at < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        start = row.to(tl.int64) * columns
        tile = tl.load(x + start + at, mask=there, other=-float("inf")).to(tl.float32)
        powers = tl.exp(tile - tl.max(tile, axis=0))
        tl.store(y + start + at, (powers / tl.sum(powers, axis=0)).to(y.dtype.element_ty), mask=there)


@triton.jit
def place(tile, rows, columns, BAND: tl.constexpr):
    """Row and column of a tile: bands of rows are walked downwards and then to the right."""
    band = tile // (BAND * columns) * BAND
    height = min(rows - band, BAND)
    return band + tile % (BAND * columns) % height, tile % (BAND * columns) // height


@triton.jit
def product(
    a, b, c, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BAND: tl.constexpr, HALVES: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """c = a · b by tensor descriptors, of which the TMA loads and stores tiles; as many programs as wanted walk over c."""
    rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=FLATTEN):
        row, column = place(tile, rows, columns, BAND)
        total = tl.zeros((M, N), dtype=tl.float32)
        for step in range(tl.cdiv(k, K)):
            total = tl.dot(a.load([row * M, step * K]), b.load([step * K, column * N]), total)
        if HALVES:
            # Half as much shared memory for what leaves: room for one more stage.
            left, right = tl.split(tl.permute(tl.reshape(total, (M, 2, N // 2)), (0, 2, 1)))
            c.store([row * M, column * N], left.to(c.dtype))
            c.store([row * M, column * N + N // 2], right.to(c.dtype))
        else:
            c.store([row * M, column * N], total.to(c.dtype))


@triton.jit
def product_by_pointers(
    a, b, c, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """The same with a program for each tile, by pointers and masks (tutorial 03)."""
    row, column = place(tl.program_id(0), tl.cdiv(m, M), tl.cdiv(n, N), BAND)
    at_m, at_n, at_k = (row * M + tl.arange(0, M)) % m, (column * N + tl.arange(0, N)) % n, tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in range(tl.cdiv(k, K)):
        left = k - step * K
        from_a = a + at_m[:, None] * k + step * K + at_k[None, :]
        from_b = b + (step * K + at_k[:, None]) * n + at_n[None, :]
        part = tl.load(from_a, mask=at_k[None, :] < left, other=0.0)
        total = tl.dot(part, tl.load(from_b, mask=at_k[:, None] < left, other=0.0), total)
    to_m, to_n = row * M + tl.arange(0, M), column * N + tl.arange(0, N)
    there = (to_m[:, None] < m) & (to_n[None, :] < n)
    tl.store(c + to_m[:, None] * n + to_n[None, :], total.to(c.dtype.element_ty), mask=there)


@triton.jit
def weigh(
    o, total, most, q, k, v, start, begin, end, first, scale,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Takes keys `begin` to `end` of the head that starts at row `start` into what has been summed so far."""
    query, key = first + tl.arange(0, QUERIES), tl.arange(0, KEYS)
    for at in range(begin, end, KEYS):
        at = tl.multiple_of(at, KEYS)
        scores = tl.dot(q, k.load([start + at, 0]).T)
        if MASKED:
            scores = scores * scale + tl.where(query[:, None] >= at + key[None, :], 0, -1.0e6)
            larger = tl.maximum(most, tl.max(scores, 1))
            scores -= larger[:, None]
        else:
            larger = tl.maximum(most, tl.max(scores, 1) * scale)
            scores = scores * scale - larger[:, None]
        powers = tl.math.exp2(scores)
        factor = tl.math.exp2(most - larger)
        own = tl.sum(powers, 1)
        o = tl.dot(powers.to(v.dtype), v.load([start + at, 0]), o * factor[:, None])
        total = total * factor + own
        most = larger
    return o, total, most


@triton.jit
def attention(
    q, k, v, o, length, scale,
    HEAD: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program for QUERIES queries of a head; the length is a multiple of QUERIES and KEYS. Descriptors as in tutorial 06."""
    first, start = tl.program_id(0) * QUERIES, tl.program_id(1) * length
    most = tl.zeros([QUERIES], dtype=tl.float32) - float("inf")
    total = tl.zeros([QUERIES], dtype=tl.float32)
    sums = tl.zeros([QUERIES, HEAD], dtype=tl.float32)
    own = q.load([start + first, 0])
    scale = scale * 1.44269504
    # Keys that all of these queries see, then those on the diagonal.
    seen = first if CAUSAL else length
    sums, total, most = weigh(sums, total, most, own, k, v, start, 0, seen, first, scale, QUERIES, KEYS, False)
    if CAUSAL:
        end = first + QUERIES
        sums, total, most = weigh(sums, total, most, own, k, v, start, first, end, first, scale, QUERIES, KEYS, True)
    o.store([start + first, 0], (sums / total[:, None]).to(o.dtype))
