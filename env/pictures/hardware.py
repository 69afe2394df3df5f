"""Pictures of the machine: who works, and in which groups."""

from __future__ import annotations

from env.pictures.svg import BLUE, GREEN, GREY, ORANGE, PINK, Picture, picture


@picture("cpu-and-gpu", "A CPU has a few large cores, a GPU thousands of small ones", 190)
def cpu_and_gpu(p: Picture) -> None:
    p.text(150, 18, "CPU: a few fast workers", bold=True)
    for at in range(4):
        p.box(40 + at % 2 * 115, 36 + at // 2 * 70, 105, 62, BLUE, "core")
    p.text(540, 18, "GPU: thousands of slow ones, at once", bold=True)
    for row in range(9):
        p.row(330, 36 + row * 15, [""] * 28, 12, 11, 3, GREEN)
    p.text(150, 181, "one job: done soonest", size=12)
    p.text(540, 181, "a million small jobs: done soonest", size=12)


@picture("grid-block-thread", "A grid is made of blocks, a block of threads", 180)
def grid_block_thread(p: Picture) -> None:
    p.text(20, 16, "grid: one launch of a kernel", "start", bold=True)
    for block in range(4):
        p.box(20 + block * 182, 32, 174, 92, GREY, fill=0.08)
        p.text(107 + block * 182, 46, f"block {block}", size=12)
        p.row(28 + block * 182, 60, [str(n) for n in range(4)], 38, 26, 2, BLUE)
        p.row(28 + block * 182, 92, [str(n) for n in range(4, 8)], 38, 26, 2, BLUE)
    p.text(20, 142, "each small box: a thread, with its number within the block", "start", size=12)
    p.text(20, 164, "thread 3 of block 2 works on element 2 × 8 + 3 = 19", "start", size=12)


@picture("index-and-guard", "The last block has threads to spare, which the guard sends home", 135)
def index_and_guard(p: Picture) -> None:
    p.text(20, 16, "10 elements, blocks of 4 threads", "start", bold=True)
    p.row(20, 34, [f"a[{n}]" for n in range(10)], 56, 26, 4, BLUE)
    for thread in range(12):
        x = 48 + thread * 60
        p.box(x - 28, 82, 56, 26, GREEN if thread < 10 else ORANGE, f"i = {thread}", size=12)
        if thread < 10:
            p.arrow(x, 80, x, 62)
    p.text(678, 47, "nothing here", size=12)
    p.text(740, 124, "if (i < n) keeps these two away", "end", size=12)


@picture("warp", "Thirty-two threads take each step together", 150)
def warp(p: Picture) -> None:
    p.text(20, 16, "a warp: 32 threads, one instruction at a time for all", "start", bold=True)
    steps = ["load a[i]", "load b[i]", "add", "store c[i]"]
    for at, step in enumerate(steps):
        p.text(92, 44 + at * 26, step, "end", size=12)
        p.row(104, 34 + at * 26, [""] * 32, 17, 20, 3, [BLUE, BLUE, GREEN, PINK][at])
    p.arrow(752, 34, 752, 136)
    p.text(104, 143, "thread 0", "start", size=12)
    p.text(740, 143, "thread 31", "end", size=12)


@picture("divergence", "Where threads of a warp disagree, both ways are walked one after the other", 150)
def divergence(p: Picture) -> None:
    p.text(20, 16, "if (i % 2 == 0) A; else B;", "start", bold=True)
    for at, (name, even) in enumerate([("way A", True), ("way B", False)]):
        p.text(92, 52 + at * 42, name, "end", size=12)
        for thread in range(32):
            works = (thread % 2 == 0) == even
            p.box(104 + thread * 20, 36 + at * 42, 17, 32, BLUE if works else GREY, fill=0.6 if works else 0.05)
    p.text(104, 134, "filled: works. Pale: waits. Two ways: twice the time", "start", size=12)


@picture("multiprocessor", "A multiprocessor holds several blocks as long as their needs fit", 175)
def multiprocessor(p: Picture) -> None:
    p.text(20, 16, "one of the GPU's multiprocessors: what it has is shared out", "start", bold=True)
    parts = [
        ("registers", [0.3, 0.3, 0.3]),
        ("shared memory", [0.25, 0.25, 0.25]),
        ("places for warps", [0.2, 0.2, 0.2]),
    ]
    for row, (name, shares) in enumerate(parts):
        y = 36 + row * 38
        p.text(150, y + 14, name, "end", size=12)
        p.box(160, y, 560, 28, GREY, fill=0.05)
        x = 160.0
        for block, share in enumerate(shares):
            p.box(x, y, share * 560, 28, [BLUE, GREEN, PINK][block], f"block {block}", size=12)
            x += share * 560
    p.text(
        160,
        160,
        "a fourth block does not fit: its registers are missing. So 3 are at work: the occupancy",
        "start",
        size=12,
    )


@picture("hiding-latency", "While one warp waits for memory, others work", 160)
def hiding_latency(p: Picture) -> None:
    p.text(20, 16, "four warps on one multiprocessor, time to the right", "start", bold=True)
    for warp_number in range(4):
        y, x = 34 + warp_number * 26, 90 + warp_number * 62
        p.text(80, y + 10, f"warp {warp_number}", "end", size=12)
        while x < 740:
            p.box(x, y, min(60, 740 - x), 20, BLUE, "works" if x < 690 else "", fill=0.55, size=12)
            wait = min(186, 740 - x - 60)
            if wait > 20:
                p.box(x + 62, y, wait - 2, 20, GREY, "waits for memory" if wait > 120 else "", fill=0.05, size=12)
            x += 248
    p.text(90, 148, "somebody always works: the waiting is hidden, and not shortened", "start", size=12)


@picture("simulator", "The simulator runs each thread on the CPU and says which one went wrong", 140)
def simulator(p: Picture) -> None:
    p.box(20, 40, 170, 56, BLUE, "your kernel\nCUDA C")
    p.arrow(194, 68, 246, 68)
    p.box(250, 40, 200, 56, GREEN, "a GPU of software:\nthread by thread")
    p.arrow(454, 52, 506, 40)
    p.arrow(454, 84, 506, 98)
    p.box(510, 16, 230, 46, ORANGE, "line 3, block 1, thread 5:\nreads past the end of a", size=12)
    p.box(510, 76, 230, 46, GREY, "counts: what each line\nfetches from memory", size=12)
    p.text(350, 118, "results, and no times", size=12)
