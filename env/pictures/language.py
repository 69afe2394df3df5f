"""Pictures of language models: attention, its memory, and how answers are made."""

from __future__ import annotations

from env.pictures.svg import BLUE, GREEN, GREY, ORANGE, PINK, Picture, picture

WORDS = ["the", "cat", "sat", "because", "it", "slept"]


@picture("token", "A model reads pieces of text, and gives a chance for each next one", 150)
def token(p: Picture) -> None:
    p.row(20, 40, ["the", "cat", "sat", "on", "the"], 66, 34, 4, BLUE, size=14)
    p.arrow(374, 57, 410, 57)
    p.box(414, 34, 90, 46, GREY, "model")
    p.arrow(508, 57, 540, 57)
    for at, (word, share) in enumerate([("mat", 0.6), ("sofa", 0.25), ("moon", 0.05)]):
        p.text(600, 34 + at * 28, word, "end")
        p.box(610, 24 + at * 28, 120 * share, 20, GREEN, fill=0.5)
    p.text(20, 120, "draw one of them, put it behind the text, and ask again: one token a round", "start", size=12)


@picture("attention", "Each word asks all words before it how much they matter to it", 190)
def attention(p: Picture) -> None:
    weights = [0.05, 0.62, 0.1, 0.08, 0.15]
    for at, word in enumerate(WORDS):
        p.box(40 + at * 118, 130, 104, 30, ORANGE if at == 4 else BLUE, word)
    for at, weight in enumerate(weights[:4]):
        x = 92 + at * 118
        p.path([(564, 128), ((x + 564) / 2, 60 - at * -8), (x, 128)], GREEN, 1 + weight * 9)
        p.text(x - 8, 114, f"{weight:.0%}", "end", size=12)
    p.text(580, 114, f"{weights[4]:.0%} for itself", "start", size=12)
    p.text(40, 22, "what does “it” mean? It looks at what stands before it:", "start")
    p.text(40, 178, "the answer is the mixture of their meanings, in these shares", "start", size=12)


@picture("causal-mask", "A word may look back and not ahead: half of the table is not needed", 205)
def causal_mask(p: Picture) -> None:
    for row, word in enumerate(WORDS):
        p.text(130, 44 + row * 26, word, "end", size=12)
        for column in range(6):
            seen = column <= row
            p.box(140 + column * 70, 32 + row * 26, 66, 22, GREEN if seen else GREY, "" if seen else "hidden", size=11)
    for column, word in enumerate(WORDS):
        p.text(173 + column * 70, 18, word, size=12)
    p.text(580, 60, "row: who asks", "start", size=12)
    p.text(580, 84, "column: who is asked", "start", size=12)


@picture("flash-attention", "Tile by tile: the whole table of scores never exists", 200)
def flash_attention(p: Picture) -> None:
    p.text(120, 16, "chain of kernels", bold=True)
    for row in range(8):
        for column in range(8):
            p.box(40 + column * 20, 32 + row * 18, 18, 16, ORANGE, fill=0.4)
    p.text(120, 188, "the table is written and read", size=12)
    p.text(500, 16, "flash attention", bold=True)
    for row in range(8):
        for column in range(8):
            now = row in (2, 3) and column in (4, 5)
            p.box(340 + column * 20, 32 + row * 18, 18, 16, GREEN if now else GREY, fill=0.6 if now else 0.03)
    p.arrow(506, 78, 548, 78)
    p.box(552, 58, 190, 62, BLUE, "largest so far,\nsum so far,\nresult so far", size=12)
    p.text(440, 188, "only one tile exists, in shared memory", size=12)


@picture("kv-cache", "What was computed for the words before is kept", 180)
def kv_cache(p: Picture) -> None:
    p.text(20, 16, "without: the whole text again for each new token", "start", bold=True)
    p.row(20, 30, ["compute"] * 5 + ["new"], 100, 26, 6, lambda n: ORANGE)
    p.text(20, 92, "with a KV cache: only the new one", "start", bold=True)
    p.row(20, 106, ["kept"] * 5 + ["new"], 100, 26, 6, lambda n: ORANGE if n == 5 else BLUE)
    p.text(20, 156, "the price: two rows of numbers for each token and layer stay in memory", "start", size=12)


@picture("batching", "One walk through the weights serves all texts of a batch", 175)
def batching(p: Picture) -> None:
    p.text(20, 16, "alone", "start", bold=True)
    p.box(20, 30, 150, 100, ORANGE, "all weights\nare read")
    p.arrow(174, 80, 210, 80)
    p.box(214, 66, 110, 28, GREEN, "1 token")
    p.text(400, 16, "eight together", "start", bold=True)
    p.box(400, 30, 150, 100, ORANGE, "all weights\nare read, once")
    p.arrow(554, 80, 590, 80)
    for at in range(8):
        p.box(594 + at % 2 * 74, 32 + at // 2 * 26, 70, 22, GREEN, "1 token", size=12)
    p.text(20, 156, "eight times the tokens a second; each reader waits about as long", "start", size=12)


@picture("half-precision", "Half the bytes are read in half the time", 130)
def half_precision(p: Picture) -> None:
    p.text(60, 40, "f32", "end")
    p.row(70, 24, ["4 bytes"] * 8, 78, 32, 4, BLUE)
    p.text(60, 92, "bf16", "end")
    p.row(70, 76, ["2 bytes"] * 8, 37, 32, 4, GREEN, size=9)
    p.arrow(404, 92, 724, 92, PINK)
    p.text(564, 80, "time and memory saved", size=12)
