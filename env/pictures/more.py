"""Pictures of smaller ideas: how threads hand numbers on, how tables are joined, how a model is fed."""

from __future__ import annotations

import math

from env.pictures.svg import BLUE, GREEN, GREY, ORANGE, PINK, Picture, picture


@picture("shuffle", "Threads of a warp hand numbers to each other directly", 165)
def shuffle(p: Picture) -> None:
    p.text(20, 16, "each adds what the one four places on holds", "start", bold=True)
    held = [3, 1, 4, 1, 5, 9, 2, 6]
    for at, value in enumerate(held):
        x = 40 + at * 86
        p.box(x, 34, 66, 28, BLUE, str(value))
        if at < 4:
            p.box(x, 110, 66, 28, GREEN, f"{value} + {held[at + 4]}")
            p.arrow(x + 33, 64, x + 33, 108)
            p.arrow(40 + (at + 4) * 86 + 33, 64, x + 48, 108, ORANGE)
    p.text(400, 154, "no shared memory, no barrier: __shfl_down_sync", "start", size=12)


@picture("grid-stride", "A few blocks walk over all elements together, step by step", 135)
def grid_stride(p: Picture) -> None:
    p.text(20, 16, "16 elements, 2 blocks of 2 threads: four steps", "start", bold=True)
    colors = [BLUE, GREEN, ORANGE, PINK]
    for at in range(16):
        p.box(20 + at * 45, 34, 42, 28, colors[at % 4], f"t{at % 4}", size=12)
    for step in range(4):
        p.text(110 + step * 180, 84, f"step {step + 1}", size=12)
    p.text(20, 114, "for (i = my number; i < n; i += number of all threads)", "start", size=12)


@picture("register-tile", "A thread that computes four results uses each number it fetched twice", 185)
def register_tile(p: Picture) -> None:
    for x, side, title, said in [
        (60, 1, "one result a thread", "2 numbers fetched for 1 multiply-add"),
        (430, 2, "four results a thread", "4 numbers fetched for 4 multiply-adds"),
    ]:
        p.text(x + 110, 16, title, bold=True)
        for at in range(side):
            p.box(x, 70 + at * 40, 60, 34, BLUE, "a")
            p.box(x + 80 + at * 70, 30, 60, 34, BLUE, "b")
            for other in range(side):
                p.box(x + 80 + at * 70, 70 + other * 40, 60, 34, GREEN, "a · b", size=12)
        p.text(x + 110, 172, said, size=12)


@picture("normalisation", "Norms bring each row to the same middle and width", 185)
def normalisation(p: Picture) -> None:
    for x, values, title in [
        (40, [0.9, 0.75, 0.82, 0.97, 0.7, 0.88], "before: anywhere, of any width"),
        (420, [0.62, 0.2, 0.4, 0.85, 0.1, 0.55], "after: around 0, of width 1"),
    ]:
        p.text(x + 145, 16, title, bold=True)
        p.line(x, 160, x + 290, 160) if x == 40 else p.line(x, 100, x + 290, 100)
        for at, value in enumerate(values):
            if x == 40:
                p.box(x + 10 + at * 47, 160 - 125 * value, 38, 125 * value, BLUE)
            else:
                height = 130 * (value - 0.45)
                p.box(x + 10 + at * 47, 100 - max(height, 0), 38, abs(height), GREEN)
    p.text(40, 176, "each number: minus the row's mean, divided by the row's width", "start", size=12)


@picture("rope", "A word's place turns its pairs of numbers by an angle", 165)
def rope(p: Picture) -> None:
    p.text(20, 16, "the same pair of numbers, at four places of a text", "start", bold=True)
    for place in range(4):
        x, y, angle = 100 + place * 180, 88, 0.35 + 0.6 * place
        p.path([(x + 48 * math.cos(t / 10), y - 48 * math.sin(t / 10)) for t in range(64)], GREY, 1)
        p.arrow(x, y, x + 46 * math.cos(angle), y - 46 * math.sin(angle), BLUE)
        p.text(x, 152, f"word {place}", size=12)


@picture("hash-join", "Each row finds its partner in one or two looks", 185)
def hash_join(p: Picture) -> None:
    p.text(100, 16, "rides", bold=True)
    p.text(380, 16, "shelf: 7 places", bold=True)
    p.text(645, 16, "ride with its driver", bold=True)
    shelf = {0: "21 Ann", 2: "9 Bo", 3: "16 Cy", 5: "5 Di"}
    for place in range(7):
        text = shelf.get(place, "empty")
        p.box(300, 30 + place * 21, 160, 19, GREEN if place in shelf else GREY, f"{place}: {text}", size=11)
    for at, (driver, place) in enumerate([(9, 2), (16, 3), (5, 5)]):
        y = 44 + at * 44
        p.box(40, y, 120, 28, BLUE, f"driver {driver}", size=12)
        p.arrow(164, y + 14, 296, 40 + 21 * (driver % 7), GREY if driver % 7 != place else "currentColor")
        p.line(462, 40 + 21 * place, 558, y + 14)
        p.box(560, y, 170, 28, ORANGE, f"{driver} {shelf[place].split()[1]}", size=12)
    p.arrow(474, 82, 474, 103)
    p.text(482, 92, "taken: one on", "start", size=11)


@picture("epoch", "An epoch is once through all images, batch by batch, in a new order", 145)
def epoch(p: Picture) -> None:
    orders = [[3, 7, 1, 8, 5, 2, 6, 4], [6, 2, 8, 4, 1, 7, 3, 5]]
    for row, order in enumerate(orders):
        p.text(90, 46 + row * 46, f"epoch {row + 1}", "end", size=12)
        for at, image in enumerate(order):
            p.box(104 + at * 72 + at // 2 * 10, 32 + row * 46, 68, 28, [BLUE, GREEN, ORANGE, PINK][at // 2], str(image))
    p.text(104, 132, "one colour: a batch, after which the weights change a little", "start", size=12)


@picture("temperature", "A low temperature keeps to the likeliest word, a high one gives others a chance", 165)
def temperature(p: Picture) -> None:
    scores = [2.0, 1.2, 0.4, -0.5]
    for at, heat in enumerate([0.3, 1.0, 2.0]):
        x = 30 + at * 248
        shares = [math.exp(score / heat) for score in scores]
        p.text(x + 105, 16, f"temperature {heat}", bold=True)
        for row, (word, share) in enumerate(zip(["mat", "sofa", "roof", "moon"], shares, strict=True)):
            p.text(x + 50, 46 + row * 30, word, "end", size=12)
            p.box(x + 60, 35 + row * 30, max(150 * share / sum(shares), 1), 22, GREEN, fill=0.5)


@picture("heads", "Several heads look at the same text, each for something else", 150)
def heads(p: Picture) -> None:
    words = ["the", "cat", "sat", "because", "it"]
    for row, (name, shares, color) in enumerate(
        [
            ("head 1", [0.1, 0.8, 0.2, 0.1, 0.1], BLUE),
            ("head 2", [0.1, 0.1, 0.3, 0.8, 0.1], GREEN),
            ("head 3", [0.1, 0.1, 0.1, 0.2, 0.9], ORANGE),
        ]
    ):
        p.text(90, 56 + row * 32, name, "end", size=12)
        for at, share in enumerate(shares):
            p.box(104 + at * 126, 44 + row * 32, 118, 26, color, fill=share)
    for at, word in enumerate(words):
        p.text(163 + at * 126, 26, word)


@picture("export", "An exported model is a list of operators and weights that other programs run", 150)
def exported(p: Picture) -> None:
    p.box(20, 40, 150, 60, BLUE, "model in Rust\nand its weights", size=12)
    p.arrow(174, 70, 236, 70)
    p.box(240, 26, 230, 90, ORANGE, fill=0.12)
    p.text(355, 42, "a file: ONNX", bold=True)
    p.row(254, 58, ["Conv", "Relu", "MaxPool", "Gemm"], 50, 24, 2, ORANGE, size=11)
    p.text(355, 100, "weights, shapes, names", size=12)
    for at, name in enumerate(["a CPU", "an NVIDIA GPU", "a phone"]):
        p.arrow(474, 70, 546, 36 + at * 38)
        p.box(550, 22 + at * 38, 190, 28, GREEN, name, size=12)
