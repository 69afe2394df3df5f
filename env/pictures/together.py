"""Pictures of threads that work together: order, sums, chains of kernels."""

from __future__ import annotations

from env.pictures.svg import BLUE, GREEN, GREY, ORANGE, PINK, Picture, picture


@picture("race-and-barrier", "Nobody reads before all have written: that is what a barrier is for", 175)
def race_and_barrier(p: Picture) -> None:
    p.text(20, 16, "without a barrier", "start", bold=True)
    p.text(400, 16, "with __syncthreads()", "start", bold=True)
    for side, x in enumerate([20, 400]):
        for thread, delay in enumerate([0, 70]):
            y = 34 + thread * 46
            p.text(x + 56, y + 15, f"thread {thread}", "end", size=12)
            p.box(x + 64 + delay, y, 70, 30, BLUE, "writes", size=12)
            read = x + 64 + delay + 74 if side == 0 else x + 214
            p.box(read, y, 70, 30, ORANGE if (side, thread) == (0, 0) else GREEN, "reads", size=12)
        if side:
            p.line(x + 208, 28, x + 208, 122, ORANGE)
    p.text(20, 144, "thread 0 reads what thread 1 has not", "start", size=12)
    p.text(20, 162, "written yet: sometimes it goes well", "start", size=12)
    p.text(400, 144, "all wait at the line until the last one is there", "start", size=12)


@picture("atomics", "With an atomic addition, each adds to what the one before left", 165)
def atomics(p: Picture) -> None:
    for x, title, steps, end in [
        (20, "plain: total = total + 1", ["reads 5", "reads 5", "writes 6", "writes 6"], "6: one is lost"),
        (400, "atomicAdd(&total, 1)", ["5 becomes 6", "", "6 becomes 7", ""], "7: right, one after the other"),
    ]:
        p.text(x, 16, title, "start", bold=True)
        for at, step in enumerate(steps):
            if step:
                atomic = x == 400
                thread = at // 2 if atomic else at % 2
                p.box(x + at * 84, 36 + thread * 40, 164 if atomic else 80, 32, [BLUE, GREEN][thread], step, size=12)
        p.text(x, 136, end, "start")


@picture("reduction", "Neighbours add in pairs: eight numbers need three rounds", 195)
def reduction(p: Picture) -> None:
    rows = [[3, 1, 4, 1, 5, 9, 2, 6], [4, 5, 14, 8], [9, 22], [31]]
    places = [64.0 + n * 80 for n in range(8)]
    for level, row in enumerate(rows):
        y = 14 + level * 48
        for x, value in zip(places, row, strict=True):
            p.box(x - 24, y, 48, 26, [BLUE, GREEN, PINK, ORANGE][level], str(value))
        if level == 3:
            break
        above, places = places, [sum(pair) / 2 for pair in zip(places[::2], places[1::2], strict=True)]
        for at, x in enumerate(above):
            p.line(x, y + 27, places[at // 2], y + 47)
    p.text(740, 27, "8 numbers", "end", size=12)
    p.text(740, 171, "1 sum, after 3 rounds", "end", size=12)


@picture("fusion", "Three kernels carry the data to memory and back three times, one kernel once", 190)
def fusion(p: Picture) -> None:
    p.text(20, 16, "a chain of three kernels", "start", bold=True)
    for at, name in enumerate(["scale", "add", "max"]):
        p.box(110 + at * 180, 34, 120, 28, GREEN, name)
        p.arrow(96 + at * 180, 84, 124 + at * 180, 64)
        p.arrow(216 + at * 180, 64, 244 + at * 180, 84)
    p.box(40, 86, 680, 16, ORANGE, fill=0.35)
    p.text(740, 116, "GPU memory: 6 trips", "end", size=12)
    p.text(20, 130, "one fused kernel", "start", bold=True)
    p.box(280, 126, 200, 26, GREEN, "scale, add, max")
    p.arrow(240, 166, 290, 154)
    p.arrow(470, 154, 520, 166)
    p.box(40, 168, 680, 14, ORANGE, fill=0.35)
    p.text(740, 156, "2 trips", "end", size=12)


@picture("online-softmax", "One walk along the row: when a larger number comes, what was summed is scaled down", 180)
def online_softmax(p: Picture) -> None:
    p.text(20, 16, "a row, read once from left to right", "start", bold=True)
    numbers, largest = [2, 5, 3, 8, 1, 4], [2, 5, 5, 8, 8, 8]
    for at, (value, top) in enumerate(zip(numbers, largest, strict=True)):
        x = 170 + at * 92
        new = at == 0 or largest[at - 1] != top
        p.box(x, 34, 80, 28, BLUE, str(value))
        p.arrow(x + 40, 64, x + 40, 82)
        p.box(x, 84, 80, 28, ORANGE if new else GREY, str(top))
        p.box(x, 122, 80, 28, ORANGE if new and at else GREEN, "scale, add" if new and at else "add", size=12)
    for y, name in [(48, "number"), (98, "largest so far"), (136, "the sum")]:
        p.text(160, y, name, "end", size=12)
    p.text(170, 166, "orange: a new largest number, so the sum so far is made smaller first", "start", size=12)


@picture("filter", "Who stays learns its new place from the number of those before it who stay", 195)
def compaction(p: Picture) -> None:
    values, places = [7, 2, 9, 4, 8, 1, 6, 3], [0, 1, 1, 2, 2, 3, 3, 4]
    p.text(150, 40, "keep those above 5", "end", size=12)
    p.text(150, 84, "who stays before me?", "end", size=12)
    p.text(150, 154, "result", "end", size=12)
    for at, (value, place) in enumerate(zip(values, places, strict=True)):
        x, stays = 165 + at * 72, value > 5
        p.box(x, 26, 60, 28, GREEN if stays else GREY, str(value), fill=0.3 if stays else 0.05)
        p.box(x, 70, 60, 28, BLUE if stays else GREY, str(place), fill=0.3 if stays else 0.05)
        if stays:
            p.arrow(x + 30, 100, 195 + place * 72, 136)
            p.box(165 + place * 72, 140, 60, 28, GREEN, str(value))
    p.text(165, 184, "so all threads write at once, and none in another's place", "start", size=12)


@picture("columns", "A table kept by columns lets a warp read neighbours", 170)
def columns(p: Picture) -> None:
    names = ["fare", "miles", "tip"]
    colors = [BLUE, GREEN, PINK]
    p.text(20, 16, "by rows: the fares lie apart", "start", bold=True)
    for ride in range(4):
        p.row(20 + ride * 182, 32, names, 56, 26, 2, lambda n: colors[n] if n == 0 else GREY)
    p.text(20, 90, "by columns: the fares lie side by side", "start", bold=True)
    for column, name in enumerate(names):
        p.row(20 + column * 244, 106, [name] * 4, 56, 26, 2, colors[column] if column == 0 else GREY)
    p.text(20, 152, "asked for: the mean fare. Coloured: what is read", "start", size=12)


@picture("several-blocks", "Blocks share nothing but GPU memory, and start in any order", 145)
def several_blocks(p: Picture) -> None:
    for at in range(4):
        x = 30 + at * 180
        p.box(x, 20, 160, 60, BLUE, fill=0.08)
        p.text(x + 80, 34, f"block {[2, 0, 3, 1][at]}", size=12)
        p.box(x + 15, 46, 130, 26, GREEN, "own shared memory", size=12)
        p.arrow(x + 80, 82, x + 80, 102)
    p.box(30, 104, 700, 28, ORANGE, "GPU memory: what blocks tell each other goes through here", size=12)
