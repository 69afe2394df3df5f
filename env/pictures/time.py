"""Pictures of time: who waits for whom."""

from __future__ import annotations

from env.pictures.svg import BLUE, GREEN, GREY, ORANGE, PINK, Picture, picture


@picture("asynchrony", "A launch only puts an order into the queue; the CPU goes on at once", 165)
def asynchrony(p: Picture) -> None:
    p.text(70, 40, "CPU", "end", bold=True)
    p.text(70, 100, "GPU", "end", bold=True)
    for at in range(3):
        p.box(84 + at * 62, 28, 58, 24, BLUE, f"order {at + 1}", size=12)
        p.box(150 + at * 170, 88, 166, 24, GREEN, f"work {at + 1}", size=12)
    p.arrow(112, 54, 152, 86)
    p.box(270, 28, 386, 24, GREY, "synchronize: waits", fill=0.05, size=12)
    p.arrow(658, 86, 658, 54)
    p.line(268, 20, 268, 130, ORANGE, dash=True)
    p.line(660, 20, 660, 130, GREEN, dash=True)
    p.text(268, 144, "stopped here: only the ordering was timed", size=12)
    p.text(660, 144, "stopped here: the work", size=12)


@picture("streams", "With several streams copies and work overlap", 195)
def streams(p: Picture) -> None:
    p.text(20, 16, "one stream: one after the other", "start", bold=True)
    kinds = [("in", BLUE), ("work", GREEN), ("out", PINK)]
    for piece in range(3):
        for at, (name, color) in enumerate(kinds):
            p.box(20 + (piece * 3 + at) * 78, 30, 75, 22, color, f"{name} {piece + 1}", size=12)
    p.text(20, 86, "three streams: while one piece is worked on, the next one is on its way", "start", bold=True)
    for piece in range(3):
        for at, (name, color) in enumerate(kinds):
            p.box(20 + (piece + at) * 78, 100 + piece * 26, 75, 22, color, f"{name} {piece + 1}", size=12)
    p.arrow(412, 136, 722, 136, ORANGE)
    p.text(566, 122, "time saved", size=12)


@picture("fair-timing", "Discard the first calls, then take the median of many", 170)
def fair_timing(p: Picture) -> None:
    p.text(20, 16, "one bar a call", "start", bold=True)
    heights = [110, 62, 31, 30, 32, 30, 31, 58, 30, 31, 33, 30, 31, 30]
    for at, height in enumerate(heights):
        p.box(40 + at * 48, 140 - height, 36, height, ORANGE if at < 2 else BLUE)
    p.line(136, 109, 720, 109, GREEN, dash=True)
    p.text(724, 96, "median", "end", size=12)
    p.text(82, 156, "warm-up: not counted", size=12)
    p.text(394, 74, "somebody else's program: the median does not mind", "start", size=12)


@picture("cuda-graph", "A graph is a list of orders that is given once and called by one word", 175)
def cuda_graph(p: Picture) -> None:
    p.text(20, 16, "order by order: the GPU waits for the next order", "start", bold=True)
    p.text(60, 44, "CPU", "end", size=12)
    p.text(60, 72, "GPU", "end", size=12)
    for at in range(6):
        p.box(70 + at * 110, 34, 100, 20, BLUE, f"order {at + 1}", size=12)
        p.box(120 + at * 110, 62, 44, 20, GREEN, str(at + 1), size=12)
    p.text(20, 110, "as a graph: one order for all of them", "start", bold=True)
    p.text(60, 138, "CPU", "end", size=12)
    p.text(60, 164, "GPU", "end", size=12)
    p.box(70, 128, 100, 20, BLUE, "the usual", size=12)
    p.row(120, 154, [str(n) for n in range(1, 7)], 44, 18, 2, GREEN)
    p.arrow(410, 163, 716, 163, ORANGE)
    p.text(566, 150, "time saved", size=12)


@picture("profiling", "A profiler draws who worked when, and counts what was asked for", 165)
def profiling(p: Picture) -> None:
    p.text(20, 16, "a timeline: when?", "start", bold=True)
    for row, (name, bars) in enumerate(
        [("CPU", [(0, 60), (70, 40), (300, 50)]), ("copies", [(60, 90)]), ("kernels", [(150, 130), (290, 60)])]
    ):
        p.text(80, 46 + row * 32, name, "end", size=12)
        for x, width in bars:
            p.box(90 + x, 34 + row * 32, width, 22, [BLUE, PINK, GREEN][row])
    p.text(480, 16, "counters: how much?", "start", bold=True)
    for row, (name, share) in enumerate([("memory", 0.92), ("arithmetic", 0.11), ("shared memory", 0.3)]):
        p.text(590, 46 + row * 32, name, "end", size=12)
        p.box(600, 34 + row * 32, 140, 22, GREY, fill=0.05)
        p.box(600, 34 + row * 32, 140 * share, 22, ORANGE, fill=0.5)
    p.text(740, 140, "share of what the GPU can do", "end", size=12)
