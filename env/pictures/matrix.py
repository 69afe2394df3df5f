"""Pictures of matrices and numbers: tiles, the roofline, formats, the units that multiply."""

from __future__ import annotations

import math

from env.pictures.svg import BLUE, GREEN, GREY, ORANGE, PINK, Picture, picture


def grid(p: Picture, x: float, y: float, n: int, side: float, colors: dict[tuple[int, int], str]) -> None:
    """A square of n × n cells; those named have a colour."""
    for row in range(n):
        for column in range(n):
            color = colors.get((row, column))
            place = (x + column * side, y + row * side, side - 2, side - 2)
            p.box(*place, color or GREY, fill=0.45 if color else 0.05)


@picture("tiles", "A block fetches a tile of each matrix once, and all its threads use it", 215)
def tiles(p: Picture) -> None:
    strip_a = {(row, column): BLUE for row in (2, 3) for column in range(8)} | {
        (row, column): ORANGE for row in (2, 3) for column in (4, 5)
    }
    strip_b = {(row, column): BLUE for row in range(8) for column in (4, 5)} | {
        (row, column): ORANGE for row in (4, 5) for column in (4, 5)
    }
    for x, name, colors in [
        (30, "a", strip_a),
        (280, "b", strip_b),
        (530, "c", {(row, column): GREEN for row in (2, 3) for column in (4, 5)}),
    ]:
        p.text(x + 79, 16, name, bold=True)
        grid(p, x, 30, 8, 20, colors)
    p.text(235, 110, "×", size=20)
    p.text(485, 110, "=", size=20)
    p.text(
        30,
        204,
        "orange: now in shared memory. Next the tile to its right, and the one below: step by step",
        "start",
        size=12,
    )


@picture("roofline", "What a kernel can reach: a slope set by memory, then a flat roof set by arithmetic", 230)
def roofline(p: Picture) -> None:
    p.line(90, 190, 730, 190)
    p.line(90, 190, 90, 20)
    p.path([(90, 180), (420, 50), (730, 50)], BLUE)
    p.text(250, 92, "memory's roof", "end")
    p.text(580, 36, "arithmetic's roof")
    p.dot(210, 136)
    p.text(222, 148, "vector addition: waits for memory", "start", size=12)
    p.dot(600, 58, GREEN)
    p.text(600, 78, "matrix multiplication: waits for arithmetic", size=12)
    p.dot(490, 160, PINK)
    p.text(502, 160, "far below: waits for something else", "start", size=12)
    p.text(410, 212, "operations for each byte fetched", size=12)
    p.text(80, 30, "speed", "end", size=12)


@picture("precision", "How the bits of a number are spent: sign, range, digits", 225)
def precision(p: Picture) -> None:
    formats = [("f32", 8, 23), ("tf32", 8, 10), ("bf16", 8, 7), ("f16", 5, 10), ("fp8 e4m3", 4, 3), ("fp8 e5m2", 5, 2)]
    for at, (name, exponent, fraction) in enumerate(formats):
        y = 30 + at * 32
        p.text(95, y + 11, name, "end", size=12)
        p.box(104, y, 18, 22, GREY, "±", size=12)
        p.box(124, y, exponent * 18, 22, ORANGE, str(exponent), size=12)
        p.box(126 + exponent * 18, y, fraction * 18, 22, BLUE, str(fraction), size=12)
    p.text(740, 84, "orange: how large or", "end", size=12)
    p.text(740, 102, "small it may be", "end", size=12)
    p.text(740, 136, "blue: how many digits", "end", size=12)
    p.text(740, 154, "it keeps (and one more)", "end", size=12)
    p.text(104, 14, "one box a part, with its number of bits", "start", size=12)


@picture("tensor-core", "A tensor core multiplies two small matrices in one instruction of a warp", 170)
def tensor_core(p: Picture) -> None:
    p.text(170, 16, "plain: one number a step", bold=True)
    p.box(60, 60, 50, 30, BLUE, "a")
    p.text(125, 75, "×")
    p.box(140, 60, 50, 30, BLUE, "b")
    p.text(205, 75, "+")
    p.box(220, 60, 50, 30, GREEN, "c")
    p.text(560, 16, "tensor core: two tiles a step", bold=True)
    for at, color in enumerate([BLUE, BLUE, GREEN]):
        for row in range(4):
            p.row(370 + at * 135, 40 + row * 26, [""] * 4, 22, 22, 3, color)
    p.text(485, 90, "×")
    p.text(620, 90, "+")
    p.text(165, 120, "a thread: 2 operations", size=12)
    p.text(560, 158, "a warp: 16 × 8 × 16 multiply-adds, 4096 operations", size=12)


@picture("copy-engine", "While the warps work on one tile, a copy engine fetches the next", 150)
def copy_engine(p: Picture) -> None:
    p.text(110, 44, "copy engine", "end", size=12)
    p.text(110, 96, "warps", "end", size=12)
    for at in range(5):
        p.box(120 + at * 118, 30, 114, 28, ORANGE, f"fetch tile {at + 1}", size=12)
        if at < 4:
            p.box(238 + at * 118, 82, 114, 28, GREEN, f"use tile {at + 1}", size=12)
            p.arrow(234 + at * 118, 58, 244 + at * 118, 80)
    p.text(120, 134, "two places in shared memory take turns: one is filled while the other is read", "start", size=12)


@picture("quantization", "Each weight goes to the nearest of 256 steps; one number remembers their width", 165)
def quantization(p: Picture) -> None:
    p.text(20, 18, "weights, 4 bytes each", "start", bold=True)
    p.line(40, 52, 720, 52)
    values = [0.04, 0.13, 0.31, 0.38, 0.52, 0.66, 0.71, 0.93]
    for value in values:
        step = round(value * 15) / 15
        p.dot(40 + 680 * value, 52, BLUE)
        p.arrow(40 + 680 * value, 60, 40 + 680 * step, 94)
    for at in range(16):
        x = 40 + 680 * at / 15
        p.line(x, 96, x, 108)
    p.line(40, 108, 720, 108)
    p.text(20, 132, "steps, 1 byte each (256 of them; 16 are drawn)", "start", bold=True)
    p.text(20, 152, "weight ≈ step × width: a quarter of the bytes, and a small error", "start", size=12)


@picture("bits-of-a-sum", "Next to a large number a small one loses its last digits", 130)
def bits_of_a_sum(p: Picture) -> None:
    for row, (name, digits, color) in enumerate(
        [("sum so far", "16 777 216", BLUE), ("next number", "1", GREEN), ("f32's answer", "16 777 216", ORANGE)]
    ):
        p.text(150, 30 + row * 34, name, "end")
        p.box(160, 18 + row * 34, 190, 26, color, digits)
    p.text(370, 30, "f32 keeps 24 bits: the next number above", "start", size=12)
    p.text(370, 48, "16 777 216 is 16 777 218", "start", size=12)
    p.text(370, 98, "so add small numbers to small sums first", "start", size=12)


@picture("crossover", "Small work is faster on the CPU, large work on the GPU", 200)
def crossover(p: Picture) -> None:
    p.line(90, 165, 730, 165)
    p.line(90, 165, 90, 20)
    cpu = [(90 + n * 12.8, 158 - 130 * (n / 50) ** 2) for n in range(51)]
    gpu = [(90 + n * 12.8, 118 - 22 * (n / 50) ** 2) for n in range(51)]
    p.path(cpu, BLUE)
    p.path(gpu, GREEN)
    meet = 50 * math.sqrt(40 / 108)
    p.dot(90 + meet * 12.8, 158 - 130 * (meet / 50) ** 2)
    p.text(640, 40, "CPU", bold=True)
    p.text(700, 112, "GPU", bold=True)
    p.text(120, 132, "starting it costs this much", "start", size=12)
    p.text(90 + meet * 12.8, 84, "from here on it pays", size=12)
    p.text(410, 186, "size of the work", size=12)
    p.text(80, 28, "time", "end", size=12)
