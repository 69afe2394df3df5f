"""Pictures of memory: where bytes live, and what fetching them costs."""

from __future__ import annotations

from env.pictures.svg import BLUE, BRONZE, GREEN, GREY, ORANGE, PINK, Picture, picture


@picture("memory-kinds", "From registers to the host's memory: each kind is larger and farther away", 225)
def memory_kinds(p: Picture) -> None:
    kinds = [
        ("registers", "a thread's own", 150, BLUE),
        ("shared memory", "a block's own", 250, GREEN),
        ("L2 cache", "for the whole GPU", 360, PINK),
        ("GPU memory", "gigabytes, for the whole GPU", 480, ORANGE),
        ("host memory", "the CPU's, across a narrow bridge", 600, GREY),
    ]
    for at, (name, whose, width, color) in enumerate(kinds):
        p.box(80 + (600 - width) / 2, 14 + at * 40, width, 32, color, f"{name}: {whose}" if at > 1 else name, size=12)
        if at < 2:
            p.text(80 + (600 + width) / 2 + 10, 30 + at * 40, whose, "start", size=12)
    p.arrow(40, 20, 40, 205)
    p.text(14, 218, "larger, slower", "start", size=12)


@picture("two-memories", "CPU and GPU have memories of their own, with a bridge between them", 165)
def two_memories(p: Picture) -> None:
    p.box(20, 40, 250, 100, BLUE, fill=0.08)
    p.text(145, 24, "the CPU's side", bold=True)
    p.box(40, 60, 210, 60, BLUE, "host memory\nlet a = vec![…]", size=12)
    p.box(490, 40, 250, 100, GREEN, fill=0.08)
    p.text(615, 24, "the GPU's side", bold=True)
    p.box(510, 60, 210, 60, GREEN, "GPU memory\nlet on_a = gpu.to_device(&a)?", size=12)
    p.arrow(256, 76, 504, 76)
    p.text(380, 62, "copy in")
    p.arrow(504, 106, 256, 106)
    p.text(380, 120, "copy back")


@picture("latency-bandwidth", "Latency is how long the first one takes, bandwidth how many arrive a second", 160)
def latency_bandwidth(p: Picture) -> None:
    p.text(20, 22, "latency: how long one takes", "start", bold=True)
    p.box(20, 40, 60, 26, BLUE, "ask", size=12)
    p.arrow(84, 53, 330, 53, dash=True)
    p.box(334, 40, 70, 26, BLUE, "answer", size=12)
    p.text(20, 96, "bandwidth: how many arrive in a second", "start", bold=True)
    p.arrow(20, 126, 66, 126)
    p.row(70, 114, [""] * 44, 13, 24, 2, GREEN)
    p.arrow(732, 126, 752, 126)
    p.text(420, 53, "hundreds of clock cycles for GPU memory", "start", size=12)


@picture("pinned", "From ordinary memory a copy makes a detour, from pinned memory it goes straight", 165)
def pinned(p: Picture) -> None:
    p.text(20, 40, "ordinary", "start", bold=True)
    p.box(110, 22, 130, 38, GREY, "your Vec")
    p.arrow(244, 41, 306, 41)
    p.box(310, 22, 150, 38, BRONZE, "the driver's dock", size=12)
    p.arrow(464, 41, 586, 41)
    p.box(590, 22, 150, 38, GREEN, "GPU memory")
    p.text(275, 72, "1. the CPU copies", size=12)
    p.text(525, 72, "2. the GPU fetches", size=12)
    p.text(20, 120, "pinned", "start", bold=True)
    p.box(110, 102, 130, 38, BLUE, "pinned buffer")
    p.arrow(244, 121, 586, 121)
    p.box(590, 102, 150, 38, GREEN, "GPU memory")
    p.text(415, 138, "the GPU fetches it by itself", size=12)


@picture("memory-pool", "What is freed stays in the pool for the next one who asks", 150)
def memory_pool(p: Picture) -> None:
    for at, (title, parts) in enumerate(
        [
            ("a buffer lives", [("yours", 90, BLUE), ("free in the pool", 130, GREY)]),
            ("it was dropped", [("free in the pool", 222, GREY)]),
            ("trim(0)", [("", 222, GREY)]),
        ]
    ):
        x = 20.0 + at * 248
        p.text(x + 111, 20, title, bold=True)
        for text, width, color in parts:
            p.box(x, 40, width, 50, color, text, fill=0.25 if at < 2 else 0, dash=at == 2, size=12)
            x += width + 2
        said = ["both taken from the GPU", "still taken from the GPU", "given back to the GPU"][at]
        p.text(131 + at * 248, 112, said, size=12)


@picture("coalescing", "Neighbouring threads that read neighbouring numbers need few fetches", 215)
def coalescing(p: Picture) -> None:
    p.text(20, 16, "side by side: 8 threads, 1 fetch of 32 bytes", "start", bold=True)
    p.row(20, 30, [f"t{n}" for n in range(8)], 42, 22, 3, BLUE)
    for n in range(8):
        p.arrow(41 + n * 45, 53, 41 + n * 45, 68)
    p.row(20, 70, [""] * 16, 42, 20, 3, lambda n: GREEN if n < 8 else GREY)
    p.text(20, 118, "8 numbers apart: 8 threads, 8 fetches, of which 7/8 are thrown away", "start", bold=True)
    p.row(20, 132, [f"t{n}" for n in range(8)], 42, 22, 3, BLUE)
    p.row(20, 184, [""] * 64, 9, 20, 2, lambda n: ORANGE if n % 8 == 0 else GREY)
    for n in range(8):
        p.arrow(41 + n * 45, 155, 24 + n * 88, 183)


@picture("banks", "Shared memory has 32 counters; two customers at one of them wait for each other", 205)
def banks(p: Picture) -> None:
    p.text(20, 16, "no conflict: each thread at a bank of its own", "start", bold=True)
    p.row(20, 30, [f"t{n}" for n in range(8)], 60, 22, 6, BLUE)
    p.row(20, 72, [f"bank {n}" for n in range(8)], 60, 22, 6, GREEN)
    for n in range(8):
        p.arrow(50 + n * 66, 53, 50 + n * 66, 71)
    p.text(20, 118, "conflict: every second bank, two threads each, two turns", "start", bold=True)
    p.row(20, 130, [f"t{n}" for n in range(8)], 60, 22, 6, BLUE)
    p.row(20, 174, [f"bank {n}" for n in range(8)], 60, 22, 6, lambda n: ORANGE if n % 2 == 0 else GREY)
    for n in range(8):
        p.arrow(50 + n * 66, 153, 50 + n * 2 % 8 * 66 + (n // 4) * 8 - 4, 173)
    p.text(560, 84, "one turn", "start")
    p.text(560, 186, "two turns", "start")


@picture("gather", "A list of numbers says which rows of a table are fetched", 185)
def gather(p: Picture) -> None:
    wanted = [5, 1, 5, 3]
    p.text(80, 16, "indices", bold=True)
    p.text(350, 16, "table", bold=True)
    p.text(640, 16, "result", bold=True)
    for row in range(6):
        color = GREEN if row in wanted else GREY
        p.box(260, 30 + row * 24, 180, 20, color, f"row {row}", size=12)
    for at, index in enumerate(wanted):
        y = 44 + at * 32
        p.box(60, y, 40, 24, BLUE, str(index))
        p.arrow(104, y + 12, 256, 40 + index * 24)
        p.box(550, y, 180, 24, GREEN, f"row {index}", size=12)
        p.line(442, 40 + index * 24, 548, y + 12)
