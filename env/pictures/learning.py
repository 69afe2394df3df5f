"""Pictures of learning: gradients, what a training step must remember, fewer bits."""

from __future__ import annotations

from itertools import pairwise

from env.pictures.svg import BLUE, GREEN, GREY, ORANGE, PINK, Picture, picture


@picture("gradient-descent", "Each step goes a little way downhill", 185)
def gradient_descent(p: Picture) -> None:
    p.line(60, 160, 720, 160)
    p.line(60, 160, 60, 20)

    def height(x: float) -> float:
        return 10 + 110 * ((x - 470) / 380) ** 2

    def at(x: float) -> tuple[float, float]:
        return x, 150 - height(x)

    p.path([at(x) for x in range(70, 701, 10)], GREY)
    steps = [110, 190, 258, 315, 360, 395, 420]
    for x in steps:
        p.dot(*at(x))
    for a, b in pairwise(steps):
        p.arrow(at(a)[0], at(a)[1] - 8, at(b)[0], at(b)[1] - 8)
    p.text(390, 176, "one of the model's numbers", size=12)
    p.text(50, 28, "error", "end", size=12)


@picture("autograd-memory", "In the backward pass each layer needs what it saw in the forward pass", 185)
def autograd_memory(p: Picture) -> None:
    names = ["image", "convolution", "pool", "linear", "loss"]
    for at, name in enumerate(names):
        x = 30 + at * 145
        p.box(x, 24, 115, 32, BLUE, name, size=12)
        if at < 4:
            p.arrow(x + 117, 40, x + 143, 40)
            p.box(x + 10, 76, 95, 28, ORANGE, "kept", size=12)
            p.arrow(x + 57, 57, x + 57, 74)
            p.arrow(x + 57, 105, x + 57, 122)
            p.box(x, 124, 115, 32, GREEN, "gradient", size=12)
            p.arrow(x + 143, 140, x + 117, 140)
        else:
            p.box(x, 124, 115, 32, GREEN, "start here", size=12)
            p.arrow(x + 57, 57, x + 57, 122)
    p.text(380, 174, "orange is what fills the memory; it grows with the batch", size=12)


@picture("training-memory", "What the memory of a training step holds", 140)
def training_memory(p: Picture) -> None:
    p.text(20, 18, "the memory of a training step", "start", bold=True)
    parts = [
        ("weights", 70, BLUE),
        ("gradients", 80, GREEN),
        ("optimiser:\ntwo a weight", 140, PINK),
        ("activations:\nmore with each image of the batch", 300, ORANGE),
        ("workspace", 100, GREY),
    ]
    x = 20.0
    for text, width, color in parts:
        p.box(x, 36, width, 52, color, text, size=12)
        x += width + 4
    p.text(20, 110, "fixed by the model", "start", size=12)
    p.text(326, 110, "fixed by the batch, and by what is fused or computed again", "start", size=12)


@picture("checkpointing", "Keep every third result, and compute the others again", 160)
def checkpointing(p: Picture) -> None:
    p.text(20, 16, "keep everything: 6 kept, nothing computed again", "start", bold=True)
    p.row(20, 32, [str(n) for n in range(1, 7)], 110, 28, 8, ORANGE)
    p.text(20, 90, "checkpoints: 2 kept, 4 computed again when they are needed", "start", bold=True)
    for n in range(6):
        kept = n % 3 == 0
        text = str(n + 1) if kept else f"{n + 1} again"
        p.box(
            20 + n * 118, 106, 110, 28, ORANGE if kept else GREY, text, dash=not kept, fill=0.25 if kept else 0, size=12
        )


@picture("accumulation", "Four small batches give the same gradient as a large one", 150)
def accumulation(p: Picture) -> None:
    for at in range(4):
        p.box(20 + at * 110, 30, 100, 34, BLUE, f"batch {at + 1}")
        p.arrow(70 + at * 110, 66, 70 + at * 110, 88)
    p.box(20, 90, 430, 34, GREEN, "gradients, added up")
    p.arrow(454, 107, 516, 107)
    p.box(520, 90, 220, 34, ORANGE, "one step of the weights")
    p.text(20, 140, "only one small batch is in memory at a time", "start", size=12)


@picture("loss-scale", "Small gradients fall below what 16 bits can hold, unless they are scaled up first", 165)
def loss_scale(p: Picture) -> None:
    p.line(40, 120, 720, 120)
    p.box(40, 30, 190, 90, GREY, fill=0.1)
    p.text(135, 44, "lost: f16 knows", size=12)
    p.text(135, 60, "nothing smaller", size=12)
    p.box(232, 30, 488, 90, GREEN, fill=0.06)
    p.text(700, 44, "what f16 can hold", "end", size=12)
    for x, height in [(110, 20), (140, 32), (170, 44), (200, 30), (250, 22), (280, 14)]:
        p.box(x, 120 - height, 16, height, ORANGE)
        p.box(x + 300, 120 - height, 16, height, BLUE)
    p.arrow(310, 70, 400, 70)
    p.text(355, 56, "× 1024", size=12)
    p.text(380, 142, "size of the gradients: small on the left, large on the right", size=12)


@picture("convolution", "A small window walks over the image; its nine numbers are the same everywhere", 180)
def convolution(p: Picture) -> None:
    for row in range(6):
        for column in range(8):
            inside = 1 <= row <= 3 and 2 <= column <= 4
            p.box(40 + column * 24, 20 + row * 24, 22, 22, ORANGE if inside else GREY, fill=0.45 if inside else 0.1)
    p.arrow(250, 90, 320, 90)
    for row in range(3):
        p.row(330, 56 + row * 24, [""] * 3, 22, 22, 2, BLUE)
    p.text(366, 142, "nine weights", size=12)
    p.arrow(420, 90, 490, 90)
    for row in range(4):
        for column in range(6):
            hit = (row, column) == (1, 2)
            p.box(510 + column * 24, 44 + row * 24, 22, 22, GREEN, fill=0.6 if hit else 0.1)
    p.text(136, 174, "image", size=12)
    p.text(580, 150, "one number for each place", size=12)
